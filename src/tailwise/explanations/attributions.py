"""Shapley values: what each column of a row adds to its prediction, against rows of a background.

The value of a set of columns is the mean prediction of rows that have these columns of the explained row and
the others of a background row. A Shapley value is the mean, over all orders of the columns, of what a column
adds when the columns are exchanged one after another. Orders are sampled in pairs, each order with its
reverse, one pair or more for every background row. What the columns of one order add sums to the explained
prediction minus that of the background row. So the attributions of a row sum to its prediction minus the base
value exactly, whatever the number of orders.
"""

from __future__ import annotations

import logging
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from tailwise.estimator import TailRegressor
from tailwise.explanations.columnwise import (
    CHUNK,
    MOST_PREDICTIONS,
    ColumnwiseModel,
    Figure,
    Floats,
    sampled,
)

logger = logging.getLogger(__name__)
FEWEST_COMPARED = 10
"""Rows of the background that every row is compared with, whatever that costs."""


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
