"""Turn a table of any columns into a numeric matrix for a network.

Numbers are centred by their median, scaled by their interquartile range and softly bounded, so that one
outlier does not dominate a column. Missing values become 0, with an extra column that marks them. In a table
with other columns than numbers, every column has an encoder of its own.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn

from tailwise.tables.column_encoders import (
    COMPONENTS,
    MISSING,
    AnyColumn,
    CategoryColumn,
    DateColumn,
    NumberColumn,
    TextColumn,
    as_numbers,
    fit_column,
    is_date,
    plain_column,
)
from tailwise.tables.columns import count_others, is_number, shown_cell
from tailwise.tables.inputs import as_pandas, column_names, refuse_repeated

if TYPE_CHECKING:
    import pandas as pd

BOUND = 4.0
"""Scaled numbers stay between minus and plus this, however large they are."""
MAX_DENSE = 500_000_000
"""A sparse matrix with more cells than this is not made dense."""
UNUSUAL_SHARE = 0.05
"""Warn if more than this share of new rows has a missing value or a category that training never had."""
Floats = NDArray[np.float64]
_CHUNK = 65_536
_NO_VALUE = {"", "-", *(text.casefold() for text in MISSING)}
"""Texts that mean a missing value where numbers or dates were, in lower case."""
MAX_FEATURES = 4_000
"""Columns of text, categories or dates have about so many features in all, and each of them at least two."""
CATEGORIES = 40
"""A column with at least so many distinct texts is encoded by its words."""


class ColumnWarning(UserWarning):
    """A warning about many cells of a column. Parts of a table that is read in parts repeat it."""

    def __init__(self, text: str, column: Any) -> None:
        super().__init__(text)
        self.column = column


class NumericEncoder(nn.Module):
    """Scales numbers, bounds them softly and marks missing ones. (N, F) -> (N, F + M)

    M is the number of columns that had missing values at fit. It is a module, so that an exported network
    can contain it; its state is float64.

    >>> encoder = NumericEncoder.fit(np.array([[1.0, 5.0], [2.0, np.nan], [3.0, 7.0]]))
    >>> encoder(torch.tensor([[2.0, float("nan")]], dtype=torch.float64))
    tensor([[0., 0., 1.]])
    """

    center: Tensor
    scale: Tensor
    missing: Tensor
    low: Tensor
    high: Tensor

    def __init__(
        self, center: Floats, scale: Floats, missing: NDArray[np.int64], low: Floats, high: Floats
    ) -> None:
        """missing: (M,) columns that may be missing; low, high: smallest and largest numbers at fit; (F,)"""
        super().__init__()
        if not center.shape == scale.shape == low.shape == high.shape == (center.size,):
            raise ValueError("every number of a row needs a centre, a scale and a range")
        if not (scale > 0).all() or (low > high).any():
            raise ValueError("scales must be positive, and ranges ascend")
        if missing.ndim != 1 or ((missing < 0) | (missing >= center.size)).any():
            raise ValueError("columns that may be missing must be columns")
        arrays = {"center": center, "scale": scale, "missing": missing, "low": low, "high": high}
        for name, array in arrays.items():
            self.register_buffer(name, torch.from_numpy(array))

    @classmethod
    def fit(cls, x: NDArray[np.float64], text: ArrayLike = ()) -> Self:
        """Return an encoder for the columns of a training matrix; NaN is missing. x: (N, F)

        `text` lists the columns that encode words. There, a few large values mean a rare word and not a
        mistake, and the small values of the other rows may be rounding.
        """
        absent = np.isnan(x)
        empty = absent.all(0)
        # Part of a large table is enough for quantiles.
        rows = x if len(x) <= 200_000 else x[np.linspace(0, len(x) - 1, 200_000).astype(np.int64)]
        numbers = np.where(empty, 0.0, rows)
        few = min(max(0.005, 2 / len(rows)), 0.05)
        levels = [few, 0.05, 0.25, 0.5, 0.75, 0.95, 1 - few]
        least, lowest, low, center, high, highest, most = np.nanquantile(numbers, levels, axis=0)
        # A Gaussian's interquartile range is 1.349 standard deviations.
        scale = high / 1.349 - low / 1.349
        with np.errstate(over="ignore", invalid="ignore"):  # squares of numbers beyond 1e154
            spread = np.nanstd(numbers, axis=0)
        # Its middle 99% spans 5.15 of them, its middle 90% spans 3.29. A standard deviation far beyond the
        # former comes from a few mistaken numbers: rare events are more than 1% of the rows.
        mistaken = spread > 1e3 * (most / 5.15 - least / 5.15)
        mistaken[np.asarray(text, np.int64)] = False
        middle = highest / 3.29 - lowest / 3.29
        spread = np.where(mistaken & (middle > 0), middle, spread)
        scale = np.where((scale > 1e-3 * spread) | ~np.isfinite(spread), scale, spread)
        center = np.where(np.isfinite(center), center, 0.0)
        scale = np.where(np.isfinite(scale) & (scale > 0), scale, 1.0)
        columns = np.flatnonzero(absent.any(0))
        low, high = np.nanmin(np.where(empty, 0.0, x), axis=0), np.nanmax(np.where(empty, 0.0, x), axis=0)
        return cls(center, scale, columns, low, high)

    def far(self, x: NDArray[np.float64]) -> NDArray[np.bool_]:
        """Return which numbers lie beyond `limits`. (N, F)"""
        low, high = self.limits
        return np.asarray((x < low) | (x > high))

    @property
    def limits(self) -> tuple[Floats, Floats]:
        """Numbers as far outside the range of a column at fit as that is wide. (F,) each"""
        low, high = self.low.numpy(), self.high.numpy()
        reach = np.maximum(high - low, self.scale.numpy())
        return low - reach, high + reach

    @property
    def out_dim(self) -> int:
        """Number of columns that `forward` returns."""
        return len(self.center) + len(self.missing)

    def forward(self, x: Tensor) -> Tensor:
        """x: (N, F) float64 -> (N, F + M) float32"""
        scaled = (x - self.center) / self.scale
        bounded = scaled / torch.sqrt(1 + (scaled / BOUND) ** 2)
        absent = torch.isnan(bounded)
        filled = torch.where(absent, torch.zeros_like(bounded), bounded)
        return torch.cat([filled, absent[:, self.missing].to(filled.dtype)], dim=1).float()


@dataclass(frozen=True, eq=False)
class TablePreprocessor:
    """Encodes rows of a table as float32 features, in a way learnt from a training table.

    Takes DataFrames (pandas, polars) with numbers, categories, booleans, dates, durations, text and missing
    values, and numeric arrays and sparse matrices.
    """

    columns: tuple[str, ...] | None
    """Names of the columns of a DataFrame."""
    numeric: NumericEncoder
    encoders: tuple[AnyColumn, ...] = ()
    """How each column becomes numbers; none for a table of numbers."""

    def __post_init__(self) -> None:
        names, count = self.names, len(self.numeric.center)
        if self.encoders and tuple(encoder.name for encoder in self.encoders) != self.columns:
            raise ValueError("names and columns differ")
        if names is not None and not len(names) == len(set(names)) == count:
            raise ValueError(f"{len(set(names))} names for {count} numbers of a row")

    @classmethod
    def fit(cls, x: Any) -> Self:
        """Learn from a training table."""
        x = as_pandas(x)
        columns = column_names(x)
        refuse_repeated(columns or [], "column")
        encoders: tuple[AnyColumn, ...] = ()
        if columns is not None and not all(map(is_number, x.dtypes)):
            most = max(2, MAX_FEATURES // count_others(x))
            limits = min(CATEGORIES, most), min(COMPONENTS, most)
            cells = (plain_column(column) for _, column in x.items())
            encoders = tuple(
                fit_column(name, column, *limits) for name, column in zip(columns, cells, strict=True)
            )
            if not any(encoder.outputs for encoder in encoders):
                raise ValueError(
                    f"no column of X holds a value ({', '.join(columns)}): there is nothing to predict from"
                )
        matrix = _joined(x, encoders) if encoders else as_matrix(x)
        words = np.flatnonzero(
            [isinstance(encoder, TextColumn) for encoder in encoders for _ in encoder.outputs]
        )
        names = None if columns is None else tuple(columns)
        return cls(names, NumericEncoder.fit(matrix, words), encoders)

    @cached_property
    def places(self) -> dict[str, list[int]]:
        """The places in `matrix` of each column of the table; none for a column that has no values.

        Columns of an array without names are numbered.
        """
        if not self.encoders:
            names = self.columns or [str(place) for place in range(len(self.numeric.center))]
            return {name: [place] for place, name in enumerate(names)}
        places = iter(range(len(self.numeric.center)))
        return {encoder.name: list(islice(places, len(encoder.outputs))) for encoder in self.encoders}

    @cached_property
    def names(self) -> tuple[str, ...] | None:
        """Names of the columns of `matrix`, if there are any; all are different."""
        if not self.encoders:
            return self.columns
        names: dict[str, None] = {}  # category b_c of a is named like c of a_b
        for name in (name for encoder in self.encoders for name in encoder.outputs):
            while name in names:
                name += "_"
            names[name] = None
        return tuple(names)

    @property
    def out_dim(self) -> int:
        """Number of features per row."""
        return self.numeric.out_dim

    def matrix(self, x: Any) -> Floats:
        """Return rows as numbers: text and dates encoded, nothing scaled, NaN where missing. (N, F)

        A cell of another kind than its column had at fit is treated as missing, with a warning. A column
        in which all cells are of another kind is an error. Also warns of columns that were never missing
        at fit and often are here, and of numbers and categories unlike those at fit if they are frequent.
        """
        x = as_pandas(x)
        raw = self.encoded(x)
        self._warn_of_surprises(x, raw)
        return raw

    def encoded(self, x: Any) -> Floats:
        """Return what `matrix` does for a pandas table, and warn of cells of another kind only. (N, F)"""
        raw = _joined(x, self.encoders) if self.encoders else as_matrix(x)
        if raw.shape[1] != len(self.numeric.center):
            raise ValueError(
                f"X has {raw.shape[1]} features, but the training table had {len(self.numeric.center)}"
            )
        return raw

    def _warn_of_surprises(self, table: Any, raw: Floats) -> None:
        """Warn of columns in which many rows are unlike those at fit."""
        missing, far = np.isnan(raw), self.numeric.far(raw)
        missing[:, self.numeric.missing.numpy()] = False
        encoders = {encoder.name: encoder for encoder in self.encoders}
        for name, places in self.places.items():
            encoder, place = encoders.get(name), places[0] if places else 0
            shown = name if self.columns else place
            never = "was never missing at fit, but is"
            if isinstance(encoder, CategoryColumn):
                new = np.asarray(~raw[:, places].any(1))
                held = np.flatnonzero(new & table[name].notna().to_numpy() if new.any() else new)
                if len(held):
                    never = f"holds values unknown at fit, such as {shown_cell(table[name].iloc[held[0]])},"
                _warn_if_many(new, shown, never, "encoded as no known value", encoder.seen_once)
            elif places and missing[:, place].any():
                _warn_if_many(missing[:, place], shown, never, "filled with the training median")
            if (encoder is None or isinstance(encoder, NumberColumn)) and far[:, place].any():
                low, high, cell = (
                    self.numeric.low[place],
                    self.numeric.high[place],
                    raw[far[:, place], place][0],
                )
                example = f"such as {cell:.6g}, far outside {low:.6g} to {high:.6g} at fit,"
                _warn_if_many(far[:, place], shown, f"holds numbers {example}")

    def transform(self, x: Any) -> NDArray[np.float32]:
        """Return the features of each row, with the warnings of `matrix`. (N, out_dim)"""
        return self.scaled(self.matrix(x))

    def scaled(self, raw: Floats) -> NDArray[np.float32]:
        """Return the features of rows of `matrix`. (N, F) -> (N, out_dim)"""
        out = np.empty((len(raw), self.out_dim), np.float32)
        with torch.no_grad():
            for start in range(0, len(raw), _CHUNK):
                part = torch.tensor(raw[start : start + _CHUNK])  # a copy: raw may be read-only
                out[start : start + _CHUNK] = self.numeric(part).numpy()
        return out


def _joined(table: pd.DataFrame, encoders: Sequence[AnyColumn]) -> Floats:
    """Return the numbers of all columns, with a warning of cells that could not be read. (N, F)"""
    columns = {str(name): cells for name, cells in table.items()}
    blocks: list[Any] = [np.empty((len(table), 0))]
    for encoder in encoders:
        if encoder.name not in columns:
            raise ValueError(f"X has no column {encoder.name!r}, which the training table had")
        column = plain_column(columns[encoder.name])
        blocks.append(encoder.encode(column))
        if isinstance(encoder, NumberColumn) and not is_number(column.dtype):
            _warn_of_cells(column, encoder.name, np.isnan(blocks[-1][:, 0]), "numbers")
        if isinstance(encoder, DateColumn) and not is_date(column.dtype):
            _warn_of_cells(column, encoder.name, np.isnan(blocks[-1][:, 0]), "dates")
    return np.hstack(blocks)


def as_matrix(x: Any) -> Floats:
    """Return a numeric table as a contiguous float64 matrix; an infinite number is an error. (N, F)"""
    names = column_names(x)
    if hasattr(x, "toarray"):
        if x.shape[0] * x.shape[1] > MAX_DENSE:
            raise ValueError(
                f"a sparse matrix of {x.shape[0]} x {x.shape[1]} is too large to make dense: "
                "reduce it first, for example with TruncatedSVD"
            )
        x = x.toarray()
    if names is not None:
        try:
            x = x.astype("float64").to_numpy()
        except (ValueError, TypeError):
            columns = [as_numbers(column) for _, column in x.items()]
            for (name, column), numbers in zip(x.items(), columns, strict=True):
                _warn_of_cells(column, str(name), np.isnan(numbers), "numbers")
            x = np.column_stack(columns)
    matrix = np.ascontiguousarray(x, dtype=np.float64)
    infinite = np.isinf(matrix).any(0)
    if infinite.any():  # text such as "inf", a Python object, or a number beyond float64
        place = int(infinite.argmax())
        which = repr(names[place]) if names is not None else place
        raise ValueError(f"column {which} holds an infinity or a number too large: make it missing (NaN)")
    return matrix


def _warn_of_cells(column: pd.Series[Any], name: str, unread: NDArray[np.bool_], held: str) -> None:
    """Warn of cells that hold a value which could not be read; raise an error if no cell could."""
    cells = column.to_numpy()
    rows = np.flatnonzero(unread & column.notna().to_numpy()).tolist()
    lost = [row for row in rows if str(cells[row]).strip().casefold() not in _NO_VALUE]
    if not lost:
        return
    kind = column.index.name  # such as the lines of a file
    where = f"row {lost[0]}" if kind is None else f"{kind} {column.index[lost[0]]}"
    problem = f"column {name!r} held {held} at fit, but {where} holds {shown_cell(cells[lost[0]])}"
    if unread.all():
        raise ValueError(f"{problem} ({len(lost)} such of {len(cells)}): correct it or make it missing")
    text = f"{problem} ({len(lost)} such of {len(cells)}): treated as missing"
    warnings.warn(ColumnWarning(text, name), stacklevel=2)


def _warn_if_many(
    odd: NDArray[np.bool_], column: Any, problem: str, remedy: str = "", expected: float = 0.0
) -> None:
    """Warn of a column if the odd rows are too many for chance; `expected` is their share at fit.

    One or two rows are not too many, unless there are no others: `fit` holds out parts that are small.
    """
    count, rows = int(odd.sum()), len(odd)
    chance = expected + 3 * (expected / max(rows, 1)) ** 0.5
    if count > max(UNUSUAL_SHARE, chance) * rows and (count > 2 or count == rows):
        done = f": {remedy}" if remedy else ""
        text = (
            f"column {column!r} {problem} in {count} of {rows} rows{done}; intervals do not account for this"
        )
        warnings.warn(ColumnWarning(text, column), stacklevel=2)
