"""The two passes over a stream before training: what they keep can be merged, part by part.

The first pass samples rows and sketches labels. Bins are chosen from that. The second pass reads labels only,
and counts them in the bins.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from tailwise.labels.bins import LabelBins, LabelSummary
from tailwise.streams.label_sketch import BinCounts, Floats, LabelSketch, labels_of, weights_of
from tailwise.streams.row_stream import RowStream, Shard
from tailwise.streams.sampling import HeldOut, RowSample

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, eq=False)
class Surveyed:
    """What the first pass found."""

    rows: int
    """Number of rows of the stream, held-out rows included."""
    held: pd.DataFrame
    """The rows that are held out, all of them."""
    sample: pd.DataFrame
    """A random sample of the other rows, or all of them if they are few."""
    held_out: HeldOut
    summaries: list[LabelSummary]
    """Labels of the training rows, for each target."""
    sketches: list[LabelSketch]
    """Labels of all rows, for each target."""
    shared: list[Floats]
    """Labels of each target that many rows may share."""


class FirstPass:
    """A sample of the rows of a stream, and a sketch of the labels of the others."""

    def __init__(self, targets: Sequence[str], keep: int, seed: int) -> None:
        self.targets = list(targets)
        self.sample = RowSample(keep, seed)
        self.sketches = [LabelSketch() for _ in targets]

    def add(self, chunk: pd.DataFrame) -> None:
        """Take a chunk in; a label that is missing, infinite or too large is an error."""
        if len(chunk):
            self._sketch(self.sample.add(chunk, labels_of(chunk, self.targets)))

    def merge(self, other: FirstPass) -> None:
        """Take in the pass over another part of the stream."""
        if other.sample.size:  # a part may have no rows
            self._sketch(self.sample.merge(other.sample))
        for own, its in zip(self.sketches, other.sketches, strict=True):
            own.merge(its)

    def _sketch(self, labels: Floats) -> None:
        for sketch, column in zip(self.sketches, labels.T, strict=True):
            sketch.add(column)

    @property
    def rows(self) -> int:
        """Number of rows so far."""
        return self.sketches[0].count + self.sample.size

    def finish(self, held: int, sample: int) -> Surveyed:
        """Return what was found, with `held` rows held out and a sample of at most `sample` others."""
        rows = self.rows
        table, labels, keys, left = self.sample.finish()
        self._sketch(left)
        every = []
        for sketch, column in zip(self.sketches, labels.T, strict=True):
            sketch.add(column[held:])
            own = LabelSketch()
            own.add(column[:held])
            own.merge(sketch)
            every.append(own)
        return Surveyed(
            rows,
            table.iloc[:held],
            table.iloc[held : held + sample],
            HeldOut(self.sample.seed, int(keys[held - 1])),
            [
                s.summary(column[held : held + sample])
                for s, column in zip(self.sketches, labels.T, strict=True)
            ],
            every,
            [s.shared(column) for s, column in zip(every, labels.T, strict=True)],
        )


def first_pass(
    stream: RowStream,
    columns: Sequence[str],
    targets: Sequence[str],
    keep: int,
    seed: int,
    shard: Shard = (0, 1),
) -> FirstPass:
    """Read a stream once; keep a sample of `columns` and a sketch of the targets."""
    found = FirstPass(targets, keep, seed)
    for chunk in stream.chunks(list(columns), shard=shard):
        found.add(chunk)
    return found


def second_pass(
    stream: RowStream,
    targets: Sequence[str],
    bins: Sequence[LabelBins],
    found: Surveyed,
    weight: str | None = None,
    shard: Shard = (0, 1),
) -> list[BinCounts]:
    """Count the labels of each target in its bins; held-out rows do not count."""
    counts = [BinCounts(b, shared) for b, shared in zip(bins, found.shared, strict=True)]
    columns = [*targets, *([] if weight is None or weight in targets else [weight])]
    for chunk in stream.chunks(columns, shard=shard):
        labels, weights = labels_of(chunk, targets), weights_of(chunk, weight)
        train: NDArray[np.bool_] = ~found.held_out(chunk)
        for count, column in zip(counts, labels.T, strict=True):
            count.add(column, train, weights)
    return counts
