"""A fitted model as a function of whole columns of its table.

Each column of a table becomes a block of numbers, and no block depends on another column. So tables with
mixed columns are mixed after encoding: every row is encoded once, however often its columns are used.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from tailwise.calibration.calibration import Calibration, Predicted
from tailwise.calibration.scaling import standard_deviation
from tailwise.estimator import TailRegressor
from tailwise.lookup import check_name

Floats = NDArray[np.float64]
Rows = NDArray[np.int64]
Figure = Literal["prediction", "std", "width"]
"""What is explained: the predicted label, its standard deviation, or the width of its interval."""
CHUNK = 20_000
"""Rows that are predicted at a time."""


class ColumnwiseModel:
    """One target of a fitted model, predicting rows whose columns were exchanged after encoding.

    `target` is the number or the name of the target; a model with several needs it. `emphasis` and
    `label_prior` are those of `TailRegressor.predict`.
    """

    def __init__(
        self,
        model: TailRegressor,
        *,
        target: int | str | None = None,
        emphasis: float | None = None,
        label_prior: Any = None,
        coverage: float = 0.9,
    ) -> None:
        if model.model_.base.given:
            raise ValueError(
                "this model was fitted with base_prediction, which does not follow from the columns: "
                "explanations need a model that predicts from the table alone"
            )
        self.model, self.coverage = model.model_.at(emphasis, label_prior), coverage
        self.target = _target_place(model, target)

    @property
    def calibration(self) -> Calibration:
        """The calibration of the target, under the label prior in use."""
        return self.model.targets[self.target]

    @property
    def places(self) -> dict[str, list[int]]:
        """The places of each column in `encode`'s matrix."""
        return self.model.table.places

    def encode(self, X: Any) -> Floats:
        """Return a table as numbers, with the checks and warnings of `predict`. (N, F)"""
        return self.model.table.numbers(X)

    def predicted(self, matrix: Floats) -> Predicted:
        """Return calibrated predictions of encoded rows. (N, F) -> (N,)"""
        return self.model.calibrated(self.model.raw(self.model.table.from_numbers(matrix)))[self.target]

    def figure(self, matrix: Floats, of: Figure = "prediction") -> Floats:
        """Return the figure to explain for each encoded row. (N, F) -> (N,)"""
        check_name("figure", of, get_args(Figure))
        parts = [
            FIGURES[of](self.predicted(matrix[start : start + CHUNK]), self.coverage)
            for start in range(0, len(matrix), CHUNK)
        ]
        return np.concatenate(parts)


def _width(predicted: Predicted, coverage: float) -> Floats:
    lower, upper = predicted.interval(coverage)
    return np.asarray((upper - lower).double().numpy())


FIGURES: dict[Figure, Callable[[Predicted, float], Floats]] = {
    "prediction": lambda predicted, _: np.asarray(predicted.distribution.point.double().numpy()),
    "std": lambda predicted, _: np.asarray(standard_deviation(predicted.distribution).double().numpy()),
    "width": _width,
}
"""How each figure is read off predictions, given the coverage of intervals."""


def _target_place(model: TailRegressor, target: int | str | None) -> int:
    count = model.n_targets_
    if target is None:
        if count != 1:
            raise ValueError(f"the model has {count} targets: choose one of them by target=")
        return 0
    if isinstance(target, str):
        names = model.target_names_ or []
        check_name("target", target, names)
        return names.index(target)
    if not 0 <= target < count:
        raise ValueError(f"target must lie between 0 and {count - 1}, got {target}")
    return target


def sampled(rows: int, most: int, rng: np.random.Generator) -> Rows:
    """Return all row numbers, or `most` of them at random, in ascending order."""
    if rows <= most:
        return np.arange(rows)
    return np.sort(rng.choice(rows, most, replace=False))
