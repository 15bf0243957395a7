"""Spreads of predictions."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy import stats

from tailwise.core.distributions import NIG, Mixture, Normal
from tailwise.core.label_prior import LabelDensity, emphasis
from tailwise.core.labels import LabelBins
from tailwise.uncertainty.spreads import sides, spread
from tests.prediction_samples import predicted

BINS = LabelBins.from_labels(np.repeat([0, 1, 2], [300, 50, 5]))  # many, medium, few


def test_spread_is_the_width_of_the_central_interval():
    df = np.concatenate([np.linspace(2, 60, 200), [1e3, 1e6, 1e9]])
    belief = NIG(torch.zeros(df.size, dtype=torch.float64), 2.0, torch.from_numpy(df / 2), 3.0)
    scale = np.sqrt(3.0 / (df / 2) * 1.5)
    expected = scale * stats.t.ppf(0.95, df) / stats.norm.ppf(0.95)
    np.testing.assert_allclose(spread(belief), expected, rtol=0.01)


def test_spread_of_a_normal_is_its_standard_deviation():
    assert spread(Normal(torch.zeros(2), torch.tensor([4.0, 9.0]))).tolist() == [2.0, 3.0]


def test_spread_of_a_mixture_counts_the_distance_between_its_members():
    pair = Mixture([Normal(torch.tensor([0.0]), 3.0), Normal(torch.tensor([2.0]), 3.0)])
    assert spread(pair).item() == 2.0


def test_spread_under_another_prior_is_that_of_the_interval():
    tilt = emphasis(LabelDensity.from_bins(BINS), 1.0)
    for kind in ("normal", "nig", "mixture"):
        tilted = tilt.apply(predicted(kind, 5, np.random.default_rng(0)))
        low, high = tilted.interval(0.9)
        np.testing.assert_allclose(spread(tilted), (high - low) / 2 / stats.norm.ppf(0.95))


def test_a_member_without_weight_does_not_count():
    parts = [Normal(torch.tensor([0.0]), 4.0), Normal(torch.tensor([0.0]), math.inf)]
    assert spread(Mixture(parts, torch.tensor([1.0, 0.0]))).item() == 2.0


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_spread_is_finite_and_positive_for_every_alpha(dtype):
    alpha = torch.logspace(-6, 30 if dtype == torch.float64 else 18, 200, dtype=dtype)
    found = spread(NIG(torch.zeros_like(alpha), 1.0, alpha, alpha))
    assert found.isfinite().all()
    assert (found > 0).all()


# --- coverage by simulation --------------------------------------------------------------------


def test_sides_are_those_of_the_quantiles_under_another_prior():
    tilted = emphasis(LabelDensity.from_bins(BINS), 1.0).apply(predicted("nig", 5, np.random.default_rng(0)))
    below, above = sides(tilted)
    lower, upper = tilted.interval(0.9)
    np.testing.assert_allclose(below, (tilted.point - lower) / stats.norm.ppf(0.95))
    np.testing.assert_allclose(above, (upper - tilted.point) / stats.norm.ppf(0.95))
    for side in sides(Normal(torch.zeros(2), 1.0)):
        assert side.tolist() == [1.0, 1.0]
