"""Limits from sorted scores: by hand, and what must hold for any scores and weights."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailwise.calibration.score_table import MAX_POINTS, ScoreTable


def test_golden_limits():
    # 39 scores -19..19 leave 40 gaps. 90% keeps 36 of them: 2 left out below, 2 above.
    table = ScoreTable.from_scores(np.arange(-19.0, 20.0)[::-1].copy())
    assert table.limits(0.9) == (-18.0, 18.0)
    assert table.limits(0.95) == (-19.0, 19.0)  # keeps 38: one left out on either side
    assert table.limits(0.91) == (-18.0, 19.0)  # keeps 37: the odd one is left out below
    assert table.limits(0.975) == (-19.0, 19.0)  # keeps 39: the largest absolute score
    assert table.limits(0.976) == (-math.inf, math.inf)


def test_limits_lean_to_the_side_on_which_labels_run_off():
    skewed = ScoreTable.from_scores(np.random.default_rng(0).exponential(size=2000) - 1)
    lower, upper = skewed.limits(0.9)
    assert lower == pytest.approx(math.log(1 / 0.95) - 1, abs=0.05)
    assert upper == pytest.approx(math.log(20) - 1, abs=0.3)


def test_with_one_gap_to_leave_out_limits_are_symmetric():
    table = ScoreTable.from_scores(np.array([-1.0, 0.0, 1, 2, 3, 4, 5, 6, 7]))
    assert table.limits(0.9) == (-7.0, 7.0)
    assert table.limits(0.91) == (-math.inf, math.inf)


def test_the_prediction_always_lies_within():
    assert ScoreTable.from_scores(np.arange(5.0, 105.0)).limits(0.5)[0] == 0.0
    assert ScoreTable.from_scores(-np.arange(5.0, 105.0)).limits(0.5)[1] == 0.0


def test_equal_weights_give_what_no_weights_give():
    scores = np.random.default_rng(1).normal(size=399)
    plain, weighted = ScoreTable.from_scores(scores), ScoreTable.from_scores(scores, np.full(399, 3.0))
    assert weighted.effective == pytest.approx(399)
    for coverage in (0.5, 0.8, 0.9, 0.95, 0.99):
        assert weighted.limits(coverage) == plain.limits(coverage)


def test_golden_weighted_limits():
    # 98 equal rows and one, the largest score, worth 42 of them: 5% of the weight above needs it.
    scores, weights = np.arange(99.0), np.array([1.0] * 98 + [42.0])
    assert ScoreTable.from_scores(scores).limits(0.9)[1] == 94.0
    table = ScoreTable.from_scores(scores, weights)
    assert table.effective == pytest.approx(140**2 / (98 + 42**2))
    assert table.limits(0.9)[1] == 98.0


def test_weights_only_widen():
    rng = np.random.default_rng(2)
    scores, weights = rng.normal(size=300), rng.exponential(size=300)
    plain, weighted = ScoreTable.from_scores(scores), ScoreTable.from_scores(scores, weights)
    inner = ScoreTable.from_scores(scores, np.where(abs(scores) < 1, 1.0, 0.0))
    for coverage in np.linspace(0.05, 0.99, 30):
        lower, upper = plain.limits(coverage)
        for table in (weighted, inner):
            assert table.limits(coverage)[0] <= lower
            assert table.limits(coverage)[1] >= upper


@given(
    scores=st.lists(st.floats(-100, 100), min_size=1, max_size=60),
    weighted=st.booleans(),
    levels=st.tuples(st.floats(0.01, 0.99), st.floats(0.01, 0.99)),
)
def test_more_coverage_never_narrows(scores, weighted, levels):
    weights = np.arange(1.0, len(scores) + 1) if weighted else None
    table = ScoreTable.from_scores(np.array(scores), weights)
    inner, outer = (table.limits(level) for level in sorted(levels))
    assert outer[0] <= inner[0] <= 0 <= inner[1] <= outer[1]


@pytest.mark.parametrize("weighted", [False, True])
def test_many_scores_are_kept_as_a_grid_that_covers_a_little_more(weighted):
    rng = np.random.default_rng(3)
    scores = rng.standard_t(3, size=200_000)
    weights = rng.exponential(size=scores.size) if weighted else None
    small = ScoreTable.from_scores(scores, weights)
    exact = ScoreTable.from_scores(scores, weights, points=scores.size)
    assert small.values.size <= MAX_POINTS < exact.values.size
    for coverage in (0.01, 0.5, 0.8, 0.9, 0.99, 0.999, 0.99999):
        (lower, upper), (least, most) = small.limits(coverage), exact.limits(coverage)
        assert lower <= least
        assert upper >= most
        held = ((scores >= lower) & (scores <= upper)).mean() - ((scores >= least) & (scores <= most)).mean()
        assert held <= 0.05 * (1 - coverage) + 1e-5


def test_weight_on_one_side_may_leave_out_all_of_the_rest_there():
    # 100 rows from 1 to 100; only the last 20 have weight. 90% of their weight lies below 98, to which the
    # finite-sample correction adds one row. Half of the 10% on each side would need the 99th.
    scores, weights = np.arange(1.0, 101.0), np.repeat([0.0, 1.0], [80, 20])
    table = ScoreTable.from_scores(scores, weights)
    assert table.limits(0.9, equal_tails=False)[1] == 99.0
    assert table.limits(0.9, equal_tails=True)[1] == 100.0


def test_weights_that_plain_limits_cover_change_nothing():
    scores = np.linspace(-10, 10, 199)
    inner = ScoreTable.from_scores(scores, np.where(abs(scores) < 5, 1.0, 0.0))
    assert inner.limits(0.9, equal_tails=False) == ScoreTable.from_scores(scores).limits(0.9)


@given(
    scores=st.lists(st.floats(-100, 100), min_size=20, max_size=60),
    level=st.floats(0.05, 0.9),
    seed=st.integers(0, 100),
)
def test_widened_limits_cover_the_weight(scores, level, seed):
    values, weights = np.array(scores), np.random.default_rng(seed).exponential(size=len(scores))
    table = ScoreTable.from_scores(values, weights)
    plain = ScoreTable.from_scores(values).limits(level)
    lower, upper = table.limits(level, equal_tails=False)
    assert lower <= plain[0] <= plain[1] <= upper
    inside = (values >= lower) & (values <= upper)
    assert weights[inside].sum() >= min(level, 1.0) * weights.sum() - 1e-9 or inside.all()
