"""VIR:calibrate against grid search, closed forms and known miscalibration."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from tailwise.calibration.scaling import (
    MAX_FACTOR,
    NIGScaling,
    VarianceScaling,
    balanced_weights,
    fit_scaling,
    split_variance,
    standard_deviation,
)
from tailwise.distributions.members import NIG, Mixture, Normal
from tailwise.distributions.truncation import Bounds
from tailwise.labels.bins import LabelBins
from tailwise.labels.prior import LabelDensity, emphasis
from tests.prediction_samples import KINDS, make


def normal(n, seed=0):
    return make("normal", n, seed)[0]


def nig(n, seed=0):
    return make("nig", n, seed)[0]


def draw(distribution, seed=0):
    return distribution.sample(1, torch.Generator().manual_seed(seed))[0]


def mean_nll(distribution, y, weights=None):
    return float(np.average(distribution.nll(torch.as_tensor(y)).numpy(), weights=weights))


def student(predicted, w_nu, w_alpha, w_beta):
    """VIR:calibrate and VIR:predict by SciPy: the Student-t of scaled beliefs."""
    gamma, nu, alpha, beta = (np.asarray(getattr(predicted, n)) for n in ("gamma", "nu", "alpha", "beta"))
    nu, alpha, beta = w_nu * nu, 1 + w_alpha * (alpha - 1), w_beta * beta
    return stats.t(2 * alpha, gamma, np.sqrt(beta * (1 + nu) / (nu * alpha)))


def test_nig_fit_is_as_good_as_a_grid_search():
    """Labels, likelihoods and the grid are SciPy's; of ours there is only what `fit_scaling` returns."""
    predicted = nig(300)
    y = student(predicted, 0.5, 3.0, 8.0).rvs(random_state=0)

    def nll(*factors):
        return -student(predicted, *factors).logpdf(y).mean()

    scaling = fit_scaling(predicted, y)
    found = nll(scaling.w_nu, scaling.w_alpha, scaling.w_beta)
    grid = np.geomspace(1 / 16, 16, 13)
    lowest = min(nll(*w) for w in itertools.product(grid, grid, grid))
    assert found <= lowest + 1e-4
    assert found > lowest - 0.01  # the grid is fine enough to come close
    assert found < nll(1.0, 1.0, 1.0) - 0.1
    assert found == pytest.approx(mean_nll(scaling.apply(predicted), y), rel=1e-9)


@pytest.mark.parametrize("members", [1, 3])
def test_variance_is_split_as_the_network_did(members):
    raw = nig(50) if members == 1 else Mixture([nig(50, seed) for seed in range(members)])
    scaling = NIGScaling(w_nu=1e-3, w_alpha=0.5, w_beta=0.2)
    calibrated = scaling.apply(raw)
    assert (calibrated.epistemic > 5 * calibrated.aleatoric).all()  # what the factors make of it
    aleatoric, epistemic = split_variance(calibrated, raw)
    torch.testing.assert_close(aleatoric + epistemic, standard_deviation(calibrated) ** 2)
    torch.testing.assert_close(epistemic / aleatoric, raw.epistemic / raw.aleatoric)


def test_mixture_fit_is_as_good_as_a_grid_search():
    predicted, _ = make("mixture", 200)
    y = draw(VarianceScaling(0.2).apply(predicted))
    found = mean_nll(fit_scaling(predicted, y).apply(predicted), y)
    grid = [VarianceScaling(w) for w in np.geomspace(1e-3, 1e3, 601)]
    assert found <= min(mean_nll(s.apply(predicted), y) for s in grid) + 1e-5
    assert found < mean_nll(predicted, y) - 0.02


@settings(max_examples=16, deadline=None)
@given(
    kind=st.sampled_from(KINDS),
    n=st.integers(1, 12),
    seed=st.integers(0, 1000),
    spread=st.sampled_from([0.0, 1e-3, 1.0, 1e3]),
    weighted=st.booleans(),
)
def test_never_worse_than_no_calibration(kind, n, seed, spread, weighted):
    predicted, _ = make(kind, n, seed)
    rng = np.random.default_rng(seed)
    y = predicted.mean.numpy() + spread * rng.standard_normal(n)
    weights = rng.random(n) + 0.01 if weighted else None
    calibrated = fit_scaling(predicted, y, weights).apply(predicted)
    after, before = mean_nll(calibrated, y, weights), mean_nll(predicted, y, weights)
    assert after <= before + 1e-9 * max(1, abs(before))
    torch.testing.assert_close(calibrated.mean, predicted.mean)


