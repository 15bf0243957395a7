"""Predictive distributions. Every head returns one, and everything after a head reads only that.

Each one has a mean, a variance that splits into an aleatoric and an epistemic part, a negative
log-likelihood, a CDF, quantiles, intervals and samples. `nll` and the moments are differentiable
and stay on their device; `cdf` and `quantile` are evaluated by SciPy in float64, without gradient.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Self

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import special
from torch import Tensor

from tailwise.core.predictive import (
    Distribution,
    Number,
    Parametric,
    checked_coverage,
    checked_probability,
    checked_scale,
)
from tailwise.core.student_t import as_numpy, log_gamma_ratio, mixture_quantile, student_quantile, with_scipy

__all__ = [
    "NIG", "Distribution", "Mixture", "Normal", "Number", "checked_coverage", "checked_probability",
    "concatenate", "stack",
]  # fmt: skip


class Normal(Parametric):
    """Gaussian prediction. Its variance counts as aleatoric: one network cannot tell the parts apart.

    >>> low, high = Normal(torch.tensor([10.0]), 4.0).interval(0.95)
    >>> [round(low.item(), 2), round(high.item(), 2)]
    [6.08, 13.92]
    """

    names = ("mean", "variance")

    def __init__(self, mean: Number, variance: Number) -> None:
        super().__init__(mean, variance)

    @property
    def mean(self) -> Tensor:
        return self._values[0]

    @property
    def variance(self) -> Tensor:
        return self._values[1]

    @property
    def aleatoric(self) -> Tensor:
        return self.variance

    @property
    def epistemic(self) -> Tensor:
        return torch.zeros_like(self.variance)

    def nll(self, y: Number) -> Tensor:
        standardized = (self._like(y) - self.mean) / self.variance.sqrt()
        return 0.5 * (standardized**2 + self.variance.log() + math.log(2 * math.pi))

    def cdf(self, y: Number) -> Tensor:
        standardized = (self._like(y) - self.mean) / self.variance.sqrt()
        return with_scipy(special.ndtr, self.mean, standardized)

    def quantile(self, q: Number) -> Tensor:
        levels = torch.as_tensor(checked_probability(q), dtype=torch.float64)
        return self.mean.detach() + self.variance.detach().sqrt() * with_scipy(
            special.ndtri, self.mean, levels
        )

    def sample(self, n: int, generator: torch.Generator | None = None) -> Tensor:
        noise = torch.randn(
            (n, *self.shape), generator=generator, dtype=self.mean.dtype, device=self.mean.device
        )
        return self.mean + self.variance.sqrt() * noise

    def rescale(self, shift: Number, scale: Number) -> Self:
        scale = checked_scale(scale)
        return type(self)(self.mean * scale + shift, self.variance * scale * scale)


class NIG(Parametric):
    """Normal-inverse-gamma belief about a label's mean and variance (VIR:nll, VIR:predict).

    ``variance ~ InvGamma(alpha, beta)`` and ``mean ~ N(gamma, variance / nu)``. The predicted label
    then follows a Student-t with ``2 alpha`` degrees of freedom, location ``gamma`` and squared
    scale ``beta (1 + nu) / (nu alpha)``. With ``alpha <= 1`` the variance is infinite.

    >>> belief = NIG(torch.tensor([0.0]), 2.0, 3.0, 4.0)
    >>> belief.aleatoric.item(), belief.epistemic.item(), belief.variance.item()
    (2.0, 1.0, 3.0)
    """

    names = ("gamma", "nu", "alpha", "beta")

    def __init__(self, gamma: Number, nu: Number, alpha: Number, beta: Number) -> None:
        super().__init__(gamma, nu, alpha, beta)

    @property
    def gamma(self) -> Tensor:
        """Location of the label's mean."""
        return self._values[0]

    @property
    def nu(self) -> Tensor:
        """Number of observations behind the location."""
        return self._values[1]

    @property
    def alpha(self) -> Tensor:
        """Half of the degrees of freedom."""
        return self._values[2]

    @property
    def beta(self) -> Tensor:
        """Half of the sum of squares."""
        return self._values[3]

    @property
    def mean(self) -> Tensor:
        return self.gamma

    @property
    def aleatoric(self) -> Tensor:
        finite = self.alpha > 1
        excess = torch.where(finite, self.alpha - 1, torch.ones_like(self.alpha))
        return torch.where(finite, self.beta / excess, math.inf)

    @property
    def epistemic(self) -> Tensor:
        return self.aleatoric / self.nu

    @property
    def variance(self) -> Tensor:
        return self.aleatoric + self.epistemic

    @property
    def scale(self) -> Tensor:
        """Scale of the predicted Student-t, whose degrees of freedom are 2 alpha."""
        return (self.beta / self.alpha * (1 + 1 / self.nu)).sqrt()

    def nll(self, y: Number) -> Tensor:
        # VIR:nll with alpha log Omega cancelled by hand. The rest is log1p of the squared residual
        # in units of the spread, exact where the difference of two logarithms would lose digits.
        spread = (2 * self.beta).sqrt() * (1 + 1 / self.nu).sqrt()
        squared = ((self._like(y) - self.gamma) / spread) ** 2
        return (
            0.5 * math.log(math.pi)
            + spread.log()
            + (self.alpha + 0.5) * squared.log1p()
            - log_gamma_ratio(self.alpha)
        )

    def cdf(self, y: Number) -> Tensor:
        standardized = (self._like(y) - self.gamma) / self.scale
        return with_scipy(special.stdtr, self.gamma, 2 * self.alpha, standardized)

    def quantile(self, q: Number) -> Tensor:
        levels = torch.as_tensor(checked_probability(q), dtype=torch.float64)
        standardized = with_scipy(student_quantile, self.gamma, 2 * self.alpha, levels)
        return self.gamma.detach() + self.scale.detach() * standardized

    def sample(self, n: int, generator: torch.Generator | None = None) -> Tensor:
        # torch's gamma sampler takes no generator, so draws are quantiles of uniform numbers.
        uniform = torch.rand((n, *self.shape), generator=generator, dtype=torch.float64)
        return self.quantile(uniform.clamp(1e-12, 1 - 1e-12).to(self.gamma.device))

    def rescale(self, shift: Number, scale: Number) -> Self:
        scale = checked_scale(scale)
        return type(self)(self.gamma * scale + shift, self.nu, self.alpha, self.beta * scale * scale)


