"""Rows of whatever users bring: taken, merged, hashed and split."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import _check_sample_weight
from torch import Tensor

from tailwise.preprocessing import column_names

Floats = NDArray[np.float64]

MAX_MERGED_ROWS = 200_000
"""Up to this many rows, equal rows are merged into one that counts as often."""


def check_unique_columns(X: Any) -> None:
    """Raise an error that names a column which occurs twice."""
    names = column_names(X) or []
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"column name {name!r} occurs twice: rename one of them")


def target_names(y: Any) -> list[str] | None:
    """Names of the targets, if y is a table or a column that has any."""
    name = getattr(y, "name", None)
    return column_names(y) or (None if name is None else [str(name)])


def as_inputs(X: Any) -> Any:
    """X as tensors for a backbone of the user's own; floats become float32."""
    if isinstance(X, Mapping):
        return {key: as_inputs(value) for key, value in X.items()}
    if isinstance(X, (tuple, list)) and len(X) and not np.isscalar(X[0]):
        return tuple(as_inputs(value) for value in X)
    if hasattr(X, "to_numpy"):
        X = X.to_numpy()
    tensor = X if isinstance(X, Tensor) else torch.tensor(np.asarray(X))
    return tensor.float() if tensor.is_floating_point() else tensor


def rows_of(x: Any, rows: NDArray[np.int64]) -> Any:
    if isinstance(x, Mapping):
        return {key: rows_of(value, rows) for key, value in x.items()}
    if isinstance(x, tuple):
        return tuple(rows_of(value, rows) for value in x)
    return x[torch.from_numpy(rows)] if isinstance(x, Tensor) else x[rows]


def take(X: Any, rows: NDArray[np.int64]) -> Any:
    """Rows of a table, array, sparse matrix, tensor, or tuple or mapping of tensors."""
    if hasattr(X, "iloc"):
        return X.iloc[rows]
    if isinstance(X, (Mapping, tuple, list)):
        return rows_of(as_inputs(X), rows)
    return rows_of(X, rows)


def merged_rows(X: Any, labels: Floats, sample_weight: ArrayLike | None) -> tuple[NDArray[np.int64], Floats]:
    """Return rows to train on and their weights: rows of weight 0 dropped, equal rows merged.

    So a row that occurs twice and a row of weight 2 are the same thing.
    """
    weight = _check_sample_weight(sample_weight, labels, dtype=np.float64, ensure_non_negative=True)
    rows: NDArray[np.int64] = np.flatnonzero(weight > 0).astype(np.int64)
    hashes = _row_hashes(X) if len(labels) <= MAX_MERGED_ROWS else None
    if hashes is None:
        return rows, weight[rows]
    # An order that depends on what rows hold, not on where they stand, nor on the labels' units.
    columns = np.atleast_2d(labels.T)
    rows = rows[np.lexsort((*columns[:, rows], hashes[rows]))]
    new = np.ones(len(rows), bool)
    same = hashes[rows[1:]] == hashes[rows[:-1]]
    new[1:] = ~(same & (columns[:, rows[1:]] == columns[:, rows[:-1]]).all(0))
    return rows[new], np.bincount(np.cumsum(new) - 1, weights=weight[rows]).astype(np.float64)


def _row_hashes(X: Any) -> NDArray[np.uint64] | None:
    """One number per row, equal for equal rows; None for inputs that are not tables."""
    import pandas as pd

    if hasattr(X, "toarray"):
        X = X.toarray() if X.shape[0] * X.shape[1] <= 20_000_000 else None
    if X is None or hasattr(X, "to_pandas"):  # polars
        return None
    if not (hasattr(X, "columns") or (isinstance(X, np.ndarray) and X.ndim == 2)):
        return None
    try:
        return np.asarray(pd.util.hash_pandas_object(pd.DataFrame(X), index=False), np.uint64)
    except TypeError:  # a column of lists, say
        return None


def halves(n: int, seed: int, least: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Split held-out rows: one half selects and scales, the other, unseen, fits the intervals.

    With few rows both are all of them; the promise of the intervals is then approximate.
    """
    if n < least:
        return np.arange(n), np.arange(n)
    order = np.random.default_rng(seed).permutation(n)
    return np.sort(order[: n // 2]), np.sort(order[n // 2 :])
