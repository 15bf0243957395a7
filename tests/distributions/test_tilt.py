"""Predictions under a tilt (VIR:dial) against numerical integration.

The oracle integrates ``p(y) w(y)`` by Gauss-Legendre quadrature between many knots, with the cuts of
the cells among them; p comes from SciPy and w from the cells by plain search.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy import stats

from tailwise import metrics as m
from tailwise.distributions import student_t
from tailwise.distributions.members import NIG, Distribution, Mixture, Normal, concatenate
from tailwise.distributions.tilt import Tilt, Tilted
from tailwise.labels.bins import LabelBins
from tailwise.labels.prior import LabelDensity, emphasis
from tests.label_samples import skewed
from tests.prediction_samples import KINDS, Integral, close, doubles, make, scipy_members

BINS = LabelBins.from_labels(skewed(0))
TRAINING = LabelDensity.from_bins(BINS)


ODD = {
    "normal": Normal(doubles(0.3, 5.0, -30.0, 60.0, 1.0), doubles(1.0, 4.0, 1.0, 9.0, 1e-4)),
    "nig": NIG(
        doubles(0.3, 5.0, -30.0, 60.0, 1.0),
        doubles(1.0, 3.0, 1.0, 2.0, 1.0),
        doubles(2.5, 4.0, 6.0, 3.0, 9.0),
        doubles(1.0, 4.0, 1.0, 9.0, 1e-4),
    ),
}
ODD["mixture"] = Mixture([ODD["normal"], ODD["normal"].rescale(1.0, 0.5)], doubles(0.3, 0.7))
ODD["mixture of nig"] = Mixture([ODD["nig"], ODD["nig"].rescale(1.0, 0.5)], doubles(0.3, 0.7))


@pytest.fixture(params=[*KINDS, *(f"odd {kind}" for kind in KINDS)])
def base(request: pytest.FixtureRequest) -> Distribution:
    """Predictions of each kind: ordinary ones, and some far from the labels or almost points."""
    name: str = request.param
    return ODD[name[4:]] if name.startswith("odd") else make(name, 4, seed=5)[0]


@pytest.mark.parametrize("t", [1.0, -0.6])
def test_normalizer_density_and_moments_equal_integrals(base: Distribution, t: float) -> None:
    tilt = emphasis(TRAINING, t)
    tilted = tilt.apply(base)
    assert isinstance(tilted, Tilted)
    y = doubles(-2.0, 0.1, 1.0, 4.0, 60.0)[: len(base)]
    for row in range(len(base)):
        exact = Integral(base, tilt, row, (float(y[row]),))
        heavy = isinstance(scipy_members(base, row)[0][1].dist, type(stats.t))
        tolerance = {"rtol": 1e-5 if heavy else 1e-9}
        w = np.exp(tilt.log_weights)[np.searchsorted(tilt.cuts, y[row])]
        density = sum(weight * d.pdf(y[row]) for weight, d in scipy_members(base, row)) * w / exact.z
        close(tilted.nll(y)[row].neg().exp(), density, rtol=1e-8)
        mean = exact.mean(lambda at: at)
        close(tilted.mean[row], mean, **tolerance)
        variance = exact.mean(lambda at, mean=mean: (at - mean) ** 2)
        if np.isfinite(base.variance[row]) and (not heavy or base_df(base, row) > 4):
            close(tilted.variance[row], variance, rtol=1e-3 if heavy else 1e-8)
        deviation = exact.mean(lambda at, row=row: np.abs(at - y[row].item()))
        close(tilted.deviation(y)[row], deviation, **tolerance)


def base_df(base: Distribution, row: int) -> float:
    return min(d.args[0] for _, d in scipy_members(base, row))


def test_cdf_quantiles_and_intervals_equal_integrals(base: Distribution) -> None:
    tilt = emphasis(TRAINING, 0.8)
    tilted = tilt.apply(base)
    levels = doubles(1e-6, 0.05, 0.3, 0.5, 0.95, 1 - 1e-6)[:, None]
    y = tilted.quantile(levels)
    assert y.shape == (6, len(base)) and (y.diff(dim=0) >= 0).all()
    for row in range(len(base)):
        exact = Integral(base, tilt, row, tuple(y[:, row].tolist()))
        for level, at in zip(levels[:, 0].tolist(), y[:, row].tolist(), strict=True):
            assert exact.below(at) == pytest.approx(level, rel=1e-6, abs=1e-8)
    close(tilted.cdf(y), levels.expand_as(y), rtol=1e-8, atol=1e-10)
    lower, upper = tilted.interval(0.9)
    close(lower, y[1])
    close(upper, y[4])
    close(tilted.median, y[3])
    assert (tilted.quantile(0.0) == -math.inf).all() and (tilted.quantile(1.0) == math.inf).all()
    close(tilted.cdf(math.inf), 1.0)
    close(tilted.cdf(-math.inf), 0.0)


def test_by_hand() -> None:
    # Labels below 0 count once and above it three times: Z = 2 for a Normal around 0.
    tilted = Tilt(np.array([0.0]), np.log([1.0, 3.0])).apply(Normal(doubles(0.0), 1.0))
    close(tilted.cdf(0.0), [0.25])
    close(tilted.quantile(0.25), [0.0])
    close(tilted.mean, [2 / 2 / math.sqrt(2 * math.pi)])  # (3 - 1) phi(0) / Z
    close(tilted.variance, [1 - 1 / (2 * math.pi)])
    close(tilted.nll(1.0), -stats.norm.logpdf(1) - math.log(3 / 2))
    close(tilted.epistemic, [0.0])


def test_the_far_side_of_a_cut_keeps_its_digits() -> None:
    # All of the mass lies beyond a cut 9 standard deviations away, where 1 - F has no digit left.
    tilted = Tilt(np.array([9.0]), np.array([-100.0, 0.0])).apply(Normal(doubles(0.0), 1.0))
    beyond = stats.truncnorm(9.0, np.inf)
    close(tilted.nll(9.5), [-beyond.logpdf(9.5)], rtol=1e-10)
    close(tilted.mean, [beyond.mean()], rtol=1e-6)
    close(tilted.quantile(0.3), [stats.norm.isf(0.7 * stats.norm.sf(9))], rtol=1e-10)
    close(tilted.cdf(9.1), [1 - stats.norm.sf(9.1) / stats.norm.sf(9)], rtol=1e-9)


def test_variance_of_heavy_tails_is_infinite() -> None:
    heavy = emphasis(TRAINING, 1.0).apply(NIG(doubles(0.0, 0.0), 1.0, doubles(0.9, 1.4), 1.0))
    assert heavy.variance[0] == math.inf and heavy.variance[1].isfinite()
    assert heavy.aleatoric[0] == heavy.epistemic[0] == math.inf
    assert heavy.mean.isfinite().all()
    assert emphasis(TRAINING, 1.0).apply(NIG(doubles(0.0), 1.0, 0.4, 1.0)).mean.isnan().all()


@pytest.mark.parametrize("kind", KINDS)
def test_rows_shapes_and_chunks(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    base, y = make(kind, 12)
    tilted = emphasis(TRAINING, 0.7).apply(base)
    assert tilted.shape == (12,)
    close(tilted[3:5].mean, tilted.mean[3:5])
    table = tilted.map(lambda p: p.reshape(3, 4))
    close(table.nll(y.reshape(3, 4)).reshape(-1), tilted.nll(y))
    close(table.quantile(0.2).reshape(-1), tilted.quantile(0.2))
    joined = concatenate([tilted[:5], tilted[5:]])
    close(joined.mean, tilted.mean)
    close(tilted[:1].cdf(y), concatenate([tilted[:1]] * 12).cdf(y))  # one prediction for many labels
    whole = [tilted.mean, tilted.cdf(y), tilted.quantile(doubles(0.1, 0.6)[:, None]), tilted.deviation(y)]
    monkeypatch.setattr(student_t, "_CHUNK", 50)
    again = emphasis(TRAINING, 0.7).apply(base)
    rows = [again.mean, again.cdf(y), again.quantile(doubles(0.1, 0.6)[:, None]), again.deviation(y)]
    for one, two in zip(whole, rows, strict=True):
        close(one, two)
    assert tilted[:0].mean.shape == (0,) and tilted[:0].interval(0.9)[0].shape == (0,)


@pytest.mark.parametrize("kind", KINDS)
def test_crps_equals_the_integral_of_the_squared_gap(kind: str) -> None:
    base, y = make(kind, 4, seed=3)
    tilt = emphasis(TRAINING, 0.8)
    tilted = tilt.apply(base)
    for row in range(4):
        integral = Integral(base, tilt, row, (y[row].item(),))
        at = torch.from_numpy(integral.y)
        below = tilted[row : row + 1].cdf(at.reshape(-1, 1)).reshape(at.shape)
        exact = (integral.widths * ((below - (at >= y[row]).double()) ** 2).numpy()).sum()
        got = m.crps(tilted[row : row + 1], y[row : row + 1])
        assert got == pytest.approx(exact, abs=5e-4 * tilted.std[row].item())


def test_the_prediction_under_a_tilt_is_the_median_and_metrics_use_it() -> None:
    prediction = NIG(torch.tensor([0.0, 1.0], dtype=torch.float64), 1.0, 1.5, 1.0)
    far = Tilt(np.array([8.0]), np.log([1.0, 50.0]))  # large weights where there is little probability
    tilted = far.apply(prediction)
    torch.testing.assert_close(tilted.point, tilted.quantile(0.5))
    assert (tilted.mean > tilted.point + 1).all() and (tilted.point < 2.5).all()
    assert m.mae(tilted, [0.0, 1.0]) == pytest.approx((tilted.median - prediction.mean).abs().mean().item())
    torch.testing.assert_close(prediction.point, prediction.mean)
