"""Networks for tables, embeddings of numbers, and the decoder of table rows."""

from __future__ import annotations

import copy
import io
import math
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from tailwise.labels.bins import LabelBins
from tailwise.methods import build_model
from tailwise.networks.backbones import (
    BACKBONES,
    MLP,
    Backbone,
    PeriodicEmbedding,
    PiecewiseLinearEncoding,
    ResidualMLP,
    TableDecoder,
    TabM,
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
@pytest.mark.parametrize("value", [1e6, -1e6, 0.0])
def test_extreme_inputs_stay_finite(name: str, value: float) -> None:
    torch.manual_seed(0)
    net = make_backbone(name, 5, rows=table())
    x = torch.full((3, 5), value, requires_grad=True)
    features = net(x)
    assert torch.isfinite(features).all()
    features.sum().backward()
    assert x.grad is not None and torch.isfinite(x.grad).all()


@each_backbone
def test_state_makes_the_same_network(name: str) -> None:
    torch.manual_seed(0)
    x = table()
    first = make_backbone(name, 5, rows=x).eval()
    options: dict[str, Any] = {}
    if name.endswith("-ple"):  # what an artifact keeps of the training rows
        options = {"edges": first.get_submodule("embedding").edges}
    second = make_backbone(name, 5, **options).eval()
    buffer = io.BytesIO()
    torch.save(first.state_dict(), buffer)
    buffer.seek(0)
    second.load_state_dict(torch.load(buffer, weights_only=True))
    assert torch.equal(first(x), second(x))


@each_backbone
def test_works_under_a_method_and_in_double(name: str) -> None:
    torch.manual_seed(0)
    x, y = table(), torch.arange(40.0) % 7
    net = make_backbone(name, 5, rows=x)
    model = build_model("vir", net, net.feature_dim, LabelBins.from_labels(y))
    loss, _ = model.loss(x, y)
    loss.backward()
    assert torch.isfinite(loss)
    assert net.double().eval()(x.double()).dtype == torch.float64


@each_backbone
def test_learns_a_step_that_rows_share(name: str) -> None:
    """A few steps fit y = x0 * [x4 = 1] far better than the mean does."""
    torch.manual_seed(0)
    x = table(120)
    y = x[:, 0] * x[:, -1]
    net = make_backbone(name, 5, rows=x, dropout=0.0)
    head = nn.Linear(math.prod(shape_of(net)), 1)
    optimizer = torch.optim.AdamW([*net.parameters(), *head.parameters()], 3e-3)
    for _ in range(80):
        loss = ((head(net(x).flatten(1)).squeeze(-1) - y) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    error = (head(net.eval()(x).flatten(1)).squeeze(-1) - y).var()
    assert error < 0.1 * y.var()


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


def test_tabm_by_hand() -> None:
    """Each member is a plain network whose weights are W_ij s_i r_j."""
    torch.manual_seed(0)
    net = TabM(4, hidden=(6, 3), members=5, dropout=0.5).double().eval()
    for parameter in (*net.scale_in, *net.scale_out, *net.bias):
        nn.init.normal_(parameter)
    x = torch.randn(7, 4, dtype=torch.float64)
    found = net(x).detach().numpy()
    for k in range(5):
        h = x.numpy()
        for layer in range(2):
            r, s, b = (p[layer][k].detach().numpy() for p in (net.scale_in, net.scale_out, net.bias))
            weight = net.shared[layer].weight.detach().numpy() * s[:, None] * r[None, :]
            h = np.maximum(h @ weight.T + b, 0)
        np.testing.assert_allclose(found[:, k], h, rtol=1e-10)


def test_tabm_drops_for_each_member_in_training_only() -> None:
    torch.manual_seed(0)
    net = TabM(4, hidden=(64,), members=3, dropout=0.5)
    nn.init.ones_(net.scale_in[0])  # members are now alike but for what is dropped
    x = torch.randn(5, 4)
    assert not torch.equal(net(x)[:, 0], net(x)[:, 1])
    net.eval()
    assert torch.equal(net(x)[:, 0], net(x)[:, 1])


def test_one_member_of_tabm_is_an_mlp() -> None:
    torch.manual_seed(0)
    net, mlp, x = TabM(4, (6, 3), members=1, dropout=0.0), MLP(4, (6, 3), dropout=0.0), torch.randn(7, 4)
    layers = [layer for layer in mlp.layers if isinstance(layer, nn.Linear)]
    with torch.no_grad():
        for layer, shared, r, b in zip(layers, net.shared, net.scale_in, net.bias, strict=True):
            layer.weight.copy_(shared.weight * r)
            layer.bias.copy_(b[0])
    torch.testing.assert_close(net(x), mlp(x).unsqueeze(1))


def test_an_embedding_and_its_column_start_alike() -> None:
    """In front of TabM, all inputs made of one column of a table start with the same factor."""
    net = make_backbone("tabm-ple", 2, edges=[[0, 1, 2], [0, 1]], members=4)
    first = net.get_submodule("network").scale_in[0]
    assert first.shape == (4, 2 + 3)
    for k in range(4):
        one, two, *encoded = first[k].tolist()
        assert encoded == [one, one, two] and one != two


def test_periodic_by_hand() -> None:
    torch.manual_seed(0)
    embedding = PeriodicEmbedding(3, frequencies=4, dim=5).double()
    assert embedding.frequency.abs().max() <= 0.3
    x = torch.randn(6, 3, dtype=torch.float64)
    weight, bias = embedding.linear.weight.detach().numpy(), embedding.linear.bias.detach().numpy()
    got = embedding(x).detach().numpy()
    for i in range(6):
        for j in range(3):
            angle = 2 * np.pi * embedding.frequency[j].detach().numpy() * x[i, j].item()
            want = np.maximum(weight @ np.concatenate([np.cos(angle), np.sin(angle)]) + bias, 0)
            np.testing.assert_allclose(got[i, 5 * j : 5 * j + 5], want, atol=1e-12)


def test_piecewise_by_hand() -> None:
    edges = [[-1.0, 0.0, 2.0, 3.0], [0.0, 1.0]]
    encoding = PiecewiseLinearEncoding(edges)
    assert encoding.out_dim == 4 and encoding.edges == edges
    for value in (-3.0, -1.0, -0.5, 0.0, 1.0, 2.5, 3.0, 5.0):
        want = []
        for marks in edges:
            want += [min(max((value - low) / (high - low), 0.0), 1.0) for low, high in pairwise(marks)]
        got = encoding(torch.tensor([[value, value]]))[0]
        assert got.tolist() == pytest.approx(want)


def test_piecewise_refuses_what_does_not_fit() -> None:
    for marks in ([0.0], [0.0, 0.0], [1.0, 0.0], [0.0, math.nan]):
        with pytest.raises(ValueError, match="edges of column 1 must be two or more increasing numbers"):
            PiecewiseLinearEncoding([[0.0, 1.0], marks])
    with pytest.raises(ValueError, match="inputs have 3 columns, but there are edges for 1"):
        PiecewiseLinearEncoding([[0.0, 1.0]])(torch.zeros(2, 3))
    with pytest.raises(ValueError, match=r"rows must have shape \(N, F\), got \(3,\)"):
        quantile_edges([1.0, 2.0, 3.0])


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


def test_periodic_is_that_of_its_authors() -> None:
    """PLR(lite) for the same weights; ours starts with frequencies ten times as large, fewer of them."""
    torch.manual_seed(0)
    theirs = package().PeriodicEmbeddings(3, 5, n_frequencies=4, frequency_init_scale=0.1, lite=True)
    ours = PeriodicEmbedding(3, frequencies=4, dim=5, frequency_std=0.1)
    ours.frequency.data.copy_(theirs.periodic.weight)
    ours.linear.load_state_dict(theirs.linear.state_dict())
    x = 3 * torch.randn(20, 3)
    torch.testing.assert_close(ours(x), theirs(x).flatten(1))


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


def test_edges_are_those_of_the_authors_where_values_do_not_repeat() -> None:
    """Elsewhere ours, on purpose: few values get an edge each, and constant or missing ones a bin."""
    torch.manual_seed(0)
    rows = torch.randn(500, 2)
    for ours, theirs in zip(quantile_edges(rows, 8), package().compute_bins(rows, 8), strict=True):
        torch.testing.assert_close(torch.tensor(ours), theirs)
    few = torch.tensor([0.0] * 9 + [1.0, 2.0, 3.0]).unsqueeze(1)
    assert quantile_edges(few, 4) == [[0.0, 1.0, 2.0, 3.0]]
    assert package().compute_bins(few, 4)[0].tolist() == [0.0, 0.25, 3.0]
    with pytest.raises(ValueError, match="at least two distinct values"):
        package().compute_bins(torch.ones(12, 1), 4)
    assert quantile_edges(torch.ones(12, 1), 4) == [[1.0, 2.0]]


def test_a_value_beyond_a_narrow_range_does_not_drown_the_others() -> None:
    """Seen on hotel_rates with 500 rows: unbounded outer bins made errors six times larger."""
    rows = torch.stack([torch.randn(50), 1e-3 * torch.arange(50) / 50], 1)
    net = make_backbone("mlp-ple", 2, rows=rows).eval()
    assert net(torch.tensor([[0.0, 5.0]])).abs().max() < 10


def test_edges_of_many_rows_are_those_of_a_sample() -> None:
    rows = torch.rand(5000, 2, generator=torch.Generator().manual_seed(0))
    sampled = quantile_edges(rows, 4, max_rows=2000)
    assert sampled == quantile_edges(rows, 4, max_rows=2000)
    np.testing.assert_allclose(sampled, quantile_edges(rows, 4), atol=0.05)


def test_mlp_by_hand() -> None:
    torch.manual_seed(0)
    net = MLP(5, hidden=(7, 4), dropout=0.5).double().eval()
    assert net.feature_dim == 4
    x = torch.randn(6, 5, dtype=torch.float64)
    value = x.numpy()
    for layer in [m for m in net.modules() if isinstance(m, nn.Linear)]:
        value = np.maximum(value @ layer.weight.detach().numpy().T + layer.bias.detach().numpy(), 0)
    np.testing.assert_allclose(net(x).detach(), value, rtol=1e-12)
    assert net(x).shape == (6, 4)


def test_mlp_drops_in_training_only() -> None:
    torch.manual_seed(0)
    net, x = MLP(5, hidden=(64,), dropout=0.5), torch.randn(8, 5)
    assert not torch.equal(net(x), net(x))
    net.eval()
    assert torch.equal(net(x), net(x))
    assert MLP(3, hidden=()).feature_dim == 3


@pytest.mark.parametrize(("numeric", "categories"), [(3, (2, 4)), (2, ()), (0, (3,))])
def test_decoder_by_hand(numeric: int, categories: tuple[int, ...]) -> None:
    """VIR:recon: half the squared error of a number, -log softmax of a category, row by row."""
    torch.manual_seed(1)
    rng = np.random.default_rng(1)
    decoder = TableDecoder(4, numeric, categories, hidden=6).double()
    z = rng.normal(size=(7, 4))
    codes = [rng.integers(0, size, 7) for size in categories]
    x = np.column_stack([rng.normal(size=(7, numeric)), *codes])
    got = decoder.nll(torch.as_tensor(z), torch.as_tensor(x))
    assert got.shape == (7,)
    first, out = decoder.body[0], decoder.head
    for i in range(7):
        inner = np.maximum(first.weight.detach().numpy() @ z[i] + first.bias.detach().numpy(), 0)
        raw = out.weight.detach().numpy() @ inner + out.bias.detach().numpy()
        want = sum((x[i, c] - raw[c]) ** 2 / 2 for c in range(numeric))
        start = numeric
        for column, size in enumerate(categories):
            scores = raw[start : start + size]
            want += math.log(sum(math.exp(s) for s in scores)) - scores[int(x[i, numeric + column])]
            start += size
        assert got[i].item() == pytest.approx(want)


def test_decoder_gradients_equal_finite_differences() -> None:
    torch.manual_seed(2)
    decoder = TableDecoder(3, 2, (3,), hidden=5).double()
    x = torch.tensor([[0.1, -1.0, 2.0], [1.0, 0.3, 0.0]]).double()
    z = torch.randn(2, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda z: decoder.nll(z, x), (z,))
