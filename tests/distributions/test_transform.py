"""Transformed predictions against integration, and transforms as functions."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy import integrate, stats
from sklearn.preprocessing import FunctionTransformer, QuantileTransformer

from tailwise.distributions.members import NIG, Mixture, Normal, concatenate, pooled
from tailwise.distributions.tilt import Tilt
from tailwise.distributions.transform import Identity, Log, Tabulated, Transform, Transformed, YeoJohnson
from tailwise.distributions.truncation import Bounds
from tests.prediction_samples import doubles

LABELS = np.exp(np.random.default_rng(0).normal(size=400))
SQRT = FunctionTransformer(np.sqrt, np.square)
TRANSFORMS = {
    "log": Log.of(LABELS),
    "log with zeros": Log.of(np.append(LABELS, 0.0)),
    "yeo-johnson": YeoJohnson.of(LABELS - 2),
    "yeo-johnson, left": YeoJohnson.of(2 - LABELS),
    "own": Tabulated.of(SQRT, LABELS),
    "rescaled": Log.of(LABELS).rescale((1.0, 3.0), (-2.0, 0.5)),
}


@pytest.fixture(params=TRANSFORMS)
def transform(request: pytest.FixtureRequest) -> Transform:
    return TRANSFORMS[request.param]


def test_labels_go_there_and_back(transform: Transform) -> None:
    z = np.linspace(transform.low, transform.high, 50)[1:-1]
    y = transform.labels(z)
    assert (np.diff(y) > 0).all()
    np.testing.assert_allclose(transform.latents(y), z, rtol=1e-7, atol=1e-9)
    middle, step = (y[1:] + y[:-1]) / 2, 1e-6 * np.diff(y)
    slope = (transform.latents(middle + step) - transform.latents(middle - step)) / (2 * step)
    log_slope = transform.log_slope(torch.from_numpy(middle)).numpy()
    knots = isinstance(transform, Tabulated)  # its slope jumps at knots
    assert (np.abs(log_slope - np.log(slope)) < 1e-5).mean() > (0.8 if knots else 0.99)


def test_a_lognormal_is_scipys() -> None:
    predicted = Transformed(Normal(doubles(0.3, -1.0), doubles(0.2, 0.1)), Log(-40.0, 40.0))
    exact = stats.lognorm(s=np.sqrt([0.2, 0.1]), scale=np.exp([0.3, -1.0]))
    y = doubles(0.7, 0.5)
    np.testing.assert_allclose(predicted.nll(y), -exact.logpdf(y.numpy()))
    np.testing.assert_allclose(predicted.cdf(y), exact.cdf(y.numpy()))
    np.testing.assert_allclose(predicted.quantile(0.9), exact.ppf(0.9))
    np.testing.assert_allclose(predicted.mean, exact.mean(), rtol=1e-4)
    np.testing.assert_allclose(predicted.variance, exact.var(), rtol=1e-2)
    assert torch.equal(predicted.point, predicted.median)
    assert predicted.nll(doubles(-1.0, 0.0)).tolist() == [math.inf, math.inf]


def test_crps_is_the_integral_of_the_cdf() -> None:
    inner = Mixture([NIG(doubles(0.0), 2.0, 3.0, 0.5), NIG(doubles(1.0), 1.0, 2.0, 0.3)])
    predicted = Log.of(LABELS).apply(Tilt(np.array([0.4]), np.log([1.0, 3.0])).apply(inner))
    y, top = 1.7, float(np.exp(Log.of(LABELS).high))

    def square(at: float) -> float:
        return (predicted.cdf(doubles(at)).item() - (at >= y)) ** 2

    exact = sum(integrate.quad(square, *ends, limit=200)[0] for ends in ((0, y), (y, 10), (10, top)))
    assert predicted.crps(doubles(y)).item() == pytest.approx(exact, rel=0.03)


def test_many_predictions_are_joined_and_cut() -> None:
    log = Log.of(LABELS)
    one, other = (log.apply(Normal(doubles(*mean), doubles(1.0, 2.0))) for mean in ((0, 1), (2, 3)))
    both = concatenate([one, other])
    assert both.shape == (4,) and torch.equal(both[2:].median, other.median)
    assert torch.equal(pooled([one, other]).median, doubles(1.0, 2.0).exp())
    moved = one.rescale(5.0, 2.0)
    np.testing.assert_allclose(moved.quantile(0.3), 5 + 2 * one.quantile(0.3))
    np.testing.assert_allclose(moved.nll(5 + 2 * doubles(1.0, 2.0)), one.nll(doubles(1.0, 2.0)) + math.log(2))


def test_predictions_stay_near_the_labels(transform: Transform) -> None:
    wide = transform.apply(NIG(doubles(0.0, 1.0), 1.0, 0.6, 50.0))  # a Student-t without a mean
    for value in (wide.mean, wide.variance, wide.crps(doubles(1.0, 1.0)), wide.quantile(1 - 1e-9)):
        assert value.isfinite().all()


def test_bounds_and_weights_of_labels_are_those_of_latent_labels() -> None:
    log = Log.of(LABELS)
    assert log.bounds(Bounds(0.0, math.e)) == Bounds(-math.inf, 1.0) and log.bounds(Bounds()) == Bounds()
    tilt = log.tilt(Tilt(np.array([-1.0, 0.0, 1.0]), np.arange(4.0)))
    assert tilt.cuts.tolist() == [0.0] and tilt.log_weights.tolist() == [2.0, 3.0]
    assert Identity().apply(normal := Normal(doubles(0.0), 1.0)) is normal


def test_what_cannot_be_transformed_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"never negative.*in row 1.*yeo-johnson"):
        Log.of(np.array([1.0, -2.0]))
    with pytest.raises(ValueError, match="must increase"):
        Tabulated.of(FunctionTransformer(np.negative, np.negative), LABELS)
    with pytest.raises(ValueError, match="finite number"):
        Tabulated.of(FunctionTransformer(lambda y: y + np.inf, check_inverse=False), LABELS)
    assert Tabulated.of(QuantileTransformer(n_quantiles=50), LABELS).high == pytest.approx(1.0)
