"""SRL: the path of latents along the label shall fill the sphere evenly, rare labels included."""

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
from tailwise.options import NotNegative, Positive, Share

POINTS = 512
"""Random points on the sphere by which the enveloping loss measures the share that the path covers."""


class SurrogateLoss(Loss):
    """envelope E + uniformity U + C on unit latents v (SRL:loss), with a centroid l_b of each label bin.

    In a bin of the batch l_b is that of its rows, else the surrogate s_b: an average over former epochs.
    E = -mean over random points p of sigmoid(sqrt(D) max_b p l_b - 2): the share of the sphere near the path.
    U = sum of |l_b' - l_b|^2 / (y_b' - y_b) over neighbouring bins. C = -log softmax_b (v s_b / temperature)
    at the row's bin. In the first epoch, without surrogates, the loss is 0.

    Readings: the tube around the path has a soft edge, at the same volume in all dimensions. A bin that no
    row has been in has the surrogate of the nearest one. Weights, momentum and temperature are ours.
    """

    weighted, compares_rows, by_epoch = False, True, True

    def __init__(
        self,
        dim: int,
        bins: LabelBins,
        *,
        weight: NotNegative = 0.1,
        envelope: NotNegative = 1.0,
        uniformity: NotNegative = 0.01,
        temperature: Positive = 0.1,
        momentum: Share = 0.9,
    ) -> None:
        super().__init__(dim, bins, weight=weight)
        self.envelope, self.uniformity = envelope, uniformity
        self.temperature, self.momentum = temperature, momentum
        filled = np.flatnonzero(bins.counts > 0)
        nearest = np.abs(np.arange(len(bins))[:, None] - filled).argmin(1)
        generator = torch.Generator().manual_seed(0)
        gaps = np.diff(bins.standardized().centers[filled])
        points = F.normalize(torch.randn(POINTS, dim, generator=generator), dim=-1)
        self.place = nn.Buffer(torch.as_tensor(nearest), persistent=False)
        self.gaps = nn.Buffer(torch.as_tensor(gaps, dtype=torch.float32), persistent=False)
        self.points = nn.Buffer(points, persistent=False)
        self.surrogate = nn.Buffer(torch.zeros(len(filled), dim))
        self.sums = nn.Buffer(torch.zeros(len(filled), dim))
        self.known = nn.Buffer(torch.zeros(len(filled), 1))

    def forward(self, batch: LatentBatch) -> Tensor:
        """-> (N,)"""
        unit, place = F.normalize(batch.z_mean, dim=-1), self.place[batch.index]
        surrogate = self.surrogate.to(unit)
        sums = torch.zeros_like(surrogate).index_add(0, place, unit)
        if self.training:
            self.sums.add_(sums.detach())
        there = torch.zeros_like(surrogate[:, :1]).index_fill(0, place, 1.0)
        path = torch.where(there > 0, F.normalize(sums, dim=-1), surrogate)
        near = (self.points.to(unit) @ path.mT).amax(1) * unit.shape[-1] ** 0.5
        whole = -self.envelope * torch.sigmoid(near - 2).mean()
        whole = whole + self.uniformity * (path.diff(dim=0).pow(2).sum(1) / self.gaps.to(unit)).sum()
        contrast = F.cross_entropy(unit @ surrogate.mT / self.temperature, place, reduction="none")
        return torch.where(self.known.any(), whole + contrast, 0.0)

    @torch.no_grad()
    def end_epoch(self) -> None:
        """Move the surrogates towards the centroids of the epoch's rows, of all processes together."""
        centroid = F.normalize(sum_over_ranks(self.sums), dim=-1)
        seen = (centroid.norm(dim=1, keepdim=True) > 0).to(centroid)
        kept = torch.where(seen > 0, self.momentum * self.known, 1.0)  # the first centroid is taken as it is
        moved = F.normalize(kept * self.surrogate + (1 - kept) * centroid, dim=-1)
        self.known.copy_(torch.maximum(self.known, seen))
        number = torch.arange(len(seen), device=seen.device)
        apart = (number - number.unsqueeze(1)).abs() + len(seen) * (self.known.mT == 0)
        self.surrogate.copy_(moved[apart.argmin(1)])
        self.sums.zero_()


LOSSES["srl"] = SurrogateLoss
register(
    "srl",
    title="SRL",
    parts=Method(losses=(Part("absolute"), Part("srl"))),
    group="since-vir",
    about=(
        "Surrogate-driven representation learning spreads the latents of all label bins over the sphere, "
        "evenly along the label, and draws rows to the centroid of their bin, SRL:loss, added to absolute "
        "error (Dong et al., Improve Representation for Imbalanced Regression through Geometric Constraints, "
        "CVPR 2025)."
    ),
)
