"""`tailwise fit`: files written, figures printed, mistakes refused."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from tailwise import TailRegressor
from tailwise.tables.encode import TablePreprocessor
from tests.cli.conftest import FAST, QUICK, Run, Sample, predicted


def test_fit_writes_a_model_and_a_report_and_nothing_else(place: Path) -> None:
    left = sorted(p.name for p in place.iterdir() if p.name.startswith("m."))
    assert left == ["m.html", "m.tailwise"]
    page = (place / "m.html").read_text(encoding="utf-8")
    for part in ("Verdict", "CatBoost", "constant", "interval score", 'id="emphasis"', "red"):
        assert part in page
    assert len(page) < 2_000_000


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["prices", "claims", "duplicated", "no base"])
def test_every_command_gives_the_same_verdict(run: Run, tmp_path: Path, kind: str) -> None:
    """The page, `fit` and `evaluate` see the same baselines: those that the model holds."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(400, 3)).round(6)
    y = np.exp(x[:, 0] + 0.3 * rng.normal(size=400))
    y = np.where(rng.random(400) < 0.62, 0.0, y) if kind == "claims" else y
    table = pd.DataFrame(x, columns=list("abc")).assign(y=y.round(4))
    train, test = (table, table.head(150)) if kind == "duplicated" else (table[150:], table[:150])
    for name, rows in (("train.csv", train), ("test.csv", test)):
        rows.to_csv(tmp_path / name, index=False)
    told = ["--test", tmp_path / "test.csv", "--epochs", 5, "--json"]
    told += ["--base", "none"] if kind == "no base" else []
    line = ["fit", tmp_path / "train.csv", "-t", "y", *told]
    fitted = run(*line, "-o", tmp_path / "m", "--report", tmp_path / "m.html")
    assert fitted.exit_code == 0, fitted.output
    printed = json.loads(fitted.stdout)
    assert printed["repeated_test_rows"] == (150 if kind == "duplicated" else 0)
    assert ("name a column of groups with --groups" in fitted.stderr) == (kind == "duplicated")
    again = json.loads(run("evaluate", tmp_path / "m", tmp_path / "test.csv", "--json").stdout)
    plain = json.loads(run(*line, "-o", tmp_path / "n").stdout)
    for key in ("verdict", "regions", "base", "constant"):
        assert again[key] == printed[key]
    for key in ("verdict", "regions", "base", "constant"):
        assert plain[key] == printed[key]


def test_a_test_table(run: Run, place: Path, tmp_path: Path) -> None:
    out = run("fit", place / "numbers.csv", "-t", "price", "-o", tmp_path / "m", "--test", place / "new.csv",
              "--json", *FAST)  # fmt: skip
    assert out.exit_code == 0, out.output
    assert json.loads(out.stdout)["regions"]["all"]["n"] == 150


def test_a_tail_that_cannot_be_judged_needs_more_test_rows(run: Run, sample: Sample, tmp_path: Path) -> None:
    sample(40).to_csv(tmp_path / "t.csv", index=False)
    out = run("fit", tmp_path / "t.csv", "-t", "price", "-o", tmp_path / "m", "--epochs", "1")
    assert out.exit_code == 0, out.output
    assert "Nothing can be judged: 8 test rows are too few." in out.stdout
    assert "note: a larger --test-share, or a table given with --test" in out.stderr


def test_weights_reach_the_model_and_are_not_an_input(
    run: Run, sample: Sample, place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pages: list[Any]
) -> None:
    table = sample().assign(w=lambda t: 1.5 + (t["x"] > 0))
    table.loc[3, ["price", "w"]] = None  # a row without a label needs no weight
    table.to_csv(tmp_path / "weighed.csv", index=False)
    given = []
    fit = TailRegressor.fit

    def seen(self: TailRegressor, X: Any, y: Any, **options: Any) -> TailRegressor:
        given.append((self, X, options["sample_weight"]))
        return fit(self, X, y, **options)

    monkeypatch.setattr(TailRegressor, "fit", seen)
    line = ["fit", tmp_path / "weighed.csv", "-t", "price", "--seed", "3", *FAST]
    out = run(*line, "-o", tmp_path / "m", "--weight", "w", "--report", tmp_path / "m.html")
    assert out.exit_code == 0, out.output
    assert (tmp_path / "m.html").read_text() == "page"
    facts = pages[0]
    assert (facts.weight, facts.source, facts.target) == ("w", "weighed.csv", "price")
    assert facts.trained_here and facts.seconds > 0
    out = run(*line, "-o", tmp_path / "n", "--weight", "w", "--test", place / "new.csv")
    assert out.exit_code == 0, out.output
    assert [model.method for model, *_ in given] == ["vir-dial", "vir-dial"]
    for _, X, weights in given:
        assert list(X.columns) == ["x", "z"]
        assert list(weights) == list(1.5 + (X["x"] > 0))  # each row its own, whichever were held out
    assert len(predicted(run, tmp_path / "m", place / "new.csv")) == 150  # a table without w


def test_bounds_hold_for_every_interval(run: Run, place: Path, tmp_path: Path) -> None:
    numbers = place / "numbers.csv"
    told = ("-t", "price", "-o", tmp_path / "m", "--epochs", "1", "--base", "none", "--folds", "1", "-q")
    assert run("fit", numbers, *told, "--bounds", "observed").exit_code == 0
    assert run("predict", tmp_path / "m", numbers, "-o", tmp_path / "p.csv").exit_code == 0
    table, found = pd.read_csv(numbers), pd.read_csv(tmp_path / "p.csv")
    assert found["lower"].min() >= table["price"].min() and found["upper"].max() <= table["price"].max()


def test_intervals_by_a_column(run: Run, place: Path, tmp_path: Path) -> None:
    line = ["fit", place / "numbers.csv", "-t", "price", "-o", tmp_path / "m", *FAST, "--conformal-by"]
    column = next(name for name in pd.read_csv(place / "numbers.csv") if name != "price")
    out = run(*line, column)
    assert out.exit_code == 0, out.output
    assert f"By the column {column}" in TailRegressor.load(tmp_path / "m").explain_intervals()
    out = run("export", tmp_path / "m")
    assert out.exit_code == 1 and "fit it without --conformal-by" in out.stderr


def test_test_rows_are_encoded_once(
    run: Run, place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Verdict, charts and reasons reuse it."""
    encoded, matrix = [], TablePreprocessor.matrix

    def counted(self: TablePreprocessor, X: Any) -> Any:
        encoded.append(len(X))
        return matrix(self, X)

    monkeypatch.setattr(TablePreprocessor, "matrix", counted)
    line = ["fit", place / "numbers.csv", "-t", "price", "-o", tmp_path / "m", "--test", place / "new.csv"]
    out = run(*line, "--report", tmp_path / "m.html", "--base", "none", "--folds", 2, *QUICK)
    assert out.exit_code == 0, out.output
    assert encoded.count(150) == 1  # new.csv
    assert "Which columns drive the tail" in (tmp_path / "m.html").read_text()
