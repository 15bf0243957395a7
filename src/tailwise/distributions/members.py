"""Predictive distributions. Every head returns one, and everything after a head reads only that.

A `Normal`, an `NIG` (whose predicted label follows a Student-t), a `Mixture` of either, or any of these
under weights of the label (`tailwise.distributions.tilt.Tilted`). `nll` and the moments are differentiable
and stay on their device. `cdf`, `quantile` and `crps` are those of the `Members` that all kinds are made of,
in float64 and without gradient (`tailwise.distributions.student_t`).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, ClassVar, Self, cast

import torch
from torch import Tensor

from tailwise.distributions.student_t import Members, log_gamma_ratio, weighted

Number = float | Tensor


class Distribution(ABC):
    """A predictive distribution for each element of a tensor of any shape."""

    @property
    @abstractmethod
    def mean(self) -> Tensor:
        """Expected label."""

    @property
    def variance(self) -> Tensor:
        """Total variance, aleatoric plus epistemic, in squared label units."""
        return self.aleatoric + self.epistemic

    @property
    @abstractmethod
    def aleatoric(self) -> Tensor:
        """Variance from noise in the label, which more data would not remove."""

    @property
    @abstractmethod
    def epistemic(self) -> Tensor:
        """Variance from not knowing the label's mean, which more data would remove."""

    @property
    def std(self) -> Tensor:
        """Total standard deviation, in label units."""
        return self.variance.sqrt()

    @cached_property
    def median(self) -> Tensor:
        """Label that is exceeded with probability 1/2, computed once."""
        return self.quantile(0.5)

    @property
    def point(self) -> Tensor:
        """The one label to predict: the mean, unless a kind of distribution has a better one."""
        return self.mean

    @property
    def shape(self) -> torch.Size:
        """Shape of the predictions."""
        return self.mean.shape

    @abstractmethod
    def nll(self, y: Number) -> Tensor:
        """Negative log-density at y, per element. Differentiable."""

    def rescale(self, shift: Number, scale: Number) -> Self:
        """Distribution of ``scale * Y + shift``; scale must not be 0."""
        if not isinstance(scale, Tensor) and not (math.isfinite(scale) and scale != 0):
            raise ValueError(f"scale must be a finite number other than 0, got {scale!r}")
        moved = self.parametric.placed(self.parametric.mean * scale + shift, scale)
        return cast("Self", self.rebuilt(moved))

    @abstractmethod
    def members(self) -> Members:
        """Return the Normals or Student-t's that it is made of, before any weights of the label."""

    @property
    @abstractmethod
    def parametric(self) -> Parametric:
        """The Normal or NIG that it is made of, of shape (K, *shape) in a mixture."""

    @abstractmethod
    def rebuilt(self, parametric: Parametric, weight_factor: Number = 1.0) -> Distribution:
        """Return the same mixture, under the same weights of the label, of another `parametric`.

        The weights of members are multiplied by `weight_factor`.
        """

    @property
    def base(self) -> Distribution:
        """The prediction before any weights of the label: itself if there are none."""
        return self

    def onto(self, base: Distribution) -> Distribution:
        """Return another prediction under the same weights of the label."""
        return base

    @property
    def exact(self) -> Self:
        """The same in float64 on the CPU, without gradient."""
        return self.map(exactly)

    def _beside(self, value: Number) -> tuple[Members, Tensor]:
        """Members that broadcast against a value, and the value, all of them exact."""
        y = exactly(value)
        return Members(*(against(part, y, len(self.shape)) for part in self.exact.members())), y

    def cdf(self, y: Number) -> Tensor:
        """Probability of a label of at most y."""
        m, labels = self._beside(y)
        return m.cdf(labels).to(self.mean)

    def quantile(self, q: Number) -> Tensor:
        """Label that is exceeded with probability 1 - q; q broadcasts against the parameters."""
        m, levels = self._beside(checked_probability(q))
        return m.quantile(levels).to(self.mean)

    def interval(self, coverage: float = 0.9) -> tuple[Tensor, Tensor]:
        """Return both ends of the central interval that covers the label with the given probability."""
        tail = (1 - checked_coverage(coverage)) / 2
        levels = torch.tensor([tail, 1 - tail], dtype=torch.float64)
        lower, upper = self.quantile(levels.reshape(2, *(1 for _ in self.shape)))
        return lower, upper

    def sample(self, n: int, generator: torch.Generator | None = None) -> Tensor:
        """Draw n labels for each element. (n, *shape)"""
        uniform = torch.rand((n, *self.shape), generator=generator, dtype=torch.float64)
        return self.quantile(uniform.clamp(1e-12, 1 - 1e-12))

    @cached_property
    def central(self) -> tuple[Tensor, Tensor, Tensor]:
        """The quantiles at 5%, 50% and 95%, computed together and once."""
        levels = torch.tensor([0.05, 0.5, 0.95], dtype=torch.float64)
        lower, median, upper = self.quantile(levels.reshape(3, *(1 for _ in self.shape)))
        return lower, median, upper

    def crps(self, y: Number) -> Tensor:
        """Continuous ranked probability score at y: ``E|Y - y| - E|Y - Y'| / 2`` for predicted Y and Y'."""
        return self.deviation(y) - self.mean_difference() / 2

    def deviation(self, y: Number) -> Tensor:
        """E|Y - y|."""
        m, labels = self._beside(y)
        return m.deviation(labels).to(self.mean)

    def mean_difference(self) -> Tensor:
        """E|Y - Y'| for two independent labels Y and Y'."""
        return self.exact.members().mean_difference().to(self.mean)

    @abstractmethod
    def pooled(self, weights: Tensor | None = None) -> Distribution:
        """Return one distribution for those along the first dimension; see the function `pooled`."""

    @classmethod
    @abstractmethod
    def _joined(cls, parts: Sequence[Self], function: Callable[..., Tensor]) -> Self:
        """Apply a function to a list of the same parameter of all parts, for each parameter."""

    def map(self, function: Callable[[Tensor], Tensor]) -> Self:
        """Apply a function (slice, reshape, move, cast) to every parameter tensor; each has this shape."""
        return self._joined([self], lambda one: function(one[0]))

    def __repr__(self) -> str:
        return f"{type(self).__name__} of shape {tuple(self.shape)}"

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, item: Any) -> Self:
        return self.map(lambda parameter: parameter[item])


