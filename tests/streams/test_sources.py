"""Rows that come in chunks: from tables in memory, Parquet files and Ray data sets."""

from __future__ import annotations

import datetime
import decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import polars
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tailwise.streams import FrameRows, RowStream, as_row_stream
from tailwise.streams.sources import SOURCE, ParquetRows, RayRows
from tailwise.tables.read import TableError

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


# -- Parquet files --------------------------------------------------------------------------------


ROWS = 100


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three files of 40, 40 and 20 rows in row groups of 10, numbered by column `k`."""
    for name, rows in (("a", range(40)), ("b", range(40, 80)), ("sub/c", range(80, ROWS))):
        path = tmp_path / f"{name}.parquet"
        path.parent.mkdir(exist_ok=True)
        numbers = np.array(rows)
        table = pd.DataFrame({"k": numbers, "x": numbers.astype(np.float32) / 2, "c": numbers.astype(str)})
        table.to_parquet(path, row_group_size=10)
    (tmp_path / "_SUCCESS").touch()
    (tmp_path / "_old.parquet").write_text("not read")
    return tmp_path


@pytest.mark.parametrize("chunk_rows", [3, 10, 1000])
def test_all_rows_come_in_order_with_their_numbers(folder: Path, chunk_rows: int) -> None:
    stream = ParquetRows(folder, chunk_rows=chunk_rows)
    assert stream.rows == ROWS
    assert stream.columns == {"k": "number", "x": "number", "c": "text"}
    for _ in range(2):
        rows = rows_of(stream)
        assert rows.index.to_list() == rows.k.to_list() == list(range(ROWS))
        assert rows.c.to_list() == rows.k.astype(str).to_list()
    assert max(len(chunk) for chunk in stream.chunks()) <= min(chunk_rows, 10)
    assert list(rows_of(stream, columns=["c", "k"]).columns) == ["c", "k"]


def test_a_relative_path_is_read_from_any_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers of Ray are in a folder of their own."""
    monkeypatch.chdir(folder)
    stream = ParquetRows("a.parquet")
    monkeypatch.chdir(folder / "sub")
    assert rows_of(stream).k.tolist() == list(range(40))


@pytest.mark.parametrize("parts", [3, 20])  # more parts than the 10 row groups are slices of them
def test_shards_part_the_rows(folder: Path, parts: int) -> None:
    stream = ParquetRows(folder, chunk_rows=4)
    for seed in (None, 0):
        shards = [rows_of(stream, shard=(k, parts), seed=seed) for k in range(parts)]
        assert all((shard.index == shard.k).all() for shard in shards)
        assert sorted(k for shard in shards for k in shard.k) == list(range(ROWS))


def test_a_seed_shuffles_row_groups(folder: Path) -> None:
    stream = ParquetRows([folder / "a.parquet", folder / "b.parquet"])
    first, again, other = (rows_of(stream, seed=seed).k.to_list() for seed in (1, 1, 2))
    assert first == again != other
    assert first != sorted(first)
    assert [k % 10 for k in first] == 8 * list(range(10))  # rows of a group stay together


def test_types_that_pandas_lacks_become_plain(tmp_path: Path) -> None:
    day = datetime.date(2024, 1, 31)
    table = pa.table(
        {
            "decimal": pa.array([decimal.Decimal("1.5"), None]),
            "day": pa.array([day, None]),
            "flag": pa.array([True, None]),
            "category": pa.array(["a", "b"]).dictionary_encode(),
            "bytes": pa.array([b"a", b"b"]),
            "empty": pa.nulls(2),
            "list": pa.array([[1], [2]]),
        }
    )
    pq.write_table(table, tmp_path / "a.parquet")
    stream = ParquetRows(tmp_path / "a.parquet")
    assert list(stream.columns.values()) == ["number", "date", "boolean", "text", "text", "empty", "other"]
    rows = rows_of(stream)
    assert rows.decimal[0] == 1.5
    assert rows.day.dtype.kind == "M"
    assert rows.flag.dtype == float
    assert rows.category.to_list() == rows.bytes.to_list() == ["a", "b"]


def test_a_large_row_group_is_never_in_memory_as_a_whole(tmp_path: Path) -> None:
    table = pa.table({"x": np.arange(2_000_000) / 7})
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=table.num_rows, use_dictionary=False)
    before, held, count = pa.total_allocated_bytes(), [], 0
    for chunk in ParquetRows(tmp_path, chunk_rows=50_000).chunks():
        held.append(pa.total_allocated_bytes() - before)
        count += len(chunk)
    assert count == table.num_rows
    assert max(held) < 0.4 * table.nbytes


def test_folders_of_values_become_a_column_and_unnamed_indices_do_not(tmp_path: Path) -> None:
    for year in (2023, 2024):
        (tmp_path / f"year={year}").mkdir()
        pd.DataFrame({"x": [1.0, 2.0]}, index=[5, 7]).to_parquet(tmp_path / f"year={year}" / "a.parquet")
    stream = ParquetRows(tmp_path)
    assert stream.columns == {"x": "number", "year": "number"}
    assert rows_of(stream).year.to_list() == [2023, 2023, 2024, 2024]
    assert rows_of(stream, columns=["year"]).year.to_list() == [2023, 2023, 2024, 2024]


