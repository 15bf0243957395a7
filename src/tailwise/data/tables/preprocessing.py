"""From a table as users have it to a matrix a network can take.

Numbers are centred by their median, scaled by their interquartile range and softly bounded, so that
an outlier cannot drown a column; missing values become 0 with a column that says so. Text,
categories and dates go through skrub's `TableVectorizer`, which is imported only where a table
has such columns.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from tailwise.data.inputs import column_names
from tailwise.data.tables.checks import refuse_repeated

if TYPE_CHECKING:
    import pandas as pd

BOUND = 4.0
"""Scaled numbers approach plus and minus this, whatever their size."""
MAX_DENSE = 500_000_000
"""Largest number of cells that a sparse matrix is spread out to."""
LARGEST = 1e38
"""Numbers beside text go through skrub's float32: larger ones count as this, far beyond any bound."""
UNHEARD_OF = 0.05
"""Share of new rows that may lack, or newly hold, what no row did at fit, before a word is said of it."""
_CHUNK = 65_536
_NO_VALUE = {"", "?", "...", "-", "na", "n/a", "#na", "#n/a", "nan", "null", "none", "<na>"}
"""Texts that stand for a missing value, in small letters."""


class NumericEncoder(nn.Module):
    """Scales raw numbers, bounds them softly, and marks what is missing. (N, F) -> (N, F + M)

    M counts the columns that had missing values when it was fitted. A module, so that an exported
    network can carry it; its state is float64.

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
        """Measure the columns of a training matrix; NaN is missing. x: (N, F)

        Columns of `text` are components of encoded words, in which a few large values stand for a rare
        word and are never mistakes; what most rows have there is rounding.
        """
        absent = np.isnan(x)
        empty = absent.all(0)
        # Quantiles of a large table are as good on a part of it.
        rows = x if len(x) <= 200_000 else x[np.linspace(0, len(x) - 1, 200_000).astype(np.int64)]
        known = np.where(empty, 0.0, rows)
        few = min(max(0.005, 2 / len(rows)), 0.05)
        levels = [few, 0.05, 0.25, 0.5, 0.75, 0.95, 1 - few]
        least, lowest, low, center, high, highest, most = np.nanquantile(known, levels, axis=0)
        # 1.349 interquartile ranges are a standard deviation where numbers are Gaussian.
        scale = high / 1.349 - low / 1.349
        with np.errstate(over="ignore", invalid="ignore"):  # squares of numbers beyond 1e154
            spread = np.nanstd(known, axis=0)
        # The middle 99% are 5.15 of them, the middle 90% 3.29. A spread far beyond the first is that of a few
        # mistaken numbers: rare events are more, and what the other rows have may be rounding.
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
        """Number of columns it gives."""
        return len(self.center) + len(self.missing)

    def forward(self, x: Tensor) -> Tensor:
        """x: (N, F) float64 -> (N, F + M) float32"""
        scaled = (x - self.center) / self.scale
        bounded = scaled / torch.sqrt(1 + (scaled / BOUND) ** 2)
        absent = torch.isnan(bounded)
        filled = torch.where(absent, torch.zeros_like(bounded), bounded)
        return torch.cat([filled, absent[:, self.missing].to(filled.dtype)], dim=1).float()


class TablePreprocessor:
    """Learns from a training table how to encode rows as float32 features.

    Takes DataFrames (pandas, polars) with numbers, categories, booleans, dates, text and missing
    values, arrays, sparse matrices and tensors.
    """

    vectorizer: Any = None
    numeric: NumericEncoder
    columns: list[str] | None = None

    def fit(self, x: Any) -> Self:
        """Learn the columns of a training table."""
        self.columns = column_names(x)
        refuse_repeated(self.columns or [], "column")
        if not _all_numeric(x):
            from sklearn.preprocessing import OneHotEncoder
            from skrub import StringEncoder, TableVectorizer

            # As skrub would, but a category never seen before is no cause for a warning.
            known = OneHotEncoder(dtype=np.float32, handle_unknown="ignore", sparse_output=False)
            # Its projection of texts is random unless seeded: the same table gives the same features.
            texts = StringEncoder(random_state=0)
            x = _with_plain_columns(x)
            self.vectorizer = TableVectorizer(low_cardinality=known, high_cardinality=texts).fit(x)
        matrix = self._encoded(x)
        if matrix.shape[1] == 0:
            raise ValueError(
                f"no column of X holds a value ({', '.join(self.columns or [])}): nothing to predict from"
            )
        components = [place for places in self._made_of("high_cardinality").values() for place in places]
        self.numeric = NumericEncoder.fit(matrix, components)
        if self.vectorizer is not None:
            # Kept in skrub's object, because that is what is saved with a model.
            self.vectorizer.library_ = _library(x)
            self.vectorizer.seen_once_ = {
                name: int((matrix[:, places].sum(0) == 1).sum()) / len(matrix)
                for name, places in self._made_of("low_cardinality").items()
            }
        return self

    def _made_of(self, *kinds: str) -> dict[str, list[int]]:
        """Which columns of `matrix` skrub made of each column of these kinds."""
        if self.vectorizer is None:
            return {}
        made, columns = self.vectorizer.input_to_outputs_, self.vectorizer.kind_to_columns_
        place = {name: i for i, name in enumerate(self.vectorizer.get_feature_names_out())}
        return {name: [place[output] for output in made[name]] for kind in kinds for name in columns[kind]}

    @property
    def out_dim(self) -> int:
        """Number of features a row becomes."""
        return self.numeric.out_dim

    def matrix(self, x: Any) -> NDArray[np.float64]:
        """Return rows as raw numbers, text and dates already encoded. (N, F)

        A cell of another kind than its column had at fit is taken for missing, with a warning; a column
        without any cell of that kind is an error. There is a warning, too, of columns that are often
        missing and never were at fit, and of categories that were not there.
        """
        if self.vectorizer is not None:
            x = _with_plain_columns(_of_library(x, getattr(self.vectorizer, "library_", None)))
        raw = self._encoded(x)
        if raw.shape[1] != len(self.numeric.center):
            raise ValueError(
                f"X has {raw.shape[1]} features, but {len(self.numeric.center)} were there at fit"
            )
        self._tell_newly_missing(raw)
        self._tell_new_categories(x, raw)
        return raw

    def _encoded(self, table: Any) -> NDArray[np.float64]:
        if self.vectorizer is None:
            return as_matrix(table)
        made = self.vectorizer.transform(table)
        self._tell_unread(table, made)
        return as_matrix(made)

    def _tell_unread(self, table: Any, encoded: Any) -> None:
        """Say which cells skrub could not read; it takes them for missing without a word."""
        kinds = (("numeric", "numbers", _is_number, _is_date), ("datetime", "dates", _is_date, _is_number))
        for kind, words, is_kind, is_other in kinds:
            for name in self.vectorizer.kind_to_columns_[kind]:
                column = table[name]
                if is_kind(column.dtype):
                    continue
                made = np.asarray(encoded[self.vectorizer.input_to_outputs_[name][0]], np.float64)
                _tell_cells(column, name, np.isnan(made) | is_other(column.dtype), words)

    def _tell_newly_missing(self, raw: NDArray[np.float64]) -> None:
        """Say which numbers and dates are missing in many rows, but were in none at fit."""
        missing = np.isnan(raw).sum(0)
        missing[self.numeric.missing.numpy()] = 0
        names: Sequence[Any] = self.columns or range(len(missing))
        made = {name: [place] for place, name in enumerate(names)}
        if self.vectorizer is not None:
            made = self._made_of("numeric", "datetime")
        for name, (first, *_) in made.items():
            if _unheard_of(missing[first], len(raw)):
                _tell_news(name, "was never missing at fit, but is", missing[first], len(raw), "its median")

    def _tell_new_categories(self, table: Any, raw: NDArray[np.float64]) -> None:
        """Say which columns hold in many rows a category that was not there at fit."""
        seen_once = getattr(self.vectorizer, "seen_once_", {})  # models of earlier versions have none
        for name, places in self._made_of("low_cardinality").items():
            new = ~raw[:, places].any(1)
            count = int(new.sum())
            if _unheard_of(count, len(raw), seen_once.get(name, 0.0)):
                held = np.flatnonzero(new & ~_absent(table[name]))
                found = "was never missing at fit, but is"
                if len(held):
                    found = f"holds values unknown at fit, such as {_shown(table[name].to_numpy()[held[0]])},"
                _tell_news(name, found, count, len(raw), "none of its values")

    def transform(self, x: Any) -> NDArray[np.float32]:
        """Return features of rows, with the warnings of `matrix`. (N, out_dim)"""
        raw = self.matrix(x)
        out = np.empty((len(raw), self.out_dim), np.float32)
        with torch.no_grad():
            for start in range(0, len(raw), _CHUNK):
                part = torch.tensor(raw[start : start + _CHUNK])  # a copy: raw may be read-only
                out[start : start + _CHUNK] = self.numeric(part).numpy()
        return out


def as_matrix(x: Any) -> NDArray[np.float64]:
    """Return a numeric table as a contiguous float64 matrix without infinities. (N, F)"""
    names: Sequence[str] | None = column_names(x)
    if hasattr(x, "toarray"):
        cells = x.shape[0] * x.shape[1]
        if cells > MAX_DENSE:
            raise ValueError(
                f"a sparse matrix of {x.shape[0]} x {x.shape[1]} is too large to spread out: "
                "reduce it first, with TruncatedSVD for example"
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
    if infinite.any():
        place = int(infinite.argmax())
        which = repr(names[place]) if names is not None else place
        raise ValueError(f"column {which} holds an infinity or a number too large: make it missing (NaN)")
    return matrix


def _as_numbers(x: pd.DataFrame) -> pd.DataFrame:
    """Columns that held numbers at fit, and now hold something else, as far as they can be read."""
    import pandas as pd

    columns = []
    for place, name in enumerate(x.columns):
        column = x.iloc[:, place]
        numbers = pd.to_numeric(column, errors="coerce").astype("float64")
        if _is_date(column.dtype):
            numbers[:] = np.nan
        _tell_cells(column, str(name), numbers.isna().to_numpy(), "numbers")
        columns.append(numbers)
    return pd.concat(columns, axis=1)


def _tell_cells(column: Any, name: str, unread: NDArray[np.bool_], held: str) -> None:
    """Warn of cells that hold something and could not be read; raise an error if there are no others."""
    cells = column.to_numpy()
    rows = np.flatnonzero(unread & ~_absent(column))
    lost = [row for row in rows if not _stands_for_nothing(cells[row])]
    if not lost:
        return
    found = f"column {name!r} held {held} at fit, but row {lost[0]} holds {_shown(cells[lost[0]])}"
    if unread.all():
        raise ValueError(f"{found} ({len(lost)} such of {len(cells)}): mend it or make it missing")
    warnings.warn(f"{found} ({len(lost)} such of {len(cells)}): taken for missing", stacklevel=2)


def _unheard_of(count: int, rows: int, expected: float = 0.0) -> bool:
    """Whether rows with something new are too many for chance, where this share of them is expected.

    One or two are not, among the few rows that `fit` holds out for example, unless there are no others.
    """
    chance = expected + 3 * (expected / max(rows, 1)) ** 0.5
    return count > max(UNHEARD_OF, chance) * rows and (count > 2 or count == rows)


def _tell_news(name: Any, found: str, count: int, rows: int, taken_for: str) -> None:
    warnings.warn(
        f"column {name!r} {found} in {count} of {rows} rows: taken for {taken_for} at fit, and intervals are "
        "no wider for it",
        stacklevel=2,
    )


def _absent(column: Any) -> NDArray[np.bool_]:
    """Which cells of a column of pandas or polars hold nothing. (N,)"""
    return np.asarray(column.is_null() if hasattr(column, "is_null") else column.isna())


def _shown(cell: Any) -> str:
    text = str(cell)
    return repr(text if len(text) <= 40 else f"{text[:40]}...")


def _stands_for_nothing(cell: Any) -> bool:
    return str(cell).strip().casefold() in _NO_VALUE


def _all_numeric(x: Any) -> bool:
    """Whether a table holds nothing but numbers and booleans."""
    if column_names(x) is None:
        return True
    kinds = getattr(x, "dtypes", [])
    kinds = list(kinds) if not hasattr(kinds, "items") else [kind for _, kind in kinds.items()]
    return all(_is_number(kind) for kind in kinds)


def _is_number(kind: Any) -> bool:
    if hasattr(kind, "is_numeric"):  # polars
        return bool(kind.is_numeric()) or str(kind) == "Boolean"
    from pandas.api.types import is_bool_dtype, is_numeric_dtype

    return bool(is_numeric_dtype(kind) or is_bool_dtype(kind))


def _is_date(kind: Any) -> bool:
    return getattr(kind, "kind", "") == "M" or bool(hasattr(kind, "is_temporal") and kind.is_temporal())


def _library(x: Any) -> str:
    """``"pandas"`` or ``"polars"``, whose DataFrame this is."""
    return type(x).__module__.partition(".")[0]


def _of_library(x: Any, name: str | None) -> Any:
    """Return a DataFrame as that of the library named: skrub takes only the kind that it learnt from."""
    if name == "pandas" and _library(x) == "polars":
        return x.to_pandas()
    if name == "polars" and _library(x) == "pandas":
        import polars

        return polars.from_pandas(x)
    return x


def _with_plain_columns(x: Any) -> Any:
    """Turn object columns of several types into text, pyarrow's types into pandas' own; cut huge numbers.

    Text can be encoded, and what was learnt from pandas' own types can be saved and loaded where there
    is no pyarrow. The rest stays as it is.
    """
    if not hasattr(x, "select_dtypes"):
        return x
    x = x.rename(columns=str)
    for name in x.columns:
        column = x[name]
        if type(column.dtype).__name__ == "ArrowDtype":
            column = column.array.__arrow_array__().to_pandas().set_axis(x.index)
            x = x.assign(**{name: column})
        if column.dtype.kind == "f" and column.abs().max() > LARGEST:
            x = x.assign(**{name: column.clip(-LARGEST, LARGEST)})
        if column.dtype == object:
            kinds = {type(value) for value in column.dropna()}
            if len(kinds) > 1 or not kinds <= {str, bool, int, float}:
                x = x.assign(**{name: column.where(column.isna(), column.astype(str))})
    return x
