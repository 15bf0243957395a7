"""A base prediction around which every method predicts (VIR:offset)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor

from tailwise.labels.bins import LabelBins
from tailwise.methods import available_methods, build_model
from tailwise.networks.backbones import MLP, TabM
from tailwise.networks.network import Network
from tailwise.networks.tail import INFERENCES
from tailwise.training.loop import TensorData, TrainConfig, fit, predict
from tests.methods.trained_methods import table
from tests.networks.small_models import tail

CONFIG = TrainConfig(epochs=2, batch_size=60, accelerator="cpu", lr=1e-2)


def base(y: Tensor) -> Tensor:
    """A rough prediction of the labels."""
    return 1 + 0.7 * y + torch.sin(torch.arange(len(y))).double()


def build(name: str, y: Tensor) -> Network:
    torch.manual_seed(0)
    return build_model(name, MLP(4, (16, 8)), 8, LabelBins.from_labels(y), offset=True)


# -- the start ------------------------------------------------------------------------------------


# The mean of a two-part model also has the part that no base moves.
@pytest.mark.parametrize("name", [name for name in available_methods() if name != "two-part"])
def test_an_untrained_model_predicts_the_base(name: str) -> None:
    """In every mode of inference, and then it trains a step and predicts finite numbers."""
    x, y = table(120)
    model, f0 = build(name, y), base(y)
    for mode in INFERENCES:
        torch.testing.assert_close(model.eval()(x, mode, f0).mean, f0, rtol=0, atol=1e-5)
    fit(model, TensorData(x, y, offset=f0), None, CONFIG)
    prediction = predict(model, x, offset=f0)
    assert torch.isfinite(prediction.mean).all() and (prediction.variance > 0).all()
    assert not torch.equal(prediction.mean, f0)
    slopes = {k: v for k, v in model.state_dict().items() if k.endswith("offset.slope")}
    assert slopes and all((v != 1).all() for v in slopes.values())


@pytest.mark.parametrize("tabm", [False, True])
@pytest.mark.parametrize("name", ["vir", "ensemble"])
def test_several_targets_start_at_theirs_and_learn(name: str, tabm: bool) -> None:
    x, y = table(120)
    both = torch.stack([y, 100 - 3 * y], 1)
    bins = [LabelBins.from_labels(both[:, t]) for t in range(2)]
    backbone = TabM(4, (16, 8), members=3) if tabm else MLP(4, (16, 8))
    model = build_model(name, backbone, 8, bins, offset=True)
    f0 = torch.stack([base(y), 90 - 2 * y], 1)
    torch.testing.assert_close(model.eval()(x, offset=f0).mean, f0, rtol=0, atol=1e-4)
    data = TensorData(x, both, offset=f0)
    result = fit(model, data, data, CONFIG)
    after = predict(model, x, offset=f0)
    assert after.shape == (120, 2) and np.isfinite(result.best_score)
    torch.testing.assert_close(predict(model, x, 50, f0).mean, after.mean, rtol=1e-5, atol=1e-5)


# -- by hand --------------------------------------------------------------------------------------


def moved_apart(model: Network) -> tuple[Tensor, Tensor]:
    """Give the model's head and offset weights as after training; return the slopes and intercepts."""
    generator = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.split(".")[2] in ("head", "offset"):
                parameter.add_(0.5 * torch.randn(parameter.shape, generator=generator))
    offset = tail(model).offset
    assert offset is not None
    return offset.slope.detach().double(), offset.intercept.detach().double()


@pytest.mark.parametrize("mode", INFERENCES)
def test_the_distribution_is_shifted_by_a_f0_plus_b(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = table(60)
    monkeypatch.setattr("tailwise.networks.tail._LIKELIEST", 100)
    model, f0 = build("vir", y).eval(), base(y)
    a, b = moved_apart(model)
    bins = model.bins
    around = (a * (f0 - bins.location) / bins.scale + b).numpy()
    own = tail(model)
    z = own.latent(model.backbone(x))[0]

    def student(w: Tensor | None) -> Any:
        """The head's Student-t in label units, around the base."""
        belief = own.head(z, w).map(lambda p: p.detach().double())
        gamma, nu, alpha, beta = (p.numpy() for p in belief.parameters)
        spread = bins.scale * np.sqrt(beta * (1 + nu) / (nu * alpha))
        return stats.t(2 * alpha, bins.location + bins.scale * (gamma + around), spread)

    first = student(None)
    got = model(x, mode, f0)
    if mode == "marginal":
        mass = np.array([first.pdf(c) for c in bins.centers]) * np.diff(bins.edges)[:, None]  # (B, N)
        mass /= mass.sum(0)
        each = [student(torch.full((60,), w.item())) for w in own.w]
        mean = sum(m * t.mean() for m, t in zip(mass, each, strict=True))
        second = sum(m * (t.var() + t.mean() ** 2) for m, t in zip(mass, each, strict=True))
        variance = second - mean**2
    else:
        w = None if mode == "plain" else own.w[torch.as_tensor(bins.index(first.mean()))]
        mean, variance = student(w).mean(), student(w).var()
    np.testing.assert_allclose(got.mean.detach().numpy(), mean, rtol=1e-4)
    np.testing.assert_allclose(got.variance.detach().numpy(), variance, rtol=1e-3)


# -- errors and state -----------------------------------------------------------------------------


def test_an_offset_is_given_where_it_is_needed_and_only_there() -> None:
    x, y = table(120)
    bins = LabelBins.from_labels(y)
    around, plain = (build_model("vir", MLP(4, (16, 8)), 8, bins, offset=o) for o in (True, False))
    two = build_model("vir", MLP(4, (16, 8)), 8, [bins, bins], offset=True)
    with pytest.raises(ValueError, match="built with offset=True: pass offset="):
        around.loss(x, y)
    with pytest.raises(ValueError, match="built with offset=True: pass offset="):
        predict(around, x)
    with pytest.raises(ValueError, match="built without an offset: pass offset=True to build_model"):
        plain.loss(x, y, offset=y)
    with pytest.raises(ValueError, match="built without an offset: pass offset=True to build_model"):
        fit(plain, TensorData(x, y, offset=y), None, CONFIG)
    with pytest.raises(ValueError, match=r"offset has shape \(120, 1\), but the features need \(120,\)"):
        around.loss(x, y, offset=y.unsqueeze(1))
    with pytest.raises(ValueError, match=r"offset has shape \(120,\), expected \(rows, 2\)"):
        two(x, offset=y)
