"""The columns of a fitted model of tables, and values of cells as the table that the model predicts."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from tailwise.model.inputs import TableInputs
from tailwise.tables.column_encoders import AnyColumn, CategoryColumn, DateColumn, EmptyColumn, NumberColumn
from tailwise.tables.columns import shown_cell

if TYPE_CHECKING:
    from tailwise.estimator import TailRegressor
    from tailwise.tables.encode import TablePreprocessor

Kind = Literal["number", "duration", "date", "text", "unused"]


@dataclass(frozen=True)
class Column:
    """A column as training saw it."""

    name: str
    kind: Kind
    nullable: bool
    example: Any = None
    categories: tuple[str, ...] = ()
    """Every text that a column of categories had in training; none for a column of free text."""
    date_format: str | None = None
    """Format of dates as Python writes it; None is ISO 8601."""
    time_zone: str | None = None
    far: tuple[float, float] | None = None
    """Numbers below the first or above the second one lie far outside the range of training."""
    flag: bool = False
    """Whether intervals go by its values true and false: the numbers 1 and 0 would be in no group."""

    @property
    def description(self) -> str:
        """What a cell may hold, for clients of a server."""
        if self.kind == "unused":
            return "Not used: it had no value in training. Can be left out."
        if self.kind == "duration":
            return "A duration in seconds."
        if self.kind == "date":
            zone = f" in the time zone {self.time_zone}" if self.time_zone else ""
            return f"A date as {self.date_format or 'ISO 8601'}{zone}."
        if self.categories:
            return "A category. Others than those of training are answered with a note."
        return "A text." if self.kind == "text" else "A number, or true or false."

    def date(self, text: str) -> Any:
        """Return a text as a time stamp, without a time zone unless the column had one."""
        import pandas as pd

        try:
            date: Any = pd.to_datetime(text, format=self.date_format or "ISO8601", errors="coerce")
            if date is not pd.NaT and self.time_zone is None:
                date = date.tz_localize(None)
            elif date is not pd.NaT:
                localized = date.tzinfo is not None
                date = date.tz_convert(self.time_zone) if localized else date.tz_localize(self.time_zone)
        except (ValueError, OverflowError):  # a date that a clock change skipped, or far beyond the calendar
            date = pd.NaT
        if date is pd.NaT:
            raise ValueError(f"Input should be a date as {self.date_format or 'ISO 8601'}")
        return date

    def series(self, cells: Sequence[Any]) -> Any:
        """Return cells as a column in the type of training; None is a missing value."""
        import pandas as pd

        if self.kind == "text":
            return pd.Series(cells, dtype=object)
        if self.kind == "date":
            zone = f", {self.time_zone}" if self.time_zone else ""
            return pd.Series(cells, dtype=f"datetime64[us{zone}]")
        numbers = pd.Series([np.nan] * len(cells) if self.kind == "unused" else cells, dtype="float64")
        if self.kind == "duration":
            return pd.to_timedelta(numbers, unit="s")
        return numbers.astype("boolean") if self.flag else numbers

    def notes(self, cells: Sequence[Any]) -> list[str]:
        """Return a sentence about each new category and each number far outside the range of training."""
        if self.far is not None:
            low, high = self.far
            return [
                f"row {row}: column {self.name!r} holds {cell:.6g}, far outside the range of training; "
                "intervals do not account for this"
                for row, cell in enumerate(cells)
                if cell is not None and not low <= cell <= high
            ]
        known = {None, *self.categories}
        return [
            f"row {row}: column {self.name!r} holds {shown_cell(cell)}, which training did not have: "
            "encoded as no known value; intervals do not account for this"
            for row, cell in enumerate(cells if self.categories else ())
            if cell not in known
        ]


@dataclass(frozen=True)
class Columns:
    """The columns that a model takes, in its order."""

    all: tuple[Column, ...]
    named: bool
    """Whether training had column names; otherwise they are x0, x1 and so on, and the model takes arrays."""

    @classmethod
    def of(cls, model: TailRegressor) -> Columns:
        """Return the columns of a fitted model of tables; a model of anything else is an error."""
        inputs = model.model_.inputs
        if not isinstance(inputs, TableInputs):
            raise ValueError("only models of tables can be served: this one takes pictures or tensors")
        if model.model_.base.given:
            raise ValueError("the model needs predictions of your own base model: only your program has them")
        encoder, groups = inputs.encoder, inputs.groups
        names = encoder.columns or [f"x{place}" for place in range(len(encoder.numeric.center))]
        columns = [_number(encoder, name, place) for place, name in enumerate(names)]
        if encoder.encoders:
            columns = [_encoded(encoder, column) for column in encoder.encoders]
        if {"True", "False"} & set(groups.names):
            place = groups.column if isinstance(groups.column, int) else names.index(groups.column)
            columns[place] = replace(columns[place], flag=columns[place].kind == "number")
        return cls(tuple(columns), named=encoder.columns is not None)

    @property
    def example(self) -> dict[str, Any]:
        """A row that the model can predict, of medians and known categories."""
        return {column.name: column.example for column in self.all if column.kind != "unused"}

    def table(self, cells: Mapping[str, Sequence[Any]]) -> Any:
        """Return the cells of each column as the model takes them."""
        import pandas as pd

        columns = {column.name: column.series(cells[column.name]) for column in self.all}
        return pd.DataFrame(columns) if self.named else np.column_stack(list(columns.values()))


def _number(encoder: TablePreprocessor, name: str, place: int, kind: Kind = "number") -> Column:
    nullable = bool((encoder.numeric.missing == place).any())
    example = float(f"{float(encoder.numeric.center[place]):.6g}")
    return Column(name, kind, nullable, example, far=encoder.numeric.limits(place))


def _encoded(encoder: TablePreprocessor, column: AnyColumn) -> Column:
    """Return a column that has an encoder of its own."""
    name = column.name
    if isinstance(column, EmptyColumn):
        return Column(name, "unused", nullable=True)
    place = encoder.places[name][0]
    if isinstance(column, NumberColumn):
        return _number(encoder, name, place, "duration" if column.duration else "number")
    if isinstance(column, DateColumn):
        day = datetime.datetime(2024, 1, 31)
        example = day.strftime(column.shape) if column.shape else day.date().isoformat()
        nullable = bool((encoder.numeric.missing == place).any())
        return Column(name, "date", nullable, example, date_format=column.shape, time_zone=column.zone)
    if isinstance(column, CategoryColumn):
        texts = tuple(value for value in column.values if value is not None)
        return Column(name, "text", None in column.values, texts[0] if texts else "", texts)
    return Column(name, "text", nullable=True, example="text")
