"""Distances between rows of tables with numbers and categories, and the nearest rows.

Numbers are divided by their column's range, and categories either match or differ, as in HEOM (Wilson
and Martinez, Improved heterogeneous distance functions, JAIR 1997). The matrix of all pairs is never
stored.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from tailwise.lookup import nearest

Array = NDArray[np.float64]
Rows = NDArray[np.intp]

BLOCK_ELEMENTS = 2**22
"""Distances in memory at a time (32 MiB), whatever the number of rows."""
SAFE_SAMPLE = 1000
"""Larger bumps estimate the median distance in SMOGN's safe radius from a sample of this many rows."""
_MISSING_STEP = np.sqrt(0.75)  # puts a missing value at distance 1 from both ends of the range


class MixedTable:
    """A table as numbers (NaN if missing) and codes of categories (-1 if missing); `build` goes back."""

    def __init__(self, table: Any, categorical: Sequence[Any] | None) -> None:
        self.is_array = not isinstance(table, pd.DataFrame)
        self.frame = _as_frame(table) if self.is_array else table
        names = list(self.frame.columns)
        listed = [] if categorical is None else list(categorical)
        unknown = [name for name in listed if name not in names]
        if unknown:
            hint = nearest(str(unknown[0]), map(str, names)) if names else ": there are no columns"
            raise ValueError(f"no column {unknown[0]!r} to treat as categorical{hint}")
        numeric = [name not in listed and _is_number(kind) for name, kind in self.frame.dtypes.items()]
        self.continuous = [i for i, is_number in enumerate(numeric) if is_number]
        self.discrete = [i for i, is_number in enumerate(numeric) if not is_number]
        self.numbers = self._numbers()  # (N, P)
        self.codes = self._codes()  # (N, C)
        self._measure()

    def __len__(self) -> int:
        return len(self.frame)

    def _numbers(self) -> Array:
        numbers = np.empty((len(self), len(self.continuous)))
        for to, column in enumerate(self.continuous):
            numbers[:, to] = self.frame.iloc[:, column].to_numpy(np.float64, na_value=np.nan)
        endless = np.isinf(numbers)
        if endless.any():
            row, to = np.argwhere(endless)[0]
            raise ValueError(
                f"column {self.frame.columns[self.continuous[to]]!r} is infinite in row {row}: replace it by "
                "a finite number or a missing value"
            )
        return numbers

    def _codes(self) -> NDArray[np.intp]:
        codes = np.empty((len(self), len(self.discrete)), np.intp)
        for to, column in enumerate(self.discrete):
            try:
                codes[:, to] = pd.factorize(self.frame.iloc[:, column])[0]
            except TypeError:
                raise ValueError(
                    f"column {self.frame.columns[column]!r} holds values that cannot be compared, such as "
                    "lists: split it into columns or drop it"
                ) from None
        return codes

    def _measure(self) -> None:
        """Compute the range and standard deviation of each number. Halving keeps huge ranges finite."""
        present = ~np.isnan(self.numbers)
        self.low = np.min(self.numbers, 0, initial=np.inf, where=present)
        self.high = np.max(self.numbers, 0, initial=-np.inf, where=present)
        self.low[~present.any(0)] = self.high[~present.any(0)] = 0.0
        self.half = self.high / 2 - self.low / 2
        self.has_gaps = ~present.all(0)
        unit = self._unit(self.numbers)
        count = np.maximum(present.sum(0), 1)
        mean = np.sum(unit, 0, where=present) / count
        self.std = 2 * np.sqrt(np.sum((unit - mean) ** 2, 0, where=present) / count) * self.half

    def _unit(self, numbers: Array) -> Array:
        """Map the range of each column to -1/2..1/2; a constant column becomes 0."""
        middle = self.high / 4 + self.low / 4
        return np.asarray((numbers / 2 - middle) / np.where(self.half > 0, self.half, 1.0))

    def embed(self, numbers: Array) -> Array:
        """Return points whose Euclidean distance is the distance between the numbers. (M, P) -> (M, P')

        Each column is divided by its range. A missing value becomes the middle of the range, shifted
        along an extra dimension: its distance is 0 to another missing value and sqrt(3)/2 to 1 to a
        number.
        """
        unit = self._unit(numbers)
        gaps = np.isnan(unit)
        return np.hstack([np.where(gaps, 0.0, unit), _MISSING_STEP * gaps[:, self.has_gaps]])

    def build(self, kept: Rows, numbers: Array, sources: Rows) -> Any:
        """Return the kept rows, then new ones: numbers (M, P) and rows to copy categories from (M, C)."""
        columns: list[Any] = [None] * self.frame.shape[1]
        for at, column in enumerate(self.discrete):
            rows = np.concatenate([kept, sources[:, at]])
            columns[column] = self.frame.iloc[:, column].iloc[rows].reset_index(drop=True)
        for at, column in enumerate(self.continuous):
            old = self.frame.iloc[:, column].iloc[kept].reset_index(drop=True)
            values = numbers[:, at]
            if pd.api.types.is_integer_dtype(old.dtype):
                values = np.round(values)
            parts = [old, pd.Series(values).astype(old.dtype)] if len(values) else [old]
            columns[column] = pd.concat(parts, ignore_index=True)
        index = pd.RangeIndex(len(kept) + len(numbers))
        table = pd.concat(columns, axis=1) if columns else pd.DataFrame(index=index)
        table.columns = self.frame.columns
        return table.to_numpy() if self.is_array else table


