"""The registry, and the contract that every registered method keeps."""

from __future__ import annotations

import re

import pytest
import torch
from torch import Tensor, nn

from tailwise.labels.bins import LabelBins
from tailwise.methods import build_model, get_method, register
from tailwise.networks.backbones import MLP
from tailwise.networks.parts import Method, Part
from tailwise.training.loop import predict
from tests.methods.trained_methods import NAMES, skewed_bins, table, train, trained
from tests.networks.waiting import NothingWaits

CITATION = re.compile(r"[A-Z][\w'-]+(?: et al\.| and [A-Z][\w'-]+)?, [^()]*?\b(?:19[5-9]\d|20[0-3]\d)\b")
"""Authors, then a year before the next bracket."""


@pytest.mark.parametrize("name", NAMES)
def test_contract(name: str) -> None:
    """Trains, predicts without labels, is finite and seeded, has a variance, and its state round-trips."""
    model, x = trained(name)
    prediction = predict(model, x)
    assert prediction.shape == (len(x),)
    assert torch.isfinite(prediction.mean).all() and (prediction.variance > 0).all()
    assert prediction.mean.std() > 0
    torch.testing.assert_close(predict(train(name), x).mean, prediction.mean, rtol=0, atol=0)
    assert not torch.equal(predict(train(name, seed=1), x).mean, prediction.mean)
    _, y = table()
    twin = build_model(name, MLP(4, (16, 8)), 8, LabelBins.from_labels(y))
    twin.load_state_dict(model.state_dict())
    torch.testing.assert_close(predict(twin, x).variance, prediction.variance, rtol=0, atol=0)
    torch.testing.assert_close(predict(model, x[:7]).mean, prediction.mean[:7])


@pytest.mark.parametrize("offset", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_no_step_waits_for_a_gpu(name: str, offset: bool) -> None:
    x, y = table(48)
    model = build_model(name, MLP(4, (16, 8)), 8, LabelBins.from_labels(y), offset=offset).train()
    given = y + 1 if offset else None
    model.loss(x, y, offset=given)
    model.end_epoch()
    with NothingWaits():
        model.loss(x, y, offset=given)[0].backward()


@pytest.mark.parametrize("name", NAMES)
def test_promised_uncertainty(name: str) -> None:
    model, x = trained(name)
    prediction, promise = predict(model, x), get_method(name).uncertainty
    varies = bool(prediction.variance.std() > 1e-9 * prediction.variance.mean())
    assert varies == (promise != "none")
    # A row whose features are all off has nothing that dropout could take away.
    assert bool((prediction.epistemic > 0).double().mean() > 0.9) == (promise == "aleatoric and epistemic")


@pytest.mark.parametrize("name", NAMES)
def test_documented(name: str) -> None:
    method = get_method(name)
    assert len(method.about) > 60 and method.title
    if name != "vanilla":
        assert CITATION.search(method.about), "no author with a year"


@pytest.mark.parametrize("name", ["vanilla", "ranksim", "vae", "ensemble", "vir", "infer-noise"])
def test_any_backbone_and_data_kind(name: str) -> None:
    """Two inputs, and one label per pixel."""

    class Pair(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(4, 8)

        def forward(self, a: Tensor, b: Tensor) -> Tensor:
            return torch.relu(self.linear(a) + self.linear(b))

    x, y = table(64)
    model = build_model(name, Pair(), 8, LabelBins.from_labels(y))
    model.loss((x, x), y)[0].backward()
    assert model.eval()((x, x)).shape == (64,)
    dense = build_model(name, nn.Linear(4, 8), 8, LabelBins.from_labels(y))
    dense.loss(x.reshape(4, 16, 4), y.reshape(4, 16))[0].backward()
    assert dense.eval()(x.reshape(4, 16, 4)).shape == (4, 16)


def test_unknown_names_and_double_registration() -> None:
    with pytest.raises(ValueError, match=r"'vr'; did you mean 'vir'\?"):
        get_method("vr")
    with pytest.raises(ValueError, match="a method named 'vir' is already registered"):
        register("vir", title="again", parts=Method(), about="")
    with pytest.raises(ValueError, match="did you mean 'batch-mse'"):
        Method(losses=(Part("batch-mes"),))


def test_a_decoder_that_several_targets_would_leave_unused_is_refused() -> None:
    bins = [skewed_bins(), skewed_bins()]
    with pytest.raises(ValueError, match="several targets share a backbone and cannot have a decoder"):
        build_model("vae", nn.Linear(4, 8), 8, bins, decoder=nn.Linear(8, 4))
