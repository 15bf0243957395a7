"""A fitted model's predictions for rows it has not seen, with figures by region and along the label."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from scipy import stats

from tailwise.calibration.calibration import Calibration, Raw
from tailwise.calibration.scaling import split_variance
from tailwise.distributions.members import Distribution
from tailwise.labels.bins import LabelBins, checked_labels
from tailwise.methods import get_method
from tailwise.metrics.regions import REGIONS, RunningScores, by_region
from tailwise.metrics.scores import Sparsification, sparsification
from tailwise.report.formatting import number

if TYPE_CHECKING:
    from tailwise.estimator import TailRegressor

Floats = NDArray[np.float64]
LEVELS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95)
"""Interval levels of a reliability diagram."""
MIN_POINT_ROWS = 5
"""Each point of a curve along the label averages at least this many test rows."""


@dataclass(frozen=True, eq=False)
class Scored:
    """Test labels with one model's predictions of them; the region of a row is that of its true label."""

    title: str
    y: Floats  # (N,)
    distribution: Distribution  # (N,) calibrated
    uncalibrated: Distribution  # (N,) as the network predicts it, at emphasis 0
    bins: LabelBins
    lower: Floats  # (N,) ends of the intervals that `predict_interval` returns
    upper: Floats  # (N,)
    covered: dict[float, NDArray[np.bool_]]  # by level: whether the interval contains the label, (N,)
    coverage: float = 0.9
    many: int = 100
    few: int = 20
    calibration: Calibration | None = None
    """What made `distribution` and the intervals; baselines without a dial have none."""
    raw: Raw | None = None
    """What the networks predict, before calibration. (N,)"""

    @property
    def emphasis(self) -> float:
        """Emphasis on rare labels; NaN under a label prior."""
        return 0.0 if self.calibration is None else self.calibration.emphasis

    @cached_property
    def whole(self) -> bool:
        """Whether all labels are whole numbers, so that a label is written without decimals."""
        return bool((self.y == np.rint(self.y)).all())

    def label(self, value: float) -> str:
        """Return a label, or a prediction of one, as text; whole if all labels are."""
        return f"{value:,.0f}" if self.whole else number(value)

    @cached_property
    def mean(self) -> Floats:
        """Predicted labels. (N,)"""
        return np.asarray(self.distribution.point.double().numpy())

    @cached_property
    def error(self) -> Floats:
        """Absolute errors. (N,)"""
        return np.asarray(np.abs(self.y - self.mean))

    @cached_property
    def nll(self) -> Floats:
        """Negative log-likelihood of each label. (N,)"""
        return np.asarray(self.distribution.nll(torch.from_numpy(self.y)).double().numpy())

    @cached_property
    def inside(self) -> NDArray[np.bool_]:
        """Whether each interval contains its label. (N,)"""
        return np.asarray((self.y >= self.lower) & (self.y <= self.upper))

    @cached_property
    def width(self) -> Floats:
        """Widths of the intervals. (N,)"""
        return np.asarray(self.upper - self.lower)

    @cached_property
    def region(self) -> NDArray[np.str_]:
        """Region of each true label. (N,)"""
        return np.asarray(self.bins.regions(self.many, self.few)[self.bins.index(self.y)])

    def mask(self, region: str) -> NDArray[np.bool_]:
        """Whether each row belongs to a region; every row belongs to ``all``. (N,)"""
        return np.ones(self.y.size, bool) if region == "all" else self.region == region

    def by_region(self) -> pd.DataFrame:
        """Return figures for all, many, medium and few.

        Columns: n, mae, rmse, nll, ause, share (of the test rows), bias, coverage and width.
        """
        figures = RunningFigures()
        figures.add(self)
        return figures.by_region(self)

    def along_label(self, min_rows: int = MIN_POINT_ROWS) -> pd.DataFrame:
        """Return figures along the label; each point pools neighbouring bins until it has `min_rows` rows.

        Columns: center (mean label), n, mae, std, aleatoric_std and epistemic_std.
        """
        aleatoric, epistemic = split_variance(self.distribution, self.uncalibrated)
        order = np.argsort(self.y, kind="stable")
        starts = _pool_starts(self.bins.index(self.y[order]), min_rows)
        sizes = np.diff([*starts, order.size])

        def pooled(values: Any) -> Floats:
            return np.asarray(np.add.reduceat(np.asarray(values, np.float64)[order], starts) / sizes)

        return pd.DataFrame(
            {
                "center": pooled(self.y),
                "n": sizes,
                "mae": pooled(self.error),
                "std": np.sqrt(pooled(aleatoric + epistemic)),
                "aleatoric_std": np.sqrt(pooled(aleatoric)),
                "epistemic_std": np.sqrt(pooled(epistemic)),
            }
        )

    def reliability(self, region: str = "all") -> Floats:
        """Return the share of intervals that contain the label, at each of `LEVELS`. (L,)"""
        rows = self.mask(region)
        return np.array([self.covered[level][rows].mean() if rows.any() else math.nan for level in LEVELS])

    def distribution_reliability(self, *, calibrated: bool) -> Floats:
        """Return the same share for the central intervals of the predicted distribution. (L,)"""
        predicted = self.distribution if calibrated else self.uncalibrated
        ends = [[end.double().numpy() for end in predicted.interval(level)] for level in LEVELS]
        return np.array([((self.y >= low) & (self.y <= high)).mean() for low, high in ends])

    def sparsification(self, points: int = 400) -> Sparsification:
        """Return the error of the rows that remain as the least certain are removed, at most `points` points.

        The curve ends where 1% of the rows remain, or ten rows: a mean over fewer is noise.
        """
        curves = sparsification(self.distribution, self.y)
        last = max(curves.error.size - max(10, curves.error.size // 100), 0)
        keep = np.unique(np.linspace(0, last, points).astype(np.int64))
        return Sparsification(*(part[keep] for part in curves))


class RunningFigures:
    """The figures of `Scored.by_region` for rows of one model that come in parts."""

    def __init__(self) -> None:
        self._scores: RunningScores | None = None

    def add(self, part: Scored) -> None:
        """Take in the predictions of some rows."""
        if self._scores is None:
            self._scores = RunningScores(part.bins, ("mae", "rmse", "nll"), many=part.many, few=part.few)
        columns = {"bias": part.mean - part.y, "coverage": part.inside, "width": part.width}
        self._scores.add(part.distribution, part.y, **columns)

    def by_region(self, sample: Scored) -> pd.DataFrame:
        """Return the table of all rows so far; AUSE is that of the rows of `sample`."""
        assert self._scores is not None
        table = self._scores.by_region()
        limits = {"many": sample.many, "few": sample.few}
        ause = by_region(sample.distribution, sample.y, sample.bins, ("ause",), **limits)["ause"]
        table.insert(4, "ause", ause)
        table.insert(5, "share", table["n"] / table["n"].iloc[0])
        return table


def _pool_starts(index: NDArray[np.int64], min_rows: int) -> list[int]:
    """First row of each pool, for rows sorted by bin: whole bins, at least `min_rows` rows in each pool."""
    starts = [0]
    for change in np.flatnonzero(np.diff(index)) + 1:
        if change - starts[-1] >= min_rows:
            starts.append(int(change))
    if len(starts) > 1 and index.size - starts[-1] < min_rows:
        starts.pop()
    return starts


def score_model(
    model: TailRegressor,
    X: Any,
    y: Any,
    coverage: float = 0.9,
    *,
    target: int | None = None,
    emphasis: float | None = None,
    label_prior: Any = None,
    levels: Iterable[float] = LEVELS,
) -> Scored:
    """Predict rows that the model has not seen and return the predictions with the labels.

    y are the labels of one target: number `target` of a model with several. `emphasis` and `label_prior`
    are those of `TailRegressor.predict`. `levels` are those of a reliability diagram, if one is wanted.
    """
    if target is None and model.n_targets_ != 1:
        raise ValueError(f"the model has {model.n_targets_} targets: choose one of them by target=")
    place = target or 0
    labels = checked_labels(y)
    at = model.model_.at(emphasis, label_prior)
    raw, calibration = at.raw(at.encode(X))[place], at.targets[place]
    predicted = calibration(raw)
    ends = {coverage: [end.double().numpy() for end in predicted.interval(coverage)]}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # nobody asked for the levels of a diagram
        for level in set(levels) - {coverage}:
            ends[level] = [end.double().numpy() for end in predicted.interval(level)]
    lower, upper = ends[coverage]
    return Scored(
        title=title_of(model),
        y=labels,
        distribution=predicted.distribution,
        uncalibrated=raw.pooled,
        raw=raw,
        bins=calibration.bins,
        lower=lower,
        upper=upper,
        covered={level: (labels >= low) & (labels <= high) for level, (low, high) in ends.items()},
        coverage=coverage,
        many=calibration.labels.many,
        few=calibration.labels.few,
        calibration=calibration,
    )


def title_of(model: TailRegressor) -> str:
    """Return what pages call a model: TailRegressor, or its method unless that is the default."""
    return "TailRegressor" if model.method == type(model)().method else get_method(model.method).title


@dataclass(frozen=True)
class Difference:
    """Losses of two models on the same rows; `half` is the half-width of the difference's interval."""

    ours: float
    theirs: float
    half: float
    n: int

    @property
    def value(self) -> float:
        """Ours minus theirs."""
        return self.ours - self.theirs

    @property
    def better(self) -> bool:
        """Whether our loss is lower by more than the error of the difference."""
        return self.n > 1 and self.value < -self.half

    @property
    def worse(self) -> bool:
        """Whether our loss is higher by more than the error of the difference."""
        return self.n > 1 and self.value > self.half

    @property
    def undecided(self) -> bool:
        """Whether the difference lies within its error."""
        return not (self.better or self.worse)

    @property
    def bound(self) -> float:
        """The largest difference that its interval contains, as a share of their loss."""
        return (abs(self.value) + self.half) / self.theirs if self.theirs > 0 else math.inf


def paired_difference(
    ours: Floats, theirs: Floats, rows: NDArray[np.bool_], confidence: float = 0.95
) -> Difference:
    """Compare the mean losses of two models row by row, with Student's t interval. (N,) each"""
    a, b = ours[rows], theirs[rows]
    return _difference(a.mean() if a.size else math.nan, b.mean() if b.size else math.nan, a - b, confidence)


def rmse_difference(
    ours: Floats, theirs: Floats, rows: NDArray[np.bool_], confidence: float = 0.95
) -> Difference:
    """Compare the root mean square errors of two models row by row. Absolute errors: (N,) each

    The interval is the one that a paired bootstrap over the rows tends to, without its random numbers: each
    row adds ``e**2 / (2 RMSE)`` to the root of the mean.
    """
    a, b = ours[rows], theirs[rows]
    if a.size == 0:
        return Difference(math.nan, math.nan, math.nan, 0)
    first, second = math.sqrt(np.mean(a**2)), math.sqrt(np.mean(b**2))
    parts = [e**2 / (2 * root) if root > 0 else np.zeros_like(e) for e, root in ((a, first), (b, second))]
    return _difference(first, second, parts[0] - parts[1], confidence)


def _difference(ours: float, theirs: float, each: Floats, confidence: float) -> Difference:
    """Return a difference whose error is that of the mean of `each`. (n,)"""
    n = each.size
    if n == 0:
        return Difference(math.nan, math.nan, math.nan, 0)
    half = math.inf if n == 1 else float(stats.t.ppf((1 + confidence) / 2, n - 1) * stats.sem(each))
    return Difference(float(ours), float(theirs), half, n)


def sorted_regions(names: Iterable[str]) -> list[str]:
    """Return those of many, medium and few that occur, in this order."""
    present = set(names)
    return [name for name in REGIONS[1:] if name in present]
