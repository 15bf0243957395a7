"""Latents: what they make of features."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from tailwise.core.distributions import NIG
from tailwise.core.labels import LabelBins
from tailwise.networks.latents import LATENTS, GaussianLatent, Latent, PointLatent
from tailwise.networks.model import TailModel
from tailwise.networks.parts import Method
from tests.networks.small_models import build, data


@pytest.mark.parametrize("size", [1.0, 300.0])
def test_the_latent_is_two_linear_maps_by_hand(size: float) -> None:
    """z_mean is linear in the features, z_var the softplus of another map, positive however far it goes."""
    torch.manual_seed(0)
    latent = GaussianLatent(5, 4).double()
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
    """Without variance and smoothing VIR is then its predictor alone, bit for bit."""
    x, y = data(40)
    model = build(y, latent_dim=None, latent_mean="features", smoothing=None)
    point = build(y, latent_dim=None, latent="point", smoothing=None, kl=0.0)
    point.load_state_dict({k: v for k, v in model.state_dict().items() if not k.startswith("latent.")})
    mean, var, features = model._rows(x)
    assert torch.equal(mean, features) and var is not None and bool((var > 0).all())
    own, alone = model.eval()(x), point.eval()(x)
    for name in NIG.names:
        assert torch.equal(getattr(own, name), getattr(alone, name))
    assert not [name for name, _ in model.named_parameters() if name.startswith("latent.mean")]
    with pytest.raises(ValueError, match="features of size 5 cannot be the mean of a latent of size 4"):
        build(y, latent_mean="features")
    with pytest.raises(ValueError, match="unknown latent_mean 'feature'; did you mean 'features'"):
        Method(latent_mean="feature")  # type: ignore[arg-type]


def test_a_latent_can_start_as_the_features_with_almost_no_noise() -> None:
    """VIR then starts as its predictor: the layer of means is the identity, and learns from there."""
    x, y = data(40)
    model = build(y, latent_dim=None, latent_mean="identity", latent_var_start=-12.0)
    mean, var, features = model._rows(x)
    assert torch.equal(mean, features) and var is not None
    assert var.log().median().item() == pytest.approx(-12, abs=1)
    model.loss(x, y)[0].backward()
    moved = {name for name, p in model.named_parameters() if p.grad is not None and p.grad.any()}
    assert {"latent.mean.weight", "latent.mean.bias"} <= moved
    with pytest.raises(ValueError, match="features of size 5 cannot be the mean of a latent of size 4"):
        build(y, latent_mean="identity")


def test_a_new_latent_is_one_class(monkeypatch: pytest.MonkeyPatch) -> None:
    class Halved(Latent):
        def __init__(self, feature_dim: int, latent_dim: int | None, mean: str, var_start: float) -> None:
            super().__init__()
            self.dim = feature_dim // 2

        def forward(self, features: Tensor) -> tuple[Tensor, Tensor | None]:
            return features[:, : self.dim], None

    monkeypatch.setitem(LATENTS, "halved", Halved)
    model = TailModel(nn.Linear(3, 6), 6, LabelBins.from_labels([0.0, 1.0]), Method(latent="halved"))
    assert model.head.linear.in_features == 3
    assert model(torch.zeros(2, 3)).shape == (2,)
    with pytest.raises(ValueError, match="unknown latent 'halve'; did you mean 'halved'"):
        Method(latent="halve")


def test_a_point_latent_is_the_features() -> None:
    latent, features = PointLatent(5, 3), torch.randn(2, 5)
    z_mean, z_var = latent(features)
    assert latent.dim == 5 and z_mean is features and z_var is None
    assert not list(latent.parameters())
