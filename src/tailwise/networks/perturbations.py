"""Perturbations of latent rows; the predictions of several are mixed.

The draws are made once and are the same for every row, so that neither the size nor the order of a
batch changes a prediction.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Annotated

import torch
from torch import Tensor

from tailwise.options import Between, NotNegative, Share

Samples = Annotated[int, Between(1, 10_000)]


class Perturbation(ABC):
    """Perturbs latent rows by each of `samples` draws (D,)."""

    def __init__(self, samples: int) -> None:
        self.samples = samples

    def draw(self, dim: int, generator: torch.Generator) -> Tensor:
        """Return one draw per sample, standard normal unless overridden. (samples, dim)"""
        return torch.randn(self.samples, dim, generator=generator)

    @abstractmethod
    def __call__(self, z_mean: Tensor, z_var: Tensor | None, drawn: Tensor) -> Tensor:
        """Return perturbed rows. z_mean, z_var: (N, D), drawn: (D,) -> (N, D)"""


class LatentVariance(Perturbation):
    """Noise of the latent's own variance: a sample of z. A latent without a variance stays as it is."""

    def __init__(self, *, samples: Samples = 16) -> None:
        super().__init__(samples)

    def __call__(self, z_mean: Tensor, z_var: Tensor | None, drawn: Tensor) -> Tensor:
        """z_mean + sqrt(z_var) drawn"""
        return z_mean if z_var is None else z_mean + z_var.sqrt() * drawn


class RelativeNoise(Perturbation):
    """Noise of `scale` times the size (root mean square) of the latent row (Infer-Noise)."""

    def __init__(self, *, samples: Samples = 16, scale: NotNegative = 0.1) -> None:
        super().__init__(samples)
        self.scale = scale

    def __call__(self, z_mean: Tensor, z_var: Tensor | None, drawn: Tensor) -> Tensor:
        """z_mean + scale rms(z_mean) drawn"""
        size = z_mean.pow(2).mean(-1, keepdim=True).sqrt()
        return z_mean + self.scale * size * drawn


class Dropout(Perturbation):
    """Dropout of latent dimensions at the rate `scale` (Infer-Dropout)."""

    def __init__(self, *, samples: Samples = 16, scale: Share = 0.1) -> None:
        super().__init__(samples)
        self.scale = scale

    def draw(self, dim: int, generator: torch.Generator) -> Tensor:
        """Return masks that are 0 or 1 / (1 - scale). (samples, dim)"""
        kept = 1 - self.scale
        return torch.bernoulli(torch.full((self.samples, dim), kept), generator=generator) / kept

    def __call__(self, z_mean: Tensor, z_var: Tensor | None, drawn: Tensor) -> Tensor:
        """z_mean drawn"""
        return z_mean * drawn


PERTURBATIONS: dict[str, type[Perturbation]] = {
    "latent": LatentVariance,
    "noise": RelativeNoise,
    "dropout": Dropout,
}
"""Perturbations by name."""
