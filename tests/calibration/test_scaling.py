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
)
from tailwise.distributions.members import NIG, Mixture, Normal
from tailwise.labels.bins import LabelBins

FLOAT32_NIG = NIG(torch.tensor([0.0, 1.0]), 2.0, 3.0, 4.0)


def nig(n, seed=0):
    g = torch.Generator().manual_seed(seed)

    def uniform(low, high):
        return low + (high - low) * torch.rand(n, generator=g, dtype=torch.float64)

    return NIG(uniform(-3, 3), uniform(0.5, 4), uniform(1.5, 6), uniform(0.5, 3))


def normal(n, seed=0):
    belief = nig(n, seed)
    return Normal(belief.gamma, belief.beta)


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


def test_nig_fit_recovers_known_factors_from_many_labels():
    predicted = nig(10_000)
    y = student(predicted, 0.5, 2.0, 5.0).rvs(random_state=0)
    scaling = fit_scaling(predicted, y)
    assert scaling.w_nu == pytest.approx(0.5, rel=0.2)
    assert scaling.w_alpha == pytest.approx(2.0, rel=0.2)
    assert scaling.w_beta == pytest.approx(5.0, rel=0.2)


def test_nig_fit_is_stationary():
    predicted, w = nig(400), torch.rand(400, dtype=torch.float64)
    y = draw(NIGScaling(2.0, 0.5, 0.3).apply(predicted), 3)
    best = fit_scaling(predicted, y, w)
    lowest = mean_nll(best.apply(predicted), y, w)
    for step in itertools.product((0.99, 1.0, 1.01), repeat=3):
        near = NIGScaling(*(a * b for a, b in zip(vars(best).values(), step, strict=True)))
        assert mean_nll(near.apply(predicted), y, w) >= lowest - 1e-6


def test_what_cannot_be_told_apart_stays_near_one():
    predicted = NIG(torch.zeros(2000).double(), 2.0, 4.0, 1.0)  # nu and beta act as one
    y = draw(VarianceScaling(9.0).apply(predicted))
    scaling = fit_scaling(predicted, y)
    share = scaling.w_beta * (1 + 1 / (2 * scaling.w_nu)) / 1.5
    assert share / scaling.w_alpha == pytest.approx(9.0, rel=0.2)
    assert 0.05 < scaling.w_nu <= 1


@pytest.mark.parametrize("members", [1, 3])
def test_variance_is_split_as_the_network_did(members):
    raw = nig(50) if members == 1 else Mixture([nig(50, seed) for seed in range(members)])
    scaling = NIGScaling(w_nu=1e-3, w_alpha=0.5, w_beta=0.2)
    calibrated = scaling.apply(raw)
    assert (calibrated.epistemic > 5 * calibrated.aleatoric).all()  # what the factors make of it
    aleatoric, epistemic = split_variance(calibrated, raw)
    torch.testing.assert_close(aleatoric + epistemic, calibrated.variance)
    torch.testing.assert_close(epistemic / aleatoric, raw.epistemic / raw.aleatoric)


@pytest.mark.parametrize("kind", ["nig", "normal", "mixture"])
def test_an_inverse_undoes_a_scaling(kind):
    raw = {"nig": nig(20), "normal": normal(20), "mixture": Mixture([normal(20, 1), normal(20, 2)])}[kind]
    scaling = NIGScaling(20.0, 0.3, 0.01) if kind == "nig" else VarianceScaling(0.01)
    back = scaling.inverse.apply(scaling.apply(raw))
    for name in ("mean", "aleatoric", "epistemic"):
        torch.testing.assert_close(getattr(back, name), getattr(raw, name))


def test_variances_without_parts_are_split_into_numbers():
    heavy = NIG(
        torch.zeros(1), 2.0, 0.9, 1.0
    )  # an infinite variance: both parts are half of 5 squared scales
    assert [part.item() for part in split_variance(heavy, heavy)] == pytest.approx([2.5 / 0.6, 2.5 / 0.6])
    sure = Normal(torch.zeros(1), 0.0)
    assert [part.item() for part in split_variance(sure, sure)] == [0, 0]


def test_normal_fit_is_the_weighted_mean_squared_residual():
    predicted = Normal(torch.tensor([0.0, 1.0]).double(), torch.tensor([1.0, 4.0]).double())
    # squared standardised residuals 9 and 1, weights 1 and 3
    assert fit_scaling(predicted, [3.0, 3.0], [1.0, 3.0]).w == pytest.approx(12 / 4)
    assert fit_scaling(predicted, [3.0, 3.0]).w == pytest.approx(5.0)


