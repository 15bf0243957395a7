"""The balanced likelihood against numerical integration, and Balanced MSE as its special case."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats

from tailwise.distributions.members import NIG, Distribution, Normal
from tailwise.labels.bins import LabelBins
from tailwise.labels.kernels import smoothed_density
from tailwise.labels.prior import LabelDensity
from tests.methods.trained_methods import skewed_bins
from tests.networks.small_models import batch, loss_of

LOCATION = np.array([-1.0, 0.3, 2.5, 4.0, 0.2, 0.0])
SPREAD = np.array([0.01, 0.3, 0.5, 1.0, 0.001, 3.0])
ALPHA = np.array([1.6, 2.0, 3.0, 5.0, 1.6, 10.0])


def predicted(kind: str) -> tuple[Distribution, list[Any]]:
    """Predictions narrower and wider than bins, within the labels and beyond, and SciPy's for them."""
    location, spread, alpha = (torch.as_tensor(v) for v in (LOCATION, SPREAD, ALPHA))
    if kind == "normal":
        return Normal(location, spread**2), [stats.norm(m, s) for m, s in zip(LOCATION, SPREAD, strict=True)]
    belief = NIG(location, 1.0, alpha, alpha * spread**2 / 2)
    return belief, [stats.t(2 * a, m, s) for a, m, s in zip(ALPHA, LOCATION, SPREAD, strict=True)]


def rho_by_hand(bins: LabelBins, floor: float, y: np.ndarray) -> np.ndarray:
    """The smoothed density with its floor, constant on bins; the end bins have no outer end."""
    edges = (bins.edges - bins.location) / bins.scale
    mass = smoothed_density(bins, boundary="reflect")
    density = mass / mass.sum() / np.diff(edges)
    least = floor / (edges[-1] - edges[0])
    assert (density >= least).all()  # here the floor changes nothing; core tests what it does
    return density[np.searchsorted(edges[1:-1], y)]


@pytest.mark.parametrize("kind", ["normal", "nig"])
@pytest.mark.parametrize(("t", "floor"), [(1.0, 0.01), (0.5, 0.03)])
def test_the_loss_equals_numerical_integration(kind: str, t: float, floor: float) -> None:
    bins = skewed_bins()
    objective = loss_of("balanced-nll", bins, t=t, floor=floor).double()
    prediction, exact = predicted(kind)
    y = LOCATION + 0.7 * SPREAD
    got = objective(batch(prediction, torch.as_tensor(y))).numpy()
    for i, density in enumerate(exact):
        grid = [np.linspace(-60, 60, 60_001), LOCATION[i] + SPREAD[i] * np.linspace(-100, 100, 40_001)]
        labels = np.unique(np.concatenate(grid))
        normalizer = np.trapezoid(density.pdf(labels) * rho_by_hand(bins, floor, labels) ** t, labels)
        want = (
            -density.logpdf(y[i]) - t * np.log(rho_by_hand(bins, floor, y[i : i + 1])[0]) + np.log(normalizer)
        )
        assert got[i] == pytest.approx(want, abs=5e-3), i


def test_balanced_labels_need_no_change() -> None:
    """A flat density cancels: the loss is the likelihood, also beyond the range."""
    bins = LabelBins.from_labels(np.repeat(np.arange(40.0), 5))
    objective = loss_of("balanced-nll", bins).double()
    prediction, y = Normal(torch.tensor([-0.5, 2.8]).double(), 0.1), torch.tensor([-0.4, 1.5]).double()
    torch.testing.assert_close(objective(batch(prediction, y)), prediction.nll(y), rtol=1e-6, atol=1e-6)


def test_balanced_mse_is_the_case_of_one_constant_variance() -> None:
    """Up to the discretisation: BNI sums point masses at the bins, this one integrates between them."""
    labels = np.clip(np.round(stats.norm(60, 12).rvs(20_000, random_state=0)), 10, 110)
    bins, noise = LabelBins.from_labels(labels), 0.3
    m = torch.tensor([-1.5, -0.2, 0.4, 2.0], dtype=torch.float64, requires_grad=True)
    y = torch.tensor([-1.2, 0.0, 0.9, 1.7], dtype=torch.float64)
    ours = loss_of("balanced-nll", bins, floor=1e-9).double()
    rough = LabelDensity.from_bins(bins.standardized(), floor=1e-9, kernel=None)
    ours.log_density = torch.as_tensor(np.log(rough.density))
    theirs = loss_of("balanced-mse", bins, noise=noise).double()
    found = ours(batch(Normal(m, noise**2), y)) + ours.log_rho(y)  # Balanced MSE leaves out this constant
    wanted = theirs(batch(Normal(m, 1.0), y)) / (2 * noise**2)
    torch.testing.assert_close(found, wanted, rtol=0, atol=0.01)
    gradients = [torch.autograd.grad(loss.sum(), m)[0] for loss in (found, wanted)]
    torch.testing.assert_close(*gradients, rtol=0.02, atol=0.02)
