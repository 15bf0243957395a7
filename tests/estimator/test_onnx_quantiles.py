"""Student-t quantiles and tilted predictions from operations that ONNX has, against SciPy and `Tilted`."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor

from tailwise.calibration.spreads import standard_deviation
from tailwise.distributions.members import NIG, Distribution, Mixture, Normal
from tailwise.distributions.tilt import Tilt
from tailwise.distributions.truncation import Bounds
from tailwise.onnx.quantiles import (
    MIN_DF,
    TAIL_DF,
    Quantiles,
    StudentQuantiles,
    StudentTails,
    TracedTilt,
    grid_root,
)
from tests.prediction_samples import KINDS, make

LEVELS = (0.001, 0.05, 0.5, 0.95, 0.999)


@pytest.mark.parametrize(("least", "tolerance"), [(2.0, 1e-7), (MIN_DF, 1e-5)])
def test_student_quantiles_against_scipy(least: float, tolerance: float) -> None:
    levels = np.array([1e-4, 0.001, 0.025, 0.05, 0.25, 0.49, 0.5, 0.51, 0.9, 0.975, 0.999, 0.9999])
    df = np.concatenate([np.linspace(least, 12, 2000), np.geomspace(least, 1e9, 2000)])
    found = StudentQuantiles(levels)(torch.from_numpy(df)).numpy()
    exact = stats.t.ppf(levels, df[:, None])
    np.testing.assert_allclose(found, exact, rtol=tolerance, atol=1e-12)


def degrees_of_freedom() -> Tensor:
    return torch.from_numpy(np.concatenate([np.linspace(1, 8, 200), np.geomspace(*TAIL_DF, 300)]))[:, None]


def test_student_tails_against_scipy() -> None:
    df = degrees_of_freedom()
    z = torch.from_numpy(np.concatenate([np.linspace(0, 8, 200), np.geomspace(8, 1e5, 100)]))
    found, exact = StudentTails()(df).above(z).numpy(), stats.t.sf(z, df)
    seen = exact > 1e-250
    np.testing.assert_allclose(found[seen], exact[seen], rtol=2e-6)
    assert (found[~seen] < 1e-240).all()


def test_inverse_of_student_tails_against_scipy() -> None:
    level = torch.from_numpy(np.concatenate([np.geomspace(1e-12, 0.5, 100), np.linspace(0.01, 0.5, 50)]))
    df = degrees_of_freedom()
    found = StudentTails()(df).inverse(level).numpy()
    np.testing.assert_allclose(found, stats.t.isf(level, df), rtol=1e-5, atol=1e-5)


def test_partial_means_against_the_normal() -> None:
    z = torch.linspace(0, 6, 50, dtype=torch.float64)
    found = StudentTails()(torch.tensor(TAIL_DF[1], dtype=torch.float64)).log_moment(z).exp()
    np.testing.assert_allclose(found, stats.norm.pdf(z), rtol=1e-4)


def belief(n: int = 2000, *, light: bool = False) -> NIG:
    """Predictions narrow and wide, within the labels and beyond, with tails heavy and light."""
    rng = np.random.default_rng(0)
    gamma, nu, alpha, beta = rng.normal(size=(4, n))
    shape = 1.001 + np.exp(2 * alpha) + 3 * light
    return NIG(*map(torch.from_numpy, (2 * gamma, np.exp(nu), shape, np.exp(2 * beta - 3))))


def tilt() -> Tilt:
    """The weights of an emphasis of 1: labels around 0 are 400 times as common as those beyond 3.5."""
    cuts = np.linspace(-3, 6, 99)
    centers = np.append(cuts - 0.05, cuts[-1] + 0.05)
    return Tilt(cuts, -np.log(np.maximum(stats.norm.pdf(centers), 0.001)))


def kinds() -> dict[str, Distribution]:
    nig = belief()
    normal = Normal(nig.mean, nig.variance)
    return {
        "NIG": nig,
        "Normal": normal,
        "mixture of NIG": Mixture([nig, nig.rescale(1.0, 2.0), nig.rescale(-1.0, 0.3)]),
        "mixture of Normal": Mixture([normal, Normal(normal.mean + 0.5 * normal.std, 2 * normal.variance)]),
    }


@pytest.mark.parametrize("kind", kinds())
def test_tilted_predictions_agree_with_the_exact_ones(kind: str) -> None:
    base = kinds()[kind]
    exact, found = tilt().apply(base), TracedTilt(tilt())(base)
    np.testing.assert_allclose(found.mean, exact.mean, atol=1e-5)
    np.testing.assert_allclose(found.std, exact.std, rtol=1e-5, atol=1e-5)
    for level in LEVELS:
        np.testing.assert_allclose(found.quantile(level), exact.quantile(level), rtol=1e-4, atol=1e-4)
    for ours, theirs in zip(found.interval(0.9), exact.interval(0.9), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-4)


def test_members_far_apart_have_a_median_anywhere_between_them() -> None:
    mean = torch.tensor([0.3, 1.3], dtype=torch.float64)
    apart = Mixture([Normal(mean, 1e-4), Normal(mean + 0.6, 1e-4)])
    median = TracedTilt(tilt())(apart).quantile(0.5)
    assert ((median > mean - 0.1) & (median < mean + 0.7)).all()
    np.testing.assert_allclose(tilt().apply(apart).cdf(median), 0.5, atol=1e-5)


def test_infinite_variance_stays_infinite_and_users_get_a_number() -> None:
    heavy = NIG(torch.zeros(1, dtype=torch.float64), 1.0, 0.9, 1.0)
    traced = TracedTilt(tilt())(heavy)
    assert traced.std.isinf().all()
    np.testing.assert_allclose(standard_deviation(traced), standard_deviation(tilt().apply(heavy)), rtol=1e-5)


def test_a_prediction_without_spread_is_not_moved() -> None:
    mean = torch.tensor([0.3, 5.0], dtype=torch.float64)
    found = TracedTilt(tilt())(Normal(mean, 0.0))
    np.testing.assert_allclose(found.mean, mean)
    np.testing.assert_allclose(found.quantile(0.05), mean)


def test_quantiles_of_distributions() -> None:
    for kind, distribution in kinds().items():
        found = Quantiles((0.2, 0.95))(distribution)
        tolerance = 1e-4 if "mixture" in kind else 1e-8
        for column, level in enumerate((0.2, 0.95)):
            exact = distribution.quantile(level)
            np.testing.assert_allclose(found[:, column], exact, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("bounds", [Bounds(0.0), Bounds(high=0.5), Bounds(-1.0, 2.0)])
def test_bounded_predictions_are_those_of_scipy(kind: str, bounds: Bounds) -> None:
    base, tails = make(kind, 200, seed=2)[0], StudentTails()
    wanted = bounds.apply(base)
    centred = bounds.centred(base, tails, grid_root)
    found = TracedTilt(bounds.tilt)(centred)
    for a, b in ((found.mean, wanted.mean), *((found.quantile(q), wanted.quantile(q)) for q in LEVELS)):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=2e-5)
