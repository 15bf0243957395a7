"""Latents: features to latent rows, each a Gaussian or a point."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod

from torch import Tensor, nn

from tailwise.networks.heads import positive


class Latent(nn.Module, ABC):
    """Turns features into latent rows of size `dim`."""

    dim: int

    @abstractmethod
    def forward(self, features: Tensor) -> tuple[Tensor, Tensor | None]:
        """Return mean and variance of each latent row; None is no variance. (N, F) -> (N, dim) each"""


class PointLatent(Latent):
    """The features themselves, without variance."""

    def __init__(
        self,
        feature_dim: int,
        latent_dim: int | None = None,
        mean: str = "features",
        var_start: float = -math.inf,
    ) -> None:
        super().__init__()
        self.dim = feature_dim

    def forward(self, features: Tensor) -> tuple[Tensor, Tensor | None]:
        """features: (N, F) -> z_mean: (N, F), no variance"""
        return features, None


class GaussianLatent(Latent):
    """A mean and a variance per dimension, two linear maps of the features (VIR:I).

    The mean has a linear layer that starts at random (``"linear"``) or as the identity (``"identity"``), or
    none: with ``"features"`` the features are the mean. The bias of the variances starts at `var_start`.
    """

    def __init__(
        self,
        feature_dim: int,
        latent_dim: int | None = None,
        mean: str = "linear",
        var_start: float = -3.0,
    ) -> None:
        super().__init__()
        self.dim = latent_dim or feature_dim
        if mean != "linear" and self.dim != feature_dim:
            raise ValueError(
                f"features of size {feature_dim} cannot be the mean of a latent of size {latent_dim}: leave "
                'latent_dim out, or set latent_mean="linear"'
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
"""Latents by name. Each is called with feature_dim, latent_dim, mean and var_start (parts of `Method`)."""
