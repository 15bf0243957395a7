"""Networks for tables, and embeddings of numbers."""

from __future__ import annotations

import copy
import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from tailwise.networks.backbones import (
    BACKBONES,
    Backbone,
    PiecewiseLinearEncoding,
    RealMLP,
    ResidualMLP,
    make_backbone,
    quantile_edges,
)
from tailwise.networks.network import redraw

each_backbone = pytest.mark.parametrize("name", BACKBONES)


def table(rows: int = 40, columns: int = 5) -> torch.Tensor:
    """Columns as preprocessing leaves them: numbers, one of two values, a constant one."""
    x = torch.randn(rows, columns, generator=torch.Generator().manual_seed(3))
    x[:, -1] = (x[:, -1] > 0.5).float()
    if columns > 2:
        x[:, 1] = 0.0
    return x


def shape_of(net: Backbone) -> tuple[int, ...]:
    """Shape of one row's features."""
    return (net.feature_dim,) if net.members is None else (net.members, net.feature_dim)


# -- what every backbone promises ------------------------------------------------------------------


@each_backbone
@pytest.mark.parametrize("columns", [1, 5])
def test_shape_and_gradients(name: str, columns: int) -> None:
    torch.manual_seed(0)
    x = table(columns=columns)
    net = make_backbone(name, columns, rows=x)
    x.requires_grad_()
    features = net(x)
    assert features.shape == (40, *shape_of(net)) and features.dtype == torch.float32
    (features**2).sum().backward()
    assert x.grad is not None and torch.isfinite(x.grad).all() and (x.grad != 0).any()
    for label, parameter in net.named_parameters():
        assert parameter.grad is not None, label
        assert torch.isfinite(parameter.grad).all() and (parameter.grad != 0).any(), label


