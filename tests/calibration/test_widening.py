"""Factors that cover a group of rows, by hand and as a property."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tailwise.calibration.score_table import MAX_POINTS
from tailwise.calibration.widening import Group

ONE = np.array([[-1.0, 1.0]] * 3)


def group(scores: np.ndarray, slack: float = 1.0) -> Group:
    return Group.of("rare", scores, np.zeros(scores.size, np.int64), np.ones(scores.size), slack)


def test_factors_by_hand() -> None:
    # Of 100 scores, 10% less one row for the finite sample may be missed: 9.1, so nine.
    above = group(np.append(np.zeros(80), np.arange(2.0, 22.0)))
    np.testing.assert_allclose(above.factors(ONE, 0.9), [1.0, 12.0])
    np.testing.assert_allclose(group(-above.scores).factors(ONE, 0.9), [12.0, 1.0])
    # Both sides miss ten: each may miss four.
    both = group(np.concatenate([-np.arange(2.0, 12.0), np.zeros(80), np.arange(2.0, 12.0)]))
    np.testing.assert_allclose(both.factors(ONE, 0.9), [7.0, 7.0])
    # Rows that may be missed 1.5 times as often, and rows that are inside already.
    np.testing.assert_allclose(group(above.scores, 1.5).factors(ONE, 0.9), [1.0, 7.0])
    np.testing.assert_allclose(above.factors(30 * ONE, 0.9), [1.0, 1.0])


def test_each_region_has_limits_of_its_own() -> None:
    scores, regions = np.array([3.0, 3.0]), np.array([0, 2])
    rows = Group.of("rare", scores, regions, np.ones(2))
    limits = np.array([[-1.0, 1.0], [-1.0, 1.0], [-1.0, 6.0]])
    assert rows.factors(limits, 0.4)[1] == 3.0  # none may be missed; the second is inside already


@given(
    scores=st.lists(st.floats(-50, 50), min_size=20, max_size=60),
    coverage=st.floats(0.1, 0.85),
    seed=st.integers(0, 100),
)
def test_widened_limits_cover_the_weight(scores: list[float], coverage: float, seed: int) -> None:
    rng, values = np.random.default_rng(seed), np.array(scores)
    rows = Group.of("given", values, rng.integers(0, 3, values.size), rng.exponential(size=values.size))
    limits = ONE * rng.exponential(size=(3, 2))
    low, high = (limits * rows.factors(limits, coverage))[rows.regions].T * (1 + 1e-12)
    inside = rows.weights[(rows.scores >= low) & (rows.scores <= high)].sum()
    assert inside >= coverage * rows.weights.sum() - 1e-9


def test_many_scores_are_kept_as_a_grid_that_widens_a_little_more() -> None:
    rng = np.random.default_rng(0)
    scores = rng.standard_t(3, 50_000)
    small = group(scores)
    assert small.scores.size <= MAX_POINTS and small.weights.sum() == 50_000 and small.effective == 50_000
    exact = Group("rare", scores, np.zeros(scores.size, np.int64), np.ones(scores.size), 50_000.0)
    found, wanted = small.factors(ONE, 0.9), exact.factors(ONE, 0.9)
    assert (found >= wanted).all()
    np.testing.assert_allclose(found, wanted, rtol=0.02)
