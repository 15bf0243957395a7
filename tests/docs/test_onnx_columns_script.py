"""The comparison of ONNX files that take raw columns with Python (benchmarks/onnx_columns.py)."""

import numpy as np

from benchmarks import onnx_columns


def test_texts_of_many_words_are_encoded_alike() -> None:
    found = onnx_columns.long_texts(120, 60)
    assert found["numbers that differ"] == 0 and found["runs of characters"] > 100


def test_rows_have_missing_values_and_odd_texts() -> None:
    rng = np.random.default_rng(0)
    table, y = onnx_columns.sales(200, rng)
    assert table.isna().any().all() and np.isfinite(y).all()
    texts = onnx_columns.odd_texts(200, rng)
    assert {text.isascii() for text in texts} == {True, False} and "" in texts
