"""Balanced likelihood: a predictive density under balanced labels, learned from imbalanced ones.

The density p(y|x) is that of balanced labels. Under a smoothed label density rho^t the training labels
then follow p(y|x) rho(y)^t / Z(x), which is the likelihood to maximise (VIR:balanced). Balanced MSE (Ren et
al., Balanced MSE for Imbalanced Visual Regression, CVPR 2022) is the case of a Gaussian with one variance.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from tailwise.distributions.members import Distribution
from tailwise.labels.bins import LabelBins
from tailwise.labels.prior import FLOOR, LabelDensity
from tailwise.methods.registry import register
from tailwise.networks.losses import LOSSES, LatentBatch, Loss
from tailwise.networks.parts import Method, Part
from tailwise.networks.vir import DEFAULT
from tailwise.options import NotNegative

_STEPS = np.unique([sign * step for step in (*np.arange(17) / 4, 5, 7, 10, 20, 50) for sign in (-1, 1)])
"""Distances from the predicted mean, in standard deviations, at which the density is integrated."""
_SPREADS = (1e-6, 10.0)  # narrowest and widest for these distances


class BalancedNLL(Loss):
    """-log p(y|x) - t log rho(y) + log Z(x), Z(x) the integral of p(.|x) rho^t (VIR:balanced).

    rho is the smoothed density of the training labels, at least `floor` times its mean over their range
    (`tailwise.labels.prior.LabelDensity`). A larger floor emphasises rare labels less. ``t=0`` is the
    plain likelihood. An emphasis of -t at prediction gives the density under the training labels (VIR:dial).
    """

    def __init__(
        self, dim: int, bins: LabelBins, *, t: NotNegative = 1.0, floor: NotNegative = FLOOR
    ) -> None:
        super().__init__(dim, bins)
        self.t = t
        rho = LabelDensity.from_bins(bins.standardized(), floor=floor)
        numbers = (rho.edges, np.log(rho.density), _STEPS)
        tensors = (torch.as_tensor(values, dtype=torch.float32) for values in numbers)
        self.edges, self.log_density, self.steps = (nn.Buffer(of, persistent=False) for of in tensors)

    def log_rho(self, y: Tensor) -> Tensor:
        """Return log rho, constant on each cell. y: (...) -> (...)"""
        return self.log_density[torch.bucketize(y.to(self.edges), self.edges[1:-1])]

    def log_normalizer(self, prediction: Distribution) -> Tensor:
        """Return log Z by the midpoint rule on intervals that end at the cells and around the mean. (N,)

        The intervals do not carry gradients, so that the gradient is that of the densities at fixed labels.
        """
        with torch.no_grad():
            spread = prediction.variance.sqrt().clamp(*_SPREADS)
            around = prediction.mean + spread * self.steps.unsqueeze(-1)  # (S, N)
            cells = self.edges.unsqueeze(-1).expand(-1, around.shape[1])
            ends = torch.cat([around, cells]).sort(dim=0).values  # (K, N)
            middle, width = (ends[1:] + ends[:-1]) / 2, ends.diff(dim=0)
            log_width = width.clamp_min(torch.finfo(width.dtype).tiny).log()
            tilt = self.t * self.log_rho(middle)
        log_mass = log_width - prediction.nll(middle)
        # Divided by the mass that the rule finds without rho: most of its error cancels.
        return (tilt + log_mass).logsumexp(0) - log_mass.logsumexp(0)

    def forward(self, batch: LatentBatch) -> Tensor:
        """-> (N,)"""
        prediction, y = batch.prediction, batch.y
        return prediction.nll(y) - self.t * self.log_rho(y) + self.log_normalizer(prediction)


LOSSES["balanced-nll"] = BalancedNLL
register(
    "balanced-nll",
    title="Balanced NLL",
    parts=Method(
        head=DEFAULT.head, losses=(Part("balanced-nll", t=1.0, floor=0.01), Part("evidence", weight=0.0013))
    ),
    uncertainty="aleatoric and epistemic",
    about=__doc__,
)
