"""Perturbed latents: their draws, and the spread of predictions they give."""

from __future__ import annotations

import pytest
import torch

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
