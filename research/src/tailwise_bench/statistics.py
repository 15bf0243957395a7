"""Statistics of finished runs: means and spreads over seeds, ranks over data sets, effects and tests."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import pandas as pd
from scipy import stats

from tailwise.metrics.regions import get_metric
from tailwise.report.results import Figure as RunFigure
from tailwise.report.results import Results as RunResults
from tailwise_bench.choose import PUBLISHED
from tailwise_bench.trace import Change, changed_parts

RATIOS = ("mae", "mse", "rmse", "gm", "balanced_mae", "crps", "width", "interval_score")
"""Metrics in label units, which are compared between data sets as ratios."""


class Figure(RunFigure):
    """A metric in a region, and how its values compare."""

    def loss(self, value: float) -> float:
        """Convert a value so that less is better."""
        return math.nan if math.isnan(value) else get_metric(self.metric).loss(value)

    def level(self, value: float) -> float:
        """Return a value on a scale that data sets share, on which differences compare.

        It is the logarithm for metrics in label units, and else the loss.
        """
        return math.log(max(value, 1e-300)) if self.metric in RATIOS else self.loss(value)


MARK = " †"
"""Behind the title of a method that has changed since some of its runs."""
HEADLINES = (
    Figure("mae"),
    Figure("mae", "many"),
    Figure("mae", "medium"),
    Figure("mae", "few"),
    Figure("nll", "all", calibrated=True),
    Figure("nll", "few", calibrated=True),
    Figure("crps", "all", calibrated=True),
)
"""Figures that contenders are ranked and tested by; uncertainty is compared after calibration."""
LEVEL = 0.95
"""Confidence of intervals; a planned comparison is decided if its corrected p is below the rest."""
PLANNED = ("vanilla", "ranksim", "lds-fds", "lds-fds-der", "fds", "lds")
"""The rivals of VIR that were named before the runs: Vanilla and the five strongest of the paper."""


class Results(RunResults):
    """Finished runs, with a mark behind the titles of contenders that have changed since."""

    @cached_property
    def changed(self) -> dict[str, dict[str, Change]]:
        """The contenders that have changed since one of their runs, each with what changed."""
        found: dict[str, dict[str, Change]] = {}
        for record in self.records:
            if record["method"] not in found and (changes := changed_parts(record)):
                found[record["method"]] = changes
        return found

    @cached_property
    def titles(self) -> dict[str, str]:
        """Titles of the contenders in tables; those with published exponents say if theirs were tuned."""
        tuned = {r["method"] for r in self.records if "weights.power" in r.get("search", {})}
        return {
            r["method"]: r["title"]
            + (", tuned" if r["method"] in tuned.intersection(PUBLISHED) else "")
            + (MARK if r["method"] in self.changed else "")
            for r in self.records
        }

    @cached_property
    def seeds(self) -> list[int]:
        """All seeds."""
        return sorted({record["seed"] for record in self.records})

    @cached_property
    def methods_by_seeds(self) -> dict[tuple[int, ...], list[str]]:
        """The contenders by the seeds of their runs, those with most seeds first."""
        groups: dict[tuple[int, ...], list[str]] = {}
        for method in self.methods:
            seeds = {record["seed"] for record in self.records if record["method"] == method}
            groups.setdefault(tuple(sorted(seeds)), []).append(method)
        return dict(sorted(groups.items(), key=lambda group: -len(group[0])))

    def named(self, methods: Sequence[str]) -> str:
        """Return the titles of contenders, comma-separated."""
        return ", ".join(self.titles[method] for method in methods)

    def means(self, figure: Figure, method: str) -> list[float]:
        """Return the mean over seeds on every data set."""
        return [self.mean_std(figure, data, method)[0] for data in self.data]

    def average_ranks(self, figure: Figure) -> dict[str, float]:
        """Return the mean over data sets of each contender's rank by its mean over seeds; 1 is best.

        Ties get the mean of their ranks. A contender without a run on some data set has no rank (NaN).
        """
        losses = pd.DataFrame({m: map(figure.loss, self.means(figure, m)) for m in self.methods})
        ranks = losses.dropna(how="all").rank(axis=1).mean(skipna=False)
        return {method: float(ranks[method]) for method in self.methods}

    def relative(self, figure: Figure, method: str, reference: str) -> float:
        """Return the mean change against a reference over data sets; for ratios, the geometric mean."""
        ours, base = (np.array([*map(figure.level, self.means(figure, m))]) for m in (method, reference))
        mean = nanmean(ours - base)
        return math.exp(mean) if figure.metric in RATIOS else mean

    @cached_property
    def _levels(self) -> dict[Figure, pd.Series[float]]:
        return {}

    def levels(self, figure: Figure) -> pd.Series[float]:
        """Return the level of every run, by contender, data set and seed."""
        if figure not in self._levels:
            runs = {(r["method"], r["data"], r["seed"]): figure.level(figure.of(r)) for r in self.records}
            self._levels[figure] = pd.Series(runs).sort_index()
        return self._levels[figure]

    def changes(self, figure: Figure, method: str, reference: str) -> pd.Series[float]:
        """Return the level of a contender minus the reference's, by data set and seed."""
        levels = self.levels(figure)
        return levels.xs(method).sub(levels.xs(reference)).dropna()

    def by_seed(self, figure: Figure, method: str, reference: str) -> np.ndarray:
        """Return the mean change over data sets for every seed that has all of them. (S,)"""
        seeds = self.changes(figure, method, reference).groupby(level=1)
        return seeds.mean()[seeds.count() == len(self.data)].to_numpy()


