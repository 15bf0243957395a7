"""Normal, NIG and Mixture against scipy, the paper's formula, Monte Carlo and values derived by hand.

VIR:nll and VIR:predict are checked here; no oracle reads the implementation.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import special, stats
from torch import Tensor

from tailwise.distributions.members import NIG, Distribution, Mixture, Normal, pooled, stack
from tailwise.distributions.student_t import StudentT
from tailwise.distributions.tilt import Tilt
from tailwise.metrics.scores import crps
from tests.prediction_samples import KINDS, Integral, at_zero, double, each_kind, make, scipy_members, three

law = settings(deadline=None, derandomize=True, max_examples=40)


def student(dist: NIG) -> Any:
    """The Student-t of VIR:predict, from scipy."""
    gamma, nu, alpha, beta = (parameter.numpy() for parameter in dist.parameters)
    return stats.t(df=2 * alpha, loc=gamma, scale=np.sqrt(beta * (1 + nu) / (nu * alpha)))


def random_nig(size: int, seed: int, alpha_exponents: tuple[float, float] = (-1, 6)) -> tuple[NIG, Tensor]:
    """NIGs over wide log-uniform ranges, with labels from 1e-6 to 1e6 scales away from the mean."""
    rng = np.random.default_rng(seed)
    gamma = rng.normal(size=size) * 10 ** rng.uniform(-3, 3, size)
    nu = 10 ** rng.uniform(-6, 6, size)
    alpha = 10 ** rng.uniform(*alpha_exponents, size)
    beta = 10 ** rng.uniform(-6, 6, size)
    scale = np.sqrt(beta * (1 + nu) / (nu * alpha))
    away = rng.choice([-1, 1], size) * 10 ** rng.uniform(-6, 6, size)
    return NIG(*map(double, (gamma, nu, alpha, beta))), double(gamma + away * scale)


@pytest.mark.parametrize("seed", range(2))
def test_nig_nll_equals_scipy_student_t(seed: int) -> None:
    dist, y = random_nig(2500, seed)
    expected = -student(dist).logpdf(y.numpy())
    np.testing.assert_allclose(dist.nll(y).numpy(), expected, rtol=1e-9, atol=1e-6)


def test_nig_nll_equals_the_formula_of_the_paper() -> None:
    dist, y = random_nig(4000, 11, alpha_exponents=(-1, 3))
    gamma, nu, alpha, beta = dist.gamma, dist.nu, dist.alpha, dist.beta
    omega = 2 * beta * (1 + nu)
    expected = (
        0.5 * torch.log(math.pi / nu)
        - alpha * torch.log(omega)
        + (alpha + 0.5) * torch.log((y - gamma) ** 2 * nu + omega)
        + torch.lgamma(alpha)
        - torch.lgamma(alpha + 0.5)
    )
    torch.testing.assert_close(dist.nll(y), expected, rtol=1e-9, atol=1e-7)


ALPHAS = (0.1, 0.5, 1.0, 1.0 + 1e-6, 1.5, 2.0, 5.0, 10.0, 30.0, 100.0, 1e3, 1e4, 1e5, 1e6)
NUS = (1e-6, 1e-3, 0.1, 1.0, 10.0, 1e3, 1e6)
STDS = (1e-9, 1e-3, 1.0, 1e3, 1e9)
RESIDUALS = (0.0, 1e-6, 1e-3, 0.1, 1.0, -3.0, 30.0, -1e3, 1e4, 1e5, -1e6)


def grid(dtype: torch.dtype) -> list[Tensor]:
    """gamma, nu, alpha, beta, y over the grid, rounded to float32 and then stored in `dtype`; gamma is 0.

    The third axis is the scale of the Student-t, so that residuals count its standard deviations.
    """
    alpha, nu, std, residual = torch.cartesian_prod(*map(double, (ALPHAS, NUS, STDS, RESIDUALS))).unbind(1)
    beta = std**2 * nu * alpha / (1 + nu)
    return [p.float().to(dtype) for p in (torch.zeros_like(nu), nu, alpha, beta, std * residual)]


def value_and_gradients(dtype: torch.dtype) -> tuple[Tensor, list[Tensor]]:
    parameters = [p.requires_grad_() for p in grid(dtype)]
    nll = NIG(*parameters[:4]).nll(parameters[4])
    return nll.detach(), list(torch.autograd.grad(nll.sum(), parameters))


def test_float32_nll_is_finite_and_accurate_over_the_grid() -> None:
    value, single = value_and_gradients(torch.float32)
    exact_value, exact = value_and_gradients(torch.float64)
    assert value.dtype == torch.float32 and torch.isfinite(value).all()
    torch.testing.assert_close(value.double(), exact_value, rtol=1e-5, atol=2e-5)
    parameters = grid(torch.float64)
    # Of nu and beta it is the gradient for the logarithm, up to the evidence it is weighted with.
    evidence = 1 + parameters[2]
    scales = {
        "gamma": (1.0, 1e-30),
        "nu": (parameters[1] / evidence, 1e-6),
        "alpha": (1.0, 1e-5),
        "beta": (parameters[3] / evidence, 1e-6),
        "y": (1.0, 1e-30),
    }
    for (name, (scale, atol)), mine, right in zip(scales.items(), single, exact, strict=True):
        assert torch.isfinite(right).all() and torch.isfinite(mine).all(), name
        torch.testing.assert_close(mine.double() * scale, right * scale, rtol=1e-4, atol=atol, msg=name)


def test_nig_cdf_and_quantile_equal_scipy() -> None:
    dist, _ = random_nig(1000, 3, alpha_exponents=(-0.5, 5))
    reference = student(dist)
    rng = np.random.default_rng(1)
    q = rng.uniform(0.001, 0.999, 1000)
    y = dist.gamma.numpy() + 0.5 * (reference.ppf(q) - dist.gamma.numpy())
    np.testing.assert_allclose(dist.cdf(double(y)).numpy(), reference.cdf(y), rtol=1e-9, atol=1e-12)
    quantile = dist.quantile(double(q)).numpy()
    width = reference.ppf(0.75) - reference.ppf(0.25)
    assert np.all(np.abs(quantile - reference.ppf(q)) <= 1e-8 * width + 1e-12 * np.abs(quantile))


@each_kind
def test_quantile_inverts_the_distribution_function(dist: Any) -> None:
    q = torch.linspace(0.001, 0.999, 41, dtype=torch.float64)[:, None]
    y = dist.quantile(q)
    assert y.shape == (41, 3)
    assert torch.all(y.diff(dim=0) > 0)
    torch.testing.assert_close(dist.cdf(y), q.expand(41, 3), rtol=1e-7, atol=1e-8)
    torch.testing.assert_close(dist.quantile(dist.cdf(y)), y, rtol=1e-6, atol=1e-6)


@each_kind
def test_samples_follow_the_distribution(dist: Any) -> None:
    draws = dist.sample(20_000, generator=torch.Generator().manual_seed(0))
    assert draws.shape == (20_000, 3)
    uniform = dist.cdf(draws).numpy()
    for column in range(3):
        assert stats.kstest(uniform[:, column], "uniform").pvalue > 1e-3
    correlation = np.corrcoef(uniform.T) - np.eye(3)
    assert np.abs(correlation).max() < 0.03  # elements are drawn independently


@pytest.mark.parametrize(
    ("gamma", "nu", "alpha", "beta"),
    [(0.0, 1.0, 5.0, 4.0), (3.0, 0.2, 6.0, 1.0), (-2.0, 9.0, 8.0, 50.0)],
)
def test_variances_equal_monte_carlo_over_the_hierarchy(
    gamma: float, nu: float, alpha: float, beta: float
) -> None:
    """VIR:predict: sigma^2 ~ InvGamma(alpha, beta), mu ~ N(gamma, sigma^2 / nu), y ~ N(mu, sigma^2)."""
    rng = np.random.default_rng(7)
    noise = 1 / rng.gamma(alpha, 1 / beta, 1_000_000)
    centre = rng.normal(gamma, np.sqrt(noise / nu))
    y = rng.normal(centre, np.sqrt(noise))
    dist = NIG(double(gamma), double(nu), double(alpha), double(beta))
    assert dist.mean.item() == pytest.approx(y.mean(), abs=0.005 * y.std())
    assert dist.aleatoric.item() == pytest.approx(noise.mean(), rel=0.01)
    assert dist.epistemic.item() == pytest.approx(centre.var(), rel=0.02)
    assert dist.variance.item() == pytest.approx(y.var(), rel=0.02)
    assert stats.kstest(dist.cdf(double(y[:20_000])).numpy(), "uniform").pvalue > 1e-3


@law
@given(st.integers(0, 10_000))
def test_variance_is_the_sum_of_its_parts_and_the_variance_of_the_student_t(seed: int) -> None:
    dist, _ = random_nig(50, seed, alpha_exponents=(0.02, 6))
    torch.testing.assert_close(dist.variance, dist.aleatoric + dist.epistemic, rtol=1e-12, atol=0)
    np.testing.assert_allclose(dist.variance.numpy(), student(dist).var(), rtol=1e-6)
    torch.testing.assert_close(dist.std**2, dist.variance, rtol=1e-12, atol=0)
    mixture = Mixture([dist[:25], dist[25:]], double([0.2, 0.8]))
    torch.testing.assert_close(mixture.variance, mixture.aleatoric + mixture.epistemic, rtol=1e-9, atol=0)
    assert torch.all(mixture.epistemic >= 0)


magnitude = st.floats(-9, 9).map(lambda exponent: 10.0**exponent)
scales = st.builds(lambda size, sign: size * sign, magnitude, st.sampled_from([1.0, -1.0]))


@law
@given(scale=scales, offset=st.floats(-1000, 1000), kind=st.integers(0, 3), seed=st.integers(0, 1000))
def test_rescale_is_the_distribution_of_the_rescaled_label(
    scale: float, offset: float, kind: int, seed: int
) -> None:
    dist = three()[kind]
    shift = offset * scale  # in units of the scale, so that rounding the shifted label does not hide the law
    moved = dist.rescale(shift, scale)
    assert type(moved) is type(dist)
    y = double(np.random.default_rng(seed).normal(size=3) * 3)
    size = abs(scale)
    equal = torch.testing.assert_close
    equal(moved.mean, scale * dist.mean + shift, rtol=1e-9, atol=1e-9 * size)
    for name in ("variance", "aleatoric", "epistemic"):
        equal(getattr(moved, name), size**2 * getattr(dist, name), rtol=1e-9, atol=1e-9 * size**2, msg=name)
    equal(moved.nll(scale * y + shift), dist.nll(y) + math.log(size), rtol=1e-8, atol=1e-8)
    mass = dist.cdf(y)
    equal(moved.cdf(scale * y + shift), mass if scale > 0 else 1 - mass, rtol=1e-7, atol=1e-9)
    expected = scale * dist.quantile(0.2 if scale > 0 else 0.8) + shift
    equal(moved.quantile(0.2), expected, rtol=1e-8, atol=1e-7 * size)


def test_a_component_of_weight_zero_has_no_say() -> None:
    near, far = Normal(torch.tensor([0.0]), 1.0), Normal(torch.tensor([30.0]), 1.0)
    mixture = Mixture([near, far], torch.tensor([1.0, 0.0]))
    y = torch.tensor([30.0])  # 30 standard deviations from all that has weight
    torch.testing.assert_close(mixture.nll(y), near.nll(y))
    unbounded = NIG(double([5.0]), 1.0, 0.8, 1.0)
    bounded = NIG(double([1.0]), 1.0, 3.0, 1.0)
    mixture = Mixture([unbounded, bounded], double([0.0, 1.0]))
    for name in ("mean", "variance", "std", "aleatoric", "epistemic"):
        torch.testing.assert_close(getattr(mixture, name), getattr(bounded, name))
    torch.testing.assert_close(mixture.quantile(0.9), bounded.quantile(0.9))


@pytest.mark.parametrize("weights", [[1.0], [0.2, 0.3, 0.5], [1.5, -0.5], [math.nan, 1.0], [0.0, 0.0]])
def test_impossible_weights_are_an_error(weights: list[float]) -> None:
    with pytest.raises(ValueError, match="weights"):
        Mixture([Normal(torch.zeros(3), 1.0), Normal(torch.ones(3), 1.0)], torch.tensor(weights))


def test_members_say_everything_about_the_density() -> None:
    for dist in three():
        m = dist.members()
        assert m.df.isinf().all() or m.df.isfinite().all()
        y = double([0.1, -1.0, 2.0])
        density = stats.t(m.df, m.location, m.scale).pdf(y)
        torch.testing.assert_close(dist.nll(y).neg().exp(), (m.weight * density).sum(0))


@each_kind
def test_mixtures_may_be_mixed_and_stacked(dist: Any) -> None:
    other, y, shares = dist.rescale(1.0, 2.0), double([0.3, -1.0, 2.0]), double([0.25, 0.75])
    pair = Mixture([dist, other], shares)
    assert type(pair.components) is type(dist.parametric)
    torch.testing.assert_close(pair.nll(y).exp() ** -1, 0.25 / dist.nll(y).exp() + 0.75 / other.nll(y).exp())
    torch.testing.assert_close(stack([dist, other])[1].nll(y), other.nll(y))
    torch.testing.assert_close(stack([dist, other]).map(lambda p: p.movedim(0, -1)).mean[:, 0], dist.mean)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda d: Mixture([d[0], d[1]]), "Normal"),
        (lambda d: Mixture([]), "got none"),
        (lambda d: d[0].interval(90), "coverage"),
        (lambda d: d[1].rescale(1.0, 0.0), "scale"),
        (lambda d: d[0].quantile(1.1), "level must lie"),
    ],
)
def test_wrong_use_is_named(call: Callable[[list[Any]], Any], message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        call(three())


@each_kind
@pytest.mark.parametrize("index", [0, slice(1, 3), [2, 0], torch.tensor([True, False, True]), ..., None])
def test_indexing_takes_elements(dist: Any, index: Any) -> None:
    part, y = dist[index], double([0.3, -1.0, 2.0])
    torch.testing.assert_close(part.mean, dist.mean[index])
    torch.testing.assert_close(part.variance, dist.variance[index])
    torch.testing.assert_close(part.epistemic, dist.epistemic[index])
    torch.testing.assert_close(part.nll(y[index]), dist.nll(y)[index])
    torch.testing.assert_close(part.cdf(y[index]), dist.cdf(y)[index])


@pytest.mark.parametrize(
    "parts",
    [
        [Normal(double([0.0]), 1.0), Normal(double([4.0]), 3.0)],
        [NIG(double([0.0]), 2.0, 3.0, 4.0), NIG(double([2.0]), 1.0, 5.0, 4.0)],
        [
            Mixture([Normal(double([0.0]), 1.0), Normal(double([1.0]), 1.0)]),
            Mixture([Normal(double([5.0]), 1.0), Normal(double([6.0]), 1.0)]),
        ],
    ],
    ids=["normal", "nig", "mixture"],
)
def test_pooled_moments_are_those_of_the_mixture_of_all(parts: list[Distribution]) -> None:
    one = pooled(parts)
    assert type(one) is type(parts[0])
    means = torch.stack([part.mean for part in parts])
    torch.testing.assert_close(one.mean, means.mean(0))
    between = means.var(0, correction=0)
    torch.testing.assert_close(one.variance, torch.stack([p.variance for p in parts]).mean(0) + between)
    if not isinstance(one, Normal):  # a Normal cannot tell the variance between models from noise
        torch.testing.assert_close(one.aleatoric, torch.stack([p.aleatoric for p in parts]).mean(0))


def test_pooling_one_is_itself_and_infinite_variances_make_a_mixture() -> None:
    heavy = NIG(double([0.0]), 1.0, 0.9, 1.0)
    assert pooled([heavy]) is heavy
    assert isinstance(pooled([heavy, heavy]), Mixture)


@pytest.mark.parametrize("kind", KINDS)
def test_crps_equals_numerical_integration(kind: str) -> None:
    predicted, y = make(kind, 8, seed=3)
    y[0], y[1] = 50.0, predicted.mean[1]  # far out, and exactly at the mean
    for i in range(8):
        one, members = predicted[i : i + 1], scipy_members(predicted, i)
        integral = Integral(predicted, Tilt(), i, (y[i].item(),))
        below = sum(w * d.cdf(integral.y) for w, d in members)
        exact = (integral.widths * (below - (integral.y >= y[i].item())) ** 2).sum()
        tolerance = 2e-4 * one.std.item() if kind == "mixture of nig" else 1e-6 * exact
        assert crps(one, y[i : i + 1]) == pytest.approx(exact, abs=tolerance)


def test_crps_by_hand() -> None:
    # Normal at its mean: (sqrt(2) - 1) / sqrt(pi); many degrees of freedom make a t the same.
    expected = (math.sqrt(2) - 1) / math.sqrt(math.pi)
    assert crps(*at_zero([0.0])) == pytest.approx(expected)
    almost_normal = NIG(torch.zeros(1).double(), 1e9, 1e9, 1e9)
    assert crps(almost_normal, [0.0]) == pytest.approx(expected, rel=1e-6)
    assert math.isnan(crps(NIG(torch.zeros(1).double(), 1.0, 0.5, 1.0), [0.0]))  # Cauchy


def test_quantiles_beside_a_narrow_part_are_exact_after_few_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in two-part predictions: a very narrow part at 0, and a wide one."""
    p, locations = torch.linspace(0.05, 0.95, 150).double(), torch.linspace(-2, 5, 150).double()
    weight, location = torch.stack([p, 1 - p]), torch.stack([torch.zeros_like(p), locations])
    scale, df = (
        torch.stack([torch.full_like(p, 1e-3), 2 + 0 * p]),
        torch.stack([torch.full_like(p, 200), 2 + p]),
    )
    steps, cdf = [], special.stdtr
    monkeypatch.setattr(special, "stdtr", lambda v, z: (steps.append(z.shape[1]), cdf(v, z))[1])
    level = torch.tensor([0.05, 0.5, 0.95], dtype=torch.float64).repeat(50)
    y = StudentT(df).mixture_quantile(weight, location, scale, level)
    assert len(steps) < 30 and sum(steps) < 10 * 150
    np.testing.assert_allclose((weight * cdf(df, (y - location) / scale)).sum(0), level, rtol=0, atol=1e-13)
