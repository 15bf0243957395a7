"""Rows of a stream that are held out, told by a random key that is made from a row's number and a seed.

Any pass can tell from a row's number whether it is held out, whatever the order of rows and their chunks.
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
