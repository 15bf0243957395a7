"""How often intervals contain the label and how wide they are, by region and by column."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from tailwise.calibration.column_groups import ColumnGroups
from tailwise.distributions.members import checked_coverage
from tailwise.labels.bins import LabelBins, checked_labels
from tailwise.metrics.regions import REGIONS
from tailwise.metrics.scores import winkler

if TYPE_CHECKING:
    import pandas as pd

Floats = NDArray[np.float64]


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
    region = bins.regions(many, few)[bins.index(labels)]
    least, most = constant_interval(bins if training is None else training, coverage)
    inside, constant = (labels >= low) & (labels <= high), (labels >= least) & (labels <= most)
    column = torch.from_numpy(labels)
    score = winkler(torch.from_numpy(low), torch.from_numpy(high), column, coverage).numpy()
    constant_ends = torch.full_like(column, least), torch.full_like(column, most)
    constant_score = winkler(*constant_ends, column, coverage).numpy()
    table = []
    for name in REGIONS:
        rows = np.ones(labels.size, bool) if name == "all" else region == name
        if not rows.any():
            table.append((0, *[math.nan] * 8))
            continue
        figures = coverage_and_width(
            int(rows.sum()), int(inside[rows].sum()), float((high - low)[rows].sum())
        )
        scores = float(score[rows].mean()), float(constant_score[rows].mean())
        table.append((*figures, scores[0], float(constant[rows].mean()), most - least, scores[1]))
    names = ["n", "coverage", "coverage_low", "coverage_high", "width", "interval_score"]
    names += ["constant_coverage", "constant_width", "constant_interval_score"]
    return pd.DataFrame(table, pd.Index(REGIONS, name="region"), names)


def coverage_and_width(rows: int, covered: int, width: float) -> tuple[int, float, float, float, float]:
    """Return rows, coverage with its 95% Wilson interval, and mean width, from sums over rows."""
    return rows, covered / rows, *wilson_interval(covered, rows), width / rows


def coverage_by_group(
    groups: ColumnGroups, codes: NDArray[np.int64], lower: Floats, upper: Floats, y: Floats
) -> pd.DataFrame:
    """Return rows, coverage with its 95% Wilson interval, and mean width of each group and of all rows.

    Codes are those of `groups`; ``other`` are rows of no group. (N,) each
    """
    import pandas as pd

    names, order = ("other", *groups.names), [*range(1, len(groups.names) + 1), 0]
    inside, table = (y >= lower) & (y <= upper), []
    for name, rows in [*((names[k], codes == k) for k in order), ("all", np.ones(len(codes), bool))]:
        if rows.any():
            sums = int(rows.sum()), int(inside[rows].sum()), float((upper - lower)[rows].sum())
            table.append((name, *coverage_and_width(*sums)))
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
