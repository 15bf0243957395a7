"""Rows of a stream in batches of equal size, mixed in a buffer of bounded size.

Rows are tuples of arrays of the same length. A part that no row has is None.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Any

import numpy as np

Part = tuple[Any, ...]


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
    held: list[Part] = []
    count = 0
    for block in blocks:  # until the buffer is full
        held.append(block)
        count += _rows(block)
        if count >= buffer:
            break
    if not held:
        return
    store = _joined(held)
    del held
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
                yield _cut(whole, start, start + size)
            waiting, count = [_cut(whole, passed, count)], count - passed
    if count == 0:
        return
    whole, number = _joined(waiting), -(-count // size)
    ends = [count * k // number for k in range(number + 1)]
    if number * size - count < size / 2:  # long enough as it is
        ends = [min(k * size, count) for k in range(number + 1)]
    for start, end in pairwise(ends):
        yield _cut(whole, start, end)


def _rows(part: Part) -> int:
    return len(part[0])


def _joined(parts: list[Part]) -> Part:
    """Copies of the parts as one, which may be written to."""
    return tuple(None if pieces[0] is None else np.concatenate(pieces) for pieces in zip(*parts, strict=True))


def _cut(part: Part, start: int, end: int) -> Part:
    return tuple(None if array is None else array[start:end] for array in part)


def _taken(part: Part, places: Any) -> Part:
    return tuple(None if array is None else array[places] for array in part)
