"""Per-row losses against scipy, torch.distributions and numbers derived by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from tailwise.distributions.members import NIG, Normal
from tailwise.networks.losses import gaussian_reconstruction
from tests.networks.small_models import batch, loss_of

law = settings(deadline=None, derandomize=True, max_examples=40)


def test_regulariser_by_hand_in_both_forms() -> None:
    belief = NIG(torch.tensor([1.0, 1.0]), torch.tensor([2.0, 3.0]), torch.tensor([5.0, 1.5]), 1.0)
    rows = batch(belief, torch.tensor([4.0, 0.5]))
    # Errors are 3 and 1/2; the evidence is 2 + 10 and 3 + 3, then 4 + 5 and 6 + 1.5.
    assert loss_of("evidence")(rows).tolist() == [36.0, 3.0]
    assert loss_of("evidence", form="reference")(rows).tolist() == [27.0, 3.75]
    with pytest.raises(ValueError, match=r"unknown evidence.form 'papers'; did you mean 'paper'"):
        loss_of("evidence", form="papers")
    with pytest.raises(ValueError, match="'evidence' needs a head that predicts a NIG"):
        loss_of("evidence")(batch(Normal(torch.zeros(2), 1.0), torch.zeros(2)))


def latent_kl(z_mean: torch.Tensor, z_var: torch.Tensor | None, **options: bool) -> torch.Tensor:
    y = torch.zeros(len(z_mean))
    rows = batch(Normal(y, 1.0), y, z_mean=z_mean, z_var=z_var)
    return loss_of("kl", **options)(rows)


@law
@given(st.integers(0, 2**16), st.integers(1, 6))
def test_kl_equals_torch_distributions(seed: int, dim: int) -> None:
    rng = np.random.default_rng(seed)
    mean = torch.as_tensor(rng.normal(size=(5, dim)))
    var = torch.as_tensor(np.exp(rng.normal(0, 3, (5, dim))))
    one = torch.distributions.Normal(mean, var.sqrt())
    zero = torch.distributions.Normal(torch.zeros(dim).double(), torch.ones(dim).double())
    want = torch.distributions.kl_divergence(one, zero).sum(-1)
    torch.testing.assert_close(latent_kl(mean, var), want)
    torch.testing.assert_close(latent_kl(mean, var, mean=True), want / dim)


def test_kl_of_the_prior_is_zero_and_of_no_variance_is_finite() -> None:
    assert latent_kl(torch.zeros(2, 3), torch.ones(2, 3)).tolist() == [0.0, 0.0]
    var = torch.zeros(1, 2, requires_grad=True)
    value = latent_kl(torch.zeros(1, 2), var)
    value.sum().backward()
    assert torch.isfinite(value).all() and var.grad is not None and torch.isfinite(var.grad).all()
    with pytest.raises(ValueError, match="'kl' needs a latent with a variance"):
        latent_kl(torch.zeros(1, 2), None)


def test_gaussian_reconstruction_by_hand() -> None:
    x = torch.tensor([[[1.0, 2.0], [0.0, 1.0]], [[3.0, 0.0], [0.0, 0.0]]])
    guess = torch.zeros_like(x)
    guess[0, 0, 0] = 4.0
    # half of 9 + 4 + 0 + 1, half of 9
    assert gaussian_reconstruction(x, guess).tolist() == [7.0, 4.5]
    scipy = -stats.norm.logpdf(x[0].numpy(), guess[0].numpy()).sum() - 2 * np.log(2 * np.pi)
    assert gaussian_reconstruction(x, guess)[0].item() == pytest.approx(scipy)


def test_likelihoods_and_errors_by_hand() -> None:
    rng = np.random.default_rng(1)
    y, gamma = rng.normal(size=9), rng.normal(size=9)
    nu, alpha, beta = rng.gamma(2.0, size=9), 1 + rng.gamma(2.0, size=9), rng.gamma(2.0, size=9)
    target, location = torch.as_tensor(y), torch.as_tensor(gamma)
    belief = batch(NIG(location, *(torch.as_tensor(p) for p in (nu, alpha, beta))), target)
    student = -stats.t.logpdf(y, 2 * alpha, gamma, np.sqrt(beta * (1 + nu) / (nu * alpha)))
    np.testing.assert_allclose(loss_of("nll")(belief), student, rtol=1e-10)
    np.testing.assert_allclose(loss_of("squared")(belief), (y - gamma) ** 2, rtol=1e-12)
    np.testing.assert_allclose(loss_of("absolute")(belief), abs(y - gamma), rtol=1e-12)
    normal = batch(Normal(location, torch.as_tensor(beta)), target)
    want = -stats.norm.logpdf(y, gamma, np.sqrt(beta))
    np.testing.assert_allclose(loss_of("nll")(normal), want, rtol=1e-10)
    with pytest.raises(ValueError, match="unknown loss 'square'; did you mean 'squared'"):
        loss_of("square")
    with pytest.raises(ValueError, match="loss 'squared' has no option 'power'"):
        loss_of("squared", power=2)
