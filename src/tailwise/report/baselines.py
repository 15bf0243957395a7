"""A model and its baselines, scored on the same test rows: what page, verdict and `compare` read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike

from tailwise.calibration.interval_scores import constant_interval
from tailwise.distributions.members import Normal
from tailwise.labels.bins import LabelBins, checked_labels
from tailwise.labels.kernels import label_weights
from tailwise.model.base import AUTO, CrossFitted, cross_fit, deal_folds, resolve_base
from tailwise.report.scores import Floats, RunningFigures, Scores, Seen
from tailwise.tables.equal_rows import merge_equal_rows
from tailwise.tables.inputs import take_rows

if TYPE_CHECKING:
    import pandas as pd

    from tailwise.estimator import TailRegressor

OTHER, BOOSTER, WEIGHTED, CONSTANT = "baseline", "base", "weighted", "constant"
BASELINES: Mapping[str, str] = {
    OTHER: "a plain network trained on the same rows, or a second model to compare with",
    BOOSTER: "boosted trees: the base alone, or CatBoost if the model has no base",
    WEIGHTED: "the same trees with label weights",
    CONSTANT: "the median of the training labels, with an interval of their quantiles, for every row",
}
"""The baselines of a model by their names in JSON, in the order in which they are shown."""
PLAIN: Mapping[str, Any] = {
    "method": "vanilla",
    "method_options": None,
    "base": None,
    "folds": 1,
    "emphasis": 0.0,
}
"""Parameters of the plain network: one network with a squared loss, without a base and without a dial."""
PLAIN_TITLE = "plain network"
MIN_BOOSTED_ROWS = 10
"""With fewer rows no booster is fitted: its folds would have one row each."""
_TITLES = {"catboost": "CatBoost", "lightgbm": "LightGBM"}


class Training(NamedTuple):
    """Rows that the models were trained on."""

    inputs: Any
    labels: ArrayLike
    weights: ArrayLike | None = None


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
    def models(self) -> list[Scores]:
        """The model and the baselines that learn from the inputs."""
        return [self.ours, *self.rivals]

    @property
    def all(self) -> list[Scores]:
        """The model and every baseline."""
        return [self.ours, *self.baselines.values()]


class RunningLineup:
    """Figures by region of a model and its baselines, for rows that come in parts."""

    def __init__(self) -> None:
        self._figures: list[RunningFigures] = []

    def add(self, part: Lineup) -> None:
        """Take in the predictions of some rows."""
        self._figures = self._figures or [RunningFigures() for _ in part.all]
        for figures, scores in zip(self._figures, part.all, strict=True):
            figures.add(scores)

    def by_region(self, sample: Lineup) -> list[pd.DataFrame]:
        """Return the table of each model in the order of `Lineup.all`; AUSE is that of the sample's rows."""
        pairs = zip(self._figures, sample.all, strict=True)
        return [figures.by_region(scores) for figures, scores in pairs]


def line_up(
    model: TailRegressor,
    rows: Seen,
    y: Any,
    coverage: float = 0.9,
    *,
    target: int = 0,
    train: Training | None = None,
    other: Scores | None = None,
    **settings: Any,
) -> Lineup:
    """Score a model and its baselines on rows that none of them has seen.

    With `train`, the rows that the model was trained on, label weights are tried too, and a model without a
    base is compared with CatBoost. `other` is a plain network or a second model on the same rows. `settings`
    are further ones of `Seen.scores`, such as an emphasis.
    """
    ours = rows.scores(y, coverage, target, **settings)
    boosters = {} if model.base_ is None else {BOOSTER: model.base_[target]}
    if train is not None:
        boosters = fit_boosters(model, train, target)
    known = model.model_.targets[target].known_labels if train is None else checked_labels(train.labels)
    scored = {name: score_booster(ours, trees, name) for name, trees in boosters.items()}
    scored[CONSTANT] = score_constant(ours, known)
    if other is not None:
        scored[OTHER] = like(ours, other)
    baselines = {name: scored[name] for name in BASELINES if name in scored}
    inputs = "columns" if model.model_.inputs.is_table else "inputs"  # pictures have no columns
    return Lineup(ours, baselines, inputs)


def like(first: Scores, other: Scores) -> Scores:
    """Return the scores of a second model, with regions by the training labels of the first."""
    return replace(other, bins=first.bins, many=first.many, few=first.few)


def fit_boosters(
    model: TailRegressor, train: Training, target: int = 0, names: Iterable[str] = (BOOSTER, WEIGHTED)
) -> dict[str, CrossFitted]:
    """Cross-fit the model's kind of base on its training rows, CatBoost if it has none.

    Once as the base alone, which is the model's own if it has one, and once with each row weighted by its
    label (SQINV). Nothing is fitted with too few rows, if no column varies, or for a model of pictures.
    """
    boosters = {} if model.base_ is None else {BOOSTER: model.base_[target]}
    if not model.model_.inputs.is_table:
        return boosters
    labels = checked_labels(train.labels)
    rows, weight = merge_equal_rows(train.inputs, labels, train.weights)
    labels, matrix = labels[rows], model.model_.encode(take_rows(train.inputs, rows)).matrix
    if len(rows) < MIN_BOOSTED_ROWS or ((matrix == matrix[0]) | np.isnan(matrix)).all():
        return boosters
    bins = model.model_.bins[target]
    weights = {BOOSTER: weight, WEIGHTED: weight * label_weights(bins)[bins.index(labels)]}
    seed = model.random_state if isinstance(model.random_state, int) else 0
    make = resolve_base(AUTO if model.base is None else model.base, max(len(rows), 10**6))
    assert make is not None
    for name in set(names) - boosters.keys():
        boosters[name] = cross_fit(make, matrix, labels, weights[name], deal_folds(labels, seed), seed)[0]
    return boosters


def score_booster(ours: Scores, booster: CrossFitted, name: str = BOOSTER) -> Scores:
    """Return the booster's predictions of the same rows, with conformal intervals of one width.

    The width comes from the booster's errors for training rows that it was not fitted on.
    """
    assert ours.encoded is not None
    family = type(booster.models[0])
    title = _TITLES.get(family.__module__.partition(".")[0], family.__name__)
    mean = booster.predict(ours.encoded.matrix)
    ends = {level: (mean - booster.reach(level), mean + booster.reach(level)) for level in ours.covered}
    title = f"weighted {title}" if name == WEIGHTED else title
    return _baseline(ours, title, mean, booster.spread**2, ends)


def score_constant(ours: Scores, training: LabelBins | Floats) -> Scores:
    """Return the median of the training labels as the prediction of every row, with their quantiles."""
    n = ours.y.size
    ends = {}
    for level in ours.covered:
        low, high = constant_interval(training, level)
        ends[level] = np.full(n, low), np.full(n, high)
    middle = constant_interval(training, 1e-6)[0]
    return _baseline(ours, "constant", np.full(n, middle), ours.bins.scale**2, ends)


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
        uncalibrated=distribution,
        lower=lower,
        upper=upper,
        covered={level: (y >= low) & (y <= high) for level, (low, high) in ends.items()},
        calibration=None,
        raw=None,
    )
