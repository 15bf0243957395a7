"""Statistics of finished runs: means and spreads over seeds, ranks over data sets, effects and tests."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import numpy as np
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

    def change(self, other: float, reference: float) -> float:
        """Return how much worse another value is than the reference, on a scale that data sets share.

        It is the logarithm of the ratio for metrics in label units, and else the difference of losses.
        """
        if self.metric in RATIOS:
            return math.log(max(other, 1e-300) / max(reference, 1e-300))
        return self.loss(other) - self.loss(reference)


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
        ranks = []
        for data in self.data:
            loss = [figure.loss(self.mean_std(figure, data, method)[0]) for method in self.methods]
            if not np.isnan(loss).all():
                ranks.append(stats.rankdata(loss, nan_policy="omit"))
        if not ranks:
            return dict.fromkeys(self.methods, math.nan)
        return dict(zip(self.methods, np.mean(ranks, axis=0).tolist(), strict=True))

    def relative(self, figure: Figure, method: str, reference: str) -> float:
        """Return the mean change against a reference over data sets; for ratios, the geometric mean."""
        pairs = zip(self.means(figure, method), self.means(figure, reference), strict=True)
        found = [figure.change(ours, base) for ours, base in pairs if not math.isnan(ours + base)]
        mean = float(np.mean(found)) if found else math.nan
        return math.exp(mean) if figure.metric in RATIOS else mean

    def relative_by_seed(self, figure: Figure, method: str, reference: str) -> np.ndarray:
        """Return the same for every seed, against the reference's mean over its seeds. (S,)

        Seeds that lack a data set are left out, and data sets where the reference has no figure do not count.
        """
        bases = dict(zip(self.data, self.means(figure, reference), strict=True))
        known = {data: base for data, base in bases.items() if not math.isnan(base)}
        found = []
        for seed in self.seeds:
            runs = {data: self.runs(data, method).get(seed) for data in known}
            if known and all(runs.values()):
                pairs = [(figure.of(run), known[data]) for data, run in runs.items() if run is not None]
                found.append(np.mean([figure.change(ours, base) for ours, base in pairs]))
        return np.exp(found) if figure.metric in RATIOS else np.array(found)


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


def paired(results: Results, figure: Figure, method: str, reference: str) -> dict[str, dict[int, float]]:
    """Return the changes of a contender against the reference by data set and seed, where both have runs."""
    found = {}
    for data in results.data:
        theirs, ours = results.runs(data, reference), results.runs(data, method)
        changes = {s: figure.change(figure.of(ours[s]), figure.of(theirs[s])) for s in ours if s in theirs}
        if known := {seed: change for seed, change in changes.items() if not math.isnan(change)}:
            found[data] = known
    return found


def changes(
    results: Results, figure: Figure, method: str, reference: str, over: Literal["data", "seeds"]
) -> np.ndarray:
    """Return the changes of a contender against the reference by data set or by seed. (U,)

    By data set it is the mean over seeds. By seed it is the mean over the data sets that both have, for the
    seeds that have all of them.
    """
    found = paired(results, figure, method, reference).values()
    if over == "data":
        return np.array([np.mean(list(by_seed.values())) for by_seed in found])
    seeds = set.intersection(*map(set, found)) if found else set()
    return np.array([np.mean([by_seed[seed] for by_seed in found]) for seed in sorted(seeds)])


def p_values(results: Results, figure: Figure, reference: str) -> dict[str, float]:
    """Return the p-value of every other contender against the reference: paired t-tests over seeds, by Holm.

    Runs of one data set with different seeds share rare test rows, many training rows and the tuned
    configuration, so each seed counts once, with its mean over data sets. The tests say whether other seeds
    would show the same on these data sets; they assume that the changes by seed are about normal.
    """
    rivals = [method for method in results.methods if method != reference]
    found = []
    for method in rivals:
        values = changes(results, figure, method, reference, "seeds")
        mean, known = values.sum() / max(len(values), 1), len(values) > 1
        error = values.std(ddof=1) / math.sqrt(len(values)) if known else math.nan
        found.append(_p_value(mean, error, len(values) - 1))
    return dict(zip(rivals, holm(found), strict=True))


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
    by_data = [np.array(list(of.values())) for of in paired(results, figure, reference, rival).values()]
    mean = float(np.mean([of.mean() for of in by_data])) if by_data else math.nan
    if not by_data or min(map(len, by_data)) < 2:
        return Effect(rival, mean, math.nan, math.nan, math.nan)
    parts = np.array([of.var(ddof=1) / of.size for of in by_data])
    error, df = math.sqrt(parts.sum()) / len(by_data), math.nan
    if error:
        df = parts.sum() ** 2 / sum(part**2 / (of.size - 1) for part, of in zip(parts, by_data, strict=True))
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
