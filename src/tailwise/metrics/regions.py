"""Metrics by name: overall, per label region and balanced over label bins.

The scores themselves are the functions of `tailwise.metrics.scores`. `get_metric` finds one by name:
``"mae"``, ``"balanced_mae"`` (mean over the occupied label bins), ``"few/mae"`` (one region) or
``"gap/nll"`` (few minus many, the fairness figure). `RunningScores` computes them for rows that come in
parts, and `scorer` turns any of them into a scorer for scikit-learn.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from torch import Tensor

from tailwise.distributions.members import Distribution, Normal
from tailwise.labels.bins import LabelBins
from tailwise.lookup import nearest
from tailwise.metrics import scores
from tailwise.metrics.scores import MEANS, Function, Labels, prepared

if TYPE_CHECKING:
    import pandas as pd

REGIONS = ("all", "many", "medium", "few")
DEFAULT_METRICS = ("mae", "gm", "nll", "ause", "coverage")
OF_UNCERTAINTY = (
    *(scores.nll, scores.gaussian_nll, scores.gaussian_nll_reference, scores.width, scores.coverage),
    *(scores.interval_score, scores.ause, scores.ause_reference, scores.ence),
)
"""Scores that need a predicted spread. Points have none, and their width of 0 would even win."""


@dataclass(frozen=True)
class Metric:
    """A metric with its name, its use of bins and regions, and which way is better.

    >>> few = get_metric("few/balanced_mae")
    >>> few.region, few.balanced, few.direction, get_metric("pearson").loss(0.8)
    ('few', True, 'lower', -0.8)
    """

    name: str
    function: Function
    direction: Literal["lower", "higher", "target"] = "lower"
    target: float = 0.0
    balanced: bool = False
    region: str = "all"
    options: tuple[tuple[str, float], ...] = ()

    def __call__(self, distribution: Distribution, y: Labels, bins: LabelBins | None = None) -> float:
        """Score predictions; balanced and regional metrics need the training set's label bins."""
        return _AllRows(distribution, y, bins, [self]).value(self)

    @property
    def losses(self) -> object:
        """A key: metrics that have the same one are functions of the same losses of rows."""
        return MEANS[self.function][0], self.options

    def loss(self, value: float) -> float:
        """Return a number to minimise, whichever way is better; NaN is infinitely bad."""
        if math.isnan(value):
            return math.inf
        distance = abs(value - self.target)
        return {"lower": value, "higher": -value, "target": distance}[self.direction]


def _registry() -> dict[str, Metric]:
    lower = [f for f in MEANS if f not in (scores.coverage, scores.delta)]
    rows = [Metric(f.__name__, f) for f in (*lower, scores.ause, scores.ause_reference, scores.ence)]
    rows += [Metric(f.__name__, f, "higher") for f in (scores.pearson, scores.spearman)]
    rows += [Metric(f"delta{k}", scores.delta, "higher", options=(("k", k),)) for k in (1, 2, 3)]
    rows += [Metric("coverage", scores.coverage, "target", 0.9)]
    means = [m for m in rows if m.function in MEANS]
    rows += [replace(m, name=f"balanced_{m.name}", balanced=True) for m in means]
    return {m.name: m for m in rows}


METRICS: dict[str, Metric] = _registry()
"""Every metric by name, without the region prefixes that `get_metric` also takes."""


def get_metric(name: str) -> Metric:
    """Find a metric by name, such as ``"balanced_nll"``, ``"few/mae"`` or ``"gap/coverage"``."""
    prefix, _, base = name.rpartition("/")
    region = prefix or "all"
    if base not in METRICS:
        raise ValueError(f"unknown metric {name!r}{nearest(base, METRICS)}")
    regions = (*REGIONS, "gap")
    if region not in regions:
        raise ValueError(f"unknown region {region!r} in metric {name!r}{nearest(region, regions)}")
    if region == "gap":
        return replace(METRICS[base], name=name, region=region, direction="target", target=0.0)
    return replace(METRICS[base], name=name, region=region)


