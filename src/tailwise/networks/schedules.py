"""How training goes: its stages, and steps that look for weights whose neighbours have a low loss as well."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import ClassVar

import torch
from torch import Tensor, nn

from tailwise.networks.smoothing import LatentSmoother
from tailwise.options import Positive, Share


class Retrain:
    """Training in two stages: in the second, the backbone is frozen and a new head is trained.

    The second stage begins after the share `start` of the epochs. Label weights multiply losses in it only
    (Kang et al., ICLR 2020).
    """

    latents_first: ClassVar[bool] = False
    """Whether the first stage has the losses of latents only, and the second the others."""

    def __init__(self, *, start: Share = 0.5) -> None:
        self.start = start

    def begins(self, progress: float) -> bool:
        """Whether the second stage begins after this share of the epochs."""
        return progress >= self.start


class Pretrain(Retrain):
    """Training in two stages: first the backbone, by the losses that read latents only, then a head on it.

    The second stage begins after the share `start` of the epochs. The backbone is then frozen.
    """

    latents_first = True


SCHEDULES: dict[str, type[Retrain]] = {"retrain": Retrain, "pretrain": Pretrain}
"""Schedules by name; each is made with its options."""


class SharpnessAware:
    """Weights move by rho g / |g| before the gradient of a step is taken (BSAM:step).

    g is the gradient of the same loss, label weights included. With weights that balance labels, the loss is
    then flat for rare labels as well. Each step costs two.
    """

    def __init__(self, *, rho: Positive = 0.2) -> None:
        self.rho = rho

    @contextmanager
    def perturbed(self, model: nn.Module) -> Iterator[None]:
        """Move the weights along their gradients while inside; what the network records of its rows
        ends as it began.

        In a training loop of one's own: compute gradients, compute them again inside, then let the optimiser
        step.
        """
        moved = [p for p in model.parameters() if p.grad is not None]
        weights = [p.detach().clone() for p in moved]
        recorded = [tensor.clone() for tensor in _recorded(model)]
        with torch.no_grad():
            gradients = [p.grad for p in moved if p.grad is not None]
            norm = torch.linalg.vector_norm(torch.stack([g.norm() for g in gradients]))
            scale = self.rho / norm.clamp_min(torch.finfo(norm.dtype).tiny)
            for p, g in zip(moved, gradients, strict=True):
                p.add_(g * scale)
        try:
            yield
        finally:
            with torch.no_grad():
                for now, before in zip([*moved, *_recorded(model)], [*weights, *recorded], strict=True):
                    now.copy_(before)


def _recorded(model: nn.Module) -> list[Tensor]:
    """Return what a forward pass changes: buffers, and the sums of latent statistics, which are none."""
    smoothers = [module for module in model.modules() if isinstance(module, LatentSmoother)]
    return [*model.buffers(), *(tensor for smoother in smoothers for tensor in vars(smoother.sums).values())]


SHARPNESS: dict[str, type[SharpnessAware]] = {"sam": SharpnessAware}
"""Perturbations of weights by name; each is made with its options."""
