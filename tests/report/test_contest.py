"""Methods as `fit` trains them, on the rows that it holds out."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from tailwise import TailRegressor
from tailwise.data import label_holdout
from tailwise.labels.bins import LabelBins
from tailwise.report.contest import DEFAULT, Contest, check_name, run_contest

Rows = tuple[pd.DataFrame, np.ndarray]


@pytest.fixture(scope="module")
def contest(new_rows: Rows) -> Contest:
    return Contest("shells", *new_rows, DEFAULT, epochs=1)


@pytest.fixture(scope="module")
def lines(contest: Contest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[dict[str, Any]]]:
    out = tmp_path_factory.mktemp("contest") / "r.jsonl"
    return out, run_contest(contest, [3], out=out)


def test_a_line_has_the_figures_of_a_fit_with_the_same_seed(
    contest: Contest, lines: tuple[Path, list[dict[str, Any]]]
) -> None:
    test = label_holdout(contest.labels, share=0.2, seed=3, pool_small=True)
    train = np.setdiff1d(np.arange(300), test)
    x, y = contest.inputs, contest.labels
    model = TailRegressor(epochs=1, random_state=3).fit(x.iloc[train], y[train])
    by_name = {line["method"]: line for line in lines[1]}
    assert list(by_name) == ["plain", "catboost", "catboost-weighted", "constant", "tail", "tail-balanced"]
    for name, emphasis in (("tail", None), ("tail-balanced", 1.0)):
        table = model.score_by_region(x.iloc[test], y[test], emphasis=emphasis).set_index("region")
        for region in ("all", "medium", "few"):
            found = by_name[name]["metrics"]
            assert found["raw"][region]["mae"] == pytest.approx(table.loc[region, "mae"], rel=1e-5)
            assert found["raw"][region]["rmse"] == pytest.approx(table.loc[region, "rmse"], rel=1e-5)
            assert found["calibrated"][region]["coverage"] == pytest.approx(
                table.loc[region, "coverage"], rel=1e-5
            )
            assert found["calibrated"][region]["width"] == pytest.approx(table.loc[region, "width"], rel=1e-5)
    constant = np.abs(np.quantile(y[train], 0.5, method="inverted_cdf") - y[test]).mean()
    assert by_name["constant"]["metrics"]["raw"]["all"]["mae"] == pytest.approx(constant, rel=1e-5)
    assert len({str(line["test_rows"]) for line in lines[1]}) == 1  # the same regions for all


def test_finished_seeds_are_not_run_again(
    contest: Contest, lines: tuple[Path, list[dict[str, Any]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    out, found = lines
    monkeypatch.setattr(Contest, "scored", None)  # nothing may be trained
    told: list[str] = []
    assert run_contest(contest, [3], out=out, report=told.append) == found
    assert told == [f"resuming from {out}, which has 6 finished runs"]
    with pytest.raises(ValueError, match="was made from other rows: delete it"):
        run_contest(replace(contest, labels=contest.labels + 1), [3], out=out)
    with pytest.raises(ValueError, match="belongs to other settings: delete it"):
        run_contest(replace(contest, epochs=2), [3], out=out)


def test_balanced_rows_are_equally_many_of_every_bin(new_rows: Rows) -> None:
    contest = Contest("shells", *new_rows, ("plain",), balanced=True)
    train, test = contest._split(0)
    assert not set(train) & set(test)
    counts = np.bincount(LabelBins.from_labels(contest.labels).index(contest.labels[test]))
    assert counts.max() <= 20 and len(test) > 0
    assert contest.recipe["rows"] == "balanced"


def test_too_few_rows_and_unknown_names(new_rows: Rows) -> None:
    x, y = new_rows
    with pytest.raises(ValueError, match="1 rows are too few to compare methods"):
        Contest("shells", x[:1], y[:1], ("plain",)).scored(0)
    with (
        pytest.raises(ValueError, match="rows are too few to compare with boosted trees"),
        pytest.warns(UserWarning, match=r"^0.9 intervals take"),  # and not for every level of a diagram
    ):
        Contest("shells", x[:11], y[:11], ("catboost",), epochs=1).scored(0)
    check_name("vir-dial")
    with pytest.raises(ValueError, match=r"unknown method 'catbost'.*'catboost'"):
        check_name("catbost")
