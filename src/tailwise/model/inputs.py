"""What a model makes of X: a table, pictures, or tensors for a backbone of the user's own.

These classes are the only place that asks which kind X is. Each checks X, learns its encoding from training
rows, and encodes rows once for networks, base and intervals alike.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from torch import Tensor

from tailwise.calibration.interval_scores import MAX_GROUPS, ColumnGroups
from tailwise.lookup import check_name
from tailwise.tables.columns import check_column, check_infinity
from tailwise.tables.encode import TablePreprocessor
from tailwise.tables.inputs import as_tensors, checked_table, row_count
from tailwise.training.batches import Transform, apply_to

if TYPE_CHECKING:
    import pandas as pd

    from tailwise.model.model import Model

Bytes = NDArray[np.uint8]
Size = tuple[int, int]
IN_MEMORY = 2**28
"""Files whose decoded pictures take at most this many bytes are decoded in memory, others to the cache."""


def as_pictures(X: Any, size: Size, *, like: bool = False) -> Bytes:
    """Return X as bytes (N, height, width, 3).

    X has pictures as such an array or tensor, or the paths of files: a list, an array, a column or a table
    with one column. Files are decoded at `size` (height, width); with `like`, arrays must have it too. A path
    may lead into a zip archive, as ``faces.zip/1.jpg``.
    """
    if hasattr(X, "columns"):
        if len(X.columns) != 1:
            raise ValueError(
                f"X has {len(X.columns)} columns: a backbone for pictures takes one, the paths of the files"
            )
        X = X[X.columns[0]]
    if isinstance(X, Tensor):
        X = X.detach().cpu()
    pictures = X if isinstance(X, np.ndarray) else np.asarray(X)
    if len(pictures) == 0:
        raise ValueError("X has no pictures")
    if pictures.ndim == 1 and pictures.dtype.kind in "OUT":
        return _decoded(pictures, size)
    if pictures.dtype != np.uint8 or pictures.ndim != 4 or pictures.shape[-1] != 3:
        raise ValueError(
            "a backbone for pictures takes paths, or bytes (uint8) of shape (pictures, height, width, 3), "
            f"not {pictures.dtype} of shape {pictures.shape}"
        )
    if like and pictures.shape[1:3] != size:
        raise ValueError(
            f"the pictures have {pictures.shape[1]} x {pictures.shape[2]} pixels, but the model "
            f"was fitted on {size[0]} x {size[1]}: resize them"
        )
    return pictures


def _decoded(files: NDArray[Any], size: Size) -> Bytes:
    import tempfile
    from pathlib import Path

    from tailwise.images import decode_pictures

    for row, file in enumerate(files):
        if not isinstance(file, (str, os.PathLike)):
            raise ValueError(f"row {row} of X is {file!r}, not the path of a picture")
    paths = [os.fspath(file) for file in files]
    if len(paths) * size[0] * size[1] * 3 > IN_MEMORY:
        return decode_pictures(paths, size=size).pixels
    with tempfile.TemporaryDirectory() as folder:
        return np.array(decode_pictures(paths, size=size, cache=Path(folder)).pixels)


def picture_tensor(pictures: Bytes) -> Tensor:
    """Return pictures as a tensor, without a copy where their memory may be written to."""
    writable = pictures.flags.writeable and pictures.flags.c_contiguous
    return torch.from_numpy(pictures if writable else np.array(pictures))


def augmentation(name: str | None) -> Transform | None:
    """Return the named augmentation of training pictures; an unknown name is an error."""
    if name is None:
        return None
    from tailwise.images.augmentation import AUGMENTATIONS

    check_name("augment", name, AUGMENTATIONS)
    return AUGMENTATIONS[name]


def picture_config(rows: int, cuda: bool) -> dict[str, Any]:
    """Return how to train a network on that many pictures, as arguments of `TrainConfig`."""
    return {
        "epochs": int(np.clip(600_000 / max(rows, 1), 15, 60)),
        "batch_size": int(np.clip(2 ** np.round(np.log2(max(rows, 1) / 50)), 16, 128)),
        "lr": 1e-3,
        "schedule": "cosine",
        "warmup": 1.0,
        "precision": "bf16" if cuda else "fp32",
    }


Floats = NDArray[np.float64]
Rows = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Encoded:
    """Rows as a model takes them."""

    matrix: Floats
    """Rows of a table as numbers, which a base takes; without columns if X is no table. (N, F)"""
    groups: Rows
    """Codes in the column that intervals go by, 0 without one. (N,)"""
    source: TablePreprocessor | Any
    """What scales the numbers for networks; if X is no table, what a backbone takes."""
    given: Floats | None = None
    """Predictions of a base of the user's own. (N, T)"""

    def __len__(self) -> int:
        return len(self.groups)

    @cached_property
    def x(self) -> Any:
        """Inputs of a network: a tensor, or what a backbone of the user's own takes."""
        if isinstance(self.source, TablePreprocessor):
            return torch.from_numpy(self.source.scaled(self.matrix))
        return self.source

    def parts(self, size: int) -> Iterator[Encoded]:
        """Yield the rows in parts of at most so many."""
        for start in range(0, len(self), size):
            yield self.take(slice(start, start + size))

    def take(self, rows: Rows | slice) -> Encoded:
        """Return some of the rows."""
        source, given = self.source, self.given
        if not isinstance(source, TablePreprocessor):
            source = apply_to(source, lambda t: t[rows])
        return Encoded(self.matrix[rows], self.groups[rows], source, None if given is None else given[rows])