class RunningScores:
    """Metrics by name, overall and by region, of predictions that are added part by part.

    It keeps sums of losses for each label bin. So it takes the metrics that follow from a mean over rows,
    ``"balanced_..."``, ``"few/..."`` and ``"gap/..."`` included. Those that need all rows at once, such as
    AUSE and correlations, are an error.

    >>> scores = RunningScores(LabelBins.from_labels([0, 0, 0, 1]), ["mae", "few/mae"], many=2, few=2)
    >>> for part in ([0.0, 0.0], [1.0]):
    ...     scores.add(Normal(torch.zeros(len(part)), 1.0), part)
    >>> scores.evaluate()
    {'mae': 0.3333333333333333, 'few/mae': 1.0}
    """

    whole = False  # whether all rows are there at once

    def __init__(
        self,
        bins: LabelBins | None,
        metrics: Iterable[str | Metric] = ("mae", "rmse", "nll", "crps", "coverage"),
        *,
        many: int = 100,
        few: int = 20,
    ) -> None:
        self.bins = bins
        self.metrics = [m if isinstance(m, Metric) else get_metric(m) for m in metrics]
        self.regions = None if bins is None else bins.regions(many, few)
        self.counts = torch.zeros(1 if bins is None else len(bins), dtype=torch.float64)  # rows in each bin
        self._sums: dict[object, Tensor] = {}  # of losses in each bin, (B,) each
        for metric in self.metrics:
            if not self.whole and metric.function not in MEANS:
                raise ValueError(
                    f"metric {metric.name!r} needs all rows at once: leave it out, or compute it on a sample"
                )

    def add(self, distribution: Distribution, y: Labels) -> None:
        """Take in predictions and labels of some rows. (N,) each"""
        d, labels = prepared(distribution, y)
        if not labels.numel():
            return
        index, size = self._index(labels), len(self.counts)
        self.counts += torch.bincount(index, minlength=size)
        for metric in {m.losses: m for m in self.metrics if m.function in MEANS}.values():
            losses = MEANS[metric.function][0](d, labels, **dict(metric.options))
            sums = torch.bincount(index, losses, minlength=size)
            self._sums[metric.losses] = sums + self._sums.get(metric.losses, 0.0)

    def _index(self, labels: Tensor) -> Tensor:
        """Bin of each label. (N,)"""
        return torch.zeros_like(labels, dtype=torch.long) if self.bins is None else self.bins.index(labels)

    def evaluate(self) -> dict[str, float]:
        """Return each metric of the rows so far, by name."""
        return {metric.name: self.value(metric) for metric in self.metrics}

    def by_region(self) -> pd.DataFrame:
        """Return a table with rows all, many, medium and few, and columns n and the metrics.

        An empty region has n = 0 and NaN.
        """
        import pandas as pd

        table = {"n": [int(self.counts[self.rows_in(region)].sum()) for region in REGIONS]}
        columns = {m.name: [self.value(replace(m, region=r)) for r in REGIONS] for m in self.metrics}
        return pd.DataFrame(table | columns, index=pd.Index(REGIONS, name="region"))

    def rows_in(self, region: str) -> Tensor:
        """Which bins with rows belong to a region. (B,)"""
        some = self.counts > 0
        return some if region == "all" else some & torch.from_numpy(self.regions == region)

    def value(self, metric: Metric) -> float:
        """Return a metric over the rows of its region."""
        if self.bins is None and (metric.balanced or metric.region != "all"):
            raise ValueError(f"metric {metric.name!r} needs the training set's label bins: pass bins=...")
        if metric.region == "gap":
            few, many = (self.value(replace(metric, region=region)) for region in ("few", "many"))
            return few - many
        return self.figure(metric, self.rows_in(metric.region))

    def figure(self, metric: Metric, chosen: Tensor) -> float:
        """Return a metric over the rows of the chosen bins; NaN without any. chosen: (B,)"""
        if not chosen.any():
            return math.nan
        sums, counts = self._sums[metric.losses][chosen], self.counts[chosen]
        finish = MEANS[metric.function][1]
        return float(finish(sums / counts).mean() if metric.balanced else finish(sums.sum() / counts.sum()))


class _AllRows(RunningScores):
    """Any metrics of rows that are all there at once."""

    whole = True

    def __init__(
        self,
        distribution: Distribution,
        y: Labels,
        bins: LabelBins | None,
        metrics: Iterable[str | Metric],
        **shots: int,
    ) -> None:
        super().__init__(bins, metrics, **shots)
        self._distribution, self._y = prepared(distribution, y)
        self.add(self._distribution, self._y)

    def figure(self, metric: Metric, chosen: Tensor) -> float:
        if metric.function in MEANS or not chosen.any():
            return super().figure(metric, chosen)
        rows = chosen[self._index(self._y)]
        return metric.function(self._distribution[rows], self._y[rows], **dict(metric.options))


def evaluate(
    distribution: Distribution,
    y: Labels,
    bins: LabelBins | None = None,
    metrics: Iterable[str] = DEFAULT_METRICS,
    *,
    many: int = 100,
    few: int = 20,
) -> dict[str, float]:
    """Score predictions by several named metrics at once; `many` and `few` bound the regions.

    >>> bins = LabelBins.from_labels([0, 0, 0, 1])
    >>> evaluate(Normal(torch.zeros(2), 1.0), [0.0, 1.0], bins, ["mae", "many/mae"], many=2, few=2)
    {'mae': 0.5, 'many/mae': 0.0}
    """
    return _AllRows(distribution, y, bins, metrics, many=many, few=few).evaluate()


