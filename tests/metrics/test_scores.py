"""Scores against brute force, SciPy, numerical integration and values derived by hand."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from tailwise.distributions.members import Normal
from tailwise.metrics import scores as m
from tailwise.metrics.regions import evaluate
from tailwise.metrics.scores import DEPTH_FLOOR
from tests.prediction_samples import KINDS, at_zero, make

# ---------------------------------------------------------------- values by hand


def test_depth_by_hand():
    predicted = Normal(torch.tensor([1.2, 1.5, 1.9, 0.6, -1.0]), 1.0)
    y = [1.0, 1.0, 1.0, 1.0, 1.0]
    # ratios 1.2, 1.5, 1.9, 1.667 against 1.25, 1.5625, 1.953; the last prediction is floored
    assert [m.delta(predicted, y, k=k) for k in (1, 2, 3)] == [0.2, 0.4, 0.8]
    logs = [abs(math.log10(p)) for p in (1.2, 1.5, 1.9, 0.6, DEPTH_FLOOR)]
    assert m.log10(predicted, y) == pytest.approx(np.mean(logs), rel=1e-6)
    assert evaluate(predicted, y, metrics=["delta2"]) == {"delta2": 0.4}


def test_coverage_and_width_by_hand():
    predicted, y = at_zero([0.0, 1.6, 1.7, -1.6, -9.0])  # 1.645 standard deviations at 90%
    assert m.coverage(predicted, y) == pytest.approx(3 / 5)
    assert m.coverage(predicted, y, level=0.5) == pytest.approx(1 / 5)
    assert m.width(predicted, y) == pytest.approx(2 * stats.norm.ppf(0.95))
    assert m.width(predicted, y, level=0.5) == pytest.approx(2 * stats.norm.ppf(0.75))


@pytest.mark.parametrize("kind", KINDS)
def test_the_interval_score_is_that_of_two_quantile_losses(kind):
    """Winkler's score is the pinball loss of both ends, over half of what may be missed."""
    predicted, y = make(kind, 200)
    ends = predicted.interval(0.8)
    losses = [
        np.maximum(q * (y - end), (q - 1) * (y - end)).mean() for q, end in zip((0.1, 0.9), ends, strict=True)
    ]
    assert m.interval_score(predicted, y, level=0.8) == pytest.approx(sum(losses).item() / 0.1)


@pytest.mark.parametrize("kind", KINDS)
def test_gaussian_nll_equals_scipy(kind):
    predicted, y = make(kind, 100)
    mean, total, epistemic = (
        np.asarray(v) for v in (predicted.mean, predicted.variance, predicted.epistemic)
    )
    expected = -stats.norm.logpdf(y, mean, np.sqrt(total)).mean()
    assert m.gaussian_nll(predicted, y) == pytest.approx(expected, rel=1e-9)
    if (epistemic > 0).all():
        expected = -stats.norm.logpdf(y, mean, np.sqrt(epistemic)).mean()
        assert m.gaussian_nll_reference(predicted, y) == pytest.approx(expected, rel=1e-9)
    else:
        assert math.isnan(m.gaussian_nll_reference(predicted, y))
    if kind == "nig":
        assert m.nll(predicted, y) != pytest.approx(m.gaussian_nll(predicted, y), rel=1e-3)


def test_ence_by_hand():
    predicted, y = at_zero([1.0, 1.0, 3.0, 3.0], torch.tensor([1.0, 1.0, 4.0, 4.0]).double())
    # low group: 1 against 1; high group: RMV 2 against RMSE 3
    assert m.ence(predicted, y, groups=2) == pytest.approx(0.25)
    # one group: RMV sqrt(10 / 4) against RMSE sqrt(20 / 4)
    assert m.ence(predicted, y, groups=1) == pytest.approx(math.sqrt(2) - 1)
    assert m.ence(predicted, y, groups=100) == pytest.approx(0.25)  # no more groups than samples


# ---------------------------------------------------------------- correlations


@settings(max_examples=40)
@given(
    st.lists(st.tuples(st.integers(-4, 4), st.integers(-4, 4)), min_size=2, max_size=30),
    st.sampled_from([1e-160, 1.0, 1e160]),
)
def test_correlations_equal_scipy_with_ties(pairs, scale):
    a, b = np.array(pairs, dtype=float).T
    predicted = Normal(torch.tensor(a * scale), 1.0)
    if np.ptp(a) == 0 or np.ptp(b) == 0:
        assert math.isnan(m.pearson(predicted, b * scale))
        assert math.isnan(m.spearman(predicted, b * scale))
        return
    assert m.pearson(predicted, b * scale) == pytest.approx(stats.pearsonr(a, b)[0], abs=1e-9)
    assert m.spearman(predicted, b * scale) == pytest.approx(stats.spearmanr(a, b)[0], abs=1e-9)


# ---------------------------------------------------------------- AUSE


def brute_force_curve(errors, key):
    """O(n^2): remove the largest keys one at a time and average what is left."""
    order = sorted(range(len(errors)), key=lambda i: -key[i])
    return [np.mean([errors[i] for i in order[k:]]) for k in range(len(errors))]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("by", ["std", "epistemic"])
