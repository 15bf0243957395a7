"""`tailwise compare`, `report`, `demo` and `methods`."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

Run = Callable[..., Any]
Sample = Callable[..., pd.DataFrame]
FAST = ["--epochs", "1", "--quiet"]


def test_fit_and_compare_give_the_same_figures(
    run: Run, place: Path, tmp_path: Path, pages: list[Any]
) -> None:
    """For the same method and seed, and for the baselines of the page as well."""
    table = [place / "numbers.csv", "-t", "price"]
    out = run("compare", *table, "--seeds", 1, "-o", tmp_path / "r.jsonl", "--json", *FAST)
    assert out.exit_code == 0, out.output
    names = ["plain", "catboost", "catboost-weighted", "constant", "tail", "tail-balanced"]
    runs = {line["method"]: line for line in json.loads(out.stdout)["runs"]}
    assert list(runs) == names
    out = run(
        "fit", *table, "-o", tmp_path / "m", "--report", tmp_path / "m.html", "--seed", 0, "--json", *FAST
    )
    assert out.exit_code == 0, out.output
    printed = json.loads(out.stdout)
    for key, name in {"regions": "tail", "base": "catboost", "constant": "constant"}.items():
        metrics = runs[name]["metrics"]
        for region, figures in printed[key].items():
            if figures["n"]:
                calibrated = ("coverage", "width", "interval_score")
                for figure in ("mae", "rmse", *calibrated):
                    kind = "calibrated" if figure in calibrated else "raw"
                    assert figures[figure] == pytest.approx(metrics[kind][region][figure], rel=2e-5), name


def test_compare_writes_a_line_for_each_run_and_a_page(results: Path) -> None:
    runs = [json.loads(line) for line in results.read_text().splitlines()]
    order = [(run["seed"], run["method"]) for run in runs]
    assert order == [(0, "vanilla"), (0, "vir"), (1, "vanilla"), (1, "vir")]
    assert {run["data"] for run in runs} == {"numbers"}
    page = results.with_suffix(".html").read_text(encoding="utf-8")
    assert "VIR" in page and "price: 2 methods on numbers" in page
    assert sorted(p.name for p in results.parent.iterdir()) == ["r.html", "r.jsonl"]


def test_mistakes_are_refused_before_any_run(run: Run, sample: Sample, place: Path, tmp_path: Path) -> None:
    out = run("compare", place / "numbers.csv", "-t", "price", "--methods", "virr")
    assert out.exit_code == 1 and "'vir'" in out.stderr
    out = run("compare", place / "numbers.csv", "-t", "price", "--methods", ",")
    assert out.exit_code == 1 and "--methods names no method" in out.stderr
    out = run("compare", place / "numbers.csv", "-t", "price", "--methods", "catboost-lds")
    assert out.exit_code == 1 and "unknown method 'catboost-lds'" in out.stderr
    sample(4).to_csv(tmp_path / "tiny.csv", index=False)
    out = run("compare", tmp_path / "tiny.csv", "-t", "price", "--balanced", *FAST)
    assert out.exit_code == 1 and "4 rows are too few to compare methods" in out.stderr


# -- report --------------------------------------------------------------------------------------


def test_report_ranks_the_methods_of_a_results_file(run: Run, results: Path, tmp_path: Path) -> None:
    out = run("report", results, "-o", tmp_path / "again.html")
    assert out.exit_code == 0, out.output
    text = (tmp_path / "again.html").read_text(encoding="utf-8")
    assert "VIR" in text and 'role="img"' in text and "2 methods on numbers" in text


@pytest.mark.parametrize(
    ("text", "words"),
    [('{"a": 1}\n', "a line lacks 'data'"), ("[1]\n", "is not a results file"), ("3\n", "is not a results"),
     ("", "no finished run"), ("x,y\n", "line 1 is not JSON")],
)  # fmt: skip
def test_a_foreign_results_file(run: Run, tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "f.jsonl").write_text(text)
    out = run("report", tmp_path / "f.jsonl")
    assert out.exit_code == 1 and words in out.stderr and "not str" not in out.stderr
    assert not (tmp_path / "f.html").exists()


# -- demo and methods ----------------------------------------------------------------------------


DEMO = ["plain", "lds-fds-der", "catboost", "tail", "tail-balanced"]


def test_demo_writes_a_page_a_picture_and_the_runs(
    run: Run, results: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same without training: the runs are those of another table."""
    lines = [json.loads(line) for line in results.read_text().splitlines()]

    def run_contest(contest: Any, seeds: Any, **_: Any) -> Any:
        assert contest.balanced and contest.methods == ("plain", "lds-fds-der", "catboost", "tail")
        return [{**lines[0], "data": "abalone", "method": name, "title": name, "seed": 0} for name in DEMO]

    monkeypatch.setattr("tailwise.report.contest.run_contest", run_contest)
    out = run("demo", "--seeds", 1, "--out", tmp_path / "d")
    assert out.exit_code == 0, out.output
    page, picture, runs = (tmp_path / "d" / name for name in ("report.html", "demo.png", "results.jsonl"))
    assert "Rings: 5 methods on abalone" in page.read_text(encoding="utf-8")
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert [json.loads(line)["method"] for line in runs.read_text().splitlines()] == DEMO


def test_methods_are_listed(run: Run) -> None:
    listed = json.loads(run("methods", "--json").stdout)
    assert {"vir", "vanilla"} <= {method["name"] for method in listed}
    assert "vir" in run("methods").stdout
