"""Coverage and width of intervals by the values of a column."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binomtest

from tailwise.uncertainty.column_groups import BINS, ColumnGroups

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


def coverage_by_group(
    group: NDArray[np.int64], names: list[str], lower: Floats, upper: Floats, y: Floats
) -> pd.DataFrame:
    """Return rows, coverage with its 95% Wilson interval, and mean width of each group and of all rows."""
    import pandas as pd

    inside, wide, rows = (y >= lower) & (y <= upper), upper - lower, []
    for code, name in [*enumerate(names), (None, "all")]:
        own = np.ones(len(y), bool) if code is None else group == code
        count, hits = int(own.sum()), int(inside[own].sum())
        wilson = binomtest(hits, count).proportion_ci(method="wilson")
        rows.append((name, count, hits / count, wilson.low, wilson.high, float(wide[own].mean())))
    return pd.DataFrame(rows, columns=["value", "rows", "coverage", "coverage_low", "coverage_high", "width"])
