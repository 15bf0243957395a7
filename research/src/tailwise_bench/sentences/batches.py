"""Batches of sentences of similar length, which need less padding."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

POOL = 16
"""Number of batches whose rows are sorted together: more need less padding, fewer mix rows better."""


@dataclass(frozen=True)
class BatchesByLength:
    """Rows of word numbers, padded along their last dimension, in batches cut to their longest row.

    x: (N, ..., L), y: (N,), lengths: (N,)
    """

    x: Tensor
    y: Tensor
    lengths: Tensor

    @property
    def row_count(self) -> int:
        """The number of rows."""
        return len(self.y)

    def fingerprint(self) -> str:
        """Return a text that differs for other labels or lengths."""
        return f"labels that sum to {float(self.y.sum())!r}, words to {int(self.lengths.sum())}"

    def shard(self, number: int, shards: int, size: int, seed: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield every `shards`-th batch of an epoch, from `number` on."""
        order = torch.randperm(len(self.y), generator=torch.Generator().manual_seed(seed))
        for rows in by_length(order, self.lengths[order], size, seed)[number::shards]:
            yield self.x[rows][..., : max(1, int(self.lengths[rows].max()))], self.y[rows]


def by_length(rows: Tensor, lengths: Tensor, size: int, seed: int) -> tuple[Tensor, ...]:
    """Group rows of similar length into batches of nearly equal size, in random order. rows, lengths: (n,)

    >>> by_length(torch.tensor([7, 8, 9]), torch.tensor([5, 1, 5]), size=2, seed=0)
    (tensor([9, 7]), tensor([8]))
    """
    count = -(-len(rows) // size)
    rng = np.random.default_rng(seed)
    order, longest = rng.permutation(len(rows)), lengths.numpy()
    ends = np.arange(count + 1) * len(rows) // count
    for start in range(0, count, POOL):
        drawn = slice(ends[start], ends[min(start + POOL, count)])
        order[drawn] = order[drawn][np.argsort(longest[order[drawn]], kind="stable")]
    return tuple(rows[torch.from_numpy(order[ends[i] : ends[i + 1]])] for i in rng.permutation(count))
