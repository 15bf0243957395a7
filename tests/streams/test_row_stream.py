"""Streams of tables that users have or make."""

import numpy as np
import pandas as pd
import polars
import pytest

from tailwise.streams import FrameRows, RowStream, as_row_stream

TABLES = [pd.DataFrame({"x": np.arange(k, k + 3), "c": list("abc")}) for k in (0, 3, 6, 9)]


def rows_of(stream: RowStream, **arguments: object) -> pd.DataFrame:
    return pd.concat(list(stream.chunks(**arguments)))  # type: ignore[arg-type]


@pytest.mark.parametrize("given", [TABLES, lambda: iter(TABLES), [polars.from_pandas(t) for t in TABLES]])
def test_every_pass_gives_all_rows_with_their_numbers(given: object) -> None:
    stream = as_row_stream(given)
    assert isinstance(stream, RowStream)
    assert stream.columns == {"x": "number", "c": "text"}
    for _ in range(2):
        rows = rows_of(stream)
        assert rows.index.to_list() == rows.x.to_list() == list(range(12))
    assert list(rows_of(stream, columns=["c"]).columns) == ["c"]


def test_shards_part_the_rows_and_a_seed_changes_their_order() -> None:
    stream = FrameRows(TABLES)
    for seed in (None, 3):
        parts = [rows_of(stream, shard=(k, 3), seed=seed) for k in range(3)]
        assert sorted(row for part in parts for row in part.x) == list(range(12))
        assert all((part.index == part.x).all() for part in parts)
    shuffled = [rows_of(stream, seed=seed).x.to_list() for seed in (3, 3, 4)]
    assert shuffled[0] == shuffled[1] != shuffled[2]


def test_what_is_no_stream_is_an_error() -> None:
    with pytest.raises(TypeError, match="may end after one pass"):
        as_row_stream(iter(TABLES))
    with pytest.raises(TypeError, match="not dict"):
        FrameRows([{"x": 1}])
    with pytest.raises(ValueError, match="has no table"):
        FrameRows(list)
    with pytest.raises(ValueError, match="unknown column 'y'"):
        FrameRows(TABLES).chunks(["y"])
    with pytest.raises(ValueError, match="'x' occurs twice"):
        FrameRows(pd.DataFrame([[1, 2]], columns=["x", "x"]))


@pytest.mark.parametrize(
    ("second", "words"),
    [
        ({"x": [1]}, "table 1 of the stream: column 'c' is missing, but in the first one it is text"),
        ({"x": [1], "c": ["a"], "d": [1]}, "column 'd' is number, but in the first one it is missing"),
        ({"x": ["1"], "c": ["a"]}, "column 'x' is text, but in the first one it is number"),
    ],
)
def test_tables_with_other_columns_are_an_error(second: dict[str, list[object]], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        rows_of(FrameRows([TABLES[0], pd.DataFrame(second)]))
