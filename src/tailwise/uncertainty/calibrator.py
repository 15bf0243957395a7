"""Calibrated uncertainty for one target: scaling, intervals, and tables of predictions and scores."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tailwise.core.distributions import Distribution
from tailwise.core.label_prior import LabelDensity, Tilt, Tilted, change_of_prior, rarest
from tailwise.core.label_prior import emphasis as tilt_to_rare
from tailwise.core.labels import LabelBins
from tailwise.core.metrics import by_region
from tailwise.core.pooling import pooled
from tailwise.core.predictive import checked_coverage
from tailwise.core.support import LabelSupport
from tailwise.core.truncation import Bounds
from tailwise.uncertainty.column_groups import ColumnGroups
from tailwise.uncertainty.conformal import ConformalIntervals, fit_conformal, majority
from tailwise.uncertainty.interval_scores import intervals_by_region
from tailwise.uncertainty.scaling import Scaling, balanced_weights, fit_scaling, split_variance
from tailwise.uncertainty.spreads import standard_deviation

if TYPE_CHECKING:
    import pandas as pd

Floats = NDArray[np.float64]
Rows = NDArray[np.int64]
ConformalMode = Literal["global", "region"]

EMPHASES = tuple(k / 20 for k in range(21))
ALLOWANCE = 1.01
"""How much larger the error over all rows may get for the sake of rare labels."""
MIN_EMPHASIS_ROWS = 50
MAX_HELD = 4000
"""Held-out rows that are kept to fit intervals for another label prior."""


@dataclass(frozen=True, eq=False)
class HeldOut:
    """Calibrated predictions of held-out rows at emphasis 0, and their labels: (n,) each."""

    prediction: Distribution
    labels: Floats
    groups: Rows | None = None
    """Codes in the column that intervals go by, if there is one."""


class Raw(NamedTuple):
    """What networks predict for one target, before calibration."""

    pooled: Distribution  # (N,)
    networks: tuple[Distribution, ...] = ()
    """Predictions of each network, if there are several. (N,) each"""
    groups: Rows | None = None
    """Codes in the column that intervals go by, if there is one. (N,)"""

    @classmethod
    def of(cls, each: Sequence[Distribution], groups: Rows | None = None) -> Raw:
        """Pool the predictions of one or more networks. (N,) each"""
        return cls(pooled(each), tuple(each) if len(each) > 1 else (), groups)

    def rows(self, rows: Rows) -> Raw:
        """Return some of the rows. rows: (M,)"""
        networks = tuple(network[rows] for network in self.networks)
        return Raw(self.pooled[rows], networks, None if self.groups is None else self.groups[rows])


@dataclass(frozen=True, eq=False)
class Calibrator:
    """Scaling, label prior and conformal intervals of one target, fitted on held-out rows."""

    bins: LabelBins
    scaling: Scaling | None
    conformal: ConformalIntervals | None
    density: LabelDensity | None = None
    """Density of the training labels; models saved before there was a dial have none."""
    emphasis: float = 0.0
    """Emphasis on rare labels of `calibrated`; NaN under a label prior of the user's own."""
    tilt: Tilt | None = None
    held: HeldOut | None = None
    bounds: Bounds | None = None
    """Smallest and largest possible label, if they are known."""
    support: LabelSupport | None = None
    """Values that labels can have, if they are not continuous."""

    @property
    def known_labels(self) -> LabelBins | Floats:
        """What the model knows of the training labels: their bins, or a sample if many share one value.

        Within a bin, quantiles of bins are interpolated. For a value such as 0 that most labels have, only
        labels themselves give the right quantiles: those of the held-out rows.
        """
        if self.held is None or self.support is None or not self.support.atoms:
            return self.bins
        return self.held.labels

    def at(self, emphasis: float | None = None, label_prior: Any = None) -> Calibrator:
        """Return a calibrator for another emphasis or label prior (VIR:dial), with intervals that fit it.

        The intervals are fitted anew to the stored predictions of held-out rows. Without arguments it is
        this one.
        """
        if emphasis is not None and label_prior is not None:
            raise ValueError("give emphasis or label_prior, not both")
        if label_prior is None and (emphasis is None or emphasis == self.emphasis):
            return self
        if emphasis is not None and not 0 <= emphasis <= 1:
            raise ValueError(f"emphasis must lie between 0 and 1, got {emphasis!r}")
        if self.density is None or self.held is None:
            raise ValueError(
                "this model was saved by a version without emphasis and label_prior: fit it again"
            )
        if label_prior is None:
            assert emphasis is not None
            return self._tilted(tilt_to_rare(self.density, emphasis), emphasis)
        new = LabelDensity.from_prior(label_prior, self.density)
        return self._tilted(change_of_prior(self.density, new), math.nan)

    def _tilted(self, tilt: Tilt, emphasis: float) -> Calibrator:
        assert self.held is not None
        moved = replace(self, tilt=None if tilt.is_identity else tilt, emphasis=emphasis)
        if self.conformal is None:
            return moved
        labels = self.held.labels
        intervals = fit_conformal(
            moved.possible(self.held.prediction),
            labels,
            self.bins,
            mode=self.conformal.mode,
            weights="rare" if not math.isnan(emphasis) else tilt.weights(labels),
            many=self.conformal.many,
            few=self.conformal.few,
            held_out=self.conformal.held_out,
            votes=self.conformal.votes,
            column=self.conformal.column,
            column_codes=self.held.groups,
        )
        return replace(moved, conformal=intervals)

    def calibrated(self, raw: Distribution) -> Distribution:
        """Return the prediction with calibrated uncertainty, under the label prior in use. (N,) -> (N,)"""
        return self.possible(raw if self.scaling is None else self.scaling.apply(raw))

    def predicted(self, raw: Raw) -> Predicted:
        """Return calibrated predictions with their intervals at any coverage."""
        networks = tuple(self.calibrated(each) for each in raw.networks)
        return Predicted(self.calibrated(raw.pooled), self, networks, raw.groups)

    def possible(self, scaled: Distribution) -> Distribution:
        """Return a scaled prediction under the label prior in use and within the bounds. (N,) -> (N,)"""
        tilted = scaled if self.tilt is None else self.tilt.apply(scaled)
        return tilted if self.bounds is None else self.bounds.apply(tilted)

    def interval(
        self,
        prediction: Distribution,
        coverage: float,
        networks: Sequence[Distribution] = (),
        groups: Rows | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Return lower and upper ends for calibrated predictions. (N,) each

        Conformal intervals if there are any, otherwise those of the distribution. `networks` are the
        calibrated predictions of each network, if there are several: each gives an interval as it did for
        its held-out rows, and `majority` joins them. `groups` are the codes of the rows in the column
        that intervals go by. If there are too few held-out rows for the coverage,
        a warning says so and the ends are those of the observed labels. No interval leaves the bounds,
        and their ends are possible labels; no possible label is lost by that.
        """
        if self.conformal is None:
            return self._ends(*prediction.interval(coverage))
        if not self.conformal.can_cover(checked_coverage(coverage)):
            warnings.warn(
                f"{self.conformal.too_few(coverage)} The intervals span all training labels instead: fit "
                "with more rows, or ask for a lower coverage.",
                stacklevel=2,
            )
        if networks and self.conformal.votes:
            ends = [self.conformal.interval(n, coverage, finite=True, groups=groups) for n in networks]
            lower, upper = (torch.stack(side) for side in zip(*ends, strict=True))
            lower, upper = majority(lower, upper, prediction.point)
        else:
            lower, upper = self.conformal.interval(prediction, coverage, finite=True, groups=groups)
        return self._ends(lower, upper)

    def _ends(self, lower: Tensor, upper: Tensor) -> tuple[Tensor, Tensor]:
        if self.bounds is not None:
            lower, upper = self.bounds.clip(lower), self.bounds.clip(upper)
        return (lower, upper) if self.support is None else self.support.between(lower, upper)

    def quantile(self, prediction: Distribution, level: float) -> Tensor:
        """Return a quantile of calibrated predictions, moved to a possible label. (N,)"""
        found = prediction.quantile(level)
        return found if self.support is None else self.support.nearest(found)

    def explain(self, coverage: float) -> str:
        """Return a text: which intervals are in use and what they promise."""
        if self.conformal is None:
            return "Intervals of the predicted distribution itself."
        return self.conformal.explain(coverage, finite=True)

    def columns(
        self,
        prediction: Distribution,
        coverage: float,
        many: int,
        few: int,
        networks: Sequence[Distribution] = (),
        groups: Rows | None = None,
    ) -> dict[str, Any]:
        """Return the columns of a table of calibrated predictions. (N,) each"""
        lower, upper = self.interval(prediction, coverage, networks, groups)
        scaled = prediction.base if isinstance(prediction, Tilted) else prediction
        raw = scaled if self.scaling is None else self.scaling.inverse.apply(scaled)
        aleatoric, epistemic = split_variance(prediction, raw)
        numbers = {
            "prediction": prediction.point,
            "std": standard_deviation(prediction),
            "lower": lower,
            "upper": upper,
            "aleatoric_std": aleatoric.sqrt(),
            "epistemic_std": epistemic.sqrt(),
        }
        region = self.bins.regions(many, few)[self.bins.index(prediction.point).numpy()]
        return {**{name: value.numpy() for name, value in numbers.items()}, "region": region}

    def scores(
        self,
        prediction: Distribution,
        y: Floats,
        coverage: float,
        many: int,
        few: int,
        networks: Sequence[Distribution] = (),
        groups: Rows | None = None,
    ) -> pd.DataFrame:
        """Return a table of errors, coverage and width, over all labels and by region. y: (N,)

        The coverage and width of `constant_interval` stand beside them.
        """
        table = by_region(prediction, y, self.bins, ("mae", "rmse", "gm", "nll", "ause"), many=many, few=few)
        lower, upper = (end.numpy() for end in self.interval(prediction, coverage, networks, groups))
        intervals = intervals_by_region(
            lower, upper, y, self.bins, coverage, many=many, few=few, training=self.known_labels
        )
        return table.join(
            intervals[["coverage", "width", "constant_coverage", "constant_width"]]
        ).reset_index()


class Predicted(NamedTuple):
    """Calibrated predictions of one target, with intervals at any coverage."""

    distribution: Distribution  # (N,)
    calibrator: Calibrator
    networks: tuple[Distribution, ...] = ()
    """Calibrated predictions of each network, if there are several. (N,) each"""
    groups: Rows | None = None
    """Codes in the column that intervals go by, if there is one. (N,)"""

    def interval(self, coverage: float) -> tuple[Tensor, Tensor]:
        """Return lower and upper ends. (N,) each"""
        return self.calibrator.interval(self.distribution, coverage, self.networks, self.groups)

    def quantile(self, level: float) -> Tensor:
        """Return a quantile, moved to a possible label. (N,)"""
        return self.calibrator.quantile(self.distribution, level)

    def columns(self, coverage: float, many: int, few: int) -> dict[str, Any]:
        """Return the columns of a table of predictions. (N,) each"""
        return self.calibrator.columns(self.distribution, coverage, many, few, self.networks, self.groups)

    def scores(self, y: Floats, coverage: float, many: int, few: int) -> pd.DataFrame:
        """Return a table of errors, coverage and width by region. y: (N,)"""
        return self.calibrator.scores(self.distribution, y, coverage, many, few, self.networks, self.groups)


def fit_calibrator(
    raw: Distribution,
    y: Floats,
    bins: LabelBins,
    select: Rows,
    confirm: Rows,
    *,
    base: Floats | None = None,
    calibrate: bool | Literal["balanced"] = True,
    conformal: ConformalMode | None = "region",
    emphasis: float | Literal["auto"] = 0.0,
    bounds: Bounds | None = None,
    many: int = 100,
    few: int = 20,
    held_out: bool = True,
    votes: bool = False,
    column: ColumnGroups | None = None,
    column_codes: Rows | None = None,
) -> Calibrator:
    """Fit the scaling and the emphasis on the rows `select`, then intervals on the rows `confirm`.

    `select` may be the rows that early stopping used. `confirm` must be rows that nothing else used,
    or the intervals lose their guarantee. ``calibrate="balanced"`` gives every label bin the same weight in
    the scaling. `base` has the base's prediction of each row, for `choose_emphasis`. `bounds` are those
    of the label. ``held_out=False`` says that the rows were trained on, so that no coverage can be kept.
    ``votes=True`` says that each row was predicted by one of several networks. Intervals go by the groups
    of a `column`, if it is given, with the `column_codes` of the rows. y, base, column_codes: (N,)
    """
    scaling = None
    if calibrate:
        weights = balanced_weights(y[select], bins) if calibrate == "balanced" else None
        scaling = fit_scaling(raw[select], y[select], weights=weights)
    density = LabelDensity.from_bins(bins)
    scaled = Calibrator(bins, scaling, None).calibrated(raw)
    if emphasis == "auto":
        held_base = None if base is None else base[select]
        chosen = choose_emphasis(scaled[select], y[select], density, held_base, bounds)
    else:
        chosen = float(emphasis)
    tilt = tilt_to_rare(density, chosen)
    intervals = None
    if conformal is not None:
        intervals = fit_conformal(
            Calibrator(bins, None, None, tilt=tilt, bounds=bounds).possible(scaled)[confirm],
            y[confirm],
            bins,
            mode=conformal,
            weights="rare",
            many=many,
            few=few,
            held_out=held_out,
            votes=votes,
            column=column,
            column_codes=None if column_codes is None else column_codes[confirm],
        )
    kept = confirm if len(confirm) <= MAX_HELD else _sample(confirm)
    held = HeldOut(
        scaled[kept].map(lambda p: p.detach().clone()),
        y[kept],
        None if column_codes is None else column_codes[kept],
    )
    used = None if tilt.is_identity else tilt
    return Calibrator(bins, scaling, intervals, density, chosen, used, held, bounds)


def _sample(rows: Rows) -> Rows:
    return np.sort(np.random.default_rng(0).choice(rows, MAX_HELD, replace=False))


def choose_emphasis(
    prediction: Distribution,
    y: Floats,
    density: LabelDensity,
    base: Floats | None = None,
    bounds: Bounds | None = None,
) -> float:
    """Return the emphasis to use: as much for rare labels as common ones can afford (VIR:dial).

    Among 0, 0.05, ..., 1 it is the one with the smallest mean absolute error for the 15% of the labels
    that are rarest in training, whose error over all rows is at most 1% above that of the base (of
    emphasis 0 if there is no base) or of a constant, whichever is smaller. If there is none, or with fewer
    than 50 rows, it is 0.
    prediction, y, base: (n,)
    """
    if len(y) < MIN_EMPHASIS_ROWS:
        return 0.0
    if len(y) > MAX_HELD:
        rows = _sample(np.arange(len(y)))
        prediction, y, base = prediction[rows], y[rows], None if base is None else base[rows]
    rare = rarest(y, density)
    within = prediction if bounds is None else bounds.apply(prediction)
    errors = [np.abs(tilt_to_rare(density, t).apply(within).point.numpy() - y) for t in EMPHASES]
    plain = errors[0] if base is None else np.abs(base - y)
    allowed = ALLOWANCE * float(min(plain.mean(), np.abs(np.median(y) - y).mean()))
    able = [k for k, error in enumerate(errors) if error.mean() <= allowed]
    return EMPHASES[min(able, key=lambda k: errors[k][rare].mean())] if able else 0.0