@pytest.mark.parametrize("kind", ["normal", "nig"])
def test_mixture_fit_is_as_good_as_a_grid_search(kind):
    make = normal if kind == "normal" else nig
    predicted = Mixture([make(200, seed) for seed in (1, 2, 3)])
    truth = VarianceScaling(0.2) if kind == "normal" else NIGScaling(1.0, 2.0, 0.1)
    y = draw(truth.apply(predicted))
    scaling = fit_scaling(predicted, y)
    found = mean_nll(scaling.apply(predicted), y)
    if kind == "normal":
        grid = [VarianceScaling(w) for w in np.geomspace(1e-3, 1e3, 2001)]
    else:
        steps = np.geomspace(1 / 16, 16, 9)
        grid = [NIGScaling(*w) for w in itertools.product(steps, steps, steps)]
    assert type(scaling) is type(grid[0])
    assert found <= min(mean_nll(s.apply(predicted), y) for s in grid) + 1e-5
    assert found < mean_nll(predicted, y) - 0.02


def test_variance_scaling_stretches_a_mixture_about_its_mean():
    predicted = Mixture([normal(50, 1), normal(50, 2)], torch.tensor([0.3, 0.7]).double())
    scaled = VarianceScaling(5.0).apply(predicted)
    torch.testing.assert_close(scaled.mean, predicted.mean)
    torch.testing.assert_close(scaled.variance, 5 * predicted.variance)
    torch.testing.assert_close(scaled.aleatoric, 5 * predicted.aleatoric)
    torch.testing.assert_close(scaled.weights, predicted.weights)


def test_nig_scaling_acts_on_each_parameter():
    scaled = NIGScaling(2.0, 0.5, 3.0).apply(FLOAT32_NIG)
    assert scaled.gamma.tolist() == [0.0, 1.0]
    assert scaled.nu.tolist() == [4.0, 4.0]
    assert scaled.alpha.tolist() == [2.0, 2.0]
    assert scaled.beta.tolist() == [12.0, 12.0]
    assert scaled.alpha.dtype == torch.float32
    mixture = NIGScaling(2.0, 0.5, 3.0).apply(Mixture([FLOAT32_NIG, FLOAT32_NIG]))
    assert mixture.components.beta.tolist() == [[12.0, 12.0]] * 2


def test_alpha_stays_above_one_even_where_float32_rounds():
    belief = NIG(torch.zeros(3), 1.0, torch.tensor([1.001, 2.0, 0.9]), 1.0)
    scaled = NIGScaling(w_alpha=1 / MAX_FACTOR).apply(belief)
    assert (scaled.alpha[:2] > 1).all()
    assert scaled.variance[:2].isfinite().all()
    assert scaled.alpha[2] == belief.alpha[2]  # has no finite variance to scale


KINDS = {
    "normal": normal,
    "nig": nig,
    "mixture": lambda n, seed: Mixture([normal(n, seed), normal(n, seed + 1)]),
    "mixture of nig": lambda n, seed: Mixture([nig(n, seed), nig(n, seed + 1)]),
}


@settings(max_examples=16, deadline=None)
@given(
    kind=st.sampled_from(sorted(KINDS)),
    n=st.integers(1, 12),
    seed=st.integers(0, 1000),
    spread=st.sampled_from([0.0, 1e-3, 1.0, 1e3]),
    weighted=st.booleans(),
)
def test_never_worse_than_no_calibration(kind, n, seed, spread, weighted):
    predicted = KINDS[kind](n, seed)
    rng = np.random.default_rng(seed)
    y = predicted.mean.numpy() + spread * rng.standard_normal(n)
    weights = rng.random(n) + 0.01 if weighted else None
    calibrated = fit_scaling(predicted, y, weights).apply(predicted)
    after, before = mean_nll(calibrated, y, weights), mean_nll(predicted, y, weights)
    assert after <= before + 1e-9 * max(1, abs(before))
    torch.testing.assert_close(calibrated.mean, predicted.mean)


@settings(max_examples=8, deadline=None)
@given(
    kind=st.sampled_from(sorted(KINDS)),
    log_scale=st.floats(-9, 9),
    shift=st.sampled_from([0.0, 1.0, -50.0]),
)
def test_equivariant_to_units(kind, log_scale, shift):
    predicted = KINDS[kind](40, 5)
    y = draw(VarianceScaling(4.0).apply(predicted))
    scale = 10**log_scale
    plain = fit_scaling(predicted, y)
    moved = fit_scaling(predicted.rescale(shift * scale, scale), y * scale + shift * scale)
    for a, b in zip(vars(plain).values(), vars(moved).values(), strict=True):
        assert b == pytest.approx(a, rel=0.02)


