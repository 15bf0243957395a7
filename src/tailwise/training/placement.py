"""Where the loop's rows are: tensors on the device, loaders and streams divided among the processes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sized
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor
from torch.utils.data import DataLoader

from tailwise.networks.network import Network
from tailwise.networks.ranks import rank_and_ranks
from tailwise.training.batches import (
    Batch,
    CountedShards,
    Data,
    Sharded,
    TensorData,
    as_data,
    check_divided,
    sharded,
)

if TYPE_CHECKING:
    from lightning_fabric import Fabric

Placed = TensorData | Sharded | Iterable[Any]


def placed(data: Data, model: Network, fabric: Fabric, *, shared: bool = True) -> Placed:
    """Return data on the device; a loader that is not `shared` gives all its rows to every rank."""
    ready = as_data(data)
    if isinstance(ready, TensorData):
        if ready.lengths is None:
            lengths, padded = model.row_lengths(ready.x), model.padded_inputs
            ready = replace(ready, lengths=lengths, padded_inputs=padded)
        return ready.to(fabric.device)
    if isinstance(ready, DataLoader):
        if shared and rank_and_ranks()[1] > fabric.world_size:
            check_divided(ready)
        loader = fabric.setup_dataloaders(ready, use_distributed_sampler=shared)
        return cast("Iterable[Any]", loader)
    return ready


class TrainingRows:
    """The training rows, and which of them this process works on."""

    def __init__(self, data: Placed, batch_size: int, shards: int, device: torch.device) -> None:
        self.data, self.batch_size, self.shards, self.device = data, batch_size, shards, device
        self.rank, self.ranks = rank_and_ranks()
        self.own = range(self.rank, shards, self.ranks)

    def steps(self) -> int | None:
        """Return the steps of an epoch, if they are known before it ends."""
        if isinstance(self.data, TensorData):
            return -(-len(self.data) // self.batch_size)
        if isinstance(self.data, CountedShards):
            return -(-self.data.row_count // self.batch_size)
        try:
            return len(cast("Sized", self.data))
        except TypeError:  # a generator, or a loader over an iterable data set
            return None

    def epoch(self, seed: int) -> Iterator[list[tuple[int, Batch]]]:
        """Yield this rank's shards of each step, with their numbers; all ranks share the seed."""
        order: Tensor | None = None
        if isinstance(self.data, TensorData):
            order = torch.randperm(len(self.data), generator=torch.Generator().manual_seed(seed))
        return self._sharded(self.batch_size, order, seed)

    def _sharded(self, size: int, order: Tensor | None, seed: int) -> Iterator[list[tuple[int, Batch]]]:
        return sharded(self.data, size, self.device, order, seed, shards=self.shards, own=self.own)
