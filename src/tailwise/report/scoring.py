"""What a report rests on: a fitted model's predictions for rows it has not seen, scored by region."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from scipy.special import stdtrit

from tailwise.core.distributions import Distribution
from tailwise.core.labels import LabelBins, checked_labels
from tailwise.core.metrics import REGIONS, by_region
from tailwise.core.scores import Sparsification, sparsification
from tailwise.methods import get_method
from tailwise.uncertainty.scaling import split_variance

if TYPE_CHECKING:
    from tailwise.estimator.regressor import Calibrator, TailRegressor

Floats = NDArray[np.float64]
LEVELS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95)
"""Interval levels of a reliability diagram."""
MIN_POINT_ROWS = 5
"""Test rows behind each point of a curve along the label; neighbouring bins are pooled until then."""


@dataclass(frozen=True, eq=False)
class Scored:
    """One model's predictions of test rows beside their labels; regions go by the true label's bin."""

    title: str
    y: Floats  # (N,)
    distribution: Distribution  # (N,) calibrated
    uncalibrated: Distribution  # (N,) as the network gave it
    bins: LabelBins
    lower: Floats  # (N,) ends of the intervals in force
    upper: Floats
    covered: dict[float, NDArray[np.bool_]]  # by level, whether the intervals in force hold
    coverage: float = 0.9
    many: int = 100
    few: int = 20

    @cached_property
    def mean(self) -> Floats:
        """Predicted labels. (N,)"""
        return np.asarray(self.distribution.mean.double().numpy())

    @cached_property
    def error(self) -> Floats:
        """Absolute errors. (N,)"""
        return np.asarray(np.abs(self.y - self.mean))

    @cached_property
    def nll(self) -> Floats:
        """Negative log-likelihood of each label: what being unsure in the right places is worth. (N,)"""
        return np.asarray(self.distribution.nll(torch.from_numpy(self.y)).double().numpy())

    @cached_property
    def inside(self) -> NDArray[np.bool_]:
        """Whether each interval holds its label. (N,)"""
        return np.asarray((self.y >= self.lower) & (self.y <= self.upper))

    @cached_property
    def width(self) -> Floats:
        """Widths of the intervals. (N,)"""
        return np.asarray(self.upper - self.lower)

    @cached_property
    def region(self) -> NDArray[np.str_]:
        """Region of each true label. (N,)"""
        return np.asarray(self.bins.regions(self.many, self.few)[self.bins.index(self.y)])

    def rows(self, region: str) -> NDArray[np.bool_]:
        """Mask of the rows of a region; ``all`` is every row. (N,)"""
        return np.ones(self.y.size, bool) if region == "all" else self.region == region

    def by_region(self) -> pd.DataFrame:
        """Figures for all, many, medium and few: n, share, mae, rmse, nll, ause, bias, coverage, width."""
        table = by_region(
            self.distribution, self.y, self.bins, ("mae", "rmse", "nll", "ause"), many=self.many, few=self.few
        )
        for name in REGIONS:
            rows = self.rows(name)
            some = bool(rows.any())
            table.loc[name, "share"] = rows.mean()
            table.loc[name, "bias"] = (self.mean - self.y)[rows].mean() if some else math.nan
            table.loc[name, "coverage"] = self.inside[rows].mean() if some else math.nan
            table.loc[name, "width"] = self.width[rows].mean() if some else math.nan
        return table

    def along_label(self, min_rows: int = MIN_POINT_ROWS) -> pd.DataFrame:
        """Figures along the label: neighbouring bins pooled until each point has `min_rows` rows.

        Columns: center (mean label), n, mae, coverage, width, std, aleatoric_std and epistemic_std.
        """
        aleatoric, epistemic = split_variance(self.distribution, self.uncalibrated)
        table = along_label(
            self.y,
            self.bins,
            {
                "mae": self.error,
                "coverage": self.inside,
                "width": self.width,
                "std": self.distribution.variance,
                "aleatoric_std": aleatoric,
                "epistemic_std": epistemic,
            },
            min_rows,
        )
        spreads = ["std", "aleatoric_std", "epistemic_std"]
        return table.assign(**{name: np.sqrt(table[name]) for name in spreads})

    def reliability(self, region: str = "all") -> Floats:
        """Share of intervals in force that hold, at each of `LEVELS`. (L,)"""
        rows = self.rows(region)
        return np.array([self.covered[level][rows].mean() if rows.any() else math.nan for level in LEVELS])

    def own_reliability(self, *, calibrated: bool) -> Floats:
        """The same for the central intervals of the predicted distribution itself. (L,)"""
        return shares_held(self.distribution if calibrated else self.uncalibrated, self.y)

    def sparsification(self, points: int = 400) -> Sparsification:
        """Error left as the least certain rows are removed, at most `points` points.

        It ends where one in a hundred rows is left, or ten: the mean of fewer jumps about.
        """
        curves = sparsification(self.distribution, self.y)
        last = max(curves.error.size - max(10, curves.error.size // 100), 0)
        keep = np.unique(np.linspace(0, last, points).astype(np.int64))
        return Sparsification(*(part[keep] for part in curves))


def along_label(
    y: Floats, bins: LabelBins, values: Mapping[str, Any], min_rows: int = MIN_POINT_ROWS
) -> pd.DataFrame:
    """Means of values along the label: neighbouring bins pooled until each point has `min_rows` rows.

    (N,) each. Columns: center (mean label), n, and one for each of the values.
    """
    order = np.argsort(y, kind="stable")
    index = bins.index(y[order])
    starts, at = [0], 0
    for change in [*np.flatnonzero(np.diff(index)) + 1, order.size]:
        if change - at >= min_rows and change < order.size:
            starts.append(int(change))
            at = int(change)
    if len(starts) > 1 and order.size - starts[-1] < min_rows:
        starts.pop()
    sizes = np.diff([*starts, order.size])

    def pooled(of_rows: Any) -> Floats:
        ordered = np.asarray(of_rows, np.float64)[order]
        return np.asarray(np.add.reduceat(ordered, starts) / sizes)

    means = {name: pooled(of_rows) for name, of_rows in values.items()}
    return pd.DataFrame({"center": pooled(y), "n": sizes, **means})


def shares_held(distribution: Distribution, y: Floats) -> Floats:
    """Share of a distribution's central intervals that hold, at each of `LEVELS`. (N,) each -> (L,)"""
    ends = [[e.double().numpy() for e in distribution.interval(level)] for level in LEVELS]
    return np.array([((y >= low) & (y <= high)).mean() for low, high in ends])


