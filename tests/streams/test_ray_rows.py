"""Rows of a Ray data set. A list of tables stands for the blocks; Ray itself is part of the slow tests."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from tailwise.streams.sources import SOURCE, RayRows
from tailwise.tables.read import TableError

pa = pytest.importorskip("pyarrow")


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
