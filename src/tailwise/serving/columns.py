"""The columns of a fitted model of tables, and values of cells as the table that the model predicts."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from tailwise.model.inputs import TableInputs
from tailwise.tables.column_encoders import AnyColumn, CategoryColumn, DateColumn, EmptyColumn, NumberColumn
from tailwise.tables.columns import shown_cell

if TYPE_CHECKING:
    from tailwise.estimator import TailRegressor
    from tailwise.tables.encode import TablePreprocessor

COVERAGE = 0.9
"""Of intervals, unless told otherwise."""
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
    date_format: str = "ISO8601"
    """Format of dates as pandas writes it."""
    time_zone: str | None = None
    far: tuple[float, float] | None = None
    """Numbers below the first or above the second one lie far outside the range of training."""
    flag: bool = False
    """Whether intervals go by its values true and false: the numbers 1 and 0 would be in no group."""

    @property
    def description(self) -> str:
        """What a cell may hold, for clients of a server."""
        zone = f" in the time zone {self.time_zone}" if self.time_zone else ""
        return {
            "number": "A number, or true or false.",
            "duration": "A duration in seconds.",
            "date": f"A date as {self.date_format}{zone}.",
            "text": "A category: others than those of training get a note." if self.categories else "A text.",
            "unused": "Not used: it had no value in training. Can be left out.",
        }[self.kind]

    def date(self, text: str) -> Any:
        """Return a text as a time stamp, without a time zone unless the column had one."""
        import pandas as pd

        try:
            date: Any = pd.to_datetime(text, format=self.date_format)
            if self.time_zone is None:
                date = date.tz_localize(None)
            elif date.tzinfo is None:
                date = date.tz_localize(self.time_zone)
            else:
                date = date.tz_convert(self.time_zone)
        except (ValueError, OverflowError):  # also a date that a clock change skipped
            date = pd.NaT
        if date is pd.NaT:
            raise ValueError(f"Input should be a date as {self.date_format}")
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
        low, high = self.far or (-np.inf, np.inf)
        notes = []
        for row, cell in enumerate(cells):
            if cell is None:
                continue
            if self.categories and cell not in self.categories:
                problem = f"{shown_cell(cell)}, which training did not have: encoded as no known value"
            elif self.far is not None and not low <= cell <= high:
                problem = f"{cell:.6g}, far outside the range of training"
            else:
                continue
            notes.append(
                f"row {row}: column {self.name!r} holds {problem}; intervals do not account for this"
            )
        return notes


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

    @property
    def example_cells(self) -> list[Any]:
        """The cells of `example` as `table` takes them."""
        return [c.date(c.example) if c.kind == "date" else c.example for c in self.all]

    def table(self, rows: Sequence[Sequence[Any]]) -> Any:
        """Return rows of cells as the model takes them."""
        import pandas as pd

        cells = zip(self.all, zip(*rows, strict=True), strict=True)
        columns = {column.name: column.series(values) for column, values in cells}
        return pd.DataFrame(columns) if self.named else np.column_stack(list(columns.values()))


def _number(encoder: TablePreprocessor, name: str, place: int, *, duration: bool = False) -> Column:
    kind: Kind = "duration" if duration else "number"
    example = float(f"{float(encoder.numeric.center[place]):.6g}")
    low, high = (float(ends[place]) for ends in encoder.numeric.limits)
    return Column(name, kind, _nullable(encoder, place), example, far=(low, high))


def _nullable(encoder: TablePreprocessor, place: int) -> bool:
    return bool((encoder.numeric.missing == place).any())


def _encoded(encoder: TablePreprocessor, column: AnyColumn) -> Column:
    """Return a column that has an encoder of its own."""
    name = column.name
    if isinstance(column, EmptyColumn):
        return Column(name, "unused", nullable=True)
    place = encoder.places[name][0]
    if isinstance(column, NumberColumn):
        return _number(encoder, name, place, duration=column.duration)
    if isinstance(column, DateColumn):
        shape = column.shape or "ISO8601"
        example = datetime.datetime(2024, 1, 31).strftime(column.shape or "%Y-%m-%d")
        return Column(name, "date", _nullable(encoder, place), example, (), shape, column.zone)
    if isinstance(column, CategoryColumn):
        texts = column.values
        return Column(name, "text", column.missing, texts[0] if texts else "", texts)
    return Column(name, "text", nullable=True, example="text")
