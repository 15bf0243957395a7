"""Balanced likelihood: a predictive density under balanced labels, learned from imbalanced ones.

The model's density p(y|x) is that of balanced labels. Under a label density rho^t the training labels then
follow p(y|x) rho(y)^t / Z(x), which is the likelihood to maximise (VIR:balanced). Balanced MSE (Ren et al.,
CVPR 2022) is the case of a Gaussian with one constant variance.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor, nn

from tailwise.core.distributions import Distribution
from tailwise.core.kernels import smoothed_density
from tailwise.core.labels import LabelBins
from tailwise.methods.registry import Range, register
from tailwise.networks.losses import OBJECTIVES
from tailwise.networks.parts import DEFAULT, Method

_STEPS = (*np.arange(17) / 4, 5.0, 7.0, 10.0, 20.0, 50.0)
"""Distances from the predicted mean, in standard deviations, at which the density is evaluated."""
_WIDEST, _NARROWEST = 10.0, 1e-6  # spreads of the predicted density that are told apart


class BalancedNLL(nn.Module):
    """-log p(y|x) - t log rho(y) + log Z(x), Z(x) the integral of p(.|x) rho^t (VIR:balanced).

    rho is the smoothed density of the training labels, at least `floor` times its mean over these labels;
    outside the bins it equals that floor. A larger floor emphasises rare labels less. ``t=0`` is the plain
    likelihood.
    """

    def __init__(
        self, bins: LabelBins, *, t: float = 1.0, floor: float = 0.05, kernel: str | None = "gaussian"
    ) -> None:
        super().__init__()
        if not 0 <= t < math.inf:
            raise ValueError(f"t must not be negative, got {t!r}")
        if not 0 <= floor <= 1:
            raise ValueError(f"floor must lie between 0 and 1, got {floor!r}")
        self.t = t
        known = bins.standardized()
        # Mirrored at the ends: labels that are balanced already have a flat density.
        density = smoothed_density(bins, kernel=kernel, boundary="reflect") / np.diff(known.edges)
        least = max(floor * float(bins.counts @ density) / float(bins.counts.sum()), 1e-30)
        steps = sorted({sign * step for step in _STEPS for sign in (-1, 1)})
        first, last = known.edges[[0, -1]]
        sides = [end + side for end in (first, last) for side in (-1e-4, 1e-4)]  # rho jumps at the ends
        for name, value in (
            ("centers", known.centers),
            ("points", [*known.centers, *sides]),
            ("ends", [first, last]),
            ("log_density", np.log(np.maximum(density, least))),
            ("log_least", np.log(least)),
            ("steps", steps),
        ):
            self.register_buffer(name, torch.as_tensor(value, dtype=torch.float32), persistent=False)
        self.centers: Tensor
        self.points: Tensor
        self.ends: Tensor
        self.log_density: Tensor
        self.log_least: Tensor
        self.steps: Tensor

    def log_rho(self, y: Tensor) -> Tensor:
        """Return log rho, linear between the centres of bins. y: (...) -> (...)"""
        y = y.to(self.centers)
        if len(self.centers) == 1:
            inside = self.log_density.expand_as(y)
        else:
            right = torch.bucketize(y, self.centers[1:-1]) + 1
            low, high = self.centers[right - 1], self.centers[right]
            share = ((y - low) / (high - low)).clamp(0, 1)
            inside = torch.lerp(self.log_density[right - 1], self.log_density[right], share)
        return torch.where((y >= self.ends[0]) & (y <= self.ends[1]), inside, self.log_least)

    def log_normalizer(self, prediction: Distribution) -> Tensor:
        """Return log Z, by the trapezoidal rule at the bins' centres and around each prediction. (N,)

        These labels do not carry gradients, so that the gradient is that of the densities at fixed labels.
        """
        with torch.no_grad():
            spread = prediction.variance.sqrt().clamp(_NARROWEST, _WIDEST)
            around = prediction.mean + spread * self.steps.unsqueeze(-1)  # (S, N)
            fixed = self.points.unsqueeze(-1).expand(-1, around.shape[1])
            labels = torch.cat([around, fixed]).sort(dim=0).values  # (K, N)
            gaps = labels.diff(dim=0)
            width = torch.cat([gaps[:1], gaps[1:] + gaps[:-1], gaps[-1:]]) / 2
            log_width = width.clamp_min(torch.finfo(width.dtype).tiny).log()
            tilt = self.t * self.log_rho(labels)
        log_mass = log_width - prediction.nll(labels)
        # Divided by the mass that the rule finds without rho: most of its error cancels.
        return (tilt + log_mass).logsumexp(0) - log_mass.logsumexp(0)

    def forward(self, prediction: Distribution, y: Tensor) -> Tensor:
        """y: (N,) -> (N,)"""
        return prediction.nll(y) - self.t * self.log_rho(y) + self.log_normalizer(prediction)


OBJECTIVES["balanced-nll"] = BalancedNLL
register(
    "balanced-nll",
    title="Balanced NLL",
    parts=Method(
        head=DEFAULT.head,
        head_options=DEFAULT.head_options,
        objective="balanced-nll",
        objective_options={"t": 1.0, "floor": 0.05},
        regularizer=0.04,
    ),
    uncertainty="aleatoric and epistemic",
    about=(
        "-log p(y|x) - t log rho(y) + log Z(x), with rho the smoothed density of training labels and Z the "
        "integral of p rho^t: a normal-inverse-gamma prediction under balanced labels (VIR:balanced; after "
        "Ren et al., Balanced MSE for Imbalanced Visual Regression, CVPR 2022)."
    ),
    search={"objective_options.t": Range(0.0, 1.0, log=False), "regularizer": Range(1e-3, 10.0)},
    explore={"objective_options.floor": (0.05, 0.01, 0.2)},
)
