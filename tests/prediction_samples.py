"""Predictions and labels that tests of distributions, scores, metrics and label priors share."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor

from tailwise.distributions.members import NIG, Distribution, Mixture, Normal
from tailwise.distributions.tilt import Tilt

KINDS = ("normal", "nig", "mixture", "mixture of nig")


def make(kind: str, n: int, seed: int = 0, scale: float = 1.0) -> tuple[Distribution, Tensor]:
    """Predictions and labels of a kind: some right, some wrong, of unequal spread."""
    g = torch.Generator().manual_seed(seed)

    def uniform(low: float, high: float) -> Tensor:
        return low + (high - low) * torch.rand(n, generator=g, dtype=torch.float64)

    def member(of_nig: bool) -> Distribution:
        mean, variance = uniform(-3, 3), uniform(0.2, 4)
        if not of_nig:
            return Normal(mean, variance)
        return NIG(mean, uniform(0.5, 4), uniform(1.2, 6), variance)

    predicted: Distribution
    if kind.startswith("mixture"):
        predicted = Mixture([member(kind.endswith("nig")) for _ in range(3)])
    else:
        predicted = member(kind == "nig")
    y = uniform(-4, 4)
    return predicted.rescale(0.0, scale), y * scale


def scipy_members(base: Distribution, row: int) -> list[tuple[float, Any]]:
    """Weights and frozen SciPy distributions of one prediction."""
    if isinstance(base, Mixture):
        members = [scipy_members(base.components[k], row)[0][1] for k in range(len(base.weights))]
        return list(zip(base.weights[:, row].tolist(), members, strict=True))
    if isinstance(base, Normal):
        return [(1.0, stats.norm(base.mean[row].item(), base.std[row].item()))]
    assert isinstance(base, NIG)
    return [(1.0, stats.t(2 * base.alpha[row].item(), base.gamma[row].item(), base.scale[row].item()))]


class Integral:
    """One prediction under a tilt, by brute force."""

    def __init__(self, base: Distribution, tilt: Tilt, row: int, knots: tuple[float, ...] = ()) -> None:
        members = scipy_members(base, row)
        reach = np.concatenate([-np.geomspace(1e-3, 1e7, 150)[::-1], [0.0], np.geomspace(1e-3, 1e7, 150)])
        ends = [d.median() + (d.ppf(0.75) - d.median()) * reach for _, d in members]
        self.knots = np.unique(np.concatenate([*ends, tilt.cuts, knots]))
        nodes, weights = np.polynomial.legendre.leggauss(12)
        low, high = self.knots[:-1, None], self.knots[1:, None]
        self.y = (low + high) / 2 + (high - low) / 2 * nodes
        w = np.exp(tilt.log_weights)[np.searchsorted(tilt.cuts, self.y, side="right")]
        p = sum(weight * d.pdf(self.y) for weight, d in members)
        self.widths = (high - low) / 2 * weights
        self.mass = self.widths * p * w
        self.z = self.mass.sum()
        self.mass /= self.z

    def mean(self, function: Any) -> float:
        return float((self.mass * function(self.y)).sum())

    def below(self, y: float) -> float:
        return float(self.mass[(self.y < y)].sum())


def at_zero(
    errors: list[float], variance: float | Tensor = 1.0, epistemic: list[float] | None = None
) -> tuple[Distribution, Tensor]:
    """Predictions of 0, with labels at the given errors and the given uncertainty."""
    labels = torch.tensor(errors, dtype=torch.float64)
    if epistemic is None:
        return Normal(torch.zeros_like(labels), variance), labels
    nu = 1 / torch.tensor(epistemic, dtype=torch.float64)
    return NIG(torch.zeros_like(labels), nu, 2.0, 1.0), labels


def double(values: Any) -> Tensor:
    return torch.as_tensor(values, dtype=torch.float64)


def doubles(*values: float) -> Tensor:
    return double(values)


def close(got: Any, expected: Any, **tolerance: float) -> None:
    np.testing.assert_allclose(
        np.asarray(got), np.asarray(expected), **{"rtol": 1e-9, "atol": 1e-12, **tolerance}
    )


def three() -> list[Normal | NIG | Mixture]:
    """One of each kind, of shape (3,)."""
    nig = NIG(
        double([0.0, 1.0, -2.0]),
        double([1.0, 0.5, 3.0]),
        double([2.0, 5.0, 1.5]),
        double([1.0, 2.0, 0.3]),
    )
    normal = Normal(double([0.0, 1.0, -2.0]), double([1.0, 0.25, 4.0]))
    of_normals = Mixture(
        [normal, Normal(double([2.0, 0.0, -2.0]), double([0.5, 1.0, 1.0]))], double([0.3, 0.7])
    )
    other = NIG(
        double([1.0, 0.0, 3.0]),
        double([2.0, 1.0, 1.0]),
        double([3.0, 2.5, 4.0]),
        double([0.5, 1.0, 1.0]),
    )
    return [normal, nig, of_normals, Mixture([nig, other])]


each_kind = pytest.mark.parametrize("dist", three(), ids=["normal", "nig", "mixture-normal", "mixture-nig"])
