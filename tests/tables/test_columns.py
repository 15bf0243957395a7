"""Targets and weights as numbers, and columns that may not be what they seem."""

from typing import Any

import numpy as np
import pandas as pd
import pytest

from tailwise.tables.columns import (
    check_column,
    check_infinity,
    near_copies,
    numbers_as_text,
    row_weights,
    split_targets,
)
from tailwise.tables.read import TableError


def test_columns_are_found_or_the_nearest_is_named() -> None:
    table = pd.DataFrame({"Price": [1], "rooms": [2]})
    with pytest.raises(TableError, match="did you mean 'Price'"):
        check_column(table, "price", "t.csv")
    with pytest.raises(TableError, match="did you mean 'rooms'"):
        check_column(table, "room", "t.csv")
    with pytest.raises(TableError, match="its columns are Price, rooms"):
        check_column(table, "zzz", "t.csv")
    with pytest.raises(TableError, match="column names missing"):
        check_column(pd.DataFrame({"1.5": [1], "7": [2], "red": [3]}), "price", "t.csv")


@pytest.mark.parametrize(
    ("cells", "words"),
    [
        (["a", "b", "c"], "choose a numeric column"),
        (["1,000", "2,000", "3,000"], "thousands"),
        (["$10.50", "$20.00", "$3.00"], "write plain numbers"),
        ([None, None, None], "missing in every row"),
        ([1.0, 2.0, -1e200], "exceeds 1e+150 in line 4: rescale it"),
        (pd.to_datetime(["2020-01-01"] * 3), "holds dates: turn them into"),
        (pd.to_timedelta(range(3), "h"), "holds durations: divide them by a unit"),
        ([b"1"] * 3, "holds bytes"),
        (["1", "2", "9" * 400], "is infinite in line 4: rescale it"),
    ],
)
def test_targets_that_are_no_numbers(cells: Any, words: str) -> None:
    with pytest.raises(TableError) as raised:
        split_targets(pd.DataFrame({"x": [1, 2, 3], "y": cells}), ["y"], "t.csv")
    assert words in str(raised.value)


def test_rows_without_a_target_are_left_out() -> None:
    table = pd.DataFrame({"x": [1, 2, 3], "z": 0, "y": [1.0, None, 3.0]})
    inputs, labels, missing = split_targets(table, ["y"], "t.csv", ["z"])
    assert (missing, labels["y"].tolist(), list(inputs.columns)) == (1, [1.0, 3.0], ["x"])
    with pytest.raises(TableError, match="no column besides"):
        split_targets(table, ["y"], "t.csv", ["x", "z"])
    with pytest.raises(TableError, match="cannot be dropped"):
        split_targets(table, ["y"], "t.csv", ["y"])


def test_several_targets_keep_their_order_and_rows_that_have_all() -> None:
    table = pd.DataFrame({"b": [1.0, None, 3.0], "x": [1, 2, 3], "a": [None, 5, 6]})
    inputs, labels, missing = split_targets(table, ["a", "b"], "t.csv")
    assert (missing, labels.to_dict("list"), list(inputs.columns)) == (2, {"a": [6.0], "b": [3.0]}, ["x"])
    with pytest.raises(TableError, match="'a' is named as a target twice"):
        split_targets(table, ["a", "a"], "t.csv")


def test_numbers_that_are_text_are_found() -> None:
    text = {
        "price": ["$1,250.00", "$3.50"], "share": ["12%", "7%"], "german": ["1.250,50 €", "3,50 €"],
        "debt": ["(12.5)", "3"], "day": ["01.02.2020", "3.2.2020"], "id": ["A1", "A2"], "digits": ["1", "2"],
    }  # fmt: skip
    table = pd.DataFrame({name: cells * 10 for name, cells in text.items()}).assign(
        number=1.5, empty=None, stray=["unknown", *map(str, range(19))], mixed=["x", 1.5] * 10
    )
    found = {"price": "$1,250.00", "share": "12%", "german": "1.250,50 €", "debt": "(12.5)"}
    assert numbers_as_text(table) == {**found, "stray": "unknown"}


def test_near_copies_of_the_target_are_found() -> None:
    y = pd.Series(np.arange(50.0))
    noise = np.random.default_rng(0).normal(size=50)
    table = pd.DataFrame({"copy": 2 * y + noise, "other": noise, "text": "a", "still": 1.0})
    assert near_copies(table, y) == ["copy"]


@pytest.mark.parametrize(
    ("weights", "words"),
    [
        ([1, -1, 2], "line 3 holds '-1' \\(1 such of 3\\): correct these cells, or write 0"),
        (["1", "2", "much"], "line 4 holds 'much'"),
        ([0, 0, 0], "is 0 in every row: there is nothing to train on"),
        (pd.to_datetime(["2020-01-01"] * 3), "holds dates: turn them into numbers first"),
    ],
)
def test_weights_are_numbers_from_0_on(weights: list[object], words: str) -> None:
    table = pd.DataFrame({"y": [1.0, 2.0, 3.0], "w": weights})
    with pytest.raises(TableError, match=f"t.csv: the weight 'w' .*{words}"):
        row_weights(table, "w", ["y"], "t.csv")


def test_an_infinity_is_named_by_column_and_row_or_line() -> None:
    columns = {"a": [1.0, None, 2.0], "b": ["inf", "x", "y"], "c": [1, 2, 3], "d": [0.0, 1.0, -np.inf]}
    table = pd.DataFrame(columns)
    check_infinity(table[["a", "b", "c"]])
    with pytest.raises(TableError, match=r"^column 'd' holds an infinity in row 2: make it missing"):
        check_infinity(table)
    with pytest.raises(TableError, match=r"^t\.csv: column 'd' is infinite in line 4: leave the cell empty"):
        check_infinity(table, "t.csv")
