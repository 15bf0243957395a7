"""Networks side by side predict what each predicts by itself."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
import torch

from tailwise.labels.bins import LabelBins
from tailwise.methods import available_methods, build_model
from tailwise.networks.backbones import BACKBONES, make_backbone
from tailwise.networks.network import Network
from tailwise.networks.together import Pool, Predictor, together
from tailwise.training.loop import predict

ROWS = torch.randn(40, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
BINS = LabelBins.from_labels(np.random.default_rng(0).gamma(2.0, size=40))


def networks(method: str, backbone: str = "mlp-ple", targets: int = 1, columns: int = 3) -> list[Network]:
    made = []
    for seed in range(3):
        torch.manual_seed(seed)
        body = make_backbone(backbone, columns, rows=ROWS[:, :columns])
        bins = BINS if targets == 1 else [BINS] * targets
        network = build_model(method, body, body.feature_dim, bins, offset=columns == 3).double().eval()
        for parameter in network.parameters():
            parameter.data += 0.1 * torch.randn_like(parameter)
        made.append(network)
    return made


def check(of_one: Sequence[Predictor], offset: torch.Tensor) -> None:
    joined = together(of_one)
    assert joined is not None
    every = predict(joined, ROWS, offset=offset)
    for k, network in enumerate(of_one):
        alone = predict(network, ROWS, offset=offset)
        assert type(every[:, k].parametric) is type(alone.parametric)
        torch.testing.assert_close(every[:, k].mean, alone.mean, rtol=1e-10, atol=1e-10)
        torch.testing.assert_close(every[:, k].variance, alone.variance, rtol=1e-10, atol=1e-10)
    for rows in (1, 7):
        few = predict(joined, ROWS[:rows], offset=offset[:rows])
        torch.testing.assert_close(few.mean, every[:rows].mean, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("method", available_methods())
def test_each_method_predicts_together_as_alone_or_is_left_alone(method: str) -> None:
    of_one = networks(method)
    if together(of_one) is not None:
        check(of_one, torch.ones(40, dtype=torch.float64))


@pytest.mark.parametrize("backbone", BACKBONES)
def test_each_backbone_predicts_together_as_alone(backbone: str) -> None:
    of_one = networks("vir-dial", backbone)
    if of_one[0].shared is None:
        check(of_one, torch.ones(40, dtype=torch.float64))


def test_several_targets_predict_together_as_alone() -> None:
    check(networks("vir-dial", targets=2), torch.ones(40, 2, dtype=torch.float64))


@pytest.mark.parametrize("targets", [1, 2])
def test_pools_predict_together_as_alone(targets: int) -> None:
    around = networks("vir-dial", targets=targets)
    alone = networks("vir-dial", "realmlp", targets, columns=3 - targets)
    shares = [0.25, 0.75][:targets]
    pools = [Pool(*families, shares).eval() for families in zip(around, alone, strict=True)]
    offset = torch.ones(40, targets, dtype=torch.float64)
    check(pools, offset if targets == 2 else offset[:, 0])
    assert together([*pools[:2], Pool(around[2], alone[2], [0.5] * targets)]) is None
