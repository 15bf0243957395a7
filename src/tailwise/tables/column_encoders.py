"""How one column of a table becomes numbers. An encoder holds what it learnt from the training cells.

Kinds and numbers are those of skrub's TableVectorizer, by a tenth of its time for one row. Texts such as
``N/A`` are missing. Texts that all are dates in one format are dates, and texts that all are numbers are
numbers. A column of few different texts has categories. Other texts are encoded by their runs of characters.
"""

from __future__ import annotations

import re
import warnings
from abc import ABC, abstractmethod
from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray

from tailwise.options import Fraction, Items, Positive
from tailwise.tables.columns import is_number

if TYPE_CHECKING:
    import pandas as pd

Floats = NDArray[np.float64]
Numbers = NDArray[np.float32]
COMPONENTS = 30
"""A column of free text becomes so many numbers at most."""
LARGEST = 1e38
"""Larger numbers are cut to this: a table with other columns than numbers is encoded in float32."""
_NAN = ("nan", "-nan", "NaN", "-NaN", "1.#QNAN", "-1.#QNAN", "1.#IND", "-1.#IND")
_NA = ("NA", "N/A", "n/a", "#NA", "#N/A", "#N/A N/A", "<NA>")
MISSING = frozenset({*_NAN, *_NA, "null", "NULL", "none", "None", "?", "..."})
"""Texts that mean a missing value, as does a blank one."""
_ROUNDING = 1e-5
"""A component of texts whose singular value is less than this share of the largest is rounding of float32."""
_RUNS = (3, 4)
"""Lengths of the runs of characters that a text is encoded by."""
_SAFE_ZONE = r"(?!dateutil)[A-Za-z0-9_+:-]+(/[A-Za-z0-9_+-]+){0,2}"
_GUESSED = 30  # cells that the format of dates is guessed from


@dataclass(frozen=True, eq=False)
class ColumnEncoder(ABC):
    """What is known of one column."""

    name: str

    @property
    def outputs(self) -> tuple[str, ...]:
        """Names of the numbers that the column becomes."""
        return (self.name,)

    @abstractmethod
    def encode(self, column: pd.Series[Any]) -> Numbers:
        """Return the numbers of each cell, NaN where a number or a date is missing. (N,) -> (N, P)"""


@dataclass(frozen=True, eq=False)
class EmptyColumn(ColumnEncoder):
    """A column that had no value in training. It is not used."""

    outputs = ()

    def encode(self, column: pd.Series[Any]) -> Numbers:
        """Return no numbers."""
        return np.empty((len(column), 0), np.float32)


@dataclass(frozen=True, eq=False)
class NumberColumn(ColumnEncoder):
    """A column of numbers, of texts that are numbers, or of durations in seconds."""

    duration: bool = False

    def encode(self, column: pd.Series[Any]) -> Numbers:
        """Return the number of each cell, and the seconds of a duration."""
        numbers = as_numbers(column)
        if np.isinf(numbers).any():
            raise ValueError(
                f"column {self.name!r} holds an infinity or a number too large: make it missing (NaN)"
            )
        return np.clip(numbers, -LARGEST, LARGEST).astype(np.float32)[:, None]


@dataclass(frozen=True, eq=False)
class DateColumn(ColumnEncoder):
    """A column of dates, or of texts in one `shape`. It becomes their parts, and the seconds since 1970."""

    unit: Literal["s", "ms", "us", "ns"]
    zone: Annotated[str, Items(1, 60)] | None
    shape: Annotated[str, Items(1, 100)] | None
    hours: bool
    """Whether any date of training had a time of day."""

    def __post_init__(self) -> None:
        if self.zone is not None and re.fullmatch(_SAFE_ZONE, self.zone) is None:
            raise ValueError(f"{self.zone!r} is no time zone")

    @property
    def parts(self) -> tuple[str, ...]:
        """Parts of a date, as pandas names them."""
        return ("year", "month", "day", "hour") if self.hours else ("year", "month", "day")

    @property
    def outputs(self) -> tuple[str, ...]:
        """Names of the numbers that the column becomes."""
        return tuple(f"{self.name}_{part}" for part in (*self.parts, "total_seconds"))

    def encode(self, column: pd.Series[Any]) -> Numbers:
        """Return the parts of each date, and its seconds since 1970."""
        import pandas as pd

        if is_number(column.dtype):
            column = pd.Series(pd.NaT, index=column.index)
        if not is_date(column.dtype):
            utc = self.shape is None or "%z" in self.shape
            column = pd.to_datetime(column, format=self.shape, errors="coerce", utc=utc)
        if column.dt.tz is None and self.zone is not None:
            column = column.dt.tz_localize("UTC")
        if column.dt.tz is not None:
            column = column.dt.tz_convert(self.zone)
        dates = column.dt.as_unit(self.unit)
        epoch = pd.Timestamp(0, tz=None if self.zone is None else "UTC")
        columns = [getattr(dates.dt, part) for part in self.parts] + [(dates - epoch) / pd.Timedelta("1s")]
        return np.stack([np.asarray(column, np.float32) for column in columns], axis=1)


