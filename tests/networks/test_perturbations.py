"""Perturbed latents: their draws, and the spread of predictions they give."""

from __future__ import annotations

import pytest
import torch

from tailwise.networks.heads import PERTURBATIONS, Dropout, LatentVariance, RelativeNoise
from tests.networks.small_models import make_part

Z_MEAN, Z_VAR = torch.tensor([[3.0, 4.0], [0.0, 2.0]]), torch.tensor([[4.0, 1.0], [0.0, 9.0]])
DRAWN = torch.tensor([1.0, -2.0])


def test_perturbations_by_hand() -> None:
    assert LatentVariance()(Z_MEAN, Z_VAR, DRAWN).tolist() == [[5.0, 2.0], [0.0, -4.0]]
    size = [12.5**0.5, 2**0.5]  # root mean square of each row
    want = [[3 + 0.1 * size[0], 4 - 0.2 * size[0]], [0.1 * size[1], 2 - 0.2 * size[1]]]
    torch.testing.assert_close(RelativeNoise(scale=0.1)(Z_MEAN, None, DRAWN), torch.tensor(want))
    assert Dropout(scale=0.5)(Z_MEAN, None, torch.tensor([2.0, 0.0])).tolist() == [[6.0, 0.0], [0.0, 0.0]]


def test_draws_have_their_distribution_and_are_seeded() -> None:
    for name in PERTURBATIONS:
        kind = make_part("perturbation", name, samples=200)
        drawn, again = (kind.draw(50, torch.Generator().manual_seed(0)) for _ in range(2))
        assert torch.equal(drawn, again) and drawn.shape == (200, 50)
        assert drawn.mean().item() == pytest.approx(float(name == "dropout"), abs=0.05)
    masks = Dropout(samples=200, scale=0.25).draw(50, torch.Generator().manual_seed(0))
    torch.testing.assert_close(masks.unique(), torch.tensor([0.0, 1 / 0.75]))
    assert (masks == 0).double().mean().item() == pytest.approx(0.25, abs=0.02)
    with pytest.raises(ValueError, match=r"perturbation.scale must be a number in \[0, 1\), got 1\.5"):
        make_part("perturbation", "dropout", scale=1.5)
