"""Focal-R, beta-NLL and DenseLoss by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import stats

from tailwise.distributions.members import Normal
from tests.methods.trained_methods import skewed_bins
from tests.networks.small_models import batch, loss_of


def test_focal_r_and_beta_nll_by_hand() -> None:
    bins = skewed_bins()
    focus = 2 / (1 + np.exp(-1.0)) - 1
    loss = loss_of("focal-r", bins, b=0.5, g=2.0)(
        batch(Normal(torch.tensor([1.0]), 1.0), torch.tensor([3.0]))
    )
    assert loss.item() == pytest.approx(2 * focus**2)
    variance = torch.tensor([4.0], requires_grad=True)
    loss = loss_of("beta-nll", bins)(batch(Normal(torch.tensor([1.0]), variance), torch.tensor([3.0])))
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
