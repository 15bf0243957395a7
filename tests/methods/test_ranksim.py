"""RankSim against brute force."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tailwise.methods.ranksim import STEP, ranksim


def brute_ranks(values: np.ndarray) -> np.ndarray:
    return np.array([[sum(other > v for other in row) for v in row] for row in values])


def test_ranksim_by_brute_force() -> None:
    rng = np.random.default_rng(3)
    z, y = rng.normal(size=(9, 5)), rng.permutation(9) ** 1.7  # no two labels are equally far from a third
    unit = z / np.linalg.norm(z, axis=1, keepdims=True)
    similarity = unit @ unit.T
    expected = ((brute_ranks(similarity) - brute_ranks(-np.abs(y[:, None] - y))) ** 2).sum() / 9 / 81
    assert ranksim(torch.as_tensor(z), torch.as_tensor(y)).item() == pytest.approx(expected)


def test_ranksim_gradient_is_that_of_the_interpolated_ranking() -> None:
    """The blackbox gradient equals finite differences of the piecewise-linear interpolation.

    For the direction g the interpolation between rank(a) and rank(a + STEP g) has the slope
    (rank(a + STEP g) - rank(a)) / STEP, which a step of length STEP along g measures.
    """
    from tailwise.methods.ranksim import _Rank

    a = torch.tensor([[0.3, 0.1, 0.9, 0.4]], dtype=torch.float64, requires_grad=True)
    g = torch.tensor([[0.5, -0.2, -0.7, 0.3]], dtype=torch.float64)
    _Rank.apply(a, torch.tensor(4)).backward(g)
    moved = brute_ranks((a.detach() + STEP * g).numpy()) - brute_ranks(a.detach().numpy())
    np.testing.assert_allclose(a.grad.numpy(), moved / 4 / STEP)
