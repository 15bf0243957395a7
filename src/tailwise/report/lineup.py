"""A model beside its baselines on the same test rows, and what differs between them by more than chance.

Two figures differ only if the 99% interval of their paired difference excludes zero: a page compares several
baselines in three regions by three measures, and at 95% one of them would often differ by chance. Intervals
are compared by Winkler's interval score, which judges width and coverage together.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from tailwise.calibration.interval_scores import constant_interval
from tailwise.distributions.members import Normal
from tailwise.distributions.transform import Log
from tailwise.labels.bins import checked_labels
from tailwise.labels.kernels import label_weights
from tailwise.model.base import AUTO, CrossFit, CrossFitted, deal_folds, resolve_bases
from tailwise.model.settings import candidates
from tailwise.model.split import deal_group_folds, group_codes
from tailwise.report.scores import Floats, Scores, Seen
from tailwise.tables.inputs import take_rows
from tailwise.tables.rows import merge_equal_rows

if TYPE_CHECKING:
    from tailwise.estimator import TailRegressor

OTHER, BOOSTER, CONSTANT = "baseline", "base", "constant"
"""Baselines of a model, as JSON names them, in the order in which they are shown: a second model, boosted
trees alone, and the median of the training labels with an interval of their quantiles."""
MIN_BOOSTED_ROWS = 10
"""With fewer rows no trees are fitted: their folds would have one row each."""
_TITLES = {"CatBoostRegressor": "CatBoost"} | dict.fromkeys(
    ("LGBMRegressor", "HistGradientBoostingRegressor", "BoostedTrees"), "boosted trees"
)


@dataclass(frozen=True, eq=False)
class Lineup:
    """A model and its baselines on the same test rows; regions go by the training labels of the model."""

    ours: Scores
    baselines: Mapping[str, Scores] = field(default_factory=dict)

    @property
    def booster(self) -> Scores | None:
        """Boosted trees, if there are any."""
        return self.baselines.get(BOOSTER)

    @property
    def constant(self) -> Scores | None:
        """The constant prediction with a constant interval, if there is one."""
        return self.baselines.get(CONSTANT)

    @property
    def rivals(self) -> list[Scores]:
        """The baselines that learn from the inputs."""
        return [scores for name, scores in self.baselines.items() if name != CONSTANT]

    @property
    def all(self) -> list[Scores]:
        """The model and every baseline."""
        return [self.ours, *self.baselines.values()]


def line_up(
    model: TailRegressor,
    rows: Seen,
    y: Any,
    coverage: float = 0.9,
    *,
    target: int = 0,
    other: Scores | None = None,
    **settings: Any,
) -> Lineup:
    """Score a model and its baselines on rows that none of them has seen.

    Baselines are those that the model holds, so every command that measures it weighs the same ones, and
    `other`, a second model on the same rows. `settings` are further ones of `Seen.scores`.
    """
    ours, fitted = rows.scores(y, coverage, target, **settings), model.model_
    trees = fitted.rivals or fitted.base.targets
    scored = {
        OTHER: None if other is None else like(ours, other),
        BOOSTER: score_trees(ours, trees[target]) if trees else None,
        CONSTANT: score_constant(ours, fitted.targets[target].labels.quantiles),
    }
    return Lineup(ours, {name: scores for name, scores in scored.items() if scores is not None})


def like(first: Scores, other: Scores) -> Scores:
    """Return the scores of a second model, with regions by the training labels of the first."""
    return replace(other, bins=first.bins, many=first.many, few=first.few)


# -- baselines ---------------------------------------------------------------------------------------


def fit_rival(
    model: TailRegressor,
    inputs: Any,
    labels: ArrayLike,
    weights: ArrayLike | None = None,
    groups: ArrayLike | None = None,
    *,
    weighted: bool = False,
) -> CrossFitted | None:
    """Cross-fit the model's kind of base on its training rows, CatBoost if it has none, to compare with.

    The trees learn the label or, if labels are skewed and never negative, its logarithm, whichever has the
    smaller out-of-fold CRPS; they are the model's base if it learned the same. With `weighted` they learn the
    label, and each row is weighted by its rarity (SQINV). None with too few rows, if no column varies, or
    for inputs that are no table.
    """
    if not model.model_.inputs.is_table:
        return None
    y = checked_labels(labels)
    rows, weight = merge_equal_rows(inputs, y, weights)
    y, matrix = y[rows], model.model_.encode(take_rows(inputs, rows)).matrix
    if len(rows) < MIN_BOOSTED_ROWS or ((matrix == matrix[0]) | np.isnan(matrix)).all():
        return None
    seed = model.random_state if isinstance(model.random_state, int) else 0
    fold = deal_folds(y, seed)
    if groups is not None:
        fold = deal_group_folds(y, group_codes(groups, np.size(groups))[rows], seed)
    make, *_ = resolve_bases(AUTO if model.base is None else model.base, max(len(rows), 10**6))
    if weighted:
        bins = model.model_.bins[0]
        weight = weight * label_weights(bins)[bins.index(y)]
        return CrossFit(make, matrix, y, weight, fold, seed).whole()[0]
    base, transforms = model.model_.base.targets, candidates("auto", y)
    if base and (len(transforms) == 1 or model.target_transform == "auto"):
        return base[0]
    folds = range(fold.max() + 1)
    fits = [CrossFit(make, matrix, y, weight, fold, seed, transform) for transform in transforms]
    best = min(fits, key=lambda fit: fit.fit(folds).crps)
    return base[0] if base and base[0].transform == best.transform else best.whole()[0]


def score_trees(ours: Scores, trees: CrossFitted, *, weighted: bool = False) -> Scores:
    """Return what trees predict of the same rows, with the intervals of CV+ within the bounds of labels."""
    assert ours.encoded is not None and ours.calibration is not None
    labels = ours.calibration.labels
    title = f"{'weighted ' * weighted}{base_title(trees.models[0])}"
    title += " of the logarithm" * isinstance(trees.transform, Log)
    matrix, ends = ours.encoded.matrix, {}
    for level, both in zip(ours.covered, trees.intervals(matrix, [*ours.covered]), strict=True):
        possible = labels.support.between(*(labels.limits.clip(torch.from_numpy(end)) for end in both))
        ends[level] = possible[0].numpy(), possible[1].numpy()
    return _baseline(ours, title, trees.predict(matrix), trees.spread**2, ends)


def base_title(model: Any) -> str:
    """Return what a fitted base is called, the same before and after it was in a file."""
    if hasattr(model, "coefficients"):  # from a file
        return "linear model"
    last = getattr(model, "steps", [("", model)])[-1][1]
    return _TITLES.get(name := type(last).__name__, "linear model" if hasattr(last, "coef_") else name)


def score_constant(ours: Scores, labels: Floats) -> Scores:
    """Return the median of the training labels as the prediction of every row, with their quantiles."""
    rows, ends = np.ones(ours.y.size), {}
    for level in ours.covered:
        low, high = constant_interval(labels, level)
        ends[level] = low * rows, high * rows
    middle = np.quantile(labels, 0.5, method="inverted_cdf")
    return _baseline(ours, "constant", middle * rows, max(float(labels.var()), 1e-12), ends)


def _baseline(
    ours: Scores, title: str, mean: Floats, variance: float, ends: Mapping[float, tuple[Floats, Floats]]
) -> Scores:
    """Return the scores of a baseline on the same rows."""
    lower, upper = ends[ours.coverage]
    return replace(
        ours,
        title=title,
        distribution=Normal(torch.from_numpy(mean), variance),
        lower=lower,
        upper=upper,
        covered={level: (ours.y >= low) & (ours.y <= high) for level, (low, high) in ends.items()},
        calibration=None,
        raw=None,
    )


# -- differences -------------------------------------------------------------------------------------

CONFIDENCE = 0.99
"""Of the interval of a difference between two models; the difference is clear if zero lies outside."""
CLOSE = 0.05
"""Two models are close where the interval of their difference allows no more than this share."""
TINY = 1e-300

Outcome = Literal["better", "worse", "mixed", "undecided"]


@dataclass(frozen=True)
class Difference:
    """Losses of two models on the same rows; `half` is the half-width of the difference's interval."""

    ours: float
    theirs: float
    half: float
    n: int

    @property
    def value(self) -> float:
        """Ours minus theirs."""
        return self.ours - self.theirs

    @property
    def outcome(self) -> Outcome:
        """Better or worse if our loss is lower or higher by more than the error of the difference."""
        if self.n > 1 and abs(self.value) > self.half:
            return "better" if self.value < 0 else "worse"
        return "undecided"

    @property
    def bound(self) -> float:
        """The largest difference that its interval contains, as a share of their loss."""
        return (abs(self.value) + self.half) / self.theirs if self.theirs > 0 else math.inf


