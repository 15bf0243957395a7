"""The CRPS against numerical integration and values derived by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy import stats

from tailwise.core import crps as m
from tailwise.core.distributions import NIG, Mixture, Normal
from tailwise.core.scores import crps
from tests.prediction_samples import KINDS, at_zero, make


def integrated_crps(cdf, y, scales):
    """CRPS as the integral of (F(t) - 1[t >= y])^2, by Gauss-Legendre between many knots."""
    reach = np.concatenate([-np.geomspace(1e-2, 1e6, 60)[::-1], [0], np.geomspace(1e-2, 1e6, 60)])
    knots = np.unique(np.concatenate([[y], *(c + s * reach for c, s in scales)]))
    nodes, weights = np.polynomial.legendre.leggauss(12)
    low, high = knots[:-1, None], knots[1:, None]
    t = (low + high) / 2 + (high - low) / 2 * nodes
    return float(((high - low) / 2 * weights * (cdf(t) - (t >= y)) ** 2).sum())


def scipy_members(predicted):
    """Frozen scipy distributions of one prediction, with their weights."""
    if isinstance(predicted, Mixture):
        members = [d for k in range(3) for d, _ in scipy_members(predicted.components[k])]
        return list(zip(members, predicted.weights[:, 0].tolist(), strict=True))
    if isinstance(predicted, Normal):
        return [(stats.norm(predicted.mean.item(), predicted.std.item()), 1.0)]
    a, b, nu = predicted.alpha.item(), predicted.beta.item(), predicted.nu.item()
    return [(stats.t(2 * a, predicted.mean.item(), math.sqrt(b * (1 + nu) / (nu * a))), 1.0)]


@pytest.mark.parametrize("kind", KINDS)
def test_equals_numerical_integration(kind):
    predicted, y = make(kind, 8, seed=3)
    y[0], y[1] = 50.0, predicted.mean[1]  # far out, and exactly at the mean
    for i in range(8):
        one = predicted[i : i + 1]
        members = scipy_members(one)
        places = [(d.median(), d.ppf(0.75) - d.ppf(0.25)) for d, _ in members]
        exact = integrated_crps(lambda t, ds=members: sum(w * d.cdf(t) for d, w in ds), y[i].item(), places)
        tolerance = 2e-4 * one.std.item() if kind == "mixture of nig" else 1e-6 * exact
        assert crps(one, y[i : i + 1]) == pytest.approx(exact, abs=tolerance)


def test_of_a_mixture_of_equal_members_is_theirs():
    for kind, tolerance in (("normal", 1e-12), ("nig", 2e-3)):
        member, y = make(kind, 50)
        got, expected = crps(Mixture([member] * 20), y), crps(member, y)
        assert got == pytest.approx(expected, rel=tolerance)


def test_of_a_mixture_does_not_depend_on_chunks(monkeypatch):
    predicted, y = make("mixture of nig", 40)
    whole = crps(predicted, y)
    monkeypatch.setattr("tailwise.core.crps._CHUNK", 1000)
    assert crps(predicted, y) == pytest.approx(whole, rel=1e-12)


def test_by_hand():
    # Normal at its mean: (sqrt(2) - 1) / sqrt(pi); many degrees of freedom make a t the same.
    expected = (math.sqrt(2) - 1) / math.sqrt(math.pi)
    assert crps(*at_zero([0.0])) == pytest.approx(expected)
    almost_normal = NIG(torch.zeros(1).double(), 1e9, 1e9, 1e9)
    assert crps(almost_normal, [0.0]) == pytest.approx(expected, rel=1e-6)
    assert math.isnan(crps(NIG(torch.zeros(1).double(), 1.0, 0.5, 1.0), [0.0]))  # Cauchy


def test_of_points_is_the_absolute_error():
    predicted, y = at_zero([1.0, -3.0], 0.0)
    assert crps(predicted, y) == 2
    assert crps(Mixture([predicted, predicted]), y) == 2


def test_of_an_unknown_kind_is_refused():
    with pytest.raises(TypeError, match="CRPS supports Normal, NIG and mixtures of them, not object"):
        m._student(object())
