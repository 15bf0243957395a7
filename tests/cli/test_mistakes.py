"""Mistakes in any command: one line that says what is wrong, before any work, and no file is touched."""

import os
import shlex
import shutil
from pathlib import Path

import pandas as pd
import pytest

from tailwise.cli.options import parse_bins
from tests.cli.conftest import Run, Sample

FILES = {
    "empty.csv": b"",
    "header.csv": b"x,price\n",
    "text.csv": b"x,price\n1,cheap\n2,dear\n3,cheap\n",
    "binary.csv": bytes(range(256)) * 30,
    "zip.csv": b"PK\x03\x04" + b"a" * 50,
    "twice.csv": b"x,x,price\n1,2,3\n",
    "ragged.csv": b"x,price\n1,2\n1,2,3\n",
    "single.csv": b"x,z,price\n1,2,3\n",
    "infinite.csv": b"x,z,price\n" + b"1,2,3\n2,2,4\n3,2,5\n4,1,6\n5,inf,7\n" + b"2,4,8\n" * 30,
    "close.csv": b"x,price\n" + b"1,1e-310\n2,3e-310\n3,7e-310\n" * 20,
    "nul.csv": b"x,price\n1,2\n3\x00,4\n",
    "hollow.csv": b"x,z,price\n" + b",,1\n,,2\n" * 20,
    "beyond.csv": b"x,price\n1,2\n,\n" + b"2,1\n3,5\n4,7\n" * 20,
    "list.csv": b'[{"x": 1, "price": 2}]',
    "object.csv": b'{"x": 1, "price": 2}\n',
    "far.csv": b"price\n1000\n2000\n",
    "words.csv": b"price\nhigh\n2\n",
    "others.csv": b"cost,x\n1,2\n",
    "missing.csv": b"price,x\n,2\n",
    "a.jsonl": b'{"a": 1}\n',
    "list.jsonl": b"[1]\n",
    "three.jsonl": b"3\n",
    "none.jsonl": b"",
    "key": b"a secret of some length",
}
NEW = "n.tailwise new.csv"
FIT = "fit numbers.csv -t price -o never"
ROLES = "fit roles.csv -t price -o never --quiet"
MISTAKES = {
    # tables
    **{
        f"{command} {table} -t price": words
        for command in ("diagnose", "fit -o never", "compare")
        for table, words in {
            "empty.csv": "is empty",
            "header.csv": "no rows",
            "text.csv": "must be numbers, but line 2 holds 'cheap'",
            "binary.csv": "binary",
            "zip.csv": "Excel",
            "twice.csv": "both named 'x'",
            "ragged.csv": "line 3",
            "folder": "is a folder",
            "gone.csv": "does not exist",
        }.items()
    },
    "evaluate n.tailwise text.csv -t price": "must be numbers, but line 2 holds 'cheap'",
    "fit infinite.csv -t price -o never": "column 'z' is infinite in line 6",
    "predict n.tailwise infinite.csv -o never.csv": "column 'z' is infinite in line 6",
    "fit close.csv -t price -o never": "too close together for float64",
    "fit nul.csv -t price -o never --encoding utf-8": "holds a NUL character in line 3: remove it",
    "fit hollow.csv -t price -o never": "every input is empty in all rows",
    "fit list.csv -t price -o never": "is a JSON file: save the table as CSV or Parquet",
    "fit object.csv -t price -o never": "is a JSON file: save the table as CSV or Parquet",
    # columns
    "diagnose numbers.csv -t prise": "did you mean 'price'?",
    "fit numbers.csv -t prise -o never": "did you mean 'price'?",
    "fit houses.csv -t price -o never --test numbers.csv": "no column 'kind'",
    "predict m.tailwise numbers.csv -o never.csv": "its columns are x, z, price. The model was trained",
    f"predict {NEW} -o never.csv --keep kin": "'kind'",
    f"evaluate {NEW} -t kind": "must be numbers, but line 2 holds",
    f"evaluate {NEW} -t price -t price": "as a target twice",
    f"evaluate {NEW} --by siz": "'siz'",
    "evaluate n.tailwise others.csv": "others.csv has no column 'price', the model's target",
    f"{ROLES} --weight W": "has no column 'W'; did you mean 'w'?",
    f"{ROLES} --weight price": "column 'price' is the target: name another column with --weight",
    f"{ROLES} --weight none": "the weight 'none' is 0 in every row",
    f"{ROLES} --weight day": "line 2 holds '2024-01-0",
    f"{ROLES} --weight w --method smogn": "smogn",
    f"{ROLES} --groups price": "column 'price' is the target: name another column with --groups",
    f"{ROLES} --groups shop": "column 'shop' is empty in line 6",
    f"{ROLES} --time price": "column 'price' is the target: name another column with --time",
    f"{ROLES} --time late": "time must be numbers or dates such as 2024-01-31, and row 2 is '02.01.2024'",
    f"{FIT} --conformal-by siz --epochs 1": "column of conformal_by",
    # options
    f"{FIT} --method vri": "'vir'",
    f"{FIT} --option evidence.wieght=1": "'weight'",
    f"{FIT} --option what": "NAME=VALUE",
    f"{FIT} --option evidence.weight=abc": "error: evidence.weight must be a number, got 'abc'",
    f"{FIT} --option kl.mean=yes": "error: kl.mean must be true or false, got 'yes'",
    f"{FIT} --backbone mpl": "'mlp'",
    f"{FIT} --bins 1000,2000,3000": "edges from 1000 to 3000 leave out",
    f"{FIT} --bounds 0,oops": "--bounds takes observed, or the smallest and largest",
    f"{FIT} --bounds 1e6,": "below the bound 1000000",
    "fit beyond.csv -t price -o never --bounds 0,6": "is 7 in line 6, above the bound 6 (20 such rows)",
    f"{FIT} --emphasis -1": "not '-1'",
    f"{FIT} --workers 2": "--workers is the number of processes on a Ray cluster: give --ray",
    f"{FIT} --ray nowhere": "'nowhere' is not the address of a Ray cluster",
    f"{FIT} --stream": "--stream and --ray are for Parquet files and folders",
    f"{FIT} --test-share 0 --report never.html": "raise --test-share or give --test",
    "fit - -t price -o never --test -": "only one of FILE and --test can be -",
    f"predict {NEW} -o never.csv --emphasis 2": "--emphasis takes a number from 0 to 1, or auto, not '2'",
    f"predict {NEW} -o never.csv --emphasis lots": "not 'lots'",
    f"predict {NEW} -o never.csv --emphasis 1 --label-prior far.csv": "--emphasis or --label-prior, not both",
    "evaluate n.tailwise - --label-prior -": "only one of FILE and --label-prior",
    f"predict {NEW} -o never.csv --label-prior far.csv": "far.csv: the label prior has no mass between",
    f"predict {NEW} -o never.csv --label-prior words.csv": "words.csv: the column 'price' must be numbers",
    f"predict {NEW} -o never.csv --label-prior others.csv": "others.csv has no column 'price'",
    f"predict {NEW} -o never.csv --label-prior missing.csv": "missing.csv: the column 'price' is empty",
    f"explain {NEW} -o never.csv --row 150": "no row 150: its last is row 149",
    f"explain {NEW} -o never.csv --of widht": "did you mean 'width'",
    f"explain {NEW} -o - --json": "both use standard output",
    "explain n.tailwise - -o never.csv --background -": "only one of FILE and --background",
    "explain n.tailwise single.csv -o never.csv": "give --background",
    "compare numbers.csv -t price --methods virr": "did you mean 'vir'?",
    "compare numbers.csv -t price --methods ,": "--methods names no method",
    "compare numbers.csv -t price --methods catboost-lds": "unknown method 'catboost-lds'",
    "compare single.csv -t price --balanced": "1 rows are too few to compare methods",
    "diagnose numbers.csv -t price --plot p.xyz": ".png, .svg or .pdf",
    # several targets
    "fit both.csv -t rent -t price -o never --report never.html": "`tailwise evaluate never FILE",
    "fit both.csv -t rent -t rent -o never": "'rent' is named as a target twice",
    "evaluate pair both.csv --report never.html": "choose it with --target",
    "evaluate pair both.csv -t x": "the model's targets are rent, price",
    "evaluate pair both.csv --label-prior others.csv": "others.csv has no column 'rent'",
    "compare both.csv -t rent -t price": "takes one --target",
    # models and other files
    "predict houses.csv new.csv -o never.csv": "is not a saved tailwise model",
    "export gone.tailwise": "gone.tailwise does not exist",
    "serve gone.tailwise --port 0": "does not exist",
    "serve n.tailwise --verify key": "is not signed",
    f"recalibrate {NEW} -o never --verify key": "sign",
    "card n.tailwise -o never.md --report new.csv": "new.csv is not the output of `tailwise evaluate --json`",
    "card n.tailwise -o never.md --report a.jsonl": "a.jsonl is not the output of `tailwise evaluate --json`",
    "report a.jsonl": "a line lacks 'data'",
    "report list.jsonl": "is not a results file",
    "report three.jsonl": "is not a results",
    "report none.jsonl": "no finished run",
    "report houses.csv": "houses.csv, line 1 is not JSON",
    # outputs
    "demo --out houses.csv": "houses.csv is a file",
    f"{FIT} --report never.pdf": "a report is an HTML page, but never.pdf ends in .pdf",
    "fit numbers.csv -t price -o -": "only predictions can be written to -",
    f"evaluate {NEW} --report -": "only predictions can be written to -",
    f"predict {NEW} -o - --json": "both use standard output",
    "fit numbers.csv -t price -o never --report never": "--report name the same file",
    "fit numbers.csv -t price -o .": ". is a folder: name a file in it",
    "fit numbers.csv -t price -o new.csv/m": "cannot write new.csv/m: no file can be",
    f"predict {NEW} -o t.xlsx": "use .csv",
    "predict n.tailwise new.csv -o new.csv --force": "also an input",
    "fit numbers.csv -t price -o key": "--force",
    f"{FIT} --report key": "--force",
    f"predict {NEW} -o others.csv": "--force",
    "fit numbers.csv -t price -o key --sign key --force": "key is also an input",
    f"{FIT} --sign gone": "cannot use",
    f"{FIT} --sign list.jsonl": "a key needs at least 16",
}
"""A command in a folder of tables and models, and words of its error."""


