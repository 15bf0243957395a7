"""Networks draw from the generator of their fit, with the numbers that torch's would give."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from tailwise.labels.bins import LabelBins
from tailwise.methods import build_model
from tailwise.networks.backbones import make_backbone
from tailwise.networks.draws import Dropout, drawing_from, dropout, normal_like, seeded_weights
from tailwise.networks.network import Network
from tailwise.training.loop import TrainConfig, fit

X = torch.randn(60, 3, generator=torch.Generator().manual_seed(0))
Y = X[:, 0].double().exp()


def built(backbone: str, method: str) -> Network:
    network = make_backbone(backbone, 3, rows=X)
    return build_model(method, network, network.feature_dim, LabelBins.from_labels(Y.numpy()))


def test_the_numbers_are_those_of_torch() -> None:
    own = torch.Generator().manual_seed(5)
    with drawing_from(own):
        noise, dropped = normal_like(X), Dropout(0.3)(X)
    torch.manual_seed(5)
    assert torch.equal(noise, torch.randn_like(X))
    assert torch.equal(dropped, nn.functional.dropout(X, 0.3))
    assert dropout(X, 0.3, training=False) is X


@pytest.mark.parametrize(
    ("name", "method"),
    [("tabm", "vir"), ("realmlp", "vir"), ("mlp", "rrt")],  # noise in latents; a head that is drawn again
)
def test_training_draws_nothing_from_torch(name: str, method: str) -> None:
    """Whatever another thread draws between two epochs from torch's generator changes nothing."""

    def disturb(row: dict[str, float], best: int) -> None:
        states.append(torch.get_rng_state())
        torch.rand(7)

    each = []
    for disturbed in (False, True):
        states: list[torch.Tensor] = []
        with seeded_weights(1):
            model = built(name, method)
        torch.manual_seed(3 + disturbed)
        before = torch.get_rng_state()
        fit(model, (X, Y), config=TrainConfig(epochs=4), on_epoch=disturb if disturbed else None)
        each.append(model.state_dict())
        assert disturbed or torch.equal(torch.get_rng_state(), before)
        assert not disturbed or (torch.equal(states[0], before) and not torch.equal(states[1], before))
    for key, value in each[0].items():
        torch.testing.assert_close(each[1][key], value, rtol=0, atol=0, equal_nan=True)
