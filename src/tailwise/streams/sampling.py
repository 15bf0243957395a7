"""A random sample of a stream, the same whatever the order of the rows and the chunks they come in.

Every row has a random key, made from its number and a seed. The sample is the rows with the smallest keys. So
samples of parts of a stream can be merged, and any later pass can tell from a row's number where it belongs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tailwise.streams.row_stream import RowStream, Shard

if TYPE_CHECKING:
    import pandas as pd

Floats = NDArray[np.float64]
Keys = NDArray[np.uint64]
_ALL = np.uint64(2**64 - 1)


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
    """The rows that are held out: those with a key of at most `last`."""

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


class RowSample:
    """The `keep` rows of a stream with the smallest keys, and their labels."""

    def __init__(self, keep: int, seed: int) -> None:
        self.keep, self.seed = keep, seed
        self._tables: list[pd.DataFrame] = []
        self._labels: list[Floats] = []
        self._keys: list[Keys] = []
        self._limit = _ALL

    def add(self, chunk: pd.DataFrame, labels: Floats) -> Floats:
        """Take rows in; return labels of rows that are not in the sample, or no longer. (n, T) -> (m, T)"""
        keys = row_keys(chunk.index.to_numpy(), self.seed)
        taken = keys <= self._limit
        if not taken.all():
            chunk, rest = chunk[taken], labels[~taken]
            keys, labels = keys[taken], labels[taken]
        else:
            rest = labels[:0]
        chunk.attrs = {}
        self._tables.append(chunk)
        self._labels.append(labels)
        self._keys.append(keys)
        return np.concatenate([rest, self._shrink()]) if self.size > 2 * self.keep else rest

    @property
    def size(self) -> int:
        """Number of rows that wait here."""
        return sum(map(len, self._keys))

    def merge(self, other: RowSample) -> Floats:
        """Take in the sample of another part of the stream; return the labels of rows that are in none."""
        if (self.keep, self.seed) != (other.keep, other.seed):
            raise ValueError("only samples of one size and seed can be merged")
        self._tables += other._tables
        self._labels += other._labels
        self._keys += other._keys
        return self._shrink()

    def finish(self) -> tuple[pd.DataFrame, Floats, Keys, Floats]:
        """Return the rows in the order of their keys, their labels and keys, and labels of rows that left."""
        left = self._shrink()
        return self._tables[0], self._labels[0], self._keys[0], left

    def _shrink(self) -> Floats:
        """Leave the rows with the smallest keys, in their order; return the labels of the others."""
        import pandas as pd

        keys, labels = np.concatenate(self._keys), np.concatenate(self._labels)
        order = np.argsort(keys, kind="stable")
        kept, left = order[: self.keep], order[self.keep :]
        self._tables = [pd.concat(self._tables).iloc[kept]]
        self._keys, self._labels = [keys[kept]], [labels[kept]]
        if len(left):
            self._limit = keys[kept[-1]]
        return np.asarray(labels[left])
