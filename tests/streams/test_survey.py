"""The two passes over a stream before training, and batches of mixed rows."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
import pytest

from tailwise.labels.bins import LabelBins
from tailwise.streams import FrameRows
from tailwise.streams.survey import FirstPass, counted, first_pass, labels_of, mixed, row_keys, second_pass
from tailwise.tables.read import TableError

N, HELD, SAMPLE = 2000, 60, 200
RNG = np.random.default_rng(1)
TABLE = pd.DataFrame(
    {
        "x": np.arange(N),
        "y": np.exp(RNG.normal(size=N)),
        "z": RNG.poisson(2, N),
        "w": RNG.integers(1, 4, N),
    }
)
STREAM = FrameRows([TABLE[k : k + 150] for k in range(0, N, 150)])
COLUMNS, TARGETS = ["x", "y", "z", "w"], ["y", "z"]


@pytest.mark.parametrize("shards", [1, 3])
def test_two_passes_find_what_the_table_in_memory_has(shards: int) -> None:
    passes = [first_pass(STREAM, COLUMNS, TARGETS, HELD + SAMPLE, 0, (k, shards)) for k in range(shards)]
    for other in passes[1:]:
        passes[0].merge(other)
    assert passes[0].rows == N
    survey = passes[0].finish(HELD, SAMPLE)
    assert (survey.rows, len(survey.held), len(survey.sample)) == (N, HELD, SAMPLE)
    assert (survey.sample.x == survey.sample.index).all()
    train = ~survey.held_out(TABLE)
    assert set(TABLE.x[~train]) == set(survey.held.x)
    assert not set(survey.held.x) & set(survey.sample.x)
    bins = [LabelBins.from_summary(summary, count=12) for summary in survey.summaries]
    parts = {
        weight: [
            second_pass(STREAM, TARGETS, bins, survey.held_out, weight, (k, shards)) for k in range(shards)
        ]
        for weight in (None, "w")
    }
    for t, (name, b, ends) in enumerate(zip(TARGETS, bins, survey.ends, strict=True)):
        labels = TABLE[name].to_numpy(float)
        assert ends.tolist() == [labels.min(), labels.max()]
        for weight, passes_over in parts.items():
            w = None if weight is None else TABLE[weight][train]
            expected = LabelBins.from_labels(labels[train], count=12, weight=w)
            found = counted(b, sum(part[t] for part in passes_over))
            np.testing.assert_array_equal(found.edges, expected.edges)
            np.testing.assert_array_equal(found.counts, expected.counts)


def test_a_sample_depends_on_neither_order_nor_chunks_nor_parts() -> None:
    pieces = [TABLE[k : k + 37] for k in range(0, N, 37)]
    tables = []
    for chunks in ([TABLE], pieces, pieces[::-1]):
        one, two = FirstPass(["y"], 100, 0), FirstPass(["y"], 100, 0)
        for place, chunk in enumerate(chunks):
            (two if place % 3 else one).add(chunk)
        one.merge(two)
        tables.append(one.finish(1, 99).sample)
    pd.testing.assert_frame_equal(tables[0], tables[1])
    pd.testing.assert_frame_equal(tables[0], tables[2])
    assert set(tables[0].x) == set(np.argsort(row_keys(np.arange(N), 0))[1:100])


@pytest.mark.parametrize(
    ("cell", "words"), [(None, "is missing"), (-np.inf, "is infinite"), (1e200, r"exceeds 1e\+150")]
)
def test_labels_that_are_none_name_their_place(cell: float | None, words: str) -> None:
    chunk = pd.DataFrame({"y": [1.0, cell, cell]}, index=[40, 41, 42])
    chunk.attrs = {"source": "b.parquet, row group 3", "first": 30}
    with pytest.raises(TableError, match=f"b.parquet, row group 3, row 11: the target 'y' {words} .2 such"):
        labels_of(chunk, ["y"])


# -- batches of mixed rows ------------------------------------------------------------------------


MIXED = 1000


def parts(chunk: int, rows: int = MIXED) -> Iterator[tuple[Any, ...]]:
    for start in range(0, rows, chunk):
        numbers = np.arange(start, min(start + chunk, rows))
        yield numbers, np.stack([numbers, -numbers], 1).astype(np.float32), None


def batches(chunk: int, **options: Any) -> list[list[int]]:
    found = []
    for numbers, pairs, none in mixed(parts(chunk), **options):
        assert none is None
        assert (pairs[:, 0] == numbers).all()
        assert (pairs[:, 1] == -numbers).all()
        found.append(numbers.tolist())
    return found


@pytest.mark.parametrize("options", [{"buffer": 200, "seed": 3}, {"buffer": 5000, "seed": 3}, {}])
def test_batches_depend_on_the_rows_and_not_on_the_chunks(options: dict[str, int]) -> None:
    first, *others = (batches(chunk, size=32, **options) for chunk in (7, 32, 100, MIXED))
    assert all(other == first for other in others)
    assert sorted(number for batch in first for number in batch) == list(range(MIXED))
    assert all(16 <= len(batch) <= 32 for batch in first)
    assert sum(len(batch) < 31 for batch in first) <= 2


def test_rows_are_mixed_within_the_buffer() -> None:
    first, again, other = (batches(100, size=10, buffer=100, seed=seed) for seed in (1, 1, 2))
    assert first == again != other
    assert max(first[0]) < 110
    places = np.argsort([number for batch in first for number in batch])
    assert 20 < np.abs(places - np.arange(MIXED)).mean() < 300
