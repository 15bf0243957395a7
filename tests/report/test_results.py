"""Runs of methods as `fit` trains them, and the page that ranks them."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tailwise.labels.bins import LabelBins
from tailwise.report.contest import DEFAULT, Contest, run_contest
from tailwise.report.results import (
    COLUMNS,
    Results,
    comparison_page,
    comparison_picture,
    comparison_verdict,
    method_cells,
)
from tests.report.conftest import Rows


@pytest.fixture(scope="module")
def contest(new_rows: Rows) -> Contest:
    return Contest("shells", *new_rows, DEFAULT, epochs=1)


@pytest.fixture(scope="module")
def lines(contest: Contest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[dict[str, Any]]]:
    out = tmp_path_factory.mktemp("contest") / "r.jsonl"
    return out, run_contest(contest, [3], out=out)


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


def test_too_few_rows(new_rows: Rows) -> None:
    x, y = new_rows
    with pytest.raises(ValueError, match="1 rows are too few to compare methods"):
        Contest("shells", x[:1], y[:1], ("plain",)).scored(0)
    with (
        pytest.raises(ValueError, match="rows are too few to compare with boosted trees"),
        pytest.warns(UserWarning, match=r"^0.9 intervals take"),  # and not for every level of a diagram
    ):
        Contest("shells", x[:11], y[:11], ("catboost",), epochs=1).scored(0)


# -- figures and the page --------------------------------------------------------------------------


def records(
    errors: dict[str, list[float]], few: float | None = 1.0, data: str = "shells"
) -> list[dict[str, Any]]:
    """Runs of methods, one for each seed; `few` scales the error of few-shot labels, None is no such row."""
    made = []
    for method, by_seed in errors.items():
        for seed, error in enumerate(by_seed):
            figures = dict.fromkeys(("mae", "rmse", "interval_score", "crps"), error)
            figures |= {"nll": 2 * error, "coverage": 0.9, "width": 4.0}
            scores: dict[str, Any] = {region: dict(figures) for region in ("all", "many", "medium")}
            rare = {"mae": 1.0, "rmse": 1.0, "nll": 3.0}
            scores["few"] = {k: None if few is None else few * error * v for k, v in rare.items()}
            scores["few"] |= (
                {"coverage": None, "width": None} if few is None else {"coverage": 0.8, "width": 5.0}
            )
            made.append(
                {
                    "data": data, "method": method, "title": method.upper(), "seed": seed, "digest": data,
                    "recipe": {"epochs": 3}, "rows": {"train": 1},
                    "metrics": {"raw": scores, "calibrated": scores},
                }
            )  # fmt: skip
    return made


CLEAR = {"a": [0.995, 1.005], "b": [1.995, 2.005]}


def test_the_page_has_three_charts_and_the_verdict() -> None:
    page = comparison_page(Results(records(CLEAR)), title="two methods", command="tailwise compare")
    assert "shells: A has the lowest error for few-shot labels (1), B is next (2)." in page
    ids = re.findall(r'\bid="([^"]+)"', page)
    assert page.count('role="img"') == 3 and len(ids) == len(set(ids))
    assert "A is first with 1. Bars are standard deviations over seeds." in page
    assert "tailwise compare" in page and "epochs: 3" in page.split("<details>")[-1]


def test_a_method_has_the_titles_of_all_its_seeds() -> None:
    """Trees learn the label with one seed and its logarithm with another."""
    lines = records(CLEAR)
    of_one = [line for line in lines if line["method"] == lines[0]["method"]]
    of_one[-1]["title"] = "its logarithm"
    title = Results(lines).titles[lines[0]["method"]]
    assert title == f"{of_one[0]['title']} or its logarithm"


def test_a_region_without_rows_has_no_chart_and_no_verdict() -> None:
    results = Results(records(CLEAR, few=None))
    assert comparison_verdict(results) == [
        "shells: no test row has a few-shot label, so the tail cannot be judged.",
        "shells: A has the lowest error over all test rows (1), B is next (2).",
    ]
    page = comparison_page(results, title="two", command="")
    assert page.count('role="img"') == 2
    assert method_cells(results, "shells")["A"][3] == "–"


@pytest.mark.parametrize(
    ("errors", "words"),
    [
        ({"a": [1.0], "b": [2.0]}, "; undecided, because one seed cannot tell"),
        ({"a": [0.5, 1.5], "b": [0.9, 1.3]}, "; undecided, because the difference is within its error"),
        ({"a": [1.0, 1.1], "b": [2.0, 2.1]}, "B is next (2.05)."),
    ],
)
def test_a_lead_within_the_spread_is_undecided(errors: dict[str, list[float]], words: str) -> None:
    assert words in comparison_verdict(Results(records(errors)))[1]


def test_cells_have_a_spread_only_with_several_seeds() -> None:
    cells = method_cells(Results(records({"a": [1.0, 1.1], "b": [2.0]})), "shells")
    assert [figure.name for figure in COLUMNS][:1] == ["MAE all"]
    assert cells["A"][0] == "1.05 ± 0.071" and cells["B"][0] == "2"
    assert cells["A"][4] == "1.05 ± 0.071" and cells["A"][-1] == "–" and cells["B"][-2] == "2"
    assert cells["A"][9] == "80% ± 0" and cells["B"][8] == "90%"


def test_gains_and_costs_against_baselines() -> None:
    errors = {"vanilla": [2.0, 2.2], "catboost": [1.5, 1.5], "a": [1.0, 1.2], "b": [1.9, 2.4]}
    lines = comparison_verdict(Results(records(errors)))[2:]
    assert [line.split(": MAE")[0] for line in lines] == [
        f"shells: {name} against {other}" for other in ("VANILLA", "CATBOOST") for name in ("A", "B")
    ]
    assert "MAE 1.1 against 2.1 for few-shot labels, 1.1 against" in lines[0]
    assert "2.15 against 2.1 (undecided) for few-shot labels" in lines[1]
    assert lines[0].endswith("; interval score 1.1 against 2.1 over all rows.")
    without = comparison_verdict(Results(records({"vanilla": [2.0], "a": [1.0]}, few=None)))[2:]
    assert len(without) == 1 and "few-shot" not in without[0]
    missing = records({"vanilla": [2.0], "a": [1.0]}) + records({"a": [1.0]}, data="sponges")
    assert sum(" against VANILLA" in line for line in comparison_verdict(Results(missing))) == 1
    (line,) = comparison_verdict(Results(records({"tail": [1.0, 1.0], "tail-balanced": [2.0, 2.0]})))[2:]
    assert line.startswith("shells: TAIL-BALANCED against TAIL: MAE 2 against 1 for few-shot")


def test_errors_along_the_label_are_averaged_over_seeds() -> None:
    runs = records({"a": [1.0, 1.0], "b": [2.0]})
    assert Results(runs).along_label("shells") == {}  # older runs do not have them
    runs[0]["along_label"] = {"center": [0.0, 10.0], "n": [1, 1], "mae": [1.0, 5.0]}
    runs[1]["along_label"] = {"center": [1.0, 9.0], "n": [3, 1], "mae": [2.0, 7.0]}  # other bins
    (curve,) = Results(runs).along_label("shells").values()
    assert curve.to_numpy().tolist() == [[0, 7 / 4], [10, 6]]
    page = comparison_page(Results(runs), title="", command="")
    assert page.count('role="img"') == 4 and "Mean absolute error along the label" in page


def test_the_picture_has_labels_errors_and_coverage() -> None:
    runs = records(CLEAR)
    for run in runs:
        run["along_label"] = {"center": [0.0], "n": [1], "mae": [1.0]}
        run["test_rows"] = {"many": 30, "medium": 20, "few": 10}
    bins = LabelBins.from_labels(np.repeat([0.0, 1.0, 2.0], [200, 50, 5]))
    picture = comparison_picture(Results(runs), bins, label="rings")
    labels, along, error, coverage = picture.axes
    (legend,) = picture.legends  # one for all charts of methods
    titles = list(Results(runs).titles.values())
    assert [text.get_text() for text in legend.get_texts()] == titles
    assert [ax.get_legend() for ax in (along, error, coverage)] == [None] * 3
    assert labels.get_xlabel() == along.get_xlabel() == "rings"
    assert [bar.get_height() for bar in error.containers[1]] == pytest.approx([1.0] * 3)
    assert [text.get_text() for text in coverage.get_xticklabels()][2] == "few-shot\n10 rows"
