"""ONNX files that take the columns of a table, row by row against the estimator."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from tailwise.data.tables.preprocessing import TablePreprocessor
from tailwise.onnx.export import column_inputs, export_onnx
from tailwise.onnx.columns import raw_inputs
from tailwise.onnx.trial import columns_model
from tests.estimator.small_tables import quick

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")

INPUTS = {
    "lower_column": "tensor(double)",
    "kind": "tensor(string)",
    "x": "tensor(double)",
    "heating": "tensor(string)",
    "flag": "tensor(double)",
    "words": "tensor(string)",
    "built": "tensor(int64)",
    "sold": "tensor(int64)",
    "listed": "tensor(double)",
}


def houses(rows: int = 120) -> tuple[pd.DataFrame, np.ndarray]:
    """Columns of all kinds with missing values, one named like an output and one without values."""
    rng = np.random.default_rng(2)
    area = rng.normal(size=rows)
    words = [
        " ".join(rng.choice(["Loft", "garden", "İzmir", "OLD", "straße", "view"], 4)) for _ in range(rows)
    ]
    hours = rng.integers(0, 20_000, rows)
    table = pd.DataFrame(
        {
            "lower": area,
            "kind": rng.choice(["flat", "house", "hut"], rows),
            "x": rng.integers(0, 9, rows),
            "heating": rng.choice(np.array(["gas", "oil", None], dtype=object), rows),
            "flag": rng.random(rows) < 0.5,
            "words": words,
            "built": (pd.Timestamp("1990-01-01") + pd.to_timedelta(hours, "D")).strftime("%d/%m/%Y"),
            "sold": pd.Timestamp("2024-01-01", tz="Europe/Berlin") + pd.to_timedelta(hours, "h"),
            "listed": pd.to_timedelta(hours, "min"),
            "empty": np.nan,
        }
    )
    y = np.exp(area) + (table["kind"] == "house") + ["OLD" in text for text in words]
    for k, name in enumerate(("lower", "words", "built", "sold", "listed")):
        table.loc[k::11, name] = None
    return table, y


def changed(table: pd.DataFrame) -> pd.DataFrame:
    """Rows with values that training did not have, and words for a missing value."""
    rows = table[:40].copy()
    rows.loc[3:4, "kind"] = ["castle", "?"]
    rows.loc[3:8, "heating"] = ["", "NA", "?", " \t", "null", "coal"]
    rows.loc[3:8, "words"] = ["", "None", " \n", "GARDEN\tİ loft", "\U0001f600 unseen", "view" * 30]
    rows.loc[6, "sold"] = pd.Timestamp("2150-07-01", tz="UTC")
    rows.loc[6, "x"] = -7
    return rows


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_columns_become_the_matrix_of_the_preprocessor(library: str) -> None:
    table, _ = houses()
    rows: Any = changed(table)
    if library == "polars":
        pl = pytest.importorskip("polars")
        table, rows = pl.from_pandas(table), pl.from_pandas(rows)
    preprocessor = TablePreprocessor().fit(table)
    model = columns_model(preprocessor, 18)
    onnx.checker.check_model(model)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    assert {value.name: value.type for value in session.get_inputs()} == INPUTS
    given = raw_inputs(preprocessor, rows)
    (found,) = session.run(None, given)
    np.testing.assert_array_equal(found, preprocessor.matrix(rows))
    described = json.loads(session.get_modelmeta().custom_metadata_map["inputs"])
    assert described["listed"] == "duration: float64, in seconds; NaN is missing"
    assert described["sold"] == "date: int64, microseconds since 1970-01-01 in UTC; -2**63 is missing"
    assert "of the same clock, without a time zone" in described["built"]
    assert given["lower_column"].dtype == np.float64 and np.isnan(given["lower_column"][0])
    assert given["words"][1] == "" and given["built"][2] == -(2**63)


def test_numbers_alone_go_in_as_they_are() -> None:
    x = np.array([[1.0, 1e300], [np.nan, 2.0], [3.0, 4.0]])
    preprocessor = TablePreprocessor().fit(x)
    model = columns_model(preprocessor, 18)
    assert [value.name for value in model.graph.input] == ["x0", "x1"]
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    np.testing.assert_array_equal(session.run(None, raw_inputs(preprocessor, x))[0], x)


@pytest.mark.slow
def test_columns_go_in_and_the_same_predictions_come_out(tmp_path: Path) -> None:
    table, y = houses()
    model = quick(method="vanilla", epochs=2, base="hist-gradient-boosting").fit(table, y)
    path = model.export_onnx(tmp_path / "m.onnx", raw_columns=True, quantiles=(0.1, 0.9), coverage=0.8)
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    rows = changed(table)
    given = column_inputs(model, rows)
    names = [value.name for value in session.get_outputs()]
    every = dict(zip(names, session.run(None, given), strict=True))
    close = {"rtol": 1e-4, "atol": 1e-4}
    np.testing.assert_allclose(every["prediction"], model.predict(rows), **close)
    np.testing.assert_allclose(every["quantiles"], model.predict_quantiles(rows, (0.1, 0.9)), **close)
    interval = np.stack([every["lower"], every["upper"]], axis=1)
    np.testing.assert_allclose(interval, model.predict_interval(rows, 0.8), **close)
    for row in range(len(rows)):
        single = {name: values[row : row + 1] for name, values in given.items()}
        alone = dict(zip(names, session.run(None, single), strict=True))
        for name in names:
            np.testing.assert_allclose(alone[name][0], every[name][row], **close)
    assert len(set(np.round(every["prediction"], 6))) > 20


def test_other_encodings_are_refused_before_any_work(tmp_path: Path) -> None:
    preprocessor = TablePreprocessor().fit(houses(60)[0])
    steps = preprocessor.vectorizer.all_processing_steps_
    next(
        step for step in steps["sold"] if hasattr(step, "extracted_features_")
    ).periodic_encoding = "circular"
    with pytest.raises(ValueError, match=r"cannot encode column 'sold', .* fit without it"):
        columns_model(preprocessor, 18)
    next(step for step in steps["words"] if hasattr(step, "tsvd_")).vectorizer = "hashing"
    unread: Any = SimpleNamespace(
        base_given_=False, conformal_groups_=None, base_=None, preprocessor_=preprocessor
    )
    with pytest.raises(ValueError, match=r"columns 'words', 'sold', .* fit without them"):
        export_onnx(unread, tmp_path / "m.onnx", raw_columns=True)
    unread.preprocessor_ = None
    with pytest.raises(ValueError, match="models of tables"):
        column_inputs(unread, [])
