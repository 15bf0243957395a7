"""Coverage by the values of a column."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy.stats import binomtest

from tailwise.calibration.by_column import column_groups, coverage_by_group


def test_values_and_bins_of_equal_size() -> None:
    codes, names = column_groups(pd.Series([True, False, None], dtype=object))
    assert names == ["False", "True", "missing"] and codes.tolist() == [1, 0, 2]
    codes, names = column_groups([2.5, 1.0, 2.5])
    assert names == ["1", "2.5"] and codes.tolist() == [1, 0, 1]
    codes, names = column_groups(np.r_[np.arange(100.0), np.nan], bins=4)
    assert names == ["0 to 24", "25 to 49", "50 to 74", "75 to 99", "missing"]
    assert np.bincount(codes).tolist() == [25, 25, 25, 25, 1]
    _, names = column_groups(pd.date_range("2024-01-01", periods=40), bins=1)
    assert names == ["2024-01-01 00:00:00 to 2024-02-09 00:00:00"]
    assert column_groups(pd.Categorical(["x", "y", "x"]))[1] == ["x", "y"]
    with pytest.raises(ValueError, match="bins must be at least 1"):
        column_groups([1], bins=0)


def test_coverage_with_wilson_intervals_by_hand() -> None:
    group, y = np.array([0, 0, 0, 0, 1]), np.array([1.0, 2.0, 3.0, 9.0, 0.0])
    found = coverage_by_group(group, ["a", "b"], np.zeros(5), np.array([4.0, 4.0, 4.0, 8.0, 2.0]), y)
    assert found["coverage"].tolist() == [0.75, 1.0, 0.8]
    assert found["width"].tolist() == [5.0, 2.0, 4.4]
    wilson = binomtest(3, 4).proportion_ci(method="wilson")
    assert found.loc[0, ["coverage_low", "coverage_high"]].tolist() == [wilson.low, wilson.high]
