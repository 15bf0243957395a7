"""RankSim against brute force."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tailwise.methods.ranksim import STEP, _ranks, ranksim


def brute_ranks(values: np.ndarray) -> np.ndarray:
    return np.array([[sum(other > v for other in row) for v in row] for row in values])


def test_ranksim_by_brute_force() -> None:
    rng = np.random.default_rng(3)
    z, y = rng.normal(size=(9, 5)), rng.permutation(9) ** 1.7  # no two labels are equally far from a third
    unit = z / np.linalg.norm(z, axis=1, keepdims=True)
    similarity = unit @ unit.T
    expected = ((brute_ranks(similarity) - brute_ranks(-np.abs(y[:, None] - y))) ** 2).sum() / 9 / 81
    assert ranksim(torch.as_tensor(z), torch.as_tensor(y)).item() == pytest.approx(expected)


def test_ranksim_takes_one_row_per_label() -> None:
    z, y = torch.randn(6, 3), torch.tensor([1.0, 2.0, 1.0, 3.0, 2.0, 5.0])
    torch.testing.assert_close(ranksim(z, y), ranksim(z[[0, 1, 3, 5]], y[[0, 1, 3, 5]]))


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


def test_the_larger_of_two_equally_distant_labels_ranks_first() -> None:
    ranks = _ranks(torch.tensor([[-1.0, 0.0, -1.0, -torch.inf]]), torch.tensor(3))
    torch.testing.assert_close(ranks, torch.tensor([[2.0, 0.0, 1.0, 3.0]]) / 3)


def test_the_gradient_does_not_depend_on_rows_left_out() -> None:
    """Rows of a label that the batch has already do not change the step of the finite difference."""
    torch.manual_seed(1)
    z, y = torch.randn(8, 3), torch.arange(8.0) ** 1.3
    alone, among = z.clone().requires_grad_(), torch.cat([z, torch.randn(8, 3)]).requires_grad_()
    ranksim(alone, y).backward()
    ranksim(among, torch.cat([y, y])).backward()
    torch.testing.assert_close(among.grad[:8], alone.grad)
    assert not among.grad[8:].any()


def test_ranksim_training_brings_the_ranks_together() -> None:
    torch.manual_seed(0)
    z = torch.randn(16, 4, requires_grad=True)
    y = torch.arange(16.0)
    optimizer = torch.optim.Adam([z], 0.05)
    before = ranksim(z, y).item()
    for _ in range(150):
        optimizer.zero_grad()
        ranksim(z, y).backward()
        optimizer.step()
    assert ranksim(z, y).item() < 0.5 * before
