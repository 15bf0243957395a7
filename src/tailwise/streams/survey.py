"""The two passes over a stream before training, rows that are held out, and batches of mixed rows.

The first pass samples rows and finds the range of the labels. Bins are chosen from that. The second pass
reads labels only, and counts them in the bins. What the passes keep can be merged, part by part.
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
from tailwise.streams.sources import RowStream, Shard, where
from tailwise.tables.columns import LARGEST_TARGET
from tailwise.tables.read import TableError

if TYPE_CHECKING:
    import pandas as pd

Floats = NDArray[np.float64]
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
    ends: list[Floats]
    """The smallest and the largest label of all rows, for each target."""


class FirstPass:
    """A sample of the rows of a stream, and the range of the labels of the others.

    Every row has a random key, see `row_keys`. The sample is the rows with the smallest keys, so it
    depends on neither the order of rows nor their chunks, and samples of parts can be merged.
    """

    def __init__(self, targets: Sequence[str], keep: int, seed: int) -> None:
        self.targets, self.keep, self.seed = list(targets), keep, seed
        self.rows = 0
        """Number of rows so far."""
        self._low, self._high = np.full(len(targets), math.inf), np.full(len(targets), -math.inf)
        self._tables: list[pd.DataFrame] = []
        self._keys: list[Keys] = []
        self._limit = np.uint64(2**64 - 1)

    def add(self, chunk: pd.DataFrame) -> None:
        """Take a chunk in; a label that is missing, infinite or too large is an error."""
        if len(chunk) == 0:
            return
        labels = labels_of(chunk, self.targets)
        keys = row_keys(chunk.index.to_numpy(), self.seed)
        taken = keys <= self._limit
        self._pass_over(labels[~taken])
        rows = chunk[taken]
        rows.attrs = {}
        self.rows += len(chunk)
        self._tables.append(rows)
        self._keys.append(keys[taken])
        if sum(map(len, self._keys)) > 2 * self.keep:
            self._shrink()

    def merge(self, other: FirstPass) -> None:
        """Take in the pass over another part of the stream, of the same size and seed."""
        self.rows += other.rows
        self._low, self._high = np.minimum(self._low, other._low), np.maximum(self._high, other._high)
        self._tables += other._tables
        self._keys += other._keys
        self._shrink()

    def _pass_over(self, labels: Floats) -> None:
        """Remember the range of labels that are not kept. (n, T)"""
        self._low = np.minimum(self._low, labels.min(0, initial=math.inf))
        self._high = np.maximum(self._high, labels.max(0, initial=-math.inf))

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
            self._pass_over(labels_of(table.iloc[left], self.targets))

    def finish(self, held: int, sample: int) -> Surveyed:
        """Return what was found, with `held` rows held out and a sample of at most `sample` others."""
        self._shrink()
        (table,), (keys,) = self._tables, self._keys
        labels = labels_of(table, self.targets)
        self._pass_over(labels[held:])
        sampled = labels[held : held + sample].T
        columns = zip(self._low.tolist(), self._high.tolist(), sampled, strict=True)
        summaries = [LabelSummary(self.rows - held, *column) for column in columns]
        self._pass_over(labels)
        return Surveyed(
            self.rows,
            table.iloc[:held],
            table.iloc[held : held + sample],
            HeldOut(self.seed, int(keys[held - 1])),
            summaries,
            list(np.stack([self._low, self._high], axis=1)),
        )


def first_pass(
    stream: RowStream,
    columns: Sequence[str],
    targets: Sequence[str],
    keep: int,
    seed: int,
    shard: Shard = (0, 1),
) -> FirstPass:
    """Read a stream once; keep a sample of `columns` and the range of the targets."""
    survey = FirstPass(targets, keep, seed)
    for chunk in stream.chunks(list(columns), shard=shard):
        survey.add(chunk)
    return survey


def second_pass(
    stream: RowStream,
    targets: Sequence[str],
    bins: Sequence[LabelBins],
    held_out: HeldOut,
    weight: str | None = None,
    shard: Shard = (0, 1),
) -> list[Floats]:
    """Return the number of training rows in each bin of each target, and their total weight. T times (2, B)

    Rows of weight 0 do not count. The counts of parts of a stream can be added.
    """
    counts = [np.zeros((2, len(b))) for b in bins]
    columns = list(dict.fromkeys([*targets, *([] if weight is None else [weight])]))
    for chunk in stream.chunks(columns, shard=shard):
        labels, weights = labels_of(chunk, targets), weights_of(chunk, weight)
        weights = np.ones(len(chunk)) if weights is None else weights
        train = ~held_out(chunk) & (weights > 0)
        for b, count, column in zip(bins, counts, labels[train].T, strict=True):
            index = b.index(column)
            count += np.stack([np.bincount(index, w, len(b)) for w in (None, weights[train])])
    return counts


def mean_weight(counts: Floats) -> float:
    """Return the mean weight of the training rows that a second pass counted. (2, B)"""
    return float(counts[1].sum() / max(counts[0].sum(), 1))


def counted(bins: LabelBins, counts: Floats) -> LabelBins:
    """Return bins with the weights that a second pass counted. (2, B)

    Weights with a mean below 1 are scaled up to a mean of 1, because they count rows.
    """
    return bins.counted(counts[0], counts[1] / (min(mean_weight(counts), 1.0) or 1.0))


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
