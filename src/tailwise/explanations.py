"""Why a model predicts what it predicts, column by column of the table it was given.

- `importance`: which columns matter for the error and for the uncertainty, overall and for rare labels
- `shapley`: what each column adds to the prediction of one row (`Attributions`)
- `partial_dependence`: the prediction and its interval along the values of one column

Text, dates and categories count as one column each, however many features they become. Each column of a table
becomes a block of numbers, and no block depends on another column. So tables with mixed columns are mixed
after encoding: every row is encoded once, however often its columns are used.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from tailwise.calibration.calibration import Predicted
from tailwise.calibration.scaling import standard_deviation
from tailwise.estimator import TailRegressor
from tailwise.labels.bins import checked_labels
from tailwise.labels.prior import rarest
from tailwise.lookup import check_name
from tailwise.tables.inputs import take_rows

__all__ = ["Attributions", "importance", "partial_dependence", "shapley"]

logger = logging.getLogger(__name__)
Floats = NDArray[np.float64]
Rows = NDArray[np.int64]
Figure = Literal["prediction", "std", "width"]
"""What is explained: the predicted label, its standard deviation, or the width of its interval."""
CHUNK = 20_000
"""Rows that are predicted at a time."""
MOST_PREDICTIONS = 1_000_000
"""Predictions of one explanation, half a minute's; what would take more uses fewer rows, with a warning."""
FEWEST_COMPARED = 10
"""Rows of the background that every row is compared with, whatever that costs."""
LOSSES, SPREADS = ("error", "crps"), ("width", "std")
"""A loss is compared by its increase. A width or a standard deviation is no loss: shuffling makes some larger
and others smaller, so it is compared by the mean of the absolute changes."""


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
        return np.concatenate([np.empty(0), *(_figure(part, of, self.coverage) for part in parts)])


def _figure(predicted: Predicted, of: str, coverage: float) -> Floats:
    """Return the figure of each prediction. (N,)"""
    if of == "width":
        lower, upper = predicted.interval(coverage)
        values = upper - lower
    else:
        found = predicted.distribution
        values = standard_deviation(found) if of == "std" else found.point
    return np.asarray(values.double().numpy())


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


# -- which columns matter --------------------------------------------------------------------------


