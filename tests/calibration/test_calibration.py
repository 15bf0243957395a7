"""Calibrated intervals and tables, by hand, and what is fitted on which rows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats

from tailwise.calibration import calibration as module
from tailwise.calibration.calibration import (
    Calibration,
    CalibrationRecipe,
    HeldOut,
    Labels,
    Predicted,
    Prior,
    Raw,
    best_setting,
    calibrate,
    choose_emphasis,
)
from tailwise.calibration.intervals import ConformalIntervals, OwnIntervals
from tailwise.calibration.scaling import NIGScaling, VarianceScaling, fit_scaling
from tailwise.distributions.members import NIG, Normal, stack
from tailwise.labels.bins import LabelBins
from tailwise.labels.prior import LabelDensity, emphasis

BINS = LabelBins.from_labels(np.repeat([0, 1, 2], [150, 50, 5]))  # many, medium, few
PREDICTED = Normal(torch.tensor([0.0, 1.0, 2.0], dtype=torch.float64), 4.0)


def held_out(n: int = 200, seed: int = 0) -> tuple[Normal, np.ndarray]:
    """Predictions of 0, 1 or 2 of variance 1, and labels of twice that standard deviation."""
    rng = np.random.default_rng(seed)
    mean = rng.choice([0.0, 1.0, 2.0], n)
    return Normal(torch.from_numpy(mean), 1.0), mean + 2 * rng.normal(size=n)


def none(n: int) -> np.ndarray:
    """Codes of rows without groups."""
    return np.zeros(n, np.int64)


def calibration(labels: Labels | None = None, **parts: Any) -> Calibration:
    """A calibration that changes nothing, but for these parts."""
    held = HeldOut(PREDICTED, np.array([0.0, 1.0, 2.0]), none(3))
    known = labels or Labels(BINS, quantiles=BINS.edges)
    plain = Calibration(known, VarianceScaling(), Prior.emphasized(known.density, 0.0), OwnIntervals(), held)
    return replace(plain, **parts)


def predicted(own: Calibration, raw: Any) -> Predicted:
    return own(Raw.of(stack([raw]), none(len(raw))))


def fit_calibration(
    raw: Any, y: np.ndarray, bins: LabelBins, select: Any, confirm: Any, base: Any = None, **recipe: Any
) -> Calibration:
    return calibrate(
        raw,
        y,
        none(len(y)),
        Labels(bins, quantiles=bins.edges),
        CalibrationRecipe(**recipe),
        select,
        confirm,
        base,
    )


def test_without_scaling_and_conformal_the_prediction_speaks_for_itself() -> None:
    found = predicted(calibration(), PREDICTED)
    np.testing.assert_array_equal(found.distribution.mean, PREDICTED.mean)
    lower, upper = found.interval(0.8)
    reach = 2 * stats.norm.ppf(0.9)
    np.testing.assert_allclose(lower, PREDICTED.mean - reach)
    np.testing.assert_allclose(upper, PREDICTED.mean + reach)
    assert "promise nothing" in calibration().explain(0.8, 0.8)
    with pytest.raises(ValueError, match="rare= needs conformal intervals"):
        found.interval(0.8, rare=0.9)


def test_scaling_comes_first_and_conformal_intervals_rule() -> None:
    conformal = ConformalIntervals(BINS).fit(Normal(torch.zeros(19).double(), 1.0), np.arange(-9.0, 10.0))
    own = calibration(scaling=VarianceScaling(9.0), intervals=conformal)
    found = predicted(own, PREDICTED)
    assert found.distribution.variance.tolist() == [36.0] * 3
    lower, upper = found.interval(0.9)
    np.testing.assert_allclose(upper, PREDICTED.mean + 9 * 6)
    np.testing.assert_allclose(lower, PREDICTED.mean - 9 * 6)
    # Nineteen rows are too few for 99%: the ends stay finite, and a warning and the text say so.
    with pytest.warns(UserWarning, match="0.99 intervals take 99 held-out rows, and there are 19"):
        assert found.interval(0.99)[1].isfinite().all()
    assert "No promise: 0.99 intervals take 99 held-out rows" in own.explain(0.99, 0.9)


def test_columns_of_a_table_by_hand() -> None:
    raw = NIG(torch.tensor([0.0, 2.0], dtype=torch.float64), 4.0, 3.0, 2.0)  # variances 1 and 1/4
    scaling = NIGScaling(w_nu=0.5, w_beta=2.0)
    columns = predicted(calibration(scaling=scaling), raw).columns(0.9)
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
    rarer = calibration(Labels(BINS, many=1000, few=1000, quantiles=BINS.edges), scaling=scaling)
    assert predicted(rarer, raw).columns(0.9)["region"].tolist() == ["few", "few"]


def test_scaling_is_fitted_on_select_and_intervals_on_confirm() -> None:
    raw, y = held_out()
    select, confirm = np.arange(100), np.arange(100, 200)
    fitted = fit_calibration(raw, y, BINS, select, confirm)
    expected = fit_scaling(raw[:100], y[:100])
    assert fitted.scaling == expected and expected.w == pytest.approx(4.0, rel=0.5)
    intervals = fitted.intervals
    assert isinstance(intervals, ConformalIntervals)
    # Other labels in one part change what is fitted on it, and nothing else.
    moved = y.copy()
    moved[confirm] *= 3
    again = fit_calibration(raw, moved, BINS, select, confirm)
    assert again.scaling == fitted.scaling and isinstance(again.intervals, ConformalIntervals)
    assert again.intervals.share == intervals.share
    scores = np.abs(y[confirm] - raw.mean[confirm].numpy()) / np.sqrt(expected.w) / stats.norm.ppf(0.95)
    alone = replace(intervals, share=0.0).fit(expected.apply(raw)[confirm], y[confirm])
    np.testing.assert_allclose(alone.scores, scores)
    moved_too = intervals.fit(expected.apply(raw)[confirm], moved[confirm])
    np.testing.assert_allclose(again.intervals.scores, moved_too.scores)


def test_predictions_are_calibrated_before_the_label_prior_changes() -> None:
    raw = NIG(torch.tensor([0.0, 1.5], dtype=torch.float64), 4.0, 3.0, 2.0)
    scaling, labels = NIGScaling(w_nu=0.5, w_alpha=2.0, w_beta=2.0), Labels(BINS, quantiles=BINS.edges)
    found = predicted(calibration(scaling=scaling, prior=Prior.emphasized(labels.density, 1.0)), raw)
    tilted = emphasis(labels.density, 1.0).apply(scaling.apply(raw))
    np.testing.assert_allclose(found.distribution.mean, tilted.mean)
    columns = found.columns(0.9)
    np.testing.assert_allclose(columns["prediction"], tilted.point)
    # The parts of the variance keep the proportion that the network gave them, 4 to 1.
    np.testing.assert_allclose(columns["aleatoric_std"] ** 2 / columns["std"] ** 2, 0.8)
    for name, end in zip(("lower", "upper"), tilted.interval(0.9), strict=True):
        np.testing.assert_allclose(columns[name], end)
    table = found.scores(np.array([0.0, 2.0]), 0.9).set_index("region")
    assert table.loc["all", "coverage"] == 1.0 and np.isfinite(table.loc["all", "nll"])


# -- the choice of an emphasis ---------------------------------------------------------------------


def mirrored(values: np.ndarray) -> np.ndarray:
    """Values near 0, and for every second pair of rows 1,000 minus that: no constant is close to both."""
    return np.where(np.arange(len(values)) // 2 % 2 == 0, values, 1000 - values)


CELLS = LabelDensity(np.array([-0.5, 0.5, 999.5, 1000.5]), np.array([0.85, 0.15, 0.85]))
"""Labels of 0 and 1,000 are common, labels of 1 and 999 are rare."""
LABELS = mirrored(np.repeat([0.0, 1.0], [85, 15]))
UNSURE = Normal(torch.from_numpy(mirrored(np.full(100, 0.5))), 1.0)
"""Predictions between a common and a rare label; more emphasis moves them towards the rare one."""
MANY = 4000
"""So many held-out rows tell a price of 1% from chance."""
MANY_UNSURE = Normal(torch.from_numpy(mirrored(np.full(MANY, 0.5))), 1.0)


def moved(t: float) -> float:
    """The predicted median at an emphasis, in the rare half of a Normal: half of the weight is below it."""
    common, rare = 0.85**-t, 0.15**-t
    return float(0.5 + stats.norm.ppf(0.5 + (1 - common / rare) / 4))


@pytest.mark.parametrize("common", [51, 52])
def test_all_rows_pay_at_most_one_percent(common: int) -> None:
    """With as many rare labels as common ones the error over all rows stays 1/2; it rises with fewer."""
    few = mirrored(np.repeat([0.0, 1.0], [common, 100 - common]))
    labels = np.tile(few, MANY // 100)

    def price(t: float) -> float:
        return float(np.abs(emphasis(CELLS, t).apply(MANY_UNSURE).point.numpy() - labels).mean())

    chosen = choose_emphasis(MANY_UNSURE, labels, CELLS)
    assert chosen > 0 and price(chosen) < 1.01 * price(0.0)
    # A hundred rows could have this price by chance.
    assert choose_emphasis(UNSURE, few, CELLS) == 0.0


def test_a_better_base_or_constant_allows_nothing() -> None:
    half, unsure = mirrored(np.tile([0.0, 0.0, 1.0, 1.0], MANY // 4)), MANY_UNSURE
    assert choose_emphasis(unsure, half, CELLS, half + 0.5) == choose_emphasis(unsure, half, CELLS) > 0
    assert choose_emphasis(unsure, half, CELLS, half + 0.4) == 0.0
    # The best constant is the median, 0: an unsure prediction of the same value everywhere is worse.
    labels, same = np.repeat([0.0, 1.0], [3400, 600]), Normal(torch.full((MANY,), 0.5).double(), 1.0)
    assert choose_emphasis(same, labels, CELLS) == 0.0
    # A prediction that knows the rare labels is better than the constant and may be moved.
    knows = Normal(torch.from_numpy(labels * 0.6), 0.1)
    assert choose_emphasis(knows, labels, CELLS) > 0


RARE = np.arange(100) < 20


def along(*means: float, apart: float = 0.0) -> np.ndarray:
    """Errors of 1 over common rows, and of these means over rare rows; each setting has noise of its own."""
    noise = np.random.default_rng(0).normal(size=(len(means), 20))
    noise = apart * (noise - noise.mean(1, keepdims=True)) / noise.std(1, keepdims=True)
    return np.concatenate([np.array(means)[:, None] + noise, np.ones((len(means), 80))], 1)


def test_the_best_setting_for_rare_rows_is_chosen() -> None:
    assert best_setting(along(5, 4, 3, 3.5), RARE, []) == 2
    assert best_setting(along(5, 6, 7), RARE, []) == 0


def test_rare_rows_must_gain_beyond_chance() -> None:
    assert best_setting(along(5, 4.9), RARE, []) == 1
    assert best_setting(along(5, 4.9, apart=0.5), RARE, []) == 0


def test_the_emphasis_is_chosen_on_the_rows_to_select_by() -> None:
    bins = LabelBins.from_labels(LABELS, edges=[-0.5, 0.5, 1.5, 998.5, 999.5, 1000.5])
    half = mirrored(np.tile([0.0, 0.0, 1.0, 1.0], MANY // 2))
    unsure = Normal(torch.from_numpy(mirrored(np.full(2 * MANY, 0.5))), 1.0)
    base = half + np.where(np.arange(2 * MANY) % 2 == 0, 100.0, 0.0)
    for start, allowed in ((0, True), (1, False)):
        rows = np.arange(start, 2 * MANY, 2)
        fitted = fit_calibration(
            unsure, half, bins, rows, np.arange(2 * MANY), base, emphasis="auto", scaling=False
        )
        assert (fitted.emphasis > 0) == allowed and fitted.prior.tilt.is_identity != allowed


# -- another emphasis, another prior ---------------------------------------------------------------


def skewed(n: int, seed: int) -> tuple[Normal, np.ndarray]:
    """Predictions of one variance, and labels of a long tail with more noise the larger they are."""
    rng = np.random.default_rng(seed)
    mean = rng.exponential(size=n)
    return Normal(torch.from_numpy(mean), 0.05), mean + (0.1 + 0.3 * mean) * rng.normal(size=n)


@pytest.fixture(scope="module")
def fitted() -> Calibration:
    raw, y = skewed(1000, seed=0)
    rows = np.arange(1000)
    return fit_calibration(raw, y, LabelBins.from_labels(y), rows[:500], rows[500:], emphasis=0.2)


def test_the_same_emphasis_is_the_same_calibration(fitted: Calibration) -> None:
    assert fitted.at() is fitted and fitted.at(0.2) is fitted
    assert fitted.at(0.0).prior.tilt.is_identity and fitted.at(0.7).emphasis == 0.7
    assert np.isnan(fitted.at(label_prior=[1.0, 2.0]).emphasis)
    back = fitted.at(1.0).at(0.2)
    raw, _ = skewed(50, seed=3)
    ends = (predicted(c, raw).interval(0.9) for c in (back, fitted))
    for one, two in zip(*ends, strict=True):
        torch.testing.assert_close(one, two)


def covered(own: Calibration, raw: Normal, y: np.ndarray) -> float:
    lower, upper = (end.numpy() for end in predicted(own, raw).interval(0.9))
    return float(((y >= lower) & (y <= upper)).mean())


def test_coverage_holds_wherever_the_dial_stands() -> None:
    found: dict[float, list[float]] = {0.0: [], 0.5: [], 1.0: []}
    for seed in range(6):
        raw, y = skewed(600, seed)
        bins, rows = LabelBins.from_labels(y), np.arange(600)
        chosen = fit_calibration(raw, y, bins, rows[:300], rows[300:])
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
        chosen = fit_calibration(raw, y, bins, rows[:500], rows[500:])
        fresh, truth = skewed(20000, seed + 100)
        weight = np.where(truth > 2, 10.0, 1.0)
        drawn = np.random.default_rng(seed).choice(len(truth), 2000, p=weight / weight.sum())
        at = chosen.at(label_prior=truth[drawn])
        informed.append(covered(at, fresh[drawn], truth[drawn]))
        tilted = at.possible(at.held.prediction)
        even = replace(at, intervals=ConformalIntervals(bins).fit(tilted, at.held.labels))
        uninformed.append(covered(even, fresh[drawn], truth[drawn]))
    assert 0.86 < np.mean(informed) < 0.99
    assert np.mean(uninformed) < 0.85  # what intervals without the weights of the prior would cover


def test_held_out_rows_are_capped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_HELD", 40)
    raw, y = skewed(300, seed=0)
    rows = np.arange(300)
    bins = LabelBins.from_labels(y)
    one, two = (fit_calibration(raw, y, bins, rows[:150], rows[150:], emphasis="auto") for _ in range(2))
    assert len(one.held.labels) == 40 == len(one.held.prediction.mean)
    assert set(one.held.labels) <= set(y[150:])
    np.testing.assert_array_equal(one.held.labels, two.held.labels)
    # Each label stays beside its own prediction.
    place = [int(np.flatnonzero(y == label)[0]) for label in one.held.labels]
    torch.testing.assert_close(one.held.prediction.mean, raw.mean[place])
    small = fit_calibration(raw, y, bins, rows[:150], rows[260:])
    assert len(small.held.labels) == 40


# -- the price of rare labels, parts of the variance ----------------------------------------------


def test_the_price_of_rare_labels_by_hand(fitted: Calibration) -> None:
    unscaled = predicted(replace(fitted, scaling=VarianceScaling()), fitted.held.prediction)
    labels, intervals = fitted.held.labels, fitted.intervals
    assert isinstance(intervals, ConformalIntervals)
    (lower, upper), (low, high) = (
        [end.numpy() for end in unscaled.interval(0.9, rare)] for rare in (None, 0.8)
    )
    rare = intervals.rare > 0
    inside = ((labels >= lower) & (labels <= upper))[rare].mean()
    width, rare_width = (upper - lower).mean(), (high - low).mean()
    promise, covered, price, _ = fitted.explain(0.9, 0.8).splitlines()
    assert f"the {len(labels)} held-out rows behind" in promise
    assert covered == f"Of {rare.sum()} held-out rows with the rarest labels, {inside:.1%} are inside."
    assert f"{rare_width / width:.3g} times" in price and f"({rare_width:.4g}, not {width:.4g})" in price


def test_what_networks_disagree_about_is_epistemic() -> None:
    """Four networks agree at the first row and not at the second, whose noise is the same."""
    networks = tuple(
        NIG(torch.tensor([1.0, 1.0 + gap], dtype=torch.float64), 3.0, 3.0, 2.0) for gap in (-9, -3, 3, 9)
    )
    raw = Raw.of(stack(networks), none(2))
    columns = calibration()(raw).columns(0.9)
    np.testing.assert_allclose(columns["epistemic_std"], [0, np.sqrt(45)], atol=1e-12)
    np.testing.assert_allclose(
        columns["aleatoric_std"] ** 2 + columns["epistemic_std"] ** 2, columns["std"] ** 2
    )
    scaled = calibration(scaling=VarianceScaling(1e-6))(raw).columns(0.9)
    assert (scaled["epistemic_std"] <= scaled["std"]).all()


def zeros_and_amounts(n: int, rng: np.random.Generator) -> tuple[Normal, np.ndarray]:
    """Labels near 0 and amounts, and predictions of one hump that spans both."""
    y = np.where(rng.random(n) < 0.6, 0.01 * rng.normal(size=n), rng.exponential(10.0, n))
    return Normal(torch.full((n,), 2.0).double(), torch.from_numpy(100 * np.exp(2 * rng.normal(size=n)))), y


def test_coverage_holds_after_the_choice_of_intervals() -> None:
    """The choice is made on 40 rows and the factor fitted to 49 others."""
    rng, shares, rows = np.random.default_rng(0), [], np.arange(89)
    labels = Labels(LabelBins.from_labels(zeros_and_amounts(999, rng)[1]), quantiles=np.linspace(-0.01, 30))
    recipe, leaning = CalibrationRecipe(scaling=False), 0
    for _ in range(64):
        (raw, y), (new, truth) = (zeros_and_amounts(n, rng) for n in (89, 300))
        fitted = calibrate(raw, y, none(89), labels, recipe, rows[:40], rows[40:])
        lower, upper = (end.numpy() for end in predicted(fitted, new).interval(0.9))
        shares.append(((truth >= lower) & (truth <= upper)).mean())
        leaning += isinstance(fitted.intervals, ConformalIntervals) and fitted.intervals.share > 0
    error = np.std(shares) / 8
    assert 0.9 - 4 * error <= np.mean(shares) <= 0.92 + 4 * error
    assert leaning > 32


@pytest.mark.parametrize("one_hump", [True, False])
def test_intervals_lean_on_all_labels_where_no_distribution_fits(one_hump: bool) -> None:
    """Wide predictions of zeros and amounts are of no use; those of one hump that know its spread are."""
    rng = np.random.default_rng(0)
    std = np.exp(rng.normal(size=1000))
    if one_hump:
        raw, y = Normal(torch.zeros(1000).double(), torch.from_numpy(std**2)), std * rng.normal(size=1000)
    else:
        raw, y = zeros_and_amounts(1000, rng)
    rows = np.arange(1000)
    labels = Labels(LabelBins.from_labels(y), quantiles=np.sort(y))
    fitted = calibrate(raw, y, none(1000), labels, CalibrationRecipe(scaling=False), rows[:500], rows[500:])
    intervals = fitted.intervals
    assert isinstance(intervals, ConformalIntervals)
    assert (intervals.share == 0) == one_hump
    alone = replace(fitted, intervals=replace(intervals, share=0.0)).under(fitted.prior)
    scores = [predicted(each, raw).scores(y, 0.9).set_index("region").loc["all"] for each in (fitted, alone)]
    if not one_hump:
        assert scores[0]["interval_score"] < 0.8 * scores[1]["interval_score"]
        assert scores[0]["interval_score"] < 1.1 * scores[0]["constant_interval_score"]
