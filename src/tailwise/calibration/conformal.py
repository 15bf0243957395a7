"""Conformal intervals: the predicted spread, stretched until it covers held-out labels.

The interval of a row reaches from its predicted label down and up by multiples of its own spread below and
above. The multiples, the `limits`, come from rows that the model was not trained on. Without weights and
with ``mode="global"`` these are split-conformal intervals: for any model, intervals at 90% cover at least 90%
of new labels, on average over calibration sets and rows, if held-out rows and new rows come from the same
distribution.

Two options help rare labels, without an exact guarantee. ``mode="region"`` fits limits for each predicted
region and shrinks them towards the overall ones where a region has few rows. ``weights="rare"`` widens all
limits by common factors until the rarest 15% of the held-out labels are covered as often as all of them.
A `column` fits factors on the limits for each group of rows, shrunk towards 1 in the same way. No
method can guarantee coverage given the *true* label, which is unknown at prediction time.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Annotated, Literal, get_args

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from tailwise.calibration.column_groups import ColumnGroups
from tailwise.calibration.interval_scores import label_range
from tailwise.calibration.interval_texts import explain, too_few
from tailwise.calibration.scaling import balanced_weights
from tailwise.calibration.score_table import ROUNDING, Limits, ScoreTable
from tailwise.calibration.spreads import sides
from tailwise.calibration.widening import REGIONS, Codes, Group
from tailwise.distributions.members import Distribution
from tailwise.labels.bins import LabelBins, checked_labels
from tailwise.labels.prior import LabelDensity, rarest
from tailwise.lookup import check_name
from tailwise.metrics.scores import prepared
from tailwise.options import Between, Count, Fraction

Array = NDArray[np.float64]
Mode = Literal["global", "region"]
Weighting = Literal["none", "balanced", "rare", "given"]
MIN_ROWS = 30
"""With this many held-out rows, a region's own limits count as much as the overall ones."""
FEW_SLACK = 1.25
"""How much more often few-shot labels may be missed than all labels, if ``weights="rare"``.

With less, the rarest labels are covered more often than asked, and all intervals are wider; with more,
few-shot labels are covered too rarely (research/results/rare_coverage.md).
"""
SPLITS = (0.25, 0.5, 0.75)
"""Shares of the missed labels that may lie below. ``weights="rare"`` takes the one with the narrowest
intervals at `CHOSEN_AT`; other coverages have the same, so that a higher one does not narrow an end."""
CHOSEN_AT = 0.9
_SPREAD_FLOOR = 1e-6
_LEAST_LIMIT, _LEAST_SHRUNK = 1e-9, 0.1


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


