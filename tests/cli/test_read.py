"""Tables and models as commands read them: errors in one line, and notes about likely mistakes."""

import os
import re
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from tailwise.tables import columns
from tests.cli.conftest import Run, Sample

# -- what cannot be read -------------------------------------------------------------------------

TABLES = {
    "empty.csv": (b"", "is empty"),
    "header.csv": (b"x,price\n", "no rows"),
    "text.csv": (b"x,price\n1,cheap\n2,dear\n3,cheap\n", "must be numbers, but line 2 holds 'cheap'"),
    "binary.csv": (bytes(range(256)) * 30, "binary"),
    "zip.csv": (b"PK\x03\x04" + b"a" * 50, "Excel"),
    "twice.csv": (b"x,x,price\n1,2,3\n", "both named 'x'"),
    "ragged.csv": (b"x,price\n1,2\n1,2,3\n", "line 3"),
    "folder": (None, "is a folder"),
    "missing.csv": (None, "does not exist"),
}


@pytest.mark.parametrize("name", TABLES)
def test_unusable_tables_are_one_line_and_code_1(run: Run, place: Path, tmp_path: Path, name: str) -> None:
    content, words = TABLES[name]
    (tmp_path / "folder").mkdir()
    if content is not None:
        (tmp_path / name).write_bytes(content)
    commands = [["diagnose"], ["fit", "-o", tmp_path / "m"], ["compare"]]
    if name == "text.csv":  # the model is read first; once is enough
        commands.append(["evaluate", place / "n.tailwise"])
    for command in commands:
        out = run(*command, tmp_path / name, "-t", "price")
        assert out.exit_code == 1, command
        assert out.stderr.count("error:") == 1 and words in out.stderr, out.stderr
    assert not (tmp_path / "m").exists()
    assert content is None or (tmp_path / name).read_bytes() == content


def test_wrong_columns_name_the_nearest(run: Run, sample: Sample, place: Path, tmp_path: Path) -> None:
    sample(20).to_csv(tmp_path / "short.csv", index=False)
    out = run("predict", place / "m.tailwise", tmp_path / "short.csv", "-o", tmp_path / "p.csv")
    assert out.exit_code == 1 and "no column 'kind'" in out.stderr
    assert "its columns are x, z, price. The model was trained with it." in out.stderr
    out = run("predict", place / "n.tailwise", place / "new.csv", "-o", tmp_path / "p.csv", "--keep", "kin")
    assert out.exit_code == 1 and "'kind'" in out.stderr


def test_infinite_numbers_are_an_error_before_any_training(
    run: Run, sample: Sample, place: Path, tmp_path: Path
) -> None:
    table = sample(60)
    endless = table.assign(x=table["x"].where(table.index != 4, float("inf")))
    endless.to_csv(tmp_path / "t.csv", index=False)
    out = run("fit", tmp_path / "t.csv", "-t", "price", "-o", tmp_path / "m", "--epochs", "1")
    assert out.exit_code == 1 and "column 'x' is infinite in line 6" in out.stderr
    assert [p.name for p in tmp_path.iterdir()] == ["t.csv"]
    endless.assign(kind="red").to_csv(tmp_path / "t.csv", index=False)
    out = run("predict", place / "n.tailwise", tmp_path / "t.csv", "-o", tmp_path / "p.csv")
    assert out.exit_code == 1 and "column 'x' is infinite in line 6" in out.stderr


# -- weights -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--weight", "W"], "has no column 'W'; did you mean 'w'?"),
        (["--weight", "price"], "column 'price' is the target: name another column with --weight"),
        (["--weight", "none"], "the weight 'none' is 0 in every row"),
        (["--weight", "day"], "line 2 holds '2024-01-0"),
        (["--weight", "w", "--method", "smogn"], "smogn"),
        (["--groups", "price"], "column 'price' is the target: name another column with --groups"),
        (["--time", "price"], "column 'price' is the target: name another column with --time"),
        (["--time", "late"], "time must be numbers or dates such as 2024-01-31, and row 2 is '02.01.2024'"),
    ],
)
def test_roles_that_cannot_be_meant_are_one_line(
    run: Run, sample: Sample, tmp_path: Path, arguments: list[str], words: str
) -> None:
    rows = range(40)
    table = sample(40).assign(
        w=[1 + i / 7 for i in rows],
        none=0,
        day=[f"2024-01-0{1 + i % 9}" for i in rows],
        late=["2024-01-01", "2024-01-02", "02.01.2024", "2024-01-03"] * 10,
    )
    table.to_csv(tmp_path / "some.csv", index=False)
    out = run("fit", tmp_path / "some.csv", "-t", "price", "-o", tmp_path / "m", *arguments, "--quiet")
    assert out.exit_code == 1 and words in out.stderr, out.output
    assert out.stderr.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["some.csv"]