def by_region(
    distribution: Distribution,
    y: Labels,
    bins: LabelBins,
    metrics: Iterable[str] = DEFAULT_METRICS,
    *,
    many: int = 100,
    few: int = 20,
) -> pd.DataFrame:
    """Return a table with rows all, many, medium and few, and columns n and the metrics.

    A label's region follows from the training count of its bin. An empty region has n = 0 and NaN.

    >>> bins = LabelBins.from_labels([0, 0, 0, 1])
    >>> by_region(Normal(torch.zeros(2), 1.0), [0.0, 1.0], bins, ["mae"], many=2, few=2)["mae"].tolist()
    [0.5, 0.0, nan, 1.0]
    """
    return _AllRows(distribution, y, bins, metrics, many=many, few=few).by_region()


def by_bin(
    distribution: Distribution, y: Labels, bins: LabelBins, metrics: Iterable[str] = ("mae", "nll")
) -> pd.DataFrame:
    """Return a table with one row per label bin that occurs in y, for plots along the label range.

    Columns: the bin's centre, its training count, n, and the metrics.
    """
    import pandas as pd

    rows = _AllRows(distribution, y, bins, metrics)
    each = torch.eye(len(bins), dtype=torch.bool)[rows.counts > 0]  # a row for each bin that occurs
    where = each.long().argmax(1).numpy()
    columns = {
        "center": bins.centers[where],
        "train": bins.counts[where],
        "n": rows.counts[where].long().numpy(),
    }
    for metric in rows.metrics:
        columns[metric.name] = np.array([rows.figure(metric, bin_) for bin_ in each])
    return pd.DataFrame(columns, index=pd.Index(where, name="bin"))


@dataclass(frozen=True)
class Scorer:
    """A metric that scikit-learn can call with a fitted estimator, X and y; made by `scorer`."""

    metric: Metric
    bins: LabelBins | None = None

    def __call__(self, estimator: Any, X: Any, y: Any) -> float:
        """Return the score, greater is better: its mean over targets if y has several columns."""
        regressor, X = _innermost(estimator, X)
        labels = np.asarray(y, np.float64)
        columns = list(labels.reshape(len(labels), -1).T)
        predictions, bins = self._predictions(regressor, X), self._bins(regressor, columns)
        if not len(columns) == len(predictions) == len(bins):
            raise ValueError(
                f"y has {len(columns)} targets, but the estimator predicts {len(predictions)} and has "
                f"label bins for {len(bins)}"
            )
        many, few = getattr(regressor, "many", 100), getattr(regressor, "few", 20)
        rows = zip(predictions, columns, bins, strict=True)
        values = [_AllRows(*row, [self.metric], many=many, few=few).value(self.metric) for row in rows]
        # A region without labels cannot rank models: NaN, which scikit-learn warns about, not -inf.
        return float(np.mean([v if math.isnan(v) else -self.metric.loss(v) for v in values]))

    def _predictions(self, regressor: Any, X: Any) -> list[Distribution]:
        if hasattr(regressor, "predict_distribution"):
            given = regressor.predict_distribution(X)
            return given if isinstance(given, list) else [given]
        if self.metric.function in OF_UNCERTAINTY:
            raise ValueError(
                f"metric {self.metric.name!r} needs predicted uncertainty, which {type(regressor).__name__} "
                "does not give: choose an error metric such as 'balanced_mae'"
            )
        points = torch.as_tensor(np.asarray(regressor.predict(X), np.float64))
        return [Normal(column, 0.0) for column in points.reshape(len(points), -1).T]

    def _bins(self, regressor: Any, columns: list[Any]) -> list[LabelBins]:
        own = getattr(regressor, "bins_", None) if self.bins is None else self.bins
        if not isinstance(own, LabelBins | list):
            return [LabelBins.from_labels(column) for column in columns]
        return own if isinstance(own, list) else [own]


def _innermost(estimator: Any, X: Any) -> tuple[Any, Any]:
    """Return the regressor inside fitted searches and pipelines, and X as this regressor sees it."""
    while not hasattr(estimator, "predict_distribution"):
        if hasattr(estimator, "best_estimator_"):
            estimator = estimator.best_estimator_
        elif hasattr(estimator, "steps"):
            *before, (_, last) = estimator.steps
            for _, step in before:
                if hasattr(step, "transform"):  # "passthrough" and resamplers have none
                    X = step.transform(X)
            estimator = last
        else:
            break
    return estimator, X


def scorer(name: str, bins: LabelBins | None = None) -> Scorer:
    """Return a scorer for `GridSearchCV` and `cross_val_score`, by a name that `get_metric` takes.

    Greater is better: losses are negated, and coverage becomes minus its distance from 90%. Label bins
    and the limits of few and many are the estimator's own, from its training labels, also inside
    pipelines and searches. An estimator without `bins_` is scored in bins of the given y; pass `bins`
    to compare models in the same bins. Predictions come from `predict_distribution`, or as points from
    `predict`.

    >>> from sklearn.dummy import DummyRegressor
    >>> X, y = np.zeros((4, 1)), [0, 0, 0, 10]
    >>> model = DummyRegressor(strategy="median").fit(X, y)
    >>> scorer("mae")(model, X, y), scorer("balanced_mae")(model, X, y)
    (-2.5, -5.0)
    """
    return Scorer(get_metric(name), bins)