@each_backbone
def test_a_row_does_not_depend_on_the_others(name: str) -> None:
    torch.manual_seed(0)
    x = table()
    net = make_backbone(name, 5, rows=x).eval()
    together = net(x)
    assert torch.equal(together, net(x))
    torch.testing.assert_close(torch.cat([net(row) for row in x.split(1)]), together, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(net(x.flip(0)).flip(0), together, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(net(x.reshape(8, 5, 5)).flatten(0, 1), together, rtol=1e-5, atol=1e-6)


@each_backbone
def test_redrawing_changes_every_weight_and_no_edge(name: str) -> None:
    """Members of an ensemble start from copies that are drawn anew."""
    torch.manual_seed(0)
    net = make_backbone(name, 5, rows=table())
    before = copy.deepcopy(net)
    redraw(net)
    kept = dict(net.named_buffers())
    for label, value in before.named_buffers():
        assert torch.equal(value, kept[label])
    now = dict(net.named_parameters())
    same = {label for label, value in before.named_parameters() if torch.equal(value, now[label])}
    # Norms and the scales of later layers always start from the same values.
    assert all(value.unique().numel() == 1 for label, value in now.items() if label in same)
    assert not torch.equal(before.eval()(table()), net.eval()(table()))


def test_unknown_names_are_errors_that_name_the_nearest() -> None:
    with pytest.raises(ValueError, match=r"unknown backbone 'residul'; did you mean 'residual'\?"):
        make_backbone("residul", 3)
    with pytest.raises(ValueError, match="unknown option 'droput' of backbone 'mlp'; did you mean 'drop"):
        make_backbone("mlp", 3, droput=0.1)
    with pytest.raises(ValueError, match=r"pass rows=\.\.\. or edges"):
        make_backbone("mlp-ple", 3)
    with pytest.raises(ValueError, match="there are edges for 1 columns, but the inputs have 3"):
        make_backbone("mlp-ple", 3, edges=[[0, 1]])


# -- each by hand ----------------------------------------------------------------------------------


def test_residual_by_hand() -> None:
    torch.manual_seed(0)
    net = ResidualMLP(4, width=6, blocks=2, expansion=1.5, dropout=0.5).double().eval()
    x = torch.randn(7, 4, dtype=torch.float64)
    state = {name: value.numpy() for name, value in net.state_dict().items()}

    def linear(name: str, value: Any) -> Any:
        return value @ state[f"{name}.weight"].T + state[f"{name}.bias"]

    def norm(name: str, value: Any) -> Any:
        centred = value - value.mean(1, keepdims=True)
        unit = centred / np.sqrt((centred**2).mean(1, keepdims=True) + 1e-5)
        return unit * state[f"{name}.weight"] + state[f"{name}.bias"]

    h = linear("first", x.numpy())
    for k in range(2):
        inner = np.maximum(linear(f"blocks.{k}.1", norm(f"blocks.{k}.0", h)), 0)
        assert inner.shape == (7, 9)
        h = h + linear(f"blocks.{k}.4", inner)
    np.testing.assert_allclose(net(x).detach(), np.maximum(norm("last.0", h), 0), rtol=1e-10)


def test_realmlp_by_hand() -> None:
    torch.manual_seed(0)
    rows = np.random.default_rng(0).normal(2, 5, size=(50, 3))
    net = RealMLP(3, rows=rows, width=6, blocks=2, frequencies=4, dim=2).double().eval()
    for parameter in (net.scale, *(layer.bend for layer in net.layers)):
        nn.init.normal_(parameter)
    state = {name: value.numpy() for name, value in net.state_dict().items()}
    low, median, high = np.quantile(rows, [0.25, 0.5, 0.75], axis=0)
    for row in rows[:5]:
        z = (row - median) / (high - low)
        numbers = z / np.sqrt(1 + (z / 3) ** 2) * (1 + 10 * state["scale"])
        h = []
        for j, number in enumerate(numbers):
            frequency, phase, mixture, bias = (
                state[f"embedding.{name}"][j] for name in ("frequency", "phase", "mixture", "bias")
            )
            waves = np.cos(2 * math.pi * number * frequency[0] + phase[0])
            h += [number, *(waves @ mixture + bias[0])]
        for k in range(2):
            weight, bias, bend = (state[f"layers.{k}.{name}"] for name in ("weight", "bias", "bend"))
            a = weight @ np.array(h) + bias
            h = a + bend * (a * np.tanh(np.log1p(np.exp(a))) - a)
        np.testing.assert_allclose(net(torch.from_numpy(row[None]))[0].detach(), h, rtol=1e-5)


def test_edges_of_training_rows() -> None:
    rng = np.random.default_rng(0)
    smooth = rng.normal(size=1000)
    columns = {
        "numbers": smooth,
        "constant": np.full(1000, 2.5),
        "large constant": np.full(1000, 1e9),
        "two values": rng.integers(0, 2, 1000),
        "mostly ties": np.where(rng.random(1000) < 0.95, 0.0, smooth),
        "almost ties": 1.0 + 1e-12 * smooth,
        "tiny": 1e-40 * smooth,
        "an outlier": np.where(np.arange(1000) == 0, 1e9, smooth),
        "missing": np.where(np.arange(1000) < 500, np.nan, smooth),
        "all missing": np.full(1000, np.nan),
    }
    found = dict(zip(columns, quantile_edges(np.column_stack(list(columns.values())), 8), strict=True))
    np.testing.assert_allclose(found["numbers"], np.quantile(smooth, np.linspace(0, 1, 9)))
    assert found["constant"] == [2.5, 3.5] and found["all missing"] == [0.0, 1.0]
    assert found["two values"] == [0.0, 1.0]
    assert len(found["mostly ties"]) == len(set(found["mostly ties"])) >= 3
    assert len(found["missing"]) == 9
    encoding = PiecewiseLinearEncoding(list(found.values()))
    for value in (0.0, 1e6, -1e6):
        share = encoding(torch.full((2, len(columns)), value))
        assert (share >= 0).all() and (share <= 1).all()
    assert (encoding.width > 0).all()


# -- the authors' package --------------------------------------------------------------------------


def package() -> Any:
    import rtdl_num_embeddings

    return rtdl_num_embeddings


def test_piecewise_is_that_of_its_authors_within_the_edges() -> None:
    """The same numbers in the same order where training rows lie, with columns of 1 to 4 bins."""
    edges = [[-1.0, 0.0, 2.0, 3.0], [0.0, 1.0], [-2.0, -1.5, 0.5, 0.7, 9.0]]
    theirs = package().PiecewiseLinearEncoding([torch.tensor(marks) for marks in edges])
    ours = PiecewiseLinearEncoding(edges)
    assert torch.Size([ours.out_dim]) == theirs.get_output_shape()
    share = torch.rand(200, 3)
    low, high = (torch.tensor([marks[i] for marks in edges]) for i in (0, -1))
    x = low + share * (high - low)
    torch.testing.assert_close(ours(x), theirs(x), rtol=1e-4, atol=1e-5)
    # Beyond the edges, on purpose: ours stays between 0 and 1, theirs goes on along the outer bins.
    outside = torch.stack([low - 5, high + 5])
    torch.testing.assert_close(ours(outside), theirs(outside).clamp(0, 1))
    assert theirs(outside).min() < -1 and theirs(outside).max() > 2
