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
TINY = 1e-300

Outcome = Literal["better", "worse", "mixed", "undecided"]


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
    def outcome(self) -> Outcome:
        """Better or worse if our loss is lower or higher by more than the error of the difference."""
        if self.n > 1 and abs(self.value) > self.half:
            return "better" if self.value < 0 else "worse"
        return "undecided"

    @property
    def bound(self) -> float:
        """The largest difference that its interval contains, as a share of their loss."""
        return (abs(self.value) + self.half) / self.theirs if self.theirs > 0 else math.inf


def paired_difference(
    ours: Floats, theirs: Floats, rows: NDArray[np.bool_], confidence: float = 0.95
) -> Difference:
    """Compare the mean losses of two models row by row, with Student's t interval. (N,) each"""
    a, b = ours[rows], theirs[rows]
    return _difference((float(a.mean()), float(b.mean())) if a.size else None, a - b, confidence)


def rmse_difference(
    ours: Floats, theirs: Floats, rows: NDArray[np.bool_], confidence: float = 0.95
) -> Difference:
    """Compare the root mean square errors of two models row by row. Absolute errors: (N,) each

    The interval is the one that a paired bootstrap over the rows tends to, without its random numbers: each
    row adds ``e**2 / (2 RMSE)`` to the root of the mean.
    """
    squares = ours[rows] ** 2, theirs[rows] ** 2
    roots = [math.sqrt(square.mean()) if square.size else 0.0 for square in squares]
    parts = [square / (2 * max(root, TINY)) for square, root in zip(squares, roots, strict=True)]
    return _difference((roots[0], roots[1]) if rows.any() else None, parts[0] - parts[1], confidence)


def _difference(means: tuple[float, float] | None, each: Floats, confidence: float) -> Difference:
    """Return a difference whose error is that of the mean of `each`; NaN without rows. (n,)"""
    if means is None:
        return Difference(math.nan, math.nan, math.nan, 0)
    n = each.size
    half = math.inf if n == 1 else float(stats.t.ppf((1 + confidence) / 2, n - 1) * stats.sem(each))
    return Difference(*means, half, n)


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
        if any(d.outcome == "better" for d in pair):
            return "better" if all(d.value <= 0 for d in pair) else "mixed"
        if any(d.outcome == "worse" for d in pair):
            return "worse" if all(d.value >= 0 for d in pair) else "mixed"
        return "undecided"

    @property
    def bound(self) -> float:
        """The largest difference that the intervals of both measures allow, as a share."""
        return max(self.mae.bound, self.rmse.bound)


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
        """Return the regions where the errors have an outcome."""
        return [contrast.region for contrast in self.contrasts if contrast.outcome == outcome]

    @property
    def ahead(self) -> bool:
        """Whether the model is clearly better in some region, and neither worse nor mixed in any."""
        return bool(self.regions("better")) and not self.regions("worse") + self.regions("mixed")

    @property
    def close(self) -> bool:
        """Whether the errors of both models differ by at most `CLOSE` in every region."""
        near = all(part.outcome == "undecided" and part.bound <= CLOSE for part in self.contrasts)
        return bool(self.contrasts) and near


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

    It is the model if it beats every baseline, or the baseline with the lowest error of those that beat it.
    """
    best = {}
    for k, region in enumerate(contrast.region for contrast in standings[0].contrasts):
        outcomes = [standing.contrasts[k].outcome for standing in standings]
        ahead = [s for s, outcome in zip(standings, outcomes, strict=True) if outcome == "worse"]
        if ahead:
            best[region] = min(ahead, key=lambda standing: standing.contrasts[k].mae.theirs).rival
        elif set(outcomes) == {"better"}:
            best[region] = ours
    return best
