"""RankSim: rows are ranked by similarity of their features as they are by similarity of their labels.

It adds the squared difference between both ranks within a batch (Gong et al., RankSim: Ranking Similarity
Regularization for Deep Imbalanced Regression, ICML 2022).
"""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor

from tailwise.labels.bins import LabelBins
from tailwise.methods.registry import register
from tailwise.networks.losses import LOSSES, LatentBatch, Loss
from tailwise.networks.parts import Method, Part

STEP = 2.0
"""Interpolation strength of the ranking's gradient."""


class _Rank(torch.autograd.Function):
    """Ranks along the last dimension; its gradient is a finite difference of the ranks themselves
    (Vlastelica et al., Differentiation of Blackbox Combinatorial Solvers, ICLR 2020).

    The ranks are divided by their number here, not afterwards: the gradient that comes back is then that of
    ranks from 0 to 1, on the scale of the cosines it is added to.
    """

    @staticmethod
    def forward(ctx: Any, values: Tensor, number: Tensor) -> Tensor:
        ranks = _ranks(values, number)
        ctx.save_for_backward(values, number, ranks)
        return ranks

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        values, number, ranks = cast("tuple[Tensor, Tensor, Tensor]", ctx.saved_tensors)
        return (_ranks(values + STEP * grads[0], number) - ranks) / STEP, None


def _ranks(values: Tensor, number: Tensor) -> Tensor:
    """Ranks from 0 for the largest value, over `number`; of equal values the last one ranks first."""
    order = values.argsort(dim=-1, stable=True).flip(-1)
    places = torch.arange(values.shape[-1], dtype=values.dtype, device=values.device).expand_as(values)
    return torch.empty_like(values).scatter_(-1, order, places) / number


def ranksim(z: Tensor, y: Tensor) -> Tensor:
    """Return the squared difference between ranks by label and by feature similarity. (N, D), (N,) -> ()

    Ranks run from 0 to 1; the mean over a row's neighbours is summed over rows. Only one row of
    each label is used, the first of the batch. Of two labels at the same distance the larger ranks first.
    """
    order = y.argsort(stable=True)
    z, y = torch.nn.functional.normalize(z[order], dim=-1), y[order]
    # The other rows are ranked last and left out of the sum. Dropping them would make shapes depend on
    # labels, and the host wait for the device.
    kept = torch.cat([torch.ones_like(y[:1], dtype=torch.bool), y[1:] != y[:-1]])
    number = kept.sum()
    by_label = _ranks((-(y.unsqueeze(1) - y).abs()).masked_fill(~kept, -torch.inf), number)
    similarity = (z @ z.T).masked_fill(~kept, -torch.inf)
    by_feature = cast("Tensor", _Rank.apply(similarity, number))  # type: ignore[no-untyped-call]
    apart = (by_feature - by_label) * (kept & kept.unsqueeze(1))
    return apart.pow(2).sum() / number


class RankSim(Loss):
    """`ranksim` of a batch; of very many rows, such as pixels, some.

    With `label_units` the weight is meant beside an absolute error in label units, as in published code.
    """

    weighted, compares_rows = False, True

    def __init__(self, dim: int, bins: LabelBins, *, label_units: bool = False) -> None:
        super().__init__(dim, bins)
        self.factor = 1 / bins.scale if label_units else 1.0

    def forward(self, batch: LatentBatch) -> Tensor:
        """-> (N,), the same for every row"""
        rows = batch.compared()
        return self.factor * ranksim(rows.z_mean, rows.y).expand_as(batch.y)


LOSSES["ranksim"] = RankSim
_PARTS = Method(losses=(Part("squared"), Part("ranksim", weight=0.013)))
_LDS = _PARTS.with_options(**{"ranksim.weight": 0.2, "weights.power": 0.75})
register("ranksim", title="RankSim", parts=_PARTS, about=__doc__)
register("lds-ranksim", title="LDS + RankSim", parts=_LDS, about=f"{__doc__} Squared error has LDS weights.")
