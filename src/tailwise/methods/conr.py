"""ConR: rows that are predicted alike although their labels differ shall not have the same features.

A row is contrasted with those of other labels that are predicted alike, pushed harder the rarer its label and
the farther theirs, CONR:loss, beside absolute error (Keramati et al., ConR: Contrastive Regularizer for Deep
Imbalanced Regression, ICLR 2024).
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tailwise.labels.bins import LabelBins
from tailwise.labels.kernels import label_weights
from tailwise.methods.registry import register
from tailwise.networks.losses import LOSSES, LatentBatch, Loss
from tailwise.networks.parts import Method, Part
from tailwise.options import Positive


def conr(z: Tensor, y: Tensor, predicted: Tensor, push: Tensor, omega: float, temperature: float) -> Tensor:
    """Return the loss of each row as an anchor (CONR:loss). (N, D), (N,) three times -> (N,)

    It is -log of the mean over positives p of exp(s_p) / (sum of exp(s_p) + sum of S_q exp(s_q)), with s the
    cosine over `temperature`. Positives have a label nearer than `omega`; negatives q do not, but their
    prediction is. An anchor without negatives gives 0.

    Readings: the second view of the paper is the row itself, so every anchor has a positive. The pushing
    weight is S_q = push |y_q - y| / omega, `push` being the density weight of the anchor's label: the paper
    asks for a function that grows with both.
    """
    unit = F.normalize(z, dim=-1)
    similarity = unit @ unit.mT / temperature
    apart = (y - y.unsqueeze(1)).abs()
    near = apart < omega
    confused = ~near & ((predicted - predicted.unsqueeze(1)).abs() < omega)
    # A finite number in place of -inf: rows without negatives then have no NaN in their gradient.
    least = torch.finfo(similarity.dtype).min / 4
    logit = similarity + (push.unsqueeze(1) * apart / omega).clamp_min(1e-12).log()
    pushed = torch.where(confused, logit, least).logsumexp(1)
    drawn = torch.where(near, similarity, least).logsumexp(1)
    return torch.where(confused.any(1), F.softplus(pushed - drawn) + near.sum(1).log(), 0.0)


class ConR(Loss):
    """`conr` of a batch, of some rows if there are very many; `omega` is in label spreads.

    The authors have omega = 1 year and weight 4 on AgeDB, whose ages spread by 16 years: with standardised
    labels these are 0.06 and 0.25. Rows are pushed by VIR:weight.
    """

    weighted, compares_rows, weight = False, True, 0.25

    def __init__(
        self, dim: int, bins: LabelBins, *, omega: Positive = 0.06, temperature: Positive = 0.2
    ) -> None:
        super().__init__(dim, bins)
        self.omega, self.temperature = omega, temperature
        push = torch.as_tensor(label_weights(bins), dtype=torch.float32)
        self.push = nn.Buffer(push, persistent=False)

    def forward(self, batch: LatentBatch) -> Tensor:
        """-> (N,), the same for every row"""
        rows = batch.compared()
        push = self.push[rows.index].to(rows.y)
        each = conr(rows.z_mean, rows.y, rows.prediction.mean.detach(), push, self.omega, self.temperature)
        return each.mean().expand_as(batch.y)


LOSSES["conr"] = ConR
register(
    "conr",
    title="ConR",
    parts=Method(losses=(Part("absolute"), Part("conr"))),
    group="since-vir",
    about=__doc__,
)
