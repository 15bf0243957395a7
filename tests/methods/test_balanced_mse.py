"""Balanced MSE against numerical integration."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import integrate, stats

from tailwise.distributions.members import Normal
from tailwise.methods.balanced_mse import _label_mixture
from tests.methods.trained_methods import skewed_bins
from tests.networks.small_models import batch, loss_of


def test_bni_and_gai_equal_the_integral() -> None:
    """-log N(y; m, s^2) + log of the integral of N(y'; m, s^2) p(y') dy', computed numerically."""
    bins, noise = skewed_bins(), 0.4
    m, y = torch.tensor([-0.9, 0.3, 2.5]), torch.tensor([-1.0, 0.5, 2.0])
    for components in (None, 3):
        module = loss_of("balanced-mse", bins, noise=noise, components=components)
        ours = module(batch(Normal(m, 1.0), y)) / (2 * noise**2)
        share, center, spread = _label_mixture(bins, components)
        for i in range(3):
            if components is None:  # point masses at the bins
                normal = sum(p * stats.norm.pdf(c, m[i], noise) for p, c in zip(share, center, strict=True))
            else:
                parts = list(zip(share, center, spread, strict=True))

                def density(
                    t: float, at: float = m[i].item(), parts: list[tuple[float, ...]] = parts
                ) -> float:
                    label = sum(p * stats.norm.pdf(t, c, v**0.5) for p, c, v in parts)
                    return float(label * stats.norm.pdf(t, at, noise))

                normal = integrate.quad(density, -8, 12, limit=300, points=list(center))[0]
            expected = -stats.norm.logpdf(y[i], m[i], noise) + np.log(normal)
            # Ours leaves log sqrt(2 pi) out of both terms, where it cancels.
            assert ours[i].item() == pytest.approx(expected, abs=1e-4)


def test_bmc_is_a_cross_entropy_among_the_batch() -> None:
    bins = skewed_bins()
    m, y = torch.tensor([0.1, 1.0, -0.4]), torch.tensor([0.0, 1.5, -1.0])
    ours = loss_of("batch-mse", bins, noise=0.5)(batch(Normal(m, 1.0), y)) / (2 * 0.25)
    for i in range(3):
        likelihood = [stats.norm.pdf(y[j], m[i], 0.5) for j in range(3)]
        assert ours[i].item() == pytest.approx(-np.log(likelihood[i] / sum(likelihood)), abs=1e-5)