def nanmean(values: Iterable[float]) -> float:
    """Return the mean of the numbers that are known; NaN if none is."""
    known = [value for value in values if not math.isnan(value)]
    return float(np.mean(known)) if known else math.nan


def holm(p_values: Sequence[float]) -> list[float]:
    """Adjust p-values for m comparisons (Holm, 1979): the k-th smallest is multiplied by m - k + 1.

    The adjusted values are at most 1 and do not fall while the p-values rise. NaN stays NaN and is not
    counted in m.

    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    adjusted = np.full(len(p_values), math.nan)
    known = [i for i in np.argsort(p_values, kind="stable") if not math.isnan(p_values[i])]
    least = 0.0
    for place, i in enumerate(known):
        least = max(least, min(1.0, p_values[i] * (len(known) - place)))
        adjusted[i] = least
    return [float(p) for p in adjusted]


def p_values(results: Results, figure: Figure, reference: str) -> dict[str, float]:
    """Return the p-value of every other contender against the reference: paired t-tests over seeds, by Holm.

    Runs of one data set with different seeds share rare test rows, many training rows and the tuned
    configuration, so each seed counts once, with its mean over data sets. The tests say whether other seeds
    would show the same on these data sets; they assume that the changes by seed are about normal.
    """
    rivals = [method for method in results.methods if method != reference]
    p = []
    for method in rivals:
        values = results.by_seed(figure, method, reference)
        error = stats.sem(values) if len(values) > 1 else math.nan
        p.append(_p_value(nanmean(values), error, len(values) - 1))
    return dict(zip(rivals, holm(p), strict=True))


def _p_value(mean: float, error: float, df: float) -> float:
    """Return the two-sided p-value of a t-test of a mean of 0."""
    if error == 0:
        return 0.0 if mean else 1.0
    return float(2 * stats.t.sf(abs(mean) / error, df))


# -- effects and planned comparisons -------------------------------------------------------------


@dataclass(frozen=True)
class Effect:
    """How the reference compares with a rival on these data sets; below 0 the reference is better.

    `change` is the mean over data sets of the mean paired change over seeds, a logarithm of a ratio for
    metrics in label units. `low` and `high` are the ends of its 95% confidence interval.
    """

    rival: str
    change: float
    low: float
    high: float
    p: float
    adjusted: float = math.nan
    """p after Holm's correction within the family of planned comparisons; NaN outside of it."""

    @property
    def verdict(self) -> str:
        """``better``, ``worse``, or ``open`` if a planned comparison does not decide."""
        if not self.adjusted < 1 - LEVEL:
            return "open"
        return "better" if self.change < 0 else "worse"


def effect(results: Results, figure: Figure, rival: str, reference: str) -> Effect:
    """Return the effect of the reference against a rival, with a stratified t interval.

    Changes are paired by data set and seed. Within a data set seeds are a sample. Data sets are fixed, so the
    spread between them does not count. The standard error is that of a mean of independent means, with the
    degrees of freedom of Welch and Satterthwaite: about D (S - 1) with D data sets and S seeds, where a test
    over means by seed has S - 1. Data sets with a single common seed have no spread, and there is
    no interval.
    """
    by_data = results.changes(figure, reference, rival).groupby(level=0)
    mean, count = nanmean(by_data.mean()), by_data.count()
    if not count.min() > 1:
        return Effect(rival, mean, math.nan, math.nan, math.nan)
    parts = by_data.var() / count
    error, df = math.sqrt(parts.sum()) / len(parts), math.nan
    if error:
        df = parts.sum() ** 2 / (parts**2 / (count - 1)).sum()
    half = float(stats.t.ppf((1 + LEVEL) / 2, df)) * error if error else 0.0
    return Effect(rival, mean, mean - half, mean + half, _p_value(mean, error, df))


def planned(
    results: Results, figure: Figure, reference: str = "vir", rivals: Sequence[str] = PLANNED
) -> list[Effect]:
    """Return the effects against the planned rivals that have runs, corrected by Holm among them."""
    rivals = [method for method in rivals if method in results.methods and method != reference]
    family = [effect(results, figure, rival, reference) for rival in rivals]
    adjusted = holm([of.p for of in family])
    return [replace(of, adjusted=p) for of, p in zip(family, adjusted, strict=True)]
