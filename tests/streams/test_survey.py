"""The two passes over a stream before training, and labels in little memory."""

import numpy as np
import pandas as pd
import pytest

from tailwise.labels.bins import LabelBins
from tailwise.labels.support import LabelSupport
from tailwise.streams import FrameRows
from tailwise.streams.survey import (
    BinCounts,
    FirstPass,
    LabelSketch,
    first_pass,
    labels_of,
    row_keys,
    second_pass,
)
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
    counts = second_pass(STREAM, TARGETS, bins, survey, "w")
    for name, count, sketch in zip(TARGETS, counts, survey.sketches, strict=True):
        labels = TABLE[name].to_numpy(float)
        expected = LabelBins.from_labels(labels[train], count=12)
        assert (count.bins.edges == expected.edges).all()
        assert (count.counted(weighted=False).counts == expected.counts).all()
        weighted = LabelBins.from_labels(labels[train], count=12, weight=TABLE.w[train])
        assert (count.counted(weighted=True).counts == weighted.counts).all()
        assert count.support(sketch) == LabelSupport.from_labels(labels)


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


# -- labels ----------------------------------------------------------------------------------------


LABELS = {
    "whole numbers": RNG.poisson(3, 900).astype(float),
    "skewed": np.exp(RNG.normal(size=3000)),
    "half zero": np.where(RNG.random(3000) < 0.5, 0.0, 2 + RNG.random(3000)),
    "constant": np.full(600, 7.0),
    "a fine grid": RNG.integers(0, 700, 3000) / 10,
}


def sketched(parts: list[np.ndarray]) -> LabelSketch:
    sketch = LabelSketch()
    for part in parts:
        sketch.add(part)
    return sketch


@pytest.mark.parametrize("name", LABELS)
def test_bins_counts_and_support_equal_those_of_the_labels_in_memory(name: str) -> None:
    labels = LABELS[name]
    sketch, other = sketched(np.array_split(labels[:500], 4)), sketched([labels[500:]])
    sketch.merge(other)
    assert (sketch.count, sketch.low, sketch.high) == (len(labels), labels.min(), labels.max())
    if sketch.values is not None:
        values, counts = np.unique(labels, return_counts=True)
        assert (sketch.values == values).all()
        assert (sketch.counts == counts).all()
    expected = LabelBins.from_labels(labels)
    bins = LabelBins.from_summary(sketch.summary(labels))
    assert (bins.edges == expected.edges).all()
    shared = sketch.shared(labels)
    count, rest = BinCounts(bins, shared), BinCounts(bins, shared)
    count.add(labels[:400], np.ones(400, bool))
    rest.add(labels[400:], np.ones(len(labels) - 400, bool))
    count.merge(rest)
    assert (count.counted(weighted=False).counts == expected.counts).all()
    assert count.support(sketch) == LabelSupport.from_labels(labels)


@pytest.mark.parametrize(
    ("cell", "words"), [(None, "is missing"), (-np.inf, "is infinite"), (1e200, r"exceeds 1e\+150")]
)
def test_labels_that_are_none_name_their_place(cell: float | None, words: str) -> None:
    chunk = pd.DataFrame({"y": [1.0, cell, cell]}, index=[40, 41, 42])
    chunk.attrs = {"source": "b.parquet, row group 3", "first": 30}
    with pytest.raises(TableError, match=f"b.parquet, row group 3, row 11: the target 'y' {words} .2 such"):
        labels_of(chunk, ["y"])
