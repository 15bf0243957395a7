"""Batches: rows by index, in the background, and in shards."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

from tailwise.training.batches import AHEAD, TensorData, TrainingRows, batches, in_background
from tailwise.training.loop import TrainConfig, fit, predict
from tests.training.small_models import X, Y, point

CPU = torch.device("cpu")


@pytest.mark.parametrize(
    ("build", "error", "message"),
    [
        (lambda: TensorData(X, Y[:-1]), ValueError, "the inputs have 90 rows, but there are 89 labels"),
        (lambda: TensorData((X, X[:-2]), Y), ValueError, "the inputs have 88 and 90 rows, but there are 90"),
        (lambda: TensorData(X[:0], Y[:0]), ValueError, "the inputs have 0 rows, but there are 0 labels"),
        (lambda: TensorData((), Y), ValueError, "the inputs have no rows"),
        (lambda: TensorData(X, Y, Y[:3]), ValueError, "sample_weight must have the shape of the labels"),
        (lambda: TensorData(X, Y, Y - 1), ValueError, "sample_weight must not be negative"),
        (lambda: TensorData(X, Y, 0 * Y), ValueError, "must not be 0 for every row"),
        (lambda: TensorData(X, Y, offset=Y[:3]), ValueError, "offset has 3 rows, but there are 90 labels"),
        (lambda: TensorData(X.numpy(), Y), TypeError, "inputs must be tensors.*not ndarray"),
        (lambda: predict(point(), X.numpy()), TypeError, "inputs must be tensors.*not ndarray"),
        (lambda: predict(point(), X[:0]), ValueError, "no rows to predict"),
    ],
)
def test_malformed_data_is_an_error(build: Callable[[], Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        build()


def _shifted(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    return x + 1, y


def test_a_thread_gathers_inputs_that_stay_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    data = TensorData(X, Y, sample_weight=torch.ones(len(Y)), transform=_shifted)
    expected = list(batches(data, 8, CPU))
    monkeypatch.setattr(TensorData, "streams", True)
    got = list(batches(data, 8, CPU))
    assert len(got) == len(expected) > AHEAD
    for one, other in zip(got, expected, strict=True):
        assert torch.equal(one.x, other.x) and torch.equal(one.y, other.y)
        assert one.rows is not None and other.rows is not None and torch.equal(one.rows, other.rows)


@pytest.mark.gpu
def test_inputs_too_large_for_a_gpu_stay_and_train_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    from tailwise.training import batches as module

    config = TrainConfig(epochs=2, accelerator="cuda", batch_size=16)
    results = []
    for share in (1.0, 0.0):
        monkeypatch.setattr(module, "DEVICE_SHARE", share)
        assert TensorData(X, Y).to(torch.device("cuda")).streams == (share == 0)
        torch.manual_seed(0)
        results.append(fit(point(), (X, Y), (X, Y), config).history[-1]["loss"])
    assert results[0] == results[1]


def test_items_made_in_the_background_keep_their_order_and_their_errors() -> None:
    def items() -> Iterator[int]:
        yield from range(40)
        raise RuntimeError("the disk is gone")

    made = in_background(items(), ahead=3)
    assert [next(made) for _ in range(40)] == list(range(40))
    with pytest.raises(RuntimeError, match="the disk is gone"):
        next(made)
    stopped = in_background(iter(range(100)), ahead=3)
    assert next(stopped) == 0
    stopped.close()  # ends the thread
    assert not any(thread.name.startswith("batches") for thread in threading.enumerate())


def numbers_of(data: Any, own: range, size: int = 6) -> list[list[tuple[int, list[int]]]]:
    """Row numbers of each shard of each step."""
    rows = TrainingRows(data, size, 3, CPU)
    rows.own = own
    return [[(number, batch.y.int().tolist()) for number, batch in step] for step in rows.epoch(0)]


def test_a_shard_that_ends_early_leaves_the_steps_to_the_others() -> None:
    class Uneven:
        row_count = 7

        def fingerprint(self) -> str:
            return ""

        def shard(self, number: int, shards: int, size: int, seed: int) -> Iterator[Any]:
            assert (shards, size) == (3, 2)
            rows = torch.arange(10.0 * number, 10.0 * number + (5, 0, 2)[number])
            return ((part, part) for part in rows.split(size) if len(part))

    assert numbers_of(Uneven(), range(3)) == [[(0, [0, 1]), (2, [20, 21])], [(0, [2, 3])], [(0, [4])]]
    assert numbers_of(Uneven(), range(1, 2)) == []
