"""What all predictive distributions share: levels and scales are checked, parameters taken as they are."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from tailwise.core.distributions import NIG, Mixture, Normal
from tests.prediction_samples import double, each_kind


def test_python_floats_and_broadcasting() -> None:
    assert NIG(0.0, 1.0, 1.0, 1.0).shape == ()
    assert NIG(0.0, 1.0, 1.0, 1.0).nll(0.0).item() == pytest.approx(math.log(4), abs=1e-6)
    assert Normal(0, 1).nll(0).item() == pytest.approx(0.5 * math.log(2 * math.pi), abs=1e-6)
    dist = NIG(torch.zeros(4, 1), torch.ones(3), 2.0, torch.tensor(1.0))
    assert dist.shape == (4, 3)
    for value in (
        dist.mean,
        dist.variance,
        dist.std,
        dist.aleatoric,
        dist.epistemic,
        dist.nll(0.5),
        dist.cdf(0.5),
    ):
        assert value.shape == (4, 3)
    assert Normal(torch.zeros(5), 1.0).variance.shape == (5,)
    assert Normal(torch.zeros(5), 1.0).nll(torch.zeros(2, 5)).shape == (2, 5)


@each_kind
def test_every_member_has_the_shape_of_the_distribution(dist: Any) -> None:
    assert tuple(dist.shape) == (3,)
    y = double([0.1, 0.2, 0.3])
    lower, upper = dist.interval(0.9)
    for value in (
        dist.mean,
        dist.variance,
        dist.std,
        dist.aleatoric,
        dist.epistemic,
        dist.nll(y),
        dist.cdf(y),
        dist.quantile(0.3),
        lower,
        upper,
    ):
        assert value.shape == (3,)
        assert value.dtype == torch.float64
        assert torch.isfinite(value).all()
    assert dist.sample(7).shape == (7, 3)


@each_kind
@pytest.mark.parametrize("coverage", [-0.1, 1.5, 90])
def test_impossible_coverage_is_an_error(dist: Any, coverage: float) -> None:
    with pytest.raises(ValueError, match="coverage"):
        dist.interval(coverage)


@each_kind
def test_rescale_by_zero_is_an_error(dist: Any) -> None:
    with pytest.raises(ValueError, match="scale"):
        dist.rescale(1.0, 0.0)


@each_kind
def test_python_numbers_are_not_rounded_to_float32(dist: Any) -> None:
    moved = dist.rescale(123456789.0, 1.0)
    torch.testing.assert_close(moved.nll(123456789.3), moved.nll(double(123456789.3)), rtol=0, atol=0)
    torch.testing.assert_close(moved.cdf(123456789.3), moved.cdf(double(123456789.3)), rtol=0, atol=0)
    torch.testing.assert_close(dist.quantile(0.1), dist.quantile(double(0.1)), rtol=0, atol=0)


@each_kind
def test_impossible_levels_are_an_error(dist: Any) -> None:
    for q in (-0.1, 1.1, 90, math.nan):
        with pytest.raises(ValueError, match="quantile"):
            dist.quantile(q)


@each_kind
@pytest.mark.parametrize("index", [0, slice(1, 3), [2, 0], torch.tensor([True, False, True]), ..., None])
def test_indexing_takes_elements(dist: Any, index: Any) -> None:
    part, y = dist[index], double([0.3, -1.0, 2.0])
    torch.testing.assert_close(part.mean, dist.mean[index])
    torch.testing.assert_close(part.variance, dist.variance[index])
    torch.testing.assert_close(part.epistemic, dist.epistemic[index])
    torch.testing.assert_close(part.nll(y[index]), dist.nll(y)[index])
    torch.testing.assert_close(part.cdf(y[index]), dist.cdf(y)[index])


def test_indexing_reaches_broadcast_parameters_and_weights() -> None:
    dist = NIG(torch.zeros(4, 1), torch.ones(3), 2.0, 1.0)
    assert dist[1].shape == (3,)
    assert dist[1, 2].shape == ()
    assert dist[:, 0].shape == (4,)
    assert Normal(torch.zeros(5), 1.0)[2].variance.item() == 1.0
    weights = double([[1.0, 0.0, 0.5], [0.0, 1.0, 0.5]])
    mixture = Mixture([Normal(torch.zeros(3).double(), 1.0), Normal(torch.ones(3).double(), 1.0)], weights)
    torch.testing.assert_close(mixture[1:].mean, double([1.0, 0.5]))
    assert mixture[0].mean.item() == 0.0


@each_kind
def test_map_applies_to_every_parameter(dist: Any) -> None:
    single = dist.map(lambda t: t.float())
    assert type(single) is type(dist)
    assert single.shape == dist.shape
    assert single.mean.dtype == single.variance.dtype == single.nll(torch.zeros(3)).dtype == torch.float32
    torch.testing.assert_close(single.mean.double(), dist.mean, rtol=1e-6, atol=1e-6)
    leaves: list[Tensor] = []

    def attach(t: Tensor) -> Tensor:
        leaves.append(t.clone().requires_grad_())
        return leaves[-1]

    attached = dist.map(attach)
    assert attached.nll(torch.zeros(3)).requires_grad
    assert not attached.map(Tensor.detach).nll(torch.zeros(3)).requires_grad
    torch.testing.assert_close(attached.map(Tensor.detach).variance, dist.variance)


def test_distributions_cannot_be_changed() -> None:
    dist = Normal(double([0.0]), 1.0)
    with pytest.raises(AttributeError, match="a distribution cannot be changed"):
        dist.mean = double([1.0])  # type: ignore[misc]
    with pytest.raises(AttributeError, match="a distribution cannot be changed"):
        NIG(double([0.0]), 1.0, 2.0, 1.0).beta = double([1.0])
