"""Encoders of columns as plain values and arrays, and back: what skrub learnt, without its objects.

A file names no class and no option. The transformers are made anew with the options of `fit_encoders`, and
only what they learnt comes from the file.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, get_args

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from tailwise.options import AnyNumber, Between, Fraction, Items, Positive
from tailwise.tables.column_encoders import COMPONENTS, ColumnEncoder, import_skrub

Library = Literal["pandas", "polars"]
Step = Literal["CleanNullStrings", "CleanCategories", "DurationToFloat", "ToFloat", "ToStr"]
_EXAMPLES: dict[Step, tuple[str, Any]] = {
    "CleanNullStrings": ("skrub._clean_null_strings", pd.Series(["a"])),
    "CleanCategories": ("skrub._clean_categories", pd.Series(["a"], dtype="category")),
    "DurationToFloat": ("skrub._duration_to_float", pd.Series(pd.to_timedelta([0]))),
    "ToFloat": ("skrub._to_float", pd.Series([0.0])),
    "ToStr": ("skrub._to_str", pd.Series(["a"])),
}
"""Where a transformer that learns nothing is, and a column that it takes."""
_NO_STEPS = ("DropUninformative", "PassThrough")
"""Transformers that change no column which has values."""
_SAFE_ZONE = r"(?!dateutil)[A-Za-z0-9_+:-]+(/[A-Za-z0-9_+-]+){0,2}"
RUNS = (3, 4)
"""Lengths of the runs of characters that a text is encoded by."""

Part = Literal[
    "year", "month", "day", "hour", "minute", "second", "microsecond", "nanosecond", "total_seconds"
]


@dataclass(frozen=True)
class Dates:
    """A column of dates, or of texts in one `shape`."""

    unit: Literal["s", "ms", "us", "ns", "day"]
    zone: Annotated[str, Items(1, 60)] | None
    shape: Annotated[str, Items(1, 100)] | None
    parts: tuple[Part, ...]

    def __post_init__(self) -> None:
        if self.zone is not None and re.fullmatch(_SAFE_ZONE, self.zone) is None:
            raise ValueError(f"{self.zone!r} is no time zone")
        if not self.parts or list(self.parts) != sorted(set(self.parts), key=get_args(Part).index):
            raise ValueError(f"parts of dates must be in order, not {list(self.parts)}")


@dataclass(frozen=True)
class Categories:
    """A column of few different texts; a missing value may be one of them."""

    values: tuple[str | AnyNumber | None, ...]

    def __post_init__(self) -> None:
        texts = [value for value in self.values if isinstance(value, str)]
        last = [value for value in self.values if not isinstance(value, str)]
        if texts != sorted(set(texts)) or list(self.values[: len(texts)]) != texts or len(last) > 1:
            raise ValueError("categories must be texts in order, and a missing value at the end")
        if any(value == value and value is not None for value in last):
            raise ValueError("a category that is no text must be a missing value")


@dataclass(frozen=True)
class Texts:
    """A column of free texts: the weight of each run of characters, and its share in each component."""

    lines: NDArray[np.uint8]
    """The runs of characters, a line each, in UTF-8."""
    weights: NDArray[np.float64]  # (R,)
    parts: Annotated[int, Between(1, COMPONENTS)]
    components: NDArray[np.float32] | None  # (parts, R); None: the first runs are the components
    scale: Positive

    @property
    def runs(self) -> list[str]:
        """The runs of characters."""
        return self.lines.tobytes().decode().split("\n")

    def __post_init__(self) -> None:
        runs = self.runs
        count = len(runs)
        if self.lines.ndim != 1 or len(set(runs)) < count or not 0 < max(map(len, runs)) <= RUNS[1]:
            raise ValueError("runs of characters must be short, and different from one another")
        if self.weights.shape != (count,):
            raise ValueError(f"{count} runs of characters need as many weights")
        if self.components is None and self.parts > count:
            raise ValueError(f"{self.parts} components need as many runs of characters")
        if self.components is not None and self.components.shape != (self.parts, count):
            raise ValueError(f"components must have the shape ({self.parts}, {count})")


@dataclass(frozen=True)
class ColumnState:
    """How one column becomes numbers."""

    name: str
    kind: Literal["numeric", "datetime", "low_cardinality", "high_cardinality", "dropped"]
    outputs: tuple[str, ...]
    seen_once: Fraction
    steps: tuple[Step, ...]
    last: Dates | Categories | Texts | None

    def __post_init__(self) -> None:
        of_kind = {"datetime": Dates, "low_cardinality": Categories, "high_cardinality": Texts}
        if type(self.last) is not of_kind.get(self.kind, type(None)):
            raise ValueError(f"a {self.kind} column cannot end with {type(self.last).__name__}")
        made = {"numeric": 1, "dropped": 0}.get(self.kind)
        if isinstance(self.last, Texts):
            made = self.last.parts
        elif self.last is not None:
            made = len(self.last.parts if isinstance(self.last, Dates) else self.last.values)
        if len(self.outputs) != made or len(set(self.steps)) < len(self.steps):
            raise ValueError(f"{self.name!r} has {len(self.outputs)} outputs and becomes {made} numbers")


@dataclass(frozen=True)
class TableState:
    """How a table becomes numbers for networks; no columns for a table of numbers."""

    names: tuple[str, ...] | None
    center: NDArray[np.float64]
    scale: NDArray[np.float64]
    missing: NDArray[np.int64]
    library: Library
    columns: tuple[ColumnState, ...]

    def __post_init__(self) -> None:
        count = self.center.size
        if self.center.shape != (count,) or self.scale.shape != (count,) or not (self.scale > 0).all():
            raise ValueError("every number of a row needs a centre and a positive scale")
        if self.missing.ndim != 1 or ((self.missing < 0) | (self.missing >= count)).any():
            raise ValueError("columns that may be missing must be columns")
        made = [output for column in self.columns for output in column.outputs]
        if self.columns and tuple(column.name for column in self.columns) != self.names:
            raise ValueError("names and columns differ")
        if self.columns and (len(made) != count or len(set(made)) < count):
            raise ValueError(f"the columns become {len(set(made))} different numbers, and a row has {count}")
        if not self.columns and self.names is not None and len(self.names) != count:
            raise ValueError(f"{len(self.names)} names for {count} columns")


# -- write -----------------------------------------------------------------------------------------


def column_state(encoder: ColumnEncoder) -> ColumnState:
    """Return what an encoder learnt. One that skrub makes in a new way is an error."""
    last: Dates | Categories | Texts | None = None
    steps: list[Any] = []
    for name, step in encoder.steps.items():
        if name == "OneHotEncoder":
            last = Categories(tuple(step.categories_[0].tolist()))
        elif name == "StringEncoder" and step.vectorizer == "tfidf":
            last = _texts(step)
        elif name == "DatetimeEncoder" and "ToDatetime" in encoder.steps:
            last = _dates(encoder.steps["ToDatetime"], step.extracted_features_)
        elif name in _EXAMPLES:
            steps.append(name)
        elif name not in (*_NO_STEPS, "ToDatetime"):
            version = import_skrub().__version__
            raise ValueError(
                f"column {encoder.name!r} is encoded by {name} of skrub {version}, which a file cannot hold: "
                "install another version of skrub"
            )
    return ColumnState(encoder.name, encoder.kind, encoder.outputs, encoder.seen_once, tuple(steps), last)  # type: ignore[arg-type]


def _dates(read: Any, parts: Sequence[Any]) -> Dates:
    kind = read.output_dtype_
    unit: Any = getattr(kind, "unit", None) or getattr(kind, "time_unit", None)
    if unit is None:
        unit = np.datetime_data(kind)[0] if isinstance(kind, np.dtype) else "day"
    zone = read.output_time_zone_
    return Dates(unit, None if zone is None else str(zone), read.format_, tuple(parts))


def _texts(encoder: Any) -> Texts:
    vocabulary = encoder.vectorizer_.vocabulary_
    svd = getattr(encoder, "tsvd_", None)
    lines = "\n".join(sorted(vocabulary, key=vocabulary.get))  # white space within runs is a blank
    return Texts(
        np.frombuffer(lines.encode(), np.uint8),
        encoder.vectorizer_.idf_,
        int(encoder.n_components_),
        None if svd is None else svd.components_,
        float(encoder.scaling_factor_),
    )


# -- read ------------------------------------------------------------------------------------------


def column_encoder(state: ColumnState, library: Library) -> ColumnEncoder:
    """Return an encoder that has learnt what the state says."""
    steps = [_step(name) for name in state.steps]
    if isinstance(state.last, Dates):
        steps += _date_steps(state.last, library)
    elif isinstance(state.last, Categories):
        steps.append(_one_hot(state.name, state.last))
    elif isinstance(state.last, Texts):
        steps.append(_text_step(state.last, state.outputs))
    return ColumnEncoder(state.name, state.kind, tuple(steps), state.outputs, state.seen_once)


def _step(name: Step) -> Any:
    import_skrub()
    module, example = _EXAMPLES[name]
    return getattr(importlib.import_module(module), name)().fit(example)


def _date_steps(state: Dates, library: Library) -> list[Any]:
    skrub = import_skrub()
    unit: Any = state.unit
    if library == "polars":
        import polars as pl

        kind: Any = pl.Date if unit == "day" else pl.Datetime(unit, state.zone)
    else:
        kind = np.dtype(f"M8[{unit}]") if state.zone is None else pd.DatetimeTZDtype(unit, state.zone)
    read, parts = skrub.ToDatetime(), skrub.DatetimeEncoder()
    example = pd.Series(pd.to_datetime(["2024-01-01"]))
    parts.fit(read.fit_transform(example))
    read.format_, read.output_dtype_, read.output_time_zone_ = state.shape, kind, state.zone
    parts.extracted_features_ = list(state.parts)
    return [read, parts]


def _one_hot(name: str, state: Categories) -> Any:
    from sklearn.preprocessing import OneHotEncoder

    values = pd.DataFrame({name: pd.Series(state.values, dtype=object)})
    encoder = OneHotEncoder(dtype=np.float32, handle_unknown="ignore", sparse_output=False)
    return encoder.set_output(transform="pandas").fit(values)


def _text_step(state: Texts, outputs: tuple[str, ...]) -> Any:
    from sklearn.decomposition import TruncatedSVD
    from sklearn.feature_extraction.text import TfidfVectorizer

    encoder = import_skrub().StringEncoder(n_components=state.parts, random_state=0)
    encoder.to_str = _step("ToStr")
    encoder.vectorizer_ = TfidfVectorizer(ngram_range=RUNS, analyzer="char_wb", vocabulary=state.runs)
    encoder.vectorizer_.idf_ = state.weights
    if state.components is not None:
        encoder.tsvd_ = TruncatedSVD(state.parts)
        encoder.tsvd_.components_ = state.components
    encoder.scaling_factor_, encoder.n_components_ = np.float32(state.scale), state.parts
    encoder.all_outputs_ = list(outputs)
    return encoder
