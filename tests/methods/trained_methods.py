"""A small table, skewed bins, and every method trained on them once."""

from __future__ import annotations

import functools

import numpy as np
import torch
from torch import Tensor

from tailwise.labels.bins import LabelBins
from tailwise.methods import available_methods, build_model
from tailwise.networks.backbones import MLP
from tailwise.networks.network import Network
from tailwise.training.loop import TrainConfig, fit

NAMES = available_methods()
CONFIG = TrainConfig(epochs=2, batch_size=80, accelerator="cpu", patience=None)


def table(rows: int = 240, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Inputs and skewed whole-number labels that depend on the first of them."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, 4))
    y = np.round(np.exp(1 + 0.5 * x[:, 0] + 0.2 * rng.normal(size=rows)))
    return torch.as_tensor(x, dtype=torch.float32), torch.as_tensor(y)


def train(name: str, seed: int = 0) -> Network:
    """Train a method on the table."""
    x, y = table()
    torch.manual_seed(seed)
    model = build_model(name, MLP(4, (16, 8)), 8, LabelBins.from_labels(y))
    fit(model, (x, y), (x[:60], y[:60]), CONFIG)
    return model


@functools.cache
def trained(name: str) -> tuple[Network, Tensor]:
    """A method trained on the table, once for all tests, and the table's inputs. Do not change it."""
    return train(name), table()[0]


def skewed_bins() -> LabelBins:
    """Bins of 12 whole-number labels, some common and some rare."""
    return LabelBins.from_labels(np.repeat(np.arange(12.0), [40, 90, 60, 30, 20, 9, 5, 4, 3, 2, 1, 1]))
