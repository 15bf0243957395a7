"""Latents: features to latent rows, each a Gaussian or a point."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Literal

from torch import Tensor, nn

from tailwise.networks.heads import positive
from tailwise.options import Size


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
