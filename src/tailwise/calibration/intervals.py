"""Intervals: the predicted spread, stretched until it covers held-out labels.

Intervals have three methods: `fit` to held-out rows, `ends` for new rows at any coverage, and `explain`.
`OwnIntervals` are the central intervals of the distribution itself; `ConformalIntervals` are fitted.

A conformal interval reaches from the predicted label down and up by multiples of the prediction's own spread
below and above. The multiples, the *limits*, come from rows that the model was not trained on. Without
weights and with ``mode="global"`` these are split-conformal intervals: for any model, intervals at 90% cover
at least 90% of new labels, on average over calibration sets and rows, if held-out rows and new rows come from
the same distribution. Two options help rare labels, without an exact guarantee: limits for each predicted
region, and limits that are widened until the rarest labels are covered too. No method can guarantee coverage
given the *true* label, which is unknown at prediction time.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from tailwise.calibration.column_groups import ColumnGroups
from tailwise.calibration.interval_scores import label_range
from tailwise.calibration.spreads import sides
from tailwise.distributions.members import Distribution, checked_coverage
from tailwise.labels.bins import Array, LabelBins, checked_weights
from tailwise.labels.prior import LabelDensity, rarest
from tailwise.lookup import check_name
from tailwise.metrics.scores import prepared
from tailwise.options import Count, Fraction, Positive

Codes = NDArray[np.int64]
Mode = Literal["global", "region"]
Weights = Literal["rare"] | ArrayLike | None
REGIONS = ("many", "medium", "few")
"""Predicted regions, in the order of their codes."""
MIN_ROWS = 30
"""With this many held-out rows, a region's own limits count as much as the overall ones."""
FEW_SLACK = 1.25
"""How much more often few-shot labels may be missed than all labels, if the rarest labels are covered.

With less, the rarest labels are covered more often than asked, and all intervals are wider; with more,
few-shot labels are covered too rarely (research/results/rare_coverage.md).
"""
SPLITS = (0.25, 0.5, 0.75)
"""Shares of the missed labels that may lie below. Intervals for the rarest labels take the one that makes
them narrowest at `CHOSEN_AT`; other coverages have the same, so that a higher one does not narrow an end."""
CHOSEN_AT = 0.9
MAX_POINTS = 1000
"""More scores in a cell than this are stored as a grid of their quantiles, rounded towards more coverage."""
ROUNDING = 1e-9
_SPREAD_FLOOR = 1e-6
_LEAST_LIMIT, _LEAST_SHRUNK = 1e-9, 0.1
_SIGNS = np.array([-1, 1])
_KINDS = {"rare": "with the rarest labels", "few": "with few-shot labels", "given": "weighted as given"}


def majority(lower: Tensor, upper: Tensor, point: Tensor) -> tuple[Tensor, Tensor]:
    """Return intervals that hold every label which more than half of K intervals hold, and the point.

    They miss at most twice as many labels as the K intervals do on average. (K, N), (K, N), (N,) -> (N,) each

    >>> ends = torch.tensor([[0.0], [1.0], [9.0]]), torch.tensor([[2.0], [3.0], [12.0]])
    >>> low, high = majority(*ends, point=torch.tensor([4.0]))
    >>> low.item(), high.item()
    (1.0, 4.0)
    """
    middle = lower.shape[0] // 2
    low, high = lower.sort(0).values[middle], upper.sort(0, descending=True).values[middle]
    return torch.minimum(low, point), torch.maximum(high, point)


