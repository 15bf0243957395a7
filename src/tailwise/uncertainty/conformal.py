"""Split-conformal intervals: the predicted spread, stretched until it covers held-out labels.

For any model, intervals at 90% cover at least 90% of new labels, on average over calibration sets and
rows, if held-out rows and new rows come from the same distribution. This holds over all rows, or over
the rows predicted in one region (``mode="region"``). No method can guarantee coverage given the *true*
label, which is unknown at prediction time. ``weights="rare"`` widens the intervals until they cover the
rarest 15% of the held-out labels as often as all of them, and ``weights="balanced"`` until every label bin
has the same weight; both help rare labels in practice, without a guarantee.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, cast, get_args

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from tailwise.core.distributions import NIG, Distribution, Mixture
from tailwise.core.label_prior import LabelDensity, rarest
from tailwise.core.labels import LabelBins, checked_labels
from tailwise.core.lookup import check_name
from tailwise.core.scores import prepared
from tailwise.core.tilt import Tilted
from tailwise.uncertainty.scaling import balanced_weights
from tailwise.uncertainty.score_table import ROUNDING, Limits, ScoreTable, check_keys

Array = NDArray[np.float64]
Mode = Literal["global", "region"]

REGIONS = ("many", "medium", "few")
MIN_ROWS = 30
"""A region with fewer held-out rows gets intervals at least as wide as the global ones."""
_Z90 = 1.6448536269514722
_SPREAD_FLOOR = 1e-6


def spread(distribution: Distribution) -> Tensor:
    """Return half the width of the central 90% interval, divided by 1.645.

    For a Normal that is the standard deviation. For an NIG it is the width of its Student-t by Peizer
    and Pratt's approximation, which is within 1% for 2 or more degrees of freedom and simple enough for
    ONNX. For a mixture it is the root of the mean of squared spreads plus the variance between means.
    Under another label prior it is exact.
    Unlike the standard deviation, it is finite for every alpha and does not explode near ``alpha = 1``.

    >>> belief = NIG(torch.tensor([0.0], dtype=torch.float64), 1.0, 3.0, 2.0)
    >>> low, high = belief.interval(0.9)
    >>> round(spread(belief).item(), 2), round((high - low).item() / 2 / 1.645, 2)
    (1.36, 1.36)
    """
    if isinstance(distribution, Tilted):
        lower, upper = distribution.interval(0.9)
        return (upper - lower) / (2 * _Z90)
    if isinstance(distribution, Mixture):
        members = distribution.components
        squares = spread(members) ** 2 + (members.mean - distribution.mean) ** 2
        counted = torch.where(distribution.weights > 0, squares, 0.0)
        return (distribution.weights * counted).sum(0).sqrt()
    if not isinstance(distribution, NIG):
        return distribution.std
    df = (2 * distribution.alpha).clamp_min(1.5)  # the approximation is not monotone below
    moved = df - 2 / 3 + 0.1 / df
    tail = (df * torch.expm1(_Z90**2 * (df - 5 / 6) / moved / moved)).sqrt() / _Z90
    return distribution.scale * tail


@dataclass(frozen=True, eq=False)
class ConformalIntervals:
    """Intervals fitted by `fit_conformal`, for any prediction and any coverage.

    The interval is ``mean + lower * spread(distribution)`` to ``mean + upper * spread(distribution)``,
    with the `limits` in force for the predicted region.
    """

    mode: Mode
    bins: LabelBins
    tables: Mapping[str, ScoreTable] = field(repr=False)  # "all", and the regions that have rows
    weighting: str = "none"  # "none", "balanced", "rare" or "given"
    min_rows: int = MIN_ROWS
    many: int = 100
    few: int = 20

    @cached_property
    def _region_codes(self) -> Tensor:
        """Position in `REGIONS` of each bin's region. (B,)"""
        return torch.tensor([REGIONS.index(str(r)) for r in self.bins.regions(self.many, self.few)])

    @property
    def floor(self) -> float:
        """Smallest spread in use, in label units, so that predictions without spread get intervals too."""
        return _SPREAD_FLOOR * self.bins.scale

    @property
    def reach(self) -> float:
        """Highest coverage that the number of held-out rows can guarantee."""
        return self._reach("all")

    def in_force(self, region: str) -> str:
        """Return which scores are used in a region: "own", "wider of own and global" or "global"."""
        check_name("region", region, REGIONS)
        if self.mode == "global" or region not in self.tables:
            return "global"
        return "own" if self.tables[region].n >= self.min_rows else "wider of own and global"

    def limits(self, coverage: float = 0.9, *, finite: bool = False) -> dict[str, Limits]:
        """Return, for each predicted region, what to add to a prediction, in units of its spread.

        In global mode all regions have the same limits. With n held-out rows at most ``n / (n + 1)`` can
        be guaranteed. Limits for a higher coverage are infinite, or with ``finite=True`` the largest score
        seen. A region with fewer than `min_rows` rows, or too few for the coverage, gets the wider of the
        global limits and its own, its own being at most its largest score.
        """
        if not 0 < coverage < 1:
            raise ValueError(f"coverage must lie between 0 and 1, got {coverage!r}")
        equal = self.weighting != "rare"
        overall = self.tables["all"].limits(coverage, equal_tails=equal)
        if finite:
            overall = _within(overall, self.tables["all"].widest)
        chosen = {}
        for region in REGIONS:
            chosen[region] = overall
            if self.in_force(region) == "global":
                continue
            own = self.tables[region].limits(coverage, equal_tails=equal)
            widest = self.tables[region].widest
            if self.in_force(region) == "own" and all(math.isfinite(limit) for limit in own):
                chosen[region] = own
            else:
                own = _within(own, widest)
                chosen[region] = min(own[0], overall[0]), max(own[1], overall[1])
        return chosen

    def interval(
        self, distribution: Distribution, coverage: float = 0.9, *, finite: bool = False
    ) -> tuple[Tensor, Tensor]:
        """Return lower and upper ends for predictions of any shape, in label units.

        `limits` explains `finite`.
        """
        limits = self.limits(coverage, finite=finite)
        mean = distribution.mean.detach()
        width = spread(distribution).detach().clamp_min(self.floor)
        table = torch.tensor([limits[r] for r in REGIONS], dtype=mean.dtype, device=mean.device)
        if self.mode == "global":
            lower, upper = table[0].unbind()
        else:
            codes = self._region_codes.to(mean.device)[self.bins.index(mean)]
            lower, upper = table[codes].unbind(-1)
        return mean + lower * width, mean + upper * width

    def explain(self, coverage: float = 0.9, *, finite: bool = False) -> str:
        """Return a text: the limits in use, the number of rows behind them, and what they guarantee."""
        limits, rows = self.limits(coverage, finite=finite), self.tables["all"].n
        if self.mode == "global":
            lines = [
                f"Split-conformal intervals at {coverage:.4g} from {_rows(rows)}, the same for all rows."
            ]
            lines.append(f"  prediction {_in_words(limits['many'])}")
            promised = "on average over all rows" if coverage <= self.reach + ROUNDING else ""
        else:
            lines = [f"Split-conformal intervals at {coverage:.4g} from {_rows(rows)}, by predicted region."]
            lines += [f"  {r}: prediction {_in_words(limits[r])} ({self._basis(r)})" for r in REGIONS]
            held = [r for r in REGIONS if coverage <= self._reach(r) + ROUNDING]
            over = " and over those predicted ".join(held)
            promised = f"on average over rows predicted {over}" if held else ""
        needed = math.ceil(coverage / (1 - coverage) - ROUNDING)
        lines.append(
            f"Promise: at least {coverage:.4g} of new labels, {promised}, if new rows come from the same "
            "distribution as the held-out rows."
            if promised
            else f"No promise: {coverage:.4g} takes {_rows(needed)}."
        )
        if limits != self.limits(coverage):
            lines.append("Where more rows are needed, intervals reach to the largest error seen.")
        lines.append("No method can promise coverage given the true label.")
        if self.weighting != "none":
            worth = self.tables["all"].effective
            lines.append(
                {
                    "balanced": "Widened where held-out rows weighted by the rarity of their labels (worth "
                    f"{worth:.0f} equal ones) require it.",
                    "rare": f"Widened until the {worth:.0f} held-out rows with the rarest labels are covered "
                    "as well.",
                    "given": f"Widened where held-out rows weighted as given (worth {worth:.0f} equal ones) "
                    "require it.",
                }[self.weighting]
            )
        return "\n".join(lines)

    def _reach(self, region: str) -> float:
        rows = self.tables[region].n if region in self.tables else 0
        return rows / (rows + 1)

    def _basis(self, region: str) -> str:
        rows = _rows(self.tables[region].n if region in self.tables else 0)
        few = f"{rows}, fewer than {self.min_rows}: the wider of its own limits and the global ones"
        choices = {"own": rows, "wider of own and global": few, "global": f"{rows}: the global limits"}
        return choices[self.in_force(region)]

    def to_dict(self) -> dict[str, Any]:
        """Return plain numbers, strings and lists, ready for JSON."""
        return {
            "mode": self.mode,
            "weighting": self.weighting,
            "min_rows": self.min_rows,
            "many": self.many,
            "few": self.few,
            "edges": self.bins.edges.tolist(),
            "counts": self.bins.counts.tolist(),
            "tables": {name: table.to_dict() for name, table in self.tables.items()},
        }

    @classmethod
    def from_dict(cls, state: Mapping[str, Any]) -> ConformalIntervals:
        """Rebuild intervals from `to_dict`, or say what is wrong with the state."""
        check_keys(state, {"mode", "weighting", "min_rows", "many", "few", "edges", "counts", "tables"})
        tables = {name: ScoreTable.from_dict(table) for name, table in state["tables"].items()}
        check_keys(tables, {"all"}, REGIONS)
        edges = checked_labels(state["edges"], "edges")
        counts = np.asarray(state["counts"], np.int64)
        if counts.shape != (edges.size - 1,) or (np.diff(edges) <= 0).any():
            raise ValueError(f"{counts.size} bins need {counts.size + 1} edges in ascending order")
        return cls(
            mode=_checked_mode(state["mode"]),
            bins=LabelBins(edges, counts),
            tables=tables,
            weighting=str(state["weighting"]),
            min_rows=int(state["min_rows"]),
            many=int(state["many"]),
            few=int(state["few"]),
        )


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
) -> ConformalIntervals:
    """Fit intervals on held-out rows that were used neither for training nor for scaling.

    A row's score is (label - mean) / spread, with its sign. Intervals are therefore wide where the
    prediction is uncertain, and longer on the side of the longer tail. Coverage is chosen later, for
    each call of `interval`.

    ``mode="region"`` keeps the scores of each predicted region separate: many, medium or few training
    labels in the bin of the *predicted* label. Coverage then holds within each predicted region too.
    `bins` are those of the training labels.

    ``weights="rare"`` counts the rarest 15% of the labels only, ``weights="balanced"`` gives every label bin
    the same total weight, and `weights` may also be an array.
    Weights can only widen the intervals. Their finite-sample correction uses Kish's effective number of
    rows, which is an approximation. distribution: (n,), y: (n,), weights: (n,)

    >>> from tailwise.core.distributions import Normal
    >>> bins = LabelBins.from_labels([0, 0, 1, 2])
    >>> held_out = Normal(torch.zeros(19), 4.0)
    >>> fitted = fit_conformal(held_out, np.arange(-9.0, 10.0), bins)
    >>> fitted.limits(0.9)["many"]
    (-4.5, 4.5)
    >>> low, high = fitted.interval(Normal(torch.tensor([10.0]), 1.0), 0.9)
    >>> low.item(), high.item()
    (5.5, 14.5)
    """
    _checked_mode(mode)
    if min_rows < 1:
        raise ValueError(f"min_rows must be at least 1, got {min_rows!r}")
    exact, labels = prepared(distribution, y)
    if labels.numel() == 0:
        raise ValueError("no held-out rows: conformal intervals need at least one")
    w, weighting = _checked_weights(weights, labels, bins)
    fitted = ConformalIntervals(mode, bins, {}, weighting, int(min_rows), many, few)
    width = spread(exact)
    bad = ~(exact.mean.isfinite() & width.isfinite())
    if bad.any():
        row = int(bad.to(torch.int8).argmax())
        raise ValueError(f"predictions must be finite: row {row} is not ({int(bad.sum())} bad rows)")
    scores = ((labels - exact.mean) / width.clamp_min(fitted.floor)).numpy()
    tables = {"all": ScoreTable.from_scores(scores, w)}
    if mode == "region":
        codes = fitted._region_codes[bins.index(exact.mean)].numpy()
        for code, region in enumerate(REGIONS):
            rows = codes == code
            if rows.any():
                own = w[rows] if w is not None and w[rows].any() else None
                tables[region] = ScoreTable.from_scores(scores[rows], own)
    return ConformalIntervals(mode, bins, tables, weighting, int(min_rows), many, few)


