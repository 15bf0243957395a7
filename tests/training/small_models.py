"""A small table and small models, for tests of training."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from tailwise.labels.bins import LabelBins
from tailwise.networks.backbones import MLP
from tailwise.networks.network import Network
from tailwise.networks.parts import Method
from tailwise.networks.vir import VIR
from tailwise.training.loop import FitResult, TrainConfig

ROWS, INPUTS = 90, 5


def table(rows: int = ROWS, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Inputs and skewed whole-number labels from 0 to 9 that depend on them."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(rows, INPUTS, generator=generator)
    y = (2 * (x[:, 0] + 0.3 * x[:, 1]).exp()).round().clamp(0, 9)
    return x, y


X, Y = table()
X_VALID, Y_VALID = table(60, seed=1)
VALID = (X_VALID, Y_VALID)
BINS = LabelBins.from_labels(Y, edges=np.arange(11) - 0.5)


def other_bins(low: float, count: int = 10, rows: int = ROWS) -> LabelBins:
    """Unit bins from a lowest edge on."""
    return LabelBins.from_labels(Y[:rows], edges=low + np.arange(count + 1))


def vir(*, dropout: float = 0.2, bins: LabelBins = BINS, hidden: int = 8, **options: Any) -> VIR:
    """A small VIR whose first weights are always the same."""
    with torch.random.fork_rng():
        torch.manual_seed(7)
        return VIR(MLP(INPUTS, (16, hidden), dropout), hidden, bins, **options)


def point(
    backbone: Callable[[], nn.Module] = lambda: MLP(INPUTS, (16, 8), 0.0), offset: bool = False
) -> Network:
    """The same network with a point head and nothing random in it."""
    with torch.random.fork_rng():
        torch.manual_seed(7)
        return Network(backbone(), 8, BINS, Method(), offset=offset)


def normalised() -> nn.Module:
    """A backbone that keeps running statistics."""
    return nn.Sequential(nn.Linear(INPUTS, 8), nn.BatchNorm1d(8), nn.ReLU())


def settings(**changes: Any) -> TrainConfig:
    """Three epochs of three steps on the CPU, unless changed."""
    return TrainConfig(**{"epochs": 3, "batch_size": 32, "lr": 0.01, "accelerator": "cpu", **changes})


def weights(model: nn.Module) -> dict[str, Tensor]:
    """A copy of all parameters and buffers."""
    return {name: value.clone() for name, value in model.state_dict().items()}


def assert_same(a: dict[str, Tensor], b: dict[str, Tensor]) -> None:
    """Equal to the last bit."""
    assert a.keys() == b.keys()
    for name in a:
        assert torch.equal(a[name], b[name]), name


def differ(a: dict[str, Tensor], b: dict[str, Tensor]) -> bool:
    return any(not torch.equal(a[name], b[name]) for name in a)


def figures(result: FitResult) -> dict[str, Any]:
    """All of a result but the clock."""
    history = [{k: v for k, v in row.items() if k != "seconds"} for row in result.history]
    return {**vars(result), "history": history}


def on_forward(model: Network, action: Callable[[nn.Module], None]) -> Any:
    """Call an action before each pass through the backbone; returns the handle that removes it."""
    return model.backbone.register_forward_pre_hook(lambda module, _: action(module))