@dataclass(frozen=True)
class OwnIntervals:
    """The central intervals of the predicted distribution itself, which are fitted to nothing."""

    votes = False
    column = ColumnGroups()

    def fit(
        self, distribution: Distribution, y: ArrayLike, weights: Weights = None, groups: Codes | None = None
    ) -> Self:
        """Return these intervals."""
        return self

    def ends(
        self, distribution: Distribution, coverage: float = 0.9, groups: Codes | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return lower and upper ends, in label units."""
        return distribution.interval(coverage)

    def too_few(self, coverage: float) -> str:
        """Return an empty text: these intervals need no held-out rows."""
        return ""

    def explain(self, coverage: float = 0.9) -> str:
        """Return a text: these intervals promise nothing."""
        return "Intervals of the predicted distribution itself."


@dataclass(frozen=True, eq=False)
class Group:
    """Held-out rows that must be covered, as weights of all held-out scores; the first group has all rows.

    `slack` is how much more often than all rows these rows may be missed: with 2 and a coverage of 0.9
    at most 20% of their weight.
    """

    name: Literal["all", "rare", "few", "given"]
    weights: Array  # (m,)
    effective: Positive  # Kish's number of rows, (sum w)^2 / sum w^2
    slack: Positive = 1.0

    def __post_init__(self) -> None:
        checked_weights(self.weights, self.weights.size)

    @classmethod
    def of(cls, name: Literal["all", "rare", "few", "given"], weights: Array, slack: float = 1.0) -> Group:
        """Return the group with these weights of rows. (n,)"""
        return cls(name, weights, float(weights.sum() ** 2 / (weights**2).sum()), slack)

    def factors(self, ratio: Array, coverage: float) -> Array:
        """Return by how much the lower and the upper limits must grow to cover these rows, at least 1. (2,)

        ratio: (m,) scores in units of their limit. A side that misses less than half of what may be missed
        keeps its limits, and the other side may miss the rest: rare labels lie on one side more often than
        not.
        """
        weight = self.weights / self.weights.sum()
        spare = self.slack * (1 - coverage) - coverage / self.effective
        below, above = float(weight[ratio < -1].sum()), float(weight[ratio > 1].sum())
        half = max(spare, 0.0) / 2
        leave = min(below, max(half, spare - above)), min(above, max(half, spare - below))
        factors = _least_factor(-ratio, weight, leave[0]), _least_factor(ratio, weight, leave[1])
        return np.maximum(1.0, factors)


@dataclass(frozen=True, eq=False)
class ConformalIntervals:
    """Intervals that cover held-out labels, for any prediction and any coverage.

    A row's score is (label - point) / spread, with its sign, and the spread of the side that the label lies
    on (`tailwise.calibration.spreads.sides`). Intervals are therefore wide where the prediction is uncertain,
    and longer on the side of the longer tail.

    ``mode="region"`` fits limits for each predicted region: many, medium or few training labels in the bin
    of the *predicted* label. They are ``own^s * overall^(1 - s)`` with ``s = n^2 / (n^2 + 30^2)`` for a
    region with n rows, so that they do not depend on a handful of rows. With a `column`, the limits of each
    group of its rows are multiplied by the factors that cover them, to the power of the same share s of its
    rows. `bins` are those of the training labels. ``held_out=False`` says that the rows were trained on:
    then no coverage can be kept. ``votes=True`` says that each row was predicted by one of several
    networks, whose intervals for new rows `majority` joins.

    >>> from tailwise.distributions.members import Normal
    >>> bins = LabelBins.from_labels([0, 0, 1, 2])
    >>> fitted = ConformalIntervals(bins).fit(Normal(torch.zeros(19), 4.0), np.arange(-9.0, 10.0))
    >>> low, high = fitted.ends(Normal(torch.tensor([10.0]), 1.0), 0.9)
    >>> low.item(), high.item()
    (5.5, 14.5)
    """

    bins: LabelBins
    mode: Mode = "global"
    many: Count = 100
    few: Count = 20
    held_out: bool = True
    votes: bool = False
    column: ColumnGroups = ColumnGroups()
    split: Fraction = 0.5  # share of the missed labels that may lie below
    scores: Array = field(default_factory=lambda: np.zeros(0), repr=False)  # (m,) in spreads
    cells: Codes = field(default_factory=lambda: np.zeros(0, np.int64), repr=False)  # (m,) see `_cells`
    groups: tuple[Group, ...] = field(default=(), repr=False)

    def __post_init__(self) -> None:
        check_name("mode", self.mode, ("global", "region"))
        sizes = {self.scores.shape, self.cells.shape, *(group.weights.shape for group in self.groups)}
        most = len(REGIONS) * (len(self.column.names) + 1)
        if len(sizes) > 1 or ((self.cells < 0) | (self.cells >= most)).any():
            raise ValueError(f"each score needs a weight in each group and one of {most} cells")

    # -- fit ---------------------------------------------------------------------------------------

    def fit(
        self,
        distribution: Distribution,
        y: ArrayLike | Tensor,
        weights: Weights = None,
        groups: Codes | None = None,
    ) -> Self:
        """Fit the limits to held-out rows that were used neither for training nor for scaling.

        With ``weights="rare"`` all limits are widened by one factor below and one above until the rarest 15%
        of the labels are covered, and few-shot labels, which may be missed a quarter more often. `weights`
        may also be an array. Their finite-sample correction uses Kish's effective number of rows, which is an
        approximation. `groups` are the codes of the rows in the `column`. distribution, y, weights: (n,)
        """
        if self.column.names and groups is None:
            raise ValueError("intervals by a column need the groups of the rows: give column.codes(values)")
        exact, labels = prepared(distribution, y)
        if labels.numel() == 0:
            raise ValueError("no held-out rows: conformal intervals need at least one")
        point, (below, above) = exact.point, sides(exact)
        bad = ~(point.isfinite() & below.isfinite() & above.isfinite())
        if bad.any():
            row = int(bad.to(torch.int8).argmax())
            raise ValueError(f"predictions must be finite: row {row} is not ({int(bad.sum())} bad rows)")
        below, above = below.clamp_min(self._floor), above.clamp_min(self._floor)
        off, cells = labels - point, self._cells(point, groups).numpy()
        scores = (off / torch.where(off < 0, below, above)).numpy()
        fitted = replace(self, split=0.5, **_thinned(scores, cells, self._groups(weights, labels.numpy())))
        if not isinstance(weights, str) or fitted.too_few(CHOSEN_AT):
            return fitted

        def width(intervals: Self) -> float:
            limits = intervals._limits(CHOSEN_AT)[cells]
            return float((limits[:, 1] * above.numpy() - limits[:, 0] * below.numpy()).mean())

        return min((replace(fitted, split=split) for split in SPLITS), key=width)

    def _groups(self, weights: Weights | Tensor, labels: Array) -> tuple[Group, ...]:
        """Groups of rows to cover. labels: (n,)"""
        every = Group.of("all", np.ones(labels.size))
        if weights is None:
            return (every,)
        if isinstance(weights, str):
            check_name("weights", weights, ["rare"])
            rare = rarest(labels, LabelDensity.from_bins(self.bins)).astype(np.float64)
            few = self.bins.regions(self.many, self.few)[self.bins.index(labels)] == "few"
            last = (Group.of("few", few.astype(np.float64), FEW_SLACK),) if few.any() else ()
            return (every, Group.of("rare", rare), *last)
        return (every, Group.of("given", checked_weights(weights, labels.size)))

    # -- use ---------------------------------------------------------------------------------------

    def ends(
        self, distribution: Distribution, coverage: float = 0.9, groups: Codes | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return lower and upper ends for predictions of any shape, in label units.

        `groups` are the codes of the rows in the `column`; without them the limits are the overall ones. With
        too few held-out rows for the coverage the ends are the smallest and the largest training label, and
        at least the largest error seen away from the prediction.
        """
        point = distribution.point.detach()
        below, above = (side.detach().clamp_min(self._floor) for side in sides(distribution))
        if self.too_few(coverage):
            widest, (low, high) = float(np.abs(self.scores).max()), label_range(self.bins)
            return (point - widest * below).clamp_max(low), (point + widest * above).clamp_min(high)
        limits = torch.tensor(self._limits(coverage), dtype=point.dtype, device=point.device)
        lower, upper = limits[self._cells(point, groups)].unbind(-1)
        return point + lower * below, point + upper * above

    def too_few(self, coverage: float) -> str:
        """Return a sentence that names the rows that a coverage takes; an empty text if there are enough."""
        rows = self._rows().sum() if self.held_out else 0
        if checked_coverage(coverage) <= rows / (rows + 1) + ROUNDING:
            return ""
        needed = math.ceil(coverage / (1 - coverage) - ROUNDING)
        return f"{coverage:.4g} intervals take {_said(needed)}, and there are {rows:.0f}."

    def explain(self, coverage: float = 0.9) -> str:
        """Return a text: the limits in use, the number of rows behind them, and what they guarantee."""
        how = "the same for all rows" if self.mode == "global" else "by predicted region"
        lines = [f"Conformal intervals at {coverage:.4g} from {_said(self._rows().sum())}, {how}."]
        if missing := self.too_few(coverage):
            ends = "the smallest and the largest training label, or the largest error seen if it is more"
            return "\n".join([*lines, f"No promise: {missing} The ends are {ends}."])
        limits = [f"prediction {low:+.3g} to {high:+.3g} spreads" for low, high in self._limits(coverage)]
        if self.mode == "global":
            lines.append(f"  {limits[0]}")
        else:
            for code, region in enumerate(REGIONS):
                rows = self._rows(self.cells % len(REGIONS) == code).sum()
                share = f"{_share(rows):.0%} its own limits, the rest the overall ones"
                lines.append(f"  {region}: {limits[code]} ({_said(rows)}, {share})")
        lines += self._column_lines(coverage)
        same = "if new rows come from the same distribution as the held-out rows."
        if self.mode == "global" and self._plain:
            lines.append(f"Promise: at least {coverage:.4g} of new labels, on average over all rows, {same}")
        else:
            lines.append(
                f"About {coverage:.4g} of new labels are inside, on average over all rows, {same} The more "
                "rows were held out, the closer; there is no exact promise."
            )
        lines.append("No method can promise coverage given the true label.")
        for group in self.groups[1:]:
            if (missed := group.slack * (1 - coverage)) < 1 - ROUNDING:
                rows = f"{_said(round(group.effective))} {_KINDS[group.name]}"
                lines.append(f"Widened until {1 - missed:.4g} of {rows} are inside.")
        return "\n".join(lines)

    def _column_lines(self, coverage: float) -> list[str]:
        """Lines that say how much wider the intervals of each group of the column are."""
        if not self.column.names:
            return []
        limits = self._limits(coverage).reshape(-1, len(REGIONS), 2)[:, 0]
        lines = [f"By the column {self.column.column}, these limits are multiplied:"]
        for code, name in enumerate(self.column.names, start=1):
            below, above = limits[code] / limits[0]
            rows = _said(self._rows(self.cells // len(REGIONS) == code).sum())
            lines.append(f"  {name}: by {below:.3g} below and {above:.3g} above ({rows})")
        return [*lines, "  any other value: not"]

    # -- limits ------------------------------------------------------------------------------------

    @property
    def _plain(self) -> bool:
        """Whether nothing is widened."""
        return len(self.groups) == 1 and not self.column.names

    @property
    def _floor(self) -> float:
        """Smallest spread in use, in label units, so that predictions without spread get intervals too."""
        return _SPREAD_FLOOR * self.bins.scale

    def _rows(self, chosen: NDArray[np.bool_] | slice = slice(None)) -> Array:
        """How many held-out rows each score stands for. (m,)"""
        return self.groups[0].weights[chosen]

    @cached_property
    def _region_codes(self) -> Tensor:
        """Position in `REGIONS` of each bin's region. (B,)"""
        return torch.tensor([REGIONS.index(str(r)) for r in self.bins.regions(self.many, self.few)])

    def _cells(self, point: Tensor, groups: Codes | None) -> Tensor:
        """Number the combinations of a group of the column and a predicted region; group 0 is none. (N,)"""
        codes = torch.zeros_like(point, dtype=torch.long)
        if self.mode == "region":
            codes = self._region_codes.to(point.device)[self.bins.index(point)]
        if groups is not None and self.column.names:
            codes = codes + len(REGIONS) * torch.from_numpy(groups).to(point.device)
        return codes

    @cached_property
    def _kept_limits(self) -> dict[float, Array]:
        return {}

    def _limits(self, coverage: float) -> Array:
        """Return the limits of each cell, computed once. (3 (G + 1), 2)"""
        if coverage not in self._kept_limits:
            self._kept_limits[coverage] = self._widened(coverage)
        return self._kept_limits[coverage]

    def _widened(self, coverage: float) -> Array:
        """Limits of the cells, shrunk, then widened until each group of rows is covered. (3 (G + 1), 2)"""
        overall = self._promised(coverage)
        limits = np.tile(overall, (len(REGIONS), 1))
        for code in np.unique(self.cells % len(REGIONS)) if self.mode == "region" else ():
            inside = self.cells % len(REGIONS) == code
            widest, share = np.abs(self.scores[inside]).max(), _share(self._rows(inside).sum())
            own = np.clip(self._promised(coverage, inside), -widest, widest)
            # On the log scale one far score of a small region counts less.
            sizes = np.maximum(np.abs([own, overall]), _LEAST_SHRUNK)
            limits[code] = _SIGNS * sizes[0] ** share * sizes[1] ** (1 - share)
        if self._plain:
            return limits
        limits += _SIGNS * np.where(limits == 0, _LEAST_LIMIT, 0.0)
        limits = np.concatenate([limits * factors for factors in self._column_factors(limits, coverage)])
        for group in self.groups:
            factors = group.factors(self._ratio(limits[self.cells]), coverage)
            limits = limits * factors ** _share(group.effective)
        return limits

    def _promised(self, coverage: float, chosen: NDArray[np.bool_] | slice = slice(None)) -> Array:
        """Return limits between which a new score lies with this probability, infinite for small n. (2,)

        If n held-out rows and a new row are exchangeable, the new score lies between the i-th and the j-th
        smallest score with probability ``(j - i) / (n + 1)``. The limits take
        ``j - i = ceil((n + 1) coverage)`` and always include 0, the prediction itself.
        """
        scores, rows = self.scores[chosen], self._rows(chosen)
        n = round(rows.sum())
        left_out = n + 1 - math.ceil((n + 1) * coverage - ROUNDING)
        if left_out < 1:
            return np.array([-math.inf, math.inf])
        if left_out == 1:  # one gap cannot be split between two sides: use the largest absolute score
            return np.asarray(_SIGNS * np.abs(scores).max())
        # Long tails are more often above than below, so an odd score is left out below.
        above = min(max(int(left_out * (1 - self.split)), 1), left_out - 1)
        order = np.argsort(scores, kind="stable")
        ends = scores[order[np.searchsorted(np.cumsum(rows[order]), [left_out - above, n + 1 - above])]]
        return np.array([min(ends[0], 0.0), max(ends[1], 0.0)])

    def _ratio(self, limits: Array) -> Array:
        """Scores in units of the limit on their side. limits: (m, 2) -> (m,)"""
        return np.asarray(self.scores / np.where(self.scores < 0, -limits[:, 0], limits[:, 1]))

    def _column_factors(self, limits: Array, coverage: float) -> Array:
        """Factors on the limits of each group of the column, shrunk towards 1. (G + 1, 2)"""
        factors = np.ones((len(self.column.names) + 1, 2))
        ratio = self._ratio(limits[self.cells % len(REGIONS)])
        for code in range(1, len(factors)):
            inside = self.cells // len(REGIONS) == code
            if inside.any():
                n = self._rows(inside).sum()
                weight, spare = self._rows(inside) / n, max(1 - coverage - coverage / n, 0.0)
                exact = [
                    _least_factor(sign * ratio[inside], weight, spare * part)
                    for sign, part in ((-1, self.split), (1, 1 - self.split))
                ]
                factors[code] = np.maximum(exact, _LEAST_SHRUNK) ** _share(n)
        return factors


Intervals = ConformalIntervals | OwnIntervals


def _share(rows: float) -> float:
    """Share of a region's own limits in its limits; the rest is that of the overall ones."""
    return rows**2 / (rows**2 + MIN_ROWS**2)


def _least_factor(ratio: Array, weight: Array, leave: float) -> float:
    """Return the least factor, 0 or more, with at most the weight `leave` of the ratios above it."""
    order = np.argsort(-ratio, kind="stable")
    above = np.cumsum(weight[order])  # weight of a ratio and all larger ones
    first = int(np.searchsorted(above, leave + ROUNDING, side="right"))
    return max(0.0, float(ratio[order[first]])) if first < ratio.size else 0.0


def _thinned(scores: Array, cells: Codes, groups: tuple[Group, ...]) -> dict[str, Any]:
    """Keep a grid of at most about 1,000 scores for each cell and group. scores, cells: (n,)

    The weight of a score that is left out goes to the next one further out.
    """
    kept_rows, kept_weights = [], []
    for code in np.unique(cells):
        rows = np.flatnonzero(cells == code)
        rows = rows[np.argsort(scores[rows], kind="stable")]
        weights = np.stack([group.weights[rows] for group in groups])
        every = kept = np.arange(rows.size)
        if rows.size > MAX_POINTS:
            kept = np.unique(np.concatenate([_grid(w / w.sum()) for w in weights if w.any()]))
        inward = np.searchsorted(kept, every, side="right") - 1, np.searchsorted(kept, every)
        place = np.where(scores[rows] < 0, *inward)
        kept_rows.append(rows[kept])
        kept_weights.append([np.bincount(place, w, kept.size) for w in weights])
    rows, weights = np.concatenate(kept_rows), np.concatenate(kept_weights, axis=1)
    thinned = tuple(replace(group, weights=w) for group, w in zip(groups, weights, strict=True))
    return {"scores": scores[rows], "cells": cells[rows], "groups": thinned}


def _grid(shares: Array) -> Codes:
    """Return positions in sorted scores, denser at both ends: equal steps in the log of the tail's share."""
    tails = np.geomspace(1 / shares.size, 0.5, MAX_POINTS // 2) + ROUNDING
    last = shares.size - 1
    below = np.minimum(np.searchsorted(np.cumsum(shares), tails), last)
    above = last - np.minimum(np.searchsorted(np.cumsum(shares[::-1]), tails), last)
    return np.unique(np.concatenate([[0], below, above, [last]])).astype(np.int64)


def _said(rows: float) -> str:
    return f"{rows:.0f} held-out row" + ("" if rows == 1 else "s")
