"""Inputs of any kind: checked before training, counted, taken by rows, and turned into tensors."""

from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from scipy import sparse
from sklearn.base import BaseEstimator
from sklearn.exceptions import DataConversionWarning
from torch.utils.data import DataLoader, TensorDataset

from tailwise.tables.inputs import as_tensors, checked_table, checked_targets, row_count, take_rows

PAIRS = np.arange(6.0).reshape(3, 2)
TABLE = pd.DataFrame({"a": [1.0, 2.0, None], "b": ["x", "y", None]})


class Plain(BaseEstimator):
    """An estimator that only stores what scikit-learn stores of its columns."""


# -- tables --------------------------------------------------------------------------------------


def test_data_frames_stay_as_they_are_and_their_columns_are_stored() -> None:
    estimator = Plain()
    assert checked_table(estimator, TABLE, reset=True) is TABLE
    assert list(estimator.feature_names_in_) == ["a", "b"] and estimator.n_features_in_ == 2
    with pytest.raises(ValueError, match="feature names should match"):
        checked_table(estimator, TABLE.rename(columns={"a": "A"}), reset=False)


@pytest.mark.parametrize(
    ("given", "error", "words"),
    [
        (pl.LazyFrame({"a": [1]}), TypeError, "polars's LazyFrame: turn it into a DataFrame"),
        (torch.utils.data.TensorDataset(torch.ones(2)), TypeError, "X is a TensorDataset"),
        (TABLE[[]], ValueError, r"0 feature\(s\)"),
        (pd.DataFrame(PAIRS, columns=["a", "a"]), ValueError, "column name 'a' occurs twice: rename"),
        (TABLE.assign(z=1j), ValueError, "column 'z' holds complex numbers: split it"),
        (TABLE.assign(a=[1.0, np.inf, 2.0]), ValueError, "column 'a' holds an infinity in row 1"),
        (np.array([[1.0, "a"]], dtype=object), ValueError, "give text as columns of a DataFrame"),
    ],
)
@pytest.mark.filterwarnings("ignore::polars.exceptions.PerformanceWarning")
def test_unusable_tables_are_named(given: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        checked_table(Plain(), given, reset=True)


# -- labels --------------------------------------------------------------------------------------


def test_several_targets_stay_columns_and_one_column_becomes_labels() -> None:
    assert checked_targets(PAIRS).shape == (3, 2)
    with pytest.warns(DataConversionWarning, match="column-vector y"):
        assert checked_targets(PAIRS[:, :1]).tolist() == [0, 2, 4]


@pytest.mark.parametrize(
    ("labels", "words"),
    [
        ([1.0, np.nan, 3.0], r"row 1 is nan \(1 bad of 3\); drop these rows or fill them"),
        ([1.0, -1e200], r"y exceeds 1e\+150 in row 1: rescale it"),
        (["low", "high"], "y must be numbers: could not convert string to float: 'low'"),
        (
            np.array(["2024-01-01"], "datetime64[D]"),
            "y holds dates: turn them into numbers first",
        ),
        (np.ones((2, 2, 2)), r"y must have the shape \(rows,\) or \(rows, targets\), not \(2, 2, 2\)"),
        (pd.DataFrame(PAIRS, columns=["a", "a"]), "target name 'a' occurs twice: rename"),
    ],
)
def test_unusable_labels_are_named(labels: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        checked_targets(labels)


# -- rows and tensors -----------------------------------------------------------------------------


NUMBERS = np.arange(12.0).reshape(4, 3)
ROWS = np.array([2, 0])


@pytest.mark.parametrize(
    "given",
    [
        NUMBERS,
        NUMBERS.tolist(),
        list(torch.from_numpy(NUMBERS)),
        torch.from_numpy(NUMBERS),
        sparse.csr_matrix(NUMBERS),
        pd.DataFrame(NUMBERS, index=list("wxyz")),
        pl.DataFrame(NUMBERS),
    ],
    ids=["array", "list", "tensors", "tensor", "sparse", "pandas", "polars"],
)
def test_rows_of_any_input(given: Any) -> None:
    assert row_count(given) == 4
    taken = take_rows(given, ROWS)
    assert row_count(taken) == 2
    tensor = as_tensors(taken)
    assert tensor.dtype == torch.float32
    np.testing.assert_array_equal(tensor, NUMBERS[ROWS])


def test_several_inputs_are_taken_and_turned_together() -> None:
    ids = [[1, 2], [3, 4], [5, 6], [7, 8]]
    for given in ((NUMBERS, ids), {0: NUMBERS, 1: ids}):
        assert row_count(given) == 4
        taken = as_tensors(take_rows(given, ROWS))
        assert type(taken) is type(given)
        np.testing.assert_array_equal(taken[0], NUMBERS[ROWS])
        np.testing.assert_array_equal(taken[1], [[5, 6], [1, 2]])
        assert taken[1].dtype == torch.int64
    with pytest.raises(ValueError, match=r"different numbers of rows: \[4, 2\]"):
        row_count((NUMBERS, ids[:2]))


@pytest.mark.parametrize("function", [row_count, as_tensors])
@pytest.mark.parametrize("wrap", [lambda d: d, DataLoader], ids=["Dataset", "DataLoader"])
def test_data_sets_of_torch_are_refused(function: Any, wrap: Any) -> None:
    given = wrap(TensorDataset(torch.ones(3, 2)))
    with pytest.raises(TypeError, match=rf"X is a {type(given).__name__}: .*tailwise.training.loop.fit"):
        function(given)
