"""Dist Loss: the predictions of a batch shall be distributed as the training labels are.

It adds the distance between the sorted predictions of a batch and the quantiles of a kernel density of the
training labels, DIST:loss, to absolute error (Nie et al., Dist Loss: Enhancing Regression in Few-Shot Region
through Distribution Distance Constraint, ICLR 2025).
"""

from __future__ import annotations

import numpy as np
import torch
from scipy import special
from torch import Tensor, nn

from tailwise.labels.bins import LabelBins
from tailwise.methods.registry import register
from tailwise.networks.losses import LOSSES, LatentBatch, Loss
from tailwise.networks.parts import Method, Part
from tailwise.options import Positive

POINTS = 1001
"""Labels at which the distribution is tabulated; quantiles between them are interpolated."""


class DistLoss(Loss):
    """|m_(i) - q_i| of the i-th smallest of N predictions and the label quantile at (i - 1/2) / N, DIST:loss.

    Quantiles are those of a Gaussian kernel density over the label bins, within the range of the training
    labels. `bandwidth` is in units of Silverman's rule. Readings: the paper rounds expected frequencies of
    whole-number labels, which for float labels are quantiles; and it sorts softly, which without softness
    compares each prediction with the quantile of its rank.
    """

    compares_rows = True

    def __init__(self, dim: int, bins: LabelBins, *, bandwidth: Positive = 1.0) -> None:
        super().__init__(dim, bins)
        known = bins.standardized()
        width = 1.06 * bandwidth * known.counts.sum() ** -0.2
        at = np.linspace(known.edges[0], known.edges[-1], POINTS)
        below = special.ndtr((at[:, None] - known.centers) / width) @ (known.counts / known.counts.sum())
        self.at = nn.Buffer(torch.as_tensor(at, dtype=torch.float32), persistent=False)
        self.below = nn.Buffer(torch.as_tensor(below, dtype=torch.float32), persistent=False)

    def quantiles(self, levels: Tensor) -> Tensor:
        """Return the label quantiles at these levels. (N,) -> (N,)"""
        at, below = self.at.to(levels), self.below.to(levels)
        upper = torch.searchsorted(below, levels).clamp(1, POINTS - 1)
        rise = (below[upper] - below[upper - 1]).clamp_min(torch.finfo(below.dtype).tiny)
        share = ((levels - below[upper - 1]) / rise).clamp(0, 1)
        return torch.lerp(at[upper - 1], at[upper], share)

    def forward(self, batch: LatentBatch) -> Tensor:
        """-> (N,)"""
        mean = batch.prediction.mean
        places = torch.arange(len(mean), device=mean.device)
        order = mean.argsort(stable=True)
        wanted = self.quantiles((places + 0.5).to(mean.dtype) / max(len(mean), 1))
        return (mean - torch.empty_like(wanted).scatter_(0, order, wanted)).abs()


LOSSES["dist"] = DistLoss
register(
    "dist",
    title="Dist Loss",
    parts=Method(losses=(Part("absolute"), Part("dist"))),
    group="since-vir",
    about=__doc__,
)
