"""Commands that need no model: `compare`, `report`, `demo`, `methods`, `diagnose` and `doctor`."""

import json
import math
import re
from pathlib import Path
from typing import Any

import pytest

from tailwise import TailRegressor
from tests.cli.conftest import FAST, QUICK, Run, Sample


def test_fit_and_compare_give_the_same_figures(
    run: Run, place: Path, tmp_path: Path, pages: list[Any]
) -> None:
    """For the same method and seed, and for the baselines of the page as well."""
    table = [place / "numbers.csv", "-t", "price"]
    out = run("compare", *table, "--seeds", 1, "-o", tmp_path / "r.jsonl", "--json", *QUICK)
    assert out.exit_code == 0, out.output
    names = ["plain", "catboost", "catboost-weighted", "constant", "tail", "tail-balanced"]
    runs = {line["method"]: line for line in json.loads(out.stdout)["runs"]}
    assert list(runs) == names
    out = run(
        "fit", *table, "-o", tmp_path / "m", "--report", tmp_path / "m.html", "--seed", 0, "--json", *QUICK
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


# -- report --------------------------------------------------------------------------------------


def test_report_ranks_the_methods_of_a_results_file(run: Run, results: Path, tmp_path: Path) -> None:
    out = run("report", results, "-o", tmp_path / "again.html")
    assert out.exit_code == 0, out.output
    text = (tmp_path / "again.html").read_text(encoding="utf-8")
    assert "VIR" in text and 'role="img"' in text and "2 methods on numbers" in text


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


# -- diagnose and doctor ---------------------------------------------------------------------------


def test_words_and_a_picture(run: Run, place: Path, tmp_path: Path) -> None:
    out = run("diagnose", place / "houses.csv", "--target", "price", "--plot", tmp_path / "p.png")
    assert out.exit_code == 0 and "Verdict:" in out.stdout
    assert (tmp_path / "p.png").read_bytes().startswith(b"\x89PNG")


def test_a_file_of_labels_alone(run: Run, tmp_path: Path) -> None:
    only = tmp_path / "only.csv"
    only.write_text("y\n" + "\n".join(map(str, range(200))) + "\n")
    assert json.loads(run("diagnose", only, "-t", "y", "--json").stdout)["n"] == 200


def test_fit_takes_the_edges_that_diagnose_prints(run: Run, sample: Sample, tmp_path: Path) -> None:
    table = sample(400).assign(price=lambda t: (3 * t["x"] + t["z"]).map(math.exp))
    table.to_csv(tmp_path / "skewed.csv", index=False)
    out = run("diagnose", tmp_path / "skewed.csv", "-t", "price")
    advised = re.search(r"--bins ([\d.e+-]+(?:,[\d.e+-]+)+)", out.stdout)
    assert advised is not None, out.stdout
    line = ["fit", tmp_path / "skewed.csv", "-t", "price", "-o", tmp_path / "m", *FAST]
    out = run(*line, "--bins", advised[1])
    assert out.exit_code == 0, out.output
    bins = TailRegressor.load(tmp_path / "m").bins_
    assert len(bins) == 20 and bins.counts.max() < 0.5 * bins.counts.sum()


def test_an_unforeseen_error_is_one_line_too(run: Run, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import tailwise.report.diagnosis

    def broken(*_: object, **__: object) -> None:
        raise KeyError("surprise")

    monkeypatch.setattr(tailwise.report.diagnosis, "diagnose", broken)
    out = run("diagnose", place / "houses.csv", "-t", "price")
    assert out.exit_code == 1 and "unexpected KeyError" in out.stderr and "TAILWISE_DEBUG" in out.stderr
    monkeypatch.setenv("TAILWISE_DEBUG", "1")
    assert isinstance(run("diagnose", place / "houses.csv", "-t", "price").exception, KeyError)


def test_doctor_names_versions_and_extras(run: Run) -> None:
    facts = json.loads(run("doctor", "--json").stdout)
    assert facts["packages"]["numpy"] and facts["devices"][0] == "cpu" and facts["threads"] >= 1
    assert set(facts["extras"].get("serve", {})) <= {"fastapi", "pydantic", "uvicorn", "prometheus-client"}
    assert "numpy" in run("doctor").stdout
