"""Several targets on one backbone."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from tailwise.core.distributions import NIG, Mixture
from tailwise.core.labels import LabelBins
from tailwise.learning.loop import TrainConfig, fit, predict
from tailwise.methods import build_model
from tailwise.networks.backbones import MLP, TabM
from tests.methods.trained_methods import CONFIG, table

MEMBERS, WIDTH = 3, 6


def test_the_encoder_of_several_targets_is_frozen_too() -> None:
    """RRT's second stage trains heads alone, also where targets share a backbone."""
    x, y = table()
    bins = LabelBins.from_labels(y)
    for backbone in (nn.Linear(4, WIDTH), TabM(4, (8, WIDTH), MEMBERS)):
        model = build_model("rrt", backbone, WIDTH, [bins, bins]).train()
        assert model.begin_epoch(0.9)
        model.loss(x, torch.stack([y, y], 1))[0].backward()
        assert all(parameter.grad is None for parameter in backbone.parameters())
        assert all(parameter.grad is not None for parameter in model.networks.parameters())


def test_several_targets_have_bins_of_their_own() -> None:
    x, y = table()
    both = torch.stack([y, 1000 * x[:, 1].double() - 5], dim=1)
    bins = [LabelBins.from_labels(both[:, 0]), LabelBins.from_labels(both[:, 1])]
    for name in ("vir", "ensemble", "infer-noise"):
        torch.manual_seed(0)
        model = build_model(name, MLP(4, (16, 8)), 8, bins)
        config = TrainConfig(epochs=8, batch_size=40, accelerator="cpu", lr=1e-2)
        result = fit(model, (x, both), (x, both), config, progress=False)
        prediction = predict(model, x)
        assert prediction.shape == both.shape
        assert result.best_score < 1.0
        for t in range(2):
            r = np.corrcoef(prediction.mean[:, t].numpy(), both[:, t].numpy())[0, 1]
            assert r > 0.5, (name, t)
    with pytest.raises(ValueError, match=r"expected \(rows, 2\)"):
        model.loss(x, y)


def test_exact_statistics_in_compound_models() -> None:
    x, y = table()
    bins = [LabelBins.from_labels(y), LabelBins.from_labels(2 * y)]
    both = torch.stack([y, 2 * y], 1)
    model = build_model("vir", MLP(4, (16, 8)), 8, bins, smoothing={"exact": True})
    fit(model, (x, both), None, CONFIG, progress=False)
    for network in model.networks:
        assert int(network.smoother.stats_count.sum()) == len(x)
    model = build_model("vir", MLP(4, (16, 8)), 8, bins[0], members=2, smoothing={"exact": True})
    fit(model, (x, y), None, CONFIG, progress=False)
    assert isinstance(predict(model, x), Mixture) and isinstance(model.networks[0](x), NIG)
