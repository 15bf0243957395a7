"""Conformal intervals: coverage by simulation, limits by hand, and what must not break them."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from tailwise.calibration.column_groups import ColumnGroups
from tailwise.calibration.conformal import (
    SPLITS,
    fit_conformal,
    majority,
)
from tailwise.calibration.scaling import balanced_weights
from tailwise.calibration.score_table import ScoreTable
from tailwise.distributions.members import NIG, Normal
from tailwise.labels.bins import LabelBins
from tailwise.labels.prior import LabelDensity, rarest
from tests.prediction_samples import predicted

BINS = LabelBins.from_labels(np.repeat([0, 1, 2], [300, 50, 5]))  # many, medium, few


def standard(n, **kwargs):
    return Normal(torch.zeros(n, dtype=torch.float64), 1.0, **kwargs)


def labels_of(distribution, rng):
    return distribution.sample(1, torch.Generator().manual_seed(int(rng.integers(2**31))))[0]


def covered(intervals, distribution, y, coverage=0.9):
    lower, upper = intervals.interval(distribution, coverage)
    return ((y >= lower) & (y <= upper)).numpy()


# --- the score ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("n", "coverage"),
    [(9, 0.9), (10, 0.9), (19, 0.9), (24, 0.9), (60, 0.9), (151, 0.9), (30, 0.8), (77, 0.8), (151, 0.5)],
)
def test_mean_coverage_is_that_of_order_statistics(n, coverage):
    # Averaged over calibration sets, the coverage is exactly ceil((n + 1) coverage) / (n + 1), where
    # the limits are not moved to let the prediction in, which is rare at these levels.
    rng = np.random.default_rng(n)
    limits = [ScoreTable.from_scores(rng.normal(size=n)).limits(coverage) for _ in range(4000)]
    found = np.diff(stats.norm.cdf(limits))
    expected = math.ceil((n + 1) * coverage - 1e-9) / (n + 1)
    assert coverage <= expected <= coverage + 1 / (n + 1)
    assert np.mean(found) == pytest.approx(expected, abs=4 * np.std(found) / math.sqrt(4000) + 1e-3)
    k = math.ceil((n + 1) * coverage - 1e-9)
    assert np.std(found) == pytest.approx(stats.beta(k, n + 1 - k).std(), rel=0.1)


@pytest.mark.parametrize("kind", ["normal", "nig", "mixture"])
@pytest.mark.parametrize("wrong", [0.3, 1.0, 4.0])
def test_coverage_holds_for_every_distribution_whatever_its_calibration(kind, wrong):
    rng = np.random.default_rng(4)
    n, found = 49, []
    for _ in range(200):
        new = predicted(kind, n + 200, rng)
        y = new.mean + wrong * (labels_of(new, rng) - new.mean)
        intervals = fit_conformal(new[:n], y[:n], BINS)
        found.append(covered(intervals, new[n:], y[n:]).mean())
    error = np.std(found) / math.sqrt(len(found))
    assert 0.9 - 4 * error <= np.mean(found) <= 0.9 + 1 / (n + 1) + 4 * error


def test_coverage_holds_under_heavy_tails_and_ends_stay_finite():
    rng = np.random.default_rng(5)
    found = []
    for _ in range(300):
        y = torch.from_numpy(rng.standard_cauchy(99 + 300) ** 3)
        intervals = fit_conformal(standard(99), y[:99], BINS)
        found.append(covered(intervals, standard(300), y[99:]).mean())
        assert all(math.isfinite(limit) for limit in intervals.limits(0.9)["many"])
    assert np.mean(found) >= 0.9 - 4 * np.std(found) / math.sqrt(300)


def test_limits_by_region_follow_what_is_wrong_in_each():
    # Each predicted region is wrong in its own way. With many rows its own limits rule; the 14 rows of the
    # rarest are worth 18%, so that its intervals lie between its own and the overall ones.
    rng = np.random.default_rng(6)
    at = np.repeat([0.0, 1.0, 2.0], [400, 150, 14])
    wrong, bias = np.repeat([0.3, 1.0, 5.0], [400, 150, 14]), np.repeat([0.0, 1.0, -3.0], [400, 150, 14])
    prediction = Normal(torch.from_numpy(at), 1.0)
    own, shared = [], []
    for _ in range(200):
        y, new = (torch.from_numpy(at + bias + wrong * rng.normal(size=at.size)) for _ in range(2))
        by_region = fit_conformal(prediction, y, BINS, mode="region")
        own.append([covered(by_region, prediction, new)[at == a].mean() for a in (0, 1, 2)])
        whole = fit_conformal(prediction, y, BINS)
        shared.append([covered(whole, prediction, new)[at == a].mean() for a in (0, 1, 2)])
    own, shared = np.mean(own, axis=0), np.mean(shared, axis=0)
    np.testing.assert_allclose(own[:2], 0.9, atol=0.02)
    assert shared[0] > 0.95 and shared[1] < 0.87  # what one pair of limits for all gets wrong
    assert shared[2] + 0.04 < own[2] < 0.9  # 14 rows do not decide alone


def test_limits_of_a_region_are_shrunk_by_hand():
    rng = np.random.default_rng(7)
    at = np.repeat([0.0, 2.0], [200, 15])
    y = torch.from_numpy(at + np.repeat([1.0, 6.0], [200, 15]) * rng.normal(size=215))
    intervals = fit_conformal(Normal(torch.from_numpy(at), 1.0), y, BINS, mode="region")
    assert intervals.share_of_own("few") == pytest.approx(15**2 / (15**2 + 30**2))
    assert intervals.share_of_own("medium") == 0
    overall, own = (np.array(intervals.tables[name].promised(0.9)) for name in ("all", "few"))
    limits = intervals.limits(0.9)
    assert limits["medium"] == tuple(overall)
    np.testing.assert_allclose(np.abs(limits["few"]), np.abs(own) ** 0.2 * np.abs(overall) ** 0.8)
    # Fifteen rows are too few for 99%: the largest score stands in for the region's own limits.
    widest = intervals.tables["few"].widest
    expected = widest**0.2 * intervals.tables["all"].promised(0.99)[1] ** 0.8
    assert intervals.limits(0.99)["few"][1] == pytest.approx(expected)


def test_one_odd_row_of_a_small_region_moves_its_width_little():
    rng = np.random.default_rng(8)
    at = np.repeat([0.0, 2.0], [500, 12])
    y = at + rng.normal(size=512)
    widths = []
    for odd in (2.0, 8.0):
        y[-1] = 2.0 + odd
        fitted = fit_conformal(Normal(torch.from_numpy(at), 1.0), y, BINS, mode="region", weights="rare")
        widths.append(np.diff(fitted.limits(0.9)["few"])[0])
    assert widths[1] < 1.25 * widths[0]


def test_balanced_weights_cover_rare_labels_that_plain_intervals_miss():
    # Predictions shrink towards the head, as trained nets do: rare labels lie far above them.
    rng = np.random.default_rng(9)
    index = rng.choice(10, p=0.5 ** np.arange(1, 11) / (1 - 0.5**10), size=6000)
    y = torch.from_numpy(index + rng.uniform(-0.5, 0.5, 6000))
    bins = LabelBins.from_labels(y[:2000], edges=np.arange(11) - 0.5)
    prediction = Normal(0.7 * y + torch.from_numpy(rng.normal(size=6000)) * 0.5, 1.0)
    rare = (y > 5)[4000:].numpy()
    rates, overall = {}, {}
    for weights in (None, "balanced"):
        intervals = fit_conformal(prediction[2000:4000], y[2000:4000], bins, weights=weights)
        held = covered(intervals, prediction[4000:], y[4000:])
        rates[weights], overall[weights] = held[rare].mean(), held.mean()
    assert rates[None] < 0.6
    assert rates["balanced"] > 0.8
    assert overall["balanced"] >= overall[None] > 0.88


def test_balanced_is_short_for_the_weights_of_calibration():
    rng = np.random.default_rng(10)
    y = rng.choice([0.0, 1.0, 2.0], p=[0.8, 0.15, 0.05], size=300)
    prediction = Normal(torch.from_numpy(rng.normal(size=300)), 1.0)
    named = fit_conformal(prediction, y, BINS, weights="balanced")
    given_ = fit_conformal(prediction, y, BINS, weights=balanced_weights(y, BINS))
    assert (named.weighting, given_.weighting) == ("balanced", "given")
    assert named.limits(0.9) == given_.limits(0.9)


# --- edges -------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["global", "region"])
@pytest.mark.parametrize("n", [1, 2, 8])
def test_too_few_rows_are_infinite_unless_finite_is_asked_for(mode, n):
    intervals = fit_conformal(standard(n), np.linspace(1, 2, n), BINS, mode=mode)
    assert intervals.reach == n / (n + 1)
    lower, upper = intervals.interval(standard(3), 0.9)
    assert (lower == -math.inf).all() and (upper == math.inf).all()
    lower, upper = intervals.interval(standard(3), 0.9, finite=True)
    # The largest error seen is 1 or 2, and the training labels lie between 0 and 2.
    assert (lower == (-1.0 if n == 1 else -2.0)).all() and (upper == 2.0).all()
    text = intervals.explain(0.9, finite=True)
    assert f"No promise: 0.9 intervals take 9 held-out rows, and there are {n}." in text
    assert "the smallest and the largest training label" in text
    assert "The ends are infinite." in intervals.explain(0.9)


def test_rows_that_were_trained_on_promise_nothing():
    intervals = fit_conformal(standard(99), np.linspace(-1, 1, 99), BINS, held_out=False)
    assert intervals.reach == 0
    assert intervals.interval(standard(1), 0.5)[1].isinf().all()
    low, high = intervals.interval(standard(1), 0.5, finite=True)
    assert (low.item(), high.item()) == (-1.0, 2.0)


def test_what_n_rows_can_promise_is_finite():
    intervals = fit_conformal(standard(9), np.arange(9.0), BINS)
    assert intervals.reach == 0.9
    assert intervals.limits(0.9)["few"] == (-8.0, 8.0)


def test_tied_scores_cover_at_least_as_much():
    y = np.repeat([0.0, 1.0], [90, 10])
    lower, upper = fit_conformal(standard(100), y, BINS).interval(standard(1), 0.9)
    assert (lower.item(), upper.item()) == (0.0, 1.0)


def test_predictions_without_spread_get_the_residuals_own_width():
    y = np.linspace(-1, 1, 99)
    point = Normal(torch.zeros(99, dtype=torch.float64), 0.0)
    lower, upper = fit_conformal(point, y, BINS).interval(point[:1], 0.9)
    assert lower.item() == pytest.approx(-0.918, abs=0.01)
    assert upper.item() == pytest.approx(0.918, abs=0.01)


def test_infinite_variance_gives_finite_intervals():
    belief = NIG(torch.zeros(50, dtype=torch.float64), 1.0, 0.8, 1.0)
    assert belief.variance.isinf().all()
    lower, upper = fit_conformal(belief, np.linspace(-3, 3, 50), BINS).interval(belief, 0.9)
    assert lower.isfinite().all() and upper.isfinite().all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_intervals_keep_dtype_shape_and_carry_no_gradient(dtype):
    intervals = fit_conformal(standard(99), np.linspace(-1, 1, 99), BINS, mode="region")
    new = Normal(torch.zeros(4, 3, dtype=dtype, requires_grad=True), torch.ones(4, 3, dtype=dtype))
    for end in intervals.interval(new, 0.8):
        assert (end.dtype, end.shape, end.requires_grad) == (dtype, (4, 3), False)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"y": [0.0, math.nan, 1.0]}, "row 1 is nan"),
        ({"y": [0.0, 1.0, -math.inf]}, "row 2 is -inf"),
        ({"y": [0.0, 1.0]}, r"labels of shape \(2,\)"),
        ({"distribution": Normal(torch.tensor([0.0, math.nan, 0.0]), 1.0)}, "row 1 is not"),
        ({"distribution": Normal(torch.zeros(3), math.inf)}, r"row 0 is not \(3 bad rows\)"),
        ({"distribution": standard(0), "y": []}, "no held-out rows"),
        ({"mode": "regoin"}, "did you mean 'region'"),
        ({"weights": "balance"}, "did you mean 'balanced'"),
        ({"weights": [1.0, 2.0]}, "2 weights for 3 labels"),
        ({"weights": [1.0, -1.0, 1.0]}, "negative"),
        ({"weights": [0.0, 0.0, 0.0]}, "positive"),
        ({"weights": [1.0, math.nan, 0.0]}, "weights must be finite"),
        ({"min_rows": 0}, "min_rows"),
        ({"column": ColumnGroups.of(["a"], "site")}, "column needs column_codes"),
    ],
)
def test_wrong_input_is_named(change, message):
    arguments = {"distribution": standard(3), "y": [0.0, 1.0, 2.0], "bins": BINS}
    with pytest.raises(ValueError, match=message):
        fit_conformal(**(arguments | change))


@pytest.mark.parametrize("coverage", [0.0, 1.0, -0.1, 90, math.nan])
def test_coverage_must_be_a_share(coverage):
    intervals = fit_conformal(standard(3), [0.0, 1.0, 2.0], BINS)
    with pytest.raises(ValueError, match="between 0 and 1"):
        intervals.interval(standard(3), coverage)


def test_an_unknown_region_is_named():
    with pytest.raises(ValueError, match="did you mean 'few'"):
        fit_conformal(standard(3), [0.0, 1.0, 2.0], BINS).share_of_own("fwe")


@settings(max_examples=30)
@given(
    kind=st.sampled_from(["normal", "nig", "mixture"]),
    mode=st.sampled_from(["global", "region"]),
    weights=st.sampled_from([None, "balanced"]),
    scale=st.floats(1e-9, 1e9),
    shift=st.floats(-10, 10),
)
def test_intervals_follow_shift_and_scale_of_the_labels(kind, mode, weights, scale, shift):
    rng = np.random.default_rng(11)
    shift = shift * scale
    prediction = predicted(kind, 120, rng)
    y = labels_of(prediction, rng)
    bins = LabelBins.from_labels(y, count=8)
    moved = LabelBins(bins.edges * scale + shift, bins.counts)
    options = {"mode": mode, "weights": weights, "many": 25, "few": 10, "min_rows": 15}
    one = fit_conformal(prediction, y, bins, **options)
    other = fit_conformal(prediction.rescale(shift, scale), y * scale + shift, moved, **options)
    ends = one.interval(prediction, 0.8)
    for end, expected in zip(other.interval(prediction.rescale(shift, scale), 0.8), ends, strict=True):
        torch.testing.assert_close((end - shift) / scale, expected, rtol=1e-6, atol=1e-6)


# --- the rarest labels -------------------------------------------------------------------------


def skewed_rows(n, rng):
    """Labels that a prediction of their mean misses in the upper tail, and bins of such labels."""
    y = np.round(rng.exponential(4.0, n))
    return Normal(torch.full((n,), 4.0, dtype=torch.float64), 16.0), y


def test_the_rarest_labels_are_covered_as_often_as_asked():
    rng = np.random.default_rng(5)
    bins = LabelBins.from_labels(skewed_rows(40_000, rng)[1])
    density = LabelDensity.from_bins(bins)
    plain, widened, balanced = [], [], []
    for _ in range(20):
        held, new = skewed_rows(1000, rng), skewed_rows(1000, rng)
        rare = rarest(new[1], density)
        for found, weights in ((plain, None), (widened, "rare"), (balanced, "balanced")):
            low, high = fit_conformal(*held, bins, weights=weights).interval(new[0], 0.9)
            found.append((new[1] >= low.numpy())[rare].mean() - (new[1] > high.numpy())[rare].mean())
    assert np.mean(plain) < 0.8  # 10% of all labels are left out, and most of those are among the rarest
    assert 0.88 <= np.mean(widened) <= 0.93
    assert np.mean(balanced) > np.mean(widened)


def test_intervals_for_the_rarest_labels_say_so():
    held, y = skewed_rows(200, np.random.default_rng(6))
    fitted = fit_conformal(held, y, LabelBins.from_labels(y), weights="rare")
    assert "Widened until 0.9 of 30 held-out rows with the rarest labels are inside." in fitted.explain(0.9)
    few = fitted.bins.counts[fitted.bins.index(y)] < 20
    text = f"Widened until 0.875 of {few.sum()} held-out rows with few-shot labels are inside."
    assert text in fitted.explain(0.9)
    assert "few-shot" not in fitted.explain(0.2)  # all of them may be missed


def test_labels_are_missed_on_the_side_that_saves_most():
    held, y = skewed_rows(2000, np.random.default_rng(7))
    fitted = fit_conformal(held, y, LabelBins.from_labels(y), weights="rare")
    widths = [np.diff(replace(fitted, split=split).limits(0.9)["many"])[0] for split in SPLITS]
    assert np.diff(fitted.limits(0.9)["many"])[0] == min(widths) < max(widths)


# --- several networks ----------------------------------------------------------------------------


@given(st.integers(1, 6), st.integers(0, 1000))
def test_the_majority_holds_what_most_intervals_hold(networks, seed):
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


SITES = ColumnGroups.of(["a", "b", "c"], "site")


def by_site(**kwargs):
    """Site b is twice as noisy as a, and c has two rows."""
    rng = np.random.default_rng(0)
    codes = np.repeat([1, 2, 3], [400, 400, 2])
    y = rng.normal(size=codes.size) * np.array([0, 1, 2, 50])[codes]
    return fit_conformal(standard(y.size), y, BINS, column=SITES, column_codes=codes, **kwargs), codes, y


@pytest.mark.parametrize(("mode", "weights"), [("global", None), ("region", "rare")])
def test_each_group_of_a_column_is_covered(mode, weights):
    fitted, codes, y = by_site(mode=mode, weights=weights)
    lower, upper = fitted.interval(standard(y.size), 0.9, groups=codes)
    inside = ((y >= lower.numpy()) & (y <= upper.numpy())).astype(float)
    assert 0.9 <= inside[codes == 1].mean() <= 0.93 and 0.9 <= inside[codes == 2].mean() <= 0.93
    plain, top = (end.numpy() for end in fitted.interval(standard(y.size), 0.9))
    assert ((y >= plain) & (y <= top))[codes == 1].mean() > 0.97  # the overall limits are too wide for a


def test_limits_of_a_column_are_shrunk_by_hand():
    """Two rows of c have scores of 50 and a share of 4 / 904, which keeps the overall limits nearly."""
    fitted, codes, y = by_site()
    _, upper = fitted.interval(standard(4), 0.9, groups=np.array([0, 1, 2, 3]))
    _, overall = fitted.limits(0.9)["many"]
    far = max(y[codes == 3].max(), 0.1 * overall)
    assert upper[0].item() == pytest.approx(overall)  # a value without a group
    assert upper[3].item() == pytest.approx(overall * (far / overall) ** (4 / 904))
    assert upper[1] < upper[0] < upper[2]


def test_explain_names_the_groups_of_a_column():
    text = by_site()[0].explain(0.9)
    assert "By the column site" in text and "(400 held-out rows)" in text and "Promise" not in text
    assert "any other value: not" in text


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda i: {"column": ColumnGroups()}, "must be those of 3 cells"),
        (lambda i: {"mean_sides": np.ones((3, 2))}, "must be those of 12 cells"),
        (lambda i: {"groups": [replace(i.groups[0], regions=i.groups[0].regions + 99)]}, "those of 12 cells"),
        (lambda i: {"tables": {"rare": i.tables["all"]}}, "unknown table of scores 'rare'"),
    ],
)
def test_parts_that_do_not_fit_one_another_are_refused(change, message):
    fitted = by_site()[0]
    with pytest.raises(ValueError, match=message):
        replace(fitted, **change(fitted))
