"""Intervals of files written before limits were shrunk: they keep the limits that they had.

Limits of a predicted region are its own, widened by weights of its own rows. A region with few rows has the
wider of its own and the global limits. The spread is the same below and above.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from tailwise.core.distributions import Distribution
from tailwise.uncertainty.conformal import ConformalIntervals
from tailwise.uncertainty.interval_states import KEYS, former_fields
from tailwise.uncertainty.score_table import Limits, check_keys
from tailwise.uncertainty.spreads import spread
from tailwise.uncertainty.widening import REGIONS, Codes


def read_intervals(state: Mapping[str, Any]) -> ConformalIntervals:
    """Rebuild intervals of this or an earlier version from `ConformalIntervals.to_dict`."""
    if "groups" in state:
        return ConformalIntervals.from_dict(state)
    return FormerIntervals.from_dict(state)


@dataclass(frozen=True, eq=False)
class FormerIntervals(ConformalIntervals):
    """Intervals around one prediction for all networks, with limits that are never infinite."""

    def can_cover(self, coverage: float) -> bool:
        return True

    def limits(self, coverage: float = 0.9) -> dict[str, Limits]:
        """Return, for each predicted region, what to add to a prediction, in units of its spread.

        Where there are too few rows for the coverage it is the largest score seen.
        """
        if not 0 < coverage < 1:
            raise ValueError(f"coverage must lie between 0 and 1, got {coverage!r}")
        equal = self.weighting != "rare"
        overall = self.tables["all"].limits(coverage, equal_tails=equal)
        overall = _within(overall, self.tables["all"].widest)
        chosen = dict.fromkeys(REGIONS, overall)
        for region in REGIONS:
            if self.mode == "global" or region not in self.tables:
                continue
            table = self.tables[region]
            own = table.limits(coverage, equal_tails=equal)
            if table.n >= self.min_rows and all(math.isfinite(limit) for limit in own):
                chosen[region] = own
            else:
                own = _within(own, table.widest)
                chosen[region] = min(own[0], overall[0]), max(own[1], overall[1])
        return chosen

    def interval(
        self,
        distribution: Distribution,
        coverage: float = 0.9,
        *,
        finite: bool = False,
        groups: Codes | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Return lower and upper ends for predictions of any shape, in label units; always finite."""
        limits = self.limits(coverage)
        mean = distribution.mean.detach()
        width = spread(distribution).detach().clamp_min(self.floor)
        table = torch.tensor([limits[r] for r in REGIONS], dtype=mean.dtype, device=mean.device)
        codes = self._region_codes.to(mean.device)[self.bins.index(mean)]
        lower, upper = table[codes].unbind(-1)
        return mean + lower * width, mean + upper * width

    def explain(self, coverage: float = 0.9, *, finite: bool = False) -> str:
        """Return a text: the limits in use and the number of rows behind them."""
        limits = self.limits(coverage)
        return "\n".join(
            [
                f"Intervals of an earlier version at {coverage:.4g} from {self.rows} held-out rows.",
                *(f"  {r}: prediction {limits[r][0]:+.3g} to {limits[r][1]:+.3g} spreads" for r in REGIONS),
                "Fit the model again for intervals that are narrower for common labels.",
            ]
        )

    def to_dict(self) -> dict[str, Any]:
        state = super().to_dict()
        return {key: state[key] for key in KEYS}

    @classmethod
    def from_dict(cls, state: Mapping[str, Any]) -> FormerIntervals:
        check_keys(state, set(KEYS))
        return cls(**former_fields(state, "edges as given"))


def _within(limits: Limits, widest: float) -> Limits:
    """Replace infinite limits by the largest score seen."""
    return max(limits[0], -widest), min(limits[1], widest)
