"""`tailwise recalibrate`, and what else the command line does with groups, times and new rows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from tailwise import TailRegressor
from tests.cli.conftest import FAST, Run


@pytest.fixture(scope="module")
def sales(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """300 sales of 30 shops, one a day."""
    rng = np.random.default_rng(0)
    size = rng.gamma(2.0, size=300)
    table = pd.DataFrame(
        {"size": size, "shop": np.arange(300) % 30, "price": 3 * size + rng.normal(size=300)}
    )
    table["day"] = pd.date_range("2024-01-01", periods=300).strftime("%Y-%m-%d")
    path = tmp_path_factory.mktemp("sales") / "sales.csv"
    table.to_csv(path, index=False)
    return path


def done(out: Any) -> Any:
    assert out.exit_code == 0, out.stderr
    return out


def test_recalibrate_and_coverage_by(run: Run, sales: Path, tmp_path: Path) -> None:
    model, again = tmp_path / "m", tmp_path / "n"
    told = ("-t", "price", "-o", model, "--groups", "shop", *FAST)
    done(run("fit", sales, *told))
    assert "shop" not in TailRegressor.load(model).feature_names_in_
    key = tmp_path / "key"
    key.write_text("a secret of at least sixteen bytes")
    found = done(run("recalibrate", model, sales, "-o", again, "--json", "--sign", key))
    out = run("recalibrate", model, sales, "-o", tmp_path / "o", "--verify", key)
    assert out.exit_code == 1 and "sign" in out.stderr
    done(run("recalibrate", again, sales, "-o", tmp_path / "o", "--verify", key, "--encoding", "utf-8"))
    assert json.loads(found.stdout) == {"model": str(again), "rows": 300}
    assert TailRegressor.load(again).model_.record.recalibrated == 300
    out = done(run("evaluate", again, sales, "--by", "shop"))
    assert "its 95% interval" in out.stdout and "24 to 29" in out.stdout
    shown = json.loads(done(run("evaluate", again, sales, "--by", "shop", "--json")).stdout)["by"]
    assert [row["rows"] for row in shown][-1] == 300 and shown[0]["target"] == "price"
    out = run("evaluate", again, sales, "--by", "shp")
    assert out.exit_code == 1 and "'shp'" in out.stderr and "did you mean 'shop'" in out.stderr


def test_the_latest_rows_test_and_a_model_goes_on(run: Run, sales: Path, tmp_path: Path) -> None:
    first, second = tmp_path / "m", tmp_path / "n"
    told = ("-t", "price", "--time", "day", "--drop", "day", *FAST)
    out = json.loads(done(run("fit", sales, *told, "-o", first, "--json")).stdout)
    assert out["regions"]["all"]["n"] == 60
    model = TailRegressor.load(first)
    latest = pd.read_csv(sales)["price"].to_numpy()
    held = model.calibrators_[0].held
    assert held is not None and set(held.labels) <= set(latest[192:240])
    done(run("fit", sales, *told, "-o", second, "--start-from", first))
    np.testing.assert_array_equal(TailRegressor.load(second).bins_.edges, model.bins_.edges)


def test_an_empty_group_is_an_error(run: Run, sales: Path, tmp_path: Path) -> None:
    table = pd.read_csv(sales)
    table.loc[4, "shop"] = None
    table.to_csv(tmp_path / "t.csv", index=False)
    out = run("fit", tmp_path / "t.csv", "-t", "price", "-o", tmp_path / "m", "--groups", "shop", *FAST)
    assert out.exit_code == 1 and "column 'shop' is empty in line 6" in out.stderr
