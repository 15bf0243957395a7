"""Equal rows merged into one row with a larger weight."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import _check_sample_weight

from tailwise.tables.column_encoders import as_numbers, is_date, plain_column
from tailwise.tables.columns import is_number
from tailwise.tables.inputs import as_pandas

if TYPE_CHECKING:
    import pandas as pd

Floats = NDArray[np.float64]

MAX_MERGED_ROWS = 200_000
"""Equal rows are merged in tables of up to this many rows."""
MAX_WEIGHT = 2.0**53
"""Weights count rows. Beyond this sum, float64 cannot count one more."""
_MAX_DENSE_CELLS = 20_000_000


def merge_equal_rows(
    X: Any, labels: Floats, sample_weight: ArrayLike | None
) -> tuple[NDArray[np.int64], Floats]:
    """Return the rows to train on and their weights, without rows of weight 0 and without repeats.

    A row that occurs twice becomes one row of weight 2, so repeating a row and weighting it give the same
    model. Weights with a mean below 1, such as weights that sum to 1, are scaled up to a mean of 1, because
    they count rows.
    """
    weight = _check_sample_weight(sample_weight, labels, dtype=np.float64, ensure_non_negative=True)
    if not weight.max() * len(weight) < MAX_WEIGHT:
        raise ValueError(f"sample_weight has {weight.max():g}, too large to count rows: divide all weights")
    rows: NDArray[np.int64] = np.flatnonzero(weight > 0).astype(np.int64)
    weight = weight / min(float(weight[rows].mean()), 1.0)
    hashes = _row_hashes(X) if len(labels) <= MAX_MERGED_ROWS else None
    if hashes is None:
        return rows, weight[rows]
    # The order depends on what the rows hold, not on their place or on the unit of the labels.
    columns = np.atleast_2d(labels.T)
    rows = rows[np.lexsort((*columns[:, rows], hashes[rows]))]
    new = np.ones(len(rows), bool)
    same = hashes[rows[1:]] == hashes[rows[:-1]]
    new[1:] = ~(same & (columns[:, rows[1:]] == columns[:, rows[:-1]]).all(0))
    return rows[new], np.bincount(np.cumsum(new) - 1, weights=weight[rows]).astype(np.float64)


def rows_in_common(X: Any, labels: Floats, others: Any, their_labels: Floats) -> int:
    """Count the rows whose inputs and labels are those of one of the others; 0 for inputs that are no tables.

    X: (N, F), labels: (N, T), others: (M, F), their_labels: (M, T)
    """
    hashes = _row_hashes(X), _row_hashes(others)
    if hashes[0] is None or hashes[1] is None:
        return 0
    seen = set(zip(hashes[1].tolist(), map(tuple, their_labels.tolist()), strict=True))
    return sum(row in seen for row in zip(hashes[0].tolist(), map(tuple, labels.tolist()), strict=True))


def _row_hashes(X: Any) -> NDArray[np.uint64] | None:
    """One number per row, equal for equal rows; None for inputs that are not tables. (N,)"""
    import pandas as pd

    if hasattr(X, "toarray"):
        if X.shape[0] * X.shape[1] > _MAX_DENSE_CELLS:
            return None
        X = X.toarray()
    X = as_pandas(X)
    if not (hasattr(X, "columns") or (isinstance(X, np.ndarray) and X.ndim == 2)):
        return None
    table = pd.DataFrame(X)
    try:
        cells = {place: _values(table.iloc[:, place]) for place in range(table.shape[1])}
        return np.asarray(pd.util.hash_pandas_object(pd.DataFrame(cells), index=False), np.uint64)
    except (TypeError, ValueError):  # a column of lists, or of numbers longer than 64 bits
        return None


def _values(column: pd.Series[Any]) -> NDArray[Any]:
    """Return cells in a type that their values decide, so that pandas, polars and pyarrow are alike."""
    from pandas.api.types import infer_dtype, is_timedelta64_dtype

    column = column if column.dtype == object else plain_column(column)
    if is_date(column.dtype):
        dates = column.dt.tz_convert(None) if column.dt.tz is not None else column
        return np.asarray(dates.dt.as_unit("us"))
    if is_timedelta64_dtype(column.dtype):
        return np.asarray(column.dt.as_unit("us"))
    if not (is_number(column.dtype) or infer_dtype(column) in ("boolean", "integer", "floating")):
        return np.asarray(column.astype(object))
    if column.dtype.kind in "biu" and not column.isna().any():
        return column.to_numpy({"b": np.bool_, "i": np.int64, "u": np.uint64}[column.dtype.kind])
    return as_numbers(column)
