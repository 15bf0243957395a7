"""Rows of a request: what a cell may hold, and which table the model gets."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from starlette.exceptions import HTTPException

from tailwise import TailRegressor
from tailwise.model.base import GivenBase
from tailwise.model.inputs import TensorInputs
from tailwise.serving.columns import Columns
from tailwise.serving.web import MAX_SHOWN, read_request, request_model, row_model
from tests.estimator.small_tables import quick
from tests.estimator.small_tables import table as numbers
from tests.serving.conftest import as_json


@pytest.fixture(scope="module")
def columns(model: TailRegressor) -> Columns:
    return Columns.of(model)


def as_table(columns: Columns, rows: list[Any]) -> Any:
    """Send rows as JSON and return the table that the model gets."""
    asked = request_model(row_model(columns), 1000)
    return columns.table(read_request(asked, json.dumps({"rows": rows}).encode())[0])


def refusal(columns: Columns, rows: list[Any]) -> Any:
    with pytest.raises(HTTPException) as refused:
        as_table(columns, rows)
    assert refused.value.status_code == 422
    return refused.value.detail


def test_the_schema_has_the_types_of_training(columns: Columns) -> None:
    schema = row_model(columns).model_json_schema()
    cells = schema["properties"]
    assert cells["whole"]["type"] == cells["flag"]["type"] == "number" and cells["kind"]["type"] == "string"
    assert cells["kind"]["examples"] == ["a", "b", "c"] and cells["word"]["examples"] == ["green", "red"]
    for name in ("number", "word", "text"):
        assert {"type": "null"} in cells[name]["anyOf"]
    assert "ISO8601" in cells["day"]["description"] and "Europe/Paris" in cells["hour"]["description"]
    assert "Not used" in cells["empty"]["description"]
    assert set(schema["required"]) == set(cells) - {"empty"}


def test_json_rows_are_the_table_that_the_model_predicts(
    columns: Columns, model: TailRegressor, table: pd.DataFrame
) -> None:
    assert model.preprocessor_ is not None
    sent, given = (model.preprocessor_.matrix(rows) for rows in (as_table(columns, as_json(table)), table))
    np.testing.assert_array_equal(sent, given)
    assert np.isfinite(model.predict(as_table(columns, [{**columns.example, "id": 7, "empty": "any"}]))).all()


@pytest.mark.parametrize(
    ("column", "cell", "problem"),
    [
        ("number", "12", "is '12': Input should be a number"),
        ("number", 1e999, "is 'inf': Input should be a finite number"),
        ("whole", None, "is null, and was never missing in training: give a value"),
        ("kind", 3, "is '3': Input should be a valid string"),
        ("day", "31/01/2024", "is '31/01/2024': Input should be a date as ISO8601"),
        ("hour", "2024-03-31T02:30", "Input should be a date as ISO8601"),  # the clocks skipped it
    ],
)
def test_a_wrong_cell_names_row_and_column(columns: Columns, column: str, cell: Any, problem: str) -> None:
    refused = refusal(columns, [columns.example, {**columns.example, column: cell}])
    (found,) = refused.problems
    assert (found.row, found.column) == (1, column) and problem in found.problem
    assert refused.error == f"row 1, column {column!r} {found.problem}"


def test_all_problems_of_the_first_wrong_row_are_listed(columns: Columns) -> None:
    short = {("nummber" if k == "number" else k): v for k, v in columns.example.items() if k != "kind"}
    problems = refusal(columns, [columns.example, {**short, "whole": None, "day": "soon"}, 5]).problems
    names = [(problem.row, problem.column) for problem in problems]
    assert names == [(1, "number"), (1, "whole"), (1, "kind"), (1, "day")]
    assert problems[0].problem == "is not in the row; did you mean 'nummber'?"
    assert refusal(columns, [5]).error.startswith("row 0 is '5': Input should be")
    assert len(refusal(columns, [{}] * 500).problems) < MAX_SHOWN


def test_columns_without_names_are_numbered() -> None:
    x, y = numbers(60)
    model = quick(epochs=1).fit(x, y)
    columns = Columns.of(model)
    assert [column.name for column in columns.all] == ["x0", "x1", "x2"]
    rows = [{f"x{k}": value for k, value in enumerate(row)} for row in x[:5].tolist()]
    np.testing.assert_array_equal(as_table(columns, rows), x[:5])
    model.model_ = replace(model.model_, base=GivenBase(1))
    with pytest.raises(ValueError, match="needs predictions of your own base model"):
        Columns.of(model)
    model.model_ = replace(model.model_, inputs=TensorInputs())
    with pytest.raises(ValueError, match="only models of tables can be served"):
        Columns.of(model)
