"""VIR with several modes: a mixture by hand, one mode as VIR, and labels with two peaks."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import stats

from tailwise.distributions.members import NIG, Mixture
from tailwise.labels.bins import LabelBins
from tailwise.methods.modes import ModesHead
from tailwise.networks.heads import PseudoCountHead
from tailwise.networks.losses import Evidence
from tests.methods.trained_methods import skewed_bins
from tests.networks.small_models import batch

PRIOR = (0.2, 0.1, 1.5, 0.01)


def softplus(x: np.ndarray) -> np.ndarray:
    return np.asarray(np.log1p(np.exp(x)))


def test_the_mixture_equals_a_sum_over_modes_by_scipy() -> None:
    """Shares n_k / n, and a Student-t per mode from the posterior of its n_k pseudo-observations."""
    torch.manual_seed(0)
    head = ModesHead(4, skewed_bins(), modes=3, prior=PRIOR)
    z, w, y = torch.randn(5, 4), torch.rand(5) + 0.5, torch.randn(5)
    prediction = head(z, w)
    raw = (z @ head.linear.weight.T + head.linear.bias).detach().double().numpy()
    gamma0, nu0, alpha0, beta0 = PRIOR
    for i in range(5):
        shares = np.exp(raw[i, 7:]) / np.exp(raw[i, 7:]).sum()
        counted = w[i].item() * shares * (2 + softplus(raw[i, 0]))
        nu, alpha = nu0 + counted, alpha0 + counted / 2
        gamma = (gamma0 * nu0 + counted * raw[i, 1:4]) / nu
        beta = beta0 + gamma0**2 * nu0 / 2 + softplus(raw[i, 4:7])
        density = stats.t.pdf(y[i].item(), 2 * alpha, gamma, np.sqrt(beta * (1 + nu) / (nu * alpha)))
        assert prediction.nll(y)[i].item() == pytest.approx(-np.log(shares @ density), rel=1e-4)
        assert prediction.mean[i].item() == pytest.approx(shares @ gamma, rel=1e-4, abs=1e-5)


def test_one_mode_is_vir() -> None:
    torch.manual_seed(0)
    one, vir = ModesHead(4, skewed_bins(), modes=1), PseudoCountHead(4, skewed_bins())
    with torch.no_grad():
        vir.linear.weight.copy_(one.linear.weight[[0, 1, 2]])
        vir.linear.bias.copy_(one.linear.bias[[0, 1, 2]])
    z, w, y = torch.randn(6, 4), torch.rand(6), torch.randn(6)
    several, single = one(z, w), vir(z, w)
    torch.testing.assert_close(several.nll(y), single.nll(y))
    evidence = Evidence(4, skewed_bins())
    torch.testing.assert_close(evidence(batch(several, y)), evidence(batch(single, y)))


def test_evidence_counts_the_mode_that_a_label_came_from() -> None:
    modes = NIG(torch.tensor([[0.0], [9.0]]), torch.tensor([[2.0], [3.0]]), 5.0, torch.tensor(0.01))
    cost = Evidence(1, skewed_bins())(batch(Mixture(modes), torch.tensor([8.5])))
    assert cost.item() == pytest.approx((3 + 2 * 5) * 0.5, rel=1e-3)


def test_locations_start_at_quantiles_of_the_labels() -> None:
    bins = LabelBins.from_labels(np.repeat([0.0, 1.0, 50.0, 100.0], [60, 1, 1, 40]))
    starts = ModesHead(2, bins, modes=2).linear.bias[1:3].detach().numpy() * bins.scale + bins.location
    assert starts[0] < 2 and starts[1] > 90
