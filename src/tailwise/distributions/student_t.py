"""Student-t's, whose case of infinitely many degrees of freedom is the Normal, and mixtures of them.

Predictions of any kind are made of such mixtures, `Members`: what needs only these is written once, here. It
needs probabilities, partial means and quantiles of the standard Student-t, and roots of functions of these.
`StudentT` has them from SciPy. While an exporter traces, it brings its own `Student`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from functools import cached_property
from typing import NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import special
from torch import Tensor

Array = NDArray[np.float64]
_QUANTILE_STEPS = 80
_ROOT_STEPS = 24
_EXACT_ROOT = 1e-14  # this share of the function's range counts as 0
_NORMAL = 1e18  # as many degrees of freedom are a Normal to the last digit
_NODES = 256
_CHUNK = 2**21


def log_gamma_ratio(a: Tensor) -> Tensor:
    """Return ``log Gamma(a + 1/2) - log Gamma(a)`` without cancellation, for any a > 0.

    The difference of two `lgamma` loses every digit in float32 once a reaches 1e6. Eight steps of
    the recurrence Gamma(a+1) = a Gamma(a) bring a to 8 or more, where Stirling's series is exact
    to rounding.
    """
    steps = torch.arange(8, dtype=a.dtype, device=a.device)
    lifted = a.unsqueeze(-1) + steps
    # The product of eight factors by three halvings: the gradient of `prod` makes a GPU wait.
    pairs = lifted / (lifted + 0.5)
    pairs = pairs[..., :4] * pairs[..., 4:]
    pairs = pairs[..., :2] * pairs[..., 2:]
    product = pairs[..., 0] * pairs[..., 1]
    x = a + 8
    inverse = 1 / x
    square = inverse * inverse
    series = inverse * (
        -1 / 8 + square * (1 / 192 + square * (-1 / 640 + square * (17 / 14336 - square * 31 / 18432)))
    )
    return product.log() + 0.5 * x.log() + series


def standardized(y: Tensor, location: Tensor, scale: Tensor) -> Tensor:
    """Return ``(y - location) / scale``; at its location, a point without scale is at 0."""
    z = (y - location) / scale
    return torch.where(z.isnan() & (scale == 0), torch.zeros_like(z), z)


class Student(Protocol):
    """What predictions need of standard Student-t's with given degrees of freedom (K, ...)."""

    df: Tensor

    def sides(self, z: Tensor) -> tuple[Tensor, Tensor]:
        """Return the probabilities below and above z, each without cancellation."""

    def log_moment(self, z: Tensor) -> Tensor:
        """Return the log of the integral of t p(t) from z to infinity, for more than one df."""

    def mixture_quantile(self, weight: Tensor, location: Tensor, scale: Tensor, level: Tensor) -> Tensor:
        """Return quantiles of mixtures of K ``location + scale * T``. (K, ...) each, level: (...) -> (...)"""

    def root(self, function: Callable[[Tensor], Tensor], low: Tensor, high: Tensor) -> Tensor:
        """Return the root of an increasing function between two ends, else one of the ends, by element."""


IN_PLACE_OF_SCIPY: ContextVar[Callable[[Tensor], Student]] = ContextVar("student")
"""What an exporter uses in place of `StudentT` while it traces."""


def student(df: Tensor) -> Student:
    """Return the Student-t's with given degrees of freedom. (K, ...)"""
    return IN_PLACE_OF_SCIPY.get(StudentT)(df)


