"""Inputs of any kind that users bring: tables, arrays, sparse matrices, tensors, or several of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import DataLoader, Dataset


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