@pytest.fixture(scope="module")
def desk(
    place: Path, pair: Path, sample: Sample, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, dict[str, bytes]]:
    """A folder of tables and models, and what its files hold."""
    folder = tmp_path_factory.mktemp("desk")
    for name in ("houses.csv", "numbers.csv", "new.csv", "m.tailwise", "n.tailwise"):
        shutil.copy(place / name, folder)
    shutil.copy(pair / "both.csv", folder)
    shutil.copy(pair / "m", folder / "pair")
    rows = range(40)
    sample(40).assign(
        w=[1 + i / 7 for i in rows],
        none=0,
        day=[f"2024-01-0{1 + i % 9}" for i in rows],
        late=["2024-01-01", "2024-01-02", "02.01.2024", "2024-01-03"] * 10,
        shop=[None if i == 4 else "a" for i in rows],
    ).to_csv(folder / "roles.csv", index=False)
    for name, content in FILES.items():
        (folder / name).write_bytes(content)
    (folder / "folder").mkdir()
    return folder, contents(folder)


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


@pytest.mark.parametrize("line", MISTAKES)
def test_a_mistake_is_one_line(
    run: Run, desk: tuple[Path, dict[str, bytes]], monkeypatch: pytest.MonkeyPatch, line: str
) -> None:
    folder, before = desk
    monkeypatch.chdir(folder)
    out = run(*shlex.split(line))
    assert (out.exit_code, out.stdout) == (1, ""), out.output
    (error,) = (said for said in out.stderr.splitlines() if said.startswith("error: "))
    assert MISTAKES[line] in error and "unexpected" not in error and "not str" not in error
    assert contents(folder) == before


