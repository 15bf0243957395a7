"""Tables and labels are checked before training; errors name the column or the row."""

from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from sklearn.base import BaseEstimator
from sklearn.exceptions import DataConversionWarning

from tailwise.tables.inputs import checked_table, checked_targets

NUMBERS = np.arange(6.0).reshape(3, 2)
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
        (pd.DataFrame(NUMBERS, columns=["a", "a"]), ValueError, "column name 'a' occurs twice: rename"),
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
    assert checked_targets(NUMBERS).shape == (3, 2)
    with pytest.warns(DataConversionWarning, match="column-vector y"):
        assert checked_targets(NUMBERS[:, :1]).tolist() == [0, 2, 4]


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
        (pd.DataFrame(NUMBERS, columns=["a", "a"]), "target name 'a' occurs twice: rename"),
    ],
)
def test_unusable_labels_are_named(labels: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        checked_targets(labels)
