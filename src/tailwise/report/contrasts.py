"""Errors and intervals of a model and a baseline: what is lower, what is higher, what is undecided.

Two errors differ only if the 99% interval of their paired difference excludes zero: a page compares three
baselines in three regions by two measures, and at 95% one of them would often differ by chance. The labels
that two models' intervals contain are compared by McNemar's exact test, also at 99%.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from tailwise.report.baselines import PLAIN_TITLE, Lineup
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
    """Mean absolute and root mean square error of two models in one region."""

    region: str
    mae: Difference
    rmse: Difference

    @property
    def outcome(self) -> Outcome:
        """Better if one measure is clearly lower and the other not higher at all; worse likewise.

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
    overall: Difference

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
    )


@dataclass(frozen=True)
class CoverageContrast:
    """How many intervals of two models contain the label, on the same rows, and their mean widths."""

    hits: tuple[int, int]
    """Intervals of the model and of the baseline that contain the label."""
    n: int
    p_value: float
    """Of McNemar's exact test: the rows that one of the two covers and the other does not."""
    width: Difference
    """Mean widths over all rows."""

    @property
    def undecided(self) -> bool:
        """Whether the difference of the two shares can be chance."""
        return self.p_value >= 1 - CONFIDENCE

    @property
    def outcome(self) -> Outcome:
        """Better if the model's intervals contain clearly more labels, worse if clearly fewer."""
        if self.undecided:
            return "undecided"
        return "better" if self.hits[0] > self.hits[1] else "worse"

    @property
    def shares(self) -> tuple[float, float]:
        """The shares of the two models' intervals that contain the label."""
        return self.hits[0] / self.n, self.hits[1] / self.n


def coverage_contrast(ours: Scores, theirs: Scores, rows: NDArray[np.bool_]) -> CoverageContrast:
    """Compare the intervals of two models on some rows by McNemar's exact test. (N,)"""
    a, b = ours.inside[rows], theirs.inside[rows]
    only_ours, only_theirs = int((a & ~b).sum()), int((b & ~a).sum())
    differ = only_ours + only_theirs
    p_value = float(stats.binomtest(only_ours, differ).pvalue) if differ else 1.0
    width = paired_difference(ours.width, theirs.width, ours.mask("all"), CONFIDENCE)
    return CoverageContrast((int(a.sum()), int(b.sum())), a.size, p_value, width)


def standings_of(lineup: Lineup, min_rows: int) -> tuple[Standing, ...]:
    """Compare the model with each baseline, in each region with at least so many test rows."""
    ours = lineup.ours
    regions = [r for r in sorted_regions(ours.region) if ours.mask(r).sum() >= min_rows]
    return tuple(
        Standing(
            f"the {rival.title}" if rival.title == PLAIN_TITLE else rival.title,
            tuple(contrast(ours, rival, region) for region in regions),
            paired_difference(ours.error, rival.error, ours.mask("all"), CONFIDENCE),
        )
        for rival in lineup.rivals
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
            best[region] = min(able, key=lambda s: (-len(s.regions("worse")), s.overall.theirs)).rival
    return best
