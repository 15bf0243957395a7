"""Requests and answers of the server as pydantic models; the row is made from the columns of the model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    Field,
    ValidationError,
    create_model,
    model_validator,
)
from starlette.exceptions import HTTPException

from tailwise.lookup import nearest
from tailwise.serving.columns import Column, Columns
from tailwise.tables.columns import shown_cell

COVERAGE = 0.9
MAX_LEVELS = 99
"""Most quantiles of one request."""
MAX_TEXT = 100_000
"""Most characters of one cell."""
MAX_SHOWN = 20
"""Most problems, and most notes, in one answer; most known categories in the schema of a column."""
MAX_STRANGE = 200
"""Most keys of a row that are compared with the name of a missing column."""
STATUS = {"json_invalid": 400, "too_long": 413}
"""Statuses of problems that pydantic finds; 422 for all others."""


class Problem(BaseModel):
    """What is wrong; `column` is null for a whole row, `row` for the request."""

    row: int | None
    """Counted from 0."""
    column: str | None
    problem: str


class Refusal(BaseModel):
    """The answer to a request that cannot be answered."""

    error: str
    problems: list[Problem]


class Refused(HTTPException):
    """A request that cannot be answered."""

    def __init__(
        self,
        status: int,
        error: str,
        problems: Sequence[Problem] = (),
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(status, error, headers)
        self.problems = list(problems)


class Prediction(BaseModel):
    """The columns of `TailRegressor.predict_frame`, and the quantiles that were asked for."""

    prediction: float
    std: float
    lower: float
    upper: float
    aleatoric_std: float
    epistemic_std: float
    region: str
    quantiles: dict[str, float] = Field({}, description="Left out unless asked for.")


class Answer(BaseModel):
    """A prediction for each row, by target if there are several."""

    predictions: list[Prediction] | list[dict[str, Prediction]]
    coverage: float
    rare: float | None
    emphasis: float | list[float]
    notes: list[str]


class Asked(BaseModel):
    """A request to /predict; `request_model` gives `rows` the schema of a model's columns."""

    rows: list[Any]
    coverage: float = Field(COVERAGE, ge=0.01, le=0.999, strict=True)
    rare: float | None = Field(
        None, ge=0.01, le=0.999, strict=True, description="Share of the rarest labels to contain too."
    )
    quantiles: list[Annotated[float, Field(gt=0, lt=1, strict=True)]] | None = Field(
        None, max_length=MAX_LEVELS
    )
    emphasis: float | None = Field(
        None, ge=0, le=1, strict=True, description="Attention to rare labels; null is the model's own."
    )

    @model_validator(mode="before")
    @classmethod
    def _no_other_fields(cls, values: Any) -> Any:
        for name in values if isinstance(values, dict) else ():
            if name not in cls.model_fields:
                raise ValueError(f"unknown field {name[:80]!r}{nearest(name[:80], cls.model_fields)}")
        return values


def request_model(row: type[BaseModel], max_rows: int) -> type[Asked]:
    """Return the model of a request with rows of a model. `read_rows` checks the rows."""
    items: dict[str, Any] = {"items": row.model_json_schema()}
    rows = Field(min_length=1, max_length=max_rows, json_schema_extra=items)
    return create_model("Asked", __base__=Asked, rows=(list[Any], rows))


def row_model(columns: Columns) -> type[BaseModel]:
    """Return the model of a row: ``c0``, ``c1`` and so on, with the names of the columns as aliases."""
    fields: dict[str, Any] = {}
    for place, column in enumerate(columns.all):
        about: dict[str, Any] = {"alias": column.name, "description": column.description}
        if column.kind == "unused":
            fields[f"c{place}"] = (Any, Field(None, **about))
            continue
        examples = list(column.categories[:MAX_SHOWN]) or [column.example]
        cell = _cell(column)
        kind = cell | None if column.nullable else cell
        fields[f"c{place}"] = (kind, Field(examples=examples, **about))
    return create_model("Row", **fields)


def _cell(column: Column) -> Any:
    """Return the type of a cell."""
    if column.kind == "number":
        return Annotated[float, BeforeValidator(_no_text), Field(allow_inf_nan=False)]
    if column.kind == "duration":
        return Annotated[float, Field(allow_inf_nan=False, strict=True)]
    text = Annotated[str, Field(max_length=MAX_TEXT)]
    return Annotated[text, AfterValidator(column.date)] if column.kind == "date" else text


def _no_text(cell: Any) -> Any:
    """Refuse numbers in quotes, which pydantic reads; true and false count as 1 and 0."""
    if isinstance(cell, str):
        raise ValueError("Input should be a number, not a text")
    return cell


def read_request(model: type[Asked], body: bytes) -> Asked:
    """Return a request without its rows checked; a wrong one is `Refused`."""
    try:
        return model.model_validate_json(body)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        problems = [
            Problem(row=None, column=None, problem=": ".join([*map(str, line["loc"]), _message(line)]))
            for line in error.errors(include_url=False)[:MAX_SHOWN]
        ]
        raise Refused(STATUS.get(first["type"], 422), problems[0].problem, problems) from None


def read_rows(columns: Columns, model: type[BaseModel], rows: Sequence[Any]) -> list[list[Any]]:
    """Return the cells of each row in the order of the columns; wrong ones are `Refused`, all at once."""
    cells: list[list[Any]] = []
    problems: list[Problem] = []
    for number, row in enumerate(rows):
        try:
            cells.append(list(vars(model.model_validate(row)).values()))
        except ValidationError as error:
            lines = error.errors(include_url=False)[: MAX_SHOWN + 1]
            problems += [_problem(number, row, columns, line) for line in lines]
        if len(problems) > MAX_SHOWN:
            break
    if problems:
        first, more = problems[0], ", and more" if len(problems) > MAX_SHOWN else ""
        where = f"row {first.row}" + ("" if first.column is None else f", column {first.column!r}")
        raise Refused(422, f"{where} {first.problem}{more}", problems[:MAX_SHOWN])
    return cells


def _problem(number: int, row: Any, columns: Columns, line: Mapping[str, Any]) -> Problem:
    name = str(line["loc"][0]) if line["loc"] else None
    if line["type"] == "missing":
        nullable = {column.name: column.nullable for column in columns.all}
        strange = [key[:80] for key in islice(row, MAX_STRANGE) if key not in nullable]
        hint = nearest(str(name), strange)
        if "did you mean" not in hint:
            hint = ": give a value, or null for a missing one" if nullable[str(name)] else ""
        text = f"is not in the row{hint}"
    elif line["type"] == "model_type":
        text = f"is {_shown(row)}, not an object with columns"
    elif line["input"] is None:
        text = "is null, and was never missing in training: give a value"
    else:
        text = f"is {_shown(line['input'])}: {_message(line)}"
    return Problem(row=number, column=name, problem=text)


def _message(line: Mapping[str, Any]) -> str:
    return str(line["msg"]).removeprefix("Value error, ")


def _shown(value: Any) -> str:
    if not isinstance(value, (str, int, float)):
        return "a list" if isinstance(value, list) else "an object"
    kind = "the text" if isinstance(value, str) else "the value"
    return f"{kind} {shown_cell(value)}"
