"""The trial of the encoders in an ONNX file."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from tailwise.data.tables.preprocessing import TablePreprocessor
from tailwise.estimator import onnx_trial
from tailwise.onnx.columns import raw_inputs
from tailwise.onnx.trial import UNUSUAL, made_up_rows, try_columns
from tests.estimator.test_onnx_columns import houses

pytest.importorskip("onnxruntime")


def test_made_up_rows_are_like_those_of_training() -> None:
    table, _ = houses(60)
    rows = made_up_rows(TablePreprocessor().fit(table))
    assert list(rows) == list(table)
    assert rows.drop(columns=["empty", "words", "kind", "heating"]).isna().any().all()
    assert rows["sold"].dropna().between("2021-01-01", "2030-01-01").all()
    assert {"flat", "house", "hut"} < set(rows["kind"]) and set(UNUSUAL) < set(rows["words"])


def test_a_column_that_is_encoded_otherwise_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    preprocessor = TablePreprocessor().fit(houses(60)[0])
    try_columns(preprocessor, 18)

    def off(own: TablePreprocessor, x: pd.DataFrame) -> dict[str, Any]:
        given = raw_inputs(own, x)
        return given | {"words": np.array([text.replace("İ", "i") for text in given["words"]], dtype=object)}

    monkeypatch.setattr(onnx_trial, "raw_inputs", off)
    with pytest.raises(RuntimeError, match=r"does not encode column 'words' as Python does, as in '.*İ"):
        try_columns(preprocessor, 18)


def test_numbers_alone_need_no_trial(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(onnx_trial, "columns_model", None)
    try_columns(TablePreprocessor().fit(np.ones((3, 2))), 18)