class Members(NamedTuple):
    """The Normals or Student-t's that a prediction is made of: K for each of its elements. (K, *shape) each

    A member is ``location + scale * T`` with T a standard Student-t. A Normal has infinitely many degrees of
    freedom. The weights sum to 1 over K.

    >>> from tailwise.distributions.members import Mixture, Normal
    >>> Mixture([Normal(torch.tensor([0.0]), 4.0), Normal(torch.tensor([9.0]), 1.0)]).members().scale
    tensor([[2.],
            [1.]])
    """

    weight: Tensor
    location: Tensor
    scale: Tensor
    df: Tensor

    def cdf(self, y: Tensor) -> Tensor:
        """Probability of a label of at most y."""
        below, _ = student(self.df).sides(standardized(y, self.location, self.scale))
        return weighted(self.weight, below)

    def quantile(self, level: Tensor) -> Tensor:
        """Label that is exceeded with probability 1 - level."""
        levels, _ = torch.broadcast_tensors(level, self.location[0])
        return student(self.df).mixture_quantile(self.weight, self.location, self.scale, levels)

    def deviation(self, y: Tensor) -> Tensor:
        """E|Y - y|."""
        tails, z = student(self.df), standardized(y, self.location, self.scale)
        below, above = tails.sides(z)
        distance = y - self.location
        spread = distance * (below - above) + 2 * self.scale * tails.log_moment(z).exp()
        spread = torch.where(self.df > 1, spread, math.nan)
        # A prediction without spread is a point.
        return weighted(self.weight, torch.where(self.scale > 0, spread, distance.abs()))

    def mean_difference(self) -> Tensor:
        """E|Y - Y'| for two independent labels."""
        if len(self.weight) == 1:
            df = self.df[0].clamp(max=_NORMAL)
            log_betas = 2 * log_gamma_ratio(df / 2) - log_gamma_ratio(df - 0.5) - 0.5 * math.log(math.pi)
            return self.scale[0] * 4 * df.sqrt() / (df - 1) * log_betas.exp()
        if not self.df.isinf().all():
            alone = self._replace(weight=torch.ones_like(self.weight))

            def quantile(rows: slice, levels: Tensor) -> Tensor:
                return Members(*(part[:, rows].unsqueeze(0) for part in alone)).quantile(levels)

            return staircase_difference(quantile, self.weight)
        total, zero = torch.zeros_like(self.location[0]), torch.zeros((), dtype=self.location.dtype)
        for weight, location, scale in zip(*self[:3], strict=True):
            gap = (scale**2 + self.scale**2).sqrt()
            total += weight * Members(self.weight, location - self.location, gap, self.df).deviation(zero)
        return total


def weighted(weight: Tensor, value: Tensor) -> Tensor:
    """Return the weighted sum over the members that ignores those of weight 0, even infinite ones."""
    return (weight * torch.where(weight > 0, value, 0.0)).sum(0)


