"""What a verdict says of intervals, on generated tables with known answers."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tailwise.labels.bins import LabelBins
from tailwise.report.baselines import Lineup
from tailwise.report.interval_verdict import tail_of
from tailwise.report.scoring import Scored
from tests.report.made import Table, said


def reaching(table: Table, reach: float, tail: float, **more: Any) -> Scored:
    return table.model(reach=np.where(table.y >= 4, tail, reach), **more)


@pytest.mark.parametrize(
    ("hits", "rows", "words", "status"),
    [
        (60, 100, "The 90% intervals are too narrow for rare labels: 60% of 100 contain the label", "bad"),
        (91, 100, "The 90% intervals hold as promised for rare labels: 91% of 100", "mixed"),
        (39, 45, "The 90% intervals hold about as promised for rare labels, as far as 45 rows can tell:",
         "mixed"),
        (200, 200, "The 90% intervals are wider than necessary for rare labels: 100% of 200", "mixed"),
        (10, 12, "Whether the 90% intervals hold for rare labels is undecided: 83% of 12 contain", "mixed"),
    ],
)  # fmt: skip
def test_coverage_is_called_what_the_rows_can_show(hits: int, rows: int, words: str, status: str) -> None:
    table = Table.of(500, 100, rows)
    errors = np.sort(table.model().error[-rows:])
    verdict = said(table.lineup(reaching(table, 1.35, float(errors[hits - 1]) + 1e-9)))
    assert verdict.headline.startswith(words), verdict.headline
    assert verdict.status == status
    undecided = "For rare labels the true share can be anything from" in verdict.text
    assert undecided == words.startswith("Whether")


def test_width_stands_beside_coverage_and_beside_a_constant_interval() -> None:
    table = Table.of()
    ours = reaching(table, 1.35, 2.0)
    verdict = said(table.lineup(ours, booster=reaching(table, 1.0, 1.0)))
    assert "their mean width is 2.76; for rare labels, where a label bin has fewer than 20 training rows" in (
        verdict.text
    )
    booster = reaching(table, 1.0, 1.0)
    shares = [f"{100 * booster.inside[rows].mean():.0f}%" for rows in (booster.y >= 0, booster.y >= 4)]
    assert f"CatBoost are 2 wide and contain {shares[0]} of the labels, {shares[1]} for rare" in verdict.text
    assert (
        "The constant interval from 0 to 3 is 3 wide and contains 96% of the labels, 0% for rare"
        in verdict.text
    )
    rare = [f"{100 * inside[booster.y >= 4].mean():.0f}%" for inside in (ours.inside, booster.inside)]
    assert verdict.advice.endswith(
        f"For intervals, use those of VIR: {rare[0]} of those of VIR and {rare[1]} of those of CatBoost "
        "contain the label for rare labels; their mean widths are 2.76 and 2."
    )


def test_intervals_that_a_simpler_model_has_narrower_are_not_recommended() -> None:
    table = Table.of()
    verdict = said(table.lineup(reaching(table, 3.0, 3.0), booster=reaching(table, 1.4, 1.4)))
    assert verdict.advice.endswith(
        "For intervals, those of CatBoost will do: they are 2.8 wide on average, not 6, and as far as these "
        "rows show they hold too."
    )
    flat = LabelBins.from_labels(np.repeat([0.0, 1.0, 2.0], 500))
    common = Table.of(2000, 0, 0, std=0.3)
    verdict = said(common.lineup(common.model(reach=3.0, bins=flat), booster=common.model(reach=2.0, seed=1)))
    assert "For intervals, constant ones will do: they are 3 wide on average, not 6" in verdict.advice
    wide = said(table.lineup(reaching(table, 3.0, 3.0), booster=reaching(table, 0.5, 0.5)))
    assert "use those of VIR: 100% of those of VIR and" in wide.advice
    narrow = table.lineup(reaching(table, 3.0, 0.2), booster=reaching(table, 0.5, 0.5))
    assert "no narrower than one that ignores the columns." in said(narrow).advice
    assert "no narrower than one that ignores the inputs." in said(replace(narrow, inputs="inputs")).advice


def hit(table: Table, hits: int, reach: float = 1.4) -> Scored:
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
    assert said(table.lineup(ours, booster=booster)).advice.endswith(
        "Whose intervals to use is undecided: 93% of those of VIR and 79% of those of CatBoost contain the "
        "label for rare labels, which can be chance on 28 rows; their mean widths are 2.9 and 2.8."
    )
    assert (
        "Whose intervals to use is undecided: 79% of those of VIR"
        in said(table.lineup(booster, booster=ours)).advice
    )
    many = Table.of(2000, 200, 280)
    more, fewer = hit(many, 260, 1.45), hit(many, 220)
    assert "For intervals, use those of VIR: 93%" in said(many.lineup(more, booster=fewer)).advice
    assert "For intervals, use those of CatBoost: 79%" in said(many.lineup(fewer, booster=more)).advice


def test_narrower_intervals_that_hold_are_recommended() -> None:
    table = Table.of(2000, 200, 280)
    advice = said(table.lineup(hit(table, 255, 1.35), booster=hit(table, 260, 1.45))).advice
    assert (
        "For intervals, use those of VIR: they are 2.7 wide on average, not 2.9, and as far as these"
        in advice
    )


def test_too_few_hits_over_all_rows_are_named() -> None:
    table = Table.of()
    assert ", less than promised;" in said(table.lineup(table.model(reach=0.5))).text
    assert "less than promised" not in said(table.lineup(table.model(reach=2.0))).text


def test_wide_intervals_and_pulled_predictions_are_mentioned() -> None:
    table = Table.of()
    verdict = said(table.lineup(reaching(table, 2.0, 4.0, rare=1.5)))
    assert "training rows, 8, 133% of the whole label range." in verdict.text
    assert "Predictions of rare labels are pulled towards common ones, by 1.5" in verdict.text
    assert set(verdict.to_dict()) == {"status", "headline", "sentences", "advice"}


def test_the_tail_is_what_can_be_judged() -> None:
    few, widened = tail_of(Table.of(100, 30, 40).model()), tail_of(Table.of(100, 30, 5).model())
    assert few is not None and few.n == 40
    assert widened is not None and widened.n == 35 and widened.name == "rarer labels"
    assert tail_of(Table.of(100, 2, 2).model()) is None
    assert tail_of(Table.of(0, 30, 5).model()) is None


def test_a_table_without_common_labels_has_a_tail_by_density() -> None:
    """Rare labels are not all labels, and a test part too small for them is judged as a whole."""
    table = Table.of(0, 90, 9)
    tail = tail_of(table.model())
    assert tail is not None and tail.n == 15 and tail.rows[table.y >= 4].all() and tail.name == "rare labels"
    text = said(table.lineup(table.model())).text
    assert "for rare labels, the 15% with the lowest density in training, 2.66" in text
    small = Table.of(0, 30, 5)
    assert "90% intervals" in (headline := said(small.lineup(small.model())).headline)
    assert "rare" not in headline.partition(";")[0]


def test_a_model_alone_and_a_high_coverage() -> None:
    table = Table.of()
    verdict = said(Lineup(table.model(coverage=0.995)))
    assert verdict.headline.startswith("The 99.5% intervals") and "Against" not in verdict.text
    assert "point predictions" not in verdict.advice
