"""Two models, region by region."""

import math

import numpy as np
import pytest
from scipy.stats import t, ttest_rel

from tailwise.report.lineup import (
    Contrast,
    Difference,
    Lineup,
    Outcome,
    Standing,
    mean_difference,
    rmse_difference,
    standings_of,
)
from tests.report.made import Table

LOWER, HIGHER = Difference(1.0, 2.0, 0.5, 50), Difference(2.0, 1.0, 0.5, 50)
SLIGHTLY_LOWER, SLIGHTLY_HIGHER = Difference(1.0, 1.1, 0.5, 50), Difference(1.1, 1.0, 0.5, 50)


def outcome(mae: Difference, rmse: Difference) -> Outcome:
    return Contrast("few", mae, rmse, LOWER).outcome


def test_a_region_is_better_only_if_no_measure_rises() -> None:
    assert outcome(LOWER, LOWER) == outcome(LOWER, SLIGHTLY_LOWER) == "better"
    assert outcome(SLIGHTLY_LOWER, LOWER) == "better"
    assert outcome(LOWER, SLIGHTLY_HIGHER) == outcome(LOWER, HIGHER) == "mixed"
    assert outcome(HIGHER, HIGHER) == outcome(HIGHER, SLIGHTLY_HIGHER) == "worse"
    assert outcome(HIGHER, SLIGHTLY_LOWER) == "mixed"
    assert outcome(SLIGHTLY_LOWER, SLIGHTLY_HIGHER) == "undecided"


def standing(rival: str, **outcomes: Difference) -> Standing:
    return Standing(
        rival, tuple(Contrast(r, d, d, d) for r, d in outcomes.items()), Contrast("all", *[LOWER] * 3)
    )


def test_a_standing_is_what_all_regions_say_together() -> None:
    near = Difference(1.0, 1.01, 0.02, 50)
    assert standing("a", many=SLIGHTLY_LOWER, few=LOWER).ahead
    for few in (HIGHER, SLIGHTLY_LOWER):
        assert not standing("a", many=SLIGHTLY_LOWER, few=few).ahead
    assert not standing("a", many=HIGHER, few=LOWER).ahead and not standing("a").ahead
    assert standing("a", many=near, few=near).close
    assert not standing("a", many=near, few=SLIGHTLY_LOWER).close and not standing("a").close
    assert standing("a", many=HIGHER, few=LOWER).regions("better") == ["few"]


def test_regions_with_few_rows_are_left_out() -> None:
    table = Table.of(100, 9, 30)
    lineup = Lineup(table.model(), {"base": table.model(seed=3, title="b")})
    (found,) = standings_of(lineup, min_rows=10)
    assert [c.region for c in found.contrasts] == ["many", "few"] and found.overall.mae.n == 139
    assert found.intervals("worse") == []


def test_pairs_of_errors_are_compared_row_by_row() -> None:
    ours, theirs = np.array([1.0, 2.0, 3.0]), np.array([2.0, 3.0, 5.0])
    change = mean_difference(ours, theirs, confidence=0.95)
    assert (change.ours, change.n, change.value) == (2.0, 3, pytest.approx(-4 / 3))
    textbook = ttest_rel(ours, theirs)
    assert change.value + change.half == pytest.approx(textbook.confidence_interval(0.95).high)
    assert change.outcome == "undecided" and textbook.pvalue > 0.05  # three rows are few
    assert mean_difference(np.tile(ours, 9), np.tile(theirs, 9)).outcome == "better"
    one = mean_difference(ours[:1], theirs[:1])
    assert one.value == -1 and one.outcome == "undecided"


def test_root_mean_squares_are_compared_as_a_bootstrap_over_rows_would() -> None:
    rng = np.random.default_rng(0)
    ours, theirs = np.abs(rng.normal(0, 1, 400)), np.abs(rng.normal(0, 1.2, 400))
    found = rmse_difference(ours, theirs, confidence=0.99)
    assert found.ours == pytest.approx(math.sqrt((ours**2).mean()))
    drawn = rng.integers(0, 400, size=(4000, 400))
    spread = (np.sqrt((ours[drawn] ** 2).mean(1)) - np.sqrt((theirs[drawn] ** 2).mean(1))).std()
    assert found.half == pytest.approx(t.ppf(0.995, 399) * spread, rel=0.05)
    assert found.outcome == "better"
    assert found.bound == pytest.approx((abs(found.value) + found.half) / found.theirs)
    exact = rmse_difference(np.zeros(3), np.zeros(3))
    assert (exact.value, exact.half, exact.bound) == (0, 0, math.inf)
    assert rmse_difference(ours[:0], theirs[:0]).n == 0
