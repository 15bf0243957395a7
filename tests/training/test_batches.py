"""Batches: rows by index, sentences by length, and padding cut where it is declared."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

from tailwise.labels.bins import LabelBins
from tailwise.methods import build_model
from tailwise.training.batches import (
    AHEAD,
    TensorData,
    batches,
    by_length,
    check_divided,
    finite_rows,
    in_background,
    sharded,
)
from tailwise.training.loop import TrainConfig, fit, predict
from tests.training.small_models import X, Y, point

ROWS, LONGEST = 40, 9
CPU = torch.device("cpu")


def inputs() -> dict[str, Tensor]:
    """Pairs of sentences with a mask, and numbers and codes as wide as the sentences are."""
    g = torch.Generator().manual_seed(0)
    lengths = torch.randint(1, LONGEST + 1, (ROWS, 2, 1), generator=g)
    there = torch.arange(LONGEST + 3) < lengths  # three columns that no row fills
    return {
        "words": torch.randint(1, 20, there.shape, generator=g, dtype=torch.int32).where(there, 0),
        "mask": there.float(),
        "codes": torch.randint(0, 4, (ROWS, LONGEST + 3), generator=g),
        "numbers": torch.zeros(ROWS, LONGEST + 3),
        "group": torch.arange(ROWS),
    }


def test_only_declared_inputs_are_cut_to_the_longest_row_of_a_batch() -> None:
    x = inputs()
    lengths = (x["words"] != 0).sum(-1).amax(-1)
    data = TensorData(x, torch.rand(ROWS), lengths=lengths, padded_inputs=("words", "mask"))
    seen, ends = [], set()
    for batch in batches(data.to(CPU), 8, CPU, seed=0):
        assert batch.rows is not None and set(batch.x) == set(x)
        end = int(lengths[batch.rows].max())
        for name, got in batch.x.items():
            whole = x[name][batch.rows]
            assert torch.equal(got, whole[..., :end] if name in ("words", "mask") else whole), name
        seen += batch.rows.tolist()
        ends.add(end)
    assert sorted(seen) == list(range(ROWS)) and len(ends) > 1


class Weighed(nn.Module):
    """Sums the vectors of words by weights that come with them."""

    padded_inputs = (0, 1)

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(20, 4)
        self.widths: set[int] = set()

    def row_lengths(self, x: Any) -> Tensor:
        return (x[0] != 0).sum(-1)

    def forward(self, words: Tensor, weight: Tensor) -> Tensor:
        self.widths.add(words.shape[-1])
        return (self.table(words) * weight.unsqueeze(-1)).sum(1)


class WordPair(nn.Module):
    """The mean of the vectors of both sentences' words. (N, 2, L) -> (N, 6)"""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(20, 6)

    @staticmethod
    def row_lengths(x: Tensor) -> Tensor:
        return (x != 0).sum(-1).amax(-1)

    def forward(self, words: Tensor) -> Tensor:
        there = (words != 0).unsqueeze(-1)
        return (self.table(words) * there).sum((1, 2)) / there.sum((1, 2))


