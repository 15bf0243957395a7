"""Rows as batches on the device: tensors, any loader, or shards of a stream; and predictions in batches.

Tensors move to the device once if they fit; no Python runs per row. Larger ones, such as pictures in a
memory-mapped file, stay where they are: a thread gathers the next batches while the device works.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice, zip_longest
from typing import Any, Protocol, TypeVar, cast, runtime_checkable

import torch
from torch import Tensor

from tailwise.distributions.members import Distribution, concatenate
from tailwise.networks.ranks import gathered, rank_and_ranks
from tailwise.networks.together import Predictor, Together

T = TypeVar("T")
Transform = Callable[[Any, Tensor], tuple[Any, Tensor]]
DEVICE_SHARE = 1 / 3
"""Inputs move to a GPU as a whole if they take at most this share of its free memory."""
AHEAD = 3
"""Number of batches that are gathered in advance if the inputs stay in the computer's memory."""
STREAM_AHEAD = 16
"""Number of batches of a stream that are made in advance: a chunk of the stream is several batches."""
_NUMBERS_PER_BATCH = 2**26  # at most so many inputs in a batch of predictions


def apply_to(x: T, function: Callable[[Tensor], Tensor]) -> T:
    """Apply a function to every tensor of an input: a tensor, or a tuple or mapping of them."""
    if isinstance(x, Tensor):
        return cast("T", function(x))
    if isinstance(x, Mapping):
        return cast("T", {key: apply_to(value, function) for key, value in x.items()})
    if isinstance(x, (tuple, list)):
        return cast("T", tuple(apply_to(value, function) for value in x))
    raise TypeError(f"inputs must be tensors, or tuples or mappings of them, not {type(x).__name__}")


def tensors_of(x: Any) -> list[Tensor]:
    """Return every tensor of an input, in order."""
    tensors: list[Tensor] = []
    apply_to(x, lambda tensor: tensors.append(tensor) or tensor)  # type: ignore[func-returns-value]
    return tensors


def apply_if(tensor: Tensor | None, function: Callable[[Tensor], Tensor]) -> Tensor | None:
    """Apply a function to a tensor that may be missing."""
    return None if tensor is None else function(tensor)


@dataclass(frozen=True)
class TensorData:
    """Inputs and labels held as tensors, batched by index.

    x is a tensor (N, ...) or a tuple or mapping of such tensors, y is (N, ...). `sample_weight` has one
    weight per row (N,) or per label; `offset` has the base prediction of each label, in the shape of y, for a
    model that predicts around one. `transform` changes each batch on the device, such as a random crop of
    training pictures: (x, y) -> (x, y).
    """

    x: Any
    y: Tensor
    sample_weight: Tensor | None = None
    offset: Tensor | None = None
    transform: Transform | None = None

    def __post_init__(self) -> None:
        rows = sorted({len(tensor) for tensor in tensors_of(self.x)})
        if rows != [len(self.y)] or len(self.y) == 0:
            counts = " and ".join(map(str, rows)) or "no"
            raise ValueError(f"the inputs have {counts} rows, but there are {len(self.y)} labels")
        weight = self.sample_weight
        if weight is not None and weight.shape not in (self.y.shape, self.y.shape[:1]):
            raise ValueError(
                f"sample_weight must have the shape of the labels {tuple(self.y.shape)} or one weight per "
                f"row ({len(self.y)},), not {tuple(weight.shape)}"
            )
        if weight is not None and ((weight < 0).any() or not weight.any()):
            raise ValueError("sample_weight must not be negative, and must not be 0 for every row")
        if self.offset is not None and len(self.offset) != len(self.y):
            raise ValueError(f"offset has {len(self.offset)} rows, but there are {len(self.y)} labels")

    def __len__(self) -> int:
        return len(self.y)

    @property
    def row_count(self) -> int:
        """The number of rows."""
        return len(self.y)

    def to(self, device: torch.device) -> TensorData:
        """Move to a device; inputs that would take too much of a GPU's memory stay, and batches move."""
        x = self.x
        weight, offset = (apply_if(t, lambda t: t.to(device)) for t in (self.sample_weight, self.offset))
        moving = sum(t.numel() * t.element_size() for t in tensors_of(x) if t.device.type != "cuda")
        if device.type != "cuda" or moving <= DEVICE_SHARE * torch.cuda.mem_get_info(device)[0]:
            x = apply_to(x, lambda t: t.to(device))
        return TensorData(x, self.y.to(device), weight, offset, self.transform)

    @property
    def home(self) -> torch.device:
        """The device of the inputs."""
        return tensors_of(self.x)[0].device

    @property
    def streams(self) -> bool:
        """Whether inputs are on another device than labels, so that each batch moves on its own."""
        return self.home != self.y.device

    def fingerprint(self) -> str:
        """Return a short digest of every number, which differs if any of the data differs."""
        parts = [*tensors_of(self.x), self.y, self.sample_weight, self.offset]
        digest = hashlib.blake2b(digest_size=8)
        for tensor in parts:
            if tensor is not None:
                digest.update(f"{tensor.dtype} {tuple(tensor.shape)}".encode())
                digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
        return digest.hexdigest()

    def inputs(self, index: Tensor) -> Any:
        """Gather the inputs of a batch where they are; for a GPU, in memory from which it can copy them."""
        pinned = self.streams and self.y.device.type == "cuda"

        def gather(t: Tensor) -> Tensor:
            rows = index.to(t.device, non_blocking=True)
            if not pinned:
                return t[rows]
            out = torch.empty((len(rows), *t.shape[1:]), dtype=t.dtype, pin_memory=True)
            return torch.index_select(t, 0, rows, out=out)

        return apply_to(self.x, gather)

    def batch(self, index: Tensor, x: Any) -> Batch:
        """Return gathered inputs and their labels as a batch on the device of the labels, transformed."""
        index = index.to(self.y.device, non_blocking=True)
        x, y = apply_to(x, lambda t: t.to(self.y.device, non_blocking=True)), self.y[index]
        if self.transform is not None:
            x, y = self.transform(x, y)
        weight, offset = (apply_if(t, lambda t: t[index]) for t in (self.sample_weight, self.offset))
        return Batch(x, y, weight, offset, index)

    def batches(self, groups: Sequence[Tensor]) -> Iterator[Batch]:
        """Yield a batch of each group of rows; a thread gathers inputs that are not on the device."""
        inputs = map(self.inputs, groups)
        return map(self.batch, groups, in_background(inputs, AHEAD) if self.streams else inputs)


