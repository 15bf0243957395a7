"""Turn a table of any columns into a numeric matrix for a network.

Numbers are centred by their median, scaled by their interquartile range and softly bounded, so that one
outlier does not dominate a column. Missing values become 0, with an extra column that marks them. Text,
categories and dates go through encoders that skrub fits, which is imported only if a table has such columns.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from tailwise.tables.check import refuse_repeated
from tailwise.tables.column_encoders import COMPONENTS, ColumnEncoder, fit_encoders
from tailwise.tables.columns import count_others, is_number, shown_cell
from tailwise.tables.inputs import column_names

if TYPE_CHECKING:
    import pandas as pd

BOUND = 4.0
"""Scaled numbers stay between minus and plus this, however large they are."""
MAX_DENSE = 500_000_000
"""A sparse matrix with more cells than this is not made dense."""
LARGEST = 1e38
"""In a table with text, larger numbers are cut to this, because skrub computes in float32."""
UNUSUAL_SHARE = 0.05
"""Warn if more than this share of new rows has a missing value or a category that training never had."""
_CHUNK = 65_536
_NO_VALUE = {"", "?", "...", "-", "na", "n/a", "#na", "#n/a", "nan", "null", "none", "<na>"}
"""Texts that mean a missing value, in lower case."""


MANY_COLUMNS = 100
"""With more columns of text, categories or dates, each gets fewer features, and a line says how long they
take."""
MAX_FEATURES = 4_000
"""Such columns have about so many features in all, and each of them at least two."""
CATEGORIES = 40
"""A column with at least so many distinct texts is encoded by its words."""
_log = logging.getLogger(__name__)


class NumericEncoder(nn.Module):
    """Scales numbers, bounds them softly and marks missing ones. (N, F) -> (N, F + M)

    M is the number of columns that had missing values at fit. It is a module, so that an exported network
    can contain it; its state is float64.

    >>> encoder = NumericEncoder.fit(np.array([[1.0, 5.0], [2.0, np.nan], [3.0, 7.0]]))
    >>> encoder(torch.tensor([[2.0, float("nan")]], dtype=torch.float64))
    tensor([[0., 0., 1.]])
    """

    def __init__(self, center: Tensor, scale: Tensor, missing: Tensor) -> None:
        super().__init__()
        self.center: Tensor
        self.scale: Tensor
        self.missing: Tensor
        self.register_buffer("center", center)  # (F,)
        self.register_buffer("scale", scale)  # (F,)
        self.register_buffer("missing", missing)  # (M,) columns that may be missing

    @classmethod
    def fit(cls, x: NDArray[np.float64], text: Sequence[int] = ()) -> Self:
        """Return an encoder for the columns of a training matrix; NaN is missing. x: (N, F)

        `text` lists the columns that encode words. There, a few large values mean a rare word and not a
        mistake, and the small values of the other rows may be rounding.
        """
        absent = np.isnan(x)
        empty = absent.all(0)
        # Part of a large table is enough for quantiles.
        rows = x if len(x) <= 200_000 else x[np.linspace(0, len(x) - 1, 200_000).astype(np.int64)]
        known = np.where(empty, 0.0, rows)
        few = min(max(0.005, 2 / len(rows)), 0.05)
        levels = [few, 0.05, 0.25, 0.5, 0.75, 0.95, 1 - few]
        least, lowest, low, center, high, highest, most = np.nanquantile(known, levels, axis=0)
        # A Gaussian's interquartile range is 1.349 standard deviations.
        scale = high / 1.349 - low / 1.349
        with np.errstate(over="ignore", invalid="ignore"):  # squares of numbers beyond 1e154
            spread = np.nanstd(known, axis=0)
        # Its middle 99% spans 5.15 of them, its middle 90% spans 3.29. A standard deviation far beyond the
        # former comes from a few mistaken numbers: rare events are more than 1% of the rows.
        mistaken = spread > 1e3 * (most / 5.15 - least / 5.15)
        mistaken[list(text)] = False
        middle = highest / 3.29 - lowest / 3.29
        spread = np.where(mistaken & (middle > 0), middle, spread)
        scale = np.where((scale > 1e-3 * spread) | ~np.isfinite(spread), scale, spread)
        center = np.where(np.isfinite(center), center, 0.0)
        scale = np.where(np.isfinite(scale) & (scale > 0), scale, 1.0)
        columns = np.flatnonzero(absent.any(0))
        return cls(torch.from_numpy(center), torch.from_numpy(scale), torch.from_numpy(columns))

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


class TablePreprocessor:
    """Encodes rows of a table as float32 features, in a way learnt from a training table.

    Takes DataFrames (pandas, polars) with numbers, categories, booleans, dates, text and missing
    values, and numeric arrays and sparse matrices.
    """

    numeric: NumericEncoder
    columns: list[str] | None = None
    encoders: tuple[ColumnEncoder, ...] = ()
    """How each column becomes numbers; none for a table of numbers."""
    library: str = "pandas"
    """Whose DataFrame the encoders take: ``"pandas"`` or ``"polars"``."""

    def fit(self, x: Any) -> Self:
        """Learn from a training table and return self."""
        self.columns, self.library = column_names(x), "pandas"
        refuse_repeated(self.columns or [], "column")
        if not _all_numeric(x):
            others = count_others(x)
            self.library, x = _library(x), _with_plain_columns(x)
            each = max(2, MAX_FEATURES // others)
            if others > MANY_COLUMNS:
                _log.info(
                    "encoding %d columns that are not numbers, each as at most %d features: fitting and "
                    "saving take about a second for every 3 of them; leave out columns that do not matter",
                    others,
                    min(CATEGORIES, each),
                )
            self.encoders = fit_encoders(x, min(CATEGORIES, each), min(COMPONENTS, each))
        matrix = self._encoded(x)
        if matrix.shape[1] == 0:
            raise ValueError(
                f"no column of X holds a value ({', '.join(self.columns or [])}): "
                "there is nothing to predict from"
            )
        components = [place for places in self.made_of("high_cardinality").values() for place in places]
        self.numeric = NumericEncoder.fit(matrix, components)
        once = {
            name: int((matrix[:, places].sum(0) == 1).sum()) / len(matrix)
            for name, places in self.made_of("low_cardinality").items()
        }
        self.encoders = tuple(replace(e, seen_once=once.get(e.name, 0.0)) for e in self.encoders)
        return self

    def made_of(self, *kinds: str) -> dict[str, list[int]]:
        """The places in `matrix` of what columns of these kinds became, in the order of the kinds."""
        places = self.places if self.encoders else {}
        return {e.name: places[e.name] for kind in kinds for e in self.encoders if e.kind == kind}

    @property
    def places(self) -> dict[str, list[int]]:
        """The places in `matrix` of each column of the table; none for a column that has no values.

        Columns of an array without names are numbered.
        """
        if not self.encoders:
            names = self.columns or [str(place) for place in range(len(self.numeric.center))]
            return {name: [place] for place, name in enumerate(names)}
        ends = np.cumsum([len(encoder.outputs) for encoder in self.encoders]).tolist()
        return {
            e.name: list(range(end - len(e.outputs), end)) for e, end in zip(self.encoders, ends, strict=True)
        }

    @property
    def names(self) -> list[str] | None:
        """Names of the columns of `matrix`, if there are any."""
        return [name for encoder in self.encoders for name in encoder.outputs] or self.columns

    @property
    def out_dim(self) -> int:
        """Number of features per row."""
        return self.numeric.out_dim

    def matrix(self, x: Any) -> NDArray[np.float64]:
        """Return rows as numbers: text and dates encoded, nothing scaled, NaN where missing. (N, F)

        A cell of another kind than its column had at fit is treated as missing, with a warning. A column
        in which all cells are of another kind is an error. Also warns of columns that were never missing
        at fit and often are here, and of new categories if they are frequent.
        """
        x = self.plain(x)
        raw = self.encoded(x)
        self._warn_of_missing(raw)
        self._warn_of_new_categories(x, raw)
        return raw

    def plain(self, x: Any) -> Any:
        """Return a table in the types that `encoded` takes."""
        return _with_plain_columns(_of_library(x, self.library)) if self.encoders else x

    def encoded(self, x: Any) -> NDArray[np.float64]:
        """Return what `matrix` does for a `plain` table, and warn of cells of another kind only. (N, F)"""
        raw = self._encoded(x)
        if raw.shape[1] != len(self.numeric.center):
            raise ValueError(
                f"X has {raw.shape[1]} features, but the training table had {len(self.numeric.center)}"
            )
        return raw

    def _encoded(self, table: Any) -> NDArray[np.float64]:
        if not self.encoders:
            return as_matrix(table)
        lost = [encoder.name for encoder in self.encoders if encoder.name not in table.columns]
        if lost:
            raise ValueError(f"X has no column {lost[0]!r}, which the training table had")
        made = [np.empty((len(table), 0))]
        for encoder in self.encoders:
            if encoder.outputs:
                column = table[encoder.name]
                numbers = as_matrix(encoder.encode(column))
                _warn_of_unread_cells(encoder, column, numbers[:, 0])
                made.append(numbers)
        return np.concatenate(made, axis=1)

    def _warn_of_missing(self, raw: NDArray[np.float64]) -> None:
        """Warn of numbers and dates that are missing in many rows here, but in none at fit."""
        missing = np.isnan(raw).sum(0)
        missing[self.numeric.missing.numpy()] = 0
        names: Sequence[Any] = self.columns or range(len(missing))
        made = {name: [place] for place, name in enumerate(names)}
        if self.encoders:
            made = self.made_of("numeric", "datetime")
        for name, (first, *_) in made.items():
            if _is_unusual(missing[first], len(raw)):
                found = f"was never missing at fit, but is in {missing[first]} of {len(raw)} rows"
                _warn_of_column(name, f"{found}: filled with the training median")

    def _warn_of_new_categories(self, table: Any, raw: NDArray[np.float64]) -> None:
        """Warn of columns in which many rows hold a category that was not there at fit."""
        seen_once = {encoder.name: encoder.seen_once for encoder in self.encoders}
        for name, places in self.made_of("low_cardinality").items():
            new = ~raw[:, places].any(1)
            count = int(new.sum())
            if _is_unusual(count, len(raw), seen_once[name]):
                held = np.flatnonzero(new & ~absent_cells(table[name]))
                found = "was never missing at fit, but is"
                if len(held):
                    example = shown_cell(table[name].to_numpy()[held[0]])
                    found = f"holds values unknown at fit, such as {example},"
                _warn_of_column(name, f"{found} in {count} of {len(raw)} rows: encoded as no known value")

    def transform(self, x: Any) -> NDArray[np.float32]:
        """Return the features of each row, with the warnings of `matrix`. (N, out_dim)"""
        return self.scaled(self.matrix(x))

    def scaled(self, raw: NDArray[np.float64]) -> NDArray[np.float32]:
        """Return the features of rows of `matrix`. (N, F) -> (N, out_dim)"""
        out = np.empty((len(raw), self.out_dim), np.float32)
        with torch.no_grad():
            for start in range(0, len(raw), _CHUNK):
                part = torch.tensor(raw[start : start + _CHUNK])  # a copy: raw may be read-only
                out[start : start + _CHUNK] = self.numeric(part).numpy()
        return out


def as_matrix(x: Any) -> NDArray[np.float64]:
    """Return a numeric table as a contiguous float64 matrix; an infinite number is an error. (N, F)"""
    names: Sequence[str] | None = column_names(x)
    if hasattr(x, "toarray"):
        cells = x.shape[0] * x.shape[1]
        if cells > MAX_DENSE:
            raise ValueError(
                f"a sparse matrix of {x.shape[0]} x {x.shape[1]} is too large to make dense: "
                "reduce it first, for example with TruncatedSVD"
            )
        x = x.toarray()
    if names is not None and hasattr(x, "astype"):
        try:
            x = x.astype("float64")
        except (ValueError, TypeError):
            x = _as_numbers(x)
    x = x.to_numpy() if names is not None else x
    matrix = np.ascontiguousarray(x, dtype=np.float64)
    infinite = np.isinf(matrix).any(0)
    if infinite.any():  # text such as "inf", a Python object, or a number beyond float64
        place = int(infinite.argmax())
        which = repr(names[place]) if names is not None else place
        raise ValueError(f"column {which} holds an infinity or a number too large: make it missing (NaN)")
    return matrix


def _as_numbers(x: pd.DataFrame) -> pd.DataFrame:
    """Columns as numbers, NaN in cells that cannot be read as one, with a warning of those."""
    import pandas as pd

    columns = []
    for place, name in enumerate(x.columns):
        column = x.iloc[:, place]
        numbers = pd.to_numeric(column, errors="coerce").astype("float64")
        if _is_date(column.dtype):
            numbers[:] = np.nan
        _warn_of_cells(column, str(name), numbers.isna().to_numpy(), "numbers")
        columns.append(numbers)
    return pd.concat(columns, axis=1)


def _warn_of_unread_cells(encoder: ColumnEncoder, column: Any, numbers: NDArray[np.float64]) -> None:
    """Warn of cells that skrub could not read and treats as missing without a warning. numbers: (N,)"""
    number, date = is_number(column.dtype), _is_date(column.dtype)
    if encoder.kind == "numeric" and not number:
        _warn_of_cells(column, encoder.name, np.isnan(numbers) | date, "numbers")
    if encoder.kind == "datetime" and not date:
        _warn_of_cells(column, encoder.name, np.isnan(numbers) | number, "dates")


def _warn_of_cells(column: Any, name: str, unread: NDArray[np.bool_], held: str) -> None:
    """Warn of cells that hold a value which could not be read; raise an error if no cell could."""
    cells = column.to_numpy()
    rows = np.flatnonzero(unread & ~absent_cells(column))
    lost = [row for row in rows if not _means_missing(cells[row])]
    if not lost:
        return
    index: Any = getattr(column, "index", None)
    kind = getattr(index, "name", None)  # such as the lines of a file
    where = f"row {lost[0]}" if kind is None else f"{kind} {index[lost[0]]}"
    found = f"column {name!r} held {held} at fit, but {where} holds {shown_cell(cells[lost[0]])}"
    if unread.all():
        raise ValueError(f"{found} ({len(lost)} such of {len(cells)}): correct it or make it missing")
    warnings.warn(f"{found} ({len(lost)} such of {len(cells)}): treated as missing", stacklevel=2)


def _is_unusual(count: int, rows: int, expected: float = 0.0) -> bool:
    """Whether `count` of the rows is too many for chance, if `expected` is the share to expect.

    One or two rows are not unusual, unless there are no others: `fit` holds out parts that are small.
    """
    chance = expected + 3 * (expected / max(rows, 1)) ** 0.5
    return count > max(UNUSUAL_SHARE, chance) * rows and (count > 2 or count == rows)


def _warn_of_column(name: Any, found: str) -> None:
    warnings.warn(f"column {name!r} {found}; intervals do not account for this", stacklevel=2)


def absent_cells(column: Any) -> NDArray[np.bool_]:
    """Which cells of a pandas or polars column are missing. (N,)"""
    return np.asarray(column.is_null() if hasattr(column, "is_null") else column.isna())


def _means_missing(cell: Any) -> bool:
    return str(cell).strip().casefold() in _NO_VALUE


def _all_numeric(x: Any) -> bool:
    """Whether all columns are numbers or booleans."""
    return column_names(x) is None or all(is_number(kind) for kind in x.dtypes)


def _is_date(kind: Any) -> bool:
    if hasattr(kind, "is_temporal"):  # polars, where a duration is temporal too
        return bool(kind.is_temporal()) and not str(kind).startswith("Duration")
    return getattr(kind, "kind", "") == "M"


def _library(x: Any) -> str:
    """The library of a DataFrame: ``"pandas"`` or ``"polars"``."""
    return type(x).__module__.partition(".")[0]


def _of_library(x: Any, name: str | None) -> Any:
    """Return a DataFrame of the named library: skrub takes only the kind it was fitted on."""
    if name == "pandas" and _library(x) == "polars":
        return x.to_pandas()
    if name == "polars" and _library(x) == "pandas":
        import polars

        return polars.from_pandas(x)
    return x


def _with_plain_columns(x: Any) -> Any:
    """Turn object columns of mixed types into text, turn pyarrow's types into pandas' own, cut huge numbers.

    Text can be encoded. An encoder of pandas' own types can be loaded where pyarrow is not installed.
    """
    if _library(x) == "polars":
        import polars

        return x.with_columns(polars.selectors.float().clip(-LARGEST, LARGEST))
    if not hasattr(x, "select_dtypes"):
        return x
    x = x.rename(columns=str)
    for name in x.columns:
        column = x[name]
        if type(column.dtype).__name__ == "ArrowDtype":
            column = column.array.__arrow_array__().to_pandas().set_axis(x.index)
            x[name] = column
        if column.dtype.kind == "f" and column.abs().max() > LARGEST:
            x[name] = column.clip(-LARGEST, LARGEST)
        if column.dtype == object:
            kinds = {type(value) for value in column.dropna()}
            if len(kinds) > 1 or not kinds <= {str, bool, int, float}:
                x[name] = column.where(column.isna(), column.astype(str))
    return x
