"""Perturbed latents: their draws, and the spread of predictions they give."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from tailwise.core.distributions import Mixture
from tailwise.core.labels import LabelBins
from tailwise.learning.loop import predict
from tailwise.methods import build_model
from tailwise.networks.backbones import MLP
from tailwise.networks.model import TailModel
from tailwise.networks.parts import Method
from tailwise.networks.perturbations import (
    PERTURBATIONS,
    Dropout,
    LatentVariance,
    Perturbation,
    RelativeNoise,
    intermediate_layer,
)
from tests.methods.trained_methods import table, trained

Z_MEAN, Z_VAR = torch.tensor([[3.0, 4.0], [0.0, 2.0]]), torch.tensor([[4.0, 1.0], [0.0, 9.0]])
DRAWN = torch.tensor([1.0, -2.0])


def test_perturbations_by_hand() -> None:
    assert LatentVariance(0.1)(Z_MEAN, Z_VAR, DRAWN).tolist() == [[5.0, 2.0], [0.0, -4.0]]
    size = [12.5**0.5, 2**0.5]  # root mean square of each row
    want = [[3 + 0.1 * size[0], 4 - 0.2 * size[0]], [0.1 * size[1], 2 - 0.2 * size[1]]]
    torch.testing.assert_close(RelativeNoise(0.1)(Z_MEAN, None, DRAWN), torch.tensor(want))
    assert Dropout(0.5)(Z_MEAN, None, torch.tensor([2.0, 0.0])).tolist() == [[6.0, 0.0], [0.0, 0.0]]


def test_draws_have_their_distribution_and_are_seeded() -> None:
    for name, kind in PERTURBATIONS.items():
        drawn, again = (kind(0.25).draw(200, 50, torch.Generator().manual_seed(0)) for _ in range(2))
        assert torch.equal(drawn, again) and drawn.shape == (200, 50)
        assert drawn.mean().item() == pytest.approx(float(name == "dropout"), abs=0.05)
    masks = Dropout(0.25).draw(200, 50, torch.Generator().manual_seed(0))
    torch.testing.assert_close(masks.unique(), torch.tensor([0.0, 1 / 0.75]))
    assert (masks == 0).double().mean().item() == pytest.approx(0.25, abs=0.02)
    with pytest.raises(ValueError, match=r"rate of dropout: it must be below 1, got 1\.5"):
        Dropout(1.5)


def test_a_latent_without_variance_is_not_sampled() -> None:
    assert not LatentVariance(0.1).acts_on(None) and LatentVariance(0.1).acts_on(Z_VAR)
    bins = LabelBins.from_labels([0.0, 1.0, 2.0])
    model = TailModel(MLP(4, (8,)), 8, bins, Method(latent_samples=3))
    assert not isinstance(model.eval()(torch.zeros(2, 4)), Mixture)


def test_a_new_perturbation_is_one_class(monkeypatch: pytest.MonkeyPatch) -> None:
    class Shift(Perturbation):
        def draw(self, samples: int, dim: int, generator: torch.Generator) -> torch.Tensor:
            return torch.arange(samples).unsqueeze(1).expand(samples, dim).float()

        def __call__(
            self, z_mean: torch.Tensor, z_var: torch.Tensor | None, drawn: torch.Tensor
        ) -> torch.Tensor:
            return z_mean + self.scale * drawn

    monkeypatch.setitem(PERTURBATIONS, "shift", Shift)
    bins = LabelBins.from_labels([0.0, 1.0, 2.0])
    method = Method(latent_samples=3, perturbation="shift", perturbation_scale=2.0)
    model = TailModel(MLP(4, (8,)), 8, bins, method).eval()
    got = model(torch.zeros(2, 4))
    assert isinstance(got, Mixture)
    slope = 2 * bins.scale * model.head.linear.weight.sum().item()
    torch.testing.assert_close(got.components.mean.diff(dim=0).float(), torch.full((2, 2), slope))


def test_infer_noise_spread_is_that_of_noisy_passes() -> None:
    model, x = trained("infer-noise")
    plain = build_model("vanilla", MLP(4, (16, 8)), 8, LabelBins.from_labels(table()[1]))
    plain.load_state_dict(model.state_dict())
    prediction, still = predict(model, x[:4]), predict(plain, x[:4])
    assert isinstance(prediction, Mixture) and prediction.components.shape[0] == 16
    assert ((prediction.mean - still.mean).abs() < 3 * prediction.epistemic.sqrt()).all()


# -- intermediate layers -------------------------------------------------------------------------


def network(layer: str | None = "middle", **options: object) -> TailModel:
    """A plain network of three layers whose predictions are mixed over four draws."""
    torch.manual_seed(0)
    parts = {"latent_samples": 4, "perturbation": "noise", "perturbation_layer": layer, **options}
    bins = LabelBins.from_labels([0.0, 1.0, 2.0])
    model = TailModel(MLP(4, (8, 6, 32), dropout=0.0), 32, bins, Method(**parts)).eval()  # type: ignore[arg-type]
    nn.init.normal_(model.head.linear.weight)  # type: ignore[arg-type]
    return model


def test_noise_on_a_layer_by_hand() -> None:
    model, x = network(perturbation_scale=0.3), torch.randn(7, 4)
    first, _, _, second, _, _, third, _, _ = model.backbone.layers  # type: ignore[misc]
    got = model(x)
    assert isinstance(got, Mixture) and got.components.shape == (4, 7)
    for sample in range(4):
        hidden = second(first(x).relu())
        noise = torch.randn(6, generator=torch.Generator().manual_seed(sample))
        hidden = hidden + 0.3 * hidden.pow(2).mean(1, keepdim=True).sqrt() * noise
        features = third(hidden.relu()).relu()
        want = model.head(features, None).mean * model.bins.scale + model.bins.location
        torch.testing.assert_close(got.components.mean[sample], want.double(), rtol=1e-5, atol=1e-5)
    assert (got.epistemic > 0).all()
    model.backbone(x)  # no noise is left behind
    torch.testing.assert_close(model.backbone(x), network(None).backbone(x))


def test_noise_on_a_layer_depends_on_neither_batch_nor_order() -> None:
    model, x = network("layers.0"), torch.randn(6, 4)
    whole = model(x)
    torch.testing.assert_close(model(x[[3, 1]]).variance, whole.variance[[3, 1]])
    torch.testing.assert_close(model(x).mean, whole.mean)
    assert not torch.allclose(network("layers.3")(x).variance, whole.variance)


def test_maps_of_convolutions_are_perturbed() -> None:
    class Picture(nn.Sequential):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x).mean((2, 3))

    bins = LabelBins.from_labels([0.0, 1.0, 2.0])
    method = Method(latent_samples=3, perturbation="dropout", perturbation_layer="middle")
    backbone = Picture(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Conv2d(4, 5, 3))
    model = TailModel(backbone, 5, bins, method).eval()
    nn.init.normal_(model.head.linear.weight)  # type: ignore[arg-type]
    assert intermediate_layer(backbone, "middle") is backbone[0]
    assert (model(torch.randn(2, 3, 8, 8)).epistemic > 0).all()


def test_mistakes_about_layers_are_named() -> None:
    with pytest.raises(ValueError, match=r"unknown layer of the backbone 'layers.9'; did you mean"):
        network("layers.9")(torch.zeros(2, 4))
    with pytest.raises(ValueError, match=r"'latent' acts on the variance of a latent.*use 'noise' or 'drop"):
        network(perturbation="latent")
    bins = LabelBins.from_labels([0.0, 1.0, 2.0])
    method = Method(latent_samples=2, perturbation="noise", perturbation_layer="middle")
    with pytest.raises(ValueError, match="MLP has no linear or convolutional layer before its last"):
        TailModel(MLP(4, (8,)), 8, bins, method)(torch.zeros(2, 4))

    class Recurrent(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.LSTM(4, 8, batch_first=True)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.inner(x)[0][:, -1]

    method = Method(latent_samples=2, perturbation="noise", perturbation_layer="inner")
    with pytest.raises(ValueError, match="type LSTM does not return a tensor of rows: name another"):
        TailModel(Recurrent(), 8, bins, method)(torch.zeros(2, 3, 4))
