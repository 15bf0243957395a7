"""Training data as batches: tensors gathered by index on their device, or any loader.

Data that is already tensors moves to the device once; no Python runs per row.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar, cast

import torch
from torch import Tensor

T = TypeVar("T")


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
    """Every tensor of an input, in order."""
    found: list[Tensor] = []

    def note(tensor: Tensor) -> Tensor:
        found.append(tensor)
        return tensor

    apply_to(x, note)
    return found


@dataclass(frozen=True)
class TensorData:
    """Inputs and labels held as tensors, batched by index on their own device.

    x is a tensor (N, ...) or a tuple or mapping of such tensors, y is (N, ...). With `lengths` (N,), on
    the CPU, x is padded along its last dimension: batches are made of rows of like length, and
    padding beyond a batch's longest row is cut off. Of several tensors the words (N, ..., L) come first
    among those of whole numbers; others of their width are cut with them, and so are masks and weights
    of words in floating point, told by their padding. Nothing else is.
    `sample_weight` has one weight per row (N,) or per label.
    """

    x: Any
    y: Tensor
    sample_weight: Tensor | None = None
    lengths: Tensor | None = None

    def __post_init__(self) -> None:
        rows = sorted({len(tensor) for tensor in tensors_of(self.x)})
        if rows != [len(self.y)] or len(self.y) == 0:
            counts = " and ".join(map(str, rows)) or "no"
            raise ValueError(f"{counts} rows of inputs for {len(self.y)} labels")
        weight = self.sample_weight
        if weight is not None and weight.shape not in (self.y.shape, self.y.shape[:1]):
            raise ValueError(
                f"sample_weight must have the shape of the labels {tuple(self.y.shape)}, or one weight for "
                f"each of {len(self.y)} rows, not {tuple(weight.shape)}"
            )
        if weight is not None and ((weight < 0).any() or not weight.any()):
            raise ValueError("sample_weight must not be negative, and one weight must be positive")
        if self.lengths is not None and self.lengths.shape != (len(self.y),):
            raise ValueError(f"{tuple(self.lengths.shape)} lengths for {len(self.y)} rows")

    def __len__(self) -> int:
        return len(self.y)

    def to(self, device: torch.device) -> TensorData:
        """Move to a device."""
        weight = None if self.sample_weight is None else self.sample_weight.to(device)
        x = apply_to(self.x, lambda t: t.to(device))
        return TensorData(x, self.y.to(device), weight, self.lengths)

    def fingerprint(self) -> str:
        """A short digest of every number, to tell other data of the same shape from the same data."""
        parts = [*tensors_of(self.x), self.y, self.sample_weight, self.lengths]
        digest = hashlib.blake2b(digest_size=8)
        for tensor in parts:
            if tensor is not None:
                digest.update(f"{tensor.dtype} {tuple(tensor.shape)}".encode())
                digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
        return digest.hexdigest()

    def rows(self, index: Tensor) -> Batch:
        """Gather a batch by row numbers. index: (n,), where there are lengths on the CPU"""
        end = None if self.lengths is None else max(1, int(self.lengths[index].max()))
        index = index.to(self.y.device, non_blocking=True)
        weight = None if self.sample_weight is None else self.sample_weight[index]
        cut = iter(self._cut)
        x = apply_to(self.x, lambda t: t[index][..., :end] if next(cut) else t[index])
        return Batch(x, self.y[index], weight, index)

    @cached_property
    def _cut(self) -> list[bool]:
        """Which tensors are cut to the longest row of a batch, in the order of `tensors_of`.

        The words are the first whole numbers that end in padding: looking at the values keeps codes of
        categories whole even where they come first. Floating point of their width is for each word if it is
        padded where they are, and features if it is not padded at all. Where it may be either, as beside
        a single row that lacks one word, nothing is cut: slower, but right for both.
        """
        tensors = tensors_of(self.x)
        whole = [False] * len(tensors)
        if self.lengths is None:
            return whole
        if isinstance(self.x, Tensor):
            return [True]
        found = (self._padding(t) for t in tensors if not t.is_floating_point())
        words = next((padding for padding in found if padding is not None), None)
        if words is None:
            return whole
        evident = int(self.lengths.min()) < words.shape[-1] - 1
        cut = [t.ndim > 1 and t.shape[-1] == words.shape[-1] for t in tensors]
        for place, t in enumerate(tensors):
            if cut[place] and t.is_floating_point():
                padding = self._padding(t)
                cut[place] = padding is not None
                if padding is not None and not (evident and torch.equal(padding, words)):
                    return whole
        return cut

    def _padding(self, t: Tensor) -> Tensor | None:
        """Where the value is that fills a tensor up beyond its rows' lengths, if it is one. (N, ..., L)"""
        assert self.lengths is not None
        if t.ndim < 2 or t.shape[-1] < self.lengths.max():
            return None
        beyond = torch.arange(t.shape[-1]) >= self.lengths.unsqueeze(-1)  # (N, L)
        beyond = beyond.reshape(len(t), *(1,) * (t.ndim - 2), -1).to(t.device)
        filled = t == t[self.lengths.argmin()].flatten()[-1]
        return filled if (filled | ~beyond).all() else None