@dataclass(frozen=True, eq=False)
class CategoryColumn(ColumnEncoder):
    """A column of few different texts."""

    values: tuple[str, ...]
    missing: bool
    """Whether training had missing cells. They are one more category, the last."""
    seen_once: Fraction
    """Share of the training rows whose category occurred once."""

    def __post_init__(self) -> None:
        if list(self.values) != sorted(set(self.values)):
            raise ValueError("categories must be different texts in order")

    @property
    def outputs(self) -> tuple[str, ...]:
        """Names of the numbers that the column becomes."""
        return tuple(f"{self.name}_{value}" for value in (*self.values, *["nan"] * self.missing))

    @cached_property
    def places(self) -> dict[str, int]:
        """The place of each text that is known or means a missing value. -1 is no place."""
        missing = len(self.values) if self.missing else -1
        texts = {text: place for place, text in enumerate(self.values)}
        return {**dict.fromkeys(["", *sorted(MISSING)], missing), **texts}

    def encode(self, column: pd.Series[Any]) -> Numbers:
        """Return 1 at the place of the category of each cell; only 0 for one that training did not have."""
        codes, texts = _distinct_texts(column)
        places = np.array([self.places.get(text, -1) for text in texts])[codes]
        return np.asarray(places[:, None] == np.arange(len(self.outputs)), np.float32)


@dataclass(frozen=True, eq=False)
class TextColumn(ColumnEncoder):
    """A column of free texts: the weight of each run of characters, and its share in each component."""

    lines: NDArray[np.uint8]
    """The runs of characters, a line each, in UTF-8."""
    weights: NDArray[np.float64]  # (R,)
    components: NDArray[np.float32]  # (P, R)
    scale: Positive

    def __post_init__(self) -> None:
        runs = self.runs
        if self.lines.ndim != 1 or len(set(runs)) < len(runs) or not 0 < max(map(len, runs)) <= _RUNS[1]:
            raise ValueError("runs of characters must be short, and different from one another")
        count = len(self.components)
        sizes = self.weights.shape == (len(runs),), self.components.shape == (count, len(runs))
        if not all(sizes) or not 1 <= count <= COMPONENTS:
            raise ValueError(f"{len(runs)} runs of characters do not fit the weights of {count} components")

    @cached_property
    def runs(self) -> list[str]:
        """The runs of characters."""
        return self.lines.tobytes().decode().split("\n")

    @property
    def outputs(self) -> tuple[str, ...]:
        """Names of the numbers that the column becomes."""
        count = len(self.components)
        return tuple(f"{self.name}_{place:0{len(str(count - 1))}}" for place in range(count))

    @cached_property
    def _vectorizer(self) -> Any:
        vectorizer = _runs_of_characters(self.runs)
        vectorizer.idf_ = self.weights
        return vectorizer

    def encode(self, column: pd.Series[Any]) -> Numbers:
        """Return the components of each text; a missing one is an empty text."""
        codes, texts = _distinct_texts(column)
        filled = ["" if text in MISSING else text for text in texts]
        made = self._vectorizer.transform(filled).astype(np.float32) @ self.components.T
        return np.asarray((made / np.float32(self.scale))[codes], np.float32)


AnyColumn = EmptyColumn | NumberColumn | DateColumn | CategoryColumn | TextColumn
"""The encoders there are, as files need to know them."""


# -- fit -------------------------------------------------------------------------------------------


def fit_column(name: str, column: pd.Series[Any], categories: int, components: int) -> AnyColumn:
    """Return an encoder of the kind that suits the cells of a column.

    Text with fewer than `categories` different values counts as categories. Other text becomes at most
    `components` numbers.
    """
    import pandas as pd

    cells = _without_missing_texts(column)
    values = cells.dropna()
    if values.empty:
        return EmptyColumn(name)
    if isinstance(column.dtype, pd.CategoricalDtype):
        return _fit_texts(name, cells, categories, components)
    shape = _date_shape(values)
    if is_date(column.dtype) or shape is not None:
        return _fit_dates(name, values, shape)
    duration = pd.api.types.is_timedelta64_dtype(column.dtype)
    if duration or not np.isnan(as_numbers(values)).any():
        return NumberColumn(name, duration)
    return _fit_texts(name, cells, categories, components)


def _without_missing_texts(column: pd.Series[Any]) -> pd.Series[Any]:
    from pandas.api.types import is_object_dtype, is_string_dtype

    if not (is_object_dtype(column.dtype) or is_string_dtype(column.dtype)):
        return column
    cells = column.astype(object)
    absent = cells.map(lambda cell: isinstance(cell, str) and (not cell.strip() or cell in MISSING))
    return cells.mask(absent.astype(bool), None)


