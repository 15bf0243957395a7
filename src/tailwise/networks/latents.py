"""Latents: features to latent rows, each a Gaussian or a point, and perturbations of them at prediction."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Annotated, Literal

import torch
from torch import Tensor, nn

from tailwise.networks.heads import positive
from tailwise.options import Between, NotNegative, Share, Size

Samples = Annotated[int, Between(1, 10_000)]


class Latent(nn.Module, ABC):
    """Turns features into latent rows of size `dim`."""

    dim: int

    @abstractmethod
    def forward(self, features: Tensor) -> tuple[Tensor, Tensor | None]:
        """Return mean and variance of each latent row; None is no variance. (N, F) -> (N, dim) each"""


class PointLatent(Latent):
    """The features themselves, without variance."""

    def __init__(self, feature_dim: int) -> None:
        super().__init__()
        self.dim = feature_dim

    def forward(self, features: Tensor) -> tuple[Tensor, Tensor | None]:
        """features: (N, F) -> z_mean: (N, F), no variance"""
        return features, None


class GaussianLatent(Latent):
    """A mean and a variance per dimension, two linear maps of the features (VIR:I).

    `dim` is its size, by default that of the features. The mean has a linear layer that starts at random
    (``"linear"``) or as the identity (``"identity"``), or none: with ``"features"`` the features are the
    mean. The bias of the variances starts at `var_start`: softplus(-3) is 0.05, so that the head first learns
    from the means.
    """

    def __init__(
        self,
        feature_dim: int,
        *,
        dim: Size | None = None,
        mean: Literal["linear", "identity", "features"] = "linear",
        var_start: float = -3.0,
    ) -> None:
        super().__init__()
        self.dim = dim or feature_dim
        if mean != "linear" and self.dim != feature_dim:
            raise ValueError(
                f"features of size {feature_dim} cannot be the mean of a latent of size {dim}: leave "
                'latent.dim out, or set latent.mean to "linear"'
            )
        self.mean = nn.Identity() if mean == "features" else nn.Linear(feature_dim, self.dim)
        self.var = nn.Linear(feature_dim, self.dim)
        if isinstance(self.mean, nn.Linear) and mean == "identity":
            nn.init.eye_(self.mean.weight)
            nn.init.zeros_(self.mean.bias)
        nn.init.constant_(self.var.bias, var_start)

    def forward(self, features: Tensor) -> tuple[Tensor, Tensor | None]:
        """features: (N, F) -> z_mean, z_var: (N, D)"""
        return self.mean(features), positive(self.var(features))


LATENTS: dict[str, type[Latent]] = {"point": PointLatent, "gaussian": GaussianLatent}
"""Latents by name; each is called with the size of the features and its options."""


# -- perturbations -----------------------------------------------------------------------------


class Perturbation(ABC):
    """Perturbs latent rows by each of `samples` draws (D,); predictions of all of them are mixed.

    The draws are made once and are the same for every row, so that neither the size nor the order of a
    batch changes a prediction.
    """

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
