"""Rows of whatever users bring: checked, taken, merged, resampled and split."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.exceptions import DataConversionWarning
from sklearn.utils.validation import _check_sample_weight, check_array, validate_data
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from tailwise.core.labels import LabelBins
from tailwise.data.tables.columns import LARGEST_TARGET
from tailwise.data.tables.preprocessing import as_array, check_infinity, column_names

Floats = NDArray[np.float64]

MAX_MERGED_ROWS = 200_000
"""Up to this many rows, equal rows are merged into one that counts as often."""


MAX_WEIGHT = 2.0**53
"""Weights are counts of rows, and beyond this sum float64 cannot tell one more."""


def checked_table(estimator: Any, X: Any, *, reset: bool) -> Any:
    """Return a table with its rows and columns checked the way scikit-learn does, DataFrames as they are.

    With `reset` the estimator learns the names and the number of columns, without it they must match.
    """
    _refuse_data_set(X)
    if column_names(X) is None:
        return _checked_array(estimator, X, reset=reset)
    if hasattr(X, "collect") or not hasattr(X, "dtypes"):
        kind = f"{type(X).__module__.split('.')[0]}'s {type(X).__name__}"
        raise TypeError(f"X is {kind}: turn it into a DataFrame of pandas or polars first")
    if reset and 0 in X.shape:
        what = "sample" if len(X) == 0 else "feature"
        raise ValueError(f"Found array with 0 {what}(s) (shape={X.shape}) while a minimum of 1 is required.")
    check_columns(X)
    check_infinity(X)
    validate_data(estimator, X, reset=reset, skip_check_array=True)
    return X


def _refuse_data_set(X: Any) -> None:
    """Raise an error that says where torch's ways of handing over rows are taken."""
    if isinstance(X, (Dataset, DataLoader)):
        raise TypeError(
            f"X is a {type(X).__name__}: give its inputs as arrays, tensors or a DataFrame, its labels as "
            "y; a DataLoader goes to tailwise.learning.loop.fit, with a model that tailwise.build_model makes"
        )


def _checked_array(estimator: Any, X: Any, *, reset: bool) -> Any:
    X = as_array(X) if isinstance(X, Tensor) else X
    try:
        checked = validate_data(
            estimator, X, reset=reset, accept_sparse="csr", dtype="numeric", ensure_all_finite="allow-nan"
        )
    except ValueError as error:
        if "could not convert string" in str(error) or "bytes/strings" in str(error):
            raise ValueError(f"{error} An array holds numbers: give text as columns of a DataFrame") from None
        raise
    return checked.astype(np.float64) if checked.dtype.itemsize > 8 else checked


def check_columns(X: Any) -> None:
    """Raise an error that names a column which occurs twice or holds complex numbers."""
    names = column_names(X) or []
    _refuse_repeated(names, "column")
    for name, kind in zip(names, X.dtypes, strict=True):
        if getattr(kind, "kind", "") == "c":
            raise ValueError(f"column {name!r} holds complex numbers: split it into two columns of numbers")


def _refuse_repeated(names: Sequence[str], what: str) -> None:
    if len(set(names)) < len(names):
        name = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"{what} name {name!r} occurs twice: rename one of them")


def checked_targets(y: Any) -> Floats:
    """Return labels as float64, (N,) or (N, T); what is no number is an error that names its row."""
    y = as_array(y) if isinstance(y, Tensor) else y
    _refuse_repeated(column_names(y) or [], "target")
    if getattr(getattr(y, "dtype", None), "kind", "") in ("m", "M"):
        raise ValueError("y holds dates or times: subtract a start and divide by a unit, such as days")
    try:
        labels = check_array(
            y, ensure_2d=False, allow_nd=True, dtype=np.float64, ensure_all_finite=False, input_name="y"
        )
    except ValueError as error:
        if "could not convert" in str(error):
            raise ValueError(f"y must be numbers to regress on: {error}") from None
        raise
    bad = ~np.isfinite(labels)
    if bad.any():
        row = int(np.argwhere(bad)[0][0])
        raise ValueError(
            f"Input y contains NaN or infinity: row {row} is {labels[row]} "
            f"({int(bad.sum())} bad of {labels.size}); drop these rows or fill them"
        )
    large = np.abs(labels) > LARGEST_TARGET
    if large.any():
        row = int(np.argwhere(large)[0][0])
        raise ValueError(f"y is too large to reckon with: row {row} is {labels[row]}; divide y by some unit")
    if labels.ndim > 2:
        raise ValueError(f"y must be (rows,) or (rows, targets), not of shape {labels.shape}")
    if labels.ndim == 2 and labels.shape[1] == 1:
        warnings.warn(
            "A column-vector y was passed when a 1d array was expected. Please change the shape of y "
            "to (n_samples,), for example using ravel().",
            DataConversionWarning,
            stacklevel=4,  # whoever called `fit`
        )
        labels = labels.ravel()
    return np.asarray(labels)


