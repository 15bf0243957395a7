"""Heads and VIR:posterior against loops and against Bayes' rule itself."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from torch import Tensor, nn

from tailwise.distributions.members import NIG, Normal
from tailwise.networks.heads import (
    EvidentialHead,
    GaussianHead,
    PointHead,
    PseudoCountHead,
    nig_posterior,
)
from tests.networks.small_models import FEW

PRIORS = [(0.0, 0.0, 0.3, 0.0), (0.0, 1.0, 1.5, 1.0), (-0.7, 2.5, 3.0, 0.4)]


def softplus(x: float, beta: float = 1.0) -> float:
    """log(1 + exp(beta x)) / beta, for numbers that do not overflow."""
    return math.log1p(math.exp(beta * x)) / beta


def exact(prior: tuple[float, ...]) -> NIG:
    return NIG(*(torch.tensor(p, dtype=torch.float64) for p in prior))


def raw_outputs(head: nn.Module, z: Tensor) -> list[list[float]]:
    """The linear layer of a head by hand, row by row."""
    weight, bias = (p.detach().double().tolist() for p in (head.linear.weight, head.linear.bias))
    return [
        [sum(a * b for a, b in zip(row, line, strict=True)) + c for line, c in zip(weight, bias, strict=True)]
        for row in z.double().tolist()
    ]


@settings(deadline=None, derandomize=True, max_examples=15)
@given(
    st.lists(st.floats(-3, 3), min_size=1, max_size=8),
    st.tuples(st.floats(-2, 2), st.floats(0.1, 4), st.floats(0.5, 4), st.floats(0.1, 3)),
)
def test_posterior_is_what_bayes_rule_gives_for_observations(
    u: list[float], prior: tuple[float, float, float, float]
) -> None:
    """Prior times likelihood over posterior does not depend on the mean and variance.

    The observations enter as psi = mean(u) and phi = (sum u^2 - gamma^2 nu) / 2.
    """
    gamma0, nu0, *_ = prior
    count, psi = len(u), float(np.mean(u))
    nu = nu0 + count
    gamma = (gamma0 * nu0 + sum(u)) / nu
    phi = (sum(v * v for v in u) - gamma**2 * nu) / 2
    one = torch.ones(1, dtype=torch.float64)
    belief = nig_posterior(exact(prior), count * one, psi * one, phi * one)
    got = [p.item() for p in belief.parameters]

    def log_density(mu: float, var: float, g: float, k: float, a: float, b: float) -> float:
        return stats.norm.logpdf(mu, g, math.sqrt(var / k)) + stats.invgamma.logpdf(var, a, scale=b)

    evidence = []
    for mu, var in [(-1.3, 0.4), (0.0, 1.0), (0.6, 2.5), (2.0, 0.9)]:
        likelihood = stats.norm.logpdf(u, mu, math.sqrt(var)).sum()
        evidence.append(log_density(mu, var, *prior) + likelihood - log_density(mu, var, *got))
    np.testing.assert_allclose(evidence, evidence[0], rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize("sharpness", [1.0, 0.1])
@pytest.mark.parametrize("weighted", [False, True])
def test_pseudo_count_head_by_hand(sharpness: float, weighted: bool) -> None:
    torch.manual_seed(1)
    prior = (0.5, 1.0, 1.5, 0.25)
    head = PseudoCountHead(4, FEW, prior=prior, sharpness=sharpness).double()
    z, w = torch.randn(9, 4, dtype=torch.float64), torch.rand(9, dtype=torch.float64) + 0.5
    belief = head(z, w if weighted else None)
    assert isinstance(belief, NIG)
    for i, (raw_n, psi, raw_phi) in enumerate(raw_outputs(head, z)):
        n, phi = 2 + softplus(raw_n, sharpness), softplus(raw_phi, sharpness)
        assert n >= 2
        count = n * w[i].item() if weighted else n
        want = ((0.5 + count * psi) / (1 + count), 1 + count, 1.5 + count / 2, 0.25 + 0.125 + phi)
        assert [p[i].item() for p in belief.parameters] == pytest.approx(want, rel=1e-5, abs=1e-5)


def test_other_heads_by_hand() -> None:
    torch.manual_seed(3)
    z = torch.randn(6, 3, dtype=torch.float64)
    point, gaussian = PointHead(3, FEW).double(), GaussianHead(3, FEW).double()
    evidential = EvidentialHead(3, FEW, sharpness=0.5, min_alpha=1.0).double()
    for w in (None, torch.full((6,), 9.0)):  # none of these reads the weights
        flat, normal, nig = point(z, w), gaussian(z, w), evidential(z, w)
        assert isinstance(flat, Normal) and isinstance(normal, Normal) and isinstance(nig, NIG)
        for i, (mean,) in enumerate(raw_outputs(point, z)):
            assert (flat.mean[i].item(), flat.variance[i].item()) == pytest.approx((mean, 1.0))
        for i, (mean, raw) in enumerate(raw_outputs(gaussian, z)):
            want = (mean, softplus(raw))
            assert (normal.mean[i].item(), normal.variance[i].item()) == pytest.approx(want, abs=1e-5)
        for i, (gamma, nu, alpha, beta) in enumerate(raw_outputs(evidential, z)):
            want4 = (gamma, softplus(nu, 0.5), 1 + softplus(alpha, 0.5), softplus(beta, 0.5))
            assert [p[i].item() for p in nig.parameters] == pytest.approx(want4, abs=1e-5)
    assert (EvidentialHead(3, FEW)(z.float()).alpha > 1.5).all()
