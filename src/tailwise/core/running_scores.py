"""Metrics of rows that come in parts, in memory that does not grow with the number of rows."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from tailwise.core.distributions import Distribution
from tailwise.core.labels import LabelBins
from tailwise.core.metrics import REGIONS, Metric, get_metric
from tailwise.core.scores import MEANS, Labels, pearson, prepared

if TYPE_CHECKING:
    import pandas as pd

_ROUNDING = 1e-14  # a variance below this share of the mean square is that of a constant


class RunningScores:
    """Metrics by name, overall and by region, of predictions that are added part by part.

    It keeps sums of losses for each label bin. So it takes the metrics that follow from a mean over rows,
    ``"balanced_..."``, ``"few/..."`` and ``"gap/..."`` included, and ``"pearson"``. Those that need all
    rows at once, such as AUSE and Spearman's correlation, are an error.

    >>> from tailwise.core.distributions import Normal
    >>> scores = RunningScores(LabelBins.from_labels([0, 0, 0, 1]), ["mae", "few/mae"], many=2, few=2)
    >>> for part in ([0.0, 0.0], [1.0]):
    ...     scores.add(Normal(torch.zeros(len(part)), 1.0), part)
    >>> scores.evaluate()
    {'mae': 0.3333333333333333, 'few/mae': 1.0}
    """

    def __init__(
        self,
        bins: LabelBins,
        metrics: Iterable[str] = ("mae", "rmse", "nll", "crps", "coverage"),
        *,
        many: int = 100,
        few: int = 20,
    ) -> None:
        self.bins, self.metrics = bins, [get_metric(name) for name in metrics]
        for metric in self.metrics:
            if metric.function not in MEANS and metric.function is not pearson:
                raise ValueError(
                    f"metric {metric.name!r} needs all rows at once: leave it out, or compute it on a sample"
                )
        self._regions = bins.regions(many, few)
        self._counts = torch.zeros(len(bins), dtype=torch.float64)
        self._sums: dict[object, Tensor] = {}  # sums in each bin, (B,) each
        self._columns: dict[str, None] = {}
        self._origin: tuple[Tensor, Tensor] | None = None

    def add(self, distribution: Distribution, y: Labels, **columns: ArrayLike) -> None:
        """Take in predictions and labels of some rows; the means of `columns` are kept too. (N,) each

        Every part has the same columns.
        """
        d, labels = prepared(distribution, y)
        if not labels.numel():
            return
        if self._counts.any() and columns.keys() != self._columns.keys():
            raise ValueError(f"this part has columns {[*columns]}, but earlier ones {[*self._columns]}")
        index = self.bins.index(labels)
        values: dict[object, Tensor] = {}
        for metric in self.metrics:
            if metric.function is pearson:
                values |= self._moments(d.point, labels)
            elif _key(metric) not in values:
                values[_key(metric)] = MEANS[metric.function][0](d, labels, **dict(metric.options))
        for name, column in columns.items():
            values[name] = torch.from_numpy(np.asarray(column, np.float64))
            self._columns[name] = None
        self._counts += self._binned(index, None)
        for key, rows in values.items():
            sums = self._binned(index, rows)
            self._sums[key] = self._sums[key] + sums if key in self._sums else sums

    def _binned(self, index: Tensor, values: Tensor | None) -> Tensor:
        return torch.bincount(index, values, minlength=len(self.bins)).double()

    def _moments(self, points: Tensor, y: Tensor) -> dict[object, Tensor]:
        """What Pearson's correlation is made of, counted from the first row so that squares stay small."""
        if self._origin is None:
            self._origin = points[0], y[0]
        p, y = points - self._origin[0], y - self._origin[1]
        return {("moment", k): rows for k, rows in enumerate((p, y, p * p, y * y, p * y))}

    def evaluate(self) -> dict[str, float]:
        """Return each metric of the rows so far, by name."""
        return {metric.name: self._value(metric) for metric in self.metrics}

    def by_region(self) -> pd.DataFrame:
        """Return a table with rows all, many, medium and few: n, the metrics, and means of the columns.

        An empty region has n = 0 and NaN.
        """
        import pandas as pd

        table = {"n": [int(self._counts[self._rows(region)].sum()) for region in REGIONS]}
        figures: dict[str, list[float]] = {}
        for metric in self.metrics:
            figures[metric.name] = [self._value(replace(metric, region=region)) for region in REGIONS]
        for name in self._columns:
            figures[name] = [float(self._mean(name, self._rows(region))) for region in REGIONS]
        return pd.DataFrame({**table, **figures}, index=pd.Index(REGIONS, name="region"))

    def _rows(self, region: str) -> Tensor:
        """Which bins with rows belong to a region. (B,)"""
        own = np.ones(len(self.bins), bool) if region == "all" else self._regions == region
        return torch.from_numpy(own) & (self._counts > 0)

    def _mean(self, key: object, own: Tensor) -> Tensor:
        if not own.any():
            return torch.tensor(math.nan)
        return self._sums[key][own].sum() / self._counts[own].sum()

    def _value(self, metric: Metric) -> float:
        if metric.region == "gap":
            few, many = (self._value(replace(metric, region=region)) for region in ("few", "many"))
            return few - many
        own = self._rows(metric.region)
        if metric.function is pearson:
            return self._pearson(own)
        finish = MEANS[metric.function][1]
        if metric.balanced and own.any():
            return float(finish(self._sums[_key(metric)][own] / self._counts[own]).mean())
        return float(finish(self._mean(_key(metric), own)))

    def _pearson(self, own: Tensor) -> float:
        p, y, pp, yy, py = (float(self._mean(("moment", k), own)) for k in range(5))
        spread = [pp - p * p, yy - y * y]
        if not all(v > _ROUNDING * square for v, square in zip(spread, (pp, yy), strict=True)):
            return math.nan
        return max(-1.0, min(1.0, (py - p * y) / math.sqrt(spread[0]) / math.sqrt(spread[1])))


def _key(metric: Metric) -> object:
    """Metrics with one key have the same losses."""
    return MEANS[metric.function][0], metric.options