class Mixture(Distribution):
    """Mixture of distributions of one type: the members of an ensemble, or label bins to average over.

    Its epistemic variance is the members' own plus the variance between their means.

    >>> pair = Mixture([Normal(torch.tensor([0.0]), 1.0), Normal(torch.tensor([2.0]), 1.0)])
    >>> pair.mean.item(), pair.aleatoric.item(), pair.epistemic.item()
    (1.0, 1.0, 1.0)
    """

    components: Parametric  # leading dimension K
    weights: Tensor  # (K, *shape), sums to 1 over K

    def __init__(
        self,
        components: Sequence[Distribution] | Distribution,
        weights: Tensor | None = None,
        *,
        check: bool = True,
    ) -> None:
        if not isinstance(components, Distribution):
            components = stack(components)
        if not isinstance(components, Parametric):
            raise TypeError(f"a mixture of {type(components).__name__} is not supported: flatten it")
        if weights is None:
            shares = torch.ones_like(components.mean)
        else:
            shares = torch.as_tensor(weights).to(components.mean)
            # Reading values on a GPU would wait for it, and while tracing there are none.
            readable = check and shares.device.type == "cpu" and not torch.compiler.is_compiling()
            if readable and not bool((shares >= 0).all() & (shares.sum(0) > 0).all()):
                raise ValueError("weights must not be negative or NaN, and must not all be 0")
        shares = shares.reshape(shares.shape + (1,) * (components.mean.dim() - shares.dim()))
        if shares.shape[0] != components.shape[0]:
            raise ValueError(f"{shares.shape[0]} weights for {components.shape[0]} components")
        shares = shares.expand_as(components.mean)
        self.components, self.weights = components, shares / shares.sum(0)

    @property
    def mean(self) -> Tensor:
        return (self.weights * self.components.mean).sum(0)

    @property
    def aleatoric(self) -> Tensor:
        return self._average(self.components.aleatoric)

    @property
    def epistemic(self) -> Tensor:
        between = (self.components.mean - self.mean) ** 2
        return self._average(self.components.epistemic + between)

    def _average(self, value: Tensor) -> Tensor:
        """Weighted sum that ignores components of weight 0, even infinite ones."""
        return (self.weights * torch.where(self.weights > 0, value, 0.0)).sum(0)

    @property
    def variance(self) -> Tensor:
        return self.aleatoric + self.epistemic

    def _against(self, value: Tensor) -> tuple[Parametric, Tensor]:
        """Components and weights, with a dimension of 1 after K for each leading one of value."""
        extra = (1,) * (value.dim() - len(self.shape))

        def widened(p: Tensor) -> Tensor:
            return p.reshape(p.shape[:1] + extra + p.shape[1:])

        return self.components.map(widened), widened(self.weights)

    def nll(self, y: Number) -> Tensor:
        y = self.components._like(y)
        components, weights = self._against(y)
        some = weights > 0
        shares = torch.where(some, torch.where(some, weights, 1.0).log(), -math.inf)
        return -torch.logsumexp(shares - components.nll(y), dim=0)

    def cdf(self, y: Number) -> Tensor:
        y = self.components._like(y)
        components, weights = self._against(y)
        return (weights * components.cdf(y)).sum(0)

    def quantile(self, q: Number) -> Tensor:
        levels = torch.as_tensor(checked_probability(q), dtype=torch.float64)
        full = torch.broadcast_shapes(levels.shape, self.shape)
        components, weights = self.map(lambda p: p.detach().cpu().double())._against(levels)

        def flat(value: Tensor) -> NDArray[np.float64]:  # (K, ...) -> (K, n)
            return as_numpy(value.expand(value.shape[:1] + full)).reshape(len(value), -1)

        if isinstance(components, NIG):
            scale, df = components.scale, flat(2 * components.alpha)
        else:
            scale, df = components.std, None
        level = as_numpy(levels.expand(full)).reshape(-1)
        found = mixture_quantile(flat(weights), flat(components.mean), flat(scale), df, level)
        return torch.from_numpy(found.reshape(full)).to(self.mean)

    def sample(self, n: int, generator: torch.Generator | None = None) -> Tensor:
        draws = self.components.sample(n, generator)  # (n, K, *shape)
        uniform = torch.rand((n, 1, *self.shape), generator=generator).to(self.weights)
        member = (uniform >= self.weights.cumsum(0)).sum(1, keepdim=True)
        return draws.gather(1, member.clamp(max=self.weights.shape[0] - 1)).squeeze(1)

    def rescale(self, shift: Number, scale: Number) -> Self:
        return type(self)(self.components.rescale(shift, scale), self.weights)

    def map(self, function: Callable[[Tensor], Tensor]) -> Self:
        """Apply a function to the parameters of each component in turn."""
        members = range(self.weights.shape[0])
        components = self.components.map(lambda p: torch.stack([function(p[k]) for k in members]))
        return type(self)(components, torch.stack([function(self.weights[k]) for k in members]))

    @classmethod
    def _concatenated(cls, parts: Sequence[Self]) -> Self:
        columns = zip(*(d.components.parameters for d in parts), strict=True)
        components = type(parts[0].components)(*(torch.cat(column, dim=1) for column in columns))
        return cls(components, torch.cat([d.weights for d in parts], dim=1))


