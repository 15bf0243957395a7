"""Inputs of any kind that users bring: tables, arrays, sparse matrices, tensors, or several of them."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.exceptions import DataConversionWarning
from sklearn.utils.validation import check_array, validate_data
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from tailwise.tables.columns import LARGEST_TARGET, check_infinity, not_numbers


def refuse_data_set(X: Any) -> None:
    """Raise an error if X is a torch Dataset or DataLoader; it says which function takes those."""
    if isinstance(X, (Dataset, DataLoader)):
        raise TypeError(
            f"X is a {type(X).__name__}: give its inputs as arrays, tensors or a DataFrame, its labels as y. "
            "A DataLoader goes to tailwise.training.loop.fit, with a model that tailwise.build_model makes"
        )


def column_names(X: Any) -> list[str] | None:
    """Return the names of a DataFrame's columns as text; None for anything else."""
    columns: Any = getattr(X, "columns", None)
    if getattr(columns, "nlevels", 1) > 1:
        raise ValueError(
            f"the columns have names of {columns.nlevels} levels: join each to one name, such as "
            "table.columns = ['_'.join(map(str, names)) for names in table.columns]"
        )
    return None if columns is None else [str(name) for name in columns]


def as_pandas(X: Any) -> Any:
    """Return a polars DataFrame as one of pandas, also without pyarrow; anything else as it is."""
    if type(X).__module__.partition(".")[0] != "polars" or not hasattr(X, "get_columns"):
        return X
    import pandas as pd

    return pd.DataFrame({column.name: _pandas_column(column) for column in X.get_columns()})


def _pandas_column(column: Any) -> Any:
    import pandas as pd

    zone = getattr(column.dtype, "time_zone", None)
    if zone is None:
        return pd.Series((column.cast(float) if column.dtype.is_decimal() else column).to_numpy())
    dates = column.dt.convert_time_zone("UTC").dt.replace_time_zone(None).to_numpy()
    return pd.Series(dates).dt.tz_localize("UTC").dt.tz_convert(zone)


def row_count(X: Any) -> int:
    """Return the number of rows. Several inputs (a tuple or a mapping) must all have the same number."""
    refuse_data_set(X)
    if not isinstance(X, (Mapping, tuple)):
        return int(X.shape[0]) if hasattr(X, "shape") else len(X)
    counts = [row_count(value) for value in (X.values() if isinstance(X, Mapping) else X)]
    if len(set(counts)) != 1:
        raise ValueError(f"the inputs of X have different numbers of rows: {counts}")
    return counts[0]


def take_rows(X: Any, rows: NDArray[np.int64]) -> Any:
    """Return the given rows of a table, an array, a sparse matrix or a tensor.

    From a list, or from each input of a tuple or a mapping, the rows come as tensors.
    """
    if isinstance(X, (Mapping, tuple, list)):
        X = as_tensors(X)
    if isinstance(X, Mapping):
        return {key: take_rows(value, rows) for key, value in X.items()}
    if isinstance(X, tuple):
        return tuple(take_rows(value, rows) for value in X)
    if hasattr(X, "iloc"):
        return X.iloc[rows]
    return X[torch.from_numpy(rows)] if isinstance(X, Tensor) else X[rows]


def as_tensors(X: Any) -> Any:
    """Return X as tensors for a backbone of the user's own; floats become float32.

    A tuple or a mapping holds several inputs. A list holds rows.
    """
    refuse_data_set(X)
    if isinstance(X, Mapping):
        return {key: as_tensors(value) for key, value in X.items()}
    if isinstance(X, tuple):
        return tuple(as_tensors(value) for value in X)
    if isinstance(X, list) and X and isinstance(X[0], Tensor):
        X = torch.stack(X)
    if isinstance(X, Tensor):
        tensor = X.detach()  # gradients with respect to X would keep the user's graph alive
    else:
        array = X.toarray() if hasattr(X, "toarray") else np.asarray(X)
        if array.dtype.kind not in "biuf":
            raise ValueError(
                f"a backbone of your own takes numbers, and X holds {array.dtype}: encode it first"
            )
        tensor = torch.tensor(array)
    return tensor.float() if tensor.is_floating_point() else tensor


def as_array(x: Tensor) -> NDArray[Any]:
    """Return a tensor of any device, layout and precision as a NumPy array; floats become float64."""
    x = x.detach().cpu().to_dense()
    return x.double().numpy() if x.is_floating_point() else x.numpy()


# -- checks before training, in the way of scikit-learn -------------------------------------------


SMALLEST_RANGE = 1e-150
"""Labels that are closer together are refused: the squares of their differences underflow float64."""


