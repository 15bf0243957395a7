"""Intervals: the promises by simulation, factors by hand, and what must not break them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tailwise.calibration.interval_scores import ColumnGroups
from tailwise.calibration.intervals import ConformalIntervals
from tailwise.distributions.members import Distribution, Normal
from tailwise.labels.bins import LabelBins
from tailwise.labels.support import LabelSupport
from tests.prediction_samples import make

Array = np.ndarray
BINS = LabelBins.from_labels(np.repeat([0, 1, 2], [300, 50, 5]))
Z95 = 1.6448536269514722


def standard(n: int) -> Normal:
    """Predictions of 0 whose 5% and 95% quantiles are -1 and 1."""
    return Normal(torch.zeros(n, dtype=torch.float64), Z95**-2)


def fit(scores: Array, weights: Any = None, **options: Any) -> ConformalIntervals:
    """Fit to labels with these distances from predictions of 0."""
    options.setdefault("bins", BINS)
    return ConformalIntervals(**options).fit(standard(len(scores)), scores, weights)


def reach(intervals: ConformalIntervals, coverage: float = 0.9) -> float:
    """The distance of the upper end from a prediction of 0."""
    lower, upper = intervals.ends(standard(1), coverage)
    assert -lower.item() == pytest.approx(upper.item())
    return upper.item()


def covered(intervals: ConformalIntervals, distribution: Distribution, y: Any, **asked: Any) -> Array:
    lower, upper = (end.numpy() for end in intervals.ends(distribution, 0.9, **asked))
    return (np.asarray(y) >= lower) & (np.asarray(y) <= upper)


# -- the promises ----------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [9, 100])
def test_a_new_exchangeable_row_is_covered_as_often_as_the_formula_says(n: int) -> None:
    """Coverage is exactly ceil((n + 1) 0.9) / (n + 1), whatever the distribution of the scores."""
    rng, shares, draws = np.random.default_rng(n), [], 200
    for _ in range(draws):
        inside = rng.pareto(0.5, 2000) <= reach(fit(rng.pareto(0.5, n)))
        shares.append(inside.mean())
    exact = math.ceil((n + 1) * 0.9 - 1e-9) / (n + 1)
    assert exact >= 0.9
    assert abs(np.mean(shares) - exact) <= 5 * np.std(shares) / math.sqrt(draws)


@pytest.mark.parametrize("kind", ["nig", "mixture"])
@pytest.mark.parametrize(("wrong", "share"), [(0.3, 0.0), (4.0, 0.5)])
def test_coverage_holds_for_every_distribution_whatever_its_calibration(
    kind: str, wrong: float, share: float
) -> None:
    shares, n = [], 49
    for seed in range(100):
        new, _ = make(kind, n + 200, seed)
        labels = new.sample(1, torch.Generator().manual_seed(seed))[0]
        y = new.mean + wrong * (labels - new.mean)
        intervals = ConformalIntervals(BINS, constant=(-2.0, 3.0), share=share)
        shares.append(covered(intervals.fit(new[:n], y[:n]), new[n:], y[n:]).mean())
    error = np.std(shares) / math.sqrt(len(shares))
    assert 0.9 - 5 * error <= np.mean(shares) <= 0.9 + 1 / (n + 1) + 5 * error


def skewed_rows(n: int, rng: np.random.Generator) -> tuple[Normal, Array]:
    """Whole numbers that a prediction of their mean misses in the upper tail."""
    y = np.round(rng.exponential(4.0, n))
    return Normal(torch.full((n,), 4.0, dtype=torch.float64) + 0.3 * torch.from_numpy(y), 4.0), y


def test_rare_labels_are_covered_as_often_as_asked() -> None:
    rng = np.random.default_rng(5)
    bins = LabelBins.from_labels(skewed_rows(40_000, rng)[1])
    shares: dict[float | None, list[float]] = {None: [], 0.9: []}
    every = []
    for _ in range(60):
        held, new = skewed_rows(400, rng), skewed_rows(1000, rng)
        fitted = ConformalIntervals(bins).fit(*held)
        rare = np.any([(new[1] >= low) & (new[1] < high) for low, high in fitted.stretches], axis=0)
        for asked, coverages in shares.items():
            inside = covered(fitted, *new, rare=asked)
            coverages.append(inside[rare].mean())
        every.append(inside.mean())
    error = np.std(shares[0.9]) / math.sqrt(60)
    assert np.mean(shares[0.9]) >= 0.9 - 5 * error
    assert np.mean(shares[None]) < 0.8  # most of the 10% that are left out are rare
    assert np.mean(every) > 0.9


def test_rare_only_adds_stretches_of_rare_labels() -> None:
    rng = np.random.default_rng(1)
    held, y = skewed_rows(500, rng)
    fitted = ConformalIntervals(LabelBins.from_labels(y)).fit(held, y)
    plain, wide = fitted.ends(held, 0.9), fitted.ends(held, 0.9, rare=0.9)
    assert (wide[0] <= plain[0]).all() and (wide[1] >= plain[1]).all() and (wide[1] > plain[1]).any()
    moved = wide[1][wide[1] > plain[1]].numpy()
    assert np.any([(moved >= low) & (moved <= high) for low, high in fitted.stretches], axis=0).all()


def test_whole_numbers_need_no_more_values_than_the_promise() -> None:
    """Ends move inwards to possible labels, which loses none of them: coverage is that of the interval."""
    rng, shares = np.random.default_rng(2), []
    support = LabelSupport(tuple(np.arange(-40.0, 41.0)))
    for _ in range(60):
        mean = rng.normal(size=400)
        y = np.round(mean + rng.normal(size=400))
        prediction = Normal(torch.from_numpy(mean), 1.0)
        fitted = ConformalIntervals(LabelBins.from_labels(y)).fit(prediction[:200], y[:200])
        lower, upper = support.between(*fitted.ends(prediction[200:], 0.9))
        shares.append(((y[200:] >= lower.numpy()) & (y[200:] <= upper.numpy())).mean())
    error = np.std(shares) / math.sqrt(60)
    assert 0.9 - 5 * error <= np.mean(shares) <= 0.9 + 1 / 201 + 5 * error


def test_factors_by_hand() -> None:
    # 39 scores leave 40 gaps: 90% is the 36th smallest score, 95% the 38th, 97.5% the 39th.
    fitted = fit(np.arange(1.0, 40.0)[::-1].copy() * np.tile([1, -1, 1], 13))
    for coverage, end in ((0.9, 36), (0.95, 38), (0.91, 37), (0.975, 39)):
        assert reach(fitted, coverage) == pytest.approx(end)
    assert reach(fit(np.arange(1.0, 10.0))) == pytest.approx(9)
    # A row of weight 2 is as good as two rows.
    twice = fit(np.arange(1.0, 20.0), np.full(19, 2.0))
    assert reach(twice) == pytest.approx(18)


@pytest.mark.parametrize(("share", "ends"), [(0.0, (-1, 1)), (0.5, (-2, 3)), (1.0, (-3, 5))])
def test_quantiles_move_to_those_of_all_labels_by_hand(share: float, ends: tuple[float, float]) -> None:
    intervals = ConformalIntervals(BINS, constant=(-3.0, 5.0), share=share)
    fitted = intervals.fit(standard(19), np.repeat(ends, [9, 10]))  # factor 1
    np.testing.assert_allclose([end.item() for end in fitted.ends(standard(1))], ends)
    unit = fitted.standardized()
    np.testing.assert_allclose(np.array(unit.constant) * BINS.scale + BINS.location, (-3, 5))


def test_an_end_that_would_pass_the_median_stops_there() -> None:
    fitted = ConformalIntervals(BINS, constant=(2.0, 4.0), share=1.0).fit(standard(19), np.full(19, 4.0))
    lower, upper = fitted.ends(standard(1))
    assert upper.item() == 4 and lower.item() == pytest.approx(-0.2)  # at least 5% of both distances


def test_weights_say_which_rows_are_expected() -> None:
    scores = np.repeat([1.0, 5.0], [900, 100])
    assert reach(fit(scores)) == pytest.approx(5) and reach(fit(scores), 0.89) == pytest.approx(1)
    weights = np.repeat([1.0, 0.1], [900, 100])
    assert reach(fit(scores, weights), 0.98) == pytest.approx(1)


@given(
    scores=st.lists(st.floats(-100, 100), min_size=20, max_size=60),
    levels=st.tuples(st.floats(0.01, 0.95), st.floats(0.01, 0.95)),
)
def test_more_coverage_never_narrows(scores: list[float], levels: tuple[float, float]) -> None:
    fitted = fit(np.array(scores))
    inner, outer = (reach(fitted, level) for level in sorted(levels))
    assert 0 < inner <= outer


# -- edges -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [1, 2, 8])
def test_too_few_rows_span_the_training_labels_and_the_largest_error(n: int) -> None:
    fitted = fit(np.linspace(1, 2, n))
    assert fitted.too_few(n / (n + 1)) == ""
    lower, upper = fitted.ends(standard(3), 0.9)
    np.testing.assert_allclose(lower, -1.0 if n == 1 else -2.0)
    np.testing.assert_allclose(upper, 2.0)
    assert fitted.too_few(0.9) == f"0.9 intervals take 9 held-out rows, and there are {n}."


def test_too_few_rare_rows_are_named() -> None:
    bins = LabelBins.from_labels(skewed_rows(4000, np.random.default_rng(0))[1])
    fitted = fit(np.repeat([1.0, 20.0], [100, 8]), bins=bins)
    assert fitted.too_few(0.9) == ""
    expected = "0.9 intervals take 9 held-out rows with the rarest labels, and there are 8."
    assert fitted.too_few(0.9, rare=0.9) == expected
    assert fitted.ends(standard(1), 0.9, rare=0.9)[1].item() >= 20


def test_predictions_without_spread_get_the_residuals_own_width() -> None:
    point = Normal(torch.zeros(99, dtype=torch.float64), 0.0)
    ends = ConformalIntervals(BINS).fit(point, np.linspace(-1, 1, 99)).ends(point[:1], 0.9)
    np.testing.assert_allclose(np.concatenate(ends), [-0.9, 0.9], atol=0.02)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"y": [0.0, math.nan, 1.0]}, "row 1 is nan"),
        ({"distribution": Normal(torch.tensor([0.0, math.nan, 0.0]), 1.0)}, "row 1 is not"),
        ({"distribution": standard(0), "y": []}, "no held-out rows"),
        ({"weights": [1.0, -1.0, 1.0]}, "negative"),
        ({"column": ColumnGroups.of(["a"], "site")}, "need the groups of the rows"),
        (
            dict.fromkeys(("scores", "weights", "rare"), np.ones(1)) | {"groups": np.array([3])},
            "a group of the column",
        ),
    ],
)
def test_wrong_input_is_named(change: dict[str, Any], message: str) -> None:
    arguments = {"distribution": standard(3), "y": [0.0, 1.0, 2.0], "weights": None, **change}
    held = [arguments.pop(name) for name in ("distribution", "y", "weights")]
    if "scores" in change and "weights" in change:
        arguments["weights"], held[2] = change["weights"], None
    with pytest.raises(ValueError, match=message):
        ConformalIntervals(BINS, **arguments).fit(*held)


@pytest.mark.parametrize("coverage", [0.0, 1.0, 90, math.nan])
def test_coverage_must_be_a_share(coverage: float) -> None:
    for asked in ({"coverage": coverage}, {"rare": coverage}):
        with pytest.raises(ValueError, match="between 0 and 1"):
            fit(np.arange(99.0)).ends(standard(3), **asked)


@settings(max_examples=30)
@given(
    kind=st.sampled_from(["normal", "nig", "mixture"]),
    rare=st.sampled_from([None, 0.8]),
    scale=st.floats(1e-9, 1e9),
    shift=st.floats(-10, 10),
)
def test_intervals_follow_shift_and_scale_of_the_labels(
    kind: str, rare: float | None, scale: float, shift: float
) -> None:
    shift, prediction = shift * scale, make(kind, 120)[0]
    y = prediction.sample(1, torch.Generator().manual_seed(0))[0]
    bins = LabelBins.from_labels(y, count=8)
    moved = LabelBins(bins.edges * scale + shift, bins.counts)
    one = ConformalIntervals(bins).fit(prediction, y)
    other = ConformalIntervals(moved).fit(prediction.rescale(shift, scale), y * scale + shift)
    ends = one.ends(prediction, 0.8, rare=rare)
    for end, expected in zip(other.ends(prediction.rescale(shift, scale), 0.8, rare=rare), ends, strict=True):
        torch.testing.assert_close((end - shift) / scale, expected, rtol=1e-6, atol=1e-6)


# -- groups of a column ----------------------------------------------------------------------------


def by_site() -> tuple[ConformalIntervals, Array, Array]:
    """Site b is twice as noisy as a, and c has two rows."""
    rng, sites = np.random.default_rng(0), ColumnGroups.of(["a", "b", "c"], "site")
    codes = np.repeat([1, 2, 3], [400, 400, 2])
    y = rng.normal(size=codes.size) * np.array([0, 1, 2, 50])[codes]
    return ConformalIntervals(BINS, column=sites).fit(standard(y.size), y, groups=codes), codes, y


def test_each_group_of_a_column_is_covered() -> None:
    fitted, codes, y = by_site()
    inside = covered(fitted, standard(y.size), y, groups=codes)
    assert 0.9 <= inside[codes == 1].mean() <= 0.93 and 0.9 <= inside[codes == 2].mean() <= 0.93
    # The overall factor is too large for a.
    assert covered(fitted, standard(y.size), y)[codes == 1].mean() > 0.97


def test_factors_of_a_column_are_shrunk_by_hand() -> None:
    """Two rows of c have scores of 50 and a share of 4 / 904, which keeps the overall factor nearly."""
    fitted, codes, y = by_site()
    _, upper = fitted.ends(standard(4), 0.9, groups=np.array([0, 1, 2, 3]))
    overall, far = reach(fitted), np.abs(y[codes == 3]).max()
    assert upper[0].item() == pytest.approx(overall)  # a value without a group
    assert upper[3].item() == pytest.approx(overall * (far / overall) ** (4 / 904))
    assert upper[1] < upper[0] < upper[2]
