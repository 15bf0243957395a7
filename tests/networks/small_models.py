"""A small table and VIR over one linear layer, for tests of networks."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from tailwise.distributions.members import Distribution
from tailwise.labels.bins import LabelBins
from tailwise.networks.losses import LatentBatch
from tailwise.networks.network import Network
from tailwise.networks.parts import Part, checked, made
from tailwise.networks.tail import Tail
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
    options = {"head": {"prior": PRIOR, "sharpness": 0.5}, "latent.dim": 4, **options}
    return VIR(nn.Linear(3, 5), 5, LabelBins.from_labels(y), **options).double()


def tail(model: Network) -> Tail:
    """The only tail of a network, or its first."""
    found = model.tails[0]
    assert isinstance(found, Tail)
    return found


FEW = LabelBins.from_labels([0.0, 1.0, 2.0])


def make_part(kind: str, name: str, *context: Any, **options: Any) -> Any:
    """A part by its name, with its options checked."""
    return made(kind, checked(kind, Part(name, **options)), *context)


def loss_of(name: str, bins: LabelBins = FEW, **options: Any) -> Any:
    """A loss by its name, of latents of one dimension."""
    return make_part("losses", name, 1, bins, **options)


def batch(prediction: Distribution, y: Tensor, **values: Any) -> LatentBatch:
    """Predictions of standardised labels, on latents that are all 0 unless given."""
    z = torch.zeros(len(y), 1)
    known = {
        "x": None,
        "features": z,
        "z_mean": z,
        "z_var": None,
        "z": z,
        "index": torch.zeros(len(y)).long(),
    }
    return LatentBatch(**{**known, **values}, prediction=prediction, y=y)


def one_epoch(model: Network, x: Tensor, y: Tensor) -> Network:
    """Let the statistics of all rows take effect."""
    model.train()
    model.loss(x, y)
    model.end_epoch()
    return model


def train(
    model: Network, x: Tensor, y: Tensor, epochs: int, batch: int = 32, lr: float = 1e-2
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
