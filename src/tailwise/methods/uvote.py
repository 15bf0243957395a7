"""UVOTE: experts for common and for rare labels on one backbone; the most certain one is believed."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Literal, cast

import torch
from torch import Tensor, nn

from tailwise.distributions.members import Distribution, Mixture
from tailwise.labels.bins import LabelBins
from tailwise.labels.kernels import label_weights
from tailwise.methods.registry import register
from tailwise.networks.heads import HEADS, GaussianHead, Head, PseudoCountHead
from tailwise.networks.losses import LOSSES, Evidence, LatentBatch, Loss
from tailwise.networks.parts import Method, Part
from tailwise.options import Between, NotNegative, Positive

Experts = Annotated[int, Between(2, 32)]


class VotingHead(Head):
    """A mixture of experts in which the one with the lowest variance has all the weight (UVOTE:vote).

    Experts are Gaussian, or VIR's pseudo-counts. Expert m of M counts a row w^(m / (M - 1)) times, w being
    the row's weight: a reading, because the paper has no counts.
    """

    def __init__(
        self,
        dim: int,
        bins: LabelBins,
        *,
        experts: Experts = 2,
        expert: Literal["gaussian", "pseudo-count"] = "gaussian",
    ) -> None:
        super().__init__()
        kind: type[Head] = GaussianHead if expert == "gaussian" else PseudoCountHead
        self.experts = nn.ModuleList(kind(dim, bins) for _ in range(experts))

    def forward(self, z: Tensor, w: Tensor | None = None) -> Distribution:
        """z: (N, D), w: (N,) -> Mixture (N,)"""
        last = len(self.experts) - 1
        said = [expert(z, None if w is None else w ** (m / last)) for m, expert in enumerate(self.experts)]
        variance = torch.stack([prediction.variance.detach() for prediction in said])
        places = torch.arange(len(said), device=z.device).unsqueeze(-1)
        return Mixture(said, (places == variance.argmin(0)).to(variance), check=False)

    def start_at_zero(self) -> None:
        """Set the location of every expert to 0."""
        for expert in cast("list[Head]", list(self.experts)):
            expert.start_at_zero()


class ExpertsLoss(Loss):
    """Mean over experts m of w_m nll_m, w_m = p~^(-m / (M - 1)) scaled to a mean of 1 (UVOTE:loss).

    p~ is the label density, smoothed with `bandwidth` bins, of counts within `clip`: the first expert sees
    labels as they occur, the last as if balanced. `evidence` adds that times VIR:reg to the likelihood of
    pseudo-counts.
    """

    weighted = False

    def __init__(
        self,
        dim: int,
        bins: LabelBins,
        *,
        weight: NotNegative = 1.0,
        bandwidth: Positive = 2.0,
        clip: tuple[NotNegative, NotNegative] | None = None,
        evidence: NotNegative = 0.0,
    ) -> None:
        super().__init__(dim, bins, weight=weight)
        self.regularizer = Evidence(dim, bins, weight=evidence) if evidence else None
        rarity = label_weights(bins, bandwidth=bandwidth, radius=5, power=1.0, clip=clip)
        shares = bins.counts / bins.counts.sum()
        tensors = (torch.as_tensor(of, dtype=torch.float32) for of in (rarity, shares))
        self.rarity, self.shares = (nn.Buffer(of, persistent=False) for of in tensors)

    def forward(self, batch: LatentBatch) -> Tensor:
        """-> (N,)"""
        experts = batch.prediction.parametric
        number, total = experts.shape[0], torch.zeros_like(batch.y)
        for m in range(number):
            balance = self.rarity ** (m / max(number - 1, 1))
            loss = experts[m].nll(batch.y)
            if self.regularizer is not None:
                alone = replace(batch, prediction=experts[m])
                loss = loss + self.regularizer.weight * self.regularizer(alone)
            total = total + (balance / (self.shares @ balance))[batch.index].to(total) * loss / number
        return total


HEADS["voting"] = VotingHead
LOSSES["experts"] = ExpertsLoss
register(
    "uvote",
    title="UVOTE",
    parts=Method(head=Part("voting"), losses=(Part("experts"),)),
    uncertainty="aleatoric",
    group="since-vir",
    about=(
        "UVOTE trains experts on one backbone, each with likelihoods weighted by another power of the label "
        "density, and predicts by the one with the lowest variance, UVOTE:loss and UVOTE:vote; Gaussian "
        "here, Laplace in the authors' runs (Jiang et al., Uncertainty Voting Ensemble for Imbalanced Deep "
        "Regression, GCPR 2024)."
    ),
)
