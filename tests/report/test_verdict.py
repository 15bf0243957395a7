"""A verdict says what the test rows show, and no more: generated tables with known answers."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from tailwise.labels.bins import LabelBins
from tailwise.report.baselines import CONSTANT, Lineup, score_constant
from tailwise.report.scores import Scores
from tailwise.report.verdict import Coverage, Untested, judge, tail_of, untested
from tests.report.made import TRAIN, Table, said, scored

ALL = ("many", "medium", "few")
RIVALS = ("the plain network", "CatBoost", "weighted CatBoost")


def rivals(table: Table, **errors: float) -> list[Scores]:
    return [table.model(seed=s, **errors) for s in (1, 2, 3)]


# -- point predictions -----------------------------------------------------------------------------


@pytest.mark.parametrize("seed", [0, 100])
def test_nothing_to_gain_and_enough_rows_to_say_so(seed: int) -> None:
    table = Table.of(40_000, 6000, 6000, seed=seed)
    verdict = said(table.lineup(table.model()))
    assert (verdict.points.kind, verdict.points.choice) == ("close", "theirs")
    assert max(contrast.bound for contrast in verdict.points.standing.contrasts) < 0.015
    assert "differ by at most 1% for common labels, less common labels and rare labels" in verdict.headline


@pytest.mark.parametrize("rows", [(2000, 200, 100), (300, 40, 20)])
def test_nothing_to_gain_is_undecided_with_fewer_rows(rows: tuple[int, int, int]) -> None:
    table = Table.of(*rows)
    verdict = said(table.lineup(table.model()))
    assert verdict.points.kind == "open" and verdict.status == "mixed"
    assert tuple(standing.rival for standing in verdict.points.standings) == RIVALS
    assert "is undecided" in verdict.headline and "within their error" in verdict.advice


def test_a_gain_over_every_baseline_is_recommended() -> None:
    table = Table.of()
    verdict = said(table.lineup(table.model(), *rivals(table, rare=1.5)))
    assert verdict.points.choice == "ours" and verdict.status == "good" and verdict.points.won == ("few",)
    assert verdict.headline.endswith(
        "; for rare labels its error is lower than that of the plain network, CatBoost and weighted CatBoost."
    )
    assert verdict.advice.startswith("For point predictions, use VIR: on these rows its error is lower than")


def test_a_gain_over_the_plain_network_alone_is_not_recommended() -> None:
    table = Table.of()
    verdict = said(table.lineup(table.model(), other=table.model(rare=1.5, seed=1)))
    assert verdict.standings[0].regions("better") == ["few"] and verdict.points.kind == "open"
    assert tuple(standing.rival for standing in verdict.points.standings) == RIVALS[1:]


def test_a_gain_that_costs_elsewhere_depends_on_what_matters() -> None:
    table = Table.of()
    verdict = said(table.lineup(table.model(common=1.0), *rivals(table, rare=1.5)))
    assert verdict.points.choice == "depends" and verdict.status == "mixed"
    assert verdict.points.won == ("few",) and [*verdict.points.lost.values()] == [("many", "medium")]
    assert "use VIR if rare labels matter most, and " in verdict.advice


def test_a_gain_that_label_weights_bring_too_is_no_reason_to_use_it() -> None:
    """Between CatBoost, better for common labels, and weighted CatBoost, better for rare ones."""
    table = Table.of()
    others = (
        table.model(common=0.7, rare=2.0, seed=1),
        table.model(rare=2.0, seed=2),
        table.model(common=1.5, seed=3),
    )
    verdict = said(table.lineup(table.model(common=0.7, rare=0.7), *others))
    assert verdict.points.lost == {"CatBoost": ("many", "medium"), "weighted CatBoost": ("few",)}
    assert verdict.points.choice == "theirs" and verdict.points.won == ()
    assert "weighted CatBoost if rare labels do: for no labels is the error of VIR" in verdict.advice


@pytest.mark.parametrize(
    ("common", "rare", "lost"), [(1.0, 0.0, ALL[:2]), (0.0, 1.5, ALL[2:]), (1.0, 1.5, ALL)]
)
def test_harm_is_named_with_the_labels_it_is_done_to(
    common: float, rare: float, lost: tuple[str, ...]
) -> None:
    table = Table.of()
    others = {
        "other": table.model(common=common, rare=rare, seed=1),
        "weighted": table.model(common, rare, seed=3),
    }
    verdict = said(table.lineup(table.model(common=common, rare=rare), **others))
    assert verdict.points.lost == {"CatBoost": lost} and verdict.points.choice == "theirs"
    assert verdict.status != "good"
    still = "Which of the two is better for less common labels is undecided" in verdict.advice
    assert still == (not common) and "use CatBoost rather than VIR: its error is lower" in verdict.advice


def test_a_lower_mae_with_a_higher_rmse_is_no_gain() -> None:
    """Errors of nearly all rows are halved, those of a few are very large."""
    table = Table.of(4000, 200, 100)
    mean = table.y + np.where(table.y < 3, 0.5, 1.0) * table.noise
    mean[:4000:40] += 6.0
    verdict = said(table.lineup(scored(table.y, mean), *rivals(table)))
    assert verdict.points.kind == "split" and verdict.points.standing.regions("mixed") == ["many"]
    assert "MAE and RMSE disagree" in verdict.headline and verdict.status != "good"


def test_a_gain_within_chance_is_seldom_called_a_gain() -> None:
    """Forty tables where all models are equally good: none is recommended."""
    for seed in range(0, 400, 10):
        table = Table.of(300, 60, 30, seed=seed)
        assert judge(table.lineup(table.model(jitter=0.5))).points.choice != "ours"


# -- noise only ------------------------------------------------------------------------------------


@pytest.mark.parametrize("rows", [(2000, 200, 100), (200, 20, 10), (60, 5, 2)])
def test_noise_is_called_noise(rows: tuple[int, int, int]) -> None:
    table = Table.of(*rows)
    verdict = said(table.lineup(table.ignorant(), *(table.ignorant(seed=s) for s in (1, 2, 3))))
    assert (verdict.kind, verdict.status, verdict.constant) == ("nothing learned", "bad", "1")
    assert verdict.headline.startswith("Nothing was learned: no model has a clearly lower error")


def test_predictions_that_rank_labels_are_not_called_nothing() -> None:
    """Most labels are the constant, so no prediction has a lower absolute error, but some order the rows."""
    y = np.r_[np.ones(60), np.full(40, 5.0)]
    noise = np.random.default_rng(0).normal(0, 0.1, 100)
    ours = scored(y, np.where(y == 1, 4.0, 4.2) + noise)
    verdict = said(Lineup(ours, {CONSTANT: score_constant(ours, TRAIN)}))
    assert verdict.kind == "nothing learned" and verdict.ranked[0][0] == "VIR"
    assert verdict.headline.startswith("No model has") and "at most to rank rows" in verdict.advice


def test_a_lower_squared_error_is_not_called_noise() -> None:
    """Most labels are the constant, so no prediction has a lower absolute error, but the squares fall."""
    y = np.r_[np.ones(60), np.full(40, 5.0)]
    ours = scored(y, np.where(y == 1, 2.2, 3.4) + np.random.default_rng(0).normal(0, 0.1, 100))
    verdict = said(Lineup(ours, {CONSTANT: score_constant(ours, TRAIN)}))
    assert verdict.kind != "nothing learned" and verdict.constant == "1"
    assert "By RMSE, where large errors count more" in verdict.text


def test_a_model_that_learned_nothing_beside_one_that_did() -> None:
    table = Table.of()
    verdict = said(table.lineup(table.ignorant()))
    assert verdict.kind == "judged" and verdict.points.choice == "theirs" and verdict.status == "bad"


# -- too few rows ----------------------------------------------------------------------------------


@pytest.mark.parametrize("rare", [0, 1, 5])
def test_rare_labels_are_not_judged_by_a_handful_of_rows(rare: int) -> None:
    table = Table.of(400, 0, rare, std=0.3)
    verdict = said(table.lineup(table.model(), *rivals(table, common=1.0)))
    assert (verdict.kind, verdict.status, verdict.rare) == ("no tail", "unknown", rare)
    words = {0: "no test row has a rare label", 1: "only one test row has a rare label"}
    assert words.get(rare, "only 5 test rows have rare labels") in verdict.headline
    assert verdict.standings[1].regions("better") == ["many"]  # a fact, no advice


@pytest.mark.parametrize("rows", [1, 12])
def test_nothing_is_judged_by_a_dozen_rows(rows: int) -> None:
    table = Table.of(rows, 0, 0)
    verdict = said(table.lineup(table.model(), *rivals(table, common=5.0)))
    assert (verdict.kind, verdict.status, verdict.sentences) == ("few rows", "unknown", ())
    assert verdict.headline.startswith(f"Nothing can be judged: {rows} test row")


def test_without_a_tail_common_labels_decide() -> None:
    table = Table.of(2000, 0, 0, std=0.3)
    flat = LabelBins.from_labels(np.repeat([0.0, 1.0, 2.0], 500))
    others = [replace(rival, bins=flat) for rival in rivals(table, common=1.0)]
    verdict = said(table.lineup(replace(table.model(), bins=flat), *others))
    assert verdict.tail is None and verdict.points.choice == "ours" and "rare" not in verdict.text


# -- intervals -------------------------------------------------------------------------------------


def reaching(table: Table, reach: float, tail: float, **more: Any) -> Scores:
    return table.model(reach=np.where(table.y >= 4, tail, reach), **more)


@pytest.mark.parametrize(
    ("hits", "rows", "soundness", "status"),
    [(60, 100, "under", "bad"), (91, 100, "kept", "mixed"), (39, 45, "kept", "mixed"),
     (200, 200, "over", "mixed"), (10, 12, "undecided", "mixed")],
)  # fmt: skip
def test_coverage_is_called_what_the_rows_can_show(hits: int, rows: int, soundness: str, status: str) -> None:
    table = Table.of(500, 100, rows)
    errors = np.sort(table.model().error[-rows:])
    verdict = said(table.lineup(reaching(table, 1.35, float(errors[hits - 1]) + 1e-9)))
    assert verdict.held == Coverage(hits, rows, 0.9)
    assert (verdict.held.soundness, verdict.status) == (soundness, status)
    words = {"under": "too narrow", "over": "wider than necessary", "undecided": "is undecided"}
    limit = "hold as promised" if rows == 100 else "hold about as promised for rare labels, as far as 45 rows"
    assert words.get(soundness, limit) in verdict.headline
    assert ("the true share can be anything" in verdict.text) == (soundness == "undecided")


def test_width_stands_beside_coverage_and_beside_a_constant_interval() -> None:
    table = Table.of()
    ours, booster = reaching(table, 1.35, 2.0), reaching(table, 1.0, 1.0)
    verdict = said(table.lineup(ours, booster=booster))
    assert verdict.width == pytest.approx(2.757, abs=1e-3) and verdict.tail_width == 4
    trees, constant = verdict.others
    assert (trees.title, trees.width, trees.constant) == ("CatBoost", 2, None)
    assert (constant.constant, constant.width, constant.tail_share) == (("0", "3"), 3, 0)
    assert trees.tail_share == booster.inside[booster.y >= 4].mean()
    assert verdict.choice.kind == "holds" and "use those of VIR" in verdict.advice


def test_intervals_that_a_simpler_model_has_narrower_are_not_recommended() -> None:
    table = Table.of()

    def choice(ours: Scores, booster: Scores, of: Table = table) -> tuple[str, str]:
        found = said(of.lineup(ours, booster=booster)).choice
        return found.kind, "" if found.other is None else found.other.title

    assert choice(reaching(table, 3.0, 3.0), reaching(table, 1.4, 1.4)) == ("baseline", "CatBoost")
    flat = LabelBins.from_labels(np.repeat([0.0, 1.0, 2.0], 500))
    common = Table.of(2000, 0, 0, std=0.3)
    wide = common.model(reach=3.0, bins=flat)
    assert choice(wide, common.model(reach=2.0, seed=1), common) == ("baseline", "constant")
    assert choice(reaching(table, 3.0, 3.0), reaching(table, 0.5, 0.5)) == ("holds", "CatBoost")
    narrow = table.lineup(reaching(table, 3.0, 0.2), booster=reaching(table, 0.5, 0.5))
    assert said(narrow).wider and said(replace(narrow, inputs="inputs")).advice.endswith(" the inputs.")


def hit(table: Table, hits: int, reach: float = 1.4) -> Scores:
    """A model whose intervals contain the last so many rare labels, and common ones as `reach` does."""
    made = table.model(reach=reach)
    rare = np.flatnonzero(table.y >= 4)
    lower, upper = made.lower.copy(), made.upper.copy()
    lower[rare], upper[rare] = table.y[rare] - reach, table.y[rare] + reach
    missed = rare[: rare.size - hits]
    lower[missed], upper[missed] = table.y[missed] + 0.1, table.y[missed] + 0.1 + 2 * reach
    return replace(made, lower=lower, upper=upper)


def test_four_rows_do_not_decide_whose_intervals_to_use() -> None:
    """Once: "For intervals, use VIR: 93% contain the label, 79% of those of CatBoost", of 28 rows."""
    table = Table.of(2000, 200, 28)
    ours, booster = hit(table, 26, 1.45), hit(table, 22)
    verdict = said(table.lineup(ours, booster=booster))
    assert verdict.choice.kind == "undecided" and "which can be chance on 28 rows" in verdict.advice
    assert said(table.lineup(booster, booster=ours)).choice.kind == "undecided"
    many = Table.of(2000, 200, 280)
    more, fewer = hit(many, 260, 1.45), hit(many, 220)
    assert "For intervals, use those of VIR: 93%" in said(many.lineup(more, booster=fewer)).advice
    assert "For intervals, use those of CatBoost: 79%" in said(many.lineup(fewer, booster=more)).advice
    narrower = said(many.lineup(hit(many, 255, 1.35), booster=hit(many, 260, 1.45)))
    assert narrower.choice.kind == "narrower" and "they are 2.7 wide on average, not 2.9" in narrower.advice


def test_wide_intervals_and_pulled_predictions_are_mentioned() -> None:
    table = Table.of()
    verdict = said(table.lineup(reaching(table, 2.0, 4.0, rare=1.5)))
    assert verdict.range_share == pytest.approx(8 / 6) and verdict.pull == pytest.approx(1.5, abs=0.05)
    assert "133% of the whole label range" in verdict.text and "pulled towards common ones" in verdict.text
    assert set(verdict.to_dict()) == {"status", "headline", "sentences", "advice"}
    assert ", less than promised;" in said(table.lineup(table.model(reach=0.5))).text


def test_the_tail_is_what_can_be_judged() -> None:
    few, widened = tail_of(Table.of(100, 30, 40).model()), tail_of(Table.of(100, 30, 5).model())
    assert few is not None and few.n == 40
    assert widened is not None and widened.n == 35 and widened.name == "rarer labels"
    assert tail_of(Table.of(100, 2, 2).model()) is None
    assert tail_of(Table.of(0, 30, 5).model()) is None
    table = Table.of(0, 90, 9)  # a table without common labels has a tail by density
    tail = tail_of(table.model())
    assert tail is not None and tail.n == 15 and tail.rows[table.y >= 4].all() and tail.name == "rare labels"


def test_a_model_alone_and_a_high_coverage() -> None:
    verdict = said(Lineup(Table.of().model(coverage=0.995)))
    assert verdict.headline.startswith("The 99.5% intervals") and verdict.standings == ()
    assert verdict.points.kind == "unjudged" and verdict.choice.kind == "none"


# -- the range of the labels -----------------------------------------------------------------------


def test_an_end_of_the_labels_without_test_rows_is_mentioned() -> None:
    table = Table.of()

    def only(rows: Any) -> Scores:
        return scored(table.y[rows], table.y[rows])

    assert untested(only(table.y >= 0)) == Untested(None, None)
    assert untested(only(table.y < 5)) == Untested(None, ("4", "5"))
    both = judge(Lineup(only((table.y > 0) & (table.y < 3))))  # also without a tail to judge
    assert both.untested == Untested(("1", "0"), ("2", "5"))
    assert "No test row is below 1; training labels begin near 0. No test row is above 2;" in both.text


def test_a_short_end_without_test_rows_is_not_mentioned() -> None:
    y = np.linspace(0, 5, 300)
    fine = LabelBins.from_labels(np.linspace(0, 5.2, 1000), count=100)
    assert untested(scored(y, y, bins=fine)).above is None
    wide = LabelBins.from_labels(np.linspace(0, 5.4, 1000), count=100)
    assert untested(scored(y, y, bins=wide)).above == ("5", "5.4")
    hollow = LabelBins(wide.edges, np.where(wide.centers > 5, 0, wide.counts))  # bins, but no labels there
    assert untested(scored(y, y, bins=hollow)).above is None


def test_the_constant_of_a_verdict_ignores_the_columns() -> None:
    table = Table.of()
    constant = score_constant(table.model(), TRAIN)
    assert (constant.mean == 1).all() and torch.equal(constant.distribution.mean, torch.ones(2300).double())
