"""The two passes over a stream before training, rows that are held out, and batches of mixed rows.

The first pass samples rows and sketches labels. Bins are chosen from that. The second pass reads labels only,
and counts them in the bins. What the passes keep can be merged, part by part.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tailwise.labels.bins import LabelBins, LabelSummary
from tailwise.labels.support import ATOM_SHARE, MAX_STEPS, MIN_LABELS, LabelSupport
from tailwise.streams.sources import RowStream, Shard, where
from tailwise.tables.columns import LARGEST_TARGET
from tailwise.tables.read import TableError

if TYPE_CHECKING:
    import pandas as pd

Keys = NDArray[np.uint64]


def row_keys(rows: Any, seed: int) -> Keys:
    """Return the random key of each row number, by the SplitMix64 generator. (n,) -> (n,)

    Different numbers have different keys.

    >>> row_keys([0, 1], seed=0) == row_keys([1, 0], seed=0)[::-1]
    array([ True,  True])
    """
    start = np.random.SeedSequence(seed).generate_state(1, np.uint64)[0]
    numbers = np.asarray(rows)
    with np.errstate(over="ignore"):
        x = numbers.astype(np.int64 if numbers.dtype.kind == "i" else np.uint64).view(np.uint64)
        x = (x + start) * np.uint64(0x9E3779B97F4A7C15)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return np.asarray(x ^ (x >> np.uint64(31)))


@dataclass(frozen=True)
class HeldOut:
    """The rows that are held out: those with a key of at most `last`.

    Any pass can tell from a row's number, whatever the order of rows and their chunks.
    """

    seed: int
    last: int

    def __call__(self, chunk: pd.DataFrame) -> NDArray[np.bool_]:
        """Return which rows of a chunk are held out. (n,)"""
        return np.asarray(row_keys(chunk.index.to_numpy(), self.seed) <= np.uint64(self.last))


def held_share(share: float, seed: int) -> HeldOut:
    """Return a random share of all rows to hold out, before any row is read.

    >>> held = held_share(0.25, seed=0)
    >>> bool(abs((row_keys(np.arange(10_000), 0) <= np.uint64(held.last)).mean() - 0.25) < 0.02)
    True
    """
    return HeldOut(seed, min(int(share * 2**64), 2**64 - 1))


class OtherRows:
    """The rows of a stream that are not held out, as a stream."""

    def __init__(self, stream: RowStream, held_out: HeldOut) -> None:
        self.stream, self.held_out = stream, held_out
        self.columns = stream.columns

    def chunks(
        self, columns: Sequence[str] | None = None, *, shard: Shard = (0, 1), seed: int | None = None
    ) -> Iterator[pd.DataFrame]:
        """Return an iterator over all rows of a shard."""
        for chunk in self.stream.chunks(columns, shard=shard, seed=seed):
            yield chunk[~self.held_out(chunk)]


def sampled_rows(stream: RowStream, held_out: HeldOut, columns: Sequence[str] | None = None) -> pd.DataFrame:
    """Return the rows of a stream that are held out, as one table."""
    import pandas as pd

    parts = [chunk[held_out(chunk)] for chunk in stream.chunks(columns)]
    for part in parts:
        part.attrs = {}
    return pd.concat(parts)


Floats = NDArray[np.float64]
Counts = NDArray[np.int64]
MAX_VALUES = MAX_STEPS + 1
"""With more distinct labels than this, they are not kept: such labels lie on no grid."""


def labels_of(chunk: pd.DataFrame, targets: Sequence[str]) -> Floats:
    """Return the labels of a chunk; an error says where one is missing, infinite or too large. (n, T)"""
    columns = [chunk[name].to_numpy(np.float64, na_value=np.nan) for name in targets]
    for name, column in zip(targets, columns, strict=True):
        bad = ~(np.abs(column) <= LARGEST_TARGET)
        if bad.any():
            place = int(bad.argmax())
            problem = f"exceeds {LARGEST_TARGET:g}"
            if not np.isfinite(column[place]):
                problem = "is missing" if np.isnan(column[place]) else "is infinite"
            raise TableError(
                f"{where(chunk, place)}: the target {name!r} {problem} ({int(bad.sum())} such rows in this "
                "chunk): drop these rows or correct them"
            )
    return np.stack(columns, axis=1)


def weights_of(chunk: pd.DataFrame, column: str | None) -> Floats | None:
    """Return the weights of the rows of a chunk; an error says where one is no weight. (n,)"""
    if column is None:
        return None
    weights = np.asarray(chunk[column].to_numpy(np.float64, na_value=np.nan))
    bad = ~((weights >= 0) & (weights < math.inf))
    if bad.any():
        place = int(bad.argmax())
        raise TableError(
            f"{where(chunk, place)}: the weight {column!r} is {weights[place]:g}: give a number of at least 0"
        )
    return weights


class LabelSketch:
    """Number, range and distinct values of the labels of one target, exactly.

    >>> sketch = LabelSketch()
    >>> for part in ([2.0, 3.0], [2.0]):
    ...     sketch.add(np.array(part))
    >>> sketch.count, sketch.low, sketch.high, sketch.values, sketch.counts
    (3, 2.0, 3.0, array([2., 3.]), array([2, 1]))
    """

    def __init__(self) -> None:
        self.count, self.low, self.high = 0, math.inf, -math.inf
        self.values: Floats | None = np.empty(0)  # ascending; None if there are more than MAX_VALUES
        self.counts: Counts = np.empty(0, np.int64)

    def add(self, labels: Floats) -> None:
        """Take labels in. (n,)"""
        if len(labels):
            values, counts = (
                np.unique(labels, return_counts=True) if self.values is not None else (None, None)
            )
            self._take(len(labels), float(labels.min()), float(labels.max()), values, counts)

    def merge(self, other: LabelSketch) -> None:
        """Take in the labels of another sketch."""
        self._take(other.count, other.low, other.high, other.values, other.counts)

    def _take(self, count: int, low: float, high: float, values: Floats | None, counts: Any) -> None:
        self.count, self.low, self.high = self.count + count, min(self.low, low), max(self.high, high)
        if self.values is None or values is None:
            self.values = None
            return
        joined, place = np.unique(np.concatenate([self.values, values]), return_inverse=True)
        self.counts = np.bincount(place, np.concatenate([self.counts, counts])).astype(np.int64)
        self.values = joined if joined.size <= MAX_VALUES else None

    def summary(self, sample: Floats) -> LabelSummary:
        """Return what bins are chosen from; `sample` has some of the labels, for quantiles."""
        return LabelSummary(self.count, self.low, self.high, self.values, sample)

    def shared(self, sample: Floats) -> Floats:
        """Return the labels that may be shared by a tenth of all rows, by a sample; none on a grid. (K,)"""
        if self.values is not None:
            return np.empty(0)
        values, counts = np.unique(sample, return_counts=True)
        return np.asarray(values[counts >= 0.8 * ATOM_SHARE * len(sample)])


class BinCounts:
    """Exact counts of the labels of one target: of training rows by bin, of all rows by shared value."""

    def __init__(self, bins: LabelBins, shared: Floats) -> None:
        self.bins = bins
        self.rows: Counts = np.zeros(len(bins), np.int64)
        self.weights: Floats = np.zeros(len(bins))
        self.total = 0
        self.shared = shared
        self.often: Counts = np.zeros(len(shared), np.int64)
        self.below, self.above = np.full(len(shared), -math.inf), np.full(len(shared), math.inf)

    def add(self, labels: Floats, train: NDArray[np.bool_], weight: Floats | None = None) -> None:
        """Count labels; `train` says which rows are trained on. Rows of weight 0 are not. (n,) each"""
        train = train if weight is None else train & (weight > 0)
        index = self.bins.index(labels[train])
        self.rows += np.bincount(index, minlength=len(self.bins))
        self.total += len(labels)
        if weight is not None:
            self.weights += np.bincount(index, weight[train], len(self.bins))
        for k, value in enumerate(self.shared):
            self.often[k] += int((labels == value).sum())
            self.below[k] = max(self.below[k], labels[labels < value].max(initial=-math.inf))
            self.above[k] = min(self.above[k], labels[labels > value].min(initial=math.inf))

    def merge(self, other: BinCounts) -> None:
        """Take in the counts of another part of the stream, of the same bins and values."""
        self.rows += other.rows
        self.weights += other.weights
        self.total += other.total
        self.often += other.often
        self.below, self.above = np.maximum(self.below, other.below), np.minimum(self.above, other.above)

    @property
    def mean_weight(self) -> float:
        """Mean weight of the training rows whose weight is not 0."""
        return float(self.weights.sum() / max(self.rows.sum(), 1))

    def counted(self, *, weighted: bool) -> LabelBins:
        """Return the bins with their counts, or with `weighted` their total weights.

        Weights with a mean below 1 are scaled up to a mean of 1, because they count rows.
        """
        scaled = self.weights / (min(self.mean_weight, 1.0) or 1.0)
        return self.bins.counted(self.rows, scaled if weighted else None)

    def support(self, sketch: LabelSketch) -> LabelSupport:
        """Return the values that labels can have; `sketch` has all labels."""
        if sketch.values is not None:
            return LabelSupport.from_counts(sketch.values, sketch.counts)
        often = self.often >= ATOM_SHARE * self.total
        if self.total < MIN_LABELS or not often.any():
            return LabelSupport()
        columns = (self.shared[often], self.below[often], self.above[often])
        return LabelSupport((), tuple(map(tuple, np.stack(columns, axis=1).tolist())))


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
    """A sample of the rows of a stream, and a sketch of the labels of the others.

    Every row has a random key, see `row_keys`. The sample is the rows with the smallest keys, so it
    depends on neither the order of rows nor their chunks, and samples of parts can be merged.
    """

    def __init__(self, targets: Sequence[str], keep: int, seed: int) -> None:
        self.targets, self.keep, self.seed = list(targets), keep, seed
        self.sketches = [LabelSketch() for _ in targets]
        self._tables: list[pd.DataFrame] = []
        self._keys: list[NDArray[np.uint64]] = []
        self._limit = np.uint64(2**64 - 1)

    def add(self, chunk: pd.DataFrame) -> None:
        """Take a chunk in; a label that is missing, infinite or too large is an error."""
        if len(chunk) == 0:
            return
        labels = labels_of(chunk, self.targets)
        keys = row_keys(chunk.index.to_numpy(), self.seed)
        taken = keys <= self._limit
        self._sketch(labels[~taken])
        rows = chunk[taken]
        rows.attrs = {}
        self._tables.append(rows)
        self._keys.append(keys[taken])
        if self._waiting > 2 * self.keep:
            self._shrink()

    def merge(self, other: FirstPass) -> None:
        """Take in the pass over another part of the stream, of the same size and seed."""
        self._tables += other._tables
        self._keys += other._keys
        self._shrink()
        for sketch, added in zip(self.sketches, other.sketches, strict=True):
            sketch.merge(added)

    @property
    def rows(self) -> int:
        """Number of rows so far."""
        return self.sketches[0].count + self._waiting

    @property
    def _waiting(self) -> int:
        return sum(map(len, self._keys))

    def _sketch(self, labels: Floats) -> None:
        for sketch, column in zip(self.sketches, labels.T, strict=True):
            sketch.add(column)

    def _shrink(self) -> None:
        """Leave the rows with the smallest keys, in their order."""
        import pandas as pd

        if not self._tables:  # a part without rows
            return
        keys, table = np.concatenate(self._keys), pd.concat(self._tables)
        order = np.argsort(keys, kind="stable")
        kept, left = order[: self.keep], order[self.keep :]
        self._tables, self._keys = [table.iloc[kept]], [keys[kept]]
        if len(left):
            self._limit = keys[kept[-1]]
            self._sketch(labels_of(table.iloc[left], self.targets))

    def finish(self, held: int, sample: int) -> Surveyed:
        """Return what was found, with `held` rows held out and a sample of at most `sample` others."""
        rows = self.rows
        self._shrink()
        (table,), (keys,) = self._tables, self._keys
        labels = labels_of(table, self.targets)
        self._sketch(labels[held:])
        sketches = [LabelSketch() for _ in self.targets]
        for every, train, column in zip(sketches, self.sketches, labels.T, strict=True):
            every.add(column[:held])
            every.merge(train)
        sampled = labels[held : held + sample].T
        return Surveyed(
            rows,
            table.iloc[:held],
            table.iloc[held : held + sample],
            HeldOut(self.seed, int(keys[held - 1])),
            [sketch.summary(column) for sketch, column in zip(self.sketches, sampled, strict=True)],
            sketches,
            [sketch.shared(column) for sketch, column in zip(sketches, labels.T, strict=True)],
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
    survey = FirstPass(targets, keep, seed)
    for chunk in stream.chunks(list(columns), shard=shard):
        survey.add(chunk)
    return survey


def second_pass(
    stream: RowStream,
    targets: Sequence[str],
    bins: Sequence[LabelBins],
    survey: Surveyed,
    weight: str | None = None,
    shard: Shard = (0, 1),
) -> list[BinCounts]:
    """Count the labels of each target in its bins; held-out rows do not count."""
    counts = [BinCounts(b, shared) for b, shared in zip(bins, survey.shared, strict=True)]
    columns = [*targets, *([] if weight is None or weight in targets else [weight])]
    for chunk in stream.chunks(columns, shard=shard):
        labels, weights = labels_of(chunk, targets), weights_of(chunk, weight)
        train: NDArray[np.bool_] = ~survey.held_out(chunk)
        for count, column in zip(counts, labels.T, strict=True):
            count.add(column, train, weights)
    return counts


# -- batches of rows, mixed in a buffer -----------------------------------------------------------

Part = tuple[Any, ...]
"""Arrays of the same length; None for a part that no row has."""


def mixed(parts: Iterable[Part], size: int, buffer: int = 0, seed: int | None = None) -> Iterator[Part]:
    """Yield batches of `size` rows; the last one or two may have fewer rows.

    With a seed, rows wait in a buffer of `buffer` rows, and each batch is a random part of it. Its place then
    goes to the next rows of the stream. Batches depend on the order of the rows, not on the parts that they
    come in.

    >>> [x.tolist() for (x,) in mixed([(np.arange(5),), (np.arange(5, 7),)], size=3)]
    [[0, 1, 2], [3, 4], [5, 6]]
    """
    blocks = _blocks(parts, size)
    if seed is None or buffer == 0:
        return blocks
    return _shuffled(blocks, size, max(buffer, size), np.random.default_rng([seed, 1]))


def _shuffled(blocks: Iterator[Part], size: int, buffer: int, rng: np.random.Generator) -> Iterator[Part]:
    first: list[Part] = []
    while sum(map(_rows, first)) < buffer and (block := next(blocks, None)) is not None:
        first.append(block)
    if not first:
        return
    store = _joined(first)
    count = _rows(store)
    del first
    for block in blocks:
        places = rng.choice(count, _rows(block), replace=False)
        batch = _taken(store, places)
        for to, rows in zip(store, block, strict=True):
            if to is not None:
                to[places] = rows
        yield batch
    for places in np.array_split(rng.permutation(count), -(-count // size)):
        yield _taken(store, places)


def _blocks(parts: Iterable[Part], size: int) -> Iterator[Part]:
    """Yield blocks of `size` rows in order; a short last one shares its rows with the one before it."""
    waiting: list[Part] = []
    count = 0
    for part in parts:
        waiting.append(part)
        count += _rows(part)
        if count >= 2 * size:
            whole = _joined(waiting)
            passed = (count // size - 1) * size  # one block stays back
            for start in range(0, passed, size):
                yield _taken(whole, slice(start, start + size))
            waiting, count = [_taken(whole, slice(passed, count))], count - passed
    if count == 0:
        return
    whole, number = _joined(waiting), -(-count // size)
    ends = [count * k // number for k in range(number + 1)]
    if number * size - count < size / 2:  # long enough as it is
        ends = [min(k * size, count) for k in range(number + 1)]
    for start, end in pairwise(ends):
        yield _taken(whole, slice(start, end))


def _rows(part: Part) -> int:
    return len(part[0])


def _joined(parts: list[Part]) -> Part:
    """Copies of the parts as one, which may be written to."""
    return tuple(None if pieces[0] is None else np.concatenate(pieces) for pieces in zip(*parts, strict=True))


def _taken(part: Part, places: Any) -> Part:
    return tuple(None if array is None else array[places] for array in part)
