"""Latents: what they make of features."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from tailwise.distributions.members import NIG
from tailwise.networks.heads import GaussianLatent
from tailwise.networks.vir import VIR
from tests.networks.small_models import PRIOR, build, data, tail


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
