"""`tailwise explain`: reasons of single rows as a table."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest

from tailwise import TailRegressor
from tests.cli.conftest import Run


def test_reasons_of_rows_sum_to_their_predictions(run: Run, place: Path, tmp_path: Path) -> None:
    model, table, out = place / "m.tailwise", place / "new.csv", tmp_path / "reasons.csv"
    told = ("--row", 7, "--row", 2, "--background-rows", 5)
    done = run("explain", model, table, "-o", out, *told, "--json")
    assert done.exit_code == 0, done.output
    found = pd.read_csv(out)
    shown = json.loads(done.stdout)
    assert shown["rows"] == 2 and shown["of"] == "prediction"
    columns = list(TailRegressor.load(model).feature_names_in_)
    rows = pd.read_csv(table)
    for row, lines in found.groupby("row"):
        predicted = TailRegressor.load(model).predict(rows[columns].iloc[[row]])
        assert lines["prediction"].iloc[0] == pytest.approx(predicted[0])
        assert lines["attribution"].sum() + shown["base"] == pytest.approx(predicted[0])
        assert sorted(lines["column"]) == sorted(columns)
        assert (lines["attribution"].abs().diff().dropna() <= 0).all()
    assert list(found["row"].unique()) == [7, 2]
    rows.loc[0, "z"] = None
    rows.to_csv(tmp_path / "missing.csv", index=False)
    told = ("--row", 0, "--of", "width", "--background", place / "houses.csv", "--background-rows", 3)
    done = run("explain", model, tmp_path / "missing.csv", "-o", out, *told, "--force")
    assert done.exit_code == 0 and "wrote the reasons of 1 row to" in done.stderr
    reasons = pd.read_csv(out).set_index("column")
    assert pd.isna(reasons["cell"]["z"]) and reasons["cell"]["kind"] in ("red", "blue") and "width" in reasons


def test_mistakes_are_named(run: Run, place: Path, tmp_path: Path) -> None:
    single = tmp_path / "single.csv"
    pd.read_csv(place / "new.csv")[:1].to_csv(single, index=False)
    new, out = place / "new.csv", tmp_path / "r.csv"
    for told, message in (
        ((new, "-o", out, "--row", 150), "no row 150: its last is row 149"),
        ((new, "-o", out, "--of", "widht"), "did you mean 'width'"),
        ((new, "-o", "-", "--json"), "both use standard output"),
        (("-", "-o", out, "--background", "-"), "only one of FILE and --background"),
        ((single, "-o", out), "give --background"),
    ):
        done = run("explain", place / "m.tailwise", *told)
        assert done.exit_code == 1 and message in done.stderr, done.output
    assert not out.exists()
