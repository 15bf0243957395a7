"""The columns of a fitted model as a JSON schema, and JSON rows as the table that the model predicts.

Every problem names the row, counted from 0, and the column.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from tailwise.lookup import nearest
from tailwise.model.inputs import TableInputs
from tailwise.tables.columns import shown_cell

if TYPE_CHECKING:
    from tailwise.estimator import TailRegressor
    from tailwise.tables.column_encoders import ColumnEncoder
    from tailwise.tables.encode import TablePreprocessor

MAX_TEXT = 100_000
"""Most characters of one cell."""
MAX_SHOWN = 20
"""Most problems, and most notes, in one answer."""
MAX_EXAMPLES = 20
"""Most known categories in the schema of a column."""
Kind = Literal["number", "duration", "date", "text", "unused"]
Cells = dict[str, list[Any]]
"""Checked cells of some rows by column."""


class Problem(NamedTuple):
    """What is wrong with a cell; `column` is None for a whole row, `row` is None for the request."""

    row: int | None
    column: str | None
    problem: str


class RefusedRequest(Exception):
    """A request that cannot be answered: its HTTP status, a sentence, and the cells that are wrong."""

    def __init__(self, status: int, message: str, problems: Sequence[Problem] = ()) -> None:
        super().__init__(message)
        self.status, self.message, self.problems = status, message, list(problems)


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

    def to_json(self) -> dict[str, Any]:
        """Return the JSON schema of a cell."""
        types = {"number": ["number", "boolean"], "duration": ["number"], "unused": []}.get(
            self.kind, ["string"]
        )
        schema: dict[str, Any] = {"type": [*types, *(["null"] if self.nullable else [])]}
        if self.kind == "unused":
            return {"description": "Not used: it had no value in training. Can be left out."}
        if self.kind == "duration":
            schema["description"] = "A duration in seconds."
        if self.kind == "date":
            zone = f" in the time zone {self.time_zone}" if self.time_zone else ""
            schema["description"] = f"A date as {self.date_format or 'ISO 8601'}{zone}."
        if self.categories:
            schema["description"] = "A category. Others than those of training are answered with a note."
        shown = list(self.categories[:MAX_EXAMPLES]) or [self.example]
        return {**schema, "examples": shown}

    def read(self, cells: Sequence[Any]) -> tuple[list[Any], list[Problem], list[str]]:
        """Return cells as the model takes them, what is wrong with them, and what is unusual about them."""
        if self.kind == "unused":
            return [None] * len(cells), [], []
        values: list[Any] = []
        problems: list[Problem] = []
        for row, cell in enumerate(cells):
            value, wrong = self._value(cell)
            values.append(value)
            if wrong:
                problems.append(Problem(row, self.name, wrong))
        if self.kind == "date":
            values, unread = self._dates(values)  # a cell that is wrong already is None
            problems += unread
        known = set(self.categories)
        notes = [
            f"row {row}: column {self.name!r} holds {shown_cell(value)}, which training did not have: "
            "encoded as no known value; intervals do not account for this"
            for row, value in enumerate(values if known else [])
            if value is not None and value not in known
        ]
        return values, problems, notes

    def _value(self, cell: Any) -> tuple[Any, str]:
        """Return a cell of a JSON row as a number or a text, and what is wrong with it."""
        if cell is None:
            return None, "" if self.nullable else "is null, and was never missing in training: give a value"
        if self.kind in ("number", "duration"):
            if not isinstance(cell, (int, float)) or (self.kind == "duration" and isinstance(cell, bool)):
                return None, f"is {_shown(cell)}, not a number"
            try:
                number = float(cell)
            except OverflowError:
                number = math.inf
            return number, "" if math.isfinite(number) else "is infinite or too large"
        if not isinstance(cell, str):
            return None, f"is {_shown(cell)}, not a text: write it in quotes"
        if len(cell) > MAX_TEXT:
            return None, f"has {len(cell)} characters, at most {MAX_TEXT} are read"
        if any("\ud800" <= c <= "\udfff" for c in cell):
            return None, "is not valid Unicode"
        return cell, ""

    def _dates(self, texts: Sequence[str | None]) -> tuple[list[Any], list[Problem]]:
        import pandas as pd

        found = [self._date(text) for text in texts]
        problems = [
            Problem(row, self.name, f"is {shown_cell(text)}, not a date as {self.date_format or 'ISO 8601'}")
            for row, (text, date) in enumerate(zip(texts, found, strict=True))
            if text is not None and date is pd.NaT
        ]
        return found, problems

    def _date(self, text: str | None) -> Any:
        """Return a text as a time stamp, without a time zone unless the column had one."""
        import pandas as pd

        if text is None:
            return pd.NaT
        try:
            date: Any = pd.to_datetime(text, format=self.date_format or "ISO8601", errors="coerce")
            if date is pd.NaT or self.time_zone is None:
                return date if date is pd.NaT else date.tz_localize(None)
            return (
                date.tz_localize(self.time_zone) if date.tzinfo is None else date.tz_convert(self.time_zone)
            )
        except (ValueError, OverflowError):  # a date that a clock change skipped, or far beyond the calendar
            return pd.NaT


def _shown(cell: Any) -> str:
    kinds = {bool: "true or false", dict: "an object", list: "a list", str: "the text"}
    kind = kinds.get(type(cell), "the number")
    return f"{kind} {shown_cell(cell)}" if isinstance(cell, (str, int, float)) else kind


@dataclass(frozen=True)
class RowSchema:
    """The columns that a model takes, in its order."""

    columns: tuple[Column, ...]
    named: bool = True
    """Whether training had column names; otherwise they are x0, x1 and so on, and the model takes arrays."""
    flag: str | None = None
    """A column of true and false that intervals go by: the numbers 1 and 0 would be in no group."""

    @classmethod
    def of(cls, model: TailRegressor) -> RowSchema:
        """Return the columns of a fitted model of tables; a model of anything else is an error."""
        inputs = model.model_.inputs
        if not isinstance(inputs, TableInputs):
            raise ValueError("only models of tables can be served: this one takes pictures or tensors")
        if model.model_.base.given:
            raise ValueError("the model needs predictions of your own base model: only your program has them")
        encoder, groups = inputs.encoder, inputs.groups
        flag = str(groups.column) if {"True", "False"} & set(groups.names) else None
        if encoder.columns is None:
            count = len(encoder.numeric.center)
            return cls(tuple(_number(encoder, f"x{k}", k) for k in range(count)), named=False)
        if not encoder.encoders:
            return cls(tuple(_number(encoder, name, k) for k, name in enumerate(encoder.columns)), flag=flag)
        return cls(tuple(_encoded(encoder, column) for column in encoder.encoders), flag=flag)

    def to_json(self) -> dict[str, Any]:
        """Return the JSON schema of a row."""
        return {
            "type": "object",
            "properties": {column.name: column.to_json() for column in self.columns},
            "required": [column.name for column in self.columns if column.kind != "unused"],
        }

    def example(self) -> dict[str, Any]:
        """Return a row that the model can predict, of medians and known categories."""
        return {column.name: column.example for column in self.columns if column.kind != "unused"}

    def read(self, rows: Sequence[Any]) -> tuple[Cells, list[str]]:
        """Return the cells of JSON rows, and notes about them; bad rows are a `RefusedRequest`."""
        problems = self._incomplete(rows)
        cells: Cells = {}
        notes: list[str] = []
        known = {(problem.row, problem.column) for problem in problems}
        if len(problems) > 2 * MAX_SHOWN:  # enough to show: the rows after these were not looked at
            rows = rows[: (problems[-1].row or 0) + 1]
        for column in self.columns:
            found = column.read([row.get(column.name) if isinstance(row, Mapping) else None for row in rows])
            cells[column.name] = found[0]
            problems += [p for p in found[1] if not known & {(p.row, p.column), (p.row, None)}]
            notes += found[2]
        if problems:
            problems.sort(key=lambda problem: problem.row or 0)
            rest = len(problems) - MAX_SHOWN
            more = f" (the first {MAX_SHOWN}; {rest} more)" if rest > 0 else ""
            first = problems[0]
            where = f"row {first.row}" + ("" if first.column is None else f", column {first.column!r}")
            raise RefusedRequest(422, f"{where} {first.problem}{more}", problems[:MAX_SHOWN])
        return cells, notes[:MAX_SHOWN]

    def _incomplete(self, rows: Sequence[Any]) -> list[Problem]:
        """Return the rows that are no objects, and the columns that they lack."""
        problems: list[Problem] = []
        needed = {c.name: c for c in self.columns if c.kind != "unused"}
        for number, row in enumerate(rows):
            if not isinstance(row, Mapping):
                problems.append(Problem(number, None, f"is {_shown(row)}, not an object with columns"))
                continue
            for name, column in needed.items():
                if name not in row:
                    strange = [str(key)[:80] for key in row if key not in needed]
                    hint = nearest(name, strange) if strange else ""
                    hint = hint if "did you mean" in hint else ""
                    if not hint and column.nullable:
                        hint = ": give a value, or null for a missing one"
                    problems.append(Problem(number, name, f"is not in the row{hint}"))
            if len(problems) > 2 * MAX_SHOWN:
                break
        return problems

    def table(self, parts: Sequence[Cells]) -> Any:
        """Return checked cells of several requests as one table, in the types of training."""
        import pandas as pd

        joined = {c.name: [cell for part in parts for cell in part[c.name]] for c in self.columns}
        if not self.named:
            return np.column_stack([np.array(cells, np.float64) for cells in joined.values()])
        table: dict[str, Any] = {}
        for column in self.columns:
            cells = joined[column.name]
            if column.kind == "number" and column.name == self.flag:
                table[column.name] = pd.Series(cells, dtype="float64").astype("boolean")
            elif column.kind in ("number", "unused"):
                table[column.name] = pd.Series(cells, dtype="float64")
            elif column.kind == "duration":
                table[column.name] = pd.to_timedelta(pd.Series(cells, dtype="float64"), unit="s")
            elif column.kind == "date":
                zone = f", {column.time_zone}" if column.time_zone else ""
                table[column.name] = pd.Series(cells, dtype=f"datetime64[us{zone}]")
            else:
                table[column.name] = pd.Series(cells, dtype=object)
        return pd.DataFrame(table)


def _number(encoder: TablePreprocessor, name: str, place: int, kind: Kind = "number") -> Column:
    nullable = bool((encoder.numeric.missing == place).any())
    return Column(name, kind, nullable, example=float(f"{float(encoder.numeric.center[place]):.6g}"))


def _encoded(encoder: TablePreprocessor, column: ColumnEncoder) -> Column:
    """Return a column that skrub encodes."""
    name, kind, steps = column.name, column.kind, column.steps
    if not column.outputs:
        return Column(name, "unused", nullable=True)
    places = encoder.places[name]
    if kind == "numeric":
        return _number(encoder, name, places[0], "duration" if "DurationToFloat" in steps else "number")
    if kind == "datetime":
        read = steps["ToDatetime"]
        nullable = bool((encoder.numeric.missing == places[0]).any())
        zone = None if read.output_time_zone_ is None else str(read.output_time_zone_)
        shape = read.format_
        return Column(name, "date", nullable, _example_date(shape), date_format=shape, time_zone=zone)
    if kind == "low_cardinality" and "OneHotEncoder" in steps:
        known = steps["OneHotEncoder"].categories_[0]
        texts = tuple(str(value) for value in known if isinstance(value, str))
        return Column(name, "text", len(texts) < len(known), texts[0] if texts else "", texts)
    return Column(name, "text", nullable=True, example="text")


def _example_date(shape: str | None) -> str:
    import datetime

    day = datetime.datetime(2024, 1, 31)
    return day.strftime(shape) if shape else day.date().isoformat()
