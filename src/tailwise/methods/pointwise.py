"""Methods that differ only in the loss or weight of a row: Focal-R, beta-NLL and DenseLoss."""

from __future__ import annotations

import torch
from torch import Tensor

from tailwise.labels.bins import LabelBins
from tailwise.methods.registry import register
from tailwise.networks.losses import LOSSES, LatentBatch, Loss
from tailwise.networks.parts import Method, Part

_FLOOR = 1e-12


class FocalR(Loss):
    """(2 sigmoid(|b e|) - 1)^g |e| for errors e: rows with large errors count more, exact ones nothing.

    This is the authors' code. The paper's sigmoid(|b e|)^g lies between 1/2^g and 1 and hardly focuses.
    """

    def __init__(self, dim: int, bins: LabelBins, *, b: float = 0.2, g: float = 1.0) -> None:
        super().__init__(dim, bins)
        self.b, self.g = b, g

    def forward(self, batch: LatentBatch) -> Tensor:
        """-> (N,)"""
        error = (batch.y - batch.prediction.mean).abs()
        # tanh(b e / 2) is 2 sigmoid(b e) - 1; the floor is for the slope of 0^g, which is infinite if g < 1.
        return torch.tanh(self.b * error / 2).clamp_min(_FLOOR) ** self.g * error


class BetaNLL(Loss):
    """Gaussian NLL times variance^b without its gradient, so that a large variance does not mute a row."""

    def __init__(self, dim: int, bins: LabelBins, *, b: float = 0.5) -> None:
        super().__init__(dim, bins)
        self.b = b

    def forward(self, batch: LatentBatch) -> Tensor:
        """-> (N,)"""
        return batch.prediction.variance.detach() ** self.b * batch.prediction.nll(batch.y)


LOSSES.update({"focal-r": FocalR, "beta-nll": BetaNLL})
register(
    "focal-r",
    title="Focal-R",
    parts=Method(losses=(Part("focal-r", b=0.069, g=2.6),)),
    about=(
        "Absolute error times (2 sigmoid(|b e|) - 1)^g, as in the published code (Yang et al., Delving into "
        "Deep Imbalanced Regression, ICML 2021, after the focal loss of Lin et al., ICCV 2017)."
    ),
)
register(
    "beta-nll",
    title="beta-NLL",
    parts=Method(head=Part("gaussian"), losses=(Part("beta-nll"),)),
    uncertainty="aleatoric",
    about=(
        "Gaussian NLL weighted by variance^b, b = 0.5 (Seitzer et al., On the Pitfalls of "
        "Heteroscedastic Uncertainty Estimation with Probabilistic Neural Networks, ICLR 2022)."
    ),
)
register(
    "dense",
    title="DenseLoss",
    parts=Method(weights=Part("dense", power=2.0)),
    about=(
        "Squared error weighted by max(1 - a p'(y), eps), p' the label density mapped to 0..1 "
        "(Steininger et al., Density-based weighting for imbalanced regression, 2021)."
    ),
)
