"""Training data as batches: tensors gathered by index on their device, or any loader.

Data that is already tensors moves to the device once; no Python runs per row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
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

    x is a tensor (N, ...) or a tuple or mapping of such tensors, y is (N, ...).
    """

    x: Any
    y: Tensor
    sample_weight: Tensor | None = None

    def __post_init__(self) -> None:
        rows = sorted({len(tensor) for tensor in tensors_of(self.x)})
        if rows != [len(self.y)] or len(self.y) == 0:
            counts = " and ".join(map(str, rows)) or "no"
            raise ValueError(f"{counts} rows of inputs for {len(self.y)} labels")
        if self.sample_weight is not None and self.sample_weight.shape != self.y.shape:
            raise ValueError("sample_weight must have the shape of the labels")

    def __len__(self) -> int:
        return len(self.y)

    def to(self, device: torch.device) -> TensorData:
        """Move to a device."""
        weight = None if self.sample_weight is None else self.sample_weight.to(device)
        return TensorData(apply_to(self.x, lambda t: t.to(device)), self.y.to(device), weight)

    def rows(self, index: Tensor) -> Batch:
        """Gather a batch by row numbers. index: (n,)"""
        weight = None if self.sample_weight is None else self.sample_weight[index]
        return Batch(apply_to(self.x, lambda t: t[index]), self.y[index], weight, index)


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
    data: TensorData | Iterable[Any], size: int, device: torch.device, order: Tensor | None = None
) -> Iterator[Batch]:
    """Batches on the device; of tensors, at most `size` rows each, in the given order of rows."""
    if not isinstance(data, TensorData):
        for x, y, *weight in data:
            x = apply_to(x, lambda t: t.to(device))
            yield Batch(x, y.to(device), weight[0].to(device) if weight else None)
        return
    rows = torch.arange(len(data), device=device) if order is None else order.to(device)
    # Batches of almost one size: a last one of a single row would break batch normalisation.
    for index in rows.tensor_split(-(-len(rows) // size)):
        yield data.rows(index)