def checked_table(estimator: Any, X: Any, *, reset: bool) -> Any:
    """Return a table whose columns were checked: a DataFrame as it is, anything else as an array.

    With `reset` the estimator stores the names and the number of columns. Otherwise they must match those
    stored before.
    """
    refuse_data_set(X)
    X = as_pandas(X)
    if column_names(X) is None:
        return _checked_array(estimator, X, reset=reset)
    if hasattr(X, "collect") or not hasattr(X, "dtypes"):
        kind = f"{type(X).__module__.split('.')[0]}'s {type(X).__name__}"
        raise TypeError(f"X is {kind}: turn it into a DataFrame of pandas or polars first")
    if reset and 0 in X.shape:
        what = "sample" if len(X) == 0 else "feature"
        raise ValueError(f"Found array with 0 {what}(s) (shape={X.shape}) while a minimum of 1 is required.")
    refuse_repeated(column_names(X) or [], "column")
    for name, kind in X.dtypes.items() if hasattr(X.dtypes, "items") else ():
        if getattr(kind, "kind", "") == "c":
            raise ValueError(f"column {name!r} holds complex numbers: split it into two columns of numbers")
    check_infinity(X)
    validate_data(estimator, X, reset=reset, skip_check_array=True)
    return X


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


def refuse_repeated(names: Sequence[str], what: str) -> None:
    """Raise an error that shows the first name that occurs twice."""
    if len(set(names)) < len(names):
        name = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"{what} name {name!r} occurs twice: rename one of them")


def checked_targets(y: Any) -> NDArray[np.float64]:
    """Return labels as finite float64, (N,) or (N, T); an error names the row of a label that is not."""
    y = as_array(y) if isinstance(y, Tensor) else y
    refuse_repeated(column_names(y) or [], "target")
    kinds = getattr(y, "dtypes", None) if hasattr(y, "columns") else [getattr(y, "dtype", None)]
    for kind in kinds if kinds is not None else []:
        if (held := not_numbers(kind)) is not None:
            raise ValueError(f"y holds {held}")
    try:
        labels = check_array(
            y, ensure_2d=False, allow_nd=True, dtype=np.float64, ensure_all_finite=False, input_name="y"
        )
    except (ValueError, TypeError, OverflowError) as error:
        if isinstance(error, OverflowError):
            raise ValueError(f"y exceeds {LARGEST_TARGET:g}: rescale it") from None
        if "could not convert" in str(error) or ("float()" in str(error) and "must be" in str(error)):
            raise ValueError(f"y must be numbers: {error}") from None
        raise
    bad = ~(np.abs(labels) <= LARGEST_TARGET)
    if bad.any():
        row = int(np.argwhere(bad)[0][0])
        if not np.isfinite(labels[row]).all():
            raise ValueError(
                f"Input y contains NaN or infinity: row {row} is {labels[row]} "
                f"({int(bad.sum())} bad of {labels.size}); drop these rows or fill them"
            )
        raise ValueError(f"y exceeds {LARGEST_TARGET:g} in row {row}: rescale it")
    if labels.ndim > 2:
        raise ValueError(f"y must have the shape (rows,) or (rows, targets), not {labels.shape}")
    for column in labels.reshape(len(labels), -1).T:
        low, high = column.min(), column.max()
        if 0 < (high - low or abs(high)) < SMALLEST_RANGE:
            raise ValueError(
                f"y lies between {low:g} and {high:g}, too close together for float64: rescale it"
            )
    if labels.ndim == 2 and labels.shape[1] == 1:
        warnings.warn(
            "A column-vector y was passed when a 1d array was expected. Please change the shape of y "
            "to (n_samples,), for example using ravel().",
            DataConversionWarning,
            stacklevel=4,  # the caller of `fit`
        )
        labels = labels.ravel()
    return np.asarray(labels)


def target_names(y: Any) -> list[str] | None:
    """Return the names of the targets if y is a DataFrame or a named column, else None."""
    name = getattr(y, "name", None)
    return column_names(y) or (None if name is None else [str(name)])


def checked_eval_set(eval_set: Any) -> tuple[Any, Any]:
    """Return X and y of an ``eval_set``: one pair, or a list of one pair as in boosting libraries."""
    pair = eval_set[0] if isinstance(eval_set, list) and len(eval_set) == 1 else eval_set
    if not isinstance(pair, (tuple, list)) or len(pair) != 2 or isinstance(pair[1], tuple):
        raise ValueError("eval_set must be one pair (X, y)")
    return pair[0], pair[1]
