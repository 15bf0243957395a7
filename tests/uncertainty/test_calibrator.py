"""A calibrator's intervals and tables, by hand, and what is fitted on which rows."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy import stats

from tailwise.core.distributions import NIG, Normal
from tailwise.core.label_prior import LabelDensity, Tilted, emphasis
from tailwise.core.labels import LabelBins
from tailwise.uncertainty.calibrator import Calibrator, fit_calibrator
from tailwise.uncertainty.conformal import fit_conformal
from tailwise.uncertainty.scaling import NIGScaling, VarianceScaling, balanced_weights, fit_scaling

BINS = LabelBins.from_labels(np.repeat([0, 1, 2], [150, 50, 5]))  # many, medium, few
PREDICTED = Normal(torch.tensor([0.0, 1.0, 2.0], dtype=torch.float64), 4.0)


def held_out(n: int = 200, seed: int = 0) -> tuple[Normal, np.ndarray]:
    """Predictions of 0, 1 or 2 of variance 1, and labels of twice that standard deviation."""
    rng = np.random.default_rng(seed)
    mean = rng.choice([0.0, 1.0, 2.0], n)
    return Normal(torch.from_numpy(mean), 1.0), mean + 2 * rng.normal(size=n)


def test_without_scaling_and_conformal_the_prediction_speaks_for_itself() -> None:
    plain = Calibrator(BINS, None, None)
    assert plain.calibrated(PREDICTED) is PREDICTED
    lower, upper = plain.interval(PREDICTED, 0.8)
    reach = 2 * stats.norm.ppf(0.9)
    np.testing.assert_allclose(lower, PREDICTED.mean - reach)
    np.testing.assert_allclose(upper, PREDICTED.mean + reach)
    assert plain.explain(0.8) == "Intervals of the predicted distribution itself."


def test_scaling_comes_first_and_conformal_intervals_rule() -> None:
    conformal = fit_conformal(Normal(torch.zeros(19).double(), 1.0), np.arange(-9.0, 10.0), BINS)
    calibrator = Calibrator(BINS, VarianceScaling(9.0), conformal)
    assert calibrator.calibrated(PREDICTED).variance.tolist() == [36.0] * 3
    lower, upper = calibrator.interval(PREDICTED, 0.9)
    np.testing.assert_allclose(upper, PREDICTED.mean + 9 * 2)
    np.testing.assert_allclose(lower, PREDICTED.mean - 9 * 2)
    # Nineteen rows cannot promise 99%: the ends stay finite and the text says so.
    assert calibrator.interval(PREDICTED, 0.99)[1].isfinite().all()
    assert "No promise: 0.99 takes 99 held-out rows" in calibrator.explain(0.99)


def test_columns_of_a_table_by_hand() -> None:
    raw = NIG(torch.tensor([0.0, 2.0], dtype=torch.float64), 4.0, 3.0, 2.0)  # variances 1 and 1/4
    calibrator = Calibrator(BINS, NIGScaling(w_nu=0.5, w_beta=2.0), None)
    columns = calibrator.columns(calibrator.calibrated(raw), 0.9, many=100, few=20)
    variance = 2.0 * (1 + 1 / 2)
    np.testing.assert_allclose(columns["prediction"], [0.0, 2.0])
    np.testing.assert_allclose(columns["std"], np.sqrt(variance))
    # The parts are those of the raw prediction, 4 to 1, and not those of the scaled one, 2 to 1.
    np.testing.assert_allclose(columns["aleatoric_std"], np.sqrt(0.8 * variance))
    np.testing.assert_allclose(columns["epistemic_std"], np.sqrt(0.2 * variance))
    np.testing.assert_allclose(
        columns["upper"] - columns["prediction"], columns["prediction"] - columns["lower"]
    )
    assert columns["region"].tolist() == ["many", "few"]
    wide = calibrator.columns(calibrator.calibrated(raw), 0.9, many=1000, few=1000)
    assert wide["region"].tolist() == ["few", "few"]


def test_scores_of_a_table_by_hand() -> None:
    calibrator = Calibrator(BINS, None, None)
    y = np.array([0.0, 0.0, 2.0, 2.0])
    prediction = Normal(
        torch.tensor([0.0, 5.0, 2.0, 3.0], dtype=torch.float64), torch.tensor([1, 1, 4, 4.0]).double()
    )
    table = calibrator.scores(prediction, y, 0.9, many=100, few=20).set_index("region")
    assert table["n"].tolist() == [4, 2, 0, 2]
    np.testing.assert_allclose(table["mae"], [1.5, 2.5, np.nan, 0.5])
    np.testing.assert_allclose(table["coverage"], [0.75, 0.5, np.nan, 1.0])
    unit = 2 * stats.norm.ppf(0.95)
    np.testing.assert_allclose(table["width"], [1.5 * unit, unit, np.nan, 2 * unit])


def test_scaling_is_fitted_on_select_and_intervals_on_confirm() -> None:
    raw, y = held_out()
    select, confirm = np.arange(100), np.arange(100, 200)
    fitted = fit_calibrator(raw, y, BINS, select, confirm)
    expected = fit_scaling(raw[:100], y[:100], balanced_weights(y[:100], BINS))
    assert fitted.scaling == expected and expected.w == pytest.approx(4.0, rel=0.5)
    assert fitted.conformal is not None and fitted.conformal.mode == "region"
    # Other labels in one part change what is fitted on it, and nothing else.
    moved = y.copy()
    moved[confirm] *= 3
    again = fit_calibrator(raw, moved, BINS, select, confirm)
    assert again.scaling == fitted.scaling
    assert again.conformal is not None
    assert again.conformal.limits(0.9) != fitted.conformal.limits(0.9)
    scores = (y[confirm] - raw.mean[confirm].numpy()) / np.sqrt(expected.w)
    np.testing.assert_allclose(fitted.conformal.tables["all"].values, np.sort(scores))


def test_options_of_the_fit() -> None:
    raw, y = held_out()
    select, confirm = np.arange(100), np.arange(100, 200)
    bare = fit_calibrator(raw, y, BINS, select, confirm, calibrate=False, conformal=None)
    assert bare == Calibrator(BINS, None, None)
    whole = fit_calibrator(raw, y, BINS, select, confirm, conformal="global", many=10, few=5).conformal
    assert whole is not None
    assert (whole.mode, whole.weighting, whole.many, whole.few) == ("global", "balanced", 10, 5)
    unscaled = fit_calibrator(raw, y, BINS, select, confirm, calibrate=False)
    lower, upper = replace(unscaled, scaling=None).interval(raw[confirm], 0.9)
    inside = (y[confirm] >= lower.numpy()) & (y[confirm] <= upper.numpy())
    assert inside.mean() >= 0.9  # the rows that it was fitted on are covered


def test_predictions_under_another_prior_are_calibrated_before_the_tilt() -> None:
    raw = NIG(torch.tensor([0.0, 1.5], dtype=torch.float64), 4.0, 3.0, 2.0)
    calibrator = Calibrator(BINS, NIGScaling(w_nu=0.5, w_alpha=2.0, w_beta=2.0), None)
    tilt = emphasis(LabelDensity.from_bins(BINS), 1.0)
    tilted = tilt.apply(calibrator.calibrated(raw))
    early = calibrator.calibrated(tilt.apply(raw))
    assert isinstance(early, Tilted)
    np.testing.assert_allclose(early.mean, tilted.mean)
    np.testing.assert_allclose(early.variance, tilted.variance)
    columns = calibrator.columns(tilted, 0.9, many=100, few=20)
    np.testing.assert_allclose(columns["prediction"], tilted.mean)
    # The parts of the variance keep the proportion that the network gave them, 4 to 1.
    np.testing.assert_allclose(columns["aleatoric_std"] ** 2 / columns["std"] ** 2, 0.8)
    for name, end in zip(("lower", "upper"), tilted.interval(0.9), strict=True):
        np.testing.assert_allclose(columns[name], end)
    table = calibrator.scores(tilted, np.array([0.0, 2.0]), 0.9, many=100, few=20).set_index("region")
    assert table.loc["all", "coverage"] == 1.0 and np.isfinite(table.loc["all", "nll"])


@pytest.mark.parametrize("kind", ["normal", "nig"])
def test_everything_is_fitted_for_predictions_under_another_prior(kind: str) -> None:
    plain, y = held_out()
    raw = plain if kind == "normal" else NIG(plain.mean, 4.0, 3.0, 1.6)  # variance 1
    tilted = emphasis(LabelDensity.from_bins(BINS), 0.5).apply(raw)
    select, confirm = np.arange(100), np.arange(100, 200)
    fitted = fit_calibrator(tilted, y, BINS, select, confirm)
    assert isinstance(fitted.scaling, VarianceScaling) and fitted.scaling.w > 1.5
    calibrated = fitted.calibrated(tilted)
    np.testing.assert_allclose(calibrated.mean, tilted.mean)
    weights = balanced_weights(y[select], BINS)
    after, before = (
        d[select].nll(torch.from_numpy(y[select])).numpy() @ weights for d in (calibrated, tilted)
    )
    assert after < before
    lower, upper = (end.numpy() for end in fitted.interval(calibrated, 0.9))
    assert ((y >= lower) & (y <= upper))[confirm].mean() >= 0.9
