"""ONNX files that take the columns of a table, row by row against the estimator."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from tailwise.data.tables.preprocessing import TablePreprocessor
from tailwise.estimator.onnx import export_onnx
from tailwise.estimator.onnx_columns import takes_columns
from tests.estimator.small_tables import quick

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")


def houses(rows: int = 120) -> tuple[pd.DataFrame, np.ndarray]:
    """Numbers, a flag, categories with and without missing values, a column named like an output."""
    rng = np.random.default_rng(2)
    area = rng.normal(size=rows)
    table = pd.DataFrame(
        {
            "lower": np.where(rng.random(rows) < 0.1, np.nan, area),
            "kind": rng.choice(["flat", "house", "hut"], rows),
            "x": rng.integers(0, 9, rows),
            "heating": rng.choice(np.array(["gas", "oil", None], dtype=object), rows),
            "flag": rng.random(rows) < 0.5,
            "empty": np.nan,
        }
    )
    return table, np.exp(area) + (table["kind"] == "house")


def as_inputs(rows: pd.DataFrame) -> dict[str, np.ndarray]:
    """The rows of `houses` as inputs of an ONNX file."""
    return {
        "lower_column": rows["lower"].to_numpy(),
        "kind": rows["kind"].to_numpy(object),
        "x": rows["x"].to_numpy(np.float64),
        "heating": rows["heating"].fillna("").to_numpy(object),
        "flag": rows["flag"].to_numpy(np.float64),
    }


def test_columns_become_the_matrix_of_the_preprocessor() -> None:
    table, _ = houses()
    preprocessor = TablePreprocessor().fit(table)
    kind, size = onnx.TensorProto.DOUBLE, len(preprocessor.numeric.center)
    x, lower = (onnx.helper.make_tensor_value_info(n, kind, ["rows", size]) for n in ("x", "lower"))
    graph = onnx.helper.make_graph([onnx.helper.make_node("Identity", ["x"], ["lower"])], "g", [x], [lower])
    opset = onnx.helper.make_opsetid("", 18)
    model = takes_columns(onnx.helper.make_model(graph, opset_imports=[opset], ir_version=9), preprocessor)
    onnx.checker.check_model(model)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    assert {value.name: value.type for value in session.get_inputs()} == {
        "lower_column": "tensor(double)",
        "kind": "tensor(string)",
        "x": "tensor(double)",
        "heating": "tensor(string)",
        "flag": "tensor(double)",
    }
    rows = table[:40].copy()
    rows.loc[3, "kind"] = "castle"  # not in training
    (found,) = session.run(None, as_inputs(rows))
    np.testing.assert_array_equal(found, preprocessor.matrix(rows))
    numbers = TablePreprocessor().fit(table[["lower", "x"]].to_numpy())
    assert [v.name for v in takes_columns(onnx.helper.make_model(graph), numbers).graph.input] == ["x0", "x1"]


@pytest.mark.slow
def test_columns_go_in_and_the_same_predictions_come_out(tmp_path: Path) -> None:
    table, y = houses()
    model = quick(method="vanilla", epochs=2).fit(table, y)
    path = model.export_onnx(tmp_path / "m.onnx", raw_columns=True, quantiles=(), coverage=0.8)
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    rows = table[:40].copy()
    rows.loc[3, "kind"] = "castle"  # not in training
    given = as_inputs(rows)
    interval = model.predict_interval(rows, 0.8)
    names = [value.name for value in session.get_outputs()]
    every = dict(zip(names, session.run(None, given), strict=True))
    for row in range(len(rows)):
        single = {name: values[row : row + 1] for name, values in given.items()}
        alone = dict(zip(names, session.run(None, single), strict=True))
        for found in (alone["lower"][0], every["lower"][row]):
            assert found == pytest.approx(interval[row, 0], rel=1e-4, abs=1e-4)
        assert alone["upper"][0] == pytest.approx(interval[row, 1], rel=1e-4, abs=1e-4)
    assert len(set(np.round(every[names[0]], 6))) > 20


def test_text_and_dates_are_refused_before_any_work(tmp_path: Path) -> None:
    table, _ = houses(60)
    days = pd.Timestamp("2024-01-01") + pd.to_timedelta(np.arange(60), "D")
    preprocessor = TablePreprocessor().fit(table.assign(day=days))
    empty = onnx.helper.make_model(onnx.helper.make_graph([], "empty", [], []))
    with pytest.raises(ValueError, match=r"dates or durations, as in column 'day': .* fit without it"):
        takes_columns(empty, preprocessor)
    preprocessor = TablePreprocessor().fit(table.assign(day=days, till=days))
    unread: Any = SimpleNamespace(
        base_given_=False, conformal_groups_=None, base_=None, preprocessor_=preprocessor
    )
    with pytest.raises(ValueError, match=r"in columns 'day', 'till': .* fit without them"):
        export_onnx(unread, tmp_path / "m.onnx", raw_columns=True)
