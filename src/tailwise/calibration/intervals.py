"""Intervals: quantiles of the predicted distribution, stretched until they cover held-out labels.

Intervals have two methods: `fit` to held-out rows, and `ends` for new rows at any coverage; `too_few` says
why a coverage cannot be promised. `OwnIntervals` are the central intervals of the distribution itself;
`ConformalIntervals` are fitted.

A conformal interval reaches from the predicted median down and up by a multiple of the distances of the 5%
and the 95% quantile, after these were moved by a share of the way to those of all labels. The multiple, the
*factor*, comes from rows that the model was not trained on. For any model, intervals at 90% contain at least
90% of new labels, on average over calibration sets and rows, if held-out rows and new rows come from the same
distribution. With ``rare=0.9`` that holds for the rarest labels too: intervals then also reach into the
stretches of rare labels, as far as held-out rows with such labels need. No method can promise it for a single
row, nor for rows of another distribution.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from tailwise.calibration.interval_scores import ColumnGroups, label_range
from tailwise.distributions.members import Distribution, checked_coverage
from tailwise.labels.bins import Array, LabelBins, checked_weights
from tailwise.labels.prior import rare_stretches
from tailwise.metrics.scores import prepared
from tailwise.options import AnyNumber, Fraction

Codes = NDArray[np.int64]
MIN_ROWS = 30
"""With this many held-out rows, the own factor of a group counts as much as the overall one."""
ROUNDING = 1e-9
_SPREAD_FLOOR = 1e-6
_SIDE_FLOOR = 0.1
_LEAST_FACTOR = 1e-9


@dataclass(frozen=True)
class OwnIntervals:
    """The central intervals of the predicted distribution itself, which are fitted to nothing."""

    column = ColumnGroups()

    def fit(self, *held: Any) -> Self:
        """Return these intervals."""
        return self

    def ends(
        self,
        distribution: Distribution,
        coverage: float = 0.9,
        groups: Codes | None = None,
        *,
        rare: float | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Return lower and upper ends, in label units."""
        if rare is not None:
            raise ValueError("rare= needs conformal intervals: fit without conformal=None")
        return distribution.interval(coverage)

    def too_few(self, coverage: float, rare: float | None = None) -> str:
        """Return an empty text: these intervals need no held-out rows."""
        return ""


