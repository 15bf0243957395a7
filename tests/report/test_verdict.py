"""A verdict says what the test rows show, and no more: generated tables with known answers."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
from scipy.stats import t, ttest_rel

from tailwise.labels.bins import LabelBins
from tailwise.report.scores import Lineup, Scores
from tailwise.report.verdict import (
    Contrast,
    Coverage,
    Difference,
    Outcome,
    Standing,
    judge,
    mean_difference,
    rmse_difference,
    standings_of,
    tail_of,
    untested,
)
from tests.report.conftest import Floats, Table, dialled, lined_up, said, scored, text_of

ALL = ("many", "medium", "few")
ROWS = 3000


# -- seven kinds of tables ----------------------------------------------------------------------
# Each has labels of a known law; predictions and intervals follow from that law, or from one that is wrong
# in a known way. Half of the rows give the constant, the other half are the test rows.


def maker(y: Floats, train: Floats) -> Callable[..., Scores]:
    return partial(scored, y, train=train)


def halves(y: Floats, *columns: Floats) -> tuple[Floats, ...]:
    """Training labels, then test labels and columns of the test rows."""
    half = len(y) // 2
    return (y[:half], y[half:], *(column[half:] for column in columns))


def prices(rng: Any) -> Lineup:
    """Errors grow with the price, and our intervals know it; the trees have one width."""
    m, e = rng.normal(size=(2, 2 * ROWS))
    train, y, m, jitter = halves(np.exp(m + 0.2 * e), m, rng.normal(size=2 * ROWS))
    model = maker(y, train)
    ours, trees = np.exp(m), np.exp(m + 0.3 * jitter)
    return lined_up(model(ours, ends=(np.exp(m - 0.33), np.exp(m + 0.33))), model(trees, 1.1))


def votes(rng: Any) -> Lineup:
    """59% zeros and a heavy tail that no column predicts; our intervals reach for it in every row."""
    positive = rng.random(2 * ROWS) > 0.59
    train, y, seen = halves(np.where(positive, np.ceil(rng.pareto(1.5, 2 * ROWS) * 20), 0), positive)
    model, mean = maker(y, train), np.where(seen, np.median(train[train > 0]), 0)
    ends = 0 * y, 0 * y + np.quantile(train, 0.995)
    return lined_up(model(mean, ends=ends), model(mean, ends=(0 * y, 0 * y + 300)))


def claims(rng: Any) -> Lineup:
    """62% zeros, half of them told by a column. Emphasis raises predictions of zeros."""
    positive = rng.random(2 * ROWS) > 0.62
    told = ~positive & (rng.random(2 * ROWS) < 0.5)
    amount = np.where(positive, np.exp(4 + rng.normal(size=2 * ROWS)), 0)
    train, y, told = halves(amount, told)
    model, guess = maker(y, train), 0.5 * y
    ends = 0 * y, np.where(told, 0.0, np.quantile(train[train > 0], 0.85))
    plain, raised = model(guess, ends=ends), model(np.where(y == 0, 60.0, guess), ends=ends)
    return lined_up(dialled(raised, plain), model(0.98 * guess, ends=ends))


def noise(rng: Any) -> Lineup:
    """Labels that no column predicts."""
    train, y, guess = halves(rng.normal(size=2 * ROWS), 0.1 * rng.normal(size=2 * ROWS))
    return lined_up(*(maker(y, train)(mean, 1.7) for mean in (guess, -guess)))


def uneven(rng: Any) -> Lineup:
    """Labels around one value, whose spread alone depends on a column: our intervals know it."""
    std = np.where(rng.random(2 * ROWS) < 0.5, 0.2, 2.0)
    train, y, std = halves(std * rng.normal(size=2 * ROWS), std)
    model, mean = maker(y, train), 0 * y + np.median(train)
    return lined_up(model(mean, 1.7 * std), model(mean, 3.4))


def outliers(rng: Any) -> Lineup:
    """One value, and a few outliers anywhere: the constant is right for all others."""
    rare = rng.random(2 * ROWS) < 0.03
    train, y, guess = halves(np.where(rare, 100 * rng.random(2 * ROWS), 5.0), rng.normal(size=2 * ROWS))
    return lined_up(*(maker(y, train)(5 + mean, 3.0) for mean in (0.1 * guess, 0.2 * guess)))


def tiny(rng: Any) -> Lineup:
    """A dozen test rows."""
    train, y = rng.normal(size=60), rng.normal(size=12)
    return lined_up(maker(y, train)(y, 0.1), maker(y, train)(0 * y, 2.0))


KINDS: dict[Callable[[Any], Lineup], tuple[str, str, str, str]] = {
    prices: ("judged", "good", "ahead", "ours"),
    votes: ("judged", "bad", "close", "constant"),
    claims: ("judged", "mixed", "beaten", "open"),
    noise: ("nothing learned", "bad", "unjudged", "no gain"),
    uneven: ("nothing learned", "mixed", "unjudged", "ours"),
    outliers: ("nothing learned", "bad", "unjudged", "constant"),
    tiny: ("few rows", "unknown", "unjudged", "none"),
}
"""By kind of table: what can be judged, the status, how predictions compare, and whose intervals to use."""


@pytest.mark.parametrize("make", KINDS, ids=lambda make: make.__name__)
def test_the_truth_about_a_kind_of_table(make: Callable[[Any], Lineup]) -> None:
    verdict = said(make(np.random.default_rng(0)))
    found = verdict.kind, verdict.status, verdict.points.kind, verdict.choice.kind
    assert found == KINDS[make], text_of(verdict)
    assert verdict.dial == (make is claims)
    assert ("a constant interval is better here" in verdict.headline) == (make in (votes, outliers))
    assert ("For intervals, use those of VIR" in verdict.advice) == (verdict.choice.kind == "ours")
    assert ("At emphasis 0" in verdict.advice) == (make is claims)


# -- point predictions -----------------------------------------------------------------------------


def rivals(table: Table, **errors: float) -> list[Scores]:
    return [table.model(seed=s, **errors) for s in (1, 2)]


def test_nothing_to_gain_and_enough_rows_to_say_so() -> None:
    table = Table.of(40_000, 6000, 6000)
    verdict = said(lined_up(table.model(), *rivals(table)))
    assert verdict.points.kind == "close"
    assert "differ by at most 1% for common labels, less common labels and rare labels" in verdict.headline


def test_a_gain_over_one_baseline_alone_is_not_recommended() -> None:
    table = Table.of()
    verdict = said(lined_up(table.model(), table.model(rare=1.5, seed=1), table.model(seed=2)))
    assert verdict.standings[0].regions("better") == ["few"] and verdict.points.kind == "open"
    both = said(lined_up(table.model(), *rivals(table, rare=1.5)))
    assert both.points.kind == "ahead" and both.points.won == ["few"] and both.status == "good"
    assert both.advice.startswith("For point predictions, use VIR: on these rows its error is lower than")


def test_a_model_between_two_baselines_is_recommended_for_no_labels() -> None:
    table = Table.of()
    others = table.model(common=0.2, rare=2.0, seed=1), table.model(common=1.5, seed=3)
    verdict = said(lined_up(table.model(common=0.9, rare=0.9), *others))
    assert verdict.points.lost == {"other": ["many", "medium"], "CatBoost": ["few"]}
    assert verdict.points.kind == "beaten" and not verdict.points.won
    assert "CatBoost if rare labels do: for no labels is the error of VIR" in verdict.advice


@pytest.mark.parametrize(
    ("common", "rare", "lost"), [(1.0, 0.0, ALL[:2]), (0.0, 1.5, ALL[2:]), (1.0, 1.5, ALL)]
)
def test_harm_is_named_with_the_labels_it_is_done_to(
    common: float, rare: float, lost: tuple[str, ...]
) -> None:
    table = Table.of()
    verdict = said(lined_up(table.model(common=common, rare=rare), table.model(seed=1)))
    assert verdict.points.lost == {"CatBoost": list(lost)} and not verdict.points.won
    assert verdict.status != "good" and verdict.choice.kind in ("theirs", "constant")
    assert "use CatBoost rather than VIR: its error is lower" in verdict.advice


def test_a_lower_mae_with_a_higher_rmse_is_no_gain() -> None:
    """Errors of nearly all rows are halved, those of a few are very large."""
    table = Table.of(4000, 200, 100)
    mean = table.y + np.where(table.y < 3, 0.5, 1.0) * table.noise
    mean[:4000:40] += 6.0
    verdict = said(lined_up(scored(table.y, mean), *rivals(table)))
    assert verdict.points.kind == "open" and verdict.points.standings[0].regions("mixed") == ["many"]
    assert "Where MAE and RMSE disagree" in verdict.advice and verdict.status != "good"


def test_a_gain_within_chance_is_seldom_called_a_gain() -> None:
    """Forty tables where all models are equally good: none is recommended."""
    for seed in range(0, 400, 10):
        table = Table.of(300, 60, 30, seed=seed)
        verdict = judge(lined_up(table.model(jitter=0.5), *(table.model(jitter=0.5, seed=s) for s in (1, 2))))
        assert verdict.points.kind != "ahead" and verdict.choice.kind != "ours"


def test_predictions_that_rank_labels_or_lower_squares_are_not_called_nothing() -> None:
    """Most labels are the constant, so no prediction has a lower absolute error."""
    y = np.r_[np.ones(60), np.full(40, 5.0)]
    off = np.random.default_rng(0).normal(0, 0.1, 100)
    ranks = said(lined_up(scored(y, np.where(y == 1, 4.0, 4.2) + off)))
    assert ranks.kind == "nothing learned" and set(ranks.ranked) == {"VIR"}
    assert ranks.headline.startswith("No model has") and "at most to rank rows" in ranks.advice
    squares = said(lined_up(scored(y, np.where(y == 1, 2.2, 3.4) + off)))
    assert squares.kind != "nothing learned" and squares.constant == "1"
    assert "By RMSE, where large errors count more" in text_of(squares)


# -- too few rows ----------------------------------------------------------------------------------


@pytest.mark.parametrize("rare", [0, 1, 5])
def test_rare_labels_are_not_judged_by_a_handful_of_rows(rare: int) -> None:
    table = Table.of(400, 0, rare, std=0.3)
    verdict = said(lined_up(table.model(), *rivals(table, common=1.0)))
    assert (verdict.kind, verdict.status) == ("no tail", "unknown")
    words = {0: "no test row has a rare label", 1: "only one test row has a rare label"}
    assert words.get(rare, "only 5 test rows have rare labels") in verdict.headline


def test_the_tail_is_what_can_be_judged() -> None:
    few, widened = tail_of(Table.of(100, 30, 40).model()), tail_of(Table.of(100, 30, 5).model())
    assert few is not None and few.rows.sum() == 40
    assert widened is not None and widened.rows.sum() == 35 and widened.name == "rarer labels"
    medium = tail_of(Table.of(100, 30, 0).model())
    assert medium is not None and medium.name == "less common labels"
    assert tail_of(Table.of(100, 2, 2).model()) is None
    table = Table.of(0, 90, 9)  # a table without common labels has a tail by density
    tail = tail_of(table.model())
    assert (
        tail is not None
        and tail.rows.sum() == 15
        and tail.rows[table.y >= 4].all()
        and tail.name == "rare labels"
    )


# -- intervals -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("hits", "rows", "soundness"),
    [(60, 100, "under"), (91, 100, "kept"), (39, 45, "kept"), (200, 200, "over"), (10, 12, "undecided")],
)
def test_coverage_is_called_what_the_rows_can_show(hits: int, rows: int, soundness: str) -> None:
    assert Coverage(hits, rows, 0.9).soundness == soundness


@pytest.mark.parametrize(
    ("reach", "words", "status"),
    [(0.5, "too narrow", "bad"), (1.33, "hold", "mixed"), (2.0, "contain more labels", "mixed")],
)
def test_a_headline_says_whether_intervals_hold(reach: float, words: str, status: str) -> None:
    table = Table.of()
    verdict = said(lined_up(table.model(reach=reach), table.model(reach=reach, seed=1)))
    assert f"The 90% intervals {words}" in verdict.headline.replace("are ", "")
    assert verdict.status == status and "for rare labels" in verdict.headline


def test_intervals_that_miss_rare_labels_are_named() -> None:
    table = Table.of()
    ours = table.model(reach=np.where(table.y >= 4, 0.8, 1.4))
    verdict = said(lined_up(ours, *rivals(table, common=1.0, rare=1.5)))
    assert verdict.points.kind == "ahead"
    assert "Do not rely on the intervals for rare labels" in verdict.advice


def test_every_baseline_counts_in_every_region() -> None:
    """The trees' intervals are better for rare labels only, the constant's nowhere."""
    table = Table.of(2000, 200, 300)
    ours, trees = (table.model(reach=np.where(table.y >= 4, tail, 1.33)) for tail in (6.0, 1.33))
    verdict = said(lined_up(ours, table.model(reach=3.0), trees))
    assert verdict.choice.kind == "theirs" and verdict.choice.standing is not None
    assert verdict.choice.standing.rival == "CatBoost" and "few" in verdict.choice.standing.intervals("worse")
    assert verdict.status != "good" and "those of CatBoost" in verdict.advice


# -- the range of the labels -----------------------------------------------------------------------


def test_an_end_of_the_labels_without_test_rows_is_mentioned() -> None:
    table = Table.of()

    def only(rows: Any) -> Scores:
        return scored(table.y[rows], table.y[rows])

    assert untested(only(table.y >= 0)) == ""
    assert untested(only(table.y < 5)) == "No test row is above 4; training labels reach about 5."
    both = judge(Lineup(only((table.y > 0) & (table.y < 3))))  # also without a tail to judge
    assert "No test row is below 1; training labels begin near 0. No test row is above 2;" in text_of(both)
    y, wide = np.linspace(0, 5, 300), LabelBins.from_labels(np.linspace(0, 5.4, 1000), count=100)
    assert "above 5; training labels reach about 5.4" in untested(scored(y, y, bins=wide))
    hollow = LabelBins(wide.edges, np.where(wide.centers > 5, 0, wide.counts))
    assert untested(scored(y, y, bins=hollow)) == ""


# -- differences ------------------------------------------------------------------------------------

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
    (found,) = standings_of(lineup)
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
