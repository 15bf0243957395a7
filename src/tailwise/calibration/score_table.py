"""Sorted scores of held-out rows, and the limits of intervals that cover a share of them."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tailwise.labels.bins import Array
from tailwise.options import AnyNumber, Count

Limits = tuple[float, float]

MAX_POINTS = 1000
"""More scores than this are stored as a grid of their quantiles, rounded towards more coverage."""
ROUNDING = 1e-9


@dataclass(frozen=True, eq=False)
class ScoreTable:
    """Sorted scores of held-out rows, and the limits for any coverage.

    A score is (label - prediction) / spread. If n held-out rows and a new row are exchangeable, the new
    score lies between the i-th and the j-th smallest score with probability ``(j - i) / (n + 1)``. The
    limits take ``j - i = ceil((n + 1) coverage)`` and leave out equally many scores above and below.

    >>> table = ScoreTable.from_scores(np.arange(-9.0, 10.0))  # 19 scores: 20 gaps, 2 to leave out
    >>> table.limits(0.9), table.limits(0.95), table.limits(0.96)
    ((-9.0, 9.0), (-9.0, 9.0), (-inf, inf))
    >>> table.limits(0.8)
    (-8.0, 8.0)
    """

    n: Count
    values: Array  # (m,), ascending; all n scores, or a grid of them
    ranks: NDArray[np.int64]  # (m,), from 1 to n
    at_most: Array | None = None  # (m,), weighted share of scores up to each value
    at_least: Array | None = None  # (m,), weighted share from each value on
    effective: AnyNumber = math.nan  # Kish's number of rows, (sum w)^2 / sum w^2

    def __post_init__(self) -> None:
        ranks, shares = self.ranks, (self.at_most, self.at_least)
        rising = ranks.size > 0 and ranks[0] == 1 and ranks[-1] == self.n and (np.diff(ranks) > 0).all()
        if self.values.shape != (ranks.size,) or not rising or (np.diff(self.values) < 0).any():
            raise ValueError("scores must be ascending, with one rank each, from 1 to n")
        weighted = [share for share in shares if share is not None]
        if weighted and not (len(weighted) == 2 and self.effective > 0):
            raise ValueError("weighted scores need both shares and a positive number of effective rows")
        for share, sign in zip(weighted, (1, -1), strict=False):
            if share.shape != ranks.shape or (np.diff(sign * share) < 0).any():
                raise ValueError("weighted scores need a share each, in order")

    @classmethod
    def from_scores(cls, scores: Array, weights: Array | None = None, points: int = MAX_POINTS) -> ScoreTable:
        """Sort scores (n,) and keep at most about `points` of them."""
        order = np.argsort(scores, kind="stable")
        values, n = scores[order], scores.size
        if weights is None:
            kept = np.arange(n) if n <= points else grid(np.full(n, 1 / n), points)
            return cls(n, values[kept], kept + 1)
        shares = weights[order] / weights.sum()
        at_most = np.minimum(np.cumsum(shares), 1.0)
        at_least = np.minimum(np.cumsum(shares[::-1])[::-1], 1.0)
        kept = np.arange(n)
        if n > points:
            kept = np.union1d(grid(np.full(n, 1 / n), points // 2), grid(shares, points // 2))
        effective = float(1 / (shares**2).sum())
        return cls(n, values[kept], kept + 1, at_most[kept], at_least[kept], effective)

    @property
    def widest(self) -> float:
        """Largest distance of a label from its prediction, in spreads."""
        return float(max(-self.values[0], self.values[-1], 0.0))

    def limits(self, coverage: float, *, equal_tails: bool = True) -> Limits:
        """Return what to add to a prediction, below and above, in spreads; infinite if n is too small.

        The limits always include the prediction itself. Weights can only widen them: on each side until
        half of 1 - coverage of the weight lies beyond, or without `equal_tails` until 1 - coverage of the
        weight lies beyond both sides together.
        """
        lower, upper = self.promised(coverage)
        if self.at_most is not None:
            weighted = self._weighted(coverage) if equal_tails else self._widened(coverage, lower, upper)
            lower, upper = min(lower, weighted[0]), max(upper, weighted[1])
        return min(lower, 0.0), max(upper, 0.0)

    def promised(self, coverage: float, split: float = 0.5) -> Limits:
        """Return limits between which a new score lies with this probability; infinite if n is too small.

        `split` is the share of the scores left out that lie below. They always include 0, the prediction
        itself.
        """
        left_out = self.n + 1 - math.ceil((self.n + 1) * coverage - ROUNDING)
        if left_out < 1:
            return -math.inf, math.inf
        if left_out == 1:  # one gap cannot be split between two sides: use the largest absolute score
            return -self.widest, self.widest
        # Long tails are more often above than below, so an odd score is left out below.
        above = min(max(int(left_out * (1 - split)), 1), left_out - 1)
        first = np.searchsorted(self.ranks, left_out - above, side="right") - 1
        last = np.searchsorted(self.ranks, self.n + 1 - above, side="left")
        return min(float(self.values[first]), 0.0), max(float(self.values[last]), 0.0)

    def _weighted(self, coverage: float) -> Limits:
        """Limits with (1 - coverage)/2 of the weight beyond each, or the outermost scores."""
        assert self.at_most is not None and self.at_least is not None
        inside = (1 + coverage) / 2 * (self.effective + 1) / self.effective - ROUNDING
        last = min(int(np.searchsorted(self.at_most, inside)), self.values.size - 1)
        first = max(int(np.searchsorted(-self.at_least, -inside, side="right")) - 1, 0)
        return float(self.values[first]), float(self.values[last])

    def _widened(self, coverage: float, lower: float, upper: float) -> Limits:
        """Limits with 1 - coverage of the weight beyond both together.

        A side that leaves out less than half of that keeps its limit, and the other side may leave out the
        rest. The labels of a tail lie on one side, which then need not be as wide as for half of it.
        """
        assert self.at_most is not None and self.at_least is not None
        spare = 1 - coverage * (self.effective + 1) / self.effective + ROUNDING
        first = min(int(np.searchsorted(self.values, lower)), self.values.size - 1)
        below = 1 - float(self.at_least[first])
        beyond = int(np.searchsorted(self.values, upper, side="right")) - 1
        above = 1 - float(self.at_most[beyond]) if beyond >= 0 else 1.0
        half = max(spare, 0.0) / 2
        leave_below = min(below, max(half, spare - above))
        leave_above = min(above, max(half, spare - below))
        last = min(int(np.searchsorted(self.at_most, 1 - leave_above - ROUNDING)), self.values.size - 1)
        first = max(int(np.searchsorted(-self.at_least, -(1 - leave_below - ROUNDING), side="right")) - 1, 0)
        return float(self.values[first]), float(self.values[last])


def grid(shares: Array, points: int) -> NDArray[np.int64]:
    """Return positions in sorted scores, denser at both ends: equal steps in the log of the tail's share."""
    tails = np.geomspace(1 / shares.size, 0.5, points // 2) + ROUNDING
    last = shares.size - 1
    below = np.minimum(np.searchsorted(np.cumsum(shares), tails), last)
    above = last - np.minimum(np.searchsorted(np.cumsum(shares[::-1]), tails), last)
    return np.unique(np.concatenate([[0], below, above, [last]])).astype(np.int64)
