"""A fitted model as a function of whole columns of its table.

Each column of a table becomes a block of numbers, and no block depends on another column. So tables with
mixed columns are mixed after encoding: every row is encoded once, however often its columns are used.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, get_args

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from tailwise.calibration.calibration import Predicted
from tailwise.calibration.scaling import standard_deviation
from tailwise.estimator import TailRegressor
from tailwise.lookup import check_name
from tailwise.tables.inputs import take_rows

Floats = NDArray[np.float64]
Rows = NDArray[np.int64]
Figure = Literal["prediction", "std", "width"]
"""What is explained: the predicted label, its standard deviation, or the width of its interval."""
CHUNK = 20_000
"""Rows that are predicted at a time."""
MOST_PREDICTIONS = 1_000_000
"""Predictions of one explanation, half a minute's; what would take more uses fewer rows, with a warning."""


class ColumnwiseModel:
    """One target of a fitted model, predicting rows whose columns were exchanged after encoding.

    `target` is the number or the name of the target; a model with several needs it. `emphasis` and
    `label_prior` are those of `TailRegressor.predict`.
    """

    def __init__(
        self,
        model: TailRegressor,
        target: int | str | None = None,
        emphasis: float | None = None,
        label_prior: Any = None,
        coverage: float = 0.9,
    ) -> None:
        check_is_fitted(model)
        if model.model_.base.given:
            raise ValueError(
                "this model was fitted with base_prediction, which does not follow from the columns: "
                "explanations need a model that predicts from the table alone"
            )
        self.model, self.coverage = model.model_.at(emphasis, label_prior), coverage
        self.target = _target_place(model, target)

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
        """Return the figure to explain for each encoded row, in batches. (N, F) -> (N,)"""
        check_name("figure", of, get_args(Figure))
        parts = (self.predicted(matrix[start : start + CHUNK]) for start in range(0, len(matrix), CHUNK))
        return np.concatenate([np.empty(0), *(FIGURES[of](part, self.coverage) for part in parts)])


def _width(predicted: Predicted, coverage: float) -> Floats:
    lower, upper = predicted.interval(coverage)
    return np.asarray((upper - lower).double().numpy())


FIGURES: dict[str, Callable[[Predicted, float], Floats]] = {
    "prediction": lambda predicted, _: np.asarray(predicted.distribution.point.double().numpy()),
    "std": lambda predicted, _: np.asarray(standard_deviation(predicted.distribution).double().numpy()),
    "width": _width,
}
"""How each figure is read off predictions, given the coverage of intervals."""


def _target_place(model: TailRegressor, target: int | str | None) -> int:
    if target is None and model.n_targets_ != 1:
        raise ValueError(f"the model has {model.n_targets_} targets: choose one of them by target=")
    if isinstance(target, str):
        names = model.target_names_ or []
        check_name("target", target, names)
        return names.index(target)
    if not 0 <= (target or 0) < model.n_targets_:
        raise ValueError(f"target must lie between 0 and {model.n_targets_ - 1}, got {target}")
    return target or 0


def sampled(rows: int, most: int, rng: np.random.Generator) -> Rows:
    """Return all row numbers, or `most` of them at random, in ascending order."""
    if rows <= most:
        return np.arange(rows)
    return np.sort(rng.choice(rows, most, replace=False))


# -- along the values of one column ---------------------------------------------------------------


def partial_dependence(
    model: TailRegressor,
    X: Any,
    column: str,
    *,
    values: Sequence[Any] | None = None,
    points: int = 20,
    max_rows: int = 200,
    target: int | str | None = None,
    emphasis: float | None = None,
    label_prior: Any = None,
    coverage: float = 0.9,
    random_state: int = 0,
) -> pd.DataFrame:
    """Return the mean prediction and the mean interval if every row had the same value in one column.

    X is a DataFrame. `values` are the values to try. Unless given they are all values of the column, or, if
    there are more than `points`, quantiles of numbers and dates and the most frequent of other values. At
    most `max_rows` rows, chosen at random, are averaged over.

    The table has a row for each value: ``value``, ``prediction``, ``lower`` and ``upper`` (means over the
    rows of the prediction and of the ends of the intervals of `coverage`), and ``prediction_low`` and
    ``prediction_high``, the 10% and 90% quantiles of the predictions over the rows.
    """
    if not hasattr(X, "iloc"):
        raise TypeError("partial_dependence takes a pandas DataFrame, whose columns have names")
    check_name("column", column, [str(name) for name in X.columns])
    columns = ColumnwiseModel(model, target, emphasis, label_prior, coverage)
    name = next(name for name in X.columns if str(name) == column)
    tried = _usual_values(X[name], points) if values is None else pd.Series(list(values), dtype=X[name].dtype)
    rows = take_rows(X, sampled(len(X), max_rows, np.random.default_rng(random_state)))
    # One row for each value, of which only this column is used: values are encoded as `predict` encodes them.
    one_each = take_rows(X, np.arange(len(tried)) % len(X)).reset_index(drop=True)
    one_each[name] = tried.to_numpy() if tried.dtype == object else tried.array
    matrix, encoded = columns.encode(rows), columns.encode(one_each)
    places = columns.places[column]
    lines = []
    for value, block in zip(tried, encoded, strict=True):
        changed = matrix.copy()
        changed[:, places] = block[places]
        predicted = columns.predicted(changed)
        point = FIGURES["prediction"](predicted, coverage)
        lower, upper = (end.double().numpy() for end in predicted.interval(coverage))
        low, high = np.quantile(point, [0.1, 0.9])
        lines.append((value, point.mean(), lower.mean(), upper.mean(), low, high))
    names = ["value", "prediction", "lower", "upper", "prediction_low", "prediction_high"]
    return pd.DataFrame(lines, columns=names)


def _usual_values(cells: pd.Series[Any], points: int) -> pd.Series[Any]:
    """Return the values to try: all of them if they are few."""
    values = cells.dropna()
    if values.empty:
        raise ValueError(f"column {cells.name!r} has no values in these rows: give values=")
    distinct = values.drop_duplicates()
    ordered = pd.api.types.is_numeric_dtype(cells) or pd.api.types.is_datetime64_any_dtype(cells)
    if len(distinct) <= points:
        return distinct.sort_values() if ordered else distinct
    if not ordered:
        return values.value_counts().index[:points].to_series()
    # Quantiles that occur, so that whole numbers stay whole.
    places = np.unique(np.linspace(0, len(values) - 1, points).round().astype(np.int64))
    return values.sort_values().iloc[places].drop_duplicates()
