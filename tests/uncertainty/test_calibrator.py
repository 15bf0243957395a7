"""A calibrator's intervals and tables, by hand, and what is fitted on which rows."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import numpy as np
import pytest
import torch
from scipy import stats

from tailwise.core.distributions import NIG, Normal
from tailwise.core.label_prior import LabelDensity, Tilted, emphasis
from tailwise.core.labels import LabelBins
from tailwise.core.support import LabelSupport
from tailwise.uncertainty import calibrator as module
from tailwise.uncertainty.calibration import Calibrator, HeldOut, choose_emphasis, fit_calibrator
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
    # Nineteen rows are too few for 99%: the ends stay finite, and a warning and the text say so.
    with pytest.warns(UserWarning, match="0.99 intervals take 99 held-out rows, and there are 19"):
        assert calibrator.interval(PREDICTED, 0.99)[1].isfinite().all()
    assert "No promise: 0.99 intervals take 99 held-out rows" in calibrator.explain(0.99)


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


def test_the_constant_interval_keeps_a_value_that_most_labels_have() -> None:
    """Bins alone would spread the zeros over the first bin."""
    y = np.r_[np.zeros(60), np.linspace(1, 1000, 40)]
    prediction = Normal(torch.tensor(y), 1.0)
    parts = {"held": HeldOut(prediction, y), "support": LabelSupport.from_labels(y)}
    bins = LabelBins.from_labels(y, count=10)
    scores = Calibrator(bins, None, None, **parts).scores(prediction, y, 0.5, 100, 20)
    assert scores.loc[0, "constant_coverage"] >= 0.5
    assert Calibrator(bins, None, None).known_labels is bins


def test_scaling_is_fitted_on_select_and_intervals_on_confirm() -> None:
    raw, y = held_out()
    select, confirm = np.arange(100), np.arange(100, 200)
    fitted = fit_calibrator(raw, y, BINS, select, confirm)
    expected = fit_scaling(raw[:100], y[:100])
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
    assert bare.scaling is None and bare.conformal is None and bare.tilt is None and bare.emphasis == 0.0
    balanced = fit_calibrator(raw, y, BINS, select, confirm, calibrate="balanced")
    assert balanced.scaling == fit_scaling(raw[:100], y[:100], balanced_weights(y[:100], BINS))
    assert balanced.scaling != fit_calibrator(raw, y, BINS, select, confirm).scaling
    whole = fit_calibrator(raw, y, BINS, select, confirm, conformal="global", many=10, few=5).conformal
    assert whole is not None
    assert (whole.mode, whole.weighting, whole.many, whole.few) == ("global", "rare", 10, 5)
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
    np.testing.assert_allclose(columns["prediction"], tilted.point)
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
    after, before = (d[select].nll(torch.from_numpy(y[select])).numpy().sum() for d in (calibrated, tilted))
    assert after < before
    lower, upper = (end.numpy() for end in fitted.interval(calibrated, 0.9))
    assert ((y >= lower) & (y <= upper))[confirm].mean() >= 0.9


# -- the choice of an emphasis ---------------------------------------------------------------------


def mirrored(values: np.ndarray) -> np.ndarray:
    """Values near 0, and for every second pair of rows 1,000 minus that: no constant is close to both."""
    return np.where(np.arange(len(values)) // 2 % 2 == 0, values, 1000 - values)


CELLS = LabelDensity(np.array([-0.5, 0.5, 999.5, 1000.5]), np.array([0.85, 0.15, 0.85]))
"""Labels of 0 and 1,000 are common, labels of 1 and 999 are rare."""
LABELS = mirrored(np.repeat([0.0, 1.0], [85, 15]))
UNSURE = Normal(torch.from_numpy(mirrored(np.full(100, 0.5))), 1.0)
"""Predictions between a common and a rare label; more emphasis moves them towards the rare one."""


def moved(t: float) -> float:
    """The predicted median at an emphasis, in the rare half of a Normal: half of the weight is below it."""
    common, rare = 0.85**-t, 0.15**-t
    return float(0.5 + stats.norm.ppf(0.5 + (1 - common / rare) / 4))


def error(t: float) -> float:
    """The mean absolute error over all rows: 85 labels of 0 and 15 of 1."""
    return 0.85 * abs(moved(t)) + 0.15 * abs(1 - moved(t))


def test_the_prediction_of_the_cases_below() -> None:
    for t in (0.0, 0.3, 1.0):
        np.testing.assert_allclose(emphasis(CELLS, t).apply(UNSURE).point, mirrored(np.full(100, moved(t))))


@pytest.mark.parametrize("t", [0.1, 0.3])
def test_as_much_emphasis_as_the_base_allows(t: float) -> None:
    """Rare labels gain by every step here, up to the error of the base and 1% more."""
    for slack, chosen in ((1.0001, t), (0.9999, t - 0.05)):
        base = LABELS + slack * error(t) / 1.01
        assert choose_emphasis(UNSURE, LABELS, CELLS, base) == pytest.approx(chosen)


def test_no_more_emphasis_than_rare_labels_need() -> None:
    """A bad base allows everything. Above 0.2 the prediction goes beyond the rare labels."""
    labels = mirrored(np.repeat([0.0, moved(0.2)], [85, 15]))
    assert choose_emphasis(UNSURE, labels, CELLS, labels + 100) == 0.2


def test_a_base_worse_than_a_constant_allows_no_more_than_the_constant() -> None:
    """The best constant is the median, 0: an unsure prediction of the same value everywhere is worse."""
    labels, same = np.repeat([0.0, 1.0], [85, 15]), Normal(torch.full((100,), 0.5).double(), 1.0)
    assert choose_emphasis(same, labels, CELLS, labels + 100) == 0.0
    # A prediction that knows the rare labels is better than the constant and may be moved.
    knows = Normal(torch.from_numpy(labels * 0.6), 0.1)
    assert choose_emphasis(knows, labels, CELLS, labels + 100) > 0


def test_without_a_base_the_error_may_grow_by_one_percent() -> None:
    assert error(0.1) > 1.01 * error(0.0)
    assert choose_emphasis(UNSURE, LABELS, CELLS) == 0.0
    # With as many rare labels as common ones the error over all rows stays 1/2 up to a prediction of 1.
    half = mirrored(np.repeat([0.0, 1.0], 50))
    assert 1 < moved(0.85) < 1.005 < moved(0.9)
    assert choose_emphasis(UNSURE, half, CELLS) == 0.85


def test_a_base_that_nothing_equals_and_too_few_rows_leave_labels_as_they_are() -> None:
    assert choose_emphasis(UNSURE, LABELS, CELLS, LABELS) == 0.0
    few = np.r_[0:40, 91:100]
    assert choose_emphasis(UNSURE[few], LABELS[few], CELLS, LABELS[few] + 100) == 0.0


def test_the_emphasis_is_chosen_on_the_rows_to_select_by() -> None:
    bins = LabelBins.from_labels(LABELS, edges=[-0.5, 0.5, 1.5, 998.5, 999.5, 1000.5])
    base = LABELS + np.where(np.arange(100) % 2 == 0, 100.0, 0.0)
    for rows, allowed in ((np.arange(0, 100, 2), True), (np.arange(1, 100, 2), False)):
        fitted = fit_calibrator(
            UNSURE, LABELS, bins, rows, np.arange(100), base=base, emphasis="auto", calibrate=False
        )
        assert (fitted.emphasis > 0) == allowed and (fitted.tilt is not None) == allowed


# -- another emphasis, another prior ---------------------------------------------------------------


def skewed(n: int, seed: int) -> tuple[Normal, np.ndarray]:
    """Predictions of one variance, and labels of a long tail with more noise the larger they are."""
    rng = np.random.default_rng(seed)
    mean = rng.exponential(size=n)
    return Normal(torch.from_numpy(mean), 0.05), mean + (0.1 + 0.3 * mean) * rng.normal(size=n)


@pytest.fixture(scope="module")
def fitted() -> Calibrator:
    raw, y = skewed(1000, seed=0)
    rows = np.arange(1000)
    return fit_calibrator(raw, y, LabelBins.from_labels(y), rows[:500], rows[500:], emphasis=0.2)


def test_the_same_emphasis_is_the_same_calibrator(fitted: Calibrator) -> None:
    assert fitted.at() is fitted and fitted.at(0.2) is fitted
    assert fitted.at(0.0).tilt is None and fitted.at(0.7).emphasis == 0.7
    assert np.isnan(fitted.at(label_prior=[1.0, 2.0]).emphasis)
    back = fitted.at(1.0).at(0.2)
    raw, _ = skewed(50, seed=3)
    ends = (c.interval(c.calibrated(raw), 0.9) for c in (back, fitted))
    for one, two in zip(*ends, strict=True):
        torch.testing.assert_close(one, two)


def test_intervals_of_the_distribution_follow_the_emphasis(fitted: Calibrator) -> None:
    plain = replace(fitted, conformal=None).at(1.0)
    raw, _ = skewed(20, seed=3)
    assert plain.conformal is None
    ends = plain.interval(plain.calibrated(raw), 0.9)
    assert fitted.density is not None and fitted.scaling is not None
    expected = emphasis(fitted.density, 1.0).apply(fitted.scaling.apply(raw)).interval(0.9)
    for one, two in zip(ends, expected, strict=True):
        torch.testing.assert_close(one, two)


def test_a_coverage_in_percent_is_refused_without_a_warning(
    fitted: Calibrator, recwarn: pytest.WarningsRecorder
) -> None:
    with pytest.raises(ValueError, match="coverage must lie between 0 and 1, got 90"):
        fitted.interval(PREDICTED, 90)
    assert not recwarn.list


def test_what_cannot_be_asked_for(fitted: Calibrator) -> None:
    for wrong in (-0.1, 1.1, np.nan):
        with pytest.raises(ValueError, match="emphasis must lie between 0 and 1"):
            fitted.at(wrong)
    with pytest.raises(ValueError, match="give emphasis or label_prior, not both"):
        fitted.at(0.5, [1.0])
    old = Calibrator(BINS, None, None)
    assert old.at(0.0) is old
    for asked in ({"emphasis": 0.5}, {"label_prior": [1.0]}):
        with pytest.raises(ValueError, match="saved by a version without emphasis and label_prior: fit it"):
            old.at(**asked)


def covered(calibrator: Calibrator, raw: Normal, y: np.ndarray) -> float:
    lower, upper = (end.numpy() for end in calibrator.interval(calibrator.calibrated(raw), 0.9))
    return float(((y >= lower) & (y <= upper)).mean())


@pytest.mark.parametrize("mode", ["global", "region"])
def test_coverage_holds_wherever_the_dial_stands(mode: Literal["global", "region"]) -> None:
    found: dict[float, list[float]] = {0.0: [], 0.5: [], 1.0: []}
    for seed in range(6):
        raw, y = skewed(600, seed)
        bins, rows = LabelBins.from_labels(y), np.arange(600)
        chosen = fit_calibrator(raw, y, bins, rows[:300], rows[300:], conformal=mode)
        fresh, truth = skewed(2000, seed + 100)
        for t, rates in found.items():
            rates.append(covered(chosen.at(t), fresh, truth))
    for t, rates in found.items():
        assert np.mean(rates) > 0.89, t
        assert np.mean(rates) < 0.99, t


def test_coverage_holds_under_the_label_prior_that_was_given() -> None:
    """Large labels occur far more often in use than in training."""
    informed, uninformed = [], []
    for seed in range(6):
        raw, y = skewed(1500, seed)
        bins, rows = LabelBins.from_labels(y), np.arange(1500)
        chosen = fit_calibrator(raw, y, bins, rows[:500], rows[500:], conformal="global")
        fresh, truth = skewed(20000, seed + 100)
        weight = np.where(truth > 2, 10.0, 1.0)
        drawn = np.random.default_rng(seed).choice(len(truth), 2000, p=weight / weight.sum())
        at = chosen.at(label_prior=truth[drawn])
        informed.append(covered(at, fresh[drawn], truth[drawn]))
        held = at.held
        assert held is not None and at.tilt is not None
        even = replace(at, conformal=fit_conformal(at.tilt.apply(held.prediction), held.labels, bins))
        uninformed.append(covered(even, fresh[drawn], truth[drawn]))
    assert 0.885 < np.mean(informed) < 0.99
    assert np.mean(uninformed) < 0.85  # what intervals without the weights of the prior would cover


def test_held_out_rows_are_capped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_HELD", 40)
    raw, y = skewed(300, seed=0)
    rows = np.arange(300)
    bins = LabelBins.from_labels(y)
    one, two = (fit_calibrator(raw, y, bins, rows[:150], rows[150:], emphasis="auto") for _ in range(2))
    assert one.held is not None and two.held is not None
    assert len(one.held.labels) == 40 == len(one.held.prediction.mean)
    assert set(one.held.labels) <= set(y[150:])
    np.testing.assert_array_equal(one.held.labels, two.held.labels)
    # Each label stays beside its own prediction.
    place = [int(np.flatnonzero(y == label)[0]) for label in one.held.labels]
    torch.testing.assert_close(one.held.prediction.mean, raw.mean[place])
    small = fit_calibrator(raw, y, bins, rows[:150], rows[260:])
    assert small.held is not None and len(small.held.labels) == 40