def staircase_difference(quantile: Callable[[slice, Tensor], Tensor], weights: Tensor) -> Tensor:
    """Return E|Y - Y'| of a mixture by quadrature, off by about 1e-3 standard deviations. (K, N) -> (N,)

    `quantile` returns quantiles of each member in some of the rows, (L, K, 1) -> (L, K, rows).

    It is twice the integral of F (1 - F). F is approximated by a staircase with steps at quantiles
    of each member, at levels that differ between members so that equal ones do not step at the same
    points.
    """
    size = len(weights)
    count = max(16, _NODES // size)
    offset = (0.5 + torch.arange(size, dtype=torch.float64) * 0.6180339887498949) % 1
    v = (torch.arange(count).unsqueeze(1) + 0.05 + 0.9 * offset) / count
    levels = (v**3 * (10 - 15 * v + 6 * v**2)).unsqueeze(-1)  # (nodes, K, 1), dense in the tails
    steps = (v * (1 - v)) ** 2
    steps = (steps / steps.sum(0)).unsqueeze(-1)
    parts = []
    for part in row_parts(weights.shape[1], levels.numel()):
        points = quantile(part, levels)  # (nodes, K, rows)
        points, order = points.flatten(0, 1).sort(0)
        below = (steps * weights[:, part]).flatten(0, 1).gather(0, order).cumsum(0)[:-1]
        parts.append((below * (1 - below) * points.diff(dim=0)).sum(0))
    return 2 * torch.cat(parts)


def row_parts(rows: int, numbers: int) -> Iterator[slice]:
    """Yield slices of rows that bound the memory, if each of them takes so many numbers; often all rows."""
    step = max(1, _CHUNK // max(1, numbers))
    # While tracing, the number of rows is a symbol.
    if torch.compiler.is_compiling() or rows <= step:
        yield slice(None)
        return
    for start in range(0, rows, step):
        yield slice(start, start + step)


class StudentT:
    """A `Student` by SciPy: in float64 and without gradient; results have the dtype and device of z.

    >>> two_and_normal = StudentT(torch.tensor([2.0, math.inf]))
    >>> [side.numpy().round(4) for side in two_and_normal.sides(torch.tensor([[1.0], [-9.0]]))[0]]
    [array([0.7887, 0.8413], dtype=float32), array([0.0061, 0.    ], dtype=float32)]
    """

    def __init__(self, df: Tensor) -> None:
        self.df = df.detach().to("cpu", torch.float64)

    def sides(self, z: Tensor) -> tuple[Tensor, Tensor]:
        tail = torch.from_numpy(np.asarray(special.stdtr(self.df.numpy(), -np.abs(_as_numpy(z))))).to(z)
        return torch.where(z < 0, tail, 1 - tail), torch.where(z < 0, 1 - tail, tail)

    def log_moment(self, z: Tensor) -> Tensor:
        v, t = self.df, z.detach().to("cpu", torch.float64)
        student = self._log_constant - (v - 1) / 2 * (t * t / v).log1p()
        return torch.where(v.isinf(), -t * t / 2 - math.log(2 * math.pi) / 2, student).to(z)

    @cached_property
    def _log_constant(self) -> Tensor:
        v = self.df
        return log_gamma_ratio(v / 2) - (math.pi * v).log() / 2 + (v / (v - 1)).log()

    def mixture_quantile(self, weight: Tensor, location: Tensor, scale: Tensor, level: Tensor) -> Tensor:
        full = (len(weight), *level.shape)
        parts = [
            _as_numpy(p.expand(full)).reshape(len(weight), -1) for p in (weight, location, scale, self.df)
        ]
        found = _mixture_quantile(*parts, level=_as_numpy(level).reshape(-1))
        return torch.from_numpy(found.reshape(level.shape)).to(level)

    def root(self, function: Callable[[Tensor], Tensor], low: Tensor, high: Tensor) -> Tensor:
        # The Illinois rule, with a bisection in every fourth step.
        f_low, f_high = function(low), function(high)
        least = _EXACT_ROOT * (f_high - f_low)
        kept = torch.zeros_like(low)  # which end stayed in the last step: -1 low, 1 high
        at, done = low, least == 0
        for step in range(_ROOT_STEPS):
            if done.all():
                break
            gap = f_high - f_low
            secant = (low * f_high - high * f_low) / torch.where(gap == 0, torch.ones_like(gap), gap)
            middle = (low + high) / 2
            usable = (secant >= low) & (secant <= high) & (gap != 0) & (step % 4 != 1)
            at = torch.where(done, at, torch.where(usable, secant, middle))
            value = function(at)
            done = done | (value.abs() <= least)
            under = value < 0
            # The end that stays twice counts half, so that it moves too.
            f_high = torch.where(under, torch.where(kept > 0, f_high / 2, f_high), value)
            f_low = torch.where(under, value, torch.where(kept < 0, f_low / 2, f_low))
            kept = torch.where(under, torch.ones_like(kept), -torch.ones_like(kept))
            low, high = torch.where(under, at, low), torch.where(under, high, at)
        return at


def _as_numpy(value: Tensor) -> Array:
    return np.asarray(value.detach().to("cpu", torch.float64).numpy())


def _mixture_quantile(weight: Array, location: Array, scale: Array, df: Array, *, level: Array) -> Array:
    """Return quantiles of mixtures of Student-t. (K, n) each, level: (n,) -> (n,)

    By Newton's method, kept between the members' own quantiles. Only elements that still move are computed
    again. NumPy has no threads here: torch shares even small steps among threads, which on a busy machine
    wait for one another much longer than they compute.
    """
    with np.errstate(all="ignore"):  # of members without spread, and at the levels 0 and 1
        ends = location + scale * special.stdtrit(df, level)
        low, high, x = ends.min(0), ends.max(0), (weight * ends).sum(0)
        if len(weight) > 1:
            v = np.minimum(df, _NORMAL)
            log_ratio = log_gamma_ratio(torch.from_numpy(v / 2)).numpy()
            log_peak = log_ratio - np.log(math.pi * v) / 2 - np.log(scale)
            members, tolerance = np.stack([weight, location, scale, df, v, log_peak]), 1e-12 * (high - low)
            left = np.arange(x.size)
            for _ in range(_QUANTILE_STEPS):
                w, m, s, exact_df, v, peak = members[..., left]
                before = x[left]
                z = (before - m) / s
                excess = (w * special.stdtr(exact_df, z)).sum(0) - level[left]
                density = (w * np.exp(peak - (v + 1) / 2 * np.log1p(z * z / v))).sum(0)
                low[left] = np.where(excess < 0, before, low[left])
                high[left] = np.where(excess < 0, high[left], before)
                newton = before - excess / density
                # At the quantile itself Newton's step is 0 and ends at one of the two ends.
                inside = (newton >= low[left]) & (newton <= high[left]) & np.isfinite(density)
                x[left] = np.where(inside, newton, (low[left] + high[left]) / 2)
                left = left[np.abs(x[left] - before) > tolerance[left]]
                if not left.size:
                    break
    return np.where(level <= 0, -np.inf, np.where(level >= 1, np.inf, x))
