"""A small table and VIR over one linear layer, for tests of networks."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from tailwise.distributions.members import Distribution
from tailwise.labels.bins import LabelBins
from tailwise.networks.losses import LatentBatch
from tailwise.networks.network import Network
from tailwise.networks.parts import Part, checked, made
from tailwise.networks.tail import Tail
from tailwise.networks.vir import VIR

Array = NDArray[np.float64]
Stats = dict[str, Array]
MODES = ("plain", "self", "marginal")
PRIOR = (0.3, 0.7, 2.5, 0.4)


def data(n: int = 60, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Inputs (n, 3) and skewed labels on the integers 0..11, in float64."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 3))
    y = np.clip(np.round(np.exp(0.8 * x[:, 0] + 0.3 * rng.normal(size=n)) * 2), 0, 11)
    y[:2] = 0, 11
    return torch.as_tensor(x), torch.as_tensor(y)


def build(y: Tensor, *, seed: int = 0, **options: Any) -> VIR:
    """A VIR over one linear layer, in double precision."""
    torch.manual_seed(seed)
    options = {"head": {"prior": PRIOR, "sharpness": 0.5}, "latent.dim": 4, **options}
    return VIR(nn.Linear(3, 5), 5, LabelBins.from_labels(y), **options).double()


def tail(model: Network) -> Tail:
    """The only tail of a network, or its first."""
    found = model.tails[0]
    assert isinstance(found, Tail)
    return found


FEW = LabelBins.from_labels([0.0, 1.0, 2.0])


def make_part(kind: str, name: str, *context: Any, **options: Any) -> Any:
    """A part by its name, with its options checked."""
    return made(kind, checked(kind, Part(name, **options)), *context)


def loss_of(name: str, bins: LabelBins = FEW, **options: Any) -> Any:
    """A loss by its name, of latents of one dimension."""
    return make_part("losses", name, 1, bins, **options)


def batch(prediction: Distribution, y: Tensor, **values: Any) -> LatentBatch:
    """Predictions of standardised labels, on latents that are all 0 unless given."""
    z = torch.zeros(len(y), 1)
    known = {
        "x": None,
        "features": z,
        "z_mean": z,
        "z_var": None,
        "z": z,
        "index": torch.zeros(len(y)).long(),
    }
    return LatentBatch(**{**known, **values}, prediction=prediction, y=y)


def one_epoch(model: Network, x: Tensor, y: Tensor) -> Network:
    """Let the statistics of all rows take effect."""
    model.train()
    model.loss(x, y)
    model.end_epoch()
    return model


def train(
    model: Network, x: Tensor, y: Tensor, epochs: int, batch: int = 32, lr: float = 1e-2
) -> list[float]:
    """A plain torch loop that knows nothing about the model but its loss."""
    model.train()
    optimizer = torch.optim.Adam(model.parameters(), lr)
    losses = []
    for _ in range(epochs):
        total = 0.0
        for start in range(0, len(y), batch):
            loss, _ = model.loss(x[start : start + batch], y[start : start + batch])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        losses.append(total)
    return losses


def npy(value: Tensor) -> Array:
    return value.detach().double().numpy()


# -- VIR:A, VIR:S and VIR:F one bin, one row, one column at a time, in float64 -----------------------


def loop_statistics(z_mean: Array, z_var: Array, index: Array, num_bins: int) -> Stats:
    """VIR:A as printed. Bins without rows are NaN, so that nothing can rely on them by accident."""
    dim = z_mean.shape[1]
    found = {name: np.full((num_bins, dim), np.nan) for name in ("mu_mean", "mu_var", "cov_mean")}
    found["count"] = np.zeros(num_bins)
    for b in range(num_bins):
        rows = [i for i in range(len(index)) if index[i] == b]
        found["count"][b] = len(rows)
        for d in range(dim if rows else 0):
            n = len(rows)
            mu_mean = sum(z_mean[i, d] for i in rows) / n
            mu_var = sum(z_var[i, d] for i in rows) / n**2
            second = sum(z_var[i, d] + z_mean[i, d] ** 2 for i in rows) / n
            found["mu_mean"][b, d], found["mu_var"][b, d] = mu_mean, mu_var
            found["cov_mean"][b, d] = second - (mu_var + mu_mean**2)
    return found


def gaussian_kernel(h: float, r: int) -> Callable[[int, int], float]:
    return lambda b, c: math.exp(-((b - c) ** 2) / (2 * h * h)) if abs(b - c) <= r else 0.0


def loop_smooth(stats: Stats, kernel: Callable[[int, int], float]) -> Stats:
    """VIR:S: rows of the kernel sum to 1 over the bins that hold data."""
    num_bins = len(stats["count"])
    out = {name: value.copy() for name, value in stats.items()}
    held = [b for b in range(num_bins) if stats["count"][b] > 0]
    for b in held:
        total = sum(kernel(b, c) for c in held)
        share = {c: kernel(b, c) / total for c in held}
        out["mu_mean"][b] = sum(share[c] * stats["mu_mean"][c] for c in held)
        out["mu_var"][b] = sum(share[c] ** 2 * stats["mu_var"][c] for c in held)
        out["cov_mean"][b] = sum(share[c] * stats["cov_mean"][c] for c in held)
    return out


def loop_recolor(
    z_mean: Array, z_var: Array, index: Array, stats: Stats, smoothed: Stats, clip: tuple[float, float]
) -> tuple[Array, Array]:
    """VIR:F; a row of a bin without statistics, or without covariance, stays as it is."""
    mean, var = z_mean.copy(), z_var.copy()
    for i in range(len(index)):
        b = index[i]
        if stats["count"][b] == 0:
            continue
        cov = stats["cov_mean"][b]
        for d in range(z_mean.shape[1]):
            if cov[d] == 0:
                continue
            ratio = smoothed["cov_mean"][b, d] / cov[d]
            r = math.sqrt(min(max(ratio, clip[0]), clip[1]))
            mean[i, d] = (z_mean[i, d] - stats["mu_mean"][b, d]) * r + smoothed["mu_mean"][b, d]
            var[i, d] = (z_var[i, d] + stats["mu_var"][b, d]) * r + smoothed["mu_var"][b, d]
    return mean, var
