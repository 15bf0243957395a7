"""Calibrated uncertainty for one target: scaling, intervals, and tables of predictions and scores."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from tailwise.core.distributions import Distribution
from tailwise.core.labels import LabelBins
from tailwise.core.metrics import by_region
from tailwise.uncertainty.conformal import ConformalIntervals, fit_conformal
from tailwise.uncertainty.scaling import Scaling, balanced_weights, fit_scaling, split_variance

if TYPE_CHECKING:
    import pandas as pd

Floats = NDArray[np.float64]
Rows = NDArray[np.int64]
ConformalMode = Literal["global", "region"]


@dataclass(frozen=True)
class Calibrator:
    """Scaling and conformal intervals of one target, fitted on held-out rows."""

    bins: LabelBins
    scaling: Scaling | None
    conformal: ConformalIntervals | None

    def calibrated(self, raw: Distribution) -> Distribution:
        """Return the prediction with calibrated uncertainty. (N,) -> (N,)"""
        return raw if self.scaling is None else self.scaling.apply(raw)

    def interval(self, prediction: Distribution, coverage: float) -> tuple[Tensor, Tensor]:
        """Return lower and upper ends for calibrated predictions. (N,) each

        Conformal intervals if there are any, otherwise those of the distribution.
        """
        if self.conformal is None:
            return prediction.interval(coverage)
        return self.conformal.interval(prediction, coverage, finite=True)

    def explain(self, coverage: float) -> str:
        """Return a text: which intervals are in use and what they promise."""
        if self.conformal is None:
            return "Intervals of the predicted distribution itself."
        return self.conformal.explain(coverage, finite=True)

    def columns(self, prediction: Distribution, coverage: float, many: int, few: int) -> dict[str, Any]:
        """Return the columns of a table of calibrated predictions. (N,) each"""
        lower, upper = self.interval(prediction, coverage)
        raw = prediction if self.scaling is None else self.scaling.inverse.apply(prediction)
        aleatoric, epistemic = split_variance(prediction, raw)
        numbers = {
            "prediction": prediction.mean,
            "std": prediction.std,
            "lower": lower,
            "upper": upper,
            "aleatoric_std": aleatoric.sqrt(),
            "epistemic_std": epistemic.sqrt(),
        }
        region = self.bins.regions(many, few)[self.bins.index(prediction.mean).numpy()]
        return {**{name: value.numpy() for name, value in numbers.items()}, "region": region}

    def scores(
        self, prediction: Distribution, y: Floats, coverage: float, many: int, few: int
    ) -> pd.DataFrame:
        """Return a table of errors, coverage and width, over all labels and by region. y: (N,)"""
        table = by_region(prediction, y, self.bins, ("mae", "rmse", "gm", "nll", "ause"), many=many, few=few)
        lower, upper = (end.numpy() for end in self.interval(prediction, coverage))
        region = self.bins.regions(many, few)[self.bins.index(y)]
        inside, wide = (y >= lower) & (y <= upper), upper - lower
        for name in table.index:
            mask = np.ones(len(y), bool) if name == "all" else region == name
            table.loc[name, "coverage"] = inside[mask].mean() if mask.any() else math.nan
            table.loc[name, "width"] = wide[mask].mean() if mask.any() else math.nan
        return table.reset_index()


def fit_calibrator(
    raw: Distribution,
    y: Floats,
    bins: LabelBins,
    select: Rows,
    confirm: Rows,
    *,
    calibrate: bool = True,
    conformal: ConformalMode | None = "region",
    many: int = 100,
    few: int = 20,
) -> Calibrator:
    """Fit the scaling on the rows `select`, then intervals on the rows `confirm`.

    `select` may be the rows that early stopping used. `confirm` must be rows that nothing else used,
    or the intervals lose their guarantee. Every label bin has the same weight in the scaling. y: (N,)
    """
    scaling = None
    if calibrate:
        scaling = fit_scaling(raw[select], y[select], weights=balanced_weights(y[select], bins))
    scaled = Calibrator(bins, scaling, None)
    if conformal is None:
        return scaled
    intervals = fit_conformal(
        scaled.calibrated(raw)[confirm],
        y[confirm],
        bins,
        mode=conformal,
        weights="balanced",
        many=many,
        few=few,
    )
    return Calibrator(bins, scaling, intervals)