class Parametric(Distribution):
    """A distribution given by named parameter tensors of one shape: a `Normal` or an `NIG`.

    Not a dataclass, because wrappers such as Fabric's rebuild dataclasses field by field.
    """

    names: ClassVar[tuple[str, ...]]
    parameters: tuple[Tensor, ...]
    """The parameter tensors in the order of `names`."""

    def __init__(self, *values: Number) -> None:
        floating = [v for v in values if isinstance(v, Tensor) and v.is_floating_point()]
        like = floating[0] if floating else torch.zeros((), dtype=torch.float64)
        tensors = [
            v
            if isinstance(v, Tensor) and v.is_floating_point()
            else torch.as_tensor(v, dtype=like.dtype, device=like.device)
            for v in values
        ]
        self.parameters = tuple(torch.broadcast_tensors(*tensors))

    @property
    @abstractmethod
    def scale(self) -> Tensor:
        """Scale of the Normal or Student-t around the mean."""

    @property
    @abstractmethod
    def df(self) -> Tensor:
        """Degrees of freedom of the Student-t; infinity for a Normal."""

    @abstractmethod
    def placed(self, location: Tensor, stretch: Number) -> Self:
        """Return it around another mean, with its scale multiplied."""

    def members(self) -> Members:
        parts = torch.ones_like(self.mean), self.mean, self.scale, self.df
        return Members(*(part.unsqueeze(0) for part in parts))

    @property
    def parametric(self) -> Parametric:
        return self

    def rebuilt(self, parametric: Parametric, weight_factor: Number = 1.0) -> Distribution:
        return parametric

    @classmethod
    def _joined(cls, parts: Sequence[Self], function: Callable[..., Tensor]) -> Self:
        return cls(*(function(column) for column in zip(*(p.parameters for p in parts), strict=True)))

    def _like(self, value: Number) -> Tensor:
        return torch.as_tensor(value, dtype=self.mean.dtype, device=self.mean.device)


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
        return self.parameters[0]

    @property
    def variance(self) -> Tensor:
        return self.parameters[1]

    @property
    def aleatoric(self) -> Tensor:
        return self.variance

    @property
    def epistemic(self) -> Tensor:
        return torch.zeros_like(self.variance)

    @property
    def scale(self) -> Tensor:
        return self.variance.sqrt()

    @property
    def df(self) -> Tensor:
        return torch.full_like(self.variance, math.inf)

    def nll(self, y: Number) -> Tensor:
        z = (self._like(y) - self.mean) / self.scale
        return 0.5 * (z**2 + self.variance.log() + math.log(2 * math.pi))

    def sample(self, n: int, generator: torch.Generator | None = None) -> Tensor:
        like = self.mean
        noise = torch.randn((n, *self.shape), generator=generator, dtype=like.dtype, device=like.device)
        return self.mean + self.scale * noise

    def placed(self, location: Tensor, stretch: Number) -> Self:
        return type(self)(location, self.variance * stretch * stretch)

    def pooled(self, weights: Tensor | None = None) -> Distribution:
        mean = _average(self.mean, weights)
        between = _average((self.mean - mean) ** 2, weights)
        return Normal(mean, _average(self.variance, weights) + between)


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
        return self.parameters[0]

    @property
    def nu(self) -> Tensor:
        """Number of observations behind the location."""
        return self.parameters[1]

    @property
    def alpha(self) -> Tensor:
        """Half of the degrees of freedom."""
        return self.parameters[2]

    @property
    def beta(self) -> Tensor:
        """Half of the sum of squares."""
        return self.parameters[3]

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
    def scale(self) -> Tensor:
        return (self.beta / self.alpha * (1 + 1 / self.nu)).sqrt()

    @property
    def df(self) -> Tensor:
        return 2 * self.alpha

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

    def placed(self, location: Tensor, stretch: Number) -> Self:
        return type(self)(location, self.nu, self.alpha, self.beta * stretch * stretch)

    def pooled(self, weights: Tensor | None = None) -> Distribution:
        if not torch.compiler.is_compiling() and bool((self.alpha <= 1).any()):
            return Mixture(self, weights)
        mean = _average(self.mean, weights)
        between = _average((self.mean - mean) ** 2, weights)
        aleatoric = _average(self.aleatoric, weights)
        epistemic = _average(self.epistemic, weights) + between
        excess = 1 / _average(1 / (self.alpha - 1), weights)  # the heavier tails count more
        return NIG(mean, aleatoric / epistemic, 1 + excess, aleatoric * excess)


