"""Columns as a JSON schema, and JSON rows as a table."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from tailwise import TailRegressor
from tailwise.model.base import GivenBase
from tailwise.model.inputs import TensorInputs
from tailwise.serving.row_schema import MAX_SHOWN, MAX_TEXT, Column, RefusedRequest, RowSchema
from tests.estimator.small_tables import quick
from tests.estimator.small_tables import table as numbers
from tests.serving.conftest import as_json


@pytest.fixture(scope="module")
def schema(model: TailRegressor) -> RowSchema:
    return RowSchema.of(model)


def test_the_schema_has_the_types_of_training(schema: RowSchema) -> None:
    found = schema.to_json()
    cells = found["properties"]
    assert cells["number"]["type"] == ["number", "boolean", "null"]
    assert cells["whole"]["type"] == cells["flag"]["type"] == ["number", "boolean"]
    assert cells["kind"]["type"] == ["string"] and cells["kind"]["examples"] == ["a", "b", "c"]
    assert cells["word"]["type"] == ["string", "null"] and cells["word"]["examples"] == ["green", "red"]
    assert cells["text"]["type"] == ["string", "null"]
    assert "ISO 8601" in cells["day"]["description"] and "Europe/Paris" in cells["hour"]["description"]
    assert "Not used" in cells["empty"]["description"]
    assert set(found["required"]) == set(cells) - {"empty"}


def test_json_rows_are_the_table_that_the_model_predicts(
    schema: RowSchema, model: TailRegressor, table: pd.DataFrame
) -> None:
    cells, notes = schema.read(as_json(table))
    assert notes == []
    assert model.preprocessor_ is not None
    sent, given = (model.preprocessor_.matrix(rows) for rows in (schema.table([cells]), table))
    np.testing.assert_array_equal(sent, given)
    halves = [schema.read(as_json(part))[0] for part in (table[:50], table[50:])]
    np.testing.assert_array_equal(model.preprocessor_.matrix(schema.table(halves)), given)


def test_the_example_can_be_predicted(schema: RowSchema, model: TailRegressor) -> None:
    cells, notes = schema.read([schema.example()])
    assert not notes and np.isfinite(model.predict(schema.table([cells]))).all()


@pytest.mark.parametrize(
    ("column", "cell", "problem"),
    [
        ("number", "12", "is the text '12', not a number"),
        ("number", [1], "is a list, not a number"),
        ("number", 10**400, "is infinite or too large"),
        ("number", 1e999, "is infinite or too large"),
        ("whole", None, "is null, and was never missing in training: give a value"),
        ("kind", 3, "is the number '3', not a text: write it in quotes"),
        ("text", True, "is true or false 'True', not a text: write it in quotes"),
        ("text", {"a": 1}, "is an object, not a text: write it in quotes"),
        ("text", "x" * (MAX_TEXT + 1), f"has {MAX_TEXT + 1} characters, at most {MAX_TEXT} are read"),
        ("text", "\ud800", "is not valid Unicode"),
        ("day", "31/01/2024", "is '31/01/2024', not a date as ISO 8601"),
        ("hour", "2024-03-31T02:30", "is '2024-03-31T02:30', not a date as ISO 8601"),
    ],
)
def test_a_wrong_cell_names_row_and_column(schema: RowSchema, column: str, cell: Any, problem: str) -> None:
    good = schema.example()
    with pytest.raises(RefusedRequest) as refused:
        schema.read([good, {**good, column: cell}])
    assert refused.value.status == 422
    assert refused.value.problems == [(1, column, problem)]
    assert refused.value.message == f"row 1, column {column!r} {problem}"


def test_rows_that_lack_columns(schema: RowSchema) -> None:
    good = schema.example()
    short = {("nummber" if k == "number" else k): v for k, v in good.items() if k != "kind"}
    with pytest.raises(RefusedRequest) as refused:
        schema.read([good, 5, short])
    assert refused.value.problems == [
        (1, None, "is the number '5', not an object with columns"),
        (2, "number", "is not in the row; did you mean 'nummber'?"),
        (2, "kind", "is not in the row"),
    ]
    with pytest.raises(RefusedRequest, match=f"the first {MAX_SHOWN}") as refused:
        schema.read([{}] * 500)
    assert len(refused.value.problems) == MAX_SHOWN
    texts = {p.problem for p in refused.value.problems}
    assert texts == {"is not in the row", "is not in the row: give a value, or null for a missing one"}


def test_a_new_category_is_a_note_and_other_columns_are_left_out(schema: RowSchema) -> None:
    cells, notes = schema.read([{**schema.example(), "kind": "z", "id": 7, "empty": "anything"}])
    assert "id" not in cells and cells["empty"] == [None]
    assert len(notes) == 1 and "row 0: column 'kind' holds 'z', which training did not have" in notes[0]


def test_columns_without_names_are_numbered() -> None:
    x, y = numbers(60)
    model = quick(epochs=1).fit(x, y)
    schema = RowSchema.of(model)
    assert [column.name for column in schema.columns] == ["x0", "x1", "x2"]
    cells, _ = schema.read([{f"x{k}": value for k, value in enumerate(row)} for row in x[:5].tolist()])
    np.testing.assert_array_equal(schema.table([cells]), x[:5])
    model.model_ = replace(model.model_, base=GivenBase(1))
    with pytest.raises(ValueError, match="needs predictions of your own base model"):
        RowSchema.of(model)
    model.model_ = replace(model.model_, inputs=TensorInputs())
    with pytest.raises(ValueError, match="only models of tables can be served"):
        RowSchema.of(model)


def test_durations_and_dates_of_another_format() -> None:
    rows = 60
    rng = np.random.default_rng(0)
    days = pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.integers(0, 300, rows), "D")
    data = pd.DataFrame(
        {
            "took": pd.to_timedelta(rng.integers(1, 9000, rows), unit="s"),
            "day": days.strftime("%d/%m/%Y"),
            "size": rng.normal(size=rows),
        }
    )
    model = quick(epochs=1).fit(data, rng.normal(size=rows))
    schema = RowSchema.of(model)
    cells = schema.to_json()["properties"]
    assert "seconds" in cells["took"]["description"] and cells["day"]["examples"] == ["31/01/2024"]
    sent = data.assign(took=data["took"].dt.total_seconds()).to_dict(orient="records")
    read, _ = schema.read(sent)
    assert model.preprocessor_ is not None
    np.testing.assert_array_equal(
        model.preprocessor_.matrix(schema.table([read])), model.preprocessor_.matrix(data)
    )
    assert Column("took", "duration", False).read([True])[1] == [
        (0, "took", "is true or false 'True', not a number")
    ]
