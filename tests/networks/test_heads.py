"""Latents, perturbations and heads by hand, and VIR:posterior against Bayes' rule itself."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from torch import Tensor, nn

from tailwise.distributions.members import NIG, Normal
from tailwise.networks.heads import (
    PERTURBATIONS,
    Dropout,
    EvidentialHead,
    GaussianHead,
    GaussianLatent,
    LatentVariance,
    PointHead,
    PseudoCountHead,
    RelativeNoise,
    nig_posterior,
)
from tailwise.networks.vir import VIR
from tests.networks.small_models import FEW, PRIOR, build, data, make_part, tail


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


# -- latents -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1.0, 300.0])
def test_the_latent_is_two_linear_maps_by_hand(size: float) -> None:
    """z_mean is linear in the features, z_var the softplus of another map, positive however far it goes."""
    torch.manual_seed(0)
    latent = GaussianLatent(5, dim=4).double()
    features = size * torch.randn(7, 5, dtype=torch.float64)
    z_mean, z_var = latent(features)
    assert z_var is not None
    for i in range(7):
        for d in range(4):
            mean, raw = (
                sum(layer.weight[d, k].item() * features[i, k].item() for k in range(5))
                + layer.bias[d].item()
                for layer in (latent.mean, latent.var)
            )
            assert z_mean[i, d].item() == pytest.approx(mean)
            assert z_var[i, d].item() == pytest.approx(np.logaddexp(0, raw), rel=1e-9, abs=1.1e-6)
    assert (z_var > 0).all() and torch.isfinite(z_var).all()
    # it starts with little noise
    assert latent(torch.zeros(1, 5, dtype=torch.float64))[1].max() < 0.06


def test_features_can_be_the_latents_mean_as_they_are() -> None:
    """Without smoothing, VIR is then its predictor alone, bit for bit."""
    x, y = data(40)
    free: dict[str, Any] = {"latent.dim": None, "smoothing": None}
    model = build(y, **free, **{"latent.mean": "features"})
    torch.manual_seed(1)
    options = {"head": {"prior": PRIOR, "sharpness": 0.5}, "latent": "point", "kl": None, "smoothing": None}
    point = VIR(nn.Linear(3, 5), 5, model.bins, **options).double()
    point.load_state_dict({k: v for k, v in model.state_dict().items() if ".latent." not in k})
    features = model.backbone(x)
    mean, var = tail(model).latent(features)
    assert torch.equal(mean, features) and var is not None and bool((var > 0).all())
    own, alone = model.eval()(x), point.eval()(x)
    for name in NIG.names:
        assert torch.equal(getattr(own, name), getattr(alone, name))
    assert not [name for name, _ in model.named_parameters() if "latent.mean" in name]


# -- perturbations -----------------------------------------------------------------------------------


Z_MEAN, Z_VAR = torch.tensor([[3.0, 4.0], [0.0, 2.0]]), torch.tensor([[4.0, 1.0], [0.0, 9.0]])
DRAWN = torch.tensor([1.0, -2.0])


def test_perturbations_by_hand() -> None:
    assert LatentVariance()(Z_MEAN, Z_VAR, DRAWN).tolist() == [[5.0, 2.0], [0.0, -4.0]]
    size = [12.5**0.5, 2**0.5]  # root mean square of each row
    want = [[3 + 0.1 * size[0], 4 - 0.2 * size[0]], [0.1 * size[1], 2 - 0.2 * size[1]]]
    torch.testing.assert_close(RelativeNoise(scale=0.1)(Z_MEAN, None, DRAWN), torch.tensor(want))
    assert Dropout(scale=0.5)(Z_MEAN, None, torch.tensor([2.0, 0.0])).tolist() == [[6.0, 0.0], [0.0, 0.0]]


def test_draws_have_their_distribution_and_are_seeded() -> None:
    for name in PERTURBATIONS:
        kind = make_part("perturbation", name, samples=200)
        drawn, again = (kind.draw(50, torch.Generator().manual_seed(0)) for _ in range(2))
        assert torch.equal(drawn, again) and drawn.shape == (200, 50)
        assert drawn.mean().item() == pytest.approx(float(name == "dropout"), abs=0.05)
    masks = Dropout(samples=200, scale=0.25).draw(50, torch.Generator().manual_seed(0))
    torch.testing.assert_close(masks.unique(), torch.tensor([0.0, 1 / 0.75]))
    assert (masks == 0).double().mean().item() == pytest.approx(0.25, abs=0.02)
    with pytest.raises(ValueError, match=r"perturbation.scale must be a number in \[0, 1\), got 1\.5"):
        make_part("perturbation", "dropout", scale=1.5)
