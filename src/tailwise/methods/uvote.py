"""UVOTE: experts for common and for rare labels share a backbone, and the most certain one predicts.

Each weights its likelihood by another power of the label density, UVOTE:loss, UVOTE:vote (Jiang et al.,
Uncertainty Voting Ensemble for Imbalanced Deep Regression, GCPR 2024).
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

from tailwise.distributions.members import Distribution, Mixture
from tailwise.labels.bins import LabelBins
from tailwise.labels.kernels import label_weights
from tailwise.methods.registry import register
from tailwise.networks.heads import HEADS, Head
from tailwise.networks.losses import LOSSES, Evidence, LatentBatch, Loss
from tailwise.networks.parts import Method, Part
from tailwise.options import NotNegative, Positive, Size

Expert = Literal["gaussian", "pseudo-count"]


class VotingHead(Head):
    """The expert of least variance predicts (UVOTE:vote); expert m of M gets weights w^(m / (M - 1))."""

    def __init__(self, dim: int, bins: LabelBins, *, experts: Size = 2, expert: Expert = "gaussian") -> None:
        super().__init__()
        self.experts = nn.ModuleList(HEADS[expert](dim, bins) for _ in range(experts))

    def forward(self, z: Tensor, w: Tensor | None = None) -> Distribution:
        """z: (N, D), w: (N,) -> Mixture (N,)"""
        last = max(1, len(self.experts) - 1)
        said = [head(z, w if w is None else w ** (m / last)) for m, head in enumerate(self.experts)]
        variance = torch.stack([prediction.variance.detach() for prediction in said])
        winner = variance.argmin(0, keepdim=True)
        return Mixture(said, torch.zeros_like(variance).scatter_(0, winner, 1.0), check=False)


class ExpertsLoss(Loss):
    """Mean over experts m of w_m nll_m, w_m = p~^(-m / (M - 1)) scaled to a mean of 1 (UVOTE:loss).

    p~ is the label density over `bandwidth` bins, of counts within `clip`; `evidence` times VIR:reg is added.
    """

    weighted = False

    def __init__(
        self,
        dim: int,
        bins: LabelBins,
        *,
        bandwidth: Positive = 2.0,
        clip: tuple[NotNegative, NotNegative] | None = None,
        evidence: NotNegative = 0.0,
    ) -> None:
        super().__init__(dim, bins)
        self.evidence, self.regularizer = evidence, Evidence(dim, bins)
        rarity = label_weights(bins, bandwidth=bandwidth, radius=5, power=1.0, clip=clip)
        tensors = (torch.as_tensor(of, dtype=torch.float32) for of in (rarity, bins.counts))
        self.rarity, self.counts = (nn.Buffer(of, persistent=False) for of in tensors)

    def forward(self, batch: LatentBatch) -> Tensor:
        """-> (N,)"""
        experts = batch.prediction.parametric  # (M, N)
        loss = experts.nll(batch.y)
        if self.evidence:
            loss = loss + self.evidence * self.regularizer.cost(experts, batch.y)
        w = self.rarity ** torch.linspace(0, 1, len(loss), device=loss.device).unsqueeze(-1)  # (M, B)
        w = w * self.counts.sum() / (w @ self.counts).unsqueeze(-1)
        return (w[:, batch.index].to(loss) * loss).mean(0)


HEADS["voting"], LOSSES["experts"] = VotingHead, ExpertsLoss
_PARTS = Method(head=Part("voting"), losses=(Part("experts"),))
register("uvote", title="UVOTE", parts=_PARTS, uncertainty="aleatoric", group="since-vir", about=__doc__)
