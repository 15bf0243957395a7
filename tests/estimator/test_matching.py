"""Columns of a table are matched with a model's inputs and targets; an error says which is missing."""

from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest

from tailwise.model.matching import match_inputs, match_targets

TABLE = pd.DataFrame({"b": [1.0], "a": [2.0], "rent": [3.0], "price": [4.0]})


def model(*, targets: list[str] | None = None, count: int = 1, inputs: tuple[str, ...] = ("a", "b")) -> Any:
    columns = SimpleNamespace(feature_names_in_=inputs)
    return SimpleNamespace(names=targets, targets=[None] * count, inputs=SimpleNamespace(columns=columns))


def test_inputs_are_in_the_order_of_the_model() -> None:
    assert list(match_inputs(model(), TABLE, "t.csv").columns) == ["a", "b"]


def test_a_model_of_an_array_takes_the_table_as_it_is() -> None:
    assert match_inputs(model(inputs=()), TABLE, "t.csv") is TABLE


def test_missing_and_infinite_inputs() -> None:
    with pytest.raises(ValueError, match=r"t\.csv has no column 'c'.*\. The model was trained with it\."):
        match_inputs(model(inputs=("a", "c")), TABLE, "t.csv")
    with pytest.raises(ValueError, match=r"did you mean 'price'\? The model was trained with it\."):
        match_inputs(model(inputs=("prise",)), TABLE, "t.csv")
    with pytest.raises(ValueError, match=r"t\.csv: column 'a' is infinite in line 2"):
        match_inputs(model(), TABLE.assign(a=float("inf")), "t.csv")


def test_targets_by_the_names_of_the_model() -> None:
    both = model(targets=["price", "rent"], count=2)
    assert match_targets(both, TABLE, [], "t.csv") == {"price": 0, "rent": 1}
    assert match_targets(both, TABLE, ["rent"], "t.csv") == {"rent": 1}
    with pytest.raises(ValueError, match=r"t\.csv has no column 'rent', one of the model's targets: name"):
        match_targets(both, TABLE.drop(columns="rent"), [], "t.csv")
    with pytest.raises(ValueError, match="has no column 'price', the model's target: name"):
        match_targets(model(targets=["price"]), TABLE.drop(columns="price"), [], "t.csv")


def test_targets_by_other_names_need_a_column_for_each() -> None:
    both = model(targets=["x", "y"], count=2)
    assert match_targets(both, TABLE, ["rent", "price"], "t.csv") == {"rent": 0, "price": 1}
    with pytest.raises(ValueError, match="the model's targets are x, y: name some of them"):
        match_targets(both, TABLE, ["rent"], "t.csv")
    with pytest.raises(ValueError, match="targets are 2 without a name"):
        match_targets(model(count=2), TABLE, ["rent"], "t.csv")
    with pytest.raises(ValueError, match="column 'rent' is given as a target twice"):
        match_targets(both, TABLE, ["rent", "rent"], "t.csv")


def test_the_target_of_a_model_without_names_is_the_only_other_column() -> None:
    assert match_targets(model(), TABLE.drop(columns="rent"), [], "t.csv") == {"price": 0}
    with pytest.raises(ValueError, match=r"of t\.csv is the target\? it may be rent, price: name"):
        match_targets(model(), TABLE, [], "t.csv")
    with pytest.raises(ValueError, match="it has only the model's inputs"):
        match_targets(model(), TABLE[["a", "b"]], [], "t.csv")
