"""Random numbers from a generator that a fit owns, so that fits in several threads do not mix theirs.

torch has one generator for a whole process. In training, networks of this package draw here instead: from
the generator of the fit that runs in this thread, if there is one. The numbers are those that torch's
generator on the CPU would give with the same seed.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

_GENERATOR: ContextVar[torch.Generator | None] = ContextVar("generator", default=None)
_TURN = threading.RLock()


@contextmanager
def drawing_from(generator: torch.Generator) -> Iterator[None]:
    """Let the networks of this package draw from a generator, in this thread."""
    token = _GENERATOR.set(generator)
    try:
        yield
    finally:
        _GENERATOR.reset(token)


@contextmanager
def seeded_weights(seed: int) -> Iterator[None]:
    """Let a seed decide the weights of layers that are made or drawn again; torch's generator is restored.

    Layers take their weights from that generator, so threads make networks one after the other.
    """
    with _TURN, torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)  # those of GPUs stay as they are
        yield


def normal_like(x: Tensor) -> Tensor:
    """Return standard normal numbers in the shape of a tensor."""
    return torch.randn(x.shape, generator=_GENERATOR.get(), dtype=x.dtype, device=x.device)


def dropout(x: Tensor, rate: float, training: bool) -> Tensor:
    """Set a share of the numbers to 0 in training and scale up the others."""
    generator = _GENERATOR.get()
    if generator is None or not training or rate == 0:
        return F.dropout(x, rate, training)
    return x * torch.empty_like(x).bernoulli_(1 - rate, generator=generator).div_(1 - rate)


class Dropout(nn.Dropout):
    """`nn.Dropout` with the numbers of the fit."""

    def forward(self, x: Tensor) -> Tensor:
        """x: any shape -> the same shape"""
        return dropout(x, self.p, self.training)
