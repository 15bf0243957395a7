"""Predictions and intervals along the values of a column."""

import numpy as np
import pandas as pd
import pytest

from tailwise import TailRegressor
from tailwise.explanations import partial_dependence
from tests.explanations.conftest import Rows


def test_the_means_are_those_of_tables_with_one_value(model: TailRegressor, rows: Rows) -> None:
    for column, value in (("kind", "b"), ("size", 0.5), ("when", pd.Timestamp("2021-02-03"))):
        (found,) = partial_dependence(model, rows[0], column, values=[value]).to_dict("records")
        same = rows[0].assign(**{column: value})
        ends = model.predict_interval(same)
        assert found["value"] == value
        assert found["prediction"] == pytest.approx(model.predict(same).mean())
        assert [found["lower"], found["upper"]] == pytest.approx(ends.mean(axis=0))
        assert found["prediction_low"] <= found["prediction"] <= found["prediction_high"]


def test_values_of_every_kind_of_column(model: TailRegressor, rows: Rows) -> None:
    size = partial_dependence(model, rows[0], "size", points=6, max_rows=30)
    assert len(size) == 6 and size["value"].iloc[[0, -1]].tolist() == [
        rows[0]["size"].min(),
        rows[0]["size"].max(),
    ]
    assert size["prediction"].iloc[-1] > size["prediction"].iloc[0]
    assert ((size["lower"] <= size["prediction"]) & (size["prediction"] <= size["upper"])).all()
    kind = partial_dependence(model, rows[0], "kind", max_rows=30).set_index("value")["prediction"]
    assert set(kind.index) == {"a", "b", "c"} and kind.idxmax() == "a"
    text = partial_dependence(model, rows[0], "text", points=4, max_rows=10)
    assert text["value"].isin(rows[0]["text"]).all() and len(text) == 4
    junk = partial_dependence(model, rows[0], "junk", max_rows=10)
    assert junk["value"].tolist() == list(range(9))
    assert partial_dependence(model, rows[0], "when", points=3, max_rows=5)["value"].is_monotonic_increasing


def test_mistakes_are_named(model: TailRegressor, rows: Rows) -> None:
    with pytest.raises(ValueError, match="unknown column 'sise'; did you mean 'size'"):
        partial_dependence(model, rows[0], "sise")
    with pytest.raises(TypeError, match="pandas DataFrame"):
        partial_dependence(model, np.zeros((3, 5)), "size")
    with pytest.raises(ValueError, match="'size' has no values"):
        partial_dependence(model, rows[0].assign(size=np.nan), "size")
