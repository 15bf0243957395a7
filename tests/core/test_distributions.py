"""Normal, NIG and Mixture against scipy, the paper's formula, Monte Carlo and values derived by hand.

VIR:nll and VIR:predict are checked here; no oracle reads the implementation.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import mpmath
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from torch import Tensor

from tailwise.core.distributions import NIG, Mixture, Normal, concatenate, stack
from tests.prediction_samples import double, each_kind, three

law = settings(deadline=None, derandomize=True, max_examples=40)


def student(dist: NIG) -> Any:
    """The Student-t of VIR:predict, from scipy."""
    gamma, nu, alpha, beta = (
        p.detach().double().numpy() for p in (dist.gamma, dist.nu, dist.alpha, dist.beta)
    )
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


# ---------------------------------------------------------------- values by hand


def test_nig_by_hand() -> None:
    # df = 2 and scale^2 = 1 * 2 / (1 * 1): the density at the centre is 1 / (2 sqrt 2) / sqrt 2 = 1/4,
    # and the distribution function of t_2 is 1/2 + t / (2 sqrt(2 + t^2)), at y = 2 with t = sqrt 2
    dist = NIG(double(0.0), double(1.0), double(1.0), double(1.0))
    assert dist.nll(double(0.0)).item() == pytest.approx(math.log(4), abs=1e-12)
    assert dist.cdf(double(2.0)).item() == pytest.approx(0.5 + math.sqrt(2) / 4, abs=1e-12)
    assert dist.quantile(0.5 + math.sqrt(2) / 4).item() == pytest.approx(2.0, abs=1e-9)
    dist = NIG(double(7.0), double(4.0), double(3.0), double(1.0))
    assert dist.mean.item() == 7.0
    assert dist.aleatoric.item() == pytest.approx(1 / 2)
    assert dist.epistemic.item() == pytest.approx(1 / 8)
    assert dist.variance.item() == pytest.approx(5 / 8)
    assert dist.std.item() == pytest.approx(math.sqrt(5 / 8))


def test_normal_by_hand() -> None:
    dist = Normal(double(1.0), double(4.0))
    assert dist.nll(double(3.0)).item() == pytest.approx(0.5 * math.log(2 * math.pi * 4) + 0.5, abs=1e-12)
    assert dist.cdf(double(1.0)).item() == pytest.approx(0.5)
    assert dist.quantile(0.975).item() == pytest.approx(1 + 2 * 1.959963984540054, abs=1e-9)
    assert (dist.mean.item(), dist.variance.item(), dist.std.item()) == (1.0, 4.0, 2.0)
    assert (dist.aleatoric.item(), dist.epistemic.item()) == (4.0, 0.0)


def test_mixture_by_hand() -> None:
    mixture = Mixture(
        [Normal(double(0.0), double(1.0)), Normal(double(4.0), double(3.0))], double([0.25, 0.75])
    )
    assert mixture.mean.item() == pytest.approx(3.0)
    assert mixture.aleatoric.item() == pytest.approx(0.25 * 1 + 0.75 * 3)
    assert mixture.epistemic.item() == pytest.approx(0.25 * 9 + 0.75 * 1)
    assert mixture.variance.item() == pytest.approx(2.5 + 3.0)
    density = 0.25 * stats.norm.pdf(1.0) + 0.75 * stats.norm.pdf(1.0, 4, math.sqrt(3))
    assert mixture.nll(double(1.0)).item() == pytest.approx(-math.log(density), abs=1e-12)
    mass = 0.25 * stats.norm.cdf(1.0) + 0.75 * stats.norm.cdf(1.0, 4, math.sqrt(3))
    assert mixture.cdf(double(1.0)).item() == pytest.approx(mass, abs=1e-12)


def test_mixture_of_nig_by_hand() -> None:
    parts = [
        NIG(double(0.0), double(1.0), double(2.0), double(1.0)),
        NIG(double(2.0), double(2.0), double(3.0), double(4.0)),
    ]
    mixture = Mixture(parts)
    assert mixture.mean.item() == pytest.approx(1.0)
    assert mixture.aleatoric.item() == pytest.approx((1 + 2) / 2)
    assert mixture.epistemic.item() == pytest.approx((1 + 1) / 2 + 1)  # the parts' own + between the means


def test_float32_stays_float32() -> None:
    for dist in (Normal(torch.zeros(2), torch.ones(2)), NIG(torch.zeros(2), 1.0, 2.0, 1.0)):
        for one in (dist, Mixture([dist, dist])):
            for value in (
                one.mean,
                one.variance,
                one.nll(torch.ones(2)),
                one.cdf(torch.ones(2)),
                one.quantile(0.2),
            ):
                assert value.dtype == torch.float32
            assert one.sample(3).dtype == torch.float32


# ---------------------------------------------------------------- VIR:nll


@pytest.mark.parametrize("seed", range(4))
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


def exact_nll(gamma: float, nu: float, alpha: float, beta: float, y: float) -> float:
    """VIR:nll as written, with 60 digits."""
    with mpmath.workdps(60):
        g, n, a, b, v = map(mpmath.mpf, (gamma, nu, alpha, beta, y))
        omega = 2 * b * (1 + n)
        value = mpmath.log(mpmath.pi / n) / 2 - a * mpmath.log(omega)
        value += (a + mpmath.mpf(1) / 2) * mpmath.log((v - g) ** 2 * n + omega)
        return float(value + mpmath.loggamma(a) - mpmath.loggamma(a + mpmath.mpf(1) / 2))


def test_nig_nll_equals_the_formula_in_sixty_digits() -> None:
    dist, y = random_nig(300, 5, alpha_exponents=(-2, 8))
    columns = [t.tolist() for t in (dist.gamma, dist.nu, dist.alpha, dist.beta, y)]
    expected = [exact_nll(*row) for row in zip(*columns, strict=True)]
    np.testing.assert_allclose(dist.nll(y).numpy(), expected, rtol=1e-9, atol=1e-9)


def test_normal_nll_equals_scipy() -> None:
    rng = np.random.default_rng(0)
    mean, variance = rng.normal(size=2000) * 100, 10 ** rng.uniform(-8, 8, 2000)
    y = mean + rng.normal(size=2000) * np.sqrt(variance) * 10 ** rng.uniform(-3, 3, 2000)
    expected = -stats.norm(mean, np.sqrt(variance)).logpdf(y)
    np.testing.assert_allclose(
        Normal(double(mean), double(variance)).nll(double(y)).numpy(),
        expected,
        rtol=1e-9,
        atol=1e-9,
    )


def test_nig_approaches_the_normal_with_much_evidence() -> None:
    y = torch.linspace(-3, 3, 13, dtype=torch.float64)
    dist = NIG(double(0.0), double(1e12), double(1e9), double(4e9))
    torch.testing.assert_close(dist.nll(y), Normal(double(0.0), double(4.0)).nll(y), rtol=1e-7, atol=1e-7)


# ---------------------------------------------------------------- float32

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
    single, _ = value_and_gradients(torch.float32)
    exact, _ = value_and_gradients(torch.float64)
    assert single.dtype == torch.float32
    assert len(single) == len(ALPHAS) * len(NUS) * len(STDS) * len(RESIDUALS)
    assert torch.isfinite(single).all()
    torch.testing.assert_close(single.double(), exact, rtol=1e-5, atol=2e-5)


def test_float32_gradients_are_finite_and_accurate_over_the_grid() -> None:
    _, single = value_and_gradients(torch.float32)
    _, exact = value_and_gradients(torch.float64)
    parameters = grid(torch.float64)
    for name, parameter, mine, right in zip(
        ("gamma", "nu", "alpha", "beta", "y"), parameters, single, exact, strict=True
    ):
        assert torch.isfinite(right).all(), name
        assert torch.isfinite(mine).all(), name
        if name in (
            "nu",
            "beta",
        ):  # the gradient for the logarithm, up to the evidence it is weighted with
            evidence = 1 + parameters[2]
            torch.testing.assert_close(
                mine.double() * parameter / evidence,
                right * parameter / evidence,
                rtol=1e-4,
                atol=1e-6,
                msg=name,
            )
        elif name == "alpha":
            torch.testing.assert_close(mine.double(), right, rtol=1e-4, atol=1e-5, msg=name)
        else:
            torch.testing.assert_close(mine.double(), right, rtol=1e-4, atol=1e-30, msg=name)


@pytest.mark.parametrize("alpha", [0.3, 1.0, 2.5, 40.0, 1e3])
@pytest.mark.parametrize("y", [0.0, 0.5, 4.0, 200.0])
def test_alpha_gradient_equals_the_slope_of_the_exact_formula(alpha: float, y: float) -> None:
    nu, beta = 0.7, 1.3
    parameter = double(alpha).requires_grad_()
    NIG(double(0.0), double(nu), parameter, double(beta)).nll(double(y)).backward()
    omega = 2 * beta * (1 + nu)
    slope = (
        -mpmath.log(omega)
        + mpmath.log(y**2 * nu + omega)
        + mpmath.digamma(alpha)
        - mpmath.digamma(alpha + 0.5)
    )
    assert parameter.grad is not None
    assert parameter.grad.item() == pytest.approx(float(slope), rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("residual", [0.0, 1.0, 1e3, 1e6])
@pytest.mark.parametrize("std", STDS)
def test_float32_normal_and_mixtures_stay_finite(residual: float, std: float) -> None:
    def check(build: Callable[..., Any], *values: float) -> None:
        parameters = [torch.tensor([value], requires_grad=True) for value in values]
        nll = build(*parameters).nll(torch.tensor([residual * std]))
        assert torch.isfinite(nll).all()
        for gradient in torch.autograd.grad(nll.sum(), parameters):
            assert torch.isfinite(gradient).all()

    check(Normal, 0.0, std**2)
    check(
        lambda mean, variance: Mixture([Normal(mean, variance), Normal(mean + std, variance)]),
        0.0,
        std**2,
    )
    check(lambda *p: Mixture([NIG(*p), NIG(p[0] + std, *p[1:])]), 0.0, 1.0, 1e6, std**2 * 1e6)


# ---------------------------------------------------------------- gradients equal finite differences


def test_gradcheck_of_every_nll() -> None:
    rng = np.random.default_rng(0)

    def leaf(values: Any) -> Tensor:
        return double(values).clone().requires_grad_()

    mean, y = leaf(rng.normal(size=6)), leaf(rng.normal(size=6) * 3)
    positive = [leaf(rng.uniform(0.3, 4.0, 6)) for _ in range(3)]
    large = leaf(rng.uniform(20.0, 90.0, 6))
    logits = leaf(rng.normal(size=2))
    check = torch.autograd.gradcheck
    assert check(lambda m, v, t: Normal(m, v).nll(t), (mean, positive[0], y))
    assert check(lambda g, n, a, b, t: NIG(g, n, a, b).nll(t), (mean, *positive, y))
    assert check(lambda g, n, a, b, t: NIG(g, n, a, b).nll(t), (mean, positive[0], large, large, y))
    assert check(
        lambda m, v, w, t: Mixture([Normal(m, v), Normal(m + 1, 2 * v)], w.softmax(0)).nll(t),
        (mean, positive[0], logits, y),
    )
    assert check(
        lambda g, n, a, b, t: Mixture([NIG(g, n, a, b), NIG(g - 1, n, a + 1, 2 * b)]).nll(t),
        (mean, *positive, y),
    )


def test_moments_are_differentiable() -> None:
    def leaf(*values: float) -> Tensor:
        return double(values).requires_grad_()

    gamma, nu, alpha, beta = leaf(0.3, -1.0), leaf(0.5, 2.0), leaf(1.7, 4.0), leaf(0.4, 3.0)
    for name in ("mean", "variance", "std", "aleatoric", "epistemic"):
        assert torch.autograd.gradcheck(
            lambda g, n, a, b: getattr(NIG(g, n, a, b), name) + 0 * (n + a + b),  # noqa: B023
            (gamma, nu, alpha, beta),
        )


# ---------------------------------------------------------------- cdf, quantile, interval


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


def test_normal_cdf_and_quantile_equal_scipy() -> None:
    rng = np.random.default_rng(2)
    mean, std, q = (
        rng.normal(size=500) * 5,
        10 ** rng.uniform(-4, 4, 500),
        rng.uniform(1e-4, 1 - 1e-4, 500),
    )
    dist, reference = Normal(double(mean), double(std**2)), stats.norm(mean, std)
    np.testing.assert_allclose(dist.quantile(double(q)).numpy(), reference.ppf(q), rtol=1e-9, atol=1e-12)
    y = mean + std * rng.normal(size=500)
    np.testing.assert_allclose(dist.cdf(double(y)).numpy(), reference.cdf(y), rtol=1e-9, atol=1e-12)


def test_lower_tails_keep_their_relative_accuracy() -> None:
    y = double([-8.0])
    assert Normal(double([0.0]), double([1.0])).cdf(y).item() == pytest.approx(stats.norm.cdf(-8.0), rel=1e-9)
    nig = NIG(double([0.0]), double([1.0]), double([50.0]), double([25.0]))
    assert nig.cdf(y).item() == pytest.approx(student(nig).cdf(-8.0).item(), rel=1e-9)


@each_kind
def test_quantile_inverts_the_distribution_function(dist: Any) -> None:
    q = torch.linspace(0.001, 0.999, 41, dtype=torch.float64)[:, None]
    y = dist.quantile(q)
    assert y.shape == (41, 3)
    assert torch.all(y.diff(dim=0) > 0)
    torch.testing.assert_close(dist.cdf(y), q.expand(41, 3), rtol=1e-7, atol=1e-8)
    torch.testing.assert_close(dist.quantile(dist.cdf(y)), y, rtol=1e-6, atol=1e-6)


@each_kind
def test_quantiles_at_the_ends_are_infinite(dist: Any) -> None:
    assert torch.all(dist.quantile(0.0) == -math.inf)
    assert torch.all(dist.quantile(1.0) == math.inf)
    torch.testing.assert_close(dist.cdf(double(-math.inf)), torch.zeros(3, dtype=torch.float64))
    torch.testing.assert_close(dist.cdf(double(math.inf)), torch.ones(3, dtype=torch.float64))


@each_kind
@pytest.mark.parametrize("coverage", [0.01, 0.5, 0.9, 0.99])
def test_intervals_are_central_and_hold_their_mass(dist: Any, coverage: float) -> None:
    lower, upper = dist.interval(coverage)
    torch.testing.assert_close(
        dist.cdf(lower), torch.full((3,), (1 - coverage) / 2).double(), rtol=1e-6, atol=1e-8
    )
    torch.testing.assert_close(
        dist.cdf(upper), torch.full((3,), (1 + coverage) / 2).double(), rtol=1e-6, atol=1e-8
    )


@each_kind
def test_density_is_the_slope_of_the_distribution_function(dist: Any) -> None:
    y = double([-1.0, 0.4, 2.0])[:, None].expand(3, 3)
    step = 1e-5
    slope = (dist.cdf(y + step) - dist.cdf(y - step)) / (2 * step)
    torch.testing.assert_close(dist.nll(y).neg().exp(), slope, rtol=1e-5, atol=1e-8)


# ---------------------------------------------------------------- samples and variances


@each_kind
def test_samples_follow_the_distribution(dist: Any) -> None:
    draws = dist.sample(20_000, generator=torch.Generator().manual_seed(0))
    assert draws.shape == (20_000, 3)
    uniform = dist.cdf(draws).numpy()
    for column in range(3):
        assert stats.kstest(uniform[:, column], "uniform").pvalue > 1e-3
    correlation = np.corrcoef(uniform.T) - np.eye(3)
    assert np.abs(correlation).max() < 0.03  # elements are drawn independently


@each_kind
def test_sampling_follows_the_generator(dist: Any) -> None:
    first = dist.sample(5, generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(
        first, dist.sample(5, generator=torch.Generator().manual_seed(1)), rtol=0, atol=0
    )
    assert not torch.equal(first, dist.sample(5, generator=torch.Generator().manual_seed(2)))
    torch.manual_seed(3)
    second = dist.sample(5)
    torch.manual_seed(3)
    torch.testing.assert_close(second, dist.sample(5), rtol=0, atol=0)


def test_sampling_moments() -> None:
    generator = torch.Generator().manual_seed(0)
    nig = NIG(double(2.0), double(0.5), double(4.0), double(3.0))
    mixture = Mixture(
        [Normal(double(-3.0), double(1.0)), Normal(double(5.0), double(4.0))], double([0.8, 0.2])
    )
    for dist in (Normal(double(1.0), double(4.0)), nig, mixture):
        draws = dist.sample(400_000, generator=generator)
        spread = dist.std.item()
        assert draws.mean().item() == pytest.approx(dist.mean.item(), abs=0.01 * spread)
        assert draws.var().item() == pytest.approx(dist.variance.item(), rel=0.03)


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


@pytest.mark.parametrize("alpha", [1.0, 0.5, 0.1])
def test_variance_is_infinite_with_too_little_evidence(alpha: float) -> None:
    dist = NIG(torch.zeros(2), 1.0, torch.tensor([alpha, 3.0]), 1.0)
    for value in (dist.variance, dist.std, dist.aleatoric, dist.epistemic):
        assert value[0] == math.inf
        assert torch.isfinite(value[1])
    mixture = Mixture([dist, NIG(torch.ones(2), 1.0, 3.0, 1.0)])
    for value in (mixture.variance, mixture.std, mixture.aleatoric, mixture.epistemic):
        assert value[0] == math.inf
        assert torch.isfinite(value[1])
    lower, upper = dist.interval(0.9)
    assert torch.isfinite(lower).all()
    assert torch.isfinite(upper).all()


# ---------------------------------------------------------------- rescale


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
    assert moved.shape == dist.shape
    y = double(np.random.default_rng(seed).normal(size=3) * 3)
    size = abs(scale)
    for name, factor in (
        ("mean", scale),
        ("std", size),
        ("variance", size**2),
        ("aleatoric", size**2),
        ("epistemic", size**2),
    ):
        start = shift if name == "mean" else 0.0
        torch.testing.assert_close(
            getattr(moved, name),
            factor * getattr(dist, name) + start,
            rtol=1e-9,
            atol=1e-9 * abs(factor),
            msg=name,
        )
    torch.testing.assert_close(
        moved.nll(scale * y + shift), dist.nll(y) + math.log(size), rtol=1e-8, atol=1e-8
    )
    mass = dist.cdf(y)
    torch.testing.assert_close(
        moved.cdf(scale * y + shift), mass if scale > 0 else 1 - mass, rtol=1e-7, atol=1e-9
    )
    expected = scale * dist.quantile(0.2 if scale > 0 else 0.8) + shift
    torch.testing.assert_close(moved.quantile(0.2), expected, rtol=1e-8, atol=1e-7 * size)
    back = moved.rescale(-shift / scale, 1 / scale)
    torch.testing.assert_close(back.mean, dist.mean, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(back.nll(y), dist.nll(y), rtol=1e-8, atol=1e-8)


@law
@given(scale=scales, shift=st.builds(lambda a, b: a * b, magnitude, st.sampled_from([1.0, -1.0])))
def test_rescale_maps_the_moments_for_any_shift_and_scale(scale: float, shift: float) -> None:
    for dist in three():
        moved = dist.rescale(shift, scale)
        tolerance = 1e-12 * (abs(shift) + abs(scale) * 10)
        torch.testing.assert_close(moved.mean, scale * dist.mean + shift, rtol=1e-9, atol=tolerance)
        exact = 1e-9 if not isinstance(dist, Mixture) else max(1e-9, 1e-12 * abs(shift / scale))
        torch.testing.assert_close(moved.aleatoric, scale**2 * dist.aleatoric, rtol=1e-9, atol=0)
        if exact < 1e-3:  # beyond, the spread of a mixture's means is lost in the rounding of the shift
            torch.testing.assert_close(moved.variance, scale**2 * dist.variance, rtol=exact, atol=0)
        assert torch.all(moved.variance > 0)
        assert torch.all(moved.epistemic >= 0)


@pytest.mark.parametrize("scale", [1e-9, 1.0, 1e9, -1e9])
def test_rescale_in_float32(scale: float) -> None:
    y = torch.linspace(-3, 3, 3)
    for dist in (d.map(lambda t: t.float()) for d in three()):
        moved = dist.rescale(2 * scale, scale)
        for value in (
            moved.mean,
            moved.variance,
            moved.nll(scale * y + 2 * scale),
            moved.cdf(scale * y),
            moved.quantile(0.1),
        ):
            assert torch.isfinite(value).all()
        torch.testing.assert_close(
            moved.nll(scale * y + 2 * scale),
            dist.nll(y) + math.log(abs(scale)),
            rtol=1e-4,
            atol=1e-4,
        )


@each_kind
def test_rescale_with_tensors_and_gradients(dist: Any) -> None:
    shift, scale = double(3.0).requires_grad_(), double(-2.0).requires_grad_()
    moved = dist.rescale(shift, scale)
    torch.testing.assert_close(moved.mean, -2 * dist.mean + 3)
    moved.nll(double([1.0, 2.0, 3.0])).sum().backward()
    assert shift.grad is not None
    assert scale.grad is not None


# ---------------------------------------------------------------- mixtures


def test_mixture_of_equal_parts_is_the_part() -> None:
    y = double([-1.0, 0.3, 5.0])
    for dist in three()[:2]:
        mixture = Mixture([dist] * 4, double([0.1, 0.2, 0.3, 0.4]))
        for name in ("mean", "variance", "std", "aleatoric", "epistemic"):
            torch.testing.assert_close(getattr(mixture, name), getattr(dist, name), rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(mixture.nll(y), dist.nll(y))
        torch.testing.assert_close(mixture.cdf(y), dist.cdf(y))
        torch.testing.assert_close(mixture.quantile(0.37), dist.quantile(0.37), rtol=1e-7, atol=1e-7)


def test_mixture_from_a_leading_dimension() -> None:
    mean, variance = (
        double([[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]),
        double([[1.0, 2.0, 3.0], [0.5, 0.5, 0.5]]),
    )
    stacked, listed = (
        Mixture(Normal(mean, variance)),
        Mixture([Normal(mean[k], variance[k]) for k in range(2)]),
    )
    y = double([0.5, 1.5, 2.5])
    assert stacked.shape == listed.shape == (3,)
    for name in ("mean", "variance", "aleatoric", "epistemic"):
        torch.testing.assert_close(getattr(stacked, name), getattr(listed, name))
    torch.testing.assert_close(stacked.nll(y), listed.nll(y))
    torch.testing.assert_close(stacked.quantile(0.1), listed.quantile(0.1))
    torch.testing.assert_close(stacked.mean, double([1.5, 2.5, 3.5]))


def test_weights_may_differ_between_elements() -> None:
    weights = double([[1.0, 0.0, 0.25], [0.0, 1.0, 0.75]])
    parts = [
        Normal(double([0.0, 0.0, 0.0]), double(1.0)),
        Normal(double([8.0, 8.0, 8.0]), double(4.0)),
    ]
    mixture = Mixture(parts, weights)
    torch.testing.assert_close(mixture.mean, double([0.0, 8.0, 6.0]))
    torch.testing.assert_close(mixture.variance, double([1.0, 4.0, 0.25 * (1 + 36) + 0.75 * (4 + 4)]))
    torch.testing.assert_close(
        mixture.quantile(0.9)[:2], double([1.2815515655446004, 8 + 2 * 1.2815515655446004])
    )
    draws = mixture.sample(4000, generator=torch.Generator().manual_seed(0))
    assert (draws[:, 2] > 3).double().mean().item() == pytest.approx(0.75, abs=0.03)
    assert (draws[:, 0] > 5.5).sum() == 0


def test_zero_weights_leave_finite_gradients() -> None:
    mean = double([0.0]).requires_grad_()
    mixture = Mixture([Normal(mean, double([1.0])), Normal(mean + 1, double([1.0]))], double([1.0, 0.0]))
    nll = mixture.nll(double([0.5]))
    nll.sum().backward()
    assert nll.item() == pytest.approx(0.5 * math.log(2 * math.pi) + 0.125)
    assert mean.grad is not None
    assert mean.grad.item() == pytest.approx(-0.5)


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


def test_quantiles_of_far_apart_parts() -> None:
    mixture = Mixture(
        [Normal(double([-1e6]), double([1.0])), Normal(double([1e6]), double([1e-4]))],
        double([0.25, 0.75]),
    )
    q = double([0.01, 0.1, 0.24, 0.26, 0.5, 0.99])
    y = mixture.quantile(q)
    expected = [stats.norm.ppf(p / 0.25, -1e6, 1.0) for p in (0.01, 0.1, 0.24)]
    expected += [stats.norm.ppf((p - 0.25) / 0.75, 1e6, 0.01) for p in (0.26, 0.5, 0.99)]
    np.testing.assert_allclose(y.numpy(), expected, rtol=0, atol=1e-5)


def test_quantiles_of_a_heavy_tailed_mixture() -> None:
    parts = [
        NIG(double([0.0]), double([1.0]), double([0.3]), double([1.0])),
        NIG(double([2.0]), double([1.0]), double([9.0]), double([1.0])),
    ]
    mixture = Mixture(parts, double([0.1, 0.9]))
    q = double([1e-4, 0.02, 0.5, 0.98, 1 - 1e-4])
    torch.testing.assert_close(mixture.cdf(mixture.quantile(q)), q, rtol=1e-6, atol=1e-9)


def test_components_of_different_kinds_are_an_error() -> None:
    with pytest.raises((TypeError, ValueError), match=r"Normal|NIG"):
        Mixture([Normal(0.0, 1.0), NIG(0.0, 1.0, 2.0, 1.0)])


def test_components_of_different_shapes_are_an_error() -> None:
    with pytest.raises(ValueError, match=r"shape"):
        Mixture([Normal(torch.zeros(3), 1.0), Normal(torch.zeros(4), 1.0)])


def test_no_components_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"(?i)component|no distributions"):
        Mixture([])


@pytest.mark.parametrize("weights", [[1.0], [0.2, 0.3, 0.5], [1.5, -0.5], [math.nan, 1.0], [0.0, 0.0]])
def test_impossible_weights_are_an_error(weights: list[float]) -> None:
    with pytest.raises(ValueError, match="weights"):
        Mixture([Normal(torch.zeros(3), 1.0), Normal(torch.ones(3), 1.0)], torch.tensor(weights))


def test_weights_may_be_a_list_and_are_normalised() -> None:
    parts = [Normal(double([0.0]), double([1.0])), Normal(double([4.0]), double([1.0]))]
    torch.testing.assert_close(Mixture(parts, [1.0, 3.0]).mean, double([3.0]))
    torch.testing.assert_close(Mixture(parts, double([2.0, 2.0])).mean, double([2.0]))


def test_mixture_nll_far_in_the_tail_does_not_underflow() -> None:
    mixture = Mixture([Normal(torch.zeros(1), 1.0), Normal(torch.ones(1), 1.0)])
    expected = 0.5 * math.log(2 * math.pi) + 0.5 * 999.0**2 + math.log(2)
    assert mixture.nll(torch.tensor([1000.0])).item() == pytest.approx(expected, rel=1e-6)


# ---------------------------------------------------------------- map and indexing


@each_kind
def test_concatenate_joins_what_indexing_took_apart(dist: Any) -> None:
    assert len(dist) == 3
    joined, y = concatenate([dist[:1], dist[1:]]), double([0.3, -1.0, 2.0])
    assert type(joined) is type(dist)
    torch.testing.assert_close(joined.nll(y), dist.nll(y))
    torch.testing.assert_close(joined.variance, dist.variance)


def test_stack_adds_a_leading_dimension() -> None:
    normal = three()[0]
    stacked = stack([normal, normal.rescale(1.0, 2.0)])
    assert stacked.shape == (2, 3)
    torch.testing.assert_close(stacked[1].mean, 2 * normal.mean + 1)


def test_joining_different_kinds_is_an_error() -> None:
    normal, nig, mixture, _ = three()
    for pair in ([normal, nig], [normal, mixture], [mixture, normal]):
        with pytest.raises((TypeError, ValueError), match="Normal"):
            concatenate(pair)
    with pytest.raises(ValueError, match=r"no (distributions|components)"):
        concatenate([])
    with pytest.raises((TypeError, ValueError), match="Mixture"):
        Mixture([mixture, mixture])
    with pytest.raises((TypeError, ValueError), match="Mixture"):
        Mixture(mixture)
