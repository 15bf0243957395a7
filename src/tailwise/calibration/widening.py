"""Groups of held-out rows that intervals must cover, and how much wider the intervals must be for them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tailwise.calibration.score_table import MAX_POINTS, ROUNDING, grid
from tailwise.labels.bins import Array
from tailwise.options import Positive

Codes = NDArray[np.int64]
REGIONS = ("many", "medium", "few")
"""Predicted regions, in the order of their codes."""


@dataclass(frozen=True, eq=False)
class Group:
    """Scores, predicted regions and weights of held-out rows that have something in common. (m,) each

    `slack` is how much more often than all rows these rows may be missed: with 2 and a coverage of 0.9
    at most 20% of their weight.
    """

    name: str
    scores: Array
    regions: Codes
    weights: Array
    effective: Positive  # Kish's number of rows, (sum w)^2 / sum w^2
    slack: Positive = 1.0

    def __post_init__(self) -> None:
        if not (self.scores.ndim == 1 and self.scores.shape == self.regions.shape == self.weights.shape):
            raise ValueError(f"{self.scores.size} scores need as many regions and weights")
        if (self.regions < 0).any() or (self.weights < 0).any() or not self.weights.any():
            raise ValueError("regions and weights must not be negative, and a weight must be positive")

    @classmethod
    def of(cls, name: str, scores: Array, regions: Codes, weights: Array, slack: float = 1.0) -> Group:
        """Take the rows of positive weight; of more than about 1000 in a region keep a grid of scores.

        The weight of a score that is left out goes to the next one further out.
        """
        effective = float(weights.sum() ** 2 / (weights**2).sum())
        parts = []
        for code in np.unique(regions[weights > 0]):
            rows = np.flatnonzero((regions == code) & (weights > 0))
            rows = rows[np.argsort(scores[rows], kind="stable")]
            own, w = scores[rows], weights[rows]
            kept = np.arange(own.size) if own.size <= MAX_POINTS else grid(w / w.sum(), MAX_POINTS)
            every = np.arange(own.size)
            outward = np.searchsorted(kept, every, side="right") - 1, np.searchsorted(kept, every)
            place = np.where(own < 0, *outward)
            parts.append((own[kept], np.full(kept.size, code), np.bincount(place, w, kept.size)))
        joined = [np.concatenate(column) for column in zip(*parts, strict=True)]
        return cls(name, joined[0], joined[1].astype(np.int64), joined[2], effective, slack)

    def factors(self, limits: Array, coverage: float) -> Array:
        """Return by how much the lower and the upper limits must grow to cover these rows, at least 1. (2,)

        limits: (regions, 2). A side that misses less than half of what may be missed keeps its limits, and
        the other side may miss the rest: rare labels lie on one side more often than not.
        """
        ratio = self._ratio(limits)
        weight = self.weights / self.weights.sum()
        spare = self.slack * (1 - coverage) - coverage / self.effective
        below, above = float(weight[ratio < -1].sum()), float(weight[ratio > 1].sum())
        half = max(spare, 0.0) / 2
        leave = min(below, max(half, spare - above)), min(above, max(half, spare - below))
        return np.array([_least_factor(-ratio, weight, leave[0]), _least_factor(ratio, weight, leave[1])])

    def only(self, rows: NDArray[np.bool_]) -> Group:
        """Return some of the rows. (m,)"""
        w = self.weights[rows]
        return Group(self.name, self.scores[rows], self.regions[rows], w, float(w.sum()), self.slack)

    def exact_factors(self, limits: Array, coverage: float, split: float) -> Array:
        """Return the factors, below 1 or above, with which the limits cover just these rows. (2,)

        limits: (regions, 2). `split` is the share of the rows left out that lie below. The weights must
        count rows.
        """
        ratio = self._ratio(limits)
        spare = max(1 - coverage - coverage / self.effective, 0.0)
        weight = self.weights / self.weights.sum()
        below = _least_factor(-ratio, weight, spare * split, 0.0)
        return np.array([below, _least_factor(ratio, weight, spare * (1 - split), 0.0)])

    def _ratio(self, limits: Array) -> Array:
        """Scores in units of the limit on their side. (m,)"""
        reach = np.where(self.scores < 0, -limits[self.regions, 0], limits[self.regions, 1])
        return np.asarray(self.scores / reach)


def _least_factor(ratio: Array, weight: Array, leave: float, least: float = 1.0) -> float:
    """Return the least factor, `least` or more, with at most the weight `leave` of the ratios above it."""
    order = np.argsort(-ratio, kind="stable")
    above = np.cumsum(weight[order])  # weight of a ratio and all larger ones
    first = int(np.searchsorted(above, leave + ROUNDING, side="right"))
    return max(least, float(ratio[order[first]])) if first < ratio.size else least
