"""A network for tables after RealMLP: scaled and clipped inputs, waves of each number, three wide layers.

Written from the paper: Holzmueller, Grinsztajn and Steinwart, Better by Default: Strong Pre-Tuned MLPs and
Boosted Trees on Tabular Data (NeurIPS 2024). `research/results/networks.md` says which of its parts are here.
"""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn
from torch.nn import functional as F

from tailwise.networks.backbones.backbone import Backbone
from tailwise.networks.draws import dropout


class SmoothClip(nn.Module):
    """Numbers on a robust scale, bent softly so that none exceeds 3: z / sqrt(1 + (z / 3)^2).

    z = (x - median) / (q75 - q25) of training rows. A column whose quartiles are equal is divided by half of
    its range instead, and a constant column becomes 0.

    >>> clip = SmoothClip(1, [[0.0], [1.0], [2.0], [3.0], [4.0]])
    >>> clip(torch.tensor([[2.0], [4.0], [1e9]])).flatten()
    tensor([0.0000, 0.9487, 3.0000])
    """

    center: Tensor
    factor: Tensor

    def __init__(self, in_dim: int, rows: ArrayLike | Tensor | None = None) -> None:
        super().__init__()
        center, factor = np.zeros(in_dim), np.ones(in_dim)
        if rows is not None:
            low, q25, center, q75, high = np.quantile(np.asarray(rows), [0, 0.25, 0.5, 0.75, 1], axis=0)
            spread = np.where(q75 > q25, q75 - q25, (high - low) / 2)
            factor = np.divide(1.0, spread, out=np.zeros(in_dim), where=spread > 1e-6)
        self.register_buffer("center", torch.tensor(center, dtype=torch.float32))
        self.register_buffer("factor", torch.tensor(factor, dtype=torch.float32))

    def forward(self, x: Tensor) -> Tensor:
        """x: (N, F) -> (N, F)"""
        z = (x - self.center) * self.factor
        return z / (1 + (z / 3) ** 2).sqrt()


class DensePeriodic(nn.Module):
    """Each number x_j beside a few learnt mixtures of its waves: W_j cos(2 pi c_j x_j + b_j) + d_j.

    Each column has its own frequencies c_j, phases b_j and mixtures W_j, d_j.

    >>> DensePeriodic(3, frequencies=16, dim=3, frequency_std=0.1)(torch.zeros(5, 3)).shape
    torch.Size([5, 12])
    """

    def __init__(self, in_dim: int, frequencies: int, dim: int, frequency_std: float) -> None:
        super().__init__()
        self.frequency_std = frequency_std
        self.frequency = nn.Parameter(torch.empty(in_dim, 1, frequencies))
        self.phase = nn.Parameter(torch.empty(in_dim, 1, frequencies))
        self.mixture = nn.Parameter(torch.empty(in_dim, frequencies, dim))
        self.bias = nn.Parameter(torch.empty(in_dim, 1, dim))
        self.out_dim = in_dim * (1 + dim)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the waves and their mixtures again."""
        bound = self.mixture.shape[1] ** -0.5
        nn.init.normal_(self.frequency, 0.0, self.frequency_std)
        nn.init.uniform_(self.phase, -math.pi, math.pi)
        nn.init.uniform_(self.mixture, -bound, bound)
        nn.init.uniform_(self.bias, -bound, bound)

    def forward(self, x: Tensor) -> Tensor:
        """x: (N, F) -> (N, F * (1 + dim))"""
        column = x.T.unsqueeze(-1)  # (F, N, 1)
        waves = torch.cos(2 * math.pi * column * self.frequency + self.phase)
        return torch.cat([column, waves @ self.mixture + self.bias], -1).transpose(0, 1).flatten(1)


class WideLayer(nn.Module):
    """A linear layer, dropout, and x + a (mish(x) - x) with a learnt `a` for each neuron."""

    def __init__(self, in_dim: int, width: int, dropout: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(width, in_dim))
        self.bias = nn.Parameter(torch.empty(width))
        self.bend = nn.Parameter(torch.empty(width))
        self.dropout = dropout
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw weights and biases again, all layers with outputs of about unit variance."""
        nn.init.normal_(self.weight, 0.0, self.weight.shape[1] ** -0.5)
        nn.init.normal_(self.bias)
        nn.init.ones_(self.bend)

    def forward(self, x: Tensor) -> Tensor:
        """x: (N, in_dim) -> (N, width)"""
        x = F.linear(x, self.weight, self.bias)
        return dropout(x + self.bend * (F.mish(x) - x), self.dropout, self.training)


class RealMLP(Backbone):
    """RealMLP: robust scaling with a smooth clip, learnt scales, waves of each number and wide layers.

    Without `rows` it expects the buffers of another one.

    >>> RealMLP(4, width=32)(torch.zeros(5, 4)).shape
    torch.Size([5, 32])
    """

    def __init__(
        self,
        in_dim: int,
        *,
        rows: ArrayLike | Tensor | None = None,
        width: int = 256,
        blocks: int = 3,
        frequencies: int = 16,
        dim: int = 3,
        frequency_std: float = 0.1,
        dropout: float = 0.15,
    ) -> None:
        super().__init__()
        self.clip = SmoothClip(in_dim, rows)
        self.scale = nn.Parameter(torch.zeros(in_dim))
        self.embedding = DensePeriodic(in_dim, frequencies, dim, frequency_std)
        widths = [self.embedding.out_dim, *[width] * blocks]
        self.layers = nn.Sequential(*(WideLayer(*ends, dropout) for ends in pairwise(widths)))
        self.feature_dim = width

    def forward(self, x: Tensor) -> Tensor:
        """x: (..., in_dim) -> features (..., feature_dim)"""
        # Ten times as fast as other weights learn, and drawn towards 1 by weight decay.
        numbers = self.clip(x.reshape(-1, x.shape[-1])) * (1 + 10 * self.scale)
        features: Tensor = self.layers(self.embedding(numbers))
        return features.reshape(*x.shape[:-1], self.feature_dim)
