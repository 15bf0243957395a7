"""Intervals: coverage by simulation, limits by hand, and what must not break them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tailwise.calibration import intervals as module
from tailwise.calibration.column_groups import ColumnGroups
from tailwise.calibration.intervals import SPLITS, ConformalIntervals, majority
from tailwise.distributions.members import NIG, Distribution, Normal
from tailwise.labels.bins import LabelBins
from tailwise.labels.prior import LabelDensity, rarest
from tests.prediction_samples import predicted

Array = np.ndarray
BINS = LabelBins.from_labels(np.repeat([0, 1, 2], [300, 50, 5]))  # many, medium, few
REGIONS = Normal(torch.tensor([0.0, 1.0, 2.0], dtype=torch.float64), 1.0)
"""One prediction in each region, of spread 1."""


def standard(n: int) -> Normal:
    return Normal(torch.zeros(n, dtype=torch.float64), 1.0)


def fit(scores: Array, weights: Any = None, *, at: Array | None = None, **options: Any) -> ConformalIntervals:
    """Fit to labels with these distances from predictions of 0, or `at`, of spread 1."""
    point = np.zeros(len(scores)) if at is None else at
    options.setdefault("bins", BINS)
    return ConformalIntervals(**options).fit(Normal(torch.from_numpy(point), 1.0), point + scores, weights)


def limits(intervals: ConformalIntervals, coverage: float = 0.9) -> Array:
    """Distances of the ends from a prediction in each region. (3, 2)"""
    return torch.stack(intervals.ends(REGIONS, coverage), 1).numpy() - REGIONS.mean.numpy()[:, None]


def covered(intervals: ConformalIntervals, distribution: Distribution, y: Any, **given: Any) -> Array:
    lower, upper = (end.numpy() for end in intervals.ends(distribution, 0.9, **given))
    return (np.asarray(y) >= lower) & (np.asarray(y) <= upper)


# -- the promise -----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["normal", "nig", "mixture"])
@pytest.mark.parametrize("wrong", [0.3, 4.0])
def test_coverage_holds_for_every_distribution_whatever_its_calibration(kind: str, wrong: float) -> None:
    rng, shares, n = np.random.default_rng(4), [], 49
    for _ in range(100):
        new = predicted(kind, n + 200, rng)
        labels = new.sample(1, torch.Generator().manual_seed(int(rng.integers(2**31))))[0]
        y = new.mean + wrong * (labels - new.mean)
        shares.append(covered(ConformalIntervals(BINS).fit(new[:n], y[:n]), new[n:], y[n:]).mean())
    error = np.std(shares) / math.sqrt(len(shares))
    assert 0.9 - 4 * error <= np.mean(shares) <= 0.9 + 1 / (n + 1) + 4 * error


def test_limits_by_hand() -> None:
    # 39 scores -19..19 leave 40 gaps. 90% keeps 36 of them: 2 left out below, 2 above.
    fitted = fit(np.arange(-19.0, 20.0)[::-1].copy())
    for coverage, ends in ((0.9, [-18, 18]), (0.95, [-19, 19]), (0.91, [-18, 19]), (0.975, [-19, 19])):
        np.testing.assert_array_equal(limits(fitted, coverage)[0], ends)
    # With one gap to leave out, limits are symmetric: the largest absolute score.
    np.testing.assert_array_equal(limits(fit(np.array([-1.0, 0, 1, 2, 3, 4, 5, 6, 7])))[2], [-7, 7])
    # The prediction itself is always inside.
    np.testing.assert_array_equal(limits(fit(np.arange(5.0, 105.0)), 0.5)[:, 0], 0)
    # Labels without a spread around the prediction.
    np.testing.assert_array_equal(limits(fit(np.repeat([0.0, 1.0], [90, 10])))[0], [0, 1])


@given(
    scores=st.lists(st.floats(-100, 100), min_size=20, max_size=60),
    levels=st.tuples(st.floats(0.01, 0.95), st.floats(0.01, 0.95)),
)
def test_more_coverage_never_narrows(scores: list[float], levels: tuple[float, float]) -> None:
    fitted = fit(np.array(scores))
    inner, outer = (limits(fitted, level)[0] for level in sorted(levels))
    assert outer[0] <= inner[0] <= 0 <= inner[1] <= outer[1]


@given(scores=st.lists(st.floats(-50, 50), min_size=30, max_size=60), seed=st.integers(0, 100))
def test_groups_of_many_rows_are_covered(scores: list[float], seed: int) -> None:
    """The factors are shrunk towards 1 by the number of rows; repeated rows leave almost nothing of that."""
    values, rng = np.repeat(scores, 20), np.random.default_rng(seed)
    weights = np.repeat(rng.exponential(size=len(scores)), 20)
    low, high = limits(fit(values, weights))[0] * 1.05
    assert weights[(values >= low) & (values <= high)].sum() >= 0.89 * weights.sum()


@pytest.mark.parametrize("weighted", [False, True])
def test_many_scores_are_kept_as_a_grid(weighted: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    scores = rng.standard_t(3, 50_000)
    weights = rng.exponential(size=50_000) if weighted else None
    small = fit(scores, weights)
    assert small.scores.size <= 2 * module.MAX_POINTS and small.groups[0].weights.sum() == 50_000
    monkeypatch.setattr(module, "MAX_POINTS", 100_000)
    exact = fit(scores, weights)
    for coverage in (0.5, 0.9, 0.99, 0.999):
        found, expected = np.abs(limits(small, coverage)[0]), np.abs(limits(exact, coverage)[0])
        assert weighted or (found >= expected).all()
        np.testing.assert_allclose(found, expected, rtol=0.03)


# -- regions and rare labels -----------------------------------------------------------------------


def test_limits_of_a_region_are_shrunk_by_hand() -> None:
    rng = np.random.default_rng(7)
    at = np.repeat([0.0, 2.0], [200, 15])
    scores = np.repeat([1.0, 6.0], [200, 15]) * rng.normal(size=215)
    found = limits(fit(scores, at=at, mode="region"))
    overall, own = limits(fit(scores))[0], limits(fit(scores[200:]))[0]
    np.testing.assert_allclose(found[1], overall)  # no rows: not its own
    np.testing.assert_allclose(np.abs(found[2]), np.abs(own) ** 0.2 * np.abs(overall) ** 0.8)
    # Fifteen rows are too few for 99%: the largest score stands in for the region's own limits.
    widest, high = np.abs(scores[200:]).max(), limits(fit(scores), 0.99)[0, 1]
    np.testing.assert_allclose(limits(fit(scores, at=at, mode="region"), 0.99)[2, 1], widest**0.2 * high**0.8)


def test_one_odd_row_of_a_small_region_moves_its_width_little() -> None:
    rng = np.random.default_rng(8)
    at, scores, widths = np.repeat([0.0, 2.0], [500, 12]), rng.normal(size=512), []
    for odd in (2.0, 8.0):
        scores[-1] = odd
        widths.append(np.diff(limits(fit(scores, "rare", at=at, mode="region"))[2])[0])
    assert widths[1] < 1.25 * widths[0]


def skewed_rows(n: int, rng: np.random.Generator) -> tuple[Normal, Array]:
    """Labels that a prediction of their mean misses in the upper tail, and bins of such labels."""
    y = np.round(rng.exponential(4.0, n))
    return Normal(torch.full((n,), 4.0, dtype=torch.float64), 16.0), y


def test_the_rarest_labels_are_covered_as_often_as_asked() -> None:
    rng = np.random.default_rng(5)
    bins = LabelBins.from_labels(skewed_rows(40_000, rng)[1])
    shares: dict[str | None, list[float]] = {None: [], "rare": []}
    for _ in range(20):
        held, new = skewed_rows(1000, rng), skewed_rows(1000, rng)
        rare = rarest(new[1], LabelDensity.from_bins(bins))
        for weights, found in shares.items():
            found.append(covered(ConformalIntervals(bins).fit(*held, weights), *new)[rare].mean())
    assert np.mean(shares[None]) < 0.8  # most of the 10% that are left out are among the rarest
    assert 0.88 <= np.mean(shares["rare"]) <= 0.93


def test_labels_are_missed_on_the_side_that_saves_most(monkeypatch: pytest.MonkeyPatch) -> None:
    held, y = skewed_rows(2000, np.random.default_rng(7))
    fitted = ConformalIntervals(LabelBins.from_labels(y))
    chosen = np.diff(limits(fitted.fit(held, y, "rare"))[0])[0]
    widths = []
    for split in SPLITS:
        monkeypatch.setattr(module, "SPLITS", (split,))
        widths.append(np.diff(limits(fitted.fit(held, y, "rare"))[0])[0])
    assert chosen == min(widths) < max(widths)


# -- edges -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["global", "region"])
@pytest.mark.parametrize("n", [1, 2, 8])
def test_too_few_rows_span_the_training_labels_and_the_largest_error(mode: Any, n: int) -> None:
    fitted = ConformalIntervals(BINS, mode).fit(standard(n), np.linspace(1, 2, n))
    assert fitted.too_few(n / (n + 1)) == ""
    lower, upper = fitted.ends(standard(3), 0.9)
    assert (lower == (-1.0 if n == 1 else -2.0)).all() and (upper == 2.0).all()
    missing = f"0.9 intervals take 9 held-out rows, and there are {n}."
    assert fitted.too_few(0.9) == missing and f"No promise: {missing} The ends" in fitted.explain(0.9)


def test_rows_that_were_trained_on_promise_nothing() -> None:
    fitted = fit(np.linspace(-1, 1, 99), held_out=False)
    assert fitted.too_few(0.5) == "0.5 intervals take 1 held-out row, and there are 0."
    np.testing.assert_array_equal(np.concatenate(fitted.ends(standard(1), 0.5)), [-1, 2])


def test_predictions_without_spread_get_the_residuals_own_width() -> None:
    point = Normal(torch.zeros(99, dtype=torch.float64), 0.0)
    ends = ConformalIntervals(BINS).fit(point, np.linspace(-1, 1, 99)).ends(point[:1], 0.9)
    np.testing.assert_allclose(np.concatenate(ends), [-0.918, 0.918], atol=0.01)


def test_infinite_variance_gives_finite_intervals() -> None:
    belief = NIG(torch.zeros(50, dtype=torch.float64), 1.0, 0.8, 1.0)
    assert belief.variance.isinf().all()
    fitted = ConformalIntervals(BINS).fit(belief, np.linspace(-3, 3, 50))
    assert all(end.isfinite().all() for end in fitted.ends(belief, 0.9))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_ends_keep_dtype_shape_and_carry_no_gradient(dtype: torch.dtype) -> None:
    fitted = fit(np.linspace(-1, 1, 99), mode="region")
    new = Normal(torch.zeros(4, 3, dtype=dtype, requires_grad=True), torch.ones(4, 3, dtype=dtype))
    for end in fitted.ends(new, 0.8):
        assert (end.dtype, end.shape, end.requires_grad) == (dtype, (4, 3), False)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"y": [0.0, math.nan, 1.0]}, "row 1 is nan"),
        ({"y": [0.0, 1.0]}, r"labels of shape \(2,\)"),
        ({"distribution": Normal(torch.tensor([0.0, math.nan, 0.0]), 1.0)}, "row 1 is not"),
        ({"distribution": Normal(torch.zeros(3), math.inf)}, r"row 0 is not \(3 bad rows\)"),
        ({"distribution": standard(0), "y": []}, "no held-out rows"),
        ({"mode": "regoin"}, "did you mean 'region'"),
        ({"weights": "rear"}, "did you mean 'rare'"),
        ({"weights": [1.0, 2.0]}, "2 weights for 3 labels"),
        ({"weights": [1.0, -1.0, 1.0]}, "negative"),
        ({"weights": [0.0, 0.0, 0.0]}, "positive"),
        ({"weights": [1.0, math.nan, 0.0]}, "weights must be finite"),
        ({"column": ColumnGroups.of(["a"], "site")}, "need the groups of the rows"),
        ({"scores": np.zeros(2)}, "each score needs a weight in each group and one of 3 cells"),
        ({"scores": np.zeros(1), "cells": np.array([3])}, "one of 3 cells"),
    ],
)
def test_wrong_input_is_named(change: dict[str, Any], message: str) -> None:
    arguments = {"distribution": standard(3), "y": [0.0, 1.0, 2.0], "weights": None, **change}
    held = [arguments.pop(name) for name in ("distribution", "y", "weights")]
    with pytest.raises(ValueError, match=message):
        ConformalIntervals(BINS, **arguments).fit(*held)


@pytest.mark.parametrize("coverage", [0.0, 1.0, 90, math.nan])
def test_coverage_must_be_a_share(coverage: float) -> None:
    with pytest.raises(ValueError, match="between 0 and 1"):
        fit(np.arange(3.0)).ends(standard(3), coverage)


@settings(max_examples=30)
@given(
    kind=st.sampled_from(["normal", "nig", "mixture"]),
    mode=st.sampled_from(["global", "region"]),
    weights=st.sampled_from([None, "rare"]),
    scale=st.floats(1e-9, 1e9),
    shift=st.floats(-10, 10),
)
def test_intervals_follow_shift_and_scale_of_the_labels(
    kind: str, mode: Any, weights: Any, scale: float, shift: float
) -> None:
    rng = np.random.default_rng(11)
    shift, prediction = shift * scale, predicted(kind, 120, rng)
    y = prediction.sample(1, torch.Generator().manual_seed(0))[0]
    bins = LabelBins.from_labels(y, count=8)
    moved = LabelBins(bins.edges * scale + shift, bins.counts)
    one = ConformalIntervals(bins, mode, 25, 10).fit(prediction, y, weights)
    other = ConformalIntervals(moved, mode, 25, 10).fit(
        prediction.rescale(shift, scale), y * scale + shift, weights
    )
    ends = one.ends(prediction, 0.8)
    for end, expected in zip(other.ends(prediction.rescale(shift, scale), 0.8), ends, strict=True):
        torch.testing.assert_close((end - shift) / scale, expected, rtol=1e-6, atol=1e-6)


# -- several networks, groups of a column ----------------------------------------------------------


@given(st.integers(1, 6), st.integers(0, 1000))
def test_the_majority_holds_what_most_intervals_hold(networks: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    ends = np.sort(rng.normal(size=(networks, 2)), axis=1)
    lower, upper = torch.from_numpy(ends).unsqueeze(-1).unbind(1)
    low, high = (end.item() for end in majority(lower, upper, lower[0]))
    y = np.append(rng.normal(size=50), ends)
    most = ((y >= ends[:, :1]) & (y <= ends[:, 1:])).sum(0) > networks / 2
    assert ((y >= low) & (y <= high))[most].all()
    assert low <= ends[0, 0] <= high  # the prediction
    if networks == 1:
        assert (low, high) == tuple(ends[0])


def by_site(mode: Any = "global", weights: Any = None) -> tuple[ConformalIntervals, Array, Array]:
    """Site b is twice as noisy as a, and c has two rows."""
    rng, sites = np.random.default_rng(0), ColumnGroups.of(["a", "b", "c"], "site")
    codes = np.repeat([1, 2, 3], [400, 400, 2])
    y = rng.normal(size=codes.size) * np.array([0, 1, 2, 50])[codes]
    return ConformalIntervals(BINS, mode, column=sites).fit(standard(y.size), y, weights, codes), codes, y


@pytest.mark.parametrize(("mode", "weights"), [("global", None), ("region", "rare")])
def test_each_group_of_a_column_is_covered(mode: Any, weights: Any) -> None:
    fitted, codes, y = by_site(mode, weights)
    inside = covered(fitted, standard(y.size), y, groups=codes)
    assert 0.9 <= inside[codes == 1].mean() <= 0.93 and 0.9 <= inside[codes == 2].mean() <= 0.93
    # The overall limits are too wide for a.
    assert covered(fitted, standard(y.size), y)[codes == 1].mean() > 0.97


def test_limits_of_a_column_are_shrunk_by_hand() -> None:
    """Two rows of c have scores of 50 and a share of 4 / 904, which keeps the overall limits nearly."""
    fitted, codes, y = by_site()
    _, upper = fitted.ends(standard(4), 0.9, groups=np.array([0, 1, 2, 3]))
    overall = fitted.ends(standard(1), 0.9)[1].item()
    far = max(y[codes == 3].max(), 0.1 * overall)
    assert upper[0].item() == pytest.approx(overall)  # a value without a group
    assert upper[3].item() == pytest.approx(overall * (far / overall) ** (4 / 904))
    assert upper[1] < upper[0] < upper[2]


# -- in words --------------------------------------------------------------------------------------


def test_plain_intervals_in_words() -> None:
    assert fit(np.arange(-19.0, 20.0)).explain(0.9).splitlines() == [
        "Conformal intervals at 0.9 from 39 held-out rows, the same for all rows.",
        "  prediction -18 to +18 spreads",
        "Promise: at least 0.9 of new labels, on average over all rows, if new rows come from the same "
        "distribution as the held-out rows.",
        "No method can promise coverage given the true label.",
    ]


def test_widened_intervals_in_words() -> None:
    rng = np.random.default_rng(12)
    at = np.repeat([0.0, 1.0, 2.0], [320, 68, 12])
    text = fit(rng.normal(size=400), "rare", at=at, mode="region").explain(0.9)
    assert "from 400 held-out rows, by predicted region" in text and "no exact promise" in text
    assert "(320 held-out rows, 99% its own limits, the rest the overall ones)" in text
    assert "(12 held-out rows, 14% its own limits" in text
    held, y = skewed_rows(200, rng)
    fitted = ConformalIntervals(LabelBins.from_labels(y)).fit(held, y, "rare")
    assert "Widened until 0.9 of 30 held-out rows with the rarest labels are inside." in fitted.explain(0.9)
    few = (fitted.bins.counts[fitted.bins.index(y)] < 20).sum()
    assert f"Widened until 0.875 of {few} held-out rows with few-shot labels" in fitted.explain(0.9)
    assert "few-shot" not in fitted.explain(0.2)  # all of them may be missed
    text = by_site()[0].explain(0.9)
    assert "By the column site" in text and "(400 held-out rows)" in text and "Promise" not in text
    assert "any other value: not" in text
