"""Groups of rows by one column: the values of a category, or bins of a number."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tailwise.options import Count

Codes = NDArray[np.int64]

MAX_VALUES = 20
"""A column of numbers with more values than this is cut into bins of equal numbers of rows."""
BINS = 5
MAX_GROUPS = 50
"""Most groups with limits of their own; the rows of other values use the overall limits."""


@dataclass(frozen=True)
class ColumnGroups:
    """Which group a row belongs to, by its value in one column.

    Numbers and dates with more than 20 values are cut into bins of about equal numbers of rows, and the first
    and the last bin are open. Other columns have a group for each value. Missing values are a group of their
    own, if there were any. `ColumnGroups()` has no groups: every row has the code 0.
    """

    column: str | Count = 0
    names: tuple[str, ...] = ()
    edges: tuple[float, ...] | None = None  # between bins; None for groups by value
    missing: bool = False  # whether the last group is that of missing values

    def __post_init__(self) -> None:
        edges, groups = self.edges, len(self.names) - self.missing
        if groups < 0 or (edges is not None and (groups != len(edges) + 1 or (np.diff(edges) <= 0).any())):
            raise ValueError(f"{len(self.names)} groups need edges in ascending order between them")

    @classmethod
    def of(
        cls, values: Any, column: str | int = 0, bins: int = BINS, at_most: int | None = None
    ) -> ColumnGroups:
        """Find the groups of a column; with `at_most`, only those of the most frequent values. (N,)

        >>> ColumnGroups.of(["b", "a", "b"]).names
        ('a', 'b')
        >>> ColumnGroups.of(np.arange(100), bins=2).names
        ('0 to 49', '50 to 99')
        """
        import pandas as pd

        if bins < 1:
            raise ValueError(f"bins must be at least 1, got {bins!r}")
        series = _series(values)
        missing = bool(series.isna().any())
        present = series[~series.isna()]
        last = ("missing",) if missing else ()
        if _ordered(series) and present.nunique() > MAX_VALUES:
            numbers = _numbers(present)
            inner = np.unique(np.quantile(numbers, np.linspace(0, 1, bins + 1)[1:-1]))
            edges = inner[inner < numbers.max()]
            place = np.searchsorted(edges, numbers)
            names = tuple(_range(present[place == code]) for code in range(edges.size + 1))
            return cls(column, names + last, tuple(edges.tolist()), missing)
        if _ordered(series):
            present = present.sort_values()
        texts = _texts(present)
        counts = texts.value_counts()
        kept = list(pd.unique(texts)) if _ordered(series) else sorted(counts.index)
        if at_most is not None and len(kept) > at_most:
            frequent = set(counts.index[:at_most])
            kept = [name for name in kept if name in frequent]
        return cls(column, (*kept, *last), None, missing)

    def codes(self, values: Any) -> Codes:
        """Return the group of each row, from 1, or 0 for a value without a group. (N,)"""
        series = _series(values)
        absent = series.isna().to_numpy(bool)
        if self.edges is not None:
            numbers = _numbers(series)
            found = np.searchsorted(self.edges, numbers) + 1
            absent = absent | np.isnan(numbers)
        else:
            named = self.names[: len(self.names) - self.missing]
            known = {name: code for code, name in enumerate(named, start=1)}
            found = _texts(series).map(known).fillna(0).to_numpy()
        return np.where(absent, len(self.names) if self.missing else 0, found).astype(np.int64)


def _series(values: Any) -> Any:
    import pandas as pd

    return pd.Series(np.asarray(values) if not hasattr(values, "array") else values.array)


def _ordered(series: Any) -> bool:
    """Whether values are numbers or dates."""
    from pandas.api import types

    numbers = types.is_numeric_dtype(series) and not types.is_bool_dtype(series)
    return bool(numbers or types.is_datetime64_any_dtype(series))


def _numbers(series: Any) -> NDArray[np.float64]:
    """Values as numbers, dates as seconds; NaN for what is neither. (N,)"""
    import pandas as pd

    if pd.api.types.is_datetime64_any_dtype(series):
        start = pd.Timestamp(0, tz=getattr(series.dt, "tz", None))
        return np.asarray((series - start).dt.total_seconds(), np.float64)
    return np.asarray(pd.to_numeric(series, errors="coerce").to_numpy(np.float64, na_value=np.nan))


def _texts(series: Any) -> Any:
    """Values as texts; a number has the same text whatever its type."""
    import pandas as pd

    if pd.api.types.is_numeric_dtype(series) and not pd.api.types.is_bool_dtype(series):
        return series.map(lambda value: f"{value:.15g}", na_action="ignore").astype(object)
    return series.astype(object).map(str, na_action="ignore")


def _range(values: Any) -> str:
    low, high = values.min(), values.max()
    ends = [f"{end:.6g}" if isinstance(end, (int, float, np.number)) else str(end) for end in (low, high)]
    return " to ".join(ends)
