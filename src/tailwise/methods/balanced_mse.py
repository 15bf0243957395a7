"""Balanced MSE: a likelihood under balanced labels, learned from imbalanced ones.

Ren et al., Balanced MSE for Imbalanced Visual Regression, CVPR 2022. With a Gaussian of variance
s^2 around the prediction m, training labels y follow N(y; m, s^2) p(y) / Z(m), so the loss is
-log N(y; m, s^2) + log Z(m), Z(m) = integral of N(y'; m, s^2) p(y') dy'. The variants compute Z from
a mixture fitted to the labels (GAI), from the batch (BMC) or from the label bins (BNI).
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor, nn

from tailwise.labels.bins import LabelBins
from tailwise.methods.registry import register
from tailwise.networks.losses import LOSSES, LatentBatch, Loss
from tailwise.networks.parts import Method, Part
from tailwise.options import Positive, Size

MOST_FITTED = 100_000
"""Number of labels that the mixture of labels is fitted to; more, such as pixels, are scaled to it."""


class BalancedMSE(Loss):
    """-log N(y; m, s^2) + log sum_k p_k N(m; c_k, s^2 + v_k), times 2 s^2, with s learned from `noise` on.

    The label density p is a mixture of `components` Gaussians, or its bins.
    """

    def __init__(
        self, dim: int, bins: LabelBins, *, components: Size | None = None, noise: Positive = 1.0
    ) -> None:
        super().__init__(dim, bins)
        self.log_noise = nn.Parameter(torch.tensor(math.log(noise)))
        share, center, spread = _label_mixture(bins, components)
        self.log_share = nn.Buffer(torch.as_tensor(np.log(share), dtype=torch.float32))
        self.center = nn.Buffer(torch.as_tensor(center, dtype=torch.float32))
        self.spread = nn.Buffer(torch.as_tensor(spread, dtype=torch.float32))

    def forward(self, batch: LatentBatch) -> Tensor:
        """-> (N,)"""
        m, variance = batch.prediction.mean, (2 * self.log_noise).exp()
        total = variance + self.spread
        logits = self.log_share - 0.5 * ((m.unsqueeze(-1) - self.center) ** 2 / total + total.log())
        loss = 0.5 * ((batch.y - m) ** 2 / variance + variance.log()) + logits.logsumexp(-1)
        return loss * 2 * variance.detach()


class BatchMSE(Loss):
    """Z from the labels of the batch: cross-entropy of each row among the batch's labels.

    Of very many labels, such as pixels, Z takes some, scaled to all.
    """

    compares_rows = True

    def __init__(self, dim: int, bins: LabelBins, *, noise: Positive = 1.0) -> None:
        super().__init__(dim, bins)
        self.log_noise = nn.Parameter(torch.tensor(math.log(noise)))

    def forward(self, batch: LatentBatch) -> Tensor:
        """-> (N,)"""
        variance, m, y = (2 * self.log_noise).exp(), batch.prediction.mean, batch.y
        among = batch.compared().y
        logits = -((m.unsqueeze(-1) - among) ** 2) / (2 * variance)  # (N, N), or fewer labels than rows
        at_label = -((m - y) ** 2) / (2 * variance)
        scaled = math.log(max(len(y), 1) / max(len(among), 1))
        return (logits.logsumexp(-1) + scaled - at_label) * 2 * variance.detach()


def _label_mixture(bins: LabelBins, components: int | None) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return shares, centres and variances of the standardised label density: its bins, or a mixture."""
    seen = bins.counts > 0
    center = (bins.centers[seen] - bins.location) / bins.scale
    share = bins.counts[seen] / bins.counts.sum()
    if components is None or components >= seen.sum():
        return share, center, np.zeros_like(center)
    from sklearn.mixture import GaussianMixture  # here, because its import takes long

    rows = np.repeat(center, np.maximum(1, np.round(share * min(bins.counts.sum(), MOST_FITTED))).astype(int))
    mixture = GaussianMixture(components, max_iter=1000, random_state=0).fit(rows.reshape(-1, 1))
    return mixture.weights_, mixture.means_[:, 0], mixture.covariances_[:, 0, 0]


LOSSES.update({"balanced-mse": BalancedMSE, "batch-mse": BatchMSE})
_ABOUT = (
    "-log N(y; m, s^2) + log Z(m): squared error as if labels were balanced, with the normaliser Z from {} "
    "(Ren et al., Balanced MSE for Imbalanced Visual Regression, CVPR 2022)."
)
for _name, _title, _loss, _source in (
    ("bmse-gai", "GAI", Part("balanced-mse", components=8), "a Gaussian mixture fitted to the labels"),
    ("bmse-bmc", "BMC", Part("batch-mse"), "the labels of the batch"),
    ("bmse-bni", "BNI", Part("balanced-mse"), "the label bins"),
):
    _parts = Method(losses=(_loss,))
    register(_name, title=f"Balanced MSE ({_title})", parts=_parts, about=_ABOUT.format(_source))
