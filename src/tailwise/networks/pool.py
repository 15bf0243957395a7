"""Networks around a base and networks without it, pooled into one prediction of each row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from tailwise.distributions.members import Distribution, pooled
from tailwise.labels.bins import LabelBins
from tailwise.networks.network import Network
from tailwise.networks.parts import Method


class Pool(nn.Module):
    """Two networks that were trained on the same rows, of which only the first sees a base.

    It predicts as a `Network` does: inputs end with the base predictions, one column for each target, which
    `alone` does not get. `shares` has the weight of `alone` for each target.
    """

    shares: Tensor

    def __init__(self, around: Network, alone: Network, shares: Sequence[float]) -> None:
        super().__init__()
        self.around, self.alone = around, alone
        self.register_buffer("shares", torch.tensor(shares, dtype=torch.float64))  # (T,)

    @property
    def bins(self) -> LabelBins:
        """The label bins, of several targets those of the first."""
        return self.around.bins

    @property
    def method(self) -> Method:
        """The parts of both networks."""
        return self.around.method

    @property
    def backbone(self) -> nn.Module:
        """The backbone of the network around the base."""
        return self.around.backbone

    @property
    def device(self) -> torch.device:
        """The device of the weights."""
        return self.around.device

    def forward(self, x: Any, inference: str | None = None, offset: Tensor | None = None) -> Distribution:
        """Return the predictive distribution of each row's label. x: (N, F + T), offset: (N,) or (N, T)"""
        features = x[:, : x.shape[1] - len(self.shares)]
        predictions = self.around(x, inference, offset), self.alone(features, inference)
        return pooled(predictions, torch.stack([1 - self.shares, self.shares]).unsqueeze(1).squeeze(-1))


Predictor = Network | Pool
"""What a model predicts with."""
