"""Coverage and width of intervals by the values of a column."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binomtest

if TYPE_CHECKING:
    import pandas as pd

Floats = NDArray[np.float64]

MAX_VALUES = 20
"""A column of numbers with more values than this is cut into bins of equal numbers of rows."""
BINS = 5


def column_groups(values: Any, bins: int = BINS) -> tuple[NDArray[np.int64], list[str]]:
    """Return the group of each row, and the names of the groups in order. (N,)

    Numbers and dates with more than 20 values are cut into `bins` groups of about equal size. Missing values
    are a group of their own.

    >>> column_groups(["b", "a", "b"])
    (array([1, 0, 1]), ['a', 'b'])
    >>> column_groups(np.arange(100), bins=2)[1]
    ['0 to 49', '50 to 99']
    """
    import pandas as pd

    if bins < 1:
        raise ValueError(f"bins must be at least 1, got {bins!r}")
    column = pd.Series(np.asarray(values) if not hasattr(values, "array") else values.array)
    numeric = pd.api.types.is_numeric_dtype(column) or pd.api.types.is_datetime64_any_dtype(column)
    if numeric and not pd.api.types.is_bool_dtype(column) and column.nunique() > MAX_VALUES:
        codes = pd.qcut(column, bins, labels=False, duplicates="drop").to_numpy()
        found = np.where(np.isnan(codes), -1, codes).astype(np.int64)
        names = [_range(column[found == code]) for code in range(int(found.max()) + 1)]
    else:
        text = column if numeric else column.astype(object).where(column.isna(), column.astype(str))
        codes, seen = pd.factorize(text, sort=True)
        found = np.asarray(codes, np.int64)
        names = [f"{value:g}" if isinstance(value, float) else str(value) for value in seen]
    if (found < 0).any():
        found = np.where(found < 0, len(names), found)
        names.append("missing")
    return found, names


def _range(values: pd.Series[Any]) -> str:
    low, high = values.min(), values.max()
    ends = [f"{end:.6g}" if isinstance(end, (int, float, np.number)) else str(end) for end in (low, high)]
    return " to ".join(ends)


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
