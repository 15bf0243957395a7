"""ONNX files that take the columns of a table, row by row against the estimator."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.ensemble import HistGradientBoostingRegressor

from tailwise.onnx.export import column_inputs
from tests.estimator.small_tables import quick

pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")


def houses(rows: int = 120) -> tuple[pd.DataFrame, np.ndarray]:
    """Numbers, flags and categories with missing values, one named like an output and one without values."""
    rng = np.random.default_rng(2)
    area = rng.normal(size=rows)
    table = pd.DataFrame(
        {
            "std": area,
            "kind": rng.choice(["flat", "house", "hut"], rows),
            "x": rng.integers(0, 9, rows),
            "heating": rng.choice(np.array(["gas", "oil", None], dtype=object), rows),
            "flag": rng.random(rows) < 0.5,
            "empty": np.nan,
        }
    )
    table.loc[::11, "std"] = None
    return table, np.exp(area) + (table["kind"] == "house")


def test_columns_go_in_and_the_same_predictions_come_out(tmp_path: Path) -> None:
    table, y = houses()
    base = HistGradientBoostingRegressor(max_iter=5)
    model = quick(method="vanilla", epochs=2, base=base, emphasis=0.0).fit(table, y)
    path = model.export_onnx(tmp_path / "m.onnx", raw_columns=True, quantiles=(), coverage=None)
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    kinds = {value.name: value.type for value in session.get_inputs()}
    assert kinds["std_column"] == "tensor(double)" and kinds["heating"] == "tensor(string)"
    described = json.loads(session.get_modelmeta().custom_metadata_map["inputs"])
    assert described["kind"] == "category: string; the empty string is missing"
    rows = table[:40].copy()
    rows.loc[3:4, "kind"] = ["castle", "?"]
    rows.loc[3:8, "heating"] = ["", "NA", "?", " \t", "null", "coal"]
    rows.loc[6, "x"] = -7
    given = column_inputs(model.model_, rows)
    names = [value.name for value in session.get_outputs()]
    every = dict(zip(names, session.run(None, given), strict=True))
    close = {"rtol": 1e-4, "atol": 1e-4}
    np.testing.assert_allclose(
        [every["prediction"], every["std"]], model.predict(rows, return_std=True), **close
    )
    single = {name: values[5:6] for name, values in given.items()}
    alone = dict(zip(names, session.run(None, single), strict=True))
    for name in names:
        np.testing.assert_allclose(alone[name][0], every[name][5], **close)


@pytest.mark.parametrize("kind", ["text", "date", "duration"])
def test_other_columns_are_refused_before_anything_is_written(kind: str, tmp_path: Path) -> None:
    table, y = houses(60)
    hours = np.arange(60)
    table["odd"] = {
        "text": [f"word{k} other{2 * k}" for k in hours],
        "date": pd.Timestamp("2024-01-01") + pd.to_timedelta(hours, "h"),
        "duration": pd.to_timedelta(hours, "min"),
    }[kind]
    model = quick(epochs=1).fit(table, y)
    with pytest.raises(ValueError, match=r"encodes numbers and categories only, .* in 'odd'"):
        model.export_onnx(tmp_path / "m.onnx", raw_columns=True)
    assert not list(tmp_path.iterdir())
