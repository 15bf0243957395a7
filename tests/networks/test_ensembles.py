"""Ensembles of networks with weights of their own."""

from __future__ import annotations

import itertools

import torch
from torch import nn

from tailwise.core.distributions import Mixture
from tailwise.core.labels import LabelBins
from tailwise.learning.loop import predict
from tailwise.methods import build_model
from tests.methods.trained_methods import table, trained


def test_ensemble_moments_by_sampling() -> None:
    model, x = trained("ensemble")
    prediction = predict(model, x[:5])
    assert isinstance(prediction, Mixture) and prediction.components.shape == (5, 5)
    draws = prediction.sample(200_000, torch.Generator().manual_seed(0))
    torch.testing.assert_close(draws.mean(0), prediction.mean, rtol=0.02, atol=0.02)
    torch.testing.assert_close(draws.var(0), prediction.variance, rtol=0.03, atol=0.03)
    members = prediction.components.mean
    torch.testing.assert_close(prediction.epistemic, members.var(0, correction=0))
    assert members.std(0).min() > 0


def test_members_have_decoders_of_their_own() -> None:
    x, y = table(64)
    model = build_model(
        "vae", nn.Linear(4, 8), 8, LabelBins.from_labels(y), decoder=nn.Linear(8, 4), members=3
    )
    weights = [network.decoder.weight for network in model.networks]
    assert not any(torch.equal(a, b) for a, b in itertools.pairwise(weights))
    model.loss(x, y)[0].backward()
    assert all(weight.grad is not None and weight.grad.any() for weight in weights)
