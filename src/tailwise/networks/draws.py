"""Random numbers from a generator that a fit owns, so that fits in several threads do not mix theirs.

torch has one generator for a whole process, and its layers and initialisers draw from that one. Networks of
this package draw here instead: from the generator of the fit that runs in this thread, if there is one. The
numbers are those that torch's generator on the CPU would give with the same seed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn import init
from torch.overrides import TorchFunctionMode

_GENERATOR: ContextVar[torch.Generator | None] = ContextVar("generator", default=None)
_INITIALISERS: frozenset[Callable[..., Any]] = frozenset(
    {
        *(torch.rand, torch.randn, torch.randint, Tensor.uniform_, Tensor.normal_),
        *(init.uniform_, init.normal_, init.kaiming_uniform_, init.kaiming_normal_),
    }
)


@contextmanager
def drawing_from(generator: torch.Generator) -> Iterator[None]:
    """Let the networks of this package draw from a generator, in this thread."""
    token = _GENERATOR.set(generator)
    try:
        yield
    finally:
        _GENERATOR.reset(token)


class InitialWeights(TorchFunctionMode):
    """While inside, layers that are made or drawn again in this thread take their weights from a generator.

    It slows every call of torch by a microsecond, so it is not for training steps.
    """

    def __init__(self, generator: torch.Generator) -> None:
        super().__init__()
        self.generator = generator

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Call a function of torch, with the generator if it draws."""
        options = dict(kwargs or {})
        if func in _INITIALISERS and options.get("generator") is None:
            options["generator"] = self.generator
        return func(*args, **options)


@contextmanager
def seeded_weights(seed: int, *, everything: bool = False) -> Iterator[None]:
    """Let a seed decide the weights of layers that are made in this thread.

    Torch's own generator stays as it is. With `everything`, for layers of other packages, it gets the seed
    and is restored afterwards: other threads must not draw from it meanwhile.
    """
    if not everything:
        with InitialWeights(torch.Generator().manual_seed(seed)):
            yield
        return
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
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