def _checked_mode(mode: object) -> Mode:
    check_name("mode", mode, get_args(Mode))
    return cast("Mode", mode)


def _checked_weights(
    weights: str | ArrayLike | Tensor | None, labels: Tensor, bins: LabelBins
) -> tuple[Array | None, str]:
    if weights is None:
        return None, "none"
    if isinstance(weights, str):
        check_name("weights", weights, ["balanced", "rare"])
        if weights == "balanced":
            return balanced_weights(labels, bins), "balanced"
        return rarest(labels.numpy(), LabelDensity.from_bins(bins)).astype(np.float64), "rare"
    w = checked_labels(weights, "weights")
    if w.size != labels.numel():
        raise ValueError(f"{w.size} weights for {labels.numel()} labels")
    if (w < 0).any() or not w.any():
        raise ValueError("weights must not be negative, and one of them must be positive")
    return w, "given"


def _within(limits: Limits, widest: float) -> Limits:
    """Replace infinite limits by the largest score seen."""
    return max(limits[0], -widest), min(limits[1], widest)


def _rows(count: int) -> str:
    return f"{count} held-out row" + ("" if count == 1 else "s")


def _in_words(limits: Limits) -> str:
    return f"{limits[0]:+.3g} to {limits[1]:+.3g} spreads"