@pytest.mark.parametrize(
    "line",
    ["fit houses.csv", f"{FIT} --epochs many", f"{FIT} --nonsense", "nonsense"]
    + [
        f"{command} --plugin gone.py"
        for command in (
            *(
                FIT,
                f"predict {NEW} -o p.csv",
                f"evaluate {NEW}",
                f"explain {NEW} -o p.csv",
                "serve n.tailwise",
            ),
            *("export n.tailwise", f"recalibrate {NEW} -o n", "card n.tailwise -o c.md"),
            "compare numbers.csv -t price",
        )
    ],
)
def test_wrong_usage_is_code_2(
    run: Run, desk: tuple[Path, dict[str, bytes]], monkeypatch: pytest.MonkeyPatch, line: str
) -> None:
    monkeypatch.chdir(desk[0])
    out = run(*shlex.split(line))
    assert out.exit_code == 2 and ("gone.py does not exist" in " ".join(out.stderr.split())) == (
        "gone.py" in line
    )
    assert contents(desk[0]) == desk[1]


@pytest.mark.parametrize("given", ["0", "2.5", "0,1,1,2", "0,10,5", "0,1,", "0,ten", "0,nan", ""])
def test_wrong_bins(given: str) -> None:
    with pytest.raises(ValueError, match="a whole number of bins, or increasing edges") as raised:
        parse_bins(given)
    assert str(raised.value).endswith(f"not {given!r}")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")
def test_a_pipe_without_a_writer_is_refused_and_leaves_nothing(run: Run, place: Path, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for line, words in (
        (["fit", pipe, "-t", "price", "-o", tmp_path / "m"], "name a file, or - for standard input"),
        (["predict", pipe, place / "new.csv", "-o", tmp_path / "p.csv"], "not a saved model"),
    ):
        out = run(*line)
        assert out.exit_code == 1 and f"pipe is a pipe or a device, {words}" in out.stderr.replace(":", ",")
    assert [path.name for path in tmp_path.iterdir()] == ["pipe"]


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="no /proc here")
@pytest.mark.parametrize("path", ["/proc/m", "/proc/folder/m"])
def test_a_folder_that_takes_no_files_is_refused_before_any_training(
    run: Run, place: Path, path: str
) -> None:
    for where in (["-o", path], ["-o", place / "never", "--report", path]):
        out = run("fit", place / "houses.csv", "-t", "price", "--epochs", "1", *where)
        assert out.exit_code == 1 and len(out.stderr.splitlines()) == 1, out.output
        assert out.stderr.startswith(f"error: cannot write {path}: no file can be created in /proc (")
    assert not (place / "never").exists()


def test_many_columns_of_text_are_refused_at_once(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = {f"t{k}": [f"{i} {'%$'[i % 2]}" for i in range(25)] for k in range(9)}
    pd.DataFrame({**words, "price": range(25)}).to_csv(tmp_path / "wide.csv", index=False)
    monkeypatch.setattr("tailwise.tables.columns.MOST_COLUMNS", 8)
    refused = run("fit", tmp_path / "wide.csv", "-t", "price", "-o", tmp_path / "m")
    said = " ".join(refused.stderr.split())
    assert said.startswith("error: 9 columns are not numbers, and at most 8 can be encoded: leave out those")
