"""What a server and MLflow take: the columns of a model, and rows of cells."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from starlette.exceptions import HTTPException

from tailwise import TailRegressor
from tailwise.model.base import Base
from tailwise.model.inputs import TensorInputs
from tailwise.serving import pyfunc
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
    model.model_ = replace(model.model_, base=Base(given=1))
    with pytest.raises(ValueError, match="needs predictions of your own base model"):
        Columns.of(model)
    model.model_ = replace(model.model_, inputs=TensorInputs())
    with pytest.raises(ValueError, match="only models of tables can be served"):
        Columns.of(model)


# -- MLflow ----------------------------------------------------------------------------------------


mlflow = pytest.importorskip("mlflow")


def as_floats(table: pd.DataFrame) -> pd.DataFrame:
    """Return a table as MLflow takes it: numbers as float64, categories as text."""
    return table.assign(
        whole=table["whole"].astype("float64"),
        flag=table["flag"].astype("float64"),
        kind=table["kind"].astype(object),
        word=table["word"].astype(object),
        hour=table["hour"].dt.tz_convert("UTC").dt.tz_localize(None),
    ).drop(columns="empty")


@pytest.mark.slow
def test_mlflow_takes_every_kind_of_column(
    model: TailRegressor, model_file: Path, table: pd.DataFrame, tmp_path: Path
) -> None:
    path = pyfunc.save_model(model_file, tmp_path / "mlflow")
    assert [f.name for f in (path / "data").iterdir()] == ["model.tailwise"]
    assert not [f for f in path.rglob("*") if f.suffix in (".pkl", ".pickle", ".joblib")]
    loaded = mlflow.pyfunc.load_model(str(path))
    params = {"coverage": 0.8, "emphasis": 1.0, "quantiles": [0.1, 0.9]}
    found = loaded.predict(as_floats(table), params=params)
    expected = model.predict_frame(table, 0.8, emphasis=1.0)
    pd.testing.assert_frame_equal(found[expected.columns], expected, rtol=1e-5)
    quantiles = model.predict_quantiles(table, [0.1, 0.9], emphasis=1.0)
    np.testing.assert_allclose(found[["quantile_0.1", "quantile_0.9"]], quantiles, rtol=1e-5)
    plain = loaded.predict(as_floats(table))
    pd.testing.assert_frame_equal(plain, model.predict_frame(table), rtol=1e-5)
    assert set(plain.columns) == set(loaded.metadata.signature.outputs.input_names())


def test_mlflow_predicts_what_the_model_does(tmp_path: Path) -> None:
    x, y = numbers(120)
    data = pd.DataFrame(x, columns=["a", "b", "c"])
    model = quick(epochs=1).fit(data, y)
    file = model.save(tmp_path / "m.tailwise")
    path = pyfunc.save_model(
        file, tmp_path / "mlflow"
    )  # first: it imports mlflow.pyfunc without its warnings
    loaded = mlflow.pyfunc.load_model(str(path))
    found = loaded.predict(data, params={"coverage": 0.8})
    pd.testing.assert_frame_equal(found, model.predict_frame(data, 0.8))
    with pytest.raises(mlflow.exceptions.MlflowException, match="missing inputs"):
        loaded.predict(data[["a", "b"]])


def test_the_signature_of_several_targets_and_of_arrays() -> None:
    x, y = numbers(120)
    data = pd.DataFrame(x, columns=["a", "b", "c"])
    both = quick(epochs=1).fit(data, pd.DataFrame({"u": y, "v": -y}))
    names = pyfunc.signature(both).outputs.input_names()
    assert "upper_u" in names and "region_v" in names
    found = pyfunc.Predictor(both).predict(data, {"quantiles": [0.5]})
    np.testing.assert_allclose(found["quantile_0.5_v"], both.predict_quantiles(data, 0.5)[:, 1, 0])
    with pytest.raises(ValueError, match="MLflow needs column names"):
        pyfunc.signature(quick(epochs=1).fit(x, y))
