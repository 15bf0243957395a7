"""A model and its baselines, scored on the same test rows: what page, verdict and `compare` read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike

from tailwise.calibration.interval_scores import constant_interval
from tailwise.distributions.members import Normal
from tailwise.distributions.transform import Log
from tailwise.labels.bins import checked_labels
from tailwise.labels.kernels import label_weights
from tailwise.model.base import AUTO, CrossFit, CrossFitted, deal_folds, resolve_base
from tailwise.model.split import deal_group_folds, group_codes
from tailwise.model.transforms import candidates
from tailwise.report.scores import Floats, Scores, Seen
from tailwise.tables.equal_rows import merge_equal_rows
from tailwise.tables.inputs import take_rows

if TYPE_CHECKING:
    from tailwise.estimator import TailRegressor

OTHER, BOOSTER, CONSTANT = "baseline", "base", "constant"
BASELINES: Mapping[str, str] = {
    OTHER: "a second model to compare with",
    BOOSTER: "boosted trees alone: those that a report trained, on the label or its logarithm, or the base",
    CONSTANT: "the median of the training labels, with an interval of their quantiles, for every row",
}
"""The baselines of a model by their names in JSON, in the order in which they are shown."""
MIN_BOOSTED_ROWS = 10
"""With fewer rows no trees are fitted: their folds would have one row each."""
_TITLES = {"CatBoostRegressor": "CatBoost"} | dict.fromkeys(
    ("LGBMRegressor", "HistGradientBoostingRegressor", "BoostedTrees"), "boosted trees"
)


class Training(NamedTuple):
    """Rows that a model was trained on."""

    inputs: Any
    labels: ArrayLike
    weights: ArrayLike | None = None
    groups: ArrayLike | None = None


@dataclass(frozen=True, eq=False)
class Lineup:
    """A model and its baselines on the same test rows; regions go by the training labels of the model."""

    ours: Scores
    baselines: Mapping[str, Scores] = field(default_factory=dict)
    """By their names in `BASELINES`, in that order."""
    inputs: str = "columns"
    """What sentences call what the models predict from."""

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
    scored = {OTHER: None if other is None else like(ours, other)}
    scored[BOOSTER] = score_trees(ours, trees[target]) if trees else None
    scored[CONSTANT] = score_constant(ours, fitted.targets[target].labels.quantiles)
    inputs = "columns" if fitted.inputs.is_table else "inputs"  # pictures have no columns
    return Lineup(ours, {name: scores for name, scores in scored.items() if scores is not None}, inputs)


def like(first: Scores, other: Scores) -> Scores:
    """Return the scores of a second model, with regions by the training labels of the first."""
    return replace(other, bins=first.bins, many=first.many, few=first.few)


def fit_rival(
    model: TailRegressor, train: Training, target: int = 0, *, weighted: bool = False
) -> CrossFitted | None:
    """Cross-fit the model's kind of base on its training rows, CatBoost if it has none, to compare with.

    The trees learn the label or, if labels are skewed and never negative, its logarithm, whichever has the
    smaller out-of-fold CRPS; they are the model's base if it learned the same. With `weighted` they learn the
    label, and each row is weighted by its rarity (SQINV). None with too few rows, if no column varies, or
    for inputs that are no table.
    """
    if not model.model_.inputs.is_table:
        return None
    labels = checked_labels(train.labels)
    rows, weight = merge_equal_rows(train.inputs, labels, train.weights)
    labels, matrix = labels[rows], model.model_.encode(take_rows(train.inputs, rows)).matrix
    if len(rows) < MIN_BOOSTED_ROWS or ((matrix == matrix[0]) | np.isnan(matrix)).all():
        return None
    seed = model.random_state if isinstance(model.random_state, int) else 0
    fold = deal_folds(labels, seed)
    if train.groups is not None:
        fold = deal_group_folds(labels, group_codes(train.groups, np.size(train.groups))[rows], seed)
    make = resolve_base(AUTO if model.base is None else model.base, max(len(rows), 10**6))
    assert make is not None
    if weighted:
        bins = model.model_.bins[target]
        weight = weight * label_weights(bins)[bins.index(labels)]
        return CrossFit(make, matrix, labels, weight, fold, seed).whole()[0]
    base, transforms = model.model_.base.targets, candidates("auto", labels)
    if base and (len(transforms) == 1 or model.target_transform == "auto"):
        return base[target]
    folds = range(fold.max() + 1)
    fits = [CrossFit(make, matrix, labels, weight, fold, seed, transform) for transform in transforms]
    best = min(fits, key=lambda fit: fit.fit(folds).crps)
    return base[target] if base and base[target].transform == best.transform else best.whole()[0]


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
    distribution = Normal(torch.from_numpy(mean), variance)
    lower, upper = ends[ours.coverage]
    y = ours.y
    return replace(
        ours,
        title=title,
        distribution=distribution,
        lower=lower,
        upper=upper,
        covered={level: (y >= low) & (y <= high) for level, (low, high) in ends.items()},
        calibration=None,
        raw=None,
    )
