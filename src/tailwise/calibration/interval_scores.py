"""How often intervals contain the label and how wide they are, by region and by the values of a column."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from tailwise.distributions.members import checked_coverage
from tailwise.labels.bins import LabelBins, checked_labels
from tailwise.metrics.regions import REGIONS
from tailwise.metrics.scores import winkler
from tailwise.options import Count

if TYPE_CHECKING:
    import pandas as pd

Floats = NDArray[np.float64]
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


def constant_interval(training: LabelBins | ArrayLike, coverage: float = 0.9) -> tuple[float, float]:
    """Return one interval for all rows, which ignores the inputs: two quantiles of the training labels.

    `training` is the labels themselves, or their bins. The quantiles of bins are those of the grid points
    if the labels lie on a grid, and are interpolated within bins otherwise.

    >>> constant_interval(np.arange(101.0), 0.9)
    (5.0, 95.0)
    """
    levels = (1 - checked_coverage(coverage)) / 2, (1 + coverage) / 2
    if not isinstance(training, LabelBins):
        lower, upper = np.quantile(checked_labels(training), levels, method="inverted_cdf")
        return float(lower), float(upper)
    below = np.cumsum(training.counts) / training.counts.sum()
    if _on_grid(training):
        at = np.minimum(np.searchsorted(below, np.subtract(levels, 1e-12)), len(training) - 1)
        lower, upper = training.centers[at]
    else:
        lower, upper = np.interp(levels, np.append(0.0, below), training.edges)
    return float(lower), float(upper)


def label_range(bins: LabelBins) -> tuple[float, float]:
    """Return the smallest and the largest training label, as far as their bins tell."""
    ends = bins.centers if _on_grid(bins) else bins.edges
    return float(ends[0]), float(ends[-1])


def _on_grid(bins: LabelBins) -> bool:
    return "one bin for each step" in bins.rule


def intervals_by_region(
    lower: ArrayLike,
    upper: ArrayLike,
    y: ArrayLike,
    bins: LabelBins,
    coverage: float = 0.9,
    *,
    many: int = 100,
    few: int = 20,
    training: LabelBins | ArrayLike | None = None,
) -> pd.DataFrame:
    """Return coverage and width of intervals for all rows and by the region of the true label.

    The index is all, many, medium and few. The columns are ``n``, ``coverage`` with Wilson's 95% interval
    ``coverage_low`` and ``coverage_high``, ``width`` (the mean), ``interval_score`` (Winkler's), and
    ``constant_coverage``, ``constant_width`` and ``constant_interval_score`` of `constant_interval` at the
    same `coverage`. It is computed from `bins`, or from the training labels themselves if they are given as
    `training`. A region without rows has NaN.

    >>> bins = LabelBins.from_labels([0, 0, 0, 1])
    >>> table = intervals_by_region([0, 0], [1, 1], [0, 2], bins)
    >>> table.loc["all", ["coverage", "width", "constant_width"]].tolist()
    [0.5, 1.0, 1.0]
    """
    import pandas as pd

    labels = checked_labels(y)
    low, high = (np.asarray(end, np.float64).reshape(-1) for end in (lower, upper))
    if not low.size == high.size == labels.size:
        raise ValueError(f"{low.size} lower and {high.size} upper ends for {labels.size} labels")
    least, most = constant_interval(bins if training is None else training, coverage)
    figures = _figures(low, high, labels, coverage)
    constant = _figures(np.full_like(labels, least), np.full_like(labels, most), labels, coverage)
    figures |= {f"constant_{name}": values for name, values in constant.items()}
    region = bins.regions(many, few)[bins.index(labels)]
    masks = [np.ones(labels.size, bool), *(region == name for name in REGIONS[1:])]
    means = {
        name: [float(values[rows].mean()) if rows.any() else math.nan for rows in masks]
        for name, values in figures.items()
    }
    table = pd.DataFrame(means, pd.Index(REGIONS, name="region"))
    wilson = [wilson_interval(int(figures["coverage"][rows].sum()), int(rows.sum())) for rows in masks]
    table.insert(0, "n", [int(rows.sum()) for rows in masks])
    for place, name in enumerate(("coverage_low", "coverage_high")):
        table.insert(2 + place, name, np.where(table["n"] > 0, [ends[place] for ends in wilson], math.nan))
    return table


def _figures(lower: Floats, upper: Floats, y: Floats, coverage: float) -> dict[str, NDArray[Any]]:
    """Return of each interval whether it contains the label, its width, and Winkler's score. (N,) each"""
    low, high, labels = map(torch.from_numpy, (lower, upper, y))
    score = winkler(low, high, labels, coverage).numpy()
    return {"coverage": (y >= lower) & (y <= upper), "width": upper - lower, "interval_score": score}


def coverage_by_group(
    groups: ColumnGroups, codes: Codes, lower: Floats, upper: Floats, y: Floats
) -> pd.DataFrame:
    """Return rows, coverage with its 95% Wilson interval, and mean width of each group and of all rows.

    Codes are those of `groups`; ``other`` are rows of no group. (N,) each
    """
    import pandas as pd

    names, order = ("other", *groups.names), [*range(1, len(groups.names) + 1), 0]
    inside, table = (y >= lower) & (y <= upper), []
    for name, rows in [*((names[k], codes == k) for k in order), ("all", np.ones(len(codes), bool))]:
        if rows.any():
            n, covered, width = int(rows.sum()), int(inside[rows].sum()), float((upper - lower)[rows].sum())
            table.append((name, n, covered / n, *wilson_interval(covered, n), width / n))
    return pd.DataFrame(
        table, columns=["value", "rows", "coverage", "coverage_low", "coverage_high", "width"]
    )


def wilson_interval(hits: int, n: int) -> tuple[float, float]:
    """Return Wilson's 95% interval of a share; it is reliable for few rows and for shares near 1.

    >>> tuple(round(end, 3) for end in wilson_interval(9, 10))
    (0.596, 0.982)
    """
    if n == 0:
        return 0.0, 1.0
    low, high = stats.binomtest(hits, n).proportion_ci(method="wilson")
    return float(low), float(high)
