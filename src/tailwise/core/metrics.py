"""Metrics by name: overall, per label region and balanced over label bins.

The scores themselves are the functions of `tailwise.core.scores`. `get_metric` finds one by name:
``"mae"``, ``"balanced_mae"`` (mean over the occupied label bins), ``"few/mae"`` (one region) or
``"gap/nll"`` (few minus many, the fairness figure). `scorer` turns any of them into a scorer for
scikit-learn.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from torch import Tensor

from tailwise.core.distributions import Distribution, Normal
from tailwise.core.labels import LabelBins
from tailwise.core.lookup import nearest
from tailwise.core.scores import (
    MEANS,
    Function,
    Labels,
    PerSample,
    ause,
    ause_reference,
    coverage,
    crps,
    delta,
    ence,
    gaussian_nll,
    gaussian_nll_reference,
    gm,
    log10,
    mae,
    mse,
    nll,
    pearson,
    prepared,
    rmse,
    spearman,
    width,
)

if TYPE_CHECKING:
    import pandas as pd

REGIONS = ("all", "many", "medium", "few")
DEFAULT_METRICS = ("mae", "gm", "nll", "ause", "coverage")
OF_UNCERTAINTY = (*(nll, gaussian_nll, gaussian_nll_reference, width, coverage, ause, ause_reference, ence),)
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
        return _Scores(distribution, y, bins).value(self)

    def loss(self, value: float) -> float:
        """Return a number to minimise, whichever way is better; NaN is infinitely bad."""
        if math.isnan(value):
            return math.inf
        distance = abs(value - self.target)
        return {"lower": value, "higher": -value, "target": distance}[self.direction]


def _registry() -> dict[str, Metric]:
    lower = (mae, mse, rmse, gm, nll, gaussian_nll, gaussian_nll_reference, crps, width, log10)
    rows = [Metric(f.__name__, f) for f in (*lower, ause, ause_reference, ence)]
    rows += [Metric(f.__name__, f, "higher") for f in (pearson, spearman)]
    rows += [Metric(f"delta{k}", delta, "higher", options=(("k", k),)) for k in (1, 2, 3)]
    rows += [Metric("coverage", coverage, "target", 0.9)]
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


class _Scores:
    """Predictions prepared once; metrics and regions share the per-sample losses."""

    def __init__(
        self,
        distribution: Distribution,
        y: Labels,
        bins: LabelBins | None,
        many: int = 100,
        few: int = 20,
    ) -> None:
        self.distribution, self.y = prepared(distribution, y)
        self.losses: dict[tuple[PerSample, tuple[tuple[str, float], ...]], Tensor] = {}
        self.index: Tensor | None = None
        if bins is not None:
            self.index = bins.index(self.y)
            codes = [REGIONS.index(str(region)) for region in bins.regions(many, few)]
            self.region = torch.tensor(codes)[self.index]

    def _binned(self, metric: Metric) -> Tensor:
        if self.index is None:
            raise ValueError(f"metric {metric.name!r} needs the training set's label bins: pass bins=...")
        return self.index

    def rows(self, region: str) -> Tensor:
        """Row numbers of a region."""
        if region == "all":
            return torch.arange(self.y.numel())
        return (self.region == REGIONS.index(region)).nonzero().squeeze(1)

    def value(self, metric: Metric) -> float:
        if metric.region == "gap":
            few, many = (self.value(replace(metric, region=r)) for r in ("few", "many"))
            return few - many
        if metric.region != "all":
            self._binned(metric)
        rows = self.rows(metric.region)
        if rows.numel() == 0:
            return math.nan
        if metric.balanced:
            _, values, _ = self.per_bin(metric, rows)
            return float(values.mean())
        return float(self._score(metric, [rows])[0])

    def per_bin(self, metric: Metric, rows: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the occupied bins among the rows, the metric in each, and the rows in each."""
        index = self._binned(metric)[rows]
        counts = torch.bincount(index)
        occupied = counts.nonzero().squeeze(1)
        if metric.function in MEANS:
            per_sample, finish = MEANS[metric.function]
            sums = torch.bincount(index, self._losses(per_sample, metric)[rows])
            values = finish(sums[occupied] / counts[occupied])
        else:
            ends = counts[occupied].cumsum(0)[:-1]
            groups = torch.tensor_split(rows[index.argsort(stable=True)], ends)
            values = self._score(metric, groups)
        return occupied, values, counts[occupied]

    def _losses(self, per_sample: PerSample, metric: Metric) -> Tensor:
        key = (per_sample, metric.options)
        if key not in self.losses:
            self.losses[key] = per_sample(self.distribution, self.y, **dict(metric.options))
        return self.losses[key]

    def _score(self, metric: Metric, groups: Iterable[Tensor]) -> Tensor:
        if metric.function in MEANS:
            per_sample, finish = MEANS[metric.function]
            losses = self._losses(per_sample, metric)
            return torch.stack([finish(losses[rows].mean()) for rows in groups])
        f, options = metric.function, dict(metric.options)
        scores = [f(self.distribution[rows], self.y[rows], **options) for rows in groups]
        return torch.tensor(scores, dtype=torch.float64)


