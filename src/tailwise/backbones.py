"""Networks that turn inputs into features. Any other `nn.Module` that does so works as well."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class MLP(nn.Module):
    """Plain network for tables and feature vectors: linear layers, ReLU and dropout.

    >>> MLP(8, hidden=(32, 16))(torch.zeros(5, 8)).shape
    torch.Size([5, 16])
    """

    def __init__(self, in_dim: int, hidden: Sequence[int] = (128, 64), dropout: float = 0.1) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for width in hidden:
            layers += [nn.Linear(in_dim, width), nn.ReLU(), nn.Dropout(dropout)]
            in_dim = width
        self.layers = nn.Sequential(*layers)
        self.feature_dim = in_dim

    def forward(self, x: Tensor) -> Tensor:
        """x: (N, in_dim) -> features (N, feature_dim)"""
        features: Tensor = self.layers(x)
        return features


class TableDecoder(nn.Module):
    """Reconstructs a row of a table from its latent, for VIR:recon.

    Columns 0..numeric-1 are standardised numbers (Gaussian likelihood), the others codes of
    categories (cross-entropy), `categories` giving how many values each can take.
    """

    def __init__(
        self, latent_dim: int, numeric: int, categories: Sequence[int] = (), hidden: int = 64
    ) -> None:
        super().__init__()
        self.numeric, self.categories = numeric, tuple(categories)
        self.body = nn.Sequential(nn.Linear(latent_dim, hidden), nn.ReLU())
        self.head = nn.Linear(hidden, numeric + sum(self.categories))

    def nll(self, z: Tensor, x: Tensor) -> Tensor:
        """Return -log p(x | z) less constants. z: (N, D), x: (N, columns) -> (N,)"""
        numbers, *logits = self.head(self.body(z)).split((self.numeric, *self.categories), dim=-1)
        total = 0.5 * ((x[:, : self.numeric] - numbers) ** 2).sum(-1)
        for column, scores in enumerate(logits, start=self.numeric):
            total = total + F.cross_entropy(scores, x[:, column].long(), reduction="none")
        return torch.as_tensor(total)
