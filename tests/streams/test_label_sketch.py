"""Labels in little memory."""

import numpy as np
import pandas as pd
import pytest

from tailwise.labels.bins import LabelBins
from tailwise.labels.support import LabelSupport
from tailwise.streams.label_sketch import MAX_VALUES, BinCounts, LabelSketch, labels_of, weights_of
from tailwise.tables.read import TableError

RNG = np.random.default_rng(0)
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


def test_distinct_labels_are_given_up_beyond_a_limit_in_one_part_or_another() -> None:
    many, few = sketched([np.arange(MAX_VALUES + 1) / 7]), sketched([np.arange(3.0)])
    assert many.values is None
    few.merge(many)
    assert few.values is None
    many.add(np.array([]))
    many.merge(sketched([np.array([5000.0])]))
    assert (many.count, many.high) == (MAX_VALUES + 2, 5000)


def test_only_training_rows_count_in_bins_and_weights_add_up() -> None:
    labels, train = np.array([0.0, 1, 1, 2, 2]), np.array([True, True, False, True, True])
    count = BinCounts(LabelBins.from_labels(labels), np.empty(0))
    count.add(labels, train, np.array([2.0, 0.1, 9.0, 1.2, 1.4]))
    assert count.counted(weighted=False).counts.tolist() == [1, 1, 2]
    assert count.counted(weighted=True).counts.tolist() == [2, 1, 3]
    shares = BinCounts(LabelBins.from_labels(labels), np.empty(0))
    shares.add(labels, train, np.array([0.1, 0.0, 0.1, 0.1, 0.1]))
    assert shares.counted(weighted=True).counts.tolist() == [1, 0, 2]  # no row of weight 0, a mean of 1
    assert shares.mean_weight == pytest.approx(0.1)


@pytest.mark.parametrize(
    ("cell", "words"), [(None, "is missing"), (-np.inf, "is infinite"), (1e200, r"exceeds 1e\+150")]
)
def test_labels_that_are_none_name_their_place(cell: float | None, words: str) -> None:
    chunk = pd.DataFrame({"y": [1.0, cell, cell]}, index=[40, 41, 42])
    chunk.attrs = {"source": "b.parquet, row group 3", "first": 30}
    with pytest.raises(TableError, match=f"b.parquet, row group 3, row 11: the target 'y' {words} .2 such"):
        labels_of(chunk, ["y"])


def test_weights_must_not_be_negative() -> None:
    chunk = pd.DataFrame({"w": [1.0, -1.0]})
    assert weights_of(chunk, None) is None
    with pytest.raises(TableError, match="row 1: the weight 'w' is -1"):
        weights_of(chunk, "w")
