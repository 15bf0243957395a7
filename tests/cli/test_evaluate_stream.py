"""`evaluate` of a stream: every row counts, and what rests on a sample is named."""

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


def figures(found: dict[str, Any]) -> dict[str, Any]:
    """All figures that do not rest on a sample."""
    regions = ("regions", "baseline", "base", "constant")
    shown = {
        n: {r: {k: v for k, v in row.items() if k != "ause"} for r, row in found[n].items()} for n in regions
    }
    return {**shown, "by": {row["value"]: row for row in found["by"]}}


def flat(value: Any) -> list[float]:
    if isinstance(value, dict):
        return [x for key in sorted(value) if key not in ("value", "target") for x in flat(value[key])]
    return [np.nan if value is None else float(value)]


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
    assert found["regions"]["all"]["n"] == ROWS - 71
    assert "left out 71 rows" in done.stderr
    other = found["by"][-2]
    assert other["value"] == "other" and other["rows"] == 2  # the sample has no such row
    other["value"] = "x"
    np.testing.assert_allclose(flat(figures(found)), flat(figures(whole)), rtol=1e-9, atol=1e-12)
    n = found["sample"]["rows"]
    assert 50 < n < 120 and found["sample"]["figures"] == ["ause", "verdict", "report"]
    assert found["regions"]["all"]["ause"] != whole["regions"]["all"]["ause"]
    assert f"rest on a random sample of {n} of them" in " ".join(done.stderr.split())


def test_the_page_names_the_sample(
    run: Run, model: Path, table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pages: list[Any]
) -> None:
    monkeypatch.setattr(stream, "MEASURED_ROWS", 100)
    done = run("evaluate", model, table, "--stream", "--report", tmp_path / "page.html", "--quiet")
    assert done.exit_code == 0, done.stderr
    wanted = f"rows of rows.parquet, a random sample of its {ROWS - 71:,} rows with labels"
    assert pages[0].test_source == wanted and (tmp_path / "page.html").exists()
    assert "random sample" not in done.stderr