def counted_bins(y: Floats, weight: Floats, bins: int | ArrayLike | None = None) -> LabelBins:
    """Return label bins in which a row counts as often as its weight says. y, weight: (N,)

    `bins` is their number, their edges, or None to choose them from the labels.
    """
    if bins is None:
        chosen = LabelBins.from_labels(y)
    elif np.ndim(bins) == 0:
        chosen = LabelBins.from_labels(y, count=int(bins))  # type: ignore[arg-type]
    else:
        chosen = LabelBins.from_labels(y, edges=bins)
    counted = np.bincount(chosen.index(y), weights=weight, minlength=len(chosen))
    # A weight below 1 is still a row that was seen.
    counts = np.where(chosen.counts > 0, np.maximum(np.rint(counted), 1), 0).astype(np.int64)
    return LabelBins(chosen.edges, counts, chosen.rule)


def target_names(y: Any) -> list[str] | None:
    """Names of the targets, if y is a table or a column that has any."""
    name = getattr(y, "name", None)
    return column_names(y) or (None if name is None else [str(name)])


def as_inputs(X: Any) -> Any:
    """X as tensors for a backbone of the user's own; floats become float32.

    A tuple or a mapping holds several inputs, a list one row after the other.
    """
    _refuse_data_set(X)
    if isinstance(X, Mapping):
        return {key: as_inputs(value) for key, value in X.items()}
    if isinstance(X, tuple):
        return tuple(as_inputs(value) for value in X)
    if isinstance(X, list) and X and isinstance(X[0], Tensor):
        X = torch.stack(X)
    if isinstance(X, Tensor):
        tensor = X.detach()  # that X was to be optimized is no concern of the backbone's
    else:
        array = X.toarray() if hasattr(X, "toarray") else np.asarray(X)
        if array.dtype.kind not in "biuf":
            raise ValueError(
                f"a backbone of your own takes numbers, and X holds {array.dtype}: encode it first"
            )
        tensor = torch.tensor(array)
    return tensor.float() if tensor.is_floating_point() else tensor


def row_count(X: Any) -> int:
    """Number of rows of a table, an array, a list, or several inputs, which must have as many each."""
    _refuse_data_set(X)
    if not isinstance(X, (Mapping, tuple)):
        return int(X.shape[0]) if hasattr(X, "shape") else len(X)
    counts = [row_count(value) for value in (X.values() if isinstance(X, Mapping) else X)]
    if len(set(counts)) != 1:
        raise ValueError(f"the inputs of X have different numbers of rows: {counts}")
    return counts[0]


def checked_pair(eval_set: Any) -> tuple[Any, Any]:
    """Return X and y of an ``eval_set``: a pair, or a list of one pair as boosting libraries have it."""
    pair = eval_set[0] if isinstance(eval_set, list) and len(eval_set) == 1 else eval_set
    if not isinstance(pair, (tuple, list)) or len(pair) != 2 or isinstance(pair[1], tuple):
        raise ValueError("eval_set must be one pair (X, y)")
    return pair[0], pair[1]


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

    So a row that occurs twice and a row of weight 2 are the same thing. Weights below 1 on average,
    such as those that sum to 1, cannot count rows: they are raised to 1 on average.
    """
    weight = _check_sample_weight(sample_weight, labels, dtype=np.float64, ensure_non_negative=True)
    if not weight.max() * len(weight) < MAX_WEIGHT:
        raise ValueError(f"sample_weight is too large to count rows by, up to {weight.max():g}: divide it")
    rows: NDArray[np.int64] = np.flatnonzero(weight > 0).astype(np.int64)
    weight = weight / min(float(weight[rows].mean()), 1.0)
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
    if X is None:
        return None
    if hasattr(X, "hash_rows"):  # polars
        return np.asarray(X.hash_rows(seed=0), np.uint64)
    if not (hasattr(X, "columns") or (isinstance(X, np.ndarray) and X.ndim == 2)):
        return None
    try:
        return np.asarray(pd.util.hash_pandas_object(pd.DataFrame(X), index=False), np.uint64)
    except (TypeError, ValueError):  # a column of lists, or of numbers longer than 64 bits
        return None


def halves(n: int, seed: int, least: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Split held-out rows: one half selects and scales, the other, unseen, fits the intervals.

    With few rows both are all of them; the promise of the intervals is then approximate.
    """
    if n < least:
        return np.arange(n), np.arange(n)
    order = np.random.default_rng(seed).permutation(n)
    return np.sort(order[: n // 2]), np.sort(order[n // 2 :])
