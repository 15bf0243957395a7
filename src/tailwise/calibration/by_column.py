"""Coverage and width of intervals by the values of a column."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binomtest

from tailwise.calibration.column_groups import BINS, ColumnGroups

if TYPE_CHECKING:
    import pandas as pd

Floats = NDArray[np.float64]


def column_groups(values: Any, bins: int = BINS) -> tuple[NDArray[np.int64], list[str]]:
    """Return the group of each row, and the names of the groups in order; see `ColumnGroups`. (N,)

    >>> column_groups(["b", "a", "b"])
    (array([1, 0, 1]), ['a', 'b'])
    """
    groups = ColumnGroups.of(values, bins=bins)
    return groups.codes(values) - 1, list(groups.names)


class RunningCoverage:
    """Coverage and width of intervals by the groups of a column, for rows that come in parts."""

    def __init__(self, names: list[str]) -> None:
        self.names = names
        self._sums = np.zeros((3, len(names) + 1))  # rows, covered rows and width; the last are in no group

    def add(self, group: NDArray[np.int64], lower: Floats, upper: Floats, y: Floats) -> None:
        """Take in intervals and labels of some rows; group -1 is none of the groups. (N,) each"""
        code, size = np.where(group < 0, len(self.names), group), len(self.names) + 1
        for k, values in enumerate((None, (y >= lower) & (y <= upper), upper - lower)):
            self._sums[k] += np.bincount(code, values, size)

    def table(self) -> pd.DataFrame:
        """Return the table of `coverage_by_group` for all rows so far; ``other`` are rows of no group."""
        import pandas as pd

        rows = []
        for name, sums in zip([*self.names, "other"], self._sums.T, strict=True):
            if sums[0] > 0:
                rows.append((name, *_coverage(*sums)))
        rows.append(("all", *_coverage(*self._sums.sum(1))))
        names = ["value", "rows", "coverage", "coverage_low", "coverage_high", "width"]
        return pd.DataFrame(rows, columns=names)


def _coverage(rows: float, covered: float, width: float) -> tuple[int, float, float, float, float]:
    wilson = binomtest(round(covered), round(rows)).proportion_ci(method="wilson")
    return round(rows), covered / rows, wilson.low, wilson.high, width / rows


def coverage_by_group(
    group: NDArray[np.int64], names: list[str], lower: Floats, upper: Floats, y: Floats
) -> pd.DataFrame:
    """Return rows, coverage with its 95% Wilson interval, and mean width of each group and of all rows."""
    running = RunningCoverage(names)
    running.add(group, lower, upper, y)
    return running.table()
