"""What several processes share while they train one model: bins, sums, weights and predictions.

A rank is one of the processes of `torch.distributed`, whoever started them: torchrun, Lightning Fabric, Ray
or a script. Without a process group there is one rank, and each function returns what it is given.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import ArrayLike
from torch import Tensor, nn

from tailwise.distributions.members import Distribution, concatenate
from tailwise.labels.bins import LabelBins, checked_labels

T = TypeVar("T")


def rank_and_ranks() -> tuple[int, int]:
    """Return the number of this process, from 0, and how many there are."""
    if dist.is_available() and dist.is_initialized():
        return dist.get_rank(), dist.get_world_size()
    if dist.is_available() and dist.is_torchelastic_launched():
        raise RuntimeError("torchrun started this process: first call torch.distributed.init_process_group()")
    return 0, 1


def sum_over_ranks(value: Tensor) -> Tensor:
    """Return the sum of a tensor over all ranks; the tensor itself does not change."""
    if rank_and_ranks()[1] == 1:
        return value
    total = value.clone()
    dist.all_reduce(total)
    return total


def gathered(value: T) -> list[T]:
    """Return the values of all ranks, in the order of the ranks."""
    ranks = rank_and_ranks()[1]
    if ranks == 1:
        return [value]
    values: list[Any] = [None] * ranks
    dist.all_gather_object(values, value)
    return cast("list[T]", values)


def on_first(function: Callable[[], T]) -> T:
    """Return what a function returns on rank 0; a `ValueError` that it raises there is raised on all."""
    rank, ranks = rank_and_ranks()
    if ranks == 1:
        return function()
    outcome: list[Any] = [None]
    if rank == 0:
        try:
            outcome = [function()]
        except ValueError as error:
            outcome = [error]
    dist.broadcast_object_list(outcome)
    if isinstance(outcome[0], ValueError):
        raise outcome[0]
    return cast("T", outcome[0])


@torch.no_grad()
def share_weights(model: nn.Module) -> None:
    """Give all ranks the weights and buffers of rank 0."""
    if rank_and_ranks()[1] > 1:
        for tensor in (*model.parameters(), *model.buffers()):
            dist.broadcast(tensor, 0)


def shared_bins(y: ArrayLike | Tensor, **options: Any) -> LabelBins:
    """Return the label bins of all ranks together. Each rank passes its own labels. y: (N,)

    `options` are those of `LabelBins.from_labels`.
    """
    return LabelBins.from_labels(np.concatenate(gathered(checked_labels(y))), **options)


def all_predictions(prediction: Distribution, y: Tensor) -> tuple[Distribution, Tensor]:
    """Return the predictions and labels of all ranks, for metrics of all rows. y: (N,)"""
    parts = gathered((prediction.map(lambda p: p.detach().cpu()), y.detach().cpu()))
    return concatenate([part for part, _ in parts]), torch.cat([labels for _, labels in parts])
