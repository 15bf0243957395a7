"""A model and its baselines, scored on the same test rows: what page, verdict and `compare` read.

The baselines are a plain network, boosted trees with and without label weights, and a constant prediction
with a constant interval.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike

from tailwise.calibration.interval_scores import constant_interval
from tailwise.distributions.members import Normal
from tailwise.labels.bins import LabelBins, checked_labels
from tailwise.labels.kernels import label_weights
from tailwise.model.base import AUTO, CrossFitted, cross_fit, deal_folds, resolve_base
from tailwise.report.scoring import Floats, RunningFigures, Scored, score_model
from tailwise.tables.equal_rows import merge_equal_rows
from tailwise.tables.inputs import take_rows

if TYPE_CHECKING:
    import pandas as pd

    from tailwise.estimator import TailRegressor

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

    ours: Scored
    other: Scored | None = None
    """A plain network trained on the same rows, or a second model to compare with."""
    booster: Scored | None = None
    """Boosted trees: the base alone, or CatBoost if the model has no base."""
    weighted: Scored | None = None
    """The same trees with label weights."""
    constant: Scored | None = None
    """The median of the training labels with an interval of their quantiles, the same for every row."""
    inputs: str = "columns"
    """What sentences call what the models predict from."""

    @property
    def rivals(self) -> list[Scored]:
        """The baselines that learn from the inputs."""
        return [scored for scored in (self.other, self.booster, self.weighted) if scored is not None]

    @property
    def models(self) -> list[Scored]:
        """The model and the baselines that learn from the inputs."""
        return [self.ours, *self.rivals]

    @property
    def all(self) -> list[Scored]:
        """The model and every baseline."""
        return [*self.models, *([] if self.constant is None else [self.constant])]


class RunningLineup:
    """Figures by region of a model and its baselines, for rows that come in parts."""

    def __init__(self) -> None:
        self._figures: list[RunningFigures] = []

    def add(self, part: Lineup) -> None:
        """Take in the predictions of some rows."""
        self._figures = self._figures or [RunningFigures() for _ in part.all]
        for figures, scored in zip(self._figures, part.all, strict=True):
            figures.add(scored)

    def by_region(self, sample: Lineup) -> list[pd.DataFrame]:
        """Return the table of each model in the order of `Lineup.all`; AUSE is that of the sample's rows."""
        pairs = zip(self._figures, sample.all, strict=True)
        return [figures.by_region(scored) for figures, scored in pairs]


def line_up(
    model: TailRegressor,
    X: Any,
    y: Any,
    coverage: float = 0.9,
    *,
    target: int | None = None,
    train: Training | None = None,
    other: Scored | None = None,
    **dial: Any,
) -> Lineup:
    """Score a model and its baselines on rows that none of them has seen.

    With `train`, the rows that the model was trained on, label weights are tried too, and a model without a
    base is compared with CatBoost. `dial` has other arguments of `score_model`.
    """
    scored = score_model(model, X, y, coverage, target=target, **dial)
    place = target or 0
    booster, weighted = None if model.base_ is None else model.base_[place], None
    if train is not None:
        booster = booster or fit_booster(model, train, place)
        weighted = fit_booster(model, train, place, weighted=True)
    known = model.model_.targets[place].known_labels if train is None else checked_labels(train.labels)
    return Lineup(
        scored,
        None if other is None else like(scored, other),
        None if booster is None else score_booster(scored, model, booster, X),
        None if weighted is None else score_booster(scored, model, weighted, X, "weighted "),
        score_constant(scored, known),
        inputs="columns" if model.model_.inputs.is_table else "inputs",  # pictures have no columns
    )


def like(first: Scored, other: Scored) -> Scored:
    """Return the scores of a second model, with regions by the training labels of the first."""
    return replace(other, bins=first.bins, many=first.many, few=first.few)


def fit_booster(
    model: TailRegressor, train: Training, place: int = 0, *, weighted: bool = False
) -> CrossFitted | None:
    """Cross-fit the model's kind of base on its training rows, CatBoost if it has none.

    None if there are too few rows or no column varies. `weighted` weights each row by its label (SQINV).
    """
    if not model.model_.inputs.is_table:
        return None
    labels = checked_labels(train.labels)
    rows, weight = merge_equal_rows(train.inputs, labels, train.weights)
    labels, matrix = labels[rows], model.model_.encode(take_rows(train.inputs, rows)).matrix
    if len(rows) < MIN_BOOSTED_ROWS or ((matrix == matrix[0]) | np.isnan(matrix)).all():
        return None
    if weighted:
        bins = model.model_.bins[place]
        weight = weight * label_weights(bins)[bins.index(labels)]
    seed = model.random_state if isinstance(model.random_state, int) else 0
    make = resolve_base(AUTO if model.base is None else model.base, max(len(rows), 10**6))
    assert make is not None
    return cross_fit(make, matrix, labels, weight, deal_folds(labels, seed), seed)[0]


def score_booster(
    scored: Scored, model: TailRegressor, booster: CrossFitted, X: Any, kind: str = ""
) -> Scored:
    """Return the booster's predictions of the same rows, with conformal intervals of one width.

    The width comes from the booster's errors for training rows that it was not fitted on.
    """
    family = type(booster.models[0])
    title = kind + _TITLES.get(family.__module__.partition(".")[0], family.__name__)
    mean = booster.predict(model.model_.encode(X).matrix)
    ends = {level: (mean - booster.reach(level), mean + booster.reach(level)) for level in scored.covered}
    return _baseline(scored, title, mean, booster.spread**2, ends)


def score_constant(scored: Scored, training: LabelBins | Floats) -> Scored:
    """Return the median of the training labels as the prediction of every row, with their quantiles."""
    n = scored.y.size
    ends = {}
    for level in scored.covered:
        low, high = constant_interval(training, level)
        ends[level] = np.full(n, low), np.full(n, high)
    middle = constant_interval(training, 1e-6)[0]
    return _baseline(scored, "constant", np.full(n, middle), scored.bins.scale**2, ends)


def _baseline(
    scored: Scored, title: str, mean: Floats, variance: float, ends: Mapping[float, tuple[Floats, Floats]]
) -> Scored:
    """Return the scores of a baseline on the rows of `scored`."""
    distribution = Normal(torch.from_numpy(mean), variance)
    lower, upper = ends[scored.coverage]
    y = scored.y
    return replace(
        scored,
        title=title,
        distribution=distribution,
        uncalibrated=distribution,
        lower=lower,
        upper=upper,
        covered={level: (y >= low) & (y <= high) for level, (low, high) in ends.items()},
        calibration=None,
        raw=None,
    )