@settings(max_examples=8, deadline=None)
@given(
    kind=st.sampled_from(KINDS),
    log_scale=st.floats(-9, 9),
    shift=st.sampled_from([0.0, 1.0, -50.0]),
)
def test_equivariant_to_units(kind, log_scale, shift):
    predicted, _ = make(kind, 40, 5)
    y = draw(VarianceScaling(4.0).apply(predicted))
    scale = 10**log_scale
    plain = fit_scaling(predicted, y)
    moved = fit_scaling(predicted.rescale(shift * scale, scale), y * scale + shift * scale)
    for a, b in zip(vars(plain).values(), vars(moved).values(), strict=True):
        assert b == pytest.approx(a, rel=0.02)


def test_points_without_spread_do_not_crash():
    points = Normal(torch.tensor([1.0, 2.0]), 0.0)
    assert fit_scaling(points, [1.0, 2.0]) == VarianceScaling(1.0)
    assert fit_scaling(points, [1.0, 3.0]).w in (1.0, MAX_FACTOR)


def test_balanced_weights_give_every_bin_the_same_say():
    bins = LabelBins.from_labels([0, 0, 0, 1, 1, 5])
    y = np.array([0, 0, 0, 0, 1, 5, 5])
    w = balanced_weights(y, bins)
    assert w.mean() == pytest.approx(1)
    sums = [w[y == v].sum() for v in (0, 1, 5)]
    assert sums == pytest.approx([7 / 3] * 3)
    np.testing.assert_allclose(balanced_weights(torch.tensor(y), bins), w)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: NIGScaling().apply(normal(2)), TypeError, "use VarianceScaling"),
        (
            lambda: fit_scaling(Normal(torch.zeros(4, 2), 1.0), torch.zeros(2, 4)),
            ValueError,
            r"labels of shape \(2, 4\) for predictions of shape \(4, 2\)",
        ),
        (lambda: fit_scaling(Normal(torch.zeros(0), 1.0), []), ValueError, "needs at least one held-out row"),
        (lambda: fit_scaling(normal(2), [1.0, math.nan]), ValueError, "row 1 is nan"),
        (lambda: fit_scaling(normal(2), [1.0, 2.0], [1.0, -1.0]), ValueError, "not be negative"),
    ],
)
def test_errors_say_what_is_wrong(call, error, message):
    with pytest.raises(error, match=message):
        call()


SHOTS = LabelBins.from_labels(np.repeat([0, 1, 2], [300, 50, 5]))  # many, medium, few


def beliefs(alpha: list[float]) -> NIG:
    return NIG(torch.tensor([1.0, 2.0, 9.0], dtype=torch.float64), 3.0, torch.tensor(alpha).double(), 2.0)


@pytest.mark.parametrize("kind", ["alone", "mixture", "tilted", "bounded"])
def test_standard_deviation_is_exact_unless_a_tail_is_very_heavy(kind):
    def predictions(alpha):
        own = beliefs(alpha)
        if kind == "mixture":
            own = Mixture([own, beliefs([4.0, 4.0, 4.0])], torch.tensor([0.3, 0.7]))
        if kind == "bounded":
            return Bounds(0.0).apply(own)
        return emphasis(LabelDensity.from_bins(SHOTS), 1.0).apply(own) if kind == "tilted" else own

    usual = predictions([1.25, 1.5, 4.0])
    np.testing.assert_array_equal(standard_deviation(usual), usual.std)
    heavy = predictions([1.0001, 0.9, 4.0])
    found = standard_deviation(heavy)
    assert heavy.std[0] > 20 * found[0] and heavy.std[1].isinf()
    np.testing.assert_allclose(found[2], heavy.std[2])
    low, high = heavy.interval(0.9)
    assert (((high - low) / found)[:2] > 0.9).all() and (((high - low) / found)[:2] < 3.5).all()
    torch.testing.assert_close(standard_deviation(heavy[:1]), found[:1])