def test_folders_and_files_that_cannot_be_read(
    folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    empty = tmp_path_factory.mktemp("empty")
    with pytest.raises(TableError, match="folder without a Parquet file"):
        ParquetRows(empty)
    with pytest.raises(TableError, match="does not exist"):
        ParquetRows(empty / "none")
    pd.DataFrame({"x": []}).to_parquet(empty / "a.parquet")
    with pytest.raises(TableError, match="list of Parquet files is empty"):
        ParquetRows([])
    with pytest.raises(TableError, match="columns but no rows"):
        ParquetRows(empty)
    with pytest.raises(ValueError, match="chunk_rows must be positive"):
        ParquetRows(folder, chunk_rows=0)
    (folder / "d.csv").write_text("k,x,c\n1,2,3\n")
    with pytest.raises(TableError, match=r"d\.csv cannot be read as Parquet"):
        ParquetRows(folder / "d.csv")
    with pytest.raises(TableError, match=r"none\.parquet cannot be read as Parquet"):
        ParquetRows([folder / "a.parquet", folder / "none.parquet"])
    (folder / "d.parquet").write_bytes(b"PAR1 nothing PAR1")
    with pytest.raises(TableError, match=r"d\.parquet cannot be read as Parquet"):
        ParquetRows(folder)


def test_a_file_that_changes_is_an_error(folder: Path) -> None:
    stream = ParquetRows(folder)
    pd.DataFrame({"k": [1], "x": [0.5], "c": ["a"]}).to_parquet(folder / "a.parquet")
    with pytest.raises(TableError, match=r"a\.parquet, row group 0"):
        rows_of(stream)


# -- a data set of Ray: a list of tables stands for its blocks; Ray itself is part of the slow tests ---


class Blocks:
    """What is used of a `ray.data.Dataset`."""

    def __init__(self, tables: list[Any], kind: str = "arrow") -> None:
        self.tables, self.kind = tables, kind
        self.context = SimpleNamespace(execution_options=SimpleNamespace(preserve_order=False))

    def schema(self) -> Any:
        if not self.tables:
            return None
        base = self.tables[0].schema if self.kind == "arrow" else object()
        return SimpleNamespace(names=self.tables[0].column_names, base_schema=base)

    def limit(self, rows: int) -> Blocks:
        return Blocks([self.tables[0].slice(0, rows)])

    def to_pandas(self) -> pd.DataFrame:
        return self.tables[0].to_pandas()

    def iter_batches(self, *, batch_size: int | None, batch_format: str) -> Any:
        assert batch_format == "pyarrow"
        return iter(self.tables if batch_size is None else [pa.concat_tables(self.tables)])

    def streaming_split(self, parts: int, *, equal: bool) -> list[Blocks]:
        assert not equal  # no row may be left out
        return [Blocks(self.tables[k::parts]) for k in range(parts)]


def blocks(kind: str = "arrow") -> Blocks:
    rng = np.random.default_rng(0)
    sizes = [5, 2, 2, 4]
    return Blocks(
        [
            pa.table({"x": rng.normal(size=n), "c": rng.choice(["a", "b"], n), "day": [None] * n})
            for n in sizes
        ],
        kind,
    )


@pytest.mark.parametrize("kind", ["arrow", "pandas"])
def test_rows_have_kinds_and_numbers_of_their_own(kind: str) -> None:
    given = blocks(kind)
    stream = RayRows(given)
    assert given.context.execution_options.preserve_order
    assert stream.columns["x"] == "number"
    assert stream.columns["c"] == "text"
    whole = pd.concat(stream.chunks())
    assert whole.index.is_unique
    assert len(whole) == 13
    alone = pd.concat(stream.chunks(["x"], seed=3))
    assert alone.columns.to_list() == ["x"]
    pd.testing.assert_index_equal(alone.index, whole.index)  # whatever the columns and the seed
    assert next(iter(stream.chunks())).attrs[SOURCE] == "the Ray data set"


@pytest.mark.parametrize("split", [False, True])
def test_parts_are_all_rows_once(split: bool) -> None:
    stream = RayRows(blocks())
    whole = pd.concat(stream.chunks())
    parts = stream.divided(2) if split else stream
    read = [pd.concat(parts.chunks(shard=(k, 2))) for k in range(2)]
    assert sorted(pd.concat(read).index) == sorted(whole.index)
    if not split:  # blocks of 5, 2, 2 and 4 rows, in turn
        assert [len(part) for part in read] == [7, 6]
    else:
        with pytest.raises(ValueError, match="divided into 2 parts, not 3"):
            next(parts.chunks(shard=(0, 3)))


def test_a_data_set_without_rows_is_an_error() -> None:
    with pytest.raises(TableError, match="the Ray data set has no rows"):
        RayRows(Blocks([]))