def _as_frame(table: Any) -> pd.DataFrame:
    array = np.asarray(table)
    if array.ndim != 2:
        raise ValueError(
            f"resampling needs a table of rows x columns, got an array of shape {array.shape}: "
            "flatten images and sequences, or resample their feature vectors"
        )
    if array.dtype.kind not in "biuf":
        raise ValueError(f"an array must hold numbers, got {array.dtype}: pass a DataFrame instead")
    return pd.DataFrame(array if array.dtype.kind == "f" else array.astype(np.float64))


def _is_number(kind: Any) -> bool:
    types = pd.api.types
    return types.is_numeric_dtype(kind) and not (types.is_bool_dtype(kind) or types.is_complex_dtype(kind))


@dataclass(frozen=True)
class Points:
    """Rows as points and categories. The squared distance adds one per category that differs."""

    points: Array  # (N, P')
    codes: NDArray[np.intp]  # (N, C)

    def __len__(self) -> int:
        return len(self.points)

    def take(self, rows: Rows | slice) -> Points:
        return Points(self.points[rows], self.codes[rows])

    def distance(self, other: Points) -> Array:
        """Return the distance of each row to the same row of `other`. (N,)"""
        gap = self.points - other.points
        return np.asarray(np.sqrt(np.einsum("ij,ij->i", gap, gap) + (self.codes != other.codes).sum(1)))

    def squared_distances(self, other: Points) -> Array:
        """Return the squared distances of all pairs, up to rounding, by one matrix product. (N, M)"""
        squares = -2 * (self.points @ other.points.T)
        squares += np.einsum("ij,ij->i", self.points, self.points)[:, None]
        squares += np.einsum("ij,ij->i", other.points, other.points)
        for mine, theirs in zip(self.codes.T, other.codes.T, strict=True):
            squares += mine[:, None] != theirs
        return np.maximum(squares, 0.0, out=squares)

    def blocks(self, queries: Rows, width: int) -> Iterator[tuple[slice, Rows]]:
        """Split queries into pieces so that `width` numbers per query fit into a block."""
        step = max(1, BLOCK_ELEMENTS // max(width, 1))
        for start in range(0, queries.size, step):
            piece = slice(start, min(start + step, queries.size))
            yield piece, queries[piece]

    def neighbours(self, queries: Rows, k: int) -> tuple[Rows, Array]:
        """Return the k nearest other rows of each queried row, nearest first, with distances. (Q, k) twice"""
        nearest_rows = np.empty((queries.size, k), np.intp)
        for piece, rows in self.blocks(queries, len(self)):
            squares = self.take(rows).squared_distances(self)
            squares[np.arange(rows.size), rows] = np.inf
            nearest_rows[piece] = np.argpartition(squares, k - 1, axis=1)[:, :k]
        # Distances are computed again: matrix products lose digits between close rows.
        here = self.take(queries)
        exact = np.stack([here.distance(self.take(column)) for column in nearest_rows.T], axis=1)
        order = np.lexsort((nearest_rows, exact))
        return np.take_along_axis(nearest_rows, order, 1), np.take_along_axis(exact, order, 1)

    def safe_radius(self, queries: Rows, rng: np.random.Generator) -> Array:
        """Return half the median distance from each queried row to the other rows. (Q,)"""
        others = np.arange(len(self))
        if len(self) > SAFE_SAMPLE:
            others = np.sort(rng.choice(len(self), SAFE_SAMPLE, replace=False))
        reference = self.take(others)
        count = others.size
        middle = sorted({max(count - 2, 0) // 2, (count - 1) // 2, count // 2})
        radius = np.empty(queries.size)
        for piece, rows in self.blocks(queries, count):
            squares = self.take(rows).squared_distances(reference)
            at = np.minimum(np.searchsorted(others, rows), count - 1)
            itself = others[at] == rows
            squares[np.flatnonzero(itself), at[itself]] = np.inf
            squares.partition(middle, axis=1)
            size = count - itself
            pick = np.arange(rows.size)
            median = np.sqrt(squares[pick, (size - 1) // 2]) + np.sqrt(squares[pick, size // 2])
            radius[piece] = median / 4
        return radius
