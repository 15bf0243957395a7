"""Tables, labels and networks of the golden cases."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import torch
from scipy import sparse
from torch import Tensor, nn

from tests.estimator.small_tables import Array, frame, table


def numbers(rows: int = 150, seed: int = 0) -> tuple[Array, Array]:
    """Three columns of numbers, and labels of a long tail."""
    return table(rows, seed)


def columns(rows: int = 150) -> tuple[pd.DataFrame, pd.Series]:
    """Columns of every kind, with missing values, names and an index."""
    return frame(rows)


def simple_columns(rows: int = 150) -> tuple[pd.DataFrame, pd.Series]:
    """Numbers, whole numbers and a category."""
    table, labels = columns(rows)
    return table[["size", "count", "kind"]], labels


def counts(rows: int = 150) -> tuple[Array, Array]:
    """Labels that are whole numbers, a third of them 0."""
    x, y = numbers(rows, seed=2)
    return x, np.maximum(np.floor(2 * y), 0)


def zeros() -> tuple[Array, Array]:
    """Labels that are 0 where they would be small."""
    x, y = numbers()
    return x, np.where(y < 0.8, 0.0, y)


def sparse_numbers() -> tuple[Any, Array]:
    x, y = numbers()
    return sparse.csr_matrix(np.where(np.abs(x) < 0.5, 0, x)), y


class Plain(nn.Module):
    """A network of one layer, always with the same weights at first."""

    def __init__(self, inputs: int = 3, width: int = 12) -> None:
        super().__init__()
        self.linear, self.feature_dim = nn.Linear(inputs, width), width
        generator = torch.Generator().manual_seed(0)
        for parameter in self.parameters():
            parameter.data = 0.3 * torch.randn(parameter.shape, generator=generator)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.linear(x))


class Pair(Plain):
    """The difference of two inputs."""

    def forward(self, one: Tensor, two: Tensor) -> Tensor:
        return torch.relu(self.linear(one) - self.linear(two))


def part(X: Any, rows: slice) -> Any:
    """Return some rows of a table or of other inputs."""
    if isinstance(X, dict):
        return {name: values[rows] for name, values in X.items()}
    return X[rows]
