"""Focal-R and beta-NLL; tests/parity compares Focal-R with published code."""

from __future__ import annotations

import pytest
import torch
from scipy import stats

from tailwise.distributions.members import Normal
from tests.methods.trained_methods import skewed_bins
from tests.networks.small_models import batch, loss_of


def test_beta_nll_by_hand() -> None:
    variance = torch.tensor([4.0], requires_grad=True)
    loss = loss_of("beta-nll", skewed_bins())(
        batch(Normal(torch.tensor([1.0]), variance), torch.tensor([3.0]))
    )
    assert loss.item() == pytest.approx(2 * -stats.norm.logpdf(3, 1, 2))
    loss.backward()
    # d/dv of (log v + 4/v)/2 at 4, times the fixed factor 2.
    assert variance.grad.item() == pytest.approx(2 * 0.5 * (1 / 4 - 4 / 16))


@pytest.mark.parametrize("g", [0.3, 1.0, 3.0])
def test_focal_r_of_an_exact_prediction_has_a_gradient(g: float) -> None:
    mean = torch.tensor([1.0, 2.0], requires_grad=True)
    loss = loss_of("focal-r", skewed_bins(), g=g)(batch(Normal(mean, 1.0), torch.tensor([1.0, 3.0])))
    loss.sum().backward()
    assert loss[0] == 0 and mean.grad is not None
    assert mean.grad[0] == 0 and mean.grad[1] < 0