def finite_rows(x: Any) -> Tensor:
    """Return for each row of an input whether all its numbers are finite. (N,)"""
    return torch.stack([t.isfinite().reshape(len(t), -1).all(1) for t in tensors_of(x)]).all(0)


@dataclass(frozen=True)
class Batch:
    """A batch on the device; `rows` are its row numbers in the training data, if known."""

    x: Any
    y: Tensor
    sample_weight: Tensor | None = None
    offset: Tensor | None = None
    rows: Tensor | None = None

    def map(self, function: Callable[[Tensor], Tensor]) -> Batch:
        """Apply a function to every tensor."""
        others = (apply_if(t, function) for t in (self.sample_weight, self.offset, self.rows))
        return Batch(apply_to(self.x, function), function(self.y), *others)


@runtime_checkable
class Sharded(Protocol):
    """Training data that is read in several shards at once, each with a part of the rows."""

    row_count: int
    """Rows of all shards together."""

    def fingerprint(self) -> str:
        """Return a short text that differs if the rows or their order differ; a resumed run compares it."""

    def shard(self, number: int, shards: int, size: int, seed: int) -> Iterable[Any]:
        """Return the batches of one shard in an epoch, of `size` rows, shuffled by a seed."""


Data = TensorData | tuple[Any, Tensor] | tuple[Any, Tensor, Tensor | None] | Sharded | Iterable[Any]


Placed = TensorData | Sharded | Iterable[Any]


def as_data(data: Data, device: torch.device | None = None) -> Placed:
    """Return a tuple of tensors as `TensorData`, on a device if one is given, and anything else unchanged."""
    if isinstance(data, tuple) and 2 <= len(data) <= 4 and isinstance(data[1], Tensor):
        data = TensorData(*data)
    return cast("Placed", data.to(device) if device and isinstance(data, TensorData) else data)


def batches(
    data: TensorData | Iterable[Any], size: int, device: torch.device, share: tuple[int, int] = (0, 1)
) -> Iterator[Batch]:
    """Yield batches on the device, of tensors in their order with at most `size` rows.

    The `share` ``(2, 5)`` has every fifth batch from the third on.
    """
    first, every = share
    if isinstance(data, TensorData):
        yield from data.batches(_groups(torch.arange(len(data), device=data.home), size)[first::every])
        return
    for x, y, *others in islice(data, first, None, every):
        if len(others) > 2:
            raise ValueError(
                f"a batch has {2 + len(others)} parts: expected (x, y), (x, y, weight) or "
                "(x, y, weight, offset)"
            )
        yield Batch(x, y, *others).map(lambda t: t.to(device))


