"""Calibrated predictions of one target: scaling, label prior, bounds and intervals."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tailwise.calibration.interval_scores import ColumnGroups, constant_interval, intervals_by_region
from tailwise.calibration.intervals import ConformalIntervals, Intervals, OwnIntervals, counted, effective
from tailwise.calibration.scaling import (
    Scaling,
    VarianceScaling,
    balanced_weights,
    fit_scaling,
    split_variance,
    standard_deviation,
)
from tailwise.distributions.members import Distribution
from tailwise.distributions.tilt import Tilt
from tailwise.distributions.transform import AnyTransform, Identity, Transform
from tailwise.distributions.truncation import Bounds
from tailwise.labels.bins import LabelBins
from tailwise.labels.prior import LabelDensity, change_of_prior, rarest
from tailwise.labels.prior import emphasis as tilt_to_rare
from tailwise.labels.support import LabelSupport
from tailwise.metrics.regions import by_region
from tailwise.metrics.scores import winkler
from tailwise.options import Count

if TYPE_CHECKING:
    import pandas as pd

Floats = NDArray[np.float64]
Rows = NDArray[np.int64]

EMPHASES = tuple(k / 20 for k in range(21))
ALLOWANCE = 1.01
"""How much larger the error over all rows may get for the sake of rare labels."""
BEYOND_CHANCE = 2.0
"""Standard errors by which rare labels must gain."""
PRICE_CHANCE = 2.5
"""Standard errors by which the error of all rows must keep its limit (research/results/transform.md)."""
MIN_EMPHASIS_ROWS = 50
TINY = 1e-300
SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)
COVERAGE = 0.9
"""Of the intervals by whose score the share is chosen."""
MAX_HELD = 4000
"""Held-out rows that are kept to fit intervals under any label prior."""


class Raw(NamedTuple):
    """What networks predict for one target, before calibration."""

    pooled: Distribution  # (N,)
    means: Tensor
    """What each network expects. (K, N)"""
    groups: Rows
    """Codes in the column that intervals go by. (N,)"""
    base_variance: Callable[[], Floats | float] = float
    """Returns the variance between the models of the base, 0 without one; few callers want it. (N,)"""

    @classmethod
    def of(cls, each: Distribution, groups: Rows, base_variance: Callable[[], Floats | float] = float) -> Raw:
        """Pool the predictions of one or more networks. (K, N)"""
        return cls(each[0] if each.shape[0] == 1 else each.pooled(), each.mean, groups, base_variance)


@dataclass(frozen=True, eq=False)
class HeldOut:
    """Scaled predictions of held-out rows at emphasis 0, and their labels."""

    prediction: Distribution  # (n,)
    labels: Floats  # (n,)
    groups: Rows  # (n,) codes in the column that intervals go by

    def rows(self, rows: Rows) -> HeldOut:
        """Return some of the rows. rows: (m,)"""
        return HeldOut(self.prediction[rows], self.labels[rows], self.groups[rows])


@dataclass(frozen=True, eq=False)
class Prior:
    """The label prior in use, as a change of the one in training (VIR:dial)."""

    tilt: Tilt
    emphasis: float
    """Emphasis on rare labels; NaN under a label prior of the user's own."""

    @classmethod
    def emphasized(cls, density: LabelDensity, emphasis: float) -> Prior:
        """Return the prior of an emphasis on rare labels; 0 changes nothing."""
        if not 0 <= emphasis <= 1:
            raise ValueError(f"emphasis must lie between 0 and 1, got {emphasis!r}")
        return cls(tilt_to_rare(density, emphasis), float(emphasis))

    @classmethod
    def expected(cls, density: LabelDensity, label_prior: Any) -> Prior:
        """Return the prior of labels that a user expects; see `LabelDensity.from_prior`."""
        return cls(change_of_prior(density, LabelDensity.from_prior(label_prior, density)), math.nan)

    def interval_weights(self, labels: Floats) -> Floats | None:
        """Return how often held-out labels are expected in use; None for as often as in training."""
        return self.tilt.weights(labels) if math.isnan(self.emphasis) else None


class DialEffect(NamedTuple):
    """What an emphasis costs and gains on held-out rows, as shares of the errors at emphasis 0."""

    rows: int
    price: float
    """By how much the mean absolute error over all rows rises."""
    gain: float
    """By how much that of the rarest 15% of the labels falls."""


