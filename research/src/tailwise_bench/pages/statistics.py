"""Statistics of finished runs: means and spreads over seeds, ranks over data sets, paired t-tests."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
from scipy import stats

from tailwise.metrics.regions import get_metric
from tailwise_bench.pages.origin import MARK, changed_methods
from tailwise_bench.run.region_scores import OF_THE_MEAN
from tailwise_bench.run.results import Record

RATIOS = ("mae", "mse", "rmse", "gm", "balanced_mae", "crps", "width")
"""Metrics in label units, which are compared between data sets as ratios."""


@dataclass(frozen=True)
class Figure:
    """A metric in a region, of raw or calibrated predictions."""

    metric: str
    region: str = "all"
    calibrated: bool = False

    @property
    def name(self) -> str:
        """Name for the head of a table."""
        words = {
            "mae": "MAE",
            "rmse": "RMSE",
            "nll": "NLL",
            "ause": "AUSE",
            "crps": "CRPS",
            "ence": "ENCE",
            "gm": "GM",
        }
        text = words.get(self.metric, self.metric.replace("_", " ").replace("mae", "MAE"))
        return f"{text} {self.region}"

    def of(self, record: Record) -> float:
        """Return its value in a results line; NaN where the region has too few rows, or the line lacks it."""
        kind = "calibrated" if self.calibrated and self.metric not in OF_THE_MEAN else "raw"
        value = record["metrics"][kind][self.region].get(self.metric)
        return math.nan if value is None else float(value)

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


class Results:
    """Finished runs by contender and data set, all on the same arrays."""

    def __init__(self, records: Iterable[Record]) -> None:
        self.records = [record for record in records if "error" not in record]
        if not self.records:
            raise ValueError("there is no finished run to compare")
        seen: dict[tuple[str, int], tuple[str, str]] = {}
        for record in self.records:
            place, what = (record["data"], record["seed"]), (record["digest"], record["method"])
            digest, method = seen.setdefault(place, what)
            if digest != record["digest"]:
                raise ValueError(
                    f"{method} and {record['method']} had different data in {place[0]}, seed {place[1]}: "
                    "run both on the same prepared folder"
                )

    @cached_property
    def _runs(self) -> dict[tuple[str, str], dict[int, Record]]:
        runs: dict[tuple[str, str], dict[int, Record]] = {}
        for record in self.records:
            runs.setdefault((record["data"], record["method"]), {})[record["seed"]] = record
        return runs

    @cached_property
    def methods(self) -> list[str]:
        """Names of the contenders in order of their first runs."""
        return list(dict.fromkeys(record["method"] for record in self.records))

    @cached_property
    def data(self) -> list[str]:
        """Names of the data sets."""
        return sorted({record["data"] for record in self.records})

    @cached_property
    def titles(self) -> dict[str, str]:
        """Titles of the contenders in tables, with a mark behind those that have changed since."""
        changed = changed_methods(self.records)
        return {r["method"]: r["title"] + (MARK if r["method"] in changed else "") for r in self.records}

    def runs(self, data: str, method: str) -> Mapping[int, Record]:
        """Return the runs of a contender on a data set, by seed."""
        return self._runs.get((data, method), {})

    def values(self, figure: Figure, data: str, method: str) -> np.ndarray:
        """Return the figure of every seed. (S,)"""
        return np.array([figure.of(record) for record in self.runs(data, method).values()])

    def mean_std(self, figure: Figure, data: str, method: str) -> tuple[float, float]:
        """Return mean and standard deviation over seeds; NaN where there are too few runs for them."""
        values = self.values(figure, data, method)
        if values.size == 0 or np.isnan(values).all():
            return math.nan, math.nan
        known = values[~np.isnan(values)]
        return float(known.mean()), float(known.std(ddof=1)) if known.size > 1 else math.nan

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
        changes = []
        for data in self.data:
            ours, base = (self.mean_std(figure, data, m)[0] for m in (method, reference))
            if not (math.isnan(ours) or math.isnan(base)):
                changes.append(figure.change(ours, base))
        mean = float(np.mean(changes)) if changes else math.nan
        return math.exp(mean) if figure.metric in RATIOS else mean

    def relative_by_seed(self, figure: Figure, method: str, reference: str) -> np.ndarray:
        """Return the same for every seed, against the reference's mean over its seeds. (S,)

        Seeds that lack a data set are left out, and data sets where the reference has no figure do not count.
        """
        bases = {data: self.mean_std(figure, data, reference)[0] for data in self.data}
        known = {data: base for data, base in bases.items() if not math.isnan(base)}
        found = []
        for seed in sorted({record["seed"] for record in self.records}):
            runs = {data: self.runs(data, method).get(seed) for data in known}
            if known and all(runs.values()):
                pairs = [(figure.of(run), known[data]) for data, run in runs.items() if run is not None]
                found.append(np.mean([figure.change(ours, base) for ours, base in pairs]))
        means = np.array(found)
        return np.exp(means) if figure.metric in RATIOS else means


Over = Literal["data", "seeds"]
OTHERS: dict[Over, str] = {"seeds": "other seeds", "data": "other data sets"}
"""What the result of a test over these units applies to."""


@dataclass(frozen=True)
class Comparison:
    """A contender compared with the reference over data sets or over seeds."""

    method: str
    units: int
    better: int
    """Number of units in which the contender is better."""
    change: float
    """Mean change against the reference; positive if the contender is worse."""
    error: float
    """Standard error of `change` over the units; NaN for a single unit."""
    p: float
    adjusted: float

    def verdict(self, level: float = 0.05) -> str:
        """Return ``better`` or ``worse`` (than the reference), or ``open`` if the test does not decide."""
        if not self.adjusted < level or self.change == 0:
            return "open"
        return "better" if self.change < 0 else "worse"


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


def tests_of(results: Results) -> tuple[Over, ...]:
    """Return the units to test over; a single data set says nothing about others."""
    return ("seeds", "data") if len(results.data) > 1 else ("seeds",)


def changes(results: Results, figure: Figure, method: str, reference: str, over: Over) -> np.ndarray:
    """Return the changes of a contender against the reference by data set or by seed. (U,)

    By data set it is the mean over seeds. By seed it is the mean over the data sets that both have, for the
    seeds that have all of them.
    """
    found: dict[str, dict[int, float]] = {}
    for data in results.data:
        ours, theirs = results.runs(data, reference), results.runs(data, method)
        both = {s: figure.change(figure.of(theirs[s]), figure.of(ours[s])) for s in ours if s in theirs}
        known = {seed: change for seed, change in both.items() if not math.isnan(change)}
        if known:
            found[data] = known
    if over == "data":
        return np.array([np.mean(list(by_seed.values())) for by_seed in found.values()])
    seeds = set.intersection(*map(set, found.values())) if found else set()
    return np.array([np.mean([by_seed[seed] for by_seed in found.values()]) for seed in sorted(seeds)])


def compare(
    results: Results, figure: Figure, reference: str = "vir", *, over: Over = "data"
) -> list[Comparison]:
    """Test every other contender against the reference: paired t-tests with Holm's correction.

    Runs of one data set with different seeds are not independent: they share rare test rows, many training
    rows and the tuned configuration, and how strongly they correlate is unknown. (The correction of Nadeau
    and Bengio, 2003, assumes that test rows are drawn anew, which those of rare bins are not.) So there are
    two tests, each on means over the other unit:

    - over data sets: what to expect of other data sets like these. It assumes that data sets are independent
      and that their changes are about normal. It assumes nothing about seeds.
    - over seeds: whether other seeds would show the same on these data sets, with the same pool of test rows
      and the same configurations. It assumes that, given these, seeds are independent and their changes are
      about normal.
    """
    found: list[tuple[str, np.ndarray, float, float]] = []
    for method in results.methods:
        if method != reference:
            by_unit = changes(results, figure, method, reference, over)
            found.append((method, by_unit, *_t_test(by_unit)))
    adjusted = holm([p for *_, p in found])
    return [
        Comparison(
            method=method,
            units=int(d.size),
            better=int((d < 0).sum()),
            change=float(d.mean()) if d.size else math.nan,
            error=error,
            p=p,
            adjusted=q,
        )
        for (method, d, error, p), q in zip(found, adjusted, strict=True)
    ]


def _t_test(values: np.ndarray) -> tuple[float, float]:
    """Return the standard error of the mean and the two-sided p-value of a mean of 0. (U,)"""
    if values.size < 2:
        return math.nan, math.nan
    mean, error = float(values.mean()), float(values.std(ddof=1) / math.sqrt(values.size))
    if mean == 0 or error == 0:
        return error, 0.0 if mean else 1.0
    # Like `ttest_1samp`, whose checks take most of the time of a page with a thousand tests.
    return error, float(2 * stats.t.sf(abs(mean) / error, values.size - 1))