@dataclass(frozen=True, eq=False)
class ConformalIntervals:
    """Intervals that cover held-out labels, for any prediction and any coverage.

    The score of a held-out row is the distance of its label from the median, divided by the distance of the
    5% or the 95% quantile, whichever lies on the side of the label. The factor is a quantile of these scores.
    With a `column`, each group of its rows has the factor ``own^s * overall^(1 - s)`` with
    ``s = n^2 / (n^2 + 30^2)`` for n rows. `bins` are those of the training labels. ``held_out=False`` says
    that the rows were trained on: then no coverage can be promised.

    >>> from tailwise.distributions.members import Normal
    >>> bins = LabelBins.from_labels([0, 0, 1, 2])
    >>> fitted = ConformalIntervals(bins).fit(Normal(torch.zeros(19), 4.0), np.arange(-9.0, 10.0))
    >>> low, high = fitted.ends(Normal(torch.tensor([10.0]), 1.0), 0.9)
    >>> low.item(), high.item()
    (5.5, 14.5)
    """

    bins: LabelBins
    held_out: bool = True
    column: ColumnGroups = ColumnGroups()
    scores: Array = field(default_factory=lambda: np.zeros(0), repr=False)  # (m,)
    weights: Array = field(default_factory=lambda: np.zeros(0), repr=False)  # (m,) of rows
    rare: Array = field(default_factory=lambda: np.zeros(0), repr=False)  # (m,) the same, 0 for other labels
    groups: Codes = field(default_factory=lambda: np.zeros(0, np.int64), repr=False)  # (m,)
    stretches: tuple[tuple[AnyNumber, AnyNumber], ...] = ()
    """Ends of the stretches of rare labels."""
    constant: tuple[float, float] = (0.0, 0.0)
    """The 5% and the 95% quantile of the training labels."""
    share: Fraction = 0.0
    """By which share of the way the quantiles of predictions are moved to those of `constant`."""

    def __post_init__(self) -> None:
        shapes = {self.scores.shape, self.weights.shape, self.rare.shape, self.groups.shape}
        if len(shapes) > 1 or ((self.groups < 0) | (self.groups > len(self.column.names))).any():
            raise ValueError("each score needs a weight, and a group of the column")

    def fit(
        self,
        distribution: Distribution,
        y: ArrayLike | Tensor,
        weights: ArrayLike | None = None,
        groups: Codes | None = None,
    ) -> Self:
        """Fit the factor to held-out rows that were used neither for training nor for scaling.

        `weights` say how often rows like these are expected. Kish's effective number of rows then takes the
        place of their number, which is an approximation. `groups` are the codes of the rows in the `column`.
        distribution, y, weights: (n,)
        """
        if self.column.names and groups is None:
            raise ValueError("intervals by a column need the groups of the rows: give column.codes(values)")
        exact, labels = prepared(distribution, y)
        if labels.numel() == 0:
            raise ValueError("no held-out rows: conformal intervals need at least one")
        median, below, above = self._sides(exact)
        bad = ~(median.isfinite() & below.isfinite() & above.isfinite())
        if bad.any():
            row = int(bad.to(torch.int8).argmax())
            raise ValueError(f"predictions must be finite: row {row} is not ({int(bad.sum())} bad rows)")
        off = labels - median
        numbers = labels.numpy()
        w = np.ones(numbers.size) if weights is None else checked_weights(weights, numbers.size)
        w = w * (w.sum() / (w**2).sum())
        stretches = rare_stretches(self.bins)
        rare = np.any([(numbers >= low) & (numbers < high) for low, high in stretches], axis=0)
        return replace(
            self,
            scores=(off.abs() / torch.where(off < 0, below, above)).numpy(),
            weights=w,
            rare=w * rare,
            groups=np.zeros(numbers.size, np.int64) if groups is None else groups,
            stretches=stretches,
        )

    def ends(
        self,
        distribution: Distribution,
        coverage: float = 0.9,
        groups: Codes | None = None,
        *,
        rare: float | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Return lower and upper ends for predictions of any shape, in label units.

        With `rare` they cover this share of the rarest labels too. `groups` are the codes of the rows in the
        `column`; without them the factor is the overall one. With too few held-out rows the ends are the
        smallest and the largest training label, and at least the largest error seen away from the prediction.
        """
        median, below, above = self._sides(distribution)
        if self.too_few(coverage, rare):
            widest, (low, high) = float(self.scores.max()), label_range(self.bins)
            return (median - widest * below).clamp_max(low), (median + widest * above).clamp_min(high)
        factors = torch.tensor(self._factors(coverage), dtype=median.dtype, device=median.device)
        by_group = groups is not None and self.column.names
        factor = factors[torch.from_numpy(groups).to(median.device)] if by_group else factors[0]
        lower, upper = median - factor * below, median + factor * above
        if rare is None:
            return lower, upper
        # The factors of groups keep their proportion.
        factor = factor * (self._factor(rare, self.rare) / self._factors(coverage)[0])
        for first, last in self.stretches:
            start, end = median - factor * below, median + factor * above
            # While tracing, an infinite bound cannot be written to a file.
            start = start.clamp_min(first) if math.isfinite(first) else start
            end = end.clamp_max(last) if math.isfinite(last) else end
            reached = start <= end
            lower = torch.where(reached, torch.minimum(lower, start), lower)
            upper = torch.where(reached, torch.maximum(upper, end), upper)
        return lower, upper

    def by_column(self, coverage: float = 0.9) -> dict[str, float]:
        """Return how many times as wide the intervals of each group of the column are as overall."""
        factors = self._factors(coverage)
        return dict(zip(self.column.names, (factors[1:] / factors[0]).tolist(), strict=True))

    def too_few(self, coverage: float, rare: float | None = None) -> str:
        """Return a sentence that names the rows that a coverage takes; an empty text if there are enough."""
        asked = [(coverage, self.weights, "")]
        if rare is not None:
            asked.append((rare, self.rare, " with the rarest labels"))
        for share, weights, which in asked:
            rows = effective(weights) if self.held_out else 0.0
            if checked_coverage(share) > rows / (rows + 1) + ROUNDING:
                needed = math.ceil(share / (1 - share) - ROUNDING)
                return f"{share:.4g} intervals take {counted(needed)}{which}, and there are {rows:.0f}."
        return ""

    def standardized(self) -> Self:
        """Return the intervals of labels in units of their standard deviation, as the bins have them."""
        location, scale = self.bins.location, self.bins.scale
        *moved, constant = (
            ((low - location) / scale, (high - location) / scale)
            for low, high in (*self.stretches, self.constant)
        )
        return replace(self, bins=self.bins.standardized(), stretches=tuple(moved), constant=constant)

    def _sides(self, distribution: Distribution) -> tuple[Tensor, Tensor, Tensor]:
        """Return the median, and the distances of the 5% and the 95% quantile from it, after `share`.

        A distance is at least a tenth of their mean: under another label prior, one may be almost 0.
        Predictions without spread have a small one, so that they get intervals too.
        """
        low, median, high = (quantile.detach() for quantile in distribution.central)
        if self.share:
            low, high = (
                (1 - self.share) * end + self.share * fixed
                for end, fixed in zip((low, high), self.constant, strict=True)
            )
        below, above = (median - low).clamp_min(0), (high - median).clamp_min(0)
        least = (_SIDE_FLOOR / 2 * (below + above)).clamp_min(_SPREAD_FLOOR * self.bins.scale)
        return median, torch.maximum(below, least), torch.maximum(above, least)

    def _factor(self, coverage: float, weights: Array) -> float:
        """Return the factor of the rows that have a weight, infinite for too few.

        If n held-out rows and a new row are exchangeable, the score of the new row is at most the k-th
        smallest with probability ``k / (n + 1)``. The factor is that for ``k = ceil((n + 1) coverage)``.
        """
        # Weights of rows of equal weight are 1, so that counts are exact.
        share = weights * (effective(weights) / weights.sum())
        missed = (share.sum() + 1) * (1 - coverage) - 1
        if missed < -ROUNDING:
            return math.inf
        order = np.argsort(-self.scores, kind="stable")
        first = int(np.searchsorted(np.cumsum(share[order]), missed + ROUNDING, side="right"))
        return max(float(self.scores[order[first]]), _LEAST_FACTOR)

    @cached_property
    def _kept_factors(self) -> dict[float, Array]:
        return {}

    def _factors(self, coverage: float) -> Array:
        """Return the overall factor, then those of the groups of the column, computed once. (G + 1,)"""
        if coverage not in self._kept_factors:
            overall = self._factor(coverage, self.weights)
            factors = np.full(len(self.column.names) + 1, overall)
            for code in np.unique(self.groups[self.groups > 0]):
                weights = self.weights * (self.groups == code)
                own, n = self._factor(coverage, weights), effective(weights)
                own = min(own, float(self.scores[self.groups == code].max()))
                factors[code] = max(own, _SIDE_FLOOR * overall) ** _share(n) * overall ** (1 - _share(n))
            self._kept_factors[coverage] = factors
        return self._kept_factors[coverage]


Intervals = ConformalIntervals | OwnIntervals


def effective(weights: Array) -> float:
    """Return Kish's effective number of rows, (sum w)^2 / sum w^2."""
    return float(weights.sum() ** 2 / (weights**2).sum()) if weights.any() else 0.0


def counted(rows: float) -> str:
    """Return a number of held-out rows in words."""
    return f"{rows:.0f} held-out row" + ("" if round(rows) == 1 else "s")


def _share(rows: float) -> float:
    """Share of a group's own factor in its factor; the rest is that of the overall one."""
    return rows**2 / (rows**2 + MIN_ROWS**2)
