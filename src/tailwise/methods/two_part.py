"""A two-part model for labels of which many are exactly one value, such as 0 (option head.atom).

The head predicts the probability p that a label has the value, and a normal-inverse-gamma distribution of the
others (after Cragg, Some statistical models for limited dependent variables, Econometrica 1971).
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from tailwise.distributions.members import NIG, Distribution, Mixture
from tailwise.labels.bins import LabelBins
from tailwise.methods.registry import register
from tailwise.networks.heads import HEADS, EvidentialHead, Head
from tailwise.networks.parts import Method, Part

WIDTH = 1e-3
"""Standard deviation of the atom, in label standard deviations."""
_NU, _ALPHA = 1e3, 100.0
_LEAST_ALPHA = 1.5


class TwoPartHead(Head):
    """Probability of one value, and a NIG for all others; `atom` is the value, in label units.

    The prediction is a mixture of both, so everything that reads mixtures reads it. The value itself is a
    Student-t of `WIDTH` label standard deviations. So the NLL of a label at the value is that of a density,
    ``-log p`` plus the logarithm of about 2.5 widths, and the CDF rises by p within some widths around it.
    `TailRegressor` moves quantiles and ends of intervals to the value exactly.
    """

    location_rows = slice(1, 2)
    scalable = False

    def __init__(self, dim: int, bins: LabelBins, *, atom: float = 0.0) -> None:
        super().__init__()
        self.linear = nn.Linear(dim, 5)
        place = torch.tensor((atom - bins.location) / bins.scale, dtype=torch.float32)  # standardised
        self.place = nn.Buffer(place, persistent=False)

    def forward(self, z: Tensor, w: Tensor | None = None) -> Distribution:
        """z: (N, D) -> Mixture of NIG (N,)"""
        raw = self.linear(z)
        rest = EvidentialHead.belief(raw[..., 1:], 1.0, _LEAST_ALPHA)
        beta = WIDTH**2 * _ALPHA / (1 + 1 / _NU)
        others = (torch.full_like(rest.gamma, value) for value in (_NU, _ALPHA, beta))
        atom = NIG(self.place.to(rest.gamma).expand_as(rest.gamma), *others)
        p = raw[..., 0].sigmoid()
        return Mixture([atom, rest], torch.stack([p, 1 - p]), check=False)

    def moved(self, prediction: Distribution, base: Tensor) -> Distribution:
        """Move the other labels to the base; the value stays where it is."""
        assert isinstance(prediction, Mixture)
        atom, rest = prediction.components[0], prediction.components[1]
        return Mixture([atom, rest.rescale(base, 1.0)], prediction.weights, check=False)


HEADS["two-part"] = TwoPartHead
register(
    "two-part",
    title="Two-part model",
    parts=Method(head=Part("two-part", atom=0.0), losses=(Part("nll"),)),
    uncertainty="aleatoric and epistemic",
    about=__doc__,
)