@dataclass(frozen=True)
class CalibrationRecipe:
    """How a calibration is fitted."""

    scaling: bool | Literal["balanced"] = True
    """Whether to scale the spread; ``"balanced"`` gives every label bin the same weight in that."""
    conformal: bool = True
    """Whether intervals are conformal; otherwise they are the distribution's own."""
    emphasis: float | Literal["auto"] = 0.0
    held_out: bool = True
    """Whether the rows were held out; on rows that were trained on, no coverage can be kept."""
    column: ColumnGroups = ColumnGroups()
    """Groups of rows with intervals of their own."""


@dataclass(frozen=True, eq=False)
class Labels:
    """What is known of a target's labels."""

    bins: LabelBins
    bounds: Bounds = Bounds()
    """Smallest and largest possible label."""
    support: LabelSupport = LabelSupport()
    """Values that labels can have."""
    many: Count = 100
    """A bin with more training labels is many-shot."""
    few: Count = 20
    """A bin with fewer training labels is few-shot."""
    transform: AnyTransform = Identity()
    """From labels to those that bins of networks, the base and predictions before the last step have."""
    quantiles: Floats = field(kw_only=True)
    """Quantiles of the training labels, in equal steps from the smallest to the largest. (Q,)"""

    @cached_property
    def latent_bins(self) -> LabelBins:
        """The bins of latent labels, which networks see."""
        return latent_bins(self.bins, self.transform)

    @cached_property
    def limits(self) -> Bounds:
        """The bounds of intervals: those of labels, and what the transform takes."""
        return replace(self.bounds, low=max(self.bounds.low, self.transform.least))

    @cached_property
    def density(self) -> LabelDensity:
        """Density of the training labels."""
        return LabelDensity.from_bins(self.bins)

    @property
    def shots(self) -> dict[str, int]:
        """The limits of regions, as keyword arguments."""
        return {"many": self.many, "few": self.few}

    @cached_property
    def regions(self) -> NDArray[np.str_]:
        """The region of each bin. (B,)"""
        return self.bins.regions(self.many, self.few)

    def region(self, y: Floats | Tensor) -> NDArray[np.str_]:
        """Return the region of each label. (N,)"""
        return np.asarray(self.regions[np.asarray(self.bins.index(y))])


def latent_bins(bins: LabelBins, transform: Transform) -> LabelBins:
    """Return bins of labels as bins of latent labels."""
    return bins if transform.is_identity else LabelBins(transform.limited(bins.edges), bins.counts, bins.rule)