class Columns(BaseEstimator):  # type: ignore[misc,unused-ignore]
    """The names and the number of columns, as scikit-learn's checks remember them."""

    n_features_in_: int
    feature_names_in_: NDArray[Any]

    @property
    def described(self) -> list[str] | int:
        """The names of the columns, or their number if they have none."""
        names = getattr(self, "feature_names_in_", None)
        return self.n_features_in_ if names is None else [str(name) for name in names]


Columns.__name__ = "TailRegressor"  # which scikit-learn's messages name


def column_of(X: Any, column: Any, what: str) -> Any:
    """Return values that are given as an array, or as the name of a column of X."""
    if not isinstance(column, str):
        return column
    if not hasattr(X, "columns"):
        raise ValueError(f"{what}={column!r} names a column, but X has no names: pass the values")
    kind = what if what == "column" else f"column of {what}"
    check_name(kind, column, [str(name) for name in X.columns])
    return X[column]


@dataclass(frozen=True, eq=False)
class TableInputs:
    """Tables of numbers, categories, dates and text, with missing values."""

    by: str | int | None = None
    """Column whose groups of rows have intervals of their own."""
    groups: ColumnGroups = ColumnGroups()
    preprocessor: TablePreprocessor | None = None
    columns: Columns = field(default_factory=Columns)

    is_table: ClassVar[bool] = True

    def see(self, X: Any) -> tuple[TableInputs, Any]:
        """Return inputs that know the columns and the groups of a table, and the table."""
        columns, groups = Columns(), ColumnGroups()
        X = checked_table(columns, X, reset=True)
        if self.by is not None:
            groups = ColumnGroups.of(_table_column(X, self.by), self.by, at_most=MAX_GROUPS)
        return replace(self, columns=columns, groups=groups), X

    def fit(self, X: Any) -> TableInputs:
        """Return inputs with encodings learnt from a table."""
        return replace(self, preprocessor=TablePreprocessor.fit(X))

    def checked(self, X: Any) -> Any:
        """Return a table with the columns of training."""
        return checked_table(self.columns, X, reset=False)

    def encode(self, X: Any) -> Encoded:
        """Return features, numbers and groups of each row."""
        matrix, groups = self.encoder.matrix(X), np.zeros(row_count(X), np.int64)
        if self.groups.names:
            groups = self.groups.codes(_table_column(X, self.groups.column))
        return Encoded(matrix, groups, self.encoder)

    @property
    def encoder(self) -> TablePreprocessor:
        """The fitted encoding of the table."""
        assert self.preprocessor is not None
        return self.preprocessor

    def numbers(self, X: Any) -> Floats:
        """Return rows as numbers, in blocks of columns that `places` names. (N, F), or (N, F + 1) with groups

        The groups are the last column.
        """
        rows = X if isinstance(X, Encoded) else encoded(self, X)
        return np.column_stack([rows.matrix, rows.groups]) if self.groups.names else rows.matrix

    def from_numbers(self, numbers: Floats) -> Encoded:
        """Return rows of `numbers` as a model takes them."""
        if not self.groups.names:
            return Encoded(numbers, np.zeros(len(numbers), np.int64), self.encoder)
        return Encoded(np.ascontiguousarray(numbers[:, :-1]), numbers[:, -1].astype(np.int64), self.encoder)

    @property
    def places(self) -> dict[str, list[int]]:
        """The places in `numbers` of each column of the table."""
        places = dict(self.encoder.places)
        if self.groups.names:
            column = self.groups.column
            name = column if isinstance(column, str) else list(places)[column]
            places[name] = [*places[name], len(self.encoder.numeric.center)]
        return places


def _table_column(X: Any, column: str | int) -> Any:
    """A column of a checked table, by name or, if it has no names, by number. (N,)"""
    names = [str(name) for name in getattr(X, "columns", ())]
    if isinstance(column, str):
        if not names:
            raise ValueError(f"conformal_by={column!r} names a column, but X has no names: give its number")
        check_name("column of conformal_by", column, names)
        column = names.index(column)
    if column >= X.shape[1]:
        raise ValueError(f"conformal_by={column} is not one of {X.shape[1]} columns")
    if names:
        return X.iloc[:, column]
    values = X[:, [column]]
    return (values.toarray() if hasattr(values, "toarray") else values)[:, 0]