def _date_shape(values: pd.Series[Any]) -> str | None:
    """Return the format that all texts are dates in, or None; the month comes first where both fit."""
    import pandas as pd
    from pandas.tseries.api import guess_datetime_format

    if values.dtype != object or not isinstance(values.iloc[0], str):
        return None
    some = values.sample(min(_GUESSED, len(values)), random_state=0)
    for dayfirst in (False, True):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            shapes = {guess_datetime_format(cell, dayfirst=dayfirst) for cell in some}
        shape = shapes.pop()
        if not shapes and shape is not None:
            try:
                pd.to_datetime(values, format=shape, utc="%z" in shape)
            except (ValueError, OverflowError):
                return None
            return str(shape)
    return None


def _fit_dates(name: str, values: pd.Series[Any], shape: str | None) -> DateColumn:
    import pandas as pd

    dates: Any = values if shape is None else pd.to_datetime(values, format=shape, utc="%z" in shape)
    zone = dates.dt.tz
    zone = None if zone is None else str(getattr(zone, "zone", None) or getattr(zone, "key", None) or zone)
    return DateColumn(name, dates.dt.unit, zone, shape, hours=bool((dates.dt.normalize() != dates).any()))


def _fit_texts(
    name: str, cells: pd.Series[Any], categories: int, components: int
) -> CategoryColumn | TextColumn:
    codes, texts = _distinct_texts(cells)
    if cells.nunique() >= categories:
        return _fit_words(name, [texts[code] for code in codes], components)
    counts = Counter(codes.tolist())
    values = sorted({texts[code] for code in counts if code != -1})
    once = sum(count == 1 for count in counts.values()) / len(cells)
    return CategoryColumn(name, tuple(values), -1 in counts, once)


def _fit_words(name: str, texts: list[str], components: int) -> TextColumn:
    from sklearn.decomposition import TruncatedSVD

    vectorizer = _runs_of_characters(None)
    counts = vectorizer.fit_transform(texts).astype(np.float32)
    if min(counts.shape) > components:
        # The projection of texts is random: with a seed, the same table gives the same features.
        projection = TruncatedSVD(components, random_state=0)
        made, shares = projection.fit_transform(counts), projection.components_
        # Texts of few different words have components of nothing but rounding. Scaled, they would be noise
        # that differs from one machine to another.
        size = projection.singular_values_
        shares[size < _ROUNDING * size.max()] = 0.0
    else:  # the first runs are the components
        made = counts[:, :components].toarray()
        shares = np.eye(made.shape[1], counts.shape[1], dtype=np.float32)
    scale = np.sqrt(np.nansum(np.nanvar(made, axis=0)))
    vocabulary = vectorizer.vocabulary_
    lines = "\n".join(sorted(vocabulary, key=vocabulary.get))  # white space within runs is a blank
    return TextColumn(
        name,
        np.frombuffer(lines.encode(), np.uint8),
        vectorizer.idf_,
        shares,
        1.0 if scale < 10 * np.finfo(scale.dtype).eps else float(scale),
    )


def _runs_of_characters(runs: list[str] | None) -> Any:
    from sklearn.feature_extraction.text import TfidfVectorizer

    return TfidfVectorizer(ngram_range=_RUNS, analyzer="char_wb", vocabulary=runs)


# -- cells -----------------------------------------------------------------------------------------


def is_date(kind: Any) -> bool:
    """Whether a dtype is one of dates or times."""
    return getattr(kind, "kind", "") == "M"


def plain_column(column: pd.Series[Any]) -> pd.Series[Any]:
    """Return a column in a type of NumPy or of pandas itself; objects of mixed types become texts."""
    if type(column.dtype).__name__ == "ArrowDtype":
        arrow: Any = column.array
        column = arrow.__arrow_array__().to_pandas().set_axis(column.index)
    if column.dtype == object:
        types = set(map(type, column.dropna()))
        if len(types) > 1 or not types <= {str, bool, int, float}:
            return column.where(column.isna(), column.astype(str))
    return column


def as_numbers(column: pd.Series[Any]) -> Floats:
    """Return cells as numbers, NaN where a cell is missing or cannot be read as one. (N,)"""
    import pandas as pd

    if is_number(column.dtype):
        return np.asarray(column.to_numpy(np.float64, na_value=np.nan))
    if is_date(column.dtype):
        return np.full(len(column), np.nan)
    if pd.api.types.is_timedelta64_dtype(column.dtype):
        return np.asarray(column.dt.total_seconds(), np.float64)
    numbers = pd.to_numeric(column.astype(object), errors="coerce")
    return np.asarray(numbers.to_numpy(np.float64, na_value=np.nan))


def _distinct_texts(column: pd.Series[Any]) -> tuple[NDArray[np.int64], list[str]]:
    """Return the place of each cell among different texts, and these texts. A blank text is empty.

    Missing cells have the place -1, where a list has its last value: an empty text.
    """
    import pandas as pd

    codes, cells = pd.factorize(column)
    texts = [*map(str, cells.tolist()), ""]
    return codes.astype(np.int64), ["" if text.isspace() else text for text in texts]
