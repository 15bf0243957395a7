"""The first screen: four figures with their baselines, and the rows to look at."""

from dataclasses import replace

import numpy as np
import pandas as pd

from tailwise.report.answers import answers_of, row_tables
from tailwise.report.baselines import Lineup
from tailwise.report.formatting import number
from tests.report.made import Table, scored


def test_four_figures_with_their_baselines() -> None:
    table = Table.of()
    lineup = table.lineup(
        table.model(), booster=table.model(rare=1.5, seed=3), weighted=table.model(2, seed=4)
    )
    rare, common, intervals, cost = answers_of(lineup)
    ours, booster = lineup.ours, lineup.booster
    assert booster is not None
    assert (rare.question, rare.about) == ("Error for rare labels", "mean absolute error, 100 test rows")
    assert rare.figure == number(ours.error[ours.y >= 4].mean())
    assert dict(rare.baselines)["CatBoost"] == f"{number(booster.error[ours.y >= 4].mean())}, ours is lower"
    assert dict(rare.baselines)["plain network"].endswith(", undecided")
    assert list(dict(rare.baselines)) == ["plain network", "CatBoost", "weighted CatBoost", "constant"]
    assert common.about == "mean absolute error, 2,000 test rows"
    assert dict(common.baselines)["weighted CatBoost"].endswith("ours is lower")
    assert intervals.figure == f"{100 * ours.inside.mean():.0f}%"
    assert intervals.about == "of 90% intervals contain the label; mean width 2.66"
    assert dict(intervals.baselines)["constant"] == "96%, 3 wide\nrare 0%, ours hold more"
    assert ", 2.66 wide\nrare " in dict(intervals.baselines)["plain network"]
    assert dict(intervals.baselines)["plain network"].endswith(", undecided")
    assert dict(intervals.baselines)["rare labels"].endswith(", 2.66 wide")
    share = 100 * (ours.error.mean() / booster.error.mean() - 1)
    assert cost.figure == f"{share:+.1f}%".replace("-", "\u2212") and cost.about.endswith("ours is lower")
    assert list(dict(cost.baselines)) == ["plain network", "weighted CatBoost", "constant"]
    assert dict(cost.baselines)["constant"].startswith("\u2212")


def test_the_tone_of_the_intervals_is_that_of_the_worse_part() -> None:
    table = Table.of(500, 100, 100)
    for reach, tone in ((np.where(table.y >= 4, 0.3, 1.33), "bad"), (1.33, "good"), (9.0, "mixed")):
        assert answers_of(Lineup(table.model(reach=reach)))[2].tone == tone


def test_what_cannot_be_said_is_not_a_figure() -> None:
    table = Table.of(200, 0, 3)
    rare, common, intervals, cost = answers_of(Lineup(table.model()))
    assert (rare.figure, rare.about) == ("–", "3 test rows: too few to say")
    assert common.figure != "–" and cost.about == "mean absolute error; no baseline"
    assert "rare labels" not in dict(intervals.baselines)
    no_common = answers_of(Lineup(Table.of(0, 30, 30).model()))
    assert no_common[1].about == "mean absolute error, 30 test rows"
    assert no_common[1].question == "Error for other labels"
    none = answers_of(Lineup(Table.of(0, 0, 30).model()))
    assert none[0].about == "5 test rows: too few to say" and none[1].about.endswith("25 test rows")


def test_a_perfect_baseline_has_no_percentage() -> None:
    y = np.repeat([0.0, 4.0], 30)
    perfect = scored(y, y, title="CatBoost")
    assert answers_of(Lineup(scored(y, y + 1), booster=perfect))[3].figure == "1"
    assert answers_of(Lineup(scored(y, y + 1), booster=scored(y, y + 1)))[3].figure == "0%"


def test_rows_with_the_largest_errors_and_the_widest_intervals() -> None:
    y = np.arange(8.0)
    mean = y + np.array([0, 0, 3.2, 0, 0, -6, 0, 0.4])
    made = scored(y, mean, reach=np.array([1.0, 2, 3, 4, 5, 6, 0.2, 0.4]))
    inputs = pd.DataFrame({f"c{k}": y for k in range(9)} | {"c0": ["<b>"] * 7 + ["x" * 99], "c1": np.nan})
    errors, widths = row_tables(made, inputs)
    assert errors.title == "Largest errors" and widths.title == "Widest intervals"
    assert errors.columns == (
        "true",
        "predicted",
        "error",
        "interval",
        "region",
        *(f"c{k}" for k in range(6)),
    )
    assert errors.rows[0][:7] == ("5", "-1", "6", "-7 to 5", "few", "<b>", "") and len(errors.rows) == 5
    assert errors.rows[1][:4] == ("2", "5", "3.2", "3 to 8")  # whole labels between 2.2 and 8.2
    assert errors.rows[2][:4] == ("7", "7", "0.4", "7 to 7") and errors.rows[2][5] == "x" * 39 + "…"
    assert [row[0] for row in widths.rows] == ["5", "4", "3", "2", "1"]
    fine = replace(made, y=y + 0.25)
    assert row_tables(fine, None)[0].rows[0][:4] == ("5.25", "-1", "6.25", "-7 to 5")
    assert row_tables(fine, None)[0].columns[-1] == "region"


def test_missing_cells_are_empty_whatever_their_type() -> None:
    found = scored(np.arange(40.0), np.arange(40.0))
    missing = {"text": None, "number": np.nan, "day": pd.NaT, "flag": pd.NA, "list": [1, 2]}
    inputs = pd.DataFrame({name: [value] * 40 for name, value in missing.items()})
    assert {row[-5:] for row in row_tables(found, inputs)[0].rows} == {("", "", "", "", "[1, 2]")}