def importance(
    model: TailRegressor,
    X: Any,
    y: Any,
    *,
    measures: Sequence[str] = ("error", "width"),
    repeats: int = 5,
    max_rows: int = 2000,
    target: int | str | None = None,
    emphasis: float | None = None,
    label_prior: Any = None,
    coverage: float = 0.9,
    random_state: int = 0,
) -> pd.DataFrame:
    """Return how much each column matters for the prediction and for its uncertainty.

    The values of one column are shuffled over the rows, and everything else stays as it is. X and y should be
    rows that the model was not trained on; y has the labels of one target. `measures` are

    - ``"error"``: by how much the mean absolute error increases;
    - ``"crps"``: by how much the mean CRPS of the predicted distribution increases;
    - ``"width"``: by how much the width of a row's interval changes, up or down, on average;
    - ``"std"``: the same for the predicted standard deviation.

    The table has a row for each measure, group of labels and column, with the most important column first:
    ``measure``, ``labels`` (``"all"``, or ``"rare"`` for the 15% of labels that were rarest in training),
    ``column``, ``importance`` (mean over `repeats` shuffles), ``spread`` (standard deviation over them),
    ``reference`` (the measure's mean on the real table) and ``rows``. At most `max_rows` rows, chosen at
    random, are used, and fewer, with a warning, where that is more than a million predictions. An importance
    below twice its spread may be chance. Two columns that say the same share their importance: shuffling one
    leaves the other.
    """
    for name in measures:
        check_name("measure", name, (*LOSSES, *SPREADS))
    if repeats < 2:
        raise ValueError(f"repeats must be at least 2 to show a spread, got {repeats}")
    columns = ColumnwiseModel(model, target, emphasis, label_prior, coverage)
    matrix, labels = columns.encode(X), checked_labels(y)
    if len(labels) != len(matrix):
        raise ValueError(f"X has {len(matrix)} rows and y has {len(labels)}")
    most = max(MOST_PREDICTIONS // (repeats * len(columns.places)), 2)
    if most < min(max_rows, len(labels)):
        warnings.warn(f"with {len(columns.places)} columns only {most} rows are shuffled", stacklevel=2)
    rng = np.random.default_rng(random_state)
    rare = rarest(labels, columns.model.targets[columns.target].labels.density)
    rows = sampled(len(labels), min(max_rows, most), rng)
    matrix, labels, rare = matrix[rows], labels[rows], rare[rows]
    groups = {"all": np.ones(len(labels), bool), **({"rare": rare} if rare.any() else {})}

    def figures(encoded: Floats) -> dict[str, Floats]:
        """Each measure of each row, for one or more tables below one another. (R * N, F) -> (R, N)"""
        predicted, truth = columns.predicted(encoded), np.tile(labels, len(encoded) // len(labels))
        return {m: _measure(m, predicted, truth, coverage).reshape(-1, len(labels)) for m in measures}

    before = figures(matrix)
    orders = np.concatenate([rng.permutation(len(labels)) for _ in range(repeats)])
    lines = []
    for done, (column, places) in enumerate(columns.places.items(), start=1):
        after = before
        if places:
            shuffled = np.tile(matrix, (repeats, 1))
            shuffled[:, places] = matrix[orders][:, places]
            after = figures(shuffled)
        for name in measures:
            changes = after[name] - before[name]
            if name in SPREADS:
                changes = np.abs(changes)
            for group, chosen in groups.items():
                means = np.broadcast_to(changes[:, chosen].mean(axis=1), repeats)
                found = float(means.mean()), float(means.std(ddof=1)), float(before[name][0][chosen].mean())
                lines.append((name, group, column, *found, int(chosen.sum())))
        logger.info("shuffled %d of %d columns", done, len(columns.places))
    names = ["measure", "labels", "column", "importance", "spread", "reference", "rows"]
    table = pd.DataFrame(lines, columns=names)
    order = {name: place for place, name in enumerate((*measures, *groups))}
    by = ["measure", "labels", "importance"]
    return table.sort_values(
        by, key=lambda c: -c if c.name == "importance" else c.map(order), kind="stable", ignore_index=True
    )


def _measure(name: str, predicted: Predicted, y: Floats, coverage: float) -> Floats:
    if name == "crps":
        return np.asarray(predicted.distribution.crps(torch.from_numpy(y)).double().numpy())
    figure = _figure(predicted, "prediction" if name == "error" else name, coverage)
    return np.asarray(np.abs(figure - y)) if name == "error" else figure


# -- what each column adds to the prediction of one row --------------------------------------------
# The value of a set of columns is the mean prediction of rows that have these columns of the explained row
# and the others of a background row. A Shapley value is the mean, over all orders of the columns, of what a
# column adds when the columns are exchanged one after another. Orders are sampled in pairs, each order with
# its reverse, one pair or more for every background row. What the columns of one order add sums to the
# explained prediction minus that of the background row. So the attributions of a row sum to its prediction
# minus the base value exactly, whatever the number of orders.


@dataclass(frozen=True, eq=False)
class Attributions:
    """What each column adds to the figure of each row: ``base + values.sum(axis=1)`` is `explained`."""

    values: pd.DataFrame
    """A row for each explained row and a column for each column of the table."""
    base: float
    """Mean of the figure over the background rows."""
    explained: Floats  # (N,)
    """The figure of each row, as `predict` returns it."""
    error: pd.DataFrame
    """Standard error of each value over the background rows; more `rounds` or rows make it smaller."""

    @property
    def gap(self) -> float:
        """The largest difference between a row's figure and the sum of base and values; rounding only."""
        sums = self.base + self.values.to_numpy().sum(axis=1)
        return float(np.abs(sums - self.explained).max(initial=0.0))

    def reasons(self, count: int = 3) -> list[list[tuple[str, float]]]:
        """Return, for each row, the columns with the largest attributions, largest first; no zeros."""
        reasons = []
        for row in self.values.to_numpy():
            order = np.argsort(-np.abs(row), kind="stable")[:count]
            reasons.append([(str(self.values.columns[k]), float(row[k])) for k in order if row[k] != 0])
        return reasons

    def to_shap(self, X: Any = None) -> Any:
        """Return a `shap.Explanation`, for the plots of the shap package (extra ``explain``).

        X are the explained rows, whose cells the plots show.
        """
        try:
            import shap
        except ImportError as error:
            raise ImportError("to_shap needs shap: pip install 'tailwise[explain]'") from error
        return shap.Explanation(
            values=self.values.to_numpy(),
            base_values=np.full(len(self.values), self.base),
            data=None if X is None else np.asarray(X, dtype=object),
            feature_names=list(self.values.columns),
        )


def shapley(
    model: TailRegressor,
    X: Any,
    background: Any = None,
    *,
    of: Figure = "prediction",
    background_rows: int = 100,
    rounds: int = 1,
    target: int | str | None = None,
    emphasis: float | None = None,
    label_prior: Any = None,
    coverage: float = 0.9,
    random_state: int = 0,
) -> Attributions:
    """Return Shapley values of the columns for every row of X, a table as `predict` takes it.

    A value is what the column adds to the prediction of this row, compared with rows of `background`, in
    units of the label. Text, a date or a category is one column. `of` is what to explain: ``"prediction"``,
    ``"std"`` or ``"width"``, which is that of the interval of `coverage`. At most `background_rows` rows of
    the background, chosen at random, are used; without a background they are rows of X. Each row of X costs
    ``2 * rounds * background_rows * (columns - 1)`` predictions. If that makes more than `MOST_PREDICTIONS`,
    fewer rows of the background are used, with a warning.

    Values are for columns that are exchanged on their own: rows with exchanged columns need not occur.
    """
    if rounds < 1 or background_rows < 1:
        raise ValueError(f"rounds and background_rows must be 1 or more, got {rounds} and {background_rows}")
    columns = ColumnwiseModel(model, target, emphasis, label_prior, coverage)
    rows = columns.encode(X)
    if background is None and len(rows) < 2:
        raise ValueError("a single row has nothing to be compared with: give a background of other rows")
    others = rows if background is None else columns.encode(background)
    names, blocks = list(columns.places), [k for k, places in enumerate(columns.places.values()) if places]
    cost = 2 * rounds * (len(blocks) - 1) * len(rows)  # predictions for each row of the background
    wanted = min(background_rows, len(others))
    used = min(wanted, max(FEWEST_COMPARED, MOST_PREDICTIONS // max(cost, 1)))
    if used < wanted:
        warnings.warn(
            f"{wanted * cost} predictions are too many: rows are compared with {used} rows of the "
            f"background, not {wanted}, and errors are larger; explain fewer rows at a time",
            stacklevel=2,
        )
    rng = np.random.default_rng(random_state)
    others = others[sampled(len(others), used, rng)]
    # (2 * rounds * others, columns) the place of each column in its order; the second half are the reverses
    ranks = np.array([np.argsort(rng.permutation(len(blocks))) for _ in range(rounds * used)])
    ranks = np.concatenate([ranks, len(blocks) - 1 - ranks])
    taken = ranks[:, None] <= np.arange(len(blocks) - 1)[:, None]  # (orders, steps, columns)
    column_of = np.empty(others.shape[1], np.int64)
    for place, block in enumerate(blocks):
        column_of[columns.places[names[block]]] = place
    background_of = np.tile(np.arange(used), 2 * rounds)

    at_start, at_end = columns.figure(others, of), columns.figure(rows, of)
    values, errors = (np.zeros((len(rows), len(names))) for _ in range(2))
    size = max(1, CHUNK // max(1, taken.shape[0] * taken.shape[1]))
    for first in range(0, len(rows), size):
        part = range(first, min(first + size, len(rows)))
        mixed = [np.where(taken[..., column_of], rows[k], others[background_of, None]) for k in part]
        inner = columns.figure(np.concatenate(mixed).reshape(-1, others.shape[1]), of)
        for k, steps in zip(part, inner.reshape(len(part), *taken.shape[:2]), strict=True):
            ends = at_start[background_of], np.full(len(ranks), at_end[k])
            path = np.column_stack([ends[0], steps, ends[1]])  # (orders, columns + 1)
            added = np.take_along_axis(np.diff(path, axis=1), ranks, axis=1)  # (orders, columns)
            by_row = added.reshape(2 * rounds, used, -1).mean(axis=0)
            values[k, blocks] = by_row.mean(axis=0)
            if used > 1:
                errors[k, blocks] = by_row.std(axis=0, ddof=1) / np.sqrt(used)
        logger.info("explained %d of %d rows", part.stop, len(rows))
    index = X.index if hasattr(X, "index") and hasattr(X, "columns") else None
    return Attributions(
        values=pd.DataFrame(values, columns=names, index=index),
        base=float(at_start.mean()),
        explained=at_end,
        error=pd.DataFrame(errors, columns=names, index=index),
    )


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
        point = _figure(predicted, "prediction", coverage)
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
