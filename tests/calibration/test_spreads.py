"""Spreads of predictions."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import stats

from tailwise.calibration.spreads import sides, spread, standard_deviation
from tailwise.distributions.members import NIG, Mixture, Normal
from tailwise.distributions.truncation import Bounds
from tailwise.labels.bins import LabelBins
from tailwise.labels.prior import LabelDensity, emphasis
from tests.prediction_samples import predicted

BINS = LabelBins.from_labels(np.repeat([0, 1, 2], [300, 50, 5]))  # many, medium, few


def test_spread_is_the_width_of_the_central_interval():
    df = np.concatenate([np.linspace(2, 60, 200), [1e3, 1e6, 1e9]])
    belief = NIG(torch.zeros(df.size, dtype=torch.float64), 2.0, torch.from_numpy(df / 2), 3.0)
    scale = np.sqrt(3.0 / (df / 2) * 1.5)
    expected = scale * stats.t.ppf(0.95, df) / stats.norm.ppf(0.95)
    np.testing.assert_allclose(spread(belief), expected, rtol=0.01)


def test_spread_of_a_mixture_counts_the_distance_between_its_members():
    pair = Mixture([Normal(torch.tensor([0.0]), 3.0), Normal(torch.tensor([2.0]), 3.0)])
    assert spread(pair).item() == 2.0


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_spread_is_finite_and_positive_for_every_alpha(dtype):
    alpha = torch.logspace(-6, 30 if dtype == torch.float64 else 18, 200, dtype=dtype)
    found = spread(NIG(torch.zeros_like(alpha), 1.0, alpha, alpha))
    assert found.isfinite().all()
    assert (found > 0).all()


def beliefs(alpha: list[float]) -> NIG:
    return NIG(torch.tensor([1.0, 2.0, 9.0], dtype=torch.float64), 3.0, torch.tensor(alpha).double(), 2.0)


@pytest.mark.parametrize("kind", ["alone", "mixture", "tilted", "bounded"])
def test_standard_deviation_is_exact_unless_a_tail_is_very_heavy(kind):
    def predictions(alpha):
        own = beliefs(alpha)
        if kind == "mixture":
            own = Mixture([own, beliefs([4.0, 4.0, 4.0])], torch.tensor([0.3, 0.7]))
        if kind == "bounded":
            return Bounds(0.0).apply(own)
        return emphasis(LabelDensity.from_bins(BINS), 1.0).apply(own) if kind == "tilted" else own

    usual = predictions([1.25, 1.5, 4.0])
    np.testing.assert_array_equal(standard_deviation(usual), usual.std)
    heavy = predictions([1.0001, 0.9, 4.0])
    found = standard_deviation(heavy)
    assert heavy.std[0] > 20 * found[0] and heavy.std[1].isinf()
    np.testing.assert_allclose(found[2], heavy.std[2])
    low, high = heavy.interval(0.9)
    assert (((high - low) / found)[:2] > 0.9).all() and (((high - low) / found)[:2] < 3.5).all()
    torch.testing.assert_close(standard_deviation(heavy[:1]), found[:1])


# --- coverage by simulation --------------------------------------------------------------------


def test_sides_are_those_of_the_quantiles_under_another_prior():
    tilted = emphasis(LabelDensity.from_bins(BINS), 1.0).apply(predicted("nig", 5, np.random.default_rng(0)))
    below, above = sides(tilted)
    lower, upper = tilted.interval(0.9)
    np.testing.assert_allclose(below, (tilted.point - lower) / stats.norm.ppf(0.95))
    np.testing.assert_allclose(above, (upper - tilted.point) / stats.norm.ppf(0.95))
    for side in sides(Normal(torch.zeros(2), 1.0)):
        assert side.tolist() == [1.0, 1.0]
