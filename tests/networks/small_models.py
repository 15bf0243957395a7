"""A small table and VIR over one linear layer, for tests of networks."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from tailwise.core.labels import LabelBins
from tailwise.networks.model import TailModel
from tailwise.networks.vir import VIR

Array = NDArray[np.float64]


MODES = ("plain", "self", "marginal")


PRIOR = (0.3, 0.7, 2.5, 0.4)


def data(n: int = 60, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Inputs (n, 3) and skewed labels on the integers 0..11, in float64."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 3))
    y = np.clip(np.round(np.exp(0.8 * x[:, 0] + 0.3 * rng.normal(size=n)) * 2), 0, 11)
    y[:2] = 0, 11
    return torch.as_tensor(x), torch.as_tensor(y)


def build(y: Tensor, *, seed: int = 0, **options: Any) -> VIR:
    """A VIR over one linear layer, in double precision."""
    torch.manual_seed(seed)
    options = {"head_options": {"prior": PRIOR, "sharpness": 0.5}, "latent_dim": 4, **options}
    return VIR(nn.Linear(3, 5), 5, LabelBins.from_labels(y), **options).double()


def one_epoch(model: TailModel, x: Tensor, y: Tensor) -> TailModel:
    """Let the statistics of all rows take effect."""
    model.train()
    model.loss(x, y)
    model.end_epoch()
    return model


def train(
    model: TailModel, x: Tensor, y: Tensor, epochs: int, batch: int = 32, lr: float = 1e-2
) -> list[float]:
    """A plain torch loop that knows nothing about the model but its loss."""
    model.train()
    optimizer = torch.optim.Adam(model.parameters(), lr)
    losses = []
    for _ in range(epochs):
        total = 0.0
        for start in range(0, len(y), batch):
            loss, _ = model.loss(x[start : start + batch], y[start : start + batch])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        losses.append(total)
    return losses


def npy(value: Tensor) -> Array:
    return value.detach().double().numpy()