class WordsAndCodes(nn.Module):
    """Sentences beside category codes, each of which has a table of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.pair = WordPair()
        self.tables = nn.ModuleList(nn.Embedding(4, 4) for _ in range(LONGEST + 3))

    def forward(self, words: Tensor, codes: Tensor) -> Tensor:
        known = [table(code) for table, code in zip(self.tables, codes.unbind(1), strict=True)]
        return torch.cat([self.pair(words), torch.stack(known).sum(0)], -1)


class Measured(WordsAndCodes):
    """The same, with lengths of its rows."""

    padded_inputs = (0,)

    def row_lengths(self, x: Any) -> Tensor:
        return self.pair.row_lengths(x[0])


@pytest.mark.parametrize(("network", "dim"), [(Weighed, 4), (WordsAndCodes, 10), (Measured, 10)])
def test_a_network_with_padded_inputs_trains_and_predicts(network: Callable[[], nn.Module], dim: int) -> None:
    given = inputs()
    words, mask, codes = given["words"], given["mask"], given["codes"]
    x = (words[:, 0], mask[:, 0]) if network is Weighed else (words, codes)
    y = codes.sum(1).double()
    torch.manual_seed(0)
    model = build_model("vir", network(), dim, LabelBins.from_labels(y))
    assert (model.row_lengths(x) is None) is (network is WordsAndCodes)
    assert model.padded_inputs == getattr(network, "padded_inputs", ())
    fit(model, (x, y), (x, y), TrainConfig(epochs=1, batch_size=8, accelerator="cpu"))
    whole = predict(model, x, batch_size=7).mean.float()  # the network computes in float32
    torch.testing.assert_close(whole, model(x).mean.float())
    for row in range(3):
        alone = predict(model, tuple(t[row : row + 1] for t in x)).mean.float()
        torch.testing.assert_close(alone, whole[row : row + 1])
    if network is Weighed:
        assert len(model.backbone.widths) > 3  # of batches cut to different lengths


@pytest.mark.parametrize("rows", [1, 5, 64, 300])
@pytest.mark.parametrize("seed", [None, 0])
def test_batches_by_length_contain_each_row_once(rows: int, seed: int | None) -> None:
    lengths = torch.randint(1, 40, (rows,), generator=torch.Generator().manual_seed(rows))
    order = torch.randperm(rows) + 100
    groups = by_length(order, lengths, 8, seed)
    assert sorted(torch.cat(groups).tolist()) == list(range(100, 100 + rows))
    sizes = [len(group) for group in groups]
    assert max(sizes) <= 8 and max(sizes) - min(sizes) <= 1
    assert all(torch.equal(a, b) for a, b in zip(groups, by_length(order, lengths, 8, seed), strict=True))


def test_rows_that_are_finite_in_every_tensor() -> None:
    a, b = torch.zeros(4, 2, 2), torch.zeros(4)
    a[1, 0, 1], b[3] = torch.nan, torch.inf
    found = finite_rows({"a": a, "b": b, "c": torch.zeros(4, 1, dtype=torch.int64)})
    assert found.tolist() == [True, False, True, False]


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
        (lambda: TensorData(X, Y, lengths=Y[:3]), ValueError, r"lengths have shape \(3,\), expected \(90,\)"),
        (lambda: TensorData((X,), Y, padded_inputs=(1,)), ValueError, r"has 1, but the inputs are \[0\]"),
        (
            lambda: TensorData({"words": X}, Y, padded_inputs=("word",)),
            ValueError,
            r"padded_inputs has 'word', but the inputs are \['words'\]",
        ),
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


def test_a_transform_changes_batches_and_not_the_data() -> None:
    data = TensorData(X, Y, transform=_shifted)
    for batch in batches(data.to(CPU), 20, CPU):
        assert torch.equal(batch.x, X[batch.rows] + 1)
    assert data.x is X


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
    steps = sharded(data, size, CPU, shards=3, own=own)
    return [[(number, batch.y.int().tolist()) for number, batch in step] for step in steps]


def test_shards_of_tensors_are_parts_of_the_same_steps() -> None:
    rows = torch.arange(13.0)
    whole, first, second = (
        numbers_of(TensorData(rows, rows), own) for own in (range(3), range(0, 3, 2), range(1, 3, 2))
    )
    assert [[y for _, part in step for y in part] for step in whole] == [
        b.y.int().tolist() for b in batches(TensorData(rows, rows), 6, CPU)
    ]
    assert [sorted(a + b) for a, b in zip(first, second, strict=True)] == whole
    few = numbers_of(TensorData(rows[:2], rows[:2]), range(2, 3))
    assert few == [[]]  # the third shard of two rows is empty, but there is a step


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


def test_a_loader_must_divide_its_rows_between_processes() -> None:
    data = TensorDataset(X, Y)
    with pytest.raises(
        ValueError, match=r"same rows: make it with sampler=torch.utils.data.DistributedSampler"
    ):
        check_divided(DataLoader(data, 8))
    check_divided(DataLoader(data, 8, sampler=DistributedSampler(data, 2, 0)))
