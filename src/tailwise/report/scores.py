"""One model on one table: predictions of rows that it has not seen, and every figure made from them.

Rows are encoded and predicted once. Verdict, charts, page, JSON and comparisons read the same `Scores`, which
compute each figure once. A new figure is a row of `FIGURES`.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from tailwise.calibration.calibration import Calibration, Raw
from tailwise.distributions.members import Distribution
from tailwise.labels.bins import LabelBins, checked_labels
from tailwise.labels.prior import rarest
from tailwise.methods import get_method
from tailwise.metrics.regions import REGIONS, by_region
from tailwise.metrics.scores import Sparsification, sparsification, winkler
from tailwise.report.wording import number, say

if TYPE_CHECKING:
    from tailwise.estimator import TailRegressor
    from tailwise.model.inputs import Encoded

Floats = NDArray[np.float64]
LEVELS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95)
"""Interval levels of a reliability diagram."""
MIN_POINT_ROWS = 5
"""Each point of a curve along the label averages at least this many test rows."""
EMPHASES = tuple(k / 10 for k in range(11))
"""Settings of the dial that a page shows, besides the one in use."""
MIN_DIAL_ROWS = 20
"""With fewer test rows there are too few rare ones to draw a curve."""


class Figure(NamedTuple):
    """A figure of a region: its heading, its text, and the mean over rows that it is, if it is one."""

    title: str
    text: Callable[[float], str] = number
    rows: Callable[[Scores], Any] | None = None


DIALLED: Mapping[str, Callable[[Scores], Any]] = {
    "mae": lambda scores: scores.error,
    "coverage": lambda scores: scores.inside,
    "width": lambda scores: scores.width,
    "interval_score": lambda scores: scores.interval_score,
}
"""Figures that the slider of a page turns: means of these rows."""
FIGURES: Mapping[str, Figure] = {
    "mae": Figure("MAE"),
    "rmse": Figure("RMSE"),
    "nll": Figure("NLL"),
    "crps": Figure("CRPS"),
    "ause": Figure("AUSE"),
    "bias": Figure("bias", rows=lambda scores: scores.mean - scores.y),
    "coverage": Figure("coverage", "{:.1%}".format, DIALLED["coverage"]),
    "width": Figure("width", rows=DIALLED["width"]),
    "interval_score": Figure("interval score", rows=DIALLED["interval_score"]),
}
"""The figures of a region, by name; those without a function of rows are metrics of that name."""
METRICS = tuple(name for name, figure in FIGURES.items() if figure.rows is None)
PRINTED = ("mae", "rmse", "nll", "crps", "coverage", "width", "interval_score")
"""Figures that a command prints."""
SHOWN = ("mae", "rmse", "coverage", "width", "interval_score", "crps", "bias", "nll", "ause")
"""Figures in the table of a page."""


@dataclass(frozen=True, eq=False)
class Scores:
    """Test labels with one model's predictions of them; the region of a row is that of its true label."""

    title: str
    y: Floats  # (N,)
    distribution: Distribution  # (N,) calibrated
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
    encoded: Encoded | None = None
    """The rows as the model takes them."""

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
    def inside(self) -> NDArray[np.bool_]:
        """Whether each interval contains its label. (N,)"""
        return np.asarray((self.y >= self.lower) & (self.y <= self.upper))

    @cached_property
    def width(self) -> Floats:
        """Widths of the intervals. (N,)"""
        return np.asarray(self.upper - self.lower)

    @cached_property
    def interval_score(self) -> Floats:
        """Winkler's interval score of each row: small for intervals that are narrow and hold. (N,)"""
        ends = torch.from_numpy(self.lower), torch.from_numpy(self.upper)
        return np.asarray(winkler(*ends, torch.from_numpy(self.y), self.coverage).numpy())

    @cached_property
    def region(self) -> NDArray[np.str_]:
        """Region of each true label. (N,)"""
        return np.asarray(self.bins.regions(self.many, self.few)[self.bins.index(self.y)])

    def mask(self, region: str) -> NDArray[np.bool_]:
        """Whether each row belongs to a region; every row belongs to ``all``. (N,)"""
        return np.ones(self.y.size, bool) if region == "all" else self.region == region

    @property
    def regions(self) -> list[str]:
        """Those of many, medium and few that have test rows."""
        return [region for region in REGIONS[1:] if self.mask(region).any()]

    @cached_property
    def by_region(self) -> pd.DataFrame:
        """Figures for all, many, medium and few: n, share (of the test rows) and those of `FIGURES`."""
        limits = {"many": self.many, "few": self.few}
        table = by_region(self.distribution, self.y, self.bins, METRICS, **limits)
        table.insert(6, "share", table["n"] / table["n"].iloc[0])
        for name, figure in FIGURES.items():
            if figure.rows is not None:
                values = figure.rows(self)
                table[name] = [
                    float(values[rows].mean()) if rows.any() else math.nan for rows in map(self.mask, REGIONS)
                ]
        return table

    def at(self, emphasis: float) -> Scores:
        """Return the scores of the same model and rows at another emphasis, without other levels."""
        assert self.calibration is not None and self.raw is not None
        calibration = self.calibration.at(emphasis)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # scoring has warned already, at the one in use
            predicted = calibration(self.raw)
            lower, upper = (end.double().numpy() for end in predicted.interval(self.coverage))
        turned = replace(self, distribution=predicted.distribution, calibration=calibration, covered={})
        return replace(turned, lower=lower, upper=upper)

    @cached_property
    def dial(self) -> Dial | None:
        """The figures along the dial; None for few test rows and for models without a dial."""
        return Dial.of(self)

    def along_label(self, min_rows: int = MIN_POINT_ROWS) -> pd.DataFrame:
        """Return figures along the label; each point pools neighbouring bins until it has `min_rows` rows.

        Columns: center (mean label), n and mae.
        """
        order, starts = np.argsort(self.y, kind="stable"), [0]
        for change in np.flatnonzero(np.diff(self.bins.index(self.y[order]))) + 1:
            if min(change - starts[-1], order.size - change) >= min_rows:
                starts.append(int(change))
        sizes = np.diff([*starts, order.size])
        center, mae = (np.add.reduceat(values[order], starts) / sizes for values in (self.y, self.error))
        return pd.DataFrame({"center": center, "n": sizes, "mae": mae})

    def reliability(self, region: str = "all") -> Floats:
        """Return the share of intervals that contain the label, at each of `LEVELS`. (L,)"""
        rows = self.mask(region)
        return np.array([self.covered[level][rows].mean() if rows.any() else math.nan for level in LEVELS])

    def sparsification(self, points: int = 400) -> Sparsification:
        """Return the error of the rows that remain as the least certain are removed, at most `points` points.

        The curve ends where 1% of the rows remain, or ten rows: a mean over fewer is noise.
        """
        curves = sparsification(self.distribution, self.y)
        last = max(curves.error.size - max(10, curves.error.size // 100), 0)
        keep = np.unique(np.linspace(0, last, points).astype(np.int64))
        return Sparsification(*(part[keep] for part in curves))


@dataclass(frozen=True, eq=False)
class Dial:
    """A model's predictions of the test rows at every emphasis (VIR:dial)."""

    scores: Scores
    settings: tuple[float, ...]  # ascending: EMPHASES and the one in use
    rare: NDArray[np.bool_]  # (N,) the rarest labels, by their density in training
    turned: tuple[Scores, ...]  # at each setting

    @classmethod
    def of(cls, scores: Scores) -> Dial | None:
        """Turn the dial of a model, unless it has none or there are few test rows."""
        calibration, raw = scores.calibration, scores.raw
        if calibration is None or raw is None or scores.y.size < MIN_DIAL_ROWS:
            return None
        used = () if math.isnan(scores.emphasis) else (scores.emphasis,)
        settings, rare = sorted({*EMPHASES, *used}), rarest(scores.y, calibration.labels.density)
        return cls(scores, tuple(settings), rare, tuple(scores.at(emphasis) for emphasis in settings))

    def point(self, scores: Scores) -> tuple[float, float]:
        """Return the error over all rows and over rare rows of a model on the same test rows."""
        return float(scores.error.mean()), float(scores.error[self.rare].mean())

    @cached_property
    def curve(self) -> tuple[Floats, Floats]:
        """Error over all rows and over rare rows at each setting. (E,) each"""
        overall, rare = np.transpose([self.point(scores) for scores in self.turned])
        return overall, rare

    def by_region(self) -> dict[str, dict[str, list[float]]]:
        """Return the `DIALLED` figures of each region that has test rows, at each setting."""
        return {
            region: {name: [float(of(s)[rows].mean()) for s in self.turned] for name, of in DIALLED.items()}
            for region in ("all", *self.scores.regions)
            for rows in [self.scores.mask(region)]
        }

    @property
    def changes(self) -> dict[str, tuple[float, float]]:
        """Error for rare and for other labels: now and at emphasis 0, or where 0 is in use at 1 and at 0."""
        plain = self.turned[0].error
        now = (self.turned[-1] if self.scores.emphasis == 0 else self.scores).error
        groups = {"rare": self.rare, "others": ~self.rare}
        return {name: (float(now[rows].mean()), float(plain[rows].mean())) for name, rows in groups.items()}

    @property
    def setting(self) -> str:
        """The setting in use, in words."""
        return say("dial", "setting", self)

    @property
    def text(self) -> str:
        """What the setting in use gains for rare labels and costs for the others."""
        return say("dial", "text", self)


def title_of(model: TailRegressor) -> str:
    """Return what pages call a model: TailRegressor, or its method unless that is the default."""
    return "TailRegressor" if model.method == type(model)().method else get_method(model.method).title


class Seen:
    """Rows of a table as one model sees them: encoded and predicted once, for all targets and settings."""

    def __init__(self, model: TailRegressor, X: Any) -> None:
        self.title, self.model = title_of(model), model.model_
        self.encoded = self.model.encode(X)
        self.raw = self.model.raw(self.encoded)

    def scores(
        self,
        y: Any,
        coverage: float = 0.9,
        target: int | None = None,
        *,
        emphasis: float | None = None,
        label_prior: Any = None,
    ) -> Scores:
        """Return the predictions of one target with its labels, under an emphasis or a label prior.

        `target` is the number of the target of a model with several.
        """
        if target is None and len(self.raw) > 1:
            raise ValueError(f"the model has {len(self.raw)} targets: choose one of them by target=")
        target = target or 0
        labels, raw = checked_labels(y), self.raw[target]
        calibration = self.model.at(emphasis, label_prior).targets[target]
        predicted = calibration(raw)
        ends = {coverage: [end.double().numpy() for end in predicted.interval(coverage)]}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # nobody asked for the levels of a diagram
            for share in set(LEVELS) - {coverage}:
                ends[share] = [end.double().numpy() for end in predicted.interval(share)]
        lower, upper = ends[coverage]
        return Scores(
            title=self.title,
            y=labels,
            distribution=predicted.distribution,
            raw=raw,
            bins=calibration.bins,
            lower=lower,
            upper=upper,
            covered={share: (labels >= low) & (labels <= high) for share, (low, high) in ends.items()},
            coverage=coverage,
            many=calibration.labels.many,
            few=calibration.labels.few,
            calibration=calibration,
            encoded=self.encoded,
        )