@dataclass(frozen=True, eq=False)
class Calibration:
    """What turns the networks' predictions of one target into those that users get.

    A prediction passes four steps: `scaling` corrects its spread, `prior` changes the label prior
    (VIR:dial), `labels.bounds` cut it off, and `labels.transform` returns it in label units. Each step does
    nothing where nothing was asked for.
    """

    labels: Labels
    scaling: Scaling
    prior: Prior
    intervals: Intervals
    held: HeldOut

    @property
    def bins(self) -> LabelBins:
        """Bins of the training labels."""
        return self.labels.bins

    @property
    def emphasis(self) -> float:
        """Emphasis on rare labels in use; NaN under a label prior of the user's own."""
        return self.prior.emphasis

    @cached_property
    def dial_effect(self) -> DialEffect:
        """What the emphasis in use costs and gains on the held-out rows."""
        held, density = self.held, self.labels.density
        both = replace(self, prior=Prior.emphasized(density, 0.0)), self
        errors = [np.abs(c.possible(held.prediction).point.numpy() - held.labels) for c in both]
        changes = []
        for rows in (slice(None), rarest(held.labels, density)):
            before, after = (part[rows].mean() for part in errors)
            changes.append(float((after - before) / (before or 1.0)))
        return DialEffect(len(held.labels), changes[0], 0.0 - changes[1])

    def at(self, emphasis: float | None = None, label_prior: Any = None) -> Calibration:
        """Return the calibration for another emphasis or label prior (VIR:dial), with intervals that fit it.

        The intervals are fitted anew to the stored predictions of held-out rows. Without arguments it is
        this one.
        """
        if emphasis is not None and label_prior is not None:
            raise ValueError("give emphasis or label_prior, not both")
        if label_prior is not None:
            return self.under(Prior.expected(self.labels.density, label_prior))
        if emphasis is None or emphasis == self.emphasis:
            return self
        return self.under(Prior.emphasized(self.labels.density, emphasis))

    def under(self, prior: Prior) -> Calibration:
        """Return the calibration under a label prior, with intervals that fit it."""
        moved = replace(self, prior=prior)
        labels = self.held.labels
        intervals = self.intervals.fit(
            moved.possible(self.held.prediction), labels, prior.interval_weights(labels), self.held.groups
        )
        return replace(moved, intervals=intervals)

    def ends(
        self, prediction: Distribution, coverage: float, groups: Rows, *, rare: float | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return the ends of intervals for calibrated predictions; they are possible labels."""
        lower, upper = self.intervals.ends(prediction, coverage, groups, rare=rare)
        limits = self.labels.limits
        return self.labels.support.between(limits.clip(lower), limits.clip(upper))

    def explain(self, coverage: float, rare: float) -> str:
        """Return a text: what intervals promise with and without `rare`, and what that costs."""
        intervals, held = self.intervals, self.held
        if not isinstance(intervals, ConformalIntervals):
            return "Intervals of the predicted distribution itself, which promise nothing."
        if missing := intervals.too_few(coverage):
            return (
                f"No promise: {missing} The ends are the smallest and the largest training label, or the "
                "largest error seen if it is more."
            )
        possible = self.possible(held.prediction)
        lower, upper, lower_rare, upper_rare = (
            end.numpy()
            for asked in (None, rare)
            for end in self.ends(possible, coverage, held.groups, rare=asked)
        )
        width = float(np.average(upper - lower, weights=intervals.weights))
        rare_width = float(np.average(upper_rare - lower_rare, weights=intervals.weights))
        inside = (held.labels >= lower) & (held.labels <= upper)
        rarely = intervals.rare @ inside / max(intervals.rare.sum(), TINY)
        wider = f"{rare_width / width if width else 1.0:.3g}"
        price = (
            f"With rare={rare:.4g}, at least {rare:.4g} of new rows with such labels are inside too, and "
            + (
                "intervals are no wider."
                if wider == "1"
                else f"intervals are {wider} times as wide on average ({rare_width:.4g}, not {width:.4g})."
            )
        )
        if few := intervals.too_few(coverage, rare):
            price = f"No promise for rare labels: {few}"
        text = (
            f"At least {coverage:.4g} of new rows have their label inside, on average, if they are drawn "
            f"like the {counted(effective(intervals.weights))} behind these intervals.\n"
            f"Of {counted(effective(intervals.rare))} with the rarest labels, {rarely:.1%} are inside.\n"
            f"{price}\n"
            "No method can promise coverage for a single row, or for rows of another distribution."
        )
        if intervals.column.names:
            ratios = [f"{name} {ratio:.3g}" for name, ratio in intervals.by_column(coverage).items()]
            text += f"\nBy the column {intervals.column.column}, widths are multiplied: {', '.join(ratios)}."
        return text

    def __call__(self, raw: Raw) -> Predicted:
        """Return calibrated predictions with their intervals at any coverage."""
        return Predicted(self.calibrated(raw.pooled), self, raw)

    def calibrated(self, raw: Distribution) -> Distribution:
        """Return a prediction after all steps. (N,) -> (N,)"""
        return self.possible(self.scaling.apply(raw))

    def possible(self, scaled: Distribution) -> Distribution:
        """Return a scaled prediction under the label prior in use and within the bounds. (N,) -> (N,)"""
        tilt, bounds = self.latent_steps
        return self.labels.transform.apply(bounds.apply(tilt.apply(scaled)))

    @cached_property
    def latent_steps(self) -> tuple[Tilt, Bounds]:
        """The label prior and the bounds, for latent labels."""
        transform = self.labels.transform
        return transform.tilt(self.prior.tilt), transform.bounds(self.labels.bounds)


class Predicted(NamedTuple):
    """Calibrated predictions of one target, with intervals at any coverage."""

    distribution: Distribution  # (N,)
    calibration: Calibration
    raw: Raw
    """What the networks predicted."""

    def interval(self, coverage: float, rare: float | None = None) -> tuple[Tensor, Tensor]:
        """Return lower and upper ends. (N,) each

        With `rare` they cover this share of the rarest labels too. If there are too few held-out rows for a
        coverage, a warning says so and the ends are those of the observed labels. No interval leaves the
        bounds. Its ends are possible labels, and no possible label is lost by that.
        """
        if missing := self.calibration.intervals.too_few(coverage, rare):
            warnings.warn(
                f"{missing} The intervals span all training labels instead: fit with more rows, or ask for a "
                "lower coverage.",
                stacklevel=2,
            )
        return self.calibration.ends(self.distribution, coverage, self.raw.groups, rare=rare)

    def quantiles(self, levels: Sequence[float] | Floats) -> Tensor:
        """Return quantiles, moved to possible labels. (Q,) -> (Q, N)"""
        at = torch.as_tensor(levels, dtype=torch.float64).unsqueeze(1)
        return self.calibration.labels.support.nearest(self.distribution.quantile(at))

    def variances(self) -> tuple[Tensor, Tensor]:
        """Return aleatoric and epistemic variance, which add up to the square of the standard deviation. (N,)

        The epistemic part is the variance between the networks and between the models of the base: it is
        large where training rows are missing. What the networks' heads say is left out: it is a nearly
        constant share of the aleatoric part (research/results/intervals.md). With one network there is
        nothing else.
        """
        each = self.raw.means
        if len(each) == 1:
            return split_variance(self.distribution, self.raw.pooled)
        variance, label = standard_deviation(self.distribution) ** 2, self.calibration.labels.transform.label
        variances = each.var(0, unbiased=False) + torch.as_tensor(self.raw.base_variance())
        middle, spread = each.mean(0), variances.sqrt()
        between = ((label(middle + spread) - label(middle - spread)) / 2) ** 2
        epistemic = torch.minimum(between, variance)
        return variance - epistemic, epistemic

    def columns(self, coverage: float, rare: float | None = None) -> dict[str, Any]:
        """Return the columns of a table of predictions. (N,) each"""
        lower, upper = self.interval(coverage, rare)
        own = self.distribution
        aleatoric, epistemic = self.variances()
        numbers = {
            "prediction": own.point,
            "std": standard_deviation(own),
            "lower": lower,
            "upper": upper,
            "aleatoric_std": aleatoric.sqrt(),
            "epistemic_std": epistemic.sqrt(),
        }
        region = self.calibration.labels.region(own.point)
        return {**{name: value.numpy() for name, value in numbers.items()}, "region": region}

    def scores(self, y: Floats, coverage: float) -> pd.DataFrame:
        """Return a table of errors, and of coverage, width and score of intervals, by region. y: (N,)

        The same figures of `constant_interval` stand beside those of intervals.
        """
        labels, errors = self.calibration.labels, ("mae", "rmse", "gm", "nll", "crps", "ause")
        table = by_region(self.distribution, y, labels.bins, errors, **labels.shots)
        lower, upper = (end.numpy() for end in self.interval(coverage))
        intervals = intervals_by_region(
            lower, upper, y, labels.bins, coverage, training=labels.quantiles, **labels.shots
        )
        return table.join(intervals.drop(columns=["n", "coverage_low", "coverage_high"])).reset_index()


def calibrate(
    raw: Distribution,
    y: Floats,
    groups: Rows,
    labels: Labels,
    recipe: CalibrationRecipe,
    select: Rows,
    confirm: Rows,
    base: Floats | None = None,
) -> Calibration:
    """Fit the scaling and the emphasis on the rows `select`, then intervals on the rows `confirm`.

    `select` may be the rows that early stopping used. `confirm` must be rows that nothing else used, or the
    intervals lose their guarantee. `base` has the base's prediction of each row, for `choose_emphasis`.
    raw, y, groups, base: (n,)
    """
    bins = labels.bins
    scaling: Scaling = VarianceScaling()
    if recipe.scaling:
        weights = balanced_weights(y[select], bins) if recipe.scaling == "balanced" else None
        scaling = fit_scaling(raw[select], labels.transform.limited(y[select]), weights=weights)
    held = HeldOut(scaling.apply(raw), y, groups)
    chosen = recipe.emphasis
    if chosen == "auto":
        picked = held.rows(select)
        chosen = choose_emphasis(
            picked.prediction,
            picked.labels,
            labels.density,
            None if base is None else base[select],
            labels.bounds,
            labels.transform,
        )
    kept = held.rows(_at_most(confirm))
    kept = replace(kept, prediction=kept.prediction.map(lambda p: p.detach().clone()))
    fitted = Calibration(labels, scaling, Prior.emphasized(labels.density, chosen), OwnIntervals(), kept)
    if not recipe.conformal:
        return fitted
    constant = constant_interval(labels.quantiles)
    intervals = ConformalIntervals(bins, recipe.held_out, recipe.column, constant=constant)
    share = choose_share(fitted, intervals, held.rows(_at_most(select)))
    return replace(fitted, intervals=replace(intervals, share=share)).under(fitted.prior)


def choose_share(fitted: Calibration, intervals: ConformalIntervals, held: HeldOut) -> float:
    """Return the share of the constant quantiles in intervals with the smallest interval score.

    Where no predicted distribution fits the labels, such as zeros and amounts, its quantiles can be far off;
    those of all labels are not (research/results/intervals.md).
    """
    possible, labels = fitted.possible(held.prediction), torch.from_numpy(held.labels)

    def score(share: float) -> float:
        candidate = replace(intervals, share=share).fit(possible, held.labels, None, held.groups)
        ends = replace(fitted, intervals=candidate).ends(possible, COVERAGE, held.groups)
        return float(winkler(*ends, labels, COVERAGE).mean())

    enough = not intervals.fit(possible, held.labels, None, held.groups).too_few(COVERAGE)
    return min(SHARES, key=score) if enough else 0.0


def _at_most(rows: Rows) -> Rows:
    """Return some of the rows if they are more than `MAX_HELD`."""
    if len(rows) <= MAX_HELD:
        return rows
    return np.sort(np.random.default_rng(0).choice(rows, MAX_HELD, replace=False))


def choose_emphasis(
    prediction: Distribution,
    y: Floats,
    density: LabelDensity,
    base: Floats | None = None,
    bounds: Bounds = Bounds(),
    transform: Transform = Identity(),
) -> float:
    """Return the emphasis to use: as much for rare labels as common ones can afford (VIR:dial).

    It is one of 0, 0.05, ..., 1, as `best_setting` says, and 0 with fewer than 50 rows. Rare are the 15% of
    the labels that are rarest in training. prediction, y, base: (n,)
    """
    if len(y) < MIN_EMPHASIS_ROWS:
        return 0.0
    rows = _at_most(np.arange(len(y)))
    prediction, y, base = prediction[rows], y[rows], None if base is None else base[rows]
    rare = rarest(y, density)
    inside = transform.bounds(bounds).apply(prediction)
    tilts = [transform.tilt(tilt_to_rare(density, t)) for t in EMPHASES]
    errors = [np.abs(transform.apply(tilt.apply(inside)).point.numpy() - y) for tilt in tilts]
    others = [np.abs(y - other).mean() for other in (np.median(y), base) if other is not None]
    return EMPHASES[best_setting(np.stack(errors), rare, others)]


def best_setting(errors: Floats, rare: NDArray[np.bool_], others: Sequence[float]) -> int:
    """Return which of several settings serves rare rows best without a price that matters to all.

    Setting 0 is none. The mean error over all rows, plus 2.5 standard errors of its difference from that of
    setting 0, may be at most 1% above the smallest of setting 0 and `others`: new rows must keep the limit
    too. Settings beyond the first that costs more are left out. The best of those that are left has the
    smallest mean error of rare rows. Chosen is the first one that is worse than the best by at most one
    standard error of the difference, so that rounding cannot move the choice far. It is 0 unless rare rows
    gain more than two standard errors. errors: (settings, n), rare: (n,)
    """
    means = errors.mean(1)
    chance = PRICE_CHANCE * (errors - errors[0]).std(1) / math.sqrt(errors.shape[1])
    able = int(np.logical_and.accumulate(means + chance <= ALLOWANCE * min([means[0], *others])).sum())
    rarely = errors[:able, rare]
    if not rarely.size:
        return 0
    best = rarely[rarely.mean(1).argmin()]
    chosen = next(k for k, each in enumerate(rarely) if not _gains(each, best, 1.0))
    return chosen if _gains(rarely[0], rarely[chosen], BEYOND_CHANCE) else 0


def _gains(before: Floats, after: Floats, standard_errors: float) -> bool:
    """Whether the mean error of the same rows falls by more than chance allows. (n,) each"""
    gain = before - after
    return bool(gain.mean() > standard_errors * gain.std(ddof=1) / math.sqrt(gain.size))