def mean_difference(ours: Floats, theirs: Floats, confidence: float = CONFIDENCE) -> Difference:
    """Compare the mean losses of two models row by row, with Student's t interval. (n,) each"""
    means = (float(ours.mean()), float(theirs.mean())) if ours.size else (math.nan, math.nan)
    return _difference(*means, ours - theirs, confidence)


def rmse_difference(ours: Floats, theirs: Floats, confidence: float = CONFIDENCE) -> Difference:
    """Compare the root mean square errors of two models row by row. Absolute errors: (n,) each

    The interval is the one that a paired bootstrap over the rows tends to, without its random numbers: each
    row adds ``e**2 / (2 RMSE)`` to the root of the mean.
    """
    roots = [math.sqrt((error**2).mean()) if error.size else math.nan for error in (ours, theirs)]
    parts = [e**2 / (2 * max(root, TINY)) for e, root in zip((ours, theirs), roots, strict=True)]
    return _difference(roots[0], roots[1], parts[0] - parts[1], confidence)


def _difference(ours: float, theirs: float, rows: Floats, confidence: float) -> Difference:
    """Return a difference whose error is that of the mean over rows. (n,)"""
    n, half = rows.size, math.inf if rows.size else math.nan
    if n > 1:
        half = float(stats.t.ppf((1 + confidence) / 2, n - 1) * stats.sem(rows))
    return Difference(ours, theirs, half, n)