def test_zero_weight_leaves_a_label_out():
    predicted, y = normal(5), torch.zeros(5, dtype=torch.float64)
    y[4] = 1e6
    full = fit_scaling(predicted, y, [1, 1, 1, 1, 0])
    assert full.w == pytest.approx(fit_scaling(predicted[:4], y[:4]).w)


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_perfect_predictions_of_one_row_stay_finite(kind):
    predicted = KINDS[kind](1, 0)
    calibrated = fit_scaling(predicted, predicted.mean).apply(predicted)
    assert calibrated.variance.isfinite().all()
    assert (calibrated.variance > 0).all()
    if not isinstance(predicted, Mixture):
        assert calibrated.variance < 1e-3 * predicted.variance


def test_points_without_spread_do_not_crash():
    points = Normal(torch.tensor([1.0, 2.0]), 0.0)
    assert fit_scaling(points, [1.0, 2.0]) == VarianceScaling(1.0)
    assert fit_scaling(points, [1.0, 3.0]).w in (1.0, MAX_FACTOR)


def test_float32_predictions_of_any_shape():
    predicted = nig(12).map(lambda p: p.float().reshape(4, 3))
    y = torch.randn(4, 3)
    scaling = fit_scaling(predicted, y)
    flat = fit_scaling(predicted.map(lambda p: p.reshape(-1)), y.reshape(-1))
    assert scaling == flat
    assert scaling.apply(predicted).shape == (4, 3)


def test_balanced_weights_give_every_bin_the_same_say():
    bins = LabelBins.from_labels([0, 0, 0, 1, 1, 5])
    y = np.array([0, 0, 0, 0, 1, 5, 5])
    w = balanced_weights(y, bins)
    assert w.mean() == pytest.approx(1)
    sums = [w[y == v].sum() for v in (0, 1, 5)]
    assert sums == pytest.approx([7 / 3] * 3)
    np.testing.assert_allclose(balanced_weights(torch.tensor(y), bins), w)


def test_balanced_weights_calibrate_the_tail():
    # 900 easy labels near 0 and 100 hard ones near 5: unweighted calibration forgets the latter.
    rng = np.random.default_rng(0)
    center = np.repeat([0.0, 5.0], [900, 100])
    y = center + rng.standard_normal(1000) * np.where(center > 0, 3.0, 1.0)
    predicted = Normal(torch.from_numpy(center), 1.0)
    bins = LabelBins.from_labels(center, edges=[-20, 2.5, 20])
    plain = fit_scaling(predicted, y)
    balanced = fit_scaling(predicted, y, balanced_weights(center, bins))
    assert plain.w == pytest.approx(1.8, rel=0.15)  # 0.9 * 1 + 0.1 * 9
    assert balanced.w == pytest.approx(5.0, rel=0.2)  # the mean of 1 and 9


def test_one_of_several_minima_is_found():
    # Far members that agree on nothing: a label at the middle, or one at a member's mean.
    predicted = Mixture([Normal(torch.tensor([-10.0]), 0.01), Normal(torch.tensor([10.0]), 0.01)])
    scaling = fit_scaling(predicted, [2.0])
    assert scaling.w == pytest.approx(0.04, rel=0.02)  # stretches the members' means to +-2
    assert math.isfinite(mean_nll(scaling.apply(predicted), [2.0]))


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: NIGScaling(w_nu=0.0), ValueError, "w_nu must be a positive"),
        (lambda: VarianceScaling(math.nan), ValueError, "w must be a positive"),
        (lambda: NIGScaling().apply(normal(2)), TypeError, "not to Normal; use VarianceScaling"),
        (
            lambda: fit_scaling(normal(2), [1.0]),
            ValueError,
            r"labels of shape \(1,\) for predictions of shape \(2,\)",
        ),
        (
            lambda: fit_scaling(Normal(torch.zeros(4, 2), 1.0), torch.zeros(2, 4)),
            ValueError,
            r"labels of shape \(2, 4\) for predictions of shape \(4, 2\)",
        ),
        (lambda: fit_scaling(Normal(torch.zeros(0), 1.0), []), ValueError, "needs at least one held-out row"),
        (lambda: fit_scaling(normal(2), [1.0, math.nan]), ValueError, "row 1 is nan"),
        (lambda: fit_scaling(normal(2), [1.0, 2.0], [1.0]), ValueError, "1 weights for 2"),
        (lambda: fit_scaling(normal(2), [1.0, 2.0], [0.0, 0.0]), ValueError, "one of them"),
        (lambda: fit_scaling(normal(2), [1.0, 2.0], [1.0, -1.0]), ValueError, "not be negative"),
        (
            lambda: fit_scaling(Normal(torch.tensor([0.0, math.nan]), 1.0), [1.0, 2.0]),
            ValueError,
            "row 1",
        ),
    ],
)
def test_errors_say_what_is_wrong(call, error, message):
    with pytest.raises(error, match=message):
        call()
