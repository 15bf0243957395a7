"""VIR with several modes, for labels with more than one peak, or of which many are nearly one value.

A latent row stands for n pseudo-observations, as in VIR:G. Here n_k of them belong to mode k. Each mode is
the posterior of its own pseudo-observations (VIR:posterior) under the row's weight w. Its probability is its
share of the pseudo-counts, n_k / n. One mode is VIR (Wang and Wang, Variational Imbalanced Regression,
NeurIPS 2023).
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from tailwise.distributions.members import Distribution, Mixture
from tailwise.labels.bins import LabelBins
from tailwise.methods.registry import register
from tailwise.networks.heads import HEADS, LEAST_COUNT, PseudoCountHead, nig_posterior, positive
from tailwise.networks.parts import Part
from tailwise.networks.vir import DEFAULT
from tailwise.options import NotNegative, Positive, Size


class ModesHead(PseudoCountHead):
    """A mixture of `modes` NIG per row, each with its share of the row's pseudo-counts (VIR:modes).

    The locations start at quantiles of the training labels, spread evenly.
    """

    def __init__(
        self,
        dim: int,
        bins: LabelBins,
        *,
        modes: Size = 3,
        prior: tuple[float, NotNegative, NotNegative, NotNegative] = (0.0, 0.1, 1.5, 0.01),
        sharpness: Positive = 1.0,
    ) -> None:
        super().__init__(dim, bins, prior=prior, sharpness=sharpness)
        self.linear = nn.Linear(dim, 1 + 3 * modes)
        self.modes, self.location_rows = modes, slice(1, 1 + modes)
        shares = (np.cumsum(bins.counts) - bins.counts / 2) / bins.counts.sum()
        levels = (np.arange(modes) + 0.5) / modes
        starts = (np.interp(levels, shares, bins.centers) - bins.location) / bins.scale
        with torch.no_grad():
            self.linear.bias[self.location_rows] = torch.as_tensor(starts, dtype=torch.float32)

    def forward(self, z: Tensor, w: Tensor | None = None) -> Distribution:
        """z: (N, D), w: (N,) -> Mixture of NIG (N,)"""
        raw_n, psi, raw_phi, logits = self.linear(z).T.split((1, self.modes, self.modes, self.modes))
        shares = logits.softmax(0)  # (K, N)
        n = shares * (LEAST_COUNT + positive(raw_n, self.sharpness))
        phi = positive(raw_phi, self.sharpness)
        return Mixture(nig_posterior(self.prior, n, psi, phi, w), shares, check=False)


HEADS["modes"] = ModesHead
register(
    "vir-modes",
    title="VIR with several modes",
    parts=DEFAULT.with_options(head=Part("modes")),
    uncertainty="aleatoric and epistemic",
    about=__doc__,
)
