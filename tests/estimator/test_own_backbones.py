"""Backbones of the user's own: inputs of any kind, and where they predict."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from tests.estimator.small_tables import quick, table


def test_a_backbone_of_ones_own() -> None:
    class Picture(nn.Module):
        feature_dim = 6

        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(1, 6, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.relu(self.conv(x)).mean((2, 3))

    rng = np.random.default_rng(0)
    images = rng.normal(size=(150, 1, 8, 8)).astype(np.float32) + rng.normal(size=(150, 1, 1, 1))
    y = images.mean((1, 2, 3))
    for backbone in (Picture(), Picture):
        model = quick(backbone=backbone).fit(images, y)
        assert model.predict(images[:5]).shape == (5,)
    untouched = Picture()
    before = untouched.conv.weight.clone()
    quick(backbone=untouched).fit(torch.as_tensor(images), y)
    assert torch.equal(before, untouched.conv.weight), "a parameter must not be trained"
    with pytest.raises(ValueError, match="feature_dim"):
        quick(backbone=nn.Linear(3, 4)).fit(rng.normal(size=(50, 3)), np.arange(50.0))


def test_a_backbone_with_two_inputs() -> None:
    class Pair(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(4, 5)

        def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
            return torch.relu(self.linear(a) - self.linear(b))

    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(2, 120, 4)).astype(np.float32)
    pair = Pair()
    model = quick(backbone=pair, feature_dim=5).fit((a, b), a[:, 0] - b[:, 0])
    assert model.predict((a[:3], b[:3])).shape == (3,)
    named = quick(backbone=pair, feature_dim=5).fit({"a": a, "b": b}, a[:, 0] - b[:, 0])
    np.testing.assert_allclose(named.predict({"a": a, "b": b}), model.predict((a, b)), rtol=1e-5)
    fresh = quick(backbone=pair, feature_dim=5)
    with pytest.raises(ValueError, match=r"different numbers of rows: \[120, 50\]"):
        fresh.fit((a, b[:50]), a[:, 0])
    with pytest.raises(ValueError, match=r"inconsistent numbers of samples: \[120, 50\]"):
        fresh.fit((a, b), a[:50, 0])
    with pytest.raises(ValueError, match=r"inconsistent numbers of samples: \[120, 50\]"):
        fresh.fit((a, b), a[:, 0], eval_set=((a, b), a[:50, 0]))


def test_a_base_prediction_beside_any_input() -> None:
    x, y = table(120)
    own = quick(backbone=nn.Linear(3, 4), feature_dim=4)
    model = own.fit(x, y, base_prediction=y + 1)
    moved = model.predict(x, base_prediction=y + 11) - model.predict(x, base_prediction=y + 1)
    np.testing.assert_allclose(moved, 10, rtol=0.2)
    with pytest.raises(ValueError, match=r"a base takes tables.* pass its predictions as base_prediction"):
        quick(base="catboost", backbone=nn.Linear(3, 4), feature_dim=4).fit(x, y)
    assert quick(base="auto", backbone=nn.Linear(3, 4), feature_dim=4).fit(x, y).base_ is None
