"""Notes about likely mistakes in a table."""

import re
from pathlib import Path
from typing import Any

import pandas as pd

from tests.cli.conftest import Run, Sample


def noted(run: Run, path: Path, *arguments: object) -> str:
    """What `fit` notes about a table before it trains, which the fixture `fits` prevents."""
    out = run("fit", path, "-t", "price", "-o", path.with_name("m"), *arguments)
    assert out.exit_code == 1 and "error: not trained" in out.stderr, out.output
    return str(out.stderr)


def test_columns_without_a_name_and_rows_without_a_label(
    run: Run, sample: Sample, tmp_path: Path, fits: list[Any]
) -> None:
    table = sample(60)
    table.loc[3, "price"] = None
    table.to_csv(tmp_path / "t.csv")  # with row numbers
    text = noted(run, tmp_path / "t.csv")
    assert "note: left out 1 column without a name\n" in text
    assert f"note: left out 1 row of {tmp_path / 't.csv'} without a value in 'price'\n" in text
    assert noted(run, tmp_path / "t.csv", "--quiet") == "error: not trained\n"


def test_columns_that_give_the_target_away(run: Run, sample: Sample, tmp_path: Path, fits: list[Any]) -> None:
    table, path = sample(60), tmp_path / "leak.csv"
    table.assign(copy=table["price"] * 2).to_csv(path, index=False)
    assert "--drop copy" in noted(run, path)
    table.assign(**{"a copy, too": table["price"] * 2}).to_csv(path, index=False)
    assert """--drop '"a copy, too"'""" in noted(run, path)
    assert "--drop" not in noted(run, path, "--drop", '"a copy, too"')
    assert "--drop" not in noted(run, path, "--drop", '"a copy, too",z')
    assert list(fits[-1].X.columns) == ["x"]


def test_numbers_as_text_and_a_constant_target(
    run: Run, sample: Sample, tmp_path: Path, fits: list[Any]
) -> None:
    sample(60).assign(price=7, fee=["$1,250.00", "$3.50"] * 30).to_csv(tmp_path / "odd.csv", index=False)
    text = noted(run, tmp_path / "odd.csv")
    assert "note: read column 'fee' as numbers in $; every table must have this unit" in text
    assert "the target 'price' is 7 in every row: there is nothing to learn" in text


def test_many_notes_are_counted(run: Run, tmp_path: Path, fits: list[Any]) -> None:
    words = {f"t{k}": [f"{i} {'%$'[i % 2]}" for i in range(25)] for k in range(9)}
    pd.DataFrame({**words, "price": range(25)}).to_csv(tmp_path / "wide.csv", index=False)
    text = noted(run, tmp_path / "wide.csv")
    assert text.count("may be read as text") == 5 and "note: 4 more columns are like this" in text


def test_many_zeros_are_noted_in_the_words_of_diagnose(
    run: Run, sample: Sample, tmp_path: Path, fits: list[Any]
) -> None:
    path = tmp_path / "claims.csv"
    sample().assign(price=lambda t: t["price"].where(t["z"] > 0, 0)).to_csv(path, index=False)
    printed = run("diagnose", path, "-t", "price").stdout
    (advice,) = re.findall(r"\d+% of the labels are exactly 0[^\n]*", printed)
    assert f"note: target 'price': {advice}\n" in noted(run, path)
