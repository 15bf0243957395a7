"""Which rows a process works on: every row once in an epoch, in an order that the seed decides."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from tailwise.training.batches import TrainingRows, as_data
from tests.training.small_models import X, Y

CPU = torch.device("cpu")


class Counted:
    row_count = len(Y)

    def shard(self, number: int, shards: int, size: int, seed: int) -> Iterator[tuple[torch.Tensor, ...]]:
        for rows in torch.arange(len(Y))[number::shards].split(size):
            yield X[rows], Y[rows]

    def fingerprint(self) -> str:
        return "same"


def labels(rows: TrainingRows, seed: int) -> list[list[float]]:
    return [[float(y) for _, batch in step for y in batch.y] for step in rows.epoch(0, seed)]


@pytest.mark.parametrize("kind", ["tensors", "shards"])
def test_every_row_comes_once_in_an_epoch(kind: str) -> None:
    data = as_data((X, Y)) if kind == "tensors" else Counted()
    rows = TrainingRows(data, 32, 2, CPU)
    first = labels(rows, 0)
    assert len(first) == rows.steps() == -(-len(Y) // 32)
    assert sorted(y for step in first for y in step) == sorted(Y.tolist())
    if kind == "tensors":
        assert labels(rows, 0) == first != labels(rows, 1)


def test_steps_of_a_loader_are_its_length_if_it_has_one() -> None:
    batches = [(X[:4], Y[:4]), (X[4:8], Y[4:8])]
    assert TrainingRows(batches, 4, 1, CPU).steps() == 2
    assert TrainingRows(iter(batches), 4, 1, CPU).steps() is None
    with pytest.raises(ValueError, match="a loader cannot be divided into shards"):
        labels(TrainingRows(batches, 4, 2, CPU), 0)
