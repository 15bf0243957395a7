"""Steps that look for weights whose neighbours have a low loss as well."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from tailwise.networks.smoothing import LatentSmoother
from tailwise.options import Positive


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
