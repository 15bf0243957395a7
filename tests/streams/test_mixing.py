"""Batches of mixed rows from a buffer of bounded size."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tailwise.streams.survey import mixed

N = 1000


def parts(chunk: int, rows: int = N) -> Iterator[tuple[Any, ...]]:
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
    first, *others = (batches(chunk, size=32, **options) for chunk in (7, 32, 100, N))
    assert all(other == first for other in others)
    assert sorted(number for batch in first for number in batch) == list(range(N))
    assert all(16 <= len(batch) <= 32 for batch in first)
    assert sum(len(batch) < 31 for batch in first) <= 2


def test_rows_are_mixed_within_the_buffer() -> None:
    first, again, other = (batches(100, size=10, buffer=100, seed=seed) for seed in (1, 1, 2))
    assert first == again != other
    assert max(first[0]) < 110
    places = np.argsort([number for batch in first for number in batch])
    assert 20 < np.abs(places - np.arange(N)).mean() < 300
