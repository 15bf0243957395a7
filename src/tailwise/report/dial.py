"""What the emphasis on rare labels costs and gains on test rows, at every setting of the dial (VIR:dial)."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tailwise.labels.prior import RARE_SHARE, rarest
from tailwise.metrics.regions import REGIONS
from tailwise.report.formatting import level, pair
from tailwise.report.scoring import Floats, Scored

EMPHASES = tuple(k / 10 for k in range(11))
"""Settings that a page shows, besides the one in use."""
MIN_DIAL_ROWS = 20
"""With fewer test rows there are too few rare ones to draw a curve."""
RARE = f"the rarest {level(RARE_SHARE)} of the labels"


@dataclass(frozen=True, eq=False)
class Dial:
    """A model's predictions of the test rows at every emphasis."""

    scored: Scored
    settings: tuple[float, ...]  # ascending: EMPHASES and the one in use
    rare: NDArray[np.bool_]  # (N,) the rarest labels, by their density in training
    errors: Floats  # (E, N) absolute errors at each setting
    inside: NDArray[np.bool_]  # (E, N) whether the interval contains the label
    widths: Floats  # (E, N)

    @cached_property
    def curve(self) -> tuple[Floats, Floats]:
        """Error over all rows and over rare rows at each setting. (E,) each"""
        return self.errors.mean(axis=1), self.errors[:, self.rare].mean(axis=1)

    def point(self, scored: Scored) -> tuple[float, float]:
        """Return the error over all rows and over rare rows of a model on the same test rows."""
        return float(scored.error.mean()), float(scored.error[self.rare].mean())

    @property
    def setting(self) -> str:
        """The setting in use, in words."""
        if math.isnan(self.scored.emphasis):
            return "the label prior given"
        return f"emphasis {self.scored.emphasis:g}"

    def by_region(self) -> dict[str, dict[str, list[float]]]:
        """Return MAE, coverage and mean width of each region that has test rows, at each setting."""
        found: dict[str, dict[str, list[float]]] = {}
        for region in REGIONS:
            rows = self.scored.mask(region)
            if rows.any():
                parts: dict[str, Any] = {"mae": self.errors, "coverage": self.inside, "width": self.widths}
                found[region] = {k: values[:, rows].mean(axis=1).tolist() for k, values in parts.items()}
        return found

    @property
    def text(self) -> str:
        """What the setting in use gains for rare labels and costs for the others."""
        used, plain, full = self.scored.error, self.errors[0], self.errors[-1]
        if self.scored.emphasis == 0:
            return (
                "At emphasis 0, which is in use, labels are expected as in training. At emphasis 1 the error "
                f"for {RARE} is {self._change(full, plain, self.rare)}, and for the others "
                f"{self._change(full, plain, ~self.rare)}."
            )
        return (
            f"With {self.setting}, which is in use, the error for {RARE} is "
            f"{self._change(used, plain, self.rare)} than at emphasis 0, and for the others "
            f"{self._change(used, plain, ~self.rare)}."
        )

    @staticmethod
    def _change(new: Floats, old: Floats, rows: NDArray[np.bool_]) -> str:
        """``12% lower (3.1 against 3.5)``."""
        now, before = float(new[rows].mean()), float(old[rows].mean())
        figures = " against ".join(pair(now, before))
        share = abs(now - before) / before if before > 0 else 0.0
        by = "less than 0.1%" if share < 0.001 else f"{100 * share:.1f}%"
        return f"{by} {'higher' if now > before else 'lower'} ({figures})"


def dial_of(scored: Scored) -> Dial | None:
    """Return the figures along the dial; None for few test rows and for models without a dial."""
    if scored.calibration is None or scored.y.size < MIN_DIAL_ROWS:
        return None
    used = () if math.isnan(scored.emphasis) else (scored.emphasis,)
    settings = tuple(sorted({*EMPHASES, *used}))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # `score_model` has warned already, at the one in use
        each = [_at(scored, emphasis) for emphasis in settings]
    return Dial(
        scored,
        settings,
        rarest(scored.y, scored.calibration.labels.density),
        np.stack([s.error for s in each]),
        np.stack([s.inside for s in each]),
        np.stack([s.width for s in each]),
    )


def _at(scored: Scored, emphasis: float) -> Scored:
    """Return the scores of the same model at another emphasis."""
    assert scored.calibration is not None and scored.raw is not None
    calibration = scored.calibration.at(emphasis)
    predicted = calibration(scored.raw)
    lower, upper = (end.double().numpy() for end in predicted.interval(scored.coverage))
    return replace(
        scored, distribution=predicted.distribution, lower=lower, upper=upper, calibration=calibration
    )
