"""A model as a function of whole columns: exchanged before or after encoding, the prediction is the same."""

import itertools
from dataclasses import replace

import numpy as np
import pytest

from tailwise import TailRegressor
from tailwise.explanations import shapley
from tailwise.explanations.columnwise import ColumnwiseModel
from tailwise.model.base import GivenBase
from tailwise.model.inputs import TensorInputs
from tests.explanations.conftest import Rows, make_rows


def test_columns_exchanged_after_encoding_are_those_exchanged_before(
    model: TailRegressor, rows: Rows
) -> None:
    table = rows[0]
    columns = ColumnwiseModel(model)
    matrix = columns.encode(table)
    assert list(columns.places) == list(table.columns)
    assert len(columns.places["when"]) > 1 and len(columns.places["text"]) > 1
    assert sorted(itertools.chain(*columns.places.values())) == list(range(matrix.shape[1]))
    order = np.random.default_rng(0).permutation(len(table))
    for name, places in columns.places.items():
        raw, encoded = table.copy(), matrix.copy()
        raw[name] = table[name].to_numpy()[order]
        encoded[:, places] = matrix[np.ix_(order, places)]
        np.testing.assert_array_equal(columns.figure(encoded), model.predict(raw))


def test_figures_are_those_of_the_estimator(model: TailRegressor, rows: Rows) -> None:
    table = rows[0]
    columns = ColumnwiseModel(model, emphasis=0.2, coverage=0.8)
    matrix = columns.encode(table)
    point, std = model.predict(table, return_std=True, emphasis=0.2)
    ends = model.predict_interval(table, 0.8, emphasis=0.2)
    np.testing.assert_array_equal(columns.figure(matrix, "prediction"), point)
    np.testing.assert_array_equal(columns.figure(matrix, "std"), std)
    np.testing.assert_array_equal(columns.figure(matrix, "width"), ends[:, 1] - ends[:, 0])
    with pytest.raises(ValueError, match="unknown figure 'widht'; did you mean 'width'"):
        columns.figure(matrix, "widht")  # type: ignore[arg-type]


@pytest.mark.parametrize("column", ["kind", 1])
def test_intervals_by_a_column_follow_it(column: str | int, rows: Rows) -> None:
    table, y = make_rows(150, seed=0)
    table = table[["size", "kind"]] if column == "kind" else table[["size", "junk"]].to_numpy()
    settings = {"base": None, "folds": 1, "epochs": 2, "random_state": 0}
    fitted = TailRegressor(conformal_by=column, **settings).fit(
        table, y + 9 * y * (make_rows(150, 0)[0]["kind"] == "b")
    )
    columns = ColumnwiseModel(fitted)
    ends = fitted.predict_interval(table)
    matrix = columns.encode(table)
    np.testing.assert_array_equal(columns.figure(matrix, "width"), ends[:, 1] - ends[:, 0])
    assert list(columns.places.values())[1][-1] == matrix.shape[1] - 1
    found = shapley(fitted, table[:4], table, of="width", background_rows=10)
    assert found.gap < 1e-9 * np.ptp(y)


def test_models_without_columns_of_their_own_are_refused(model: TailRegressor) -> None:
    given, own = TailRegressor(), TailRegressor()
    given.model_ = replace(model.model_, base=GivenBase(1))
    with pytest.raises(ValueError, match="fitted with base_prediction"):
        ColumnwiseModel(given)
    own.model_ = replace(model.model_, inputs=TensorInputs())
    with pytest.raises(ValueError, match="takes no tables"):
        ColumnwiseModel(own).encode(None)
