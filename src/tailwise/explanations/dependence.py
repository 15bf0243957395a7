"""How the prediction and its interval change along the values of one column."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from sklearn.utils.validation import check_is_fitted

from tailwise.estimator import TailRegressor
from tailwise.explanations.columnwise import FIGURES, ColumnwiseModel, sampled
from tailwise.lookup import check_name
from tailwise.tables.inputs import take_rows


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
    check_is_fitted(model)
    if not hasattr(X, "iloc"):
        raise TypeError("partial_dependence takes a pandas DataFrame, whose columns have names")
    check_name("column", column, [str(name) for name in X.columns])
    columns = ColumnwiseModel(
        model, target=target, emphasis=emphasis, label_prior=label_prior, coverage=coverage
    )
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
