"""Coverage and width by region, by hand, beside the constant interval."""

from __future__ import annotations

import math

import numpy as np
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