def score_model(
    model: TailRegressor, X: Any, y: Any, coverage: float = 0.9, *, target: int | None = None
) -> Scored:
    """Predict rows that the model has not seen and put them beside their labels.

    `target` is the number of the target that y holds, for a model of several.
    """
    if target is None:
        if model.n_targets_ != 1:
            raise ValueError(
                f"a report is about one target, and this model has {model.n_targets_}: give target="
            )
        target = 0
    labels = checked_labels(y)
    d = _one(model.predict_distribution(X), target)
    bare = _copy_without_scaling(model)
    raw = d if bare is None else _one(bare.predict_distribution(X), target)
    calibrator = model.calibrators_[target]
    covered = {}
    for level in LEVELS:
        low, high = _ends(calibrator, d, level)
        covered[level] = (labels >= low) & (labels <= high)
    lower, upper = _ends(calibrator, d, coverage)
    return Scored(
        title=get_method(model.method).title,
        y=labels,
        distribution=d,
        uncalibrated=raw,
        bins=calibrator.bins,
        lower=lower,
        upper=upper,
        covered=covered,
        coverage=coverage,
        many=model.many,
        few=model.few,
    )


def _one(d: Distribution | list[Distribution], target: int) -> Distribution:
    return d[target] if isinstance(d, list) else d


def _copy_without_scaling(model: TailRegressor) -> TailRegressor | None:
    """The same model with the network's own spread; None if there is no scaling to undo."""
    import copy

    if all(calibrator.scaling is None for calibrator in model.calibrators_):
        return None
    bare = copy.copy(model)
    bare.calibrators_ = [replace(calibrator, scaling=None) for calibrator in model.calibrators_]
    return bare


def _ends(calibrator: Calibrator, d: Distribution, level: float) -> tuple[Floats, Floats]:
    """Ends of the intervals that `predict_interval` gives."""
    low, high = calibrator.interval(d, level)
    return low.double().numpy(), high.double().numpy()


def wilson(hits: int, n: int, z: float = 1.96) -> tuple[float, float]:
    """Return Wilson's 95% interval of a share, sound for few rows and shares near 1.

    >>> tuple(round(end, 3) for end in wilson(9, 10))
    (0.596, 0.982)
    """
    if n == 0:
        return 0.0, 1.0
    share, shrink = hits / n, 1 + z * z / n
    center = (share + z * z / (2 * n)) / shrink
    half = z * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n)) / shrink
    return max(center - half, 0.0), min(center + half, 1.0)


@dataclass(frozen=True)
class Change:
    """How an average over the same rows differs between two models; `half` is half of its 95% interval."""

    ours: float
    theirs: float
    half: float
    n: int

    @property
    def difference(self) -> float:
        """Ours minus theirs."""
        return self.ours - self.theirs

    @property
    def clear(self) -> bool:
        """Whether chance in the choice of test rows does not explain the difference."""
        return self.n > 1 and abs(self.difference) > self.half


def compared(ours: Floats, theirs: Floats, rows: NDArray[np.bool_]) -> Change:
    """Compare two models' losses row by row: pairs cancel what makes rows hard for both. (N,) each"""
    a, b = ours[rows], theirs[rows]
    if a.size == 0:
        return Change(math.nan, math.nan, math.nan, 0)
    if a.size == 1:
        return Change(float(a[0]), float(b[0]), math.inf, 1)
    # Student's t: the spread of a few rows is itself uncertain.
    reach = float(stdtrit(a.size - 1, 0.975))
    half = reach * float(np.std(a - b, ddof=1)) / math.sqrt(a.size)
    return Change(float(a.mean()), float(b.mean()), half, a.size)


def region_names(present: Sequence[str]) -> list[str]:
    """Those of many, medium and few that occur, in this order."""
    return [name for name in REGIONS[1:] if name in present]
