"""Groups of rows by a column."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from tailwise.calibration.interval_scores import ColumnGroups


def test_values_that_training_did_not_see_have_no_group() -> None:
    groups = ColumnGroups.of(pd.Series(["b", "a", "b"]), "kind")
    assert groups.column == "kind" and groups.names == ("a", "b")
    assert groups.codes(["a", "c", None, "b"]).tolist() == [1, 0, 0, 2]


def test_missing_values_are_a_group_if_there_were_any() -> None:
    groups = ColumnGroups.of(["b", None])
    assert groups.names == ("b", "missing")
    assert groups.codes([None, "b", "missing"]).tolist() == [2, 1, 0]
    numbers = ColumnGroups.of(np.r_[np.arange(50.0), np.nan], bins=2)
    assert numbers.codes([np.nan, -9, 99]).tolist() == [3, 1, 2]


@pytest.mark.parametrize("like", [[1, 2], [1.0, 2.0], ["1", "2"], pd.array([1, 2], dtype="Int64")])
def test_few_numbers_are_values_whatever_their_type(like: Any) -> None:
    assert ColumnGroups.of([2, 1, 10]).names == ("1", "2", "10")
    assert ColumnGroups.of([2, 1, 10]).codes(like).tolist() == [1, 2]


def test_bins_of_numbers_and_dates() -> None:
    assert ColumnGroups.of(np.arange(100), bins=4).codes([-5, 24, 25, 1e9, np.nan]).tolist() == [
        *(1, 1, 2, 4),
        0,
    ]
    assert ColumnGroups.of(np.arange(100), bins=4).codes(["30", "?"]).tolist() == [2, 0]
    tied = np.r_[np.arange(30), np.full(70, 30)]  # most quantiles are the largest value
    assert np.bincount(ColumnGroups.of(tied).codes(tied)).tolist() == [0, 20, 80]
    days = pd.Series(pd.date_range("2024-01-01", periods=40, tz="UTC"))
    assert ColumnGroups.of(days, bins=2).codes(days[[0, 39]]).tolist() == [1, 2]


def test_only_the_most_frequent_values() -> None:
    values = np.repeat(["a", "b", "c"], [1, 3, 2])
    groups = ColumnGroups.of(values, at_most=2)
    assert groups.names == ("b", "c") and groups.codes(values).tolist() == [0, 1, 1, 1, 2, 2]
