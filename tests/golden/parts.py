"""Golden cases of methods, distributions, label bins and resampling."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from tailwise import (
    NIG,
    VIR,
    LabelBins,
    Mixture,
    Normal,
    available_methods,
    build_model,
    label_weights,
)
from tailwise.distributions.members import concatenate, pooled
from tailwise.distributions.truncation import Bounds
from tailwise.labels.prior import LabelDensity, change_of_prior, emphasis
from tailwise.metrics import crps, evaluate
from tailwise.resampling.smogn import smogn, smoter
from tests.golden import tables
from tests.golden.recording import add_case, case

ROWS, EPOCHS = 200, 2
SHOWN = 8


def rows() -> tuple[Tensor, Tensor, LabelBins]:
    """Inputs, labels and their bins."""
    X, y = tables.numbers(ROWS)
    return torch.tensor(X, dtype=torch.float32), torch.from_numpy(y), LabelBins.from_labels(y)


def moments(distribution: Any) -> dict[str, Any]:
    return {
        "mean": distribution.mean,
        "point": distribution.point,
        "variance": distribution.variance,
        "aleatoric": distribution.aleatoric,
        "epistemic": distribution.epistemic,
    }


def trained(model: Any, x: Any, y: Tensor, **offset: Tensor) -> dict[str, Any]:
    """Train as docs/own-models.md does; return the parts of the last loss and predictions."""
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    parts: dict[str, Any] = {}
    for epoch in range(EPOCHS):
        model.train()
        model.begin_epoch(epoch / EPOCHS)
        for chosen in np.array_split(np.random.default_rng(epoch).permutation(len(y)), 4):
            around = {name: value[chosen] for name, value in offset.items()}
            loss, parts = model.loss(x[chosen], y[chosen], **around)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        model.end_epoch()
    model.eval()
    with torch.no_grad():
        predicted = model(x[:SHOWN], **{name: value[:SHOWN] for name, value in offset.items()})
    return {
        "loss": loss,
        "parts": dict(parts),
        **moments(predicted),
        "quantiles": [predicted.quantile(q) for q in (0.05, 0.5, 0.95)],
        "nll": predicted.nll(y[:SHOWN]),
        "crps": crps(predicted, y[:SHOWN]),
    }


def method(name: str, folder: Path, around_base: bool = False) -> dict[str, Any]:
    x, y, bins = rows()
    torch.manual_seed(0)
    model = build_model(name, tables.Plain(), 12, bins, offset=around_base)
    if around_base:
        return trained(model, x, y, offset=x[:, 0].double().exp())
    return trained(model, x, y.clamp_min(0))


def two_targets(name: str, folder: Path) -> dict[str, Any]:
    x, y, bins = rows()
    second = x[:, 1].double()
    torch.manual_seed(0)
    model = build_model(name, tables.Plain(), 12, [bins, LabelBins.from_labels(second.numpy())])
    return trained(model, x, torch.stack([y, second], dim=1))


def own_vir(preset: str, folder: Path) -> dict[str, Any]:
    """VIR with a decoder and a latent of another size."""
    x, y, bins = rows()
    torch.manual_seed(0)
    decoder = nn.Linear(6, 3)
    return trained(VIR(tables.Plain(), 12, bins, preset=preset, decoder=decoder, **{"latent.dim": 6}), x, y)


for _name in available_methods():
    add_case(f"method-{_name}", partial(method, _name))
for _name in ("vanilla", "lds-fds", "gaussian", "vir", "vir-dial", "ensemble"):
    add_case(f"method-{_name}-around-a-base", partial(method, _name, around_base=True))
for _name in ("lds-fds", "ranksim", "vir", "vir-dial", "ensemble"):
    add_case(f"method-{_name}-for-two-targets", partial(two_targets, _name))
for _preset in ("default", "paper", "reference"):
    add_case(f"own-vir-{_preset}", partial(own_vir, _preset))


def double(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


NORMAL = Normal(double(0.0, 1.0, -2.0, 3.0), double(1.0, 0.25, 4.0, 0.5))
BELIEF = NIG(double(0.0, 1.0, -2.0, 3.0), double(1, 0.5, 3, 9), double(2, 5, 1.5, 1.01), double(1, 2, 0.3, 1))
WIDER = NIG(double(1.0, 0.0, 3.0, 2.0), double(2, 1, 1, 0.1), double(3, 2.5, 4, 2), double(0.5, 1, 1, 8))
SHARES = torch.tensor([0.3, 0.7], dtype=torch.float64)
KINDS = {
    "normal": NORMAL,
    "nig": BELIEF,
    "mixture-of-normals": Mixture([NORMAL, NORMAL.rescale(1.0, 0.5)], SHARES),
    "mixture-of-nig": Mixture([BELIEF, WIDER], SHARES),
}
LABELS = double(0.5, 1.0, -4.0, 2.2)


def training_labels() -> LabelBins:
    """Bins of 12 whole-number labels, some common and some rare."""
    return LabelBins.from_labels(np.repeat(np.arange(12.0) - 3, [40, 90, 60, 30, 20, 9, 5, 4, 3, 2, 1, 1]))


def functions(distribution: Any, *, draws: bool = True) -> dict[str, Any]:
    """Return every public function of a distribution of four predictions."""
    generator = torch.Generator().manual_seed(0)
    return {
        **moments(distribution),
        "std": distribution.std,
        "median": distribution.median,
        "nll": distribution.nll(LABELS),
        "nll-along": distribution.nll(torch.linspace(-3, 4, 5, dtype=torch.float64)[:, None]),
        "cdf": distribution.cdf(LABELS),
        "cdf-along": distribution.cdf(torch.linspace(-3, 4, 5, dtype=torch.float64)[:, None]),
        "quantile": distribution.quantile(double(0.001, 0.1, 0.5, 0.99)[:, None]),
        "interval": distribution.interval(0.8),
        "crps": [crps(distribution[k : k + 1], LABELS[k : k + 1]) for k in range(4)],
        "metrics": evaluate(distribution, LABELS, training_labels()),
        **({"sample": distribution.sample(3, generator)} if draws else {}),
    }


def distribution(kind: str, folder: Path) -> dict[str, Any]:
    plain = KINDS[kind]
    density = LabelDensity.from_bins(training_labels())
    expected = LabelDensity.from_prior(np.linspace(-2, 6, 50), density)
    tilted = emphasis(density, 0.7).apply(plain)
    return {
        "plain": functions(plain),
        "moved": functions(plain.rescale(1.5, -2.0)),
        "single": functions(plain.map(torch.Tensor.float), draws=False),
        "pooled": functions(pooled([plain, plain.rescale(1.0, 0.5), plain.rescale(0.0, 2.0)])),
        "joined": moments(concatenate([plain, plain.rescale(0.0, 2.0)])),
        "dial": functions(tilted),
        "dial-moved": functions(tilted.rescale(1.5, -2.0)),
        "prior": functions(change_of_prior(density, expected).apply(plain)),
        "bounds": functions(Bounds(-2.5, 3.5).apply(plain)),
        "bound-below": functions(Bounds(-2.2).apply(plain)),
        "bound-above": functions(Bounds(high=3.1).apply(plain)),
        "bounds-and-dial": functions(Bounds(-2.5, 9.0).apply(tilted)),
    }


for _kind in KINDS:
    add_case(f"distribution-{_kind}", partial(distribution, _kind))


@case
def label_bins(folder: Path) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    samples = {
        "skewed": rng.gamma(2, 1, 150),
        "whole": np.floor(rng.gamma(2, 4, 150)),
        "spike": np.where(rng.random(150) < 0.5, 0.0, rng.gamma(2, 1, 150)),
        "constant": np.full(20, 3.0),
    }
    found = {}
    for name, labels in samples.items():
        bins = LabelBins.from_labels(labels)
        found[name] = {
            "edges": bins.edges,
            "counts": bins.counts,
            "explain": bins.explain(),
            "regions": bins.regions(),
            "index": bins.index(labels[:20]),
            "weights": label_weights(bins),
            "full-weights": label_weights(bins, power=1.0, kernel=None),
        }
    return found


def resampled(function: Any, folder: Path) -> dict[str, Any]:
    X, y = tables.columns(120)
    table, labels = function(
        X[["size", "count", "kind", "place", "felled"]].dropna(),
        y[X[["size", "place"]].notna().all(axis=1)],
        seed=0,
    )
    matrix, more = function(*tables.numbers(120), seed=1)
    return {"table": table, "labels": labels, "matrix": matrix, "matrix-labels": more}


add_case("smogn", partial(resampled, smogn))
add_case("smoter", partial(resampled, smoter))