class Mixture(Distribution):
    """Mixture of distributions of one type: the members of an ensemble, or label bins to average over.

    Its epistemic variance is the members' own plus the variance between their means. Mixtures may be mixed.

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
        inner = components.members().weight  # (inner K, K, *shape)
        if weights is None:
            shares = torch.ones_like(inner[0])
        else:
            shares = torch.as_tensor(weights).to(inner)
            # Reading values on a GPU would wait for it, and while tracing there are none.
            readable = check and shares.device.type == "cpu" and not torch.compiler.is_compiling()
            if readable and not bool((shares >= 0).all() & (shares.sum(0) > 0).all()):
                raise ValueError("weights must not be negative or NaN, and must not all be 0")
        shares = shares.reshape(shares.shape + (1,) * (inner.dim() - 1 - shares.dim()))
        if shares.shape[0] != components.shape[0]:
            raise ValueError(f"{shares.shape[0]} weights for {components.shape[0]} components")
        shares = shares.expand_as(inner[0])
        parametric = components.parametric
        if parametric is not components:  # a mixture of mixtures
            shares, parametric = _merged(shares * inner), parametric.map(_merged)
        self.components, self.weights = parametric, shares / shares.sum(0)

    @property
    def shape(self) -> torch.Size:
        return self.weights.shape[1:]

    @property
    def mean(self) -> Tensor:
        return (self.weights * self.components.mean).sum(0)

    @property
    def aleatoric(self) -> Tensor:
        return weighted(self.weights, self.components.aleatoric)

    @property
    def epistemic(self) -> Tensor:
        between = (self.components.mean - self.mean) ** 2
        return weighted(self.weights, self.components.epistemic + between)

    def members(self) -> Members:
        return Members(self.weights, self.components.mean, self.components.scale, self.components.df)

    @property
    def parametric(self) -> Parametric:
        return self.components

    def rebuilt(self, parametric: Parametric, weight_factor: Number = 1.0) -> Distribution:
        return Mixture(parametric, self.weights * weight_factor, check=False)

    def nll(self, y: Number) -> Tensor:
        y = self.components._like(y)
        weights = against(self.weights, y, len(self.shape))
        components = self.components.map(lambda p: against(p, y, len(self.shape)))
        some = weights > 0
        shares = torch.where(some, torch.where(some, weights, 1.0).log(), -math.inf)
        return -torch.logsumexp(shares - components.nll(y), dim=0)

    def sample(self, n: int, generator: torch.Generator | None = None) -> Tensor:
        draws = self.components.sample(n, generator)  # (n, K, *shape)
        uniform = torch.rand((n, 1, *self.shape), generator=generator).to(self.weights)
        member = (uniform >= self.weights.cumsum(0)).sum(1, keepdim=True)
        return draws.gather(1, member.clamp(max=self.weights.shape[0] - 1)).squeeze(1)

    def pooled(self, weights: Tensor | None = None) -> Distribution:
        return Mixture(self, weights)

    @classmethod
    def _joined(cls, parts: Sequence[Self], function: Callable[..., Tensor]) -> Self:
        def each(columns: Sequence[Tensor]) -> Tensor:  # each member by itself
            return torch.stack([function(members) for members in zip(*columns, strict=True)])

        components = type(parts[0].components)._joined([p.components for p in parts], each)
        return cls(components, each([p.weights for p in parts]), check=False)


def exactly(value: Number) -> Tensor:
    """Return a number in float64 on the CPU, without gradient."""
    if isinstance(value, Tensor):
        return value.detach().to("cpu", torch.float64)
    return torch.tensor(value, dtype=torch.float64, device="cpu")


def _merged(parameter: Tensor) -> Tensor:
    """Members of several mixtures as members of one. (inner K, K, *shape) -> (K * inner K, *shape)"""
    return parameter.movedim(1, 0).flatten(0, 1)


def _average(value: Tensor, weights: Tensor | None) -> Tensor:
    """Return the mean over members, or their weighted sum. (K, *shape) -> shape"""
    if weights is None:
        return value.mean(0)
    weights = weights.to(value)
    return (weights.reshape(*weights.shape, *[1] * (value.dim() - weights.dim())) * value).sum(0)


def against(parameter: Tensor, value: Tensor, dimensions: int) -> Tensor:
    """Give members (K, *shape) a dimension of 1 after K for each leading dimension of a value."""
    extra = (1,) * (value.dim() - dimensions)
    return parameter.reshape(parameter.shape[:1] + extra + parameter.shape[1:])


def stack(distributions: Sequence[Distribution]) -> Distribution:
    """Stack distributions of one type and shape along a new first dimension."""
    return _joined(distributions, torch.stack)


def concatenate(distributions: Sequence[Distribution]) -> Distribution:
    """Join distributions of one type along their first dimension."""
    return _joined(distributions, torch.cat)


def pooled(distributions: Sequence[Distribution], weights: Tensor | None = None) -> Distribution:
    """Return one distribution for the predictions of several models, of the type that they have.

    `weights` add up to 1 over the models; without them all count the same. The mean, aleatoric and epistemic
    variance are those of the mixture of all: the variance between the models' means is epistemic, and a part
    of the only variance of a Normal. Mixtures, and NIG of infinite variance, are joined into one mixture.
    weights: (K,), or (K, 1, T) for several targets

    >>> both = pooled([NIG(torch.tensor([0.0]), 2.0, 3.0, 4.0), NIG(torch.tensor([2.0]), 2.0, 3.0, 4.0)])
    >>> both.mean.item(), both.aleatoric.item(), both.epistemic.item()
    (1.0, 2.0, 2.0)
    """
    return distributions[0] if len(distributions) == 1 else stack(distributions).pooled(weights)


def _joined(distributions: Sequence[Distribution], function: Callable[..., Tensor]) -> Distribution:
    kinds = {(type(d).__name__, type(d.parametric).__name__) for d in distributions}
    if len(kinds) != 1:
        names = sorted({" of ".join(dict.fromkeys(kind)) for kind in kinds})
        raise TypeError(f"distributions of one type are needed, got {', '.join(names) or 'none'}")
    return type(distributions[0])._joined(distributions, function)


def checked_coverage(coverage: float) -> float:
    """Return the coverage of an interval; 0, 1 and anything beyond is an error."""
    if not 0 < coverage < 1:
        raise ValueError(f"coverage must lie between 0 and 1, got {coverage!r}")
    return coverage


def checked_probability(q: Number) -> Number:
    """Return the level of a quantile; a number outside 0..1 is an error."""
    if not isinstance(q, Tensor) and not 0 <= q <= 1:
        raise ValueError(f"a quantile's level must lie between 0 and 1, got {q!r}")
    return q
