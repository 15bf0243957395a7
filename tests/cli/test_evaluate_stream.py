"""`evaluate` of a stream: a random sample is measured, and named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import Ridge

from tailwise import TailRegressor
from tailwise.cli import stream
from tests.cli.conftest import Run

ROWS = 400


def rows() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    data = pd.DataFrame({"a": rng.normal(size=ROWS), "c": rng.choice(list("uvw"), ROWS)})
    data["y"] = np.exp(data.a) + 0.1 * rng.normal(size=ROWS)
    data.loc[[0, 7], "c"] = "x"
    return data


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model") / "m.tailwise"
    data, fitted = rows(), TailRegressor(base=Ridge(), folds=1, epochs=2, random_state=0)
    fitted.fit(data[["a", "c"]], data.y).save(path)
    return path


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Six row groups; some rows have no label, and one row group has none at all."""
    path, data = tmp_path / "rows.parquet", rows()
    data.loc[[3, *range(140, 210)], "y"] = np.nan
    data.to_parquet(path, row_group_size=70)
    return path


def test_a_stream_has_the_figures_of_the_whole_table(
    run: Run, model: Path, table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = ["--json", "--against", model, "--by", "c", "--target", "y"]
    whole = json.loads(run("evaluate", model, table, *options).stdout)
    few = json.loads(run("evaluate", model, table, *options, "--stream").stdout)
    assert few == whole  # so few rows are all in the sample
    monkeypatch.setattr(stream, "MEASURED_ROWS", 100)
    done = run("evaluate", model, table, *options, "--stream")
    found = json.loads(done.stdout)
    n = found["regions"]["all"]["n"]
    assert found["sample"]["rows"] == n == sum(row["rows"] for row in found["by"][:-1]) and 40 < n < 120
    assert f"of the {ROWS} rows of" in " ".join(done.stderr.split())


def test_the_page_names_the_sample(
    run: Run, model: Path, table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pages: list[Any]
) -> None:
    monkeypatch.setattr(stream, "MEASURED_ROWS", 100)
    done = run("evaluate", model, table, "--stream", "--report", tmp_path / "page.html", "--quiet")
    assert done.exit_code == 0, done.stderr
    assert (
        pages[0].test_source.startswith("rows of rows.parquet, a random sample of")
        and (tmp_path / "page.html").exists()
    )
    assert "random sample" not in done.stderr
