"""Tables of every kind, columns matched with a model's inputs and targets, and errors about them."""

from __future__ import annotations

import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from tailwise import TailRegressor
from tailwise.model.inputs import match_inputs, match_targets
from tests.estimator.small_tables import frame, quick


def test_a_table_as_users_have_it() -> None:
    data, y = frame()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = quick().fit(data, y)
        out = model.predict_frame(new := data.iloc[:5])
    assert list(out.index) == list(new.index)
    assert np.isfinite(out["prediction"]).all()
    assert list(model.feature_names_in_) == list(data.columns)
    with pytest.raises(ValueError, match="feature names"):
        model.predict(data.rename(columns={"size": "seize"}))


def test_warnings_about_new_rows_survive_saving(tmp_path: Path) -> None:
    x, y = frame(200)
    towns = np.where(np.arange(200) % 4 > 0, "capital", [f"c{i}" for i in range(200)])  # 50 occur once
    x = x.assign(town=towns)
    model = quick(epochs=1).fit(x, y)  # the rows held out give no warning
    model.save(tmp_path / "m")
    new = x.assign(felled=None, kind="never seen", town=np.where(towns == "capital", towns, "abroad"))
    for fitted in (model, TailRegressor.load(tmp_path / "m")):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            assert np.isfinite(fitted.predict(new)).all()
        assert [str(warning.message).partition(":")[0] for warning in caught] == [
            "column 'kind' holds values unknown at fit, such as 'never seen', in 200 of 200 rows",
            "column 'felled' was never missing at fit, but is in 200 of 200 rows",
        ]


TABLE = pd.DataFrame({"b": [1.0], "a": [2.0], "rent": [3.0], "price": [4.0]})
BOTH = ["price", "rent"]


def model(*, targets: list[str] | None = None, count: int = 1, inputs: tuple[str, ...] = ("a", "b")) -> Any:
    columns = SimpleNamespace(feature_names_in_=inputs)
    return SimpleNamespace(names=targets, targets=[None] * count, inputs=SimpleNamespace(columns=columns))


def test_inputs_are_in_the_order_of_the_model() -> None:
    assert list(match_inputs(model(), TABLE, "t.csv").columns) == ["a", "b"]
    assert match_inputs(model(inputs=()), TABLE, "t.csv") is TABLE  # the model of an array
    with pytest.raises(ValueError, match=r"t\.csv has no column 'c'.*\. The model was trained with it\."):
        match_inputs(model(inputs=("a", "c")), TABLE, "t.csv")
    with pytest.raises(ValueError, match=r"t\.csv: column 'a' is infinite in line 2"):
        match_inputs(model(), TABLE.assign(a=float("inf")), "t.csv")


@pytest.mark.parametrize(
    ("names", "count", "given", "absent", "expected"),
    [
        (BOTH, 2, [], [], {"price": 0, "rent": 1}),
        (BOTH, 2, ["rent"], [], {"rent": 1}),
        (["x", "y"], 2, BOTH[::-1], [], {"rent": 0, "price": 1}),
        (None, 1, [], ["rent"], {"price": 0}),
        (BOTH, 2, [], ["rent"], r"t\.csv has no column 'rent', one of the model's targets: name"),
        (["price"], 1, [], ["price"], "has no column 'price', the model's target: name"),
        (["x", "y"], 2, ["rent"], [], "the model's targets are x, y: name some of them"),
        (None, 2, ["rent"], [], "targets are 2 without a name"),
        (["x", "y"], 2, ["rent", "rent"], [], "column 'rent' is given as a target twice"),
        (None, 1, [], [], r"of t\.csv is the target\? it may be rent, price: name"),
        (None, 1, [], BOTH, "it has only the model's inputs"),
    ],
)
def test_targets(
    names: list[str] | None, count: int, given: list[str], absent: list[str], expected: dict[str, int] | str
) -> None:
    fitted, rows = model(targets=names, count=count), TABLE.drop(columns=absent)
    if isinstance(expected, dict):
        assert match_targets(fitted, rows, given, "t.csv") == expected
        return
    with pytest.raises(ValueError, match=expected):
        match_targets(fitted, rows, given, "t.csv")