def finite_rows(x: Any) -> Tensor:
    """Whether every number of a row of an input is finite. (N,)"""
    return torch.stack([t.isfinite().reshape(len(t), -1).all(1) for t in tensors_of(x)]).all(0)


@dataclass(frozen=True)
class Batch:
    """A batch on the device; `rows` are its row numbers in the training data, where known."""

    x: Any
    y: Tensor
    sample_weight: Tensor | None = None
    rows: Tensor | None = None


Data = TensorData | tuple[Any, Tensor] | tuple[Any, Tensor, Tensor] | Iterable[Any]


def as_data(data: Data) -> TensorData | Iterable[Any]:
    if isinstance(data, tuple) and len(data) in (2, 3) and isinstance(data[1], Tensor):
        return TensorData(*data)
    return cast("TensorData | Iterable[Any]", data)


def batches(
    data: TensorData | Iterable[Any],
    size: int,
    device: torch.device,
    order: Tensor | None = None,
    seed: int | None = None,
) -> Iterator[Batch]:
    """Batches on the device; of tensors, at most `size` rows each, in the given order of rows.

    Rows that have lengths are regrouped by them: at random with a `seed`, else from short to long.
    """
    if not isinstance(data, TensorData):
        for x, y, *weight in data:
            x = apply_to(x, lambda t: t.to(device))
            yield Batch(x, y.to(device), weight[0].to(device) if weight else None)
        return
    rows = torch.arange(len(data)) if order is None else order
    if data.lengths is None:
        # Batches of almost one size: a last one of a single row would break batch normalisation.
        groups = rows.to(data.y.device).tensor_split(-(-len(rows) // size))
    else:
        groups = by_length(rows, data.lengths[rows], size, seed)
    for index in groups:
        yield data.rows(index)


POOL = 16
"""Batches whose rows are sorted together: more pad less, fewer mix better."""


def by_length(rows: Tensor, lengths: Tensor, size: int, seed: int | None = None) -> tuple[Tensor, ...]:
    """Group rows of like length into batches of almost one size. rows and lengths: (n,)

    With a `seed`, batches are new for every seed, and in random order. Without, all rows are sorted.

    >>> by_length(torch.tensor([7, 8, 9]), torch.tensor([5, 1, 5]), size=2)
    (tensor([8, 7]), tensor([9]))
    """
    if seed is None:
        return rows[lengths.argsort(stable=True)].tensor_split(-(-len(rows) // size))
    from tailwise.data.sentences.words import (
        length_buckets,  # here, since it reads files as well: pandas comes with it
    )

    groups = length_buckets(lengths.numpy(), size, seed, pool=POOL)
    return tuple(rows[torch.from_numpy(group)] for group in groups)