@dataclass(frozen=True)
class Contrast:
    """Mean absolute error, root mean square error and interval score of two models in one region."""

    region: str
    mae: Difference
    rmse: Difference
    intervals: Difference

    @property
    def outcome(self) -> Outcome:
        """Better if one error is clearly lower and the other not higher at all; worse likewise.

        Mixed if a clear difference of one measure meets a difference of the other in the other direction.
        """
        pair = (self.mae, self.rmse)
        if any(d.outcome == "better" for d in pair):
            return "better" if all(d.value <= 0 for d in pair) else "mixed"
        if any(d.outcome == "worse" for d in pair):
            return "worse" if all(d.value >= 0 for d in pair) else "mixed"
        return "undecided"

    @property
    def bound(self) -> float:
        """The largest difference that the intervals of both measures allow, as a share."""
        return max(self.mae.bound, self.rmse.bound)


def contrast(ours: Scores, theirs: Scores, region: str, rows: NDArray[np.bool_] | None = None) -> Contrast:
    """Compare two models on the test rows of a region, or on those given. (N,)"""
    rows = ours.mask(region) if rows is None else rows
    errors = ours.error[rows], theirs.error[rows]
    intervals = mean_difference(ours.interval_score[rows], theirs.interval_score[rows])
    return Contrast(region, mean_difference(*errors), rmse_difference(*errors), intervals)


@dataclass(frozen=True)
class Standing:
    """How a model compares with one baseline, over the regions with enough test rows."""

    rival: str
    contrasts: tuple[Contrast, ...]
    overall: Contrast
    """Over all rows."""

    @property
    def parts(self) -> tuple[Contrast, ...]:
        """All rows and, where there are several with enough test rows, the regions."""
        return (self.overall, *self.contrasts) if len(self.contrasts) > 1 else (self.overall,)

    def intervals(self, outcome: Outcome) -> list[str]:
        """Return where the interval scores have an outcome: all, or regions."""
        return [part.region for part in self.parts if part.intervals.outcome == outcome]

    def regions(self, outcome: Outcome) -> list[str]:
        """Return the regions where the errors have an outcome."""
        return [contrast.region for contrast in self.contrasts if contrast.outcome == outcome]

    @property
    def ahead(self) -> bool:
        """Whether the model is clearly better in some region, and neither worse nor mixed in any."""
        return bool(self.regions("better")) and not self.regions("worse") + self.regions("mixed")

    @property
    def close(self) -> bool:
        """Whether the errors of both models differ by at most `CLOSE` in every region."""
        near = all(part.outcome == "undecided" and part.bound <= CLOSE for part in self.contrasts)
        return bool(self.contrasts) and near


def standings_of(lineup: Lineup, min_rows: int) -> tuple[Standing, ...]:
    """Compare the model with each baseline, in each region with at least so many test rows."""
    ours = lineup.ours
    regions = [r for r in ours.regions if ours.mask(r).sum() >= min_rows]
    return tuple(
        Standing(
            baseline.title,
            tuple(contrast(ours, baseline, region) for region in regions),
            contrast(ours, baseline, "all"),
        )
        for baseline in lineup.baselines.values()
    )
