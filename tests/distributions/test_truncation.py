"""Bounded predictions against numerical integration."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from tailwise import metrics as m
from tailwise.distributions.members import NIG, Normal
from tailwise.distributions.tilt import Tilted
from tailwise.distributions.truncation import LEAST_DISTANCE, Bounds, bounds_of
from tailwise.labels.bins import LabelBins
from tailwise.labels.prior import LabelDensity, emphasis
from tests.label_samples import skewed
from tests.prediction_samples import KINDS, Integral, close, doubles, make

TRAINING = LabelDensity.from_bins(LabelBins.from_labels(skewed(0)))
BOUNDS = {"low": Bounds(-0.5), "high": Bounds(high=1.5), "both": Bounds(-1.0, 2.0), "far": Bounds(-90.0, 0.5)}


@pytest.fixture(params=BOUNDS)
def bounds(request: pytest.FixtureRequest) -> Bounds:
    return BOUNDS[request.param]


@pytest.mark.parametrize("t", [0.8])
@pytest.mark.parametrize("kind", KINDS)
def test_everything_agrees_with_the_integral_of_one_density(kind: str, bounds: Bounds, t: float) -> None:
    base = make(kind, 3, seed=5)[0]
    bounded = bounds.apply(emphasis(TRAINING, t).apply(base))
    assert isinstance(bounded, Tilted)
    y = doubles(0.1, -0.4, 0.5)
    for row in range(3):
        exact = Integral(bounded.base, bounded.change, row, (float(y[row]),))
        mean = exact.mean(lambda at: at)
        close(bounded.mean[row], mean, rtol=1e-6, atol=1e-7)
        close(bounded.cdf(y)[row], exact.below(float(y[row])), rtol=1e-7, atol=1e-9)
        if kind in ("normal", "mixture") or (bounds.low > -90 and bounds.high < math.inf):
            close(bounded.variance[row], exact.mean(lambda at: (at - mean) ** 2), rtol=1e-5)  # noqa: B023
        close(bounded.deviation(y)[row], exact.mean(lambda at: np.abs(at - y[row].item())), rtol=1e-5)  # noqa: B023
        for q in (0.05, 0.5, 0.95):
            found = float(bounded.quantile(q)[row])
            assert bounds.low <= found <= bounds.high
            close(bounded.cdf(found)[row], q, rtol=1e-7)
    # The density integrates to one between the bounds, and there is none beyond.
    low, high = max(bounds.low, -400.0), min(bounds.high, 400.0)
    grid = torch.linspace(low, high, 40_001, dtype=torch.float64)
    density = bounded[:1].nll(grid[:, None]).neg().exp()[:, 0]
    close(torch.trapezoid(density, grid), bounded.cdf(high)[0] - bounded.cdf(low)[0], rtol=1e-3)
    for beyond in (bounds.low - 1e-9, bounds.high + 1e-9):
        if math.isfinite(beyond):
            assert bounded.nll(beyond).isposinf().all()


@pytest.mark.parametrize("kind", KINDS)
def test_the_mean_stays_if_it_lies_within(kind: str, bounds: Bounds) -> None:
    base = make(kind, 300, seed=1)[0]
    weight, mean, scale, _ = base.members()
    margin = (LEAST_DISTANCE * scale).clamp(max=(bounds.high - bounds.low) / 10)
    wanted = torch.minimum(torch.maximum(mean, bounds.low + margin), bounds.high - margin)
    close(bounds.apply(base).mean, (weight * wanted).sum(0), rtol=0, atol=1e-6)


def test_half_a_normal_by_hand() -> None:
    """The mean of half a Normal of scale 1 is sqrt(2 / pi), so this one keeps location 0 and scale 1."""
    half = Bounds(0.0).apply(Normal(doubles(math.sqrt(2 / math.pi)), 1.0))
    close(half.variance, [1 - 2 / math.pi], rtol=1e-9)
    close(half.quantile(0.5), [0.6744897501960817], rtol=1e-7)
    close(half.nll(0.0), [0.5 * math.log(2 * math.pi) - math.log(2)], rtol=1e-9)
    assert half.quantile(0.0).item() == 0
    assert half.quantile(1.0).item() == math.inf


def test_both_bounds_are_possible_labels_and_samples_stay_between() -> None:
    bounded = Bounds(0.0, 10.0).apply(NIG(doubles(-5.0, 4.0, 99.0), 1.0, 3.0, 4.0))
    assert bounded.nll(0.0).isfinite().all() and bounded.nll(10.0).isfinite().all()
    assert bounded.cdf(10.0).tolist() == [1.0] * 3
    drawn = bounded.sample(500, torch.Generator().manual_seed(0))
    assert drawn.min() >= 0 and drawn.max() <= 10
    close(drawn.mean(0), bounded.mean, rtol=0.15)
    assert math.isfinite(m.crps(bounded, doubles(0.0, 5.0, 10.0)))


def test_between_two_bounds_any_student_t_has_a_variance() -> None:
    d = NIG(doubles(1.0, 1.0, 1.0), 1.0, doubles(0.8, 1.0, 1.2), 1.0)
    bounded = Bounds(0.0, 3.0).apply(d)
    for row in range(3):
        exact = Integral(bounded.base, bounded.change, row)
        mean = exact.mean(lambda at: at)
        close(bounded.variance[row], exact.mean(lambda at: (at - mean) ** 2), rtol=1e-5)  # noqa: B023


@pytest.mark.parametrize("kind", KINDS)
def test_scaling_and_shifting(kind: str, bounds: Bounds) -> None:
    base = make(kind, 20, seed=3)[0]
    once = bounds.apply(base)
    moved = bounds.rescale(7.0, 3.0).apply(base.rescale(7.0, 3.0))
    for a, b in ((once.mean, moved.mean), (once.quantile(0.9), moved.quantile(0.9))):
        close(b, 3 * a + 7, rtol=1e-6)
    close(once.rescale(7.0, 3.0).mean, moved.mean, rtol=1e-6)


def test_what_bounds_may_be() -> None:
    y = np.array([1.0, 4.0])
    assert bounds_of(None, y) == bounds_of((None, math.inf), y) == Bounds()
    assert bounds_of("observed", y) == Bounds(1.0, 4.0)
    assert bounds_of("observed", y[:1]) == Bounds()
    assert bounds_of((0, None), y) == Bounds(0.0)
    for wrong in ("seen", 3, (1, 2, 3), ("a", None), (math.nan, 1)):
        with pytest.raises(ValueError, match="bounds must be None, 'observed' or a pair"):
            bounds_of(wrong, y)
    with pytest.raises(ValueError, match="low end below the high end, got 2 and 1"):
        bounds_of((2, 1), y)
    with pytest.raises(ValueError, match=r"price is -3 in row 1, below the bound 0 \(2 such rows\)"):
        Bounds(0.0, 9.0).check([1.0, -3.0, 12.0], "price")