@dataclass(frozen=True, eq=False)
class ConformalIntervals:
    """Intervals fitted by `fit_conformal`, for any prediction and any coverage.

    The interval is ``point + lower * below`` to ``point + upper * above``, with the `limits` (lower, upper)
    of the predicted region and the `sides` (below, above) of the prediction. With a `column`, each group of
    rows has limits of its own in each region: its *cells*. Group 0 has the rows without a group of their own.
    """

    mode: Mode
    bins: LabelBins
    tables: Mapping[str, ScoreTable] = field(repr=False)  # "all", and the regions that have rows
    groups: tuple[Group, ...] = field(default=(), repr=False)  # rows that must be covered
    mean_sides: Array = field(default_factory=lambda: np.ones((3, 2)), repr=False)  # by cell, in label stds
    weighting: Weighting = "none"
    min_rows: Annotated[int, Between(1, 1 << 53)] = MIN_ROWS
    many: Count = 100
    few: Count = 20
    held_out: bool = True  # whether the rows were held out from training
    split: Fraction = 0.5  # share of the missed labels that may lie below
    votes: bool = False  # whether the intervals of several networks are joined by `majority`
    column: ColumnGroups = ColumnGroups()  # groups of rows with limits of their own

    def __post_init__(self) -> None:
        for name in self.tables:
            check_name("table of scores", name, ["all", *REGIONS])
        cells = len(REGIONS) * (len(self.column.names) + 1)
        if self.mean_sides.shape != (cells, 2) or any(g.regions.max() >= cells for g in self.groups):
            raise ValueError(f"mean_sides and groups of rows must be those of {cells} cells")

    @cached_property
    def _region_codes(self) -> Tensor:
        """Position in `REGIONS` of each bin's region. (B,)"""
        return torch.tensor([REGIONS.index(str(r)) for r in self.bins.regions(self.many, self.few)])

    @property
    def floor(self) -> float:
        """Smallest spread in use, in label units, so that predictions without spread get intervals too."""
        return _SPREAD_FLOOR * self.bins.scale

    @property
    def rows(self) -> int:
        """Number of rows that were held out from training."""
        return self.tables["all"].n if self.held_out else 0

    @property
    def reach(self) -> float:
        """Highest coverage that the number of held-out rows allows."""
        return self.rows / (self.rows + 1)

    def can_cover(self, coverage: float) -> bool:
        """Whether there are enough held-out rows for a coverage."""
        return coverage <= self.reach + ROUNDING

    def share_of_own(self, region: str) -> float:
        """Return the share of a region's own limits in its limits; the rest is that of the overall ones.

        The limits are ``own^share * overall^(1 - share)``. The share is ``n^2 / (n^2 + min_rows^2)`` for n
        held-out rows predicted in the region.
        """
        check_name("region", region, REGIONS)
        n = self.tables[region].n if self.mode == "region" and region in self.tables else 0
        return self._share(n)

    def _share(self, n: float) -> float:
        return n**2 / (n**2 + self.min_rows**2)

    def limits(self, coverage: float = 0.9) -> dict[str, Limits]:
        """Return, for each predicted region, the limits in units of the spread below and above.

        With a `column` they are those of rows without a group of their own. With n held-out rows at
        most ``n / (n + 1)`` can be covered; limits for more are infinite.
        """
        _check_coverage(coverage)
        if not self.can_cover(coverage):
            return dict.fromkeys(REGIONS, (-math.inf, math.inf))
        found = self._widened(coverage)
        return {region: (float(found[r, 0]), float(found[r, 1])) for r, region in enumerate(REGIONS)}

    def _widened(self, coverage: float) -> Array:
        """Limits of the cells, shrunk, then widened until each group of rows is covered. (3 (G + 1), 2)"""
        overall = np.array(self.tables["all"].promised(coverage, self.split))
        limits = np.tile(overall, (len(REGIONS), 1))
        for r, region in enumerate(REGIONS):
            share = self.share_of_own(region)
            if share:
                table = self.tables[region]
                own = np.clip(table.promised(coverage, self.split), -table.widest, table.widest)
                # On the log scale one far score of a small region counts less.
                sizes = np.maximum(np.abs([own, overall]), _LEAST_SHRUNK)
                limits[r] = np.array([-1, 1]) * sizes[0] ** share * sizes[1] ** (1 - share)
        if not self.groups:
            return limits
        limits += np.array([-1, 1]) * np.where(limits == 0, _LEAST_LIMIT, 0.0)
        limits = self._by_column(limits, coverage)
        for group in self.groups:
            limits = limits * group.factors(limits, coverage) ** self._share(group.effective)
        return limits

    def _by_column(self, limits: Array, coverage: float) -> Array:
        """Limits of each group of the column in each region, shrunk. (3, 2) -> (3 (G + 1), 2)"""
        if not self.column.names:
            return limits
        cells = np.tile(limits, (len(self.column.names) + 1, 1, 1))
        for code, factors in enumerate(self._column_factors(limits, coverage)):
            cells[code] *= factors
        return cells.reshape(-1, 2)

    def _column_factors(self, limits: Array, coverage: float) -> Array:
        """Factors on the limits of each group of the column, shrunk towards 1. (G + 1, 2)"""
        every, found = self.groups[0], np.ones((len(self.column.names) + 1, 2))
        for code in range(1, len(found)):
            rows = every.regions // len(REGIONS) == code
            if rows.any():
                own = replace(every.only(rows), regions=every.regions[rows] % len(REGIONS))
                exact = np.maximum(own.exact_factors(limits, coverage, self.split), _LEAST_SHRUNK)
                found[code] = exact ** self._share(own.effective)
        return found

    def narrowest(self) -> ConformalIntervals:
        """Return these intervals with the `split` of `SPLITS` that makes them narrowest at `CHOSEN_AT`."""
        if not self.can_cover(CHOSEN_AT):
            return self
        return min((replace(self, split=split) for split in SPLITS), key=ConformalIntervals._mean_width)

    def _mean_width(self) -> float:
        """Mean width over the held-out rows at `CHOSEN_AT`, in label standard deviations."""
        limits = self._widened(CHOSEN_AT)
        rows = np.bincount(self.groups[0].regions, self.groups[0].weights, len(limits))
        return float(rows @ (limits * np.array([-1, 1]) * self.mean_sides).sum(1) / rows.sum())

    def interval(
        self,
        distribution: Distribution,
        coverage: float = 0.9,
        *,
        finite: bool = False,
        groups: Codes | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Return lower and upper ends for predictions of any shape, in label units.

        `groups` are the codes of the rows in the `column`; without them the limits are the overall ones. With
        too few held-out rows for the coverage the ends are infinite. With ``finite=True`` they are
        then the smallest and the largest training label, and at least the largest error seen away from
        the prediction.
        """
        _check_coverage(coverage)
        point = distribution.point.detach()
        below, above = (side.detach().clamp_min(self.floor) for side in sides(distribution))
        if not self.can_cover(coverage):
            if not finite:
                return torch.full_like(point, -math.inf), torch.full_like(point, math.inf)
            widest, (low, high) = self.tables["all"].widest, label_range(self.bins)
            return (point - widest * below).clamp_max(low), (point + widest * above).clamp_min(high)
        table = torch.tensor(self._widened(coverage), dtype=point.dtype, device=point.device)
        codes: Tensor | None = None
        if self.mode == "region":
            codes = self._region_codes.to(point.device)[self.bins.index(point)]
        if groups is not None and self.column.names:
            first = len(REGIONS) * torch.from_numpy(groups).to(point.device)
            codes = first if codes is None else codes + first
        lower, upper = (table[0] if codes is None else table[codes]).unbind(-1)
        return point + lower * below, point + upper * above

    def refitted(
        self, distribution: Distribution, y: Array, weights: Literal["rare"] | Array, groups: Codes
    ) -> ConformalIntervals:
        """Return intervals of the same kind, fitted to other predictions of the held-out rows. (n,) each"""
        return fit_conformal(
            distribution,
            y,
            self.bins,
            mode=self.mode,
            weights=weights,
            many=self.many,
            few=self.few,
            held_out=self.held_out,
            votes=self.votes,
            column=self.column,
            column_codes=groups,
        )

    def explain(self, coverage: float = 0.9, *, finite: bool = False) -> str:
        """Return a text: the limits in use, the number of rows behind them, and what they guarantee."""
        return explain(self, coverage, finite=finite)

    def too_few(self, coverage: float) -> str:
        """Return a sentence that names the coverage, the rows it takes, and those there are."""
        return too_few(self.rows, coverage)

    def column_factors(self, coverage: float = 0.9) -> tuple[Array, Array]:
        """Return the factors on the limits of each group of the column, and its rows. (G, 2), (G,)"""
        cells = self._widened(coverage).reshape(-1, len(REGIONS), 2)
        factors = cells[1:, 0] / np.where(cells[0, 0] == 0, 1.0, cells[0, 0])
        rows = np.bincount(self.groups[0].regions // len(REGIONS), self.groups[0].weights, len(cells))
        return factors, np.asarray(rows[1:], np.float64)


@dataclass(frozen=True)
class OwnIntervals:
    """The central intervals of the predicted distribution itself, which are fitted to nothing."""

    votes = False

    def can_cover(self, coverage: float) -> bool:
        """Whether there are enough held-out rows for a coverage: these intervals need none."""
        return True

    def too_few(self, coverage: float) -> str:
        """Return an empty text: there are always enough rows."""
        return ""

    def refitted(
        self, distribution: Distribution, y: Array, weights: Literal["rare"] | Array, groups: Codes
    ) -> OwnIntervals:
        """Return these intervals."""
        return self

    def interval(
        self,
        distribution: Distribution,
        coverage: float = 0.9,
        *,
        finite: bool = False,
        groups: Codes | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Return lower and upper ends for predictions of any shape, in label units."""
        return distribution.interval(coverage)

    def explain(self, coverage: float = 0.9, *, finite: bool = False) -> str:
        """Return a text: these intervals promise nothing."""
        return "Intervals of the predicted distribution itself."


def fit_conformal(
    distribution: Distribution,
    y: ArrayLike | Tensor,
    bins: LabelBins,
    *,
    mode: Mode = "global",
    weights: Literal["balanced", "rare"] | ArrayLike | Tensor | None = None,
    min_rows: int = MIN_ROWS,
    many: int = 100,
    few: int = 20,
    held_out: bool = True,
    votes: bool = False,
    column: ColumnGroups = ColumnGroups(),
    column_codes: Codes | None = None,
) -> ConformalIntervals:
    """Fit intervals on held-out rows that were used neither for training nor for scaling.

    A row's score is (label - point) / spread, with its sign, and the spread of the side that the label lies
    on (`sides`). Intervals are therefore wide where the prediction is uncertain, and longer on the side of
    the longer tail. Coverage is chosen later, for each call of `interval`.

    ``mode="region"`` fits limits for each predicted region: many, medium or few training labels in the bin
    of the *predicted* label. They are ``own^s * overall^(1 - s)`` with ``s = n^2 / (n^2 + min_rows^2)`` for a
    region with n rows, so that they do not depend on a handful of rows. `bins` are those of
    the training labels.

    Weights widen all limits by one factor below and one above. ``weights="rare"`` counts the rarest 15% of
    the labels, and few-shot labels, which may be missed a quarter more often. ``weights="balanced"`` gives
    every label bin the same total weight, and `weights` may also be an array. Their finite-sample correction
    uses Kish's effective number of rows, which is an approximation. ``held_out=False`` says that the rows
    were trained on: then no coverage can be kept. ``votes=True`` says that each row was predicted by one
    of several networks, whose intervals for new rows `majority` joins. With a `column` and the
    `column_codes` of the rows, the limits of each group of the column are multiplied by the factors that
    cover its own rows, to the power of the same share s of its n rows. distribution, y, weights: (n,)

    >>> from tailwise.distributions.members import Normal
    >>> bins = LabelBins.from_labels([0, 0, 1, 2])
    >>> held = Normal(torch.zeros(19), 4.0)
    >>> fitted = fit_conformal(held, np.arange(-9.0, 10.0), bins)
    >>> fitted.limits(0.9)["many"]
    (-4.5, 4.5)
    >>> low, high = fitted.interval(Normal(torch.tensor([10.0]), 1.0), 0.9)
    >>> low.item(), high.item()
    (5.5, 14.5)
    """
    check_name("mode", mode, get_args(Mode))
    if min_rows < 1:
        raise ValueError(f"min_rows must be at least 1, got {min_rows!r}")
    if column.names and column_codes is None:
        raise ValueError("column needs column_codes: give column.codes(values) of the rows")
    exact, labels = prepared(distribution, y)
    if labels.numel() == 0:
        raise ValueError("no held-out rows: conformal intervals need at least one")
    fitted = ConformalIntervals(mode, bins, {}, many=many, few=few)
    below, above = sides(exact)
    point = exact.point
    bad = ~(point.isfinite() & below.isfinite() & above.isfinite())
    if bad.any():
        row = int(bad.to(torch.int8).argmax())
        raise ValueError(f"predictions must be finite: row {row} is not ({int(bad.sum())} bad rows)")
    below, above = below.clamp_min(fitted.floor), above.clamp_min(fitted.floor)
    off = labels - point
    scores = (off / torch.where(off < 0, below, above)).numpy()
    codes = np.zeros(off.numel(), np.int64)
    tables = {"all": ScoreTable.from_scores(scores)}
    if mode == "region":
        codes = fitted._region_codes[bins.index(point)].numpy()
        for code in np.unique(codes):
            tables[REGIONS[code]] = ScoreTable.from_scores(scores[codes == code])
    mean_sides = np.ones((len(REGIONS), 2))
    if column.names and column_codes is not None:
        codes = codes + len(REGIONS) * column_codes
        mean_sides = np.ones((len(REGIONS) * (len(column.names) + 1), 2))
    for code in np.unique(codes):
        rows = codes == code
        mean_sides[code] = [float(side.numpy()[rows].mean()) / bins.scale for side in (below, above)]
    groups, weighting = _groups(weights, labels.numpy(), bins, (many, few), scores, codes)
    if column.names and not groups:
        groups = (Group.of("all", scores, codes, np.ones(scores.size)),)
    fitted = ConformalIntervals(
        mode,
        bins,
        tables,
        groups,
        mean_sides,
        weighting,
        int(min_rows),
        many,
        few,
        held_out,
        votes=votes,
        column=column,
    )
    return fitted.narrowest() if weighting == "rare" else fitted


def _groups(
    weights: str | ArrayLike | Tensor | None,
    labels: Array,
    bins: LabelBins,
    shots: tuple[int, int],
    scores: Array,
    codes: NDArray[np.int64],
) -> tuple[tuple[Group, ...], Weighting]:
    """Groups of rows to cover, and the name of the weights. labels, scores, codes: (n,)"""
    if weights is None:
        return (), "none"
    every = Group.of("all", scores, codes, np.ones(labels.size))
    if isinstance(weights, str):
        check_name("weights", weights, ["balanced", "rare"])
        if weights == "balanced":
            return (every, Group.of("balanced", scores, codes, balanced_weights(labels, bins))), "balanced"
        rare = rarest(labels, LabelDensity.from_bins(bins)).astype(np.float64)
        groups = [every, Group.of("rare", scores, codes, rare)]
        few_shot = (bins.regions(*shots)[bins.index(labels)] == "few").astype(np.float64)
        if few_shot.any():
            groups.append(Group.of("few", scores, codes, few_shot, FEW_SLACK))
        return tuple(groups), "rare"
    w = checked_labels(weights, "weights")
    if w.size != labels.size:
        raise ValueError(f"{w.size} weights for {labels.size} labels")
    if (w < 0).any() or not w.any():
        raise ValueError("weights must not be negative, and one of them must be positive")
    return (every, Group.of("given", scores, codes, w)), "given"


def _check_coverage(coverage: float) -> None:
    if not 0 < coverage < 1:
        raise ValueError(f"coverage must lie between 0 and 1, got {coverage!r}")
