"""Methods that differ only in the loss or weight of a row: Focal-R, beta-NLL and DenseLoss."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from tailwise.core.distributions import Distribution
from tailwise.core.labels import LabelBins
from tailwise.core.lookup import check_name
from tailwise.methods.registry import Range, register
from tailwise.networks.losses import OBJECTIVES
from tailwise.networks.parts import Method, WeightConfig

_FLOOR = 1e-12


class FocalR(nn.Module):
    """(2 sigmoid(|b e|) - 1)^g |e| for errors e: rows with large errors count more, exact ones nothing.

    ``form="printed"`` is the paper's sigmoid(|b e|)^g, which lies between 1/2^g and 1 and hardly focuses. The
    authors' code scales the sigmoid to 0..1.
    """

    def __init__(self, bins: LabelBins, *, b: float = 0.2, g: float = 1.0, form: str = "published") -> None:
        super().__init__()
        check_name("form", form, ("published", "printed"))
        self.b, self.g, self.form = b, g, form

    def forward(self, prediction: Distribution, y: Tensor) -> Tensor:
        """y: (N,) -> (N,)"""
        error = (y - prediction.mean).abs()
        focus = torch.sigmoid(self.b * error)
        if self.form == "published":  # tanh(b e / 2), with a floor: the slope of 0^g is infinite if g < 1
            focus = torch.tanh(self.b * error / 2).clamp_min(_FLOOR)
        return focus**self.g * error


class BetaNLL(nn.Module):
    """Gaussian NLL times variance^b without its gradient, so that a large variance does not mute a row."""

    def __init__(self, bins: LabelBins, *, b: float = 0.5) -> None:
        super().__init__()
        self.b = b

    def forward(self, prediction: Distribution, y: Tensor) -> Tensor:
        """y: (N,) -> (N,)"""
        return prediction.variance.detach() ** self.b * prediction.nll(y)


OBJECTIVES.update({"focal-r": FocalR, "beta-nll": BetaNLL})
register(
    "focal-r",
    title="Focal-R",
    parts=Method(objective="focal-r", objective_options={"b": 0.069, "g": 2.6}),
    about=(
        "Absolute error times (2 sigmoid(|b e|) - 1)^g, as in the published code (Yang et al., Delving into "
        "Deep Imbalanced Regression, ICML 2021, after the focal loss of Lin et al., ICCV 2017)."
    ),
    search={"objective_options.b": Range(0.02, 20.0), "objective_options.g": Range(0.3, 3.0)},
)
register(
    "beta-nll",
    title="beta-NLL",
    parts=Method(head="gaussian", objective="beta-nll", objective_options={"b": 0.5}),
    uncertainty="aleatoric",
    about=(
        "Gaussian NLL weighted by variance^b, b = 0.5 (Seitzer et al., On the Pitfalls of "
        "Heteroscedastic Uncertainty Estimation with Probabilistic Neural Networks, ICLR 2022)."
    ),
    search={"objective_options.b": Range(0.0, 1.0, log=False)},
)
register(
    "dense",
    title="DenseLoss",
    parts=Method(reweight="likelihood", weights=WeightConfig(form="dense", power=2.0)),
    about=(
        "Squared error weighted by max(1 - a p'(y), eps), p' the label density mapped to 0..1 "
        "(Steininger et al., Density-based weighting for imbalanced regression, 2021)."
    ),
    search={"weights.power": Range(0.0, 2.0, log=False)},
)
