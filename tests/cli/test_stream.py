"""Commands on tables that are read in parts: folders of Parquet files, and large files."""

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tailwise import TailRegressor
from tailwise.cli import read as streams
from tailwise.cli.options import Shared
from tests.cli.conftest import QUICK, Run

ROWS = 500


def rows() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    data = pd.DataFrame({"a": rng.normal(size=ROWS), "c": rng.choice(list("uvw"), ROWS)})
    data["y"] = np.exp(data.a) + 0.1 * rng.normal(size=ROWS)
    return data


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two files of three row groups each."""
    place = tmp_path / "rows.parquet"
    place.mkdir()
    for k, name in enumerate(("a", "b")):
        rows().iloc[250 * k : 250 * k + 250].to_parquet(place / f"{name}.parquet", row_group_size=100)
    return place


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model") / "m.tailwise"
    TailRegressor(base=None, folds=1, epochs=1, random_state=0).fit_batches([rows()], "y").save(path)
    return path


def error_of(result: Any) -> str:
    assert result.exit_code == 1
    assert isinstance(result.exception, SystemExit)
    return str(result.stderr)


def test_fit_on_a_folder_measures_on_rows_that_training_did_not_see(
    run: Run, folder: Path, tmp_path: Path
) -> None:
    out = tmp_path / "m.tailwise"
    done = run("fit", folder, "--target", "y", "--out", out, "--base", "none", *QUICK, "--json")
    assert done.exit_code == 0, done.stderr
    tested = json.loads(done.stdout)["regions"]["all"]["n"]
    fitted = TailRegressor.load(out)
    assert 60 < tested < 140
    assert fitted.bins_.counts.sum() == round(0.8 * (ROWS - tested))  # the others are held out
    assert sorted(os.listdir(tmp_path)) == ["m.tailwise", "rows.parquet"]


@pytest.mark.slow
def test_a_streamed_model_has_a_report_and_exports(run: Run, folder: Path, tmp_path: Path) -> None:
    out, page = tmp_path / "m.tailwise", tmp_path / "page.html"
    told = ["--base", "none", "--report", page, "--no-baseline", *QUICK]
    done = run("fit", folder, "-t", "y", "--drop", "c", "--out", out, *told)
    assert done.exit_code == 0, done.stderr
    assert "rows.parquet" in page.read_text(encoding="utf-8")
    done = run("export", out, "--out", tmp_path / "m.onnx")
    assert done.exit_code == 0, done.stderr
    assert (tmp_path / "m.onnx").stat().st_size > 1000
    assert not list(tmp_path.glob("*checkpoint*"))


def test_fit_measures_on_another_table_or_not_at_all(run: Run, folder: Path, tmp_path: Path) -> None:
    options = ["--target", "y", "--base", "none", "--json", "--force", *QUICK]
    done = run("fit", folder, *options, "--out", tmp_path / "m.tailwise", "--test", folder)
    assert json.loads(done.stdout)["regions"]["all"]["n"] == ROWS, done.stderr
    page = ["--out", tmp_path / "n", "--report", tmp_path / "p.html"]
    assert "nothing to report" in error_of(run("fit", folder, *options, *page, "--test-share", "0"))
    rows().assign(more=1).to_csv(tmp_path / "test.csv", index=False)
    done = run("fit", folder, *options, "--out", tmp_path / "m.tailwise", "--test", tmp_path / "test.csv")
    assert json.loads(done.stdout)["regions"]["all"]["n"] == ROWS, done.stderr


def test_evaluate_measures_all_rows_or_a_named_sample(
    run: Run, folder: Path, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pages: list[Any]
) -> None:
    rows().to_parquet(tmp_path / "rows", row_group_size=70)
    options = ["--json", "--against", model, "--by", "c", "--target", "y"]
    whole = json.loads(run("evaluate", model, tmp_path / "rows", *options).stdout)
    assert json.loads(run("evaluate", model, folder, *options).stdout) == whole
    monkeypatch.setattr(streams, "MEASURED_ROWS", 100)
    done = run("evaluate", model, folder, *options, "--report", tmp_path / "page.html")
    found = json.loads(done.stdout)
    n = found["regions"]["all"]["n"]
    assert found["sample"]["rows"] == n == sum(row["rows"] for row in found["by"][:-1]) and 40 < n < 160
    assert f"of the {ROWS} rows of" in " ".join(done.stderr.split())
    assert "a random sample of" in pages[0].test_source


@pytest.mark.parametrize("ending", ["parquet", "csv.gz"])
def test_predict_writes_the_same_in_parts(
    run: Run, folder: Path, model: Path, tmp_path: Path, ending: str
) -> None:
    rows().to_parquet(tmp_path / "input.parquet")
    for name, data in (("whole", tmp_path / "input.parquet"), ("parts", folder)):
        done = run("predict", model, data, "--out", tmp_path / f"{name}.{ending}", "--keep", "c", "--json")
        assert json.loads(done.stdout)["rows"] == ROWS, done.stderr
        assert sum(json.loads(done.stdout)["regions"].values()) == ROWS
    read = pd.read_parquet if ending == "parquet" else pd.read_csv
    whole, parts = (read(tmp_path / f"{name}.{ending}") for name in ("whole", "parts"))
    pd.testing.assert_frame_equal(whole, parts, rtol=1e-9)
    assert parts.c.tolist() == rows().c.tolist()


def test_large_files_are_streamed_and_others_on_demand(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, opened = str(folder / "a.parquet"), streams.Reader(Shared()).stream
    assert opened(file, False) is None
    assert opened(file, True, **{"--groups": None}) is not None
    monkeypatch.setattr(streams, "STREAM_ROWS", 200)
    assert opened(file, False) is not None
    assert opened(file, False, **{"--groups": "c"}) is None
    (tmp_path / "a.csv").write_text("x,y\n1,2\n")
    (tmp_path / "broken.parquet").write_bytes(b"PAR1 and no more")
    for other in ("-", str(tmp_path / "a.csv"), str(tmp_path / "none"), str(tmp_path / "broken.parquet")):
        assert opened(other, False) is None
    with pytest.raises(ValueError, match="--stream and --ray are for Parquet files"):
        opened(str(tmp_path / "a.csv"), True)


def test_bad_folders_end_in_one_line_and_write_nothing(
    run: Run, folder: Path, model: Path, tmp_path: Path
) -> None:
    out, before = tmp_path / "m.tailwise", set(tmp_path.iterdir())

    def fails(*options: object) -> str:
        text = error_of(run("fit", folder, "--out", out, "--base", "none", *QUICK, *options))
        assert set(tmp_path.iterdir()) == before
        return text

    assert "'q'; choose one of a, c, y" in fails("--target", "q")
    assert "--groups does not go with" in fails("--target", "y", "--groups", "c")
    assert "holds text: choose a column of numbers" in fails("--target", "c")
    b = folder / "b.parquet"
    table = pq.read_table(b)
    missing = pa.array([None if k == 120 else 1.0 for k in range(250)])
    pq.write_table(table.set_column(2, "y", missing), b, row_group_size=100)
    assert "b.parquet, row group 1, row 20: the target 'y' is missing" in fails("--target", "y")
    pq.write_table(table.set_column(2, "y", pa.array(["a"] * 250)), b)
    assert "b.parquet: column 'y' is text, but" in fails("--target", "y")
    pq.write_table(table.drop_columns(["a"]), b)
    assert "b.parquet: column 'a' is missing" in fails("--target", "y")
    b.write_bytes(b"PAR1 nothing")
    assert "b.parquet cannot be read as Parquet" in fails("--target", "y")
    done = run("predict", model, folder, "--out", tmp_path / "p.csv")
    assert "b.parquet cannot be read as Parquet" in error_of(done)
    b.unlink()
    done = run("predict", model, folder, "--out", tmp_path / "p.csv", "--keep", "q")
    assert "has no column 'q'" in error_of(done)
    (folder / "a.parquet").unlink()
    assert "is a folder without a Parquet file" in fails("--target", "y")
    assert set(tmp_path.iterdir()) == before


def test_a_prediction_that_fails_in_the_middle_leaves_no_file(
    run: Run, folder: Path, model: Path, tmp_path: Path
) -> None:
    bad = rows().iloc[:250].assign(a=lambda t: t.a.where(t.index != 240, np.inf))
    bad.to_parquet(folder / "b.parquet", row_group_size=100)
    before = set(tmp_path.iterdir())
    text = error_of(run("predict", model, folder, "--out", tmp_path / "p.csv"))
    assert "b.parquet, row group 2: column 'a' is infinite in line 42" in text
    assert set(tmp_path.iterdir()) == before
    rows().assign(prediction=1.0).to_parquet(folder / "b.parquet")
    (folder / "a.parquet").unlink()
    text = error_of(run("predict", model, folder, "--out", tmp_path / "p.csv", "--keep", "prediction"))
    assert "has the name of a prediction" in text


def test_a_warning_is_shown_once(run: Run, folder: Path, model: Path, tmp_path: Path) -> None:
    for name in ("a", "b"):
        table = pd.read_parquet(folder / f"{name}.parquet").assign(c="new")
        table.to_parquet(folder / f"{name}.parquet", row_group_size=100)
    done = run("predict", model, folder, "--out", tmp_path / "p.csv")
    assert done.stderr.count("unknown at fit") == 1
