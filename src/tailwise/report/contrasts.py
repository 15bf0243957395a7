"""Errors and intervals of a model and a baseline: what is lower, what is higher, what is undecided.

Two figures differ only if the 99% interval of their paired difference excludes zero: a page compares several
baselines in three regions by three measures, and at 95% one of them would often differ by chance. Intervals
are compared by Winkler's interval score, which judges width and coverage together.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from tailwise.report.baselines import Lineup
from tailwise.report.scores import Floats, Scores, sorted_regions

CONFIDENCE = 0.99
"""Of the interval of a difference between two models; the difference is clear if zero lies outside."""
CLOSE = 0.05
"""Two models are close where the interval of their difference allows no more than this share."""
ALIKE = 0.1
"""Baselines whose errors differ by at most this share are alike in advice."""

Outcome = Literal["better", "worse", "mixed", "undecided"]
Kind = Literal["ahead", "behind", "split", "close", "open"]


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
    def outcome(self) -> Outcome:
        """Better, worse or undecided."""
        return "better" if self.better else "worse" if self.worse else "undecided"

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


@dataclass(frozen=True)
class Contrast:
    """Mean absolute error, root mean square error and interval score of two models in one region."""

    region: str
    mae: Difference
    rmse: Difference
    intervals: Difference

    @property
    def outcome(self) -> Outcome:
        """Better if one error is clearly lower and the other not higher at all; worse likewise.

        Mixed if a clear difference of one measure meets a difference of the other in the other direction.
        """
        pair = (self.mae, self.rmse)
        lower, higher = (any(d.better for d in pair), any(d.worse for d in pair))
        if lower:
            return "better" if all(d.value <= 0 for d in pair) else "mixed"
        if higher:
            return "worse" if all(d.value >= 0 for d in pair) else "mixed"
        return "undecided"

    @property
    def bound(self) -> float:
        """The largest difference that the intervals of both measures allow, as a share."""
        return max(self.mae.bound, self.rmse.bound)

    @property
    def close(self) -> bool:
        """Whether the intervals of both differences allow no more than `CLOSE`."""
        return self.bound <= CLOSE


@dataclass(frozen=True)
class Standing:
    """How a model compares with one baseline, over the regions with enough test rows."""

    rival: str
    contrasts: tuple[Contrast, ...]
    overall: Contrast
    """Over all rows."""

    @property
    def parts(self) -> tuple[Contrast, ...]:
        """All rows and, where there are several with enough test rows, the regions."""
        return (self.overall, *self.contrasts) if len(self.contrasts) > 1 else (self.overall,)

    def intervals(self, outcome: Outcome) -> list[str]:
        """Return where the interval scores have an outcome: all, or regions."""
        return [part.region for part in self.parts if part.intervals.outcome == outcome]

    def regions(self, outcome: Outcome) -> list[str]:
        """Return the regions with an outcome."""
        return [contrast.region for contrast in self.contrasts if contrast.outcome == outcome]

    @property
    def kind(self) -> Kind:
        """Ahead or behind if all clear differences agree, split if they do not, else close or open."""
        wins, losses = self.regions("better"), self.regions("worse")
        if self.regions("mixed") or (wins and losses):
            return "split"
        if wins or losses:
            return "ahead" if wins else "behind"
        if self.contrasts and all(contrast.close for contrast in self.contrasts):
            return "close"
        return "open"


def contrast(ours: Scores, theirs: Scores, region: str, rows: NDArray[np.bool_] | None = None) -> Contrast:
    """Compare two models on the test rows of a region, or on those given. (N,)"""
    rows = ours.mask(region) if rows is None else rows
    return Contrast(
        region,
        paired_difference(ours.error, theirs.error, rows, CONFIDENCE),
        rmse_difference(ours.error, theirs.error, rows, CONFIDENCE),
        paired_difference(ours.interval_score, theirs.interval_score, rows, CONFIDENCE),
    )


def standings_of(lineup: Lineup, min_rows: int) -> tuple[Standing, ...]:
    """Compare the model with each baseline, in each region with at least so many test rows."""
    ours = lineup.ours
    regions = [r for r in sorted_regions(ours.region) if ours.mask(r).sum() >= min_rows]
    return tuple(
        Standing(
            baseline.title,
            tuple(contrast(ours, baseline, region) for region in regions),
            contrast(ours, baseline, "all"),
        )
        for baseline in lineup.baselines.values()
    )


def best_by_region(ours: str, standings: Sequence[Standing]) -> dict[str, str]:
    """Return the title of a model that is clearly more accurate, for each region that has one.

    It is the model if it beats every baseline, or a baseline that beats the model. Baselines are not
    compared with one another: of several whose MAE there is within `ALIKE` of the lowest, the one that
    beats the model in the most regions is named.
    """
    best = {}
    for k, region in enumerate(contrast.region for contrast in standings[0].contrasts):
        if all(standing.contrasts[k].outcome == "better" for standing in standings):
            best[region] = ours
        ahead = [standing for standing in standings if standing.contrasts[k].outcome == "worse"]
        if ahead:
            most = (1 + ALIKE) * min(standing.contrasts[k].mae.theirs for standing in ahead)
            able = [standing for standing in ahead if standing.contrasts[k].mae.theirs <= most]
            best[region] = min(able, key=lambda s: (-len(s.regions("worse")), s.overall.mae.theirs)).rival
    return best