@dataclass(frozen=True, eq=False)
class TensorInputs:
    """What a backbone of the user's own takes: a tensor, or a tuple or a mapping of them."""

    columns: Columns = field(default_factory=Columns)

    is_table: ClassVar[bool] = False
    groups: ClassVar[ColumnGroups] = ColumnGroups()

    def see(self, X: Any) -> tuple[TensorInputs, Any]:
        """Return these inputs, and X as it is."""
        return self, X

    def fit(self, X: Any) -> TensorInputs:
        """Return these inputs: there is nothing more to learn."""
        return self

    def checked(self, X: Any) -> Any:
        """Return X as it is."""
        return X

    def encode(self, X: Any) -> Encoded:
        """Return X as tensors."""
        return _without_table(as_tensors(X))


@dataclass(frozen=True, eq=False)
class PictureInputs(TensorInputs):
    """Pictures as bytes (N, height, width, 3), or the paths of their files."""

    size: tuple[int, int] = (224, 224)
    """Height and width: first at which files are decoded, later those of all pictures."""

    def see(self, X: Any) -> tuple[PictureInputs, Any]:
        """Return inputs that know the size of the pictures, and the pictures as bytes."""
        columns, pictures = Columns(), as_pictures(X, self.size)
        columns.n_features_in_ = 1
        if hasattr(X, "columns"):
            columns.feature_names_in_ = np.array([str(X.columns[0])], dtype=object)
        return PictureInputs(columns, (pictures.shape[1], pictures.shape[2])), pictures

    def checked(self, X: Any) -> Any:
        """Return pictures of the known size as bytes."""
        return as_pictures(X, self.size, like=True)

    def encode(self, X: Any) -> Encoded:
        """Return pictures as a tensor."""
        return _without_table(picture_tensor(X))


def _without_table(x: Any) -> Encoded:
    rows = row_count(x)
    return Encoded(np.empty((rows, 0)), np.zeros(rows, np.int64), x)


Inputs = TableInputs | TensorInputs
"""What a model knows of X. It is learnt in two steps, columns by `see` and encodings by `fit`.

- ``see(X)`` returns inputs that know the columns of X, and X as ``checked`` returns it.
- ``fit(X)`` returns inputs that can encode, learnt from checked training rows.
- ``checked(X)`` returns other rows in a form that ``encode`` takes, or says what does not fit.
- ``encode(X)`` returns checked rows as `Encoded`.
"""


def encoded(inputs: Inputs, X: Any) -> Encoded:
    """Check and encode rows to predict; no rows are an error."""
    X = inputs.checked(X)
    if row_count(X) == 0:
        raise ValueError("no rows to predict")
    return inputs.encode(X)


# -- which columns of a table are a model's inputs and targets ------------------------------------


def match_inputs(model: Model, table: pd.DataFrame, name: str) -> pd.DataFrame:
    """Return the columns that the model was trained on, in its order; `name` names the table in errors."""
    needed = [str(column) for column in getattr(model.inputs.columns, "feature_names_in_", [])]
    for column in needed:
        try:
            check_column(table, column, name)
        except ValueError as error:
            text = str(error) if str(error).endswith("?") else f"{error}."
            raise ValueError(f"{text} The model was trained with it.") from None
    inputs = table[needed] if needed else table
    check_infinity(inputs, name)
    return inputs


def match_targets(model: Model, table: pd.DataFrame, given: Sequence[str], name: str) -> dict[str, int]:
    """Return the columns of true labels, each with the number of the model's target that it belongs to.

    `given` names targets of the model, or a column for each of its targets in their order. If it is empty,
    the columns are those with the names of the model's targets. For a model without target names it is the
    only column that is not an input.
    """
    names = list(model.names or ())
    for place, column in enumerate(given):
        if column in given[:place]:
            raise ValueError(f"column {column!r} is given as a target twice")
    if given and set(given) <= set(names):
        return {column: names.index(column) for column in given}
    if given and len(given) == len(model.targets):
        return {column: place for place, column in enumerate(given)}
    if given:
        listed = ", ".join(names) if names else f"{len(model.targets)} without a name"
        raise ValueError(
            f"the model's targets are {listed}: name some of them, or a column for each in order"
        )
    titles = [str(column) for column in table.columns]
    for column in names:
        if column not in titles:
            which = "the model's target" if len(names) == 1 else "one of the model's targets"
            raise ValueError(f"{name} has no column {column!r}, {which}: name the column of true labels")
    if names:
        return {column: place for place, column in enumerate(names)}
    inputs = {str(column) for column in getattr(model.inputs.columns, "feature_names_in_", [])}
    others = [title for title in titles if title not in inputs]
    if len(others) == 1 == len(model.targets):
        return {others[0]: 0}
    what = f"it may be {', '.join(others[:6])}" if others else "it has only the model's inputs"
    raise ValueError(f"which column of {name} is the target? {what}: name the column of true labels")