def _groups(rows: Tensor, size: int) -> Sequence[Tensor]:
    """Divide rows into batches of nearly equal size: a single row would break batch normalisation."""
    return rows.tensor_split(-(-len(rows) // size))


def in_background(items: Iterator[T], ahead: int = STREAM_AHEAD) -> Iterator[T]:
    """Yield items while a thread makes the next ones, at most `ahead` of them.

    >>> list(in_background(iter("abc"), ahead=2))
    ['a', 'b', 'c']
    """
    end = cast("T", object())
    with ThreadPoolExecutor(1, "batches") as maker:
        waiting = deque(maker.submit(next, items, end) for _ in range(ahead))
        while (item := waiting.popleft().result()) is not end:
            waiting.append(maker.submit(next, items, end))
            yield item


class TrainingRows:
    """The training rows, and which of them this process works on."""

    def __init__(self, data: Placed, batch_size: int, shards: int, device: torch.device) -> None:
        self.data, self.batch_size, self.shards, self.device = data, batch_size, shards, device
        rank, ranks = rank_and_ranks()
        self.own = range(rank, shards, ranks)

    def steps(self) -> int | None:
        """Return the steps of an epoch, if they are known before it ends."""
        if isinstance(self.data, TensorData | Sharded):
            return -(-self.data.row_count // self.batch_size)
        try:
            return len(cast("Sized", self.data))
        except TypeError:  # a generator, or a loader over an iterable data set
            return None

    def epoch(self, seed: int) -> Iterator[list[tuple[int, Batch]]]:
        """Yield this rank's shards of each step, with their numbers; all ranks share the seed.

        A step is the next batch of each shard that still has one.
        """
        running = {number: self._shard(number, seed) for number in self.own}
        while running:
            taken = [(shard, batch) for shard, rows in running.items() if (batch := next(rows, None))]
            running = {shard: running[shard] for shard, _ in taken}
            if taken:
                yield taken

    def _shard(self, number: int, seed: int) -> Iterator[Batch]:
        """Return the batches of one shard in an epoch."""
        data = self.data
        if isinstance(data, TensorData):
            order = torch.randperm(len(data), generator=torch.Generator().manual_seed(seed))
            groups = _groups(order.to(data.home), self.batch_size)
            parts = [rows.tensor_split(self.shards)[number] for rows in groups]
            return data.batches([rows for rows in parts if len(rows)])
        if isinstance(data, Sharded):
            part = max(1, self.batch_size // self.shards)
            return batches(data.shard(number, self.shards, part, seed), part, self.device)
        if self.shards > 1:
            raise ValueError("a loader cannot be divided into shards: pass tensors, or leave shards out")
        return batches(data, self.batch_size, self.device)


# -- predictions -------------------------------------------------------------------------------


def predict_batches(
    model: Predictor | Together,
    data: TensorData | Iterable[Any],
    batch_size: int,
    device: torch.device,
    share: tuple[int, int] = (0, 1),
) -> tuple[Distribution, Tensor]:
    """Predict every batch once, on one of the ranks that share them; all ranks return all, in order."""
    if model.training:
        model.eval()
    predicted = []
    with torch.no_grad():
        for batch in batches(data, batch_size, device, share):
            prediction: Distribution = model(batch.x, offset=batch.offset)
            predicted.append((prediction.map(lambda p: p.cpu()), batch.y.cpu()))
    of_ranks = [predicted] if share == (0, 1) else gathered(predicted)
    in_order = [batch for turn in zip_longest(*of_ranks) for batch in turn if batch is not None]
    if not in_order:
        raise ValueError("the validation data has no batch: the loader is empty or exhausted")
    return concatenate([prediction for prediction, _ in in_order]), torch.cat([y for _, y in in_order])


@torch.no_grad()
def predict(
    model: Predictor | Together,
    x: Any,
    batch_size: int = 4096,
    offset: Tensor | None = None,
    dtype: torch.dtype | None = None,
) -> Distribution:
    """Predict all rows of an input in batches on the model's device; the result is on the CPU.

    Batches of large inputs, such as pictures, have fewer rows than `batch_size`. `dtype` is that of a model
    which is more exact than x, a tensor.
    offset: base predictions (N,), or (N, T) for several targets, for a model built with ``offset=True``.
    """
    training, device = model.training, model.device
    rows = len(tensors_of(x)[0])
    if rows == 0:
        raise ValueError("no rows to predict")
    numbers = max(t[0].numel() for t in tensors_of(x))
    batch_size = max(1, min(batch_size, _NUMBERS_PER_BATCH // max(numbers, 1)))
    cast = None if dtype is None else lambda x, y: (x.to(dtype), y)
    at = apply_if(offset, lambda t: t.to(device))
    data = TensorData(x, torch.zeros(rows, device=device), offset=at, transform=cast)
    try:
        return predict_batches(model, data, batch_size, device)[0]
    finally:
        if training:
            model.train()