def stack(distributions: Sequence[Distribution]) -> Distribution:
    """Stack parametric distributions of one type and shape along a new first dimension."""
    _check_alike(distributions)
    parametric = [d for d in distributions if isinstance(d, Parametric)]
    if not parametric:
        raise TypeError(f"only Normal and NIG can be stacked, not {type(distributions[0]).__name__}")
    if any(d.shape != parametric[0].shape for d in parametric):  # an exporter's sizes cannot be hashed
        shapes = sorted({tuple(d.shape) for d in parametric})
        raise ValueError(f"distributions of one shape are needed, got shapes {shapes}")
    columns = zip(*(d.parameters for d in parametric), strict=True)
    return type(parametric[0])(*(torch.stack(column) for column in columns))


def concatenate(distributions: Sequence[Distribution]) -> Distribution:
    """Join distributions of one type along their first dimension."""
    _check_alike(distributions)
    return type(distributions[0])._concatenated(distributions)


def _check_alike(distributions: Sequence[Distribution]) -> None:
    if not distributions:
        raise ValueError("no distributions given")
    inner = [d.components if isinstance(d, Mixture) else d for d in distributions]
    kinds = {(type(d).__name__, type(i).__name__) for d, i in zip(distributions, inner, strict=True)}
    if len(kinds) > 1:
        names = sorted({" of ".join(dict.fromkeys(kind)) for kind in kinds})
        raise TypeError(f"distributions of one type are needed, got {', '.join(names)}")
