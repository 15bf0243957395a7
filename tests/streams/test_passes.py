"""The two passes over a stream before training."""

import numpy as np
import pandas as pd
import pytest

from tailwise.labels.bins import LabelBins
from tailwise.labels.support import LabelSupport
from tailwise.streams import FrameRows
from tailwise.streams.passes import first_pass, second_pass

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


def test_a_sample_of_all_rows_gives_the_default_bins_of_the_training_rows() -> None:
    survey = first_pass(STREAM, COLUMNS, ["y"], N, 0).finish(HELD, N)
    assert len(survey.sample) == N - HELD
    expected = LabelBins.from_labels(survey.sample.y)
    assert (LabelBins.from_summary(survey.summaries[0]).edges == expected.edges).all()


def test_a_missing_label_of_a_later_table_is_named() -> None:
    bad = TABLE[300:450].assign(y=lambda t: t.y.where(t.x != 310))
    with pytest.raises(ValueError, match="table 1 of the stream, row 10: the target 'y' is missing"):
        first_pass(FrameRows([TABLE[:300], bad]), COLUMNS, TARGETS, 10, 0)


def test_parts_without_rows_change_nothing() -> None:
    parts = [first_pass(STREAM, COLUMNS, TARGETS, HELD + SAMPLE, 0, (k, 50)) for k in (48, 49, 0)]
    for other in parts[1:]:
        parts[0].merge(other)
    assert [part.rows for part in parts[1:]] == [0, 150] and parts[0].rows == 150