@pytest.mark.parametrize("n", [3, 10, 60])
def test_ause_equals_brute_force(kind, by, n):
    predicted, y = make(kind, n)
    errors = (y - predicted.mean).abs().tolist()
    key = (predicted.std if by == "std" else predicted.epistemic).tolist()
    oracle = brute_force_curve(errors, errors)
    if kind == "normal" and by == "epistemic":  # all zero: removed in random order
        curve = [np.mean(errors)] * n
    else:
        curve = brute_force_curve(errors, key)
    got = m.sparsification(predicted, y, by=by)
    np.testing.assert_allclose(got.error, curve, rtol=1e-12)
    np.testing.assert_allclose(got.oracle, oracle, rtol=1e-12)
    np.testing.assert_allclose(got.removed, np.arange(n) / n, atol=1e-15)
    gap = np.subtract(curve, oracle)
    if by == "std":  # trapezoids over the share removed, up to 1, where nothing is left to differ
        standard = np.trapezoid([*gap, 0.0], np.linspace(0, 1, n + 1)) / np.mean(errors)
        assert m.ause(predicted, y) == pytest.approx(standard, rel=1e-9, abs=1e-12)
    else:
        gap = np.abs(gap[1:]) / np.abs(gap[1:]).max()
        reference = np.trapezoid(gap, np.linspace(0, 1, n - 1))
        assert m.ause(predicted, y, form="reference") == pytest.approx(reference, rel=1e-9, abs=1e-12)


# ---------------------------------------------------------------- laws

SCALED = ("mae", "rmse", "crps", "width", "interval_score")
FREE = ("coverage", "ause", "ence", "pearson", "spearman")


@settings(max_examples=12)
@given(kind=st.sampled_from(KINDS), exponent=st.integers(-6, 9), seed=st.integers(0, 10**6))
def test_units_of_the_label(kind, exponent, seed):
    scale = 10.0**exponent
    predicted, y = make(kind, 20, seed)
    before = evaluate(predicted, y, metrics=[*SCALED, *FREE, "gm", "nll", "mse"])
    after = evaluate(predicted.rescale(0.0, scale), y * scale, metrics=[*SCALED, *FREE, "gm", "nll", "mse"])
    for name in SCALED:
        assert after[name] == pytest.approx(before[name] * scale, rel=1e-6), name
    # The floor of the geometric mean is in label units, and scales with them.
    floored = m.gm(predicted.rescale(0.0, scale), y * scale, floor=1e-10 * scale)
    assert floored == pytest.approx(before["gm"] * scale, rel=1e-6)
    for name in FREE:
        assert after[name] == pytest.approx(before[name], rel=1e-6, abs=1e-9), name
    assert after["mse"] == pytest.approx(before["mse"] * scale**2, rel=1e-9)
    assert after["nll"] == pytest.approx(before["nll"] + math.log(scale), abs=1e-6)


# ---------------------------------------------------------------- inputs


def test_labels_come_in_any_container_and_shape():
    predicted, y = make("normal", 12)
    expected = m.mae(predicted, y)
    assert m.mae(predicted, y.numpy()) == expected
    assert m.mae(predicted, y.tolist()) == expected
    assert m.mae(predicted, pd.Series(y.numpy())) == expected
    assert m.mae(predicted, y.reshape(12, 1)) == expected
    table = predicted.map(lambda p: p.reshape(3, 4))
    assert m.mae(table, y.reshape(3, 4)) == expected
    mixture, labels = make("mixture", 12)
    square = mixture.map(lambda p: p.reshape(3, 4))
    assert m.crps(square, labels.reshape(3, 4)) == pytest.approx(m.crps(mixture, labels))


def test_nan_predictions_give_nan_not_a_crash():
    predicted = Normal(torch.tensor([0.0, math.nan, 1.0]), 1.0)
    got = evaluate(predicted, [0.0, 1.0, 2.0], metrics=["mae", "nll", "ause", "pearson", "crps"])
    assert all(math.isnan(v) for v in got.values()), got


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda d, y: m.mae(d, y[:2]), r"labels of shape \(2,\) for predictions of shape \(4,\)"),
        (lambda d, y: m.mae(d, [0.0, math.nan, 1.0, math.inf]), r"row 1 is nan \(2 bad of 4\)"),
        (lambda d, y: m.coverage(d, y, level=1.0), "coverage must lie between"),
        (lambda d, y: m.log10(d, [0.0, 1.0, 1.0, 1.0]), "positive labels, the smallest is 0"),
        (lambda d, y: m.ause(d, y, form="standrad"), "did you mean 'standard'"),
        (lambda d, y: m.sparsification(d, y, by="aleatoric"), "unknown uncertainty 'aleatoric'"),
    ],
)
def test_errors_say_what_is_wrong(call, message):
    predicted, y = make("normal", 4)
    with pytest.raises(ValueError, match=message):
        call(predicted, y)
