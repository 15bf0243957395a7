"""Perturbations: copies of latent rows that differ a little, whose predictions are averaged.

The draws are made once and are the same for every row, so that neither the size nor the order of a
batch changes a prediction.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Tensor


class Perturbation(ABC):
    """Perturbs latent rows by a draw (D,); `scale` is `Method.perturbation_scale`."""

    def __init__(self, scale: float) -> None:
        self.scale = scale

    def draw(self, samples: int, dim: int, generator: torch.Generator) -> Tensor:
        """Return one draw per sample, standard normal unless overridden. (samples, dim)"""
        return torch.randn(samples, dim, generator=generator)

    def acts_on(self, z_var: Tensor | None) -> bool:
        """Whether latent rows with this variance can be perturbed."""
        return True

    @abstractmethod
    def __call__(self, z_mean: Tensor, z_var: Tensor | None, drawn: Tensor) -> Tensor:
        """Return perturbed rows. z_mean, z_var: (N, D), drawn: (D,) -> (N, D)"""


class LatentVariance(Perturbation):
    """Noise of the latent's own variance: a sample of z."""

    def acts_on(self, z_var: Tensor | None) -> bool:
        """Only a latent with a variance can be sampled."""
        return z_var is not None

    def __call__(self, z_mean: Tensor, z_var: Tensor | None, drawn: Tensor) -> Tensor:
        """z_mean + sqrt(z_var) drawn"""
        assert z_var is not None
        return z_mean + z_var.sqrt() * drawn


class RelativeNoise(Perturbation):
    """Noise relative to the size (root mean square) of the latent row (Infer-Noise)."""

    def __call__(self, z_mean: Tensor, z_var: Tensor | None, drawn: Tensor) -> Tensor:
        """z_mean + scale rms(z_mean) drawn"""
        size = z_mean.pow(2).mean(-1, keepdim=True).sqrt()
        return z_mean + self.scale * size * drawn


class Dropout(Perturbation):
    """Dropout of latent dimensions at the rate `scale` (Infer-Dropout)."""

    def __init__(self, scale: float) -> None:
        super().__init__(scale)
        if scale >= 1:
            raise ValueError(f"perturbation_scale is the rate of dropout: it must be below 1, got {scale!r}")

    def draw(self, samples: int, dim: int, generator: torch.Generator) -> Tensor:
        """Return masks that are 0 or 1 / (1 - scale). (samples, dim)"""
        kept = 1 - self.scale
        return torch.bernoulli(torch.full((samples, dim), kept), generator=generator) / kept

    def __call__(self, z_mean: Tensor, z_var: Tensor | None, drawn: Tensor) -> Tensor:
        """z_mean drawn"""
        return z_mean * drawn


PERTURBATIONS: dict[str, type[Perturbation]] = {
    "latent": LatentVariance,
    "noise": RelativeNoise,
    "dropout": Dropout,
}
"""Perturbations by name."""