# -- notes ---------------------------------------------------------------------------------------


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
    assert "note: column 'fee' may be read as text because of cells such as '$1,250.00': for numbers" in text
    assert "the target 'price' is 7 in every row: there is nothing to learn" in text


def test_many_notes_are_counted_and_too_many_columns_of_text_are_refused_at_once(
    run: Run, tmp_path: Path, fits: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "wide.csv"
    words = {f"t{k}": [f"{i} %" for i in range(25)] for k in range(9)}
    pd.DataFrame({**words, "price": range(25)}).to_csv(path, index=False)
    text = noted(run, path)
    assert text.count("may be read as text") == 5 and "note: 4 more columns are like this" in text
    monkeypatch.setattr(columns, "MOST_COLUMNS", 8)
    refused = run("fit", path, "-t", "price", "-o", tmp_path / "m")
    assert refused.exit_code == 1 and not (tmp_path / "m").exists()
    said = " ".join(refused.stderr.split())
    assert said.startswith("error: 9 columns are not numbers, and at most 8 can be encoded: leave out those")


def test_many_zeros_are_noted_in_the_words_of_diagnose(
    run: Run, sample: Sample, tmp_path: Path, fits: list[Any]
) -> None:
    path = tmp_path / "claims.csv"
    sample().assign(price=lambda t: t["price"].where(t["z"] > 0, 0)).to_csv(path, index=False)
    printed = run("diagnose", path, "-t", "price").stdout
    (advice,) = re.findall(r"\d+% of the labels are exactly 0[^\n]*", printed)
    assert f"note: target 'price': {advice}\n" in noted(run, path)


# -- what was accepted without a word --------------------------------------------------------------

JSON = b'[{"x": 1, "price": 2}]'
NUL = b"x,price\n1,2\n3\x00,4\n"


@pytest.mark.parametrize(
    ("content", "arguments", "words"),
    [
        (b"x,price\n" + b"1,1e-310\n2,3e-310\n3,7e-310\n" * 20, [], "too close together for float64"),
        (NUL, ["--encoding", "utf-8"], "holds a NUL character in line 3: remove it"),
        (b"x,z,price\n" + b",,1\n,,2\n" * 20, [], "every input is empty in all rows"),
        (JSON, [], "is a JSON file: save the table as CSV or Parquet"),
        (JSON[1:-1] + b"\n", [], "is a JSON file: save the table as CSV or Parquet"),
        (
            b"x,price\n1,2\n,\n" + b"2,1\n3,5\n4,7\n" * 20,
            ["--bounds", "0,6"],
            "the target 'price' is 7 in line 6, above the bound 6 (20 such rows)",
        ),
    ],
)
def test_a_table_that_cannot_be_meant_is_one_line(
    run: Run, tmp_path: Path, content: bytes, arguments: list[str], words: str
) -> None:
    (tmp_path / "t.csv").write_bytes(content)
    out = run("fit", tmp_path / "t.csv", "-t", "price", "-o", tmp_path / "m", "--quiet", *arguments)
    assert out.exit_code == 1 and out.stderr.startswith("error: ") and words in out.stderr, out.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["t.csv"]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")
def test_a_pipe_without_a_writer_is_refused_and_leaves_nothing(run: Run, place: Path, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for line, words in (
        (["fit", pipe, "-t", "price", "-o", tmp_path / "m"], "name a file, or - for standard input"),
        (["predict", pipe, place / "new.csv", "-o", tmp_path / "p.csv"], "not a saved model"),
        (["fit", place / "numbers.csv", "-t", "price", "-o", tmp_path / "m", "--sign", pipe], "name a file"),
    ):
        out = run(*line)
        assert out.exit_code == 1 and f"pipe is a pipe or a device, {words}" in out.stderr.replace(":", ",")
    assert [path.name for path in tmp_path.iterdir()] == ["pipe"]


def test_a_key_that_is_the_table_is_refused(run: Run, place: Path, tmp_path: Path) -> None:
    table = place / "numbers.csv"
    for line in (
        ["fit", table, "-t", "price", "-o", tmp_path / "m"],
        ["recalibrate", place / "n.tailwise", table, "-o", tmp_path / "m"],
    ):
        out = run(*line, "--sign", table)
        assert out.exit_code == 1 and "numbers.csv is an input and the key: name a file with" in out.stderr
    (tmp_path / "key").write_text("a secret of some length")
    out = run("fit", table, "-t", "price", "-o", tmp_path / "key", "--sign", tmp_path / "key", "--force")
    assert out.exit_code == 1 and "key is also an input" in out.stderr
