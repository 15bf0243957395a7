"""SRL: the path of latents along the label shall fill the sphere evenly, rare labels included.

Latents of all label bins are spread over the sphere, evenly along the label, and rows are drawn to the
centroid of their bin, SRL:loss, beside absolute error (Dong et al., Improve Representation for Imbalanced
Regression through Geometric Constraints, CVPR 2025).
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tailwise.labels.bins import LabelBins
from tailwise.methods.registry import register
from tailwise.networks.losses import LOSSES, LatentBatch, Loss
from tailwise.networks.parts import Method, Part
from tailwise.networks.ranks import sum_over_ranks
from tailwise.options import NotNegative, Share

POINTS, TEMPERATURE = 512, 0.1


class SurrogateLoss(Loss):
    """envelope E + uniformity U + C on unit latents v (SRL:loss), with a centroid l_b of each label bin.

    In a bin of the batch l_b is that of its rows, else the surrogate s_b: an average over former epochs.
    E = -mean over random points p of sigmoid(sqrt(D) max_b p l_b - 2): the share of the sphere near the path.
    U = sum of |l_b' - l_b|^2 / (y_b' - y_b) over neighbouring bins. C = -log softmax_b (v s_b / temperature)
    at the row's bin. In the first epoch, without surrogates, the loss is 0.
    """

    weighted, compares_rows, by_epoch, weight = False, True, True, 0.1

    def __init__(
        self, dim: int, bins: LabelBins, *, uniformity: NotNegative = 0.01, momentum: Share = 0.9
    ) -> None:
        super().__init__(dim, bins)
        self.uniformity, self.momentum = uniformity, momentum
        filled = np.flatnonzero(bins.counts > 0)
        place = torch.as_tensor(np.abs(np.arange(len(bins))[:, None] - filled).argmin(1))
        gaps = torch.as_tensor(np.diff(bins.standardized().centers[filled]), dtype=torch.float32)
        points = torch.randn(POINTS, dim, generator=torch.Generator().manual_seed(0))
        constants = (place, gaps, F.normalize(points, dim=-1))
        self.place, self.gaps, self.points = (nn.Buffer(of, persistent=False) for of in constants)
        state = (torch.zeros(len(filled), width) for width in (dim, dim, 1))
        self.surrogate, self.sums, self.known = map(nn.Buffer, state)

    def forward(self, batch: LatentBatch) -> Tensor:
        """-> (N,)"""
        unit, place = F.normalize(batch.z_mean, dim=-1), self.place[batch.index]
        surrogate = self.surrogate.to(unit)
        sums = torch.zeros_like(surrogate).index_add(0, place, unit)
        if self.training:
            self.sums.add_(sums.detach())
        path = torch.where(sums.any(1, keepdim=True), F.normalize(sums, dim=-1), surrogate)
        envelope = -torch.sigmoid((self.points.to(unit) @ path.mT).amax(1) * unit.shape[-1] ** 0.5 - 2).mean()
        uniformity = (path.diff(dim=0).pow(2).sum(1) / self.gaps.to(unit)).sum()
        contrast = F.cross_entropy(unit @ surrogate.mT / TEMPERATURE, place, reduction="none")
        return torch.where(self.known.any(), envelope + self.uniformity * uniformity + contrast, 0.0)

    @torch.no_grad()
    def end_epoch(self) -> None:
        """Move surrogates to the centroids of the epoch's rows; a bin that never had any has the nearest."""
        centroid = F.normalize(sum_over_ranks(self.sums), dim=-1)
        seen = centroid.norm(dim=1, keepdim=True) > 0
        kept = torch.where(seen, self.momentum * self.known, 1.0)  # the first centroid is taken as it is
        moved = F.normalize(kept * self.surrogate + (1 - kept) * centroid, dim=-1)
        self.known.logical_or_(seen)
        number = torch.arange(len(seen), device=seen.device)
        apart = (number - number.unsqueeze(1)).abs() + len(seen) * (self.known.mT == 0)
        self.surrogate.copy_(moved[apart.argmin(1)])
        self.sums.zero_()


LOSSES["srl"] = SurrogateLoss
_PARTS = Method(losses=(Part("absolute"), Part("srl")))
register("srl", title="SRL", parts=_PARTS, group="since-vir", about=__doc__)
