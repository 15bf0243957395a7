"""Coverage and width by region, by hand, beside the constant interval."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd
import pytest

from tailwise.calibration.interval_scores import (
    ColumnGroups,
    constant_interval,
    coverage_by_group,
    intervals_by_region,
    wilson_interval,
)
from tailwise.labels.bins import LabelBins

Y = np.repeat([0.0, 1.0, 2.0], [300, 50, 5])
BINS = LabelBins.from_labels(Y)  # many, medium, few


def test_coverage_and_width_by_hand() -> None:
    table = intervals_by_region([0, 0, 1, 3], [0, 2, 2, 4], [0, 0, 2, 2], BINS)
    assert table["n"].tolist() == [4, 2, 0, 2]
    np.testing.assert_allclose(table["coverage"], [0.75, 1.0, math.nan, 0.5])
    np.testing.assert_allclose(table["width"], [1.0, 1.0, math.nan, 1.0])
    assert table.loc["few", ["coverage_low", "coverage_high"]].tolist() == list(wilson_interval(1, 2))
    # 5% and 95% of the training labels are 0 and 1: the constant interval misses the label 2.
    np.testing.assert_allclose(table["constant_coverage"], [0.5, 1.0, math.nan, 0.0])
    np.testing.assert_allclose(table["constant_width"], [1.0, 1.0, math.nan, 1.0])


def test_wilsons_interval_agrees_with_the_textbook() -> None:
    assert wilson_interval(0, 0) == (0.0, 1.0)
    low, high = wilson_interval(81, 263)
    assert (round(low, 4), round(high, 4)) == (0.2553, 0.3662)  # Newcombe 1998, method 3


def test_the_constant_interval_of_bins_is_that_of_the_labels() -> None:
    assert constant_interval(BINS, 0.9) == constant_interval(Y, 0.9) == (0.0, 1.0)
    y = np.random.default_rng(0).exponential(size=2000)
    bins = LabelBins.from_labels(y)
    np.testing.assert_allclose(constant_interval(bins, 0.8), constant_interval(y, 0.8), atol=0.02)
    own = intervals_by_region(y, y, y, bins, 0.8, training=y)
    assert own.loc["all", "constant_coverage"] == pytest.approx(0.8, abs=1e-3)


def test_coverage_by_the_values_of_a_column_by_hand() -> None:
    groups = ColumnGroups.of(["a", "b"])
    codes = groups.codes(["a", "a", "a", "a", "c"])
    y, upper = np.array([1.0, 2.0, 3.0, 9.0, 0.0]), np.array([4.0, 4.0, 4.0, 8.0, 2.0])
    table = coverage_by_group(groups, codes, np.zeros(5), upper, y)
    assert table["value"].tolist() == ["a", "other", "all"]
    assert table["coverage"].tolist() == [0.75, 1.0, 0.8]
    assert table["width"].tolist() == [5.0, 2.0, 4.4]
    assert table.loc[0, ["coverage_low", "coverage_high"]].tolist() == list(wilson_interval(3, 4))


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