def balanced(function: Function, **options: float) -> Callable[[Distribution, Labels, LabelBins], float]:
    """Turn a metric into its mean over the occupied label bins, where each bin counts the same.

    >>> from tailwise.core.distributions import Normal
    >>> bins = LabelBins.from_labels([0, 0, 0, 1])
    >>> balanced(mae)(Normal(torch.zeros(4), 1.0), [0.0, 0.0, 0.0, 1.0], bins)
    0.5
    """
    name = f"balanced_{getattr(function, '__name__', 'metric')}"
    return Metric(name, function, balanced=True, options=tuple(options.items()))


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

    >>> from tailwise.core.distributions import Normal
    >>> bins = LabelBins.from_labels([0, 0, 0, 1])
    >>> evaluate(Normal(torch.zeros(2), 1.0), [0.0, 1.0], bins, ["mae", "many/mae"], many=2, few=2)
    {'mae': 0.5, 'many/mae': 0.0}
    """
    scores = _Scores(distribution, y, bins, many, few)
    return {name: scores.value(get_metric(name)) for name in metrics}


def _everywhere(name: str) -> Metric:
    """Find a metric for a table whose rows are regions or bins already."""
    metric = get_metric(name)
    if metric.region != "all":
        base = name.rpartition("/")[2]
        raise ValueError(f"metric {name!r} is for one region only: use {base!r} here, or call `evaluate`")
    return metric


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

    >>> from tailwise.core.distributions import Normal
    >>> bins = LabelBins.from_labels([0, 0, 0, 1])
    >>> table = by_region(Normal(torch.zeros(2), 1.0), [0.0, 1.0], bins, ["mae"], many=2, few=2)
    >>> table.loc["few", "mae"]
    np.float64(1.0)
    """
    import pandas as pd

    scores = _Scores(distribution, y, bins, many, few)
    chosen = [_everywhere(name) for name in metrics]
    columns: dict[str, list[float]] = {"n": [scores.rows(r).numel() for r in REGIONS]}
    for m in chosen:
        columns[m.name] = [scores.value(replace(m, region=r)) for r in REGIONS]
    return pd.DataFrame(columns, index=pd.Index(REGIONS, name="region"))


def by_bin(
    distribution: Distribution, y: Labels, bins: LabelBins, metrics: Iterable[str] = ("mae", "nll")
) -> pd.DataFrame:
    """Return a table with one row per label bin that occurs in y, for plots along the label range.

    Columns: the bin's centre, its training count, n, and the metrics.
    """
    import pandas as pd

    scores = _Scores(distribution, y, bins)
    everything = scores.rows("all")
    occupied, _, counts = scores.per_bin(METRICS["mae"], everything)
    where = occupied.numpy()
    columns = {"center": bins.centers[where], "train": bins.counts[where], "n": counts.numpy()}
    for name in metrics:
        columns[name] = scores.per_bin(_everywhere(name), everything)[1].numpy()
    return pd.DataFrame(columns, index=pd.Index(where, name="bin"))


def fairness_gap(
    distribution: Distribution, y: Labels, bins: LabelBins, *, many: int = 100, few: int = 20
) -> dict[str, float]:
    """Return few minus many in coverage and NLL: 0 if rare labels are served as well as common ones."""
    names = ("coverage", "nll")
    values = evaluate(distribution, y, bins, [f"gap/{name}" for name in names], many=many, few=few)
    return {name: values[f"gap/{name}"] for name in names}


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
        values = [
            _Scores(prediction, column, edges, many, few).value(self.metric)
            for prediction, column, edges in zip(predictions, columns, bins, strict=True)
        ]
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
