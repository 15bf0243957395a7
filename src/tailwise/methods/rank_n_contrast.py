"""Rank-N-Contrast: of two rows, the one with the nearer label shall have the nearer features.

Rows are contrasted by the order of their label distances, RNC:loss (Zha et al., Rank-N-Contrast: Learning
Continuous Representations for Regression, NeurIPS 2023).
"""

from __future__ import annotations

import torch
from torch import Tensor

from tailwise.labels.bins import LabelBins
from tailwise.methods.registry import register
from tailwise.networks.losses import LOSSES, LatentBatch, Loss
from tailwise.networks.parts import Method, Part
from tailwise.options import Positive

TIE = 1e-5
"""Label distances that differ by less, in label spreads, are equal: rounding must not break ties."""


def rank_n_contrast(z: Tensor, y: Tensor, temperature: float) -> Tensor:
    """Return the loss of each row as an anchor (RNC:loss). (N, D), (N,) -> (N,)

    It is the mean over the other rows j of -log(exp(s_j) / sum of exp(s_k)), over all k whose label is at
    least as far from the anchor's as that of j; s is minus the Euclidean distance of features over
    `temperature`. The paper has two augmented views of each row; here each row is one. A row alone gives 0.
    """
    similarity = -torch.cdist(z, z, compute_mode="donot_use_mm_for_euclid_dist") / temperature
    itself = torch.eye(len(y), dtype=torch.bool, device=y.device)
    apart = (y - y.unsqueeze(1)).abs().masked_fill(itself, -torch.inf)
    apart, order = apart.sort(dim=1)  # the anchor is first and in no sum
    similarity = similarity.gather(1, order)
    at_least = similarity.flip(1).logcumsumexp(1).flip(1)
    first = torch.searchsorted(apart, apart - TIE)  # where the rows at this distance or farther begin
    each = (at_least.gather(1, first) - similarity)[:, 1:]
    return each.sum(1) / max(len(y) - 1, 1)


class RankNContrast(Loss):
    """`rank_n_contrast` of a batch; of very many rows, such as pixels, some."""

    weighted, compares_rows, of_latents = False, True, True

    def __init__(self, dim: int, bins: LabelBins, *, temperature: Positive = 2.0) -> None:
        super().__init__(dim, bins)
        self.temperature = temperature

    def forward(self, batch: LatentBatch) -> Tensor:
        """-> (N,), the same for every row"""
        rows = batch.compared()
        return rank_n_contrast(rows.z_mean, rows.y, self.temperature).mean().expand_as(batch.y)


LOSSES["rnc"] = RankNContrast
_JOINT = Method(losses=(Part("absolute"), Part("rnc")))
_STAGES = _JOINT.with_options(schedule=Part("pretrain", start=0.5))
for _name, _title, _parts, _text in (
    (
        "rnc",
        "Rank-N-Contrast",
        _STAGES,
        "It trains the encoder alone, then a head with absolute error on it.",
    ),
    ("rnc-joint", "Rank-N-Contrast, one stage", _JOINT, "It is added to absolute error."),
):
    register(_name, title=_title, parts=_parts, group="since-vir", about=f"{__doc__} {_text}")
