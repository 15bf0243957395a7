"""Quantiles and label priors from operations that ONNX has.

ONNX has no Student-t. `StudentQuantiles` (fixed levels) and `StudentTails` (any label) take its place by
polynomials that are fitted to SciPy's values when they are made. `TracedTilt` is the dial (VIR:dial) made
of these.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch
from numpy.polynomial import chebyshev
from numpy.polynomial.chebyshev import Chebyshev
from numpy.typing import NDArray
from scipy import special
from torch import Tensor, nn

from tailwise.core.distributions import NIG, Distribution, Mixture, Normal, Number
from tailwise.core.student_t import log_gamma_ratio
from tailwise.core.tilt import Tilt, Tilted
from tailwise.core.truncation import Standard

Floats = NDArray[np.float64]

MIN_DF = 0.5
"""`StudentQuantiles` takes fewer degrees of freedom than this for this many."""
TAIL_DF = (1.0, 1e7)
"""`StudentTails` is for degrees of freedom between these two."""
_DEGREE = 24
_TAIL_DEGREES = 11, 8  # in the label and in 1 / df
_SMALL = 1e-7
_LEAST_LEVEL = 1e-15
_NEWTON_STEPS = 4
_GRID, _GRID_ROUNDS = 64, 2
_PARTS, _ROUNDS = 16, 5  # quantiles of mixtures: to one part in 16^5


class Quantiles(nn.Module):
    """Quantiles of predictions at fixed levels. (N,) -> (N, Q)"""

    def __init__(self, levels: Sequence[float]) -> None:
        super().__init__()
        self.levels, self.student = tuple(levels), StudentQuantiles(levels)
        self.untilted = TracedTilt(None, levels)

    def forward(self, distribution: Distribution) -> Tensor:
        """Return one column per level."""
        if isinstance(distribution, NIG):
            standardized: Tensor = self.student(2 * distribution.alpha)
            return distribution.gamma.unsqueeze(-1) + distribution.scale.unsqueeze(-1) * standardized
        if isinstance(distribution, Normal):
            return distribution.mean.unsqueeze(-1) + distribution.std.unsqueeze(-1) * self.student.normal
        if isinstance(distribution, Mixture):
            distribution = self.untilted(distribution)
        return torch.stack([distribution.quantile(level) for level in self.levels], dim=-1)


class StudentQuantiles(nn.Module):
    """Quantiles of the standard Student-t at fixed levels, for any degrees of freedom. (N,) -> (N, Q)

    log(t_q(df) / z_q), with z_q the normal quantile, is smooth in 1 / df and grows linearly at its
    end: a polynomial of low degree in 1 / df, fitted to SciPy's values, is off by less than a
    factor of 1e-7 from 2 degrees of freedom on, and of 1e-5 from `MIN_DF` on, for levels between
    0.0001 and 0.9999.

    >>> StudentQuantiles([0.05, 0.5, 0.975])(torch.tensor([4.0], dtype=torch.float64)).numpy().round(4)
    array([[-2.1318,  0.    ,  2.7764]])
    """

    normal: Tensor
    coefficients: Tensor

    def __init__(self, levels: Sequence[float]) -> None:
        super().__init__()
        upper = np.maximum(levels, 1 - np.asarray(levels, np.float64))  # t is odd about 1/2
        columns = [_log_ratio_polynomial(q) if q > 0.5 else np.zeros(_DEGREE + 1) for q in upper]
        self.register_buffer("normal", torch.from_numpy(special.ndtri(np.asarray(levels, np.float64))))
        self.register_buffer("coefficients", torch.from_numpy(np.stack(columns, axis=1)))  # (degree + 1, Q)

    def forward(self, df: Tensor) -> Tensor:
        """df: (N,) float64 -> (N, Q)"""
        x = (df.reciprocal() * (2 * MIN_DF) - 1).clamp(-1.0, 1.0).unsqueeze(-1)
        first, second = torch.zeros_like(x), torch.zeros_like(x)
        for c in self.coefficients[1:].flip(0).unbind(0):  # Clenshaw's recurrence
            first, second = c + 2 * x * first - second, first
        return self.normal * torch.exp(self.coefficients[0] + x * first - second)


def _log_ratio_polynomial(q: float) -> Floats:
    """Chebyshev coefficients of log(t_q / z_q) over 1 / df from 0 to 1 / MIN_DF, for q above 1/2."""
    z = float(special.ndtri(q))

    def log_ratio(inverse: Floats) -> Floats:
        # Hill's expansion where SciPy would lose digits.
        near = (z**2 + 1) / 4 * inverse
        exact = special.stdtrit(1 / np.maximum(inverse, _SMALL), q) / z
        return np.where(inverse < _SMALL, np.log1p(near), np.log(exact))

    fitted = Chebyshev.interpolate(log_ratio, _DEGREE, domain=[0.0, 1 / MIN_DF])
    return np.asarray(fitted.coef, np.float64)


class StudentTails(nn.Module):
    """Tail probabilities of the standard Student-t, their inverse, and partial means: df -> `Tails`.

    With v degrees of freedom and p the density, ``e(z) = p(z) (1 + z^2 / v)``. The probability above z is
    ``e(z) r(z) / sqrt(z^2 + 2)``. log r is smooth and bounded for all z and v: a polynomial in
    ``z / sqrt(z^2 + 4)`` and 1 / v, fitted to SciPy's values, is off by less than 2e-6. The integral of
    t p(t) from z on is ``e(z) v / (v - 1)``. All arguments are float64 and broadcast; v lies in `TAIL_DF`.

    >>> tails = StudentTails()(torch.tensor(3.0, dtype=torch.float64))
    >>> z = torch.tensor([0.0, 2.0, 9.0], dtype=torch.float64)
    >>> tails.above(z).numpy().round(6), tails.inverse(tails.above(z)).numpy().round(4)
    (array([0.5     , 0.069663, 0.001448]), array([0., 2., 9.]))
    """

    coefficients: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("coefficients", torch.from_numpy(_tail_polynomial()))

    def forward(self, df: Tensor) -> Tails:
        """Return the functions of z for these degrees of freedom."""
        x, powers = df.reciprocal() * (2 * TAIL_DF[0]) - 1, [torch.ones_like(df)]
        for _ in range(_TAIL_DEGREES[1]):
            powers.append(powers[-1] * x)
        polynomial = (torch.stack(powers, dim=-1) @ self.coefficients).unbind(-1)
        return Tails(df, log_gamma_ratio(df / 2) - (df * math.pi).log() / 2, polynomial)


class Tails(NamedTuple):
    """The tail of the standard Student-t at z >= 0; see `StudentTails`."""

    df: Tensor
    log_peak: Tensor  # log density at 0
    polynomial: tuple[Tensor, ...]  # of log r, the highest power first

    def above(self, z: Tensor) -> Tensor:
        """Return the probability above z."""
        return (self._log_e(z) + self._log_ratio(z)).exp()

    def partial_mean(self, z: Tensor) -> Tensor:
        """Return the integral of t p(t) from z to infinity; it needs more than one degree of freedom."""
        return self._log_e(z).exp() * self.df / (self.df - 1)

    def inverse(self, level: Tensor) -> Tensor:
        """Return z with the probability `level` above it, for levels up to 1/2."""
        log_level, df, unit = level.clamp(_LEAST_LEVEL, 0.5).log(), self.df, self.df.sqrt()
        # The probability is log-concave in s, where z = sqrt(df) sinh(s). So Newton's method converges
        # from above, and cosh(s)^-df / 2 is an upper bound of the probability.
        z = (df * torch.expm1((math.log(0.5) - log_level) * 2 / df)).clamp_min(0).sqrt()
        for _ in range(_NEWTON_STEPS):
            log_ratio, root = self._log_ratio(z), (df + z * z).sqrt()
            mills = log_ratio.exp() * root / df  # the probability, divided by the density and by root
            s = ((z + root) / unit).log() + (self._log_e(z) + log_ratio - log_level) * mills
            z = (unit * (s.exp() - (-s).exp()) / 2).clamp_min(0)
        return z

    def _log_ratio(self, z: Tensor) -> Tensor:
        """Logarithm of r(z) / sqrt(z^2 + 2)."""
        x, value = 2 * z / (z * z + 4).sqrt() - 1, self.polynomial[0]
        for c in self.polynomial[1:]:
            value = value * x + c
        return value - (z * z + 2).log() / 2

    def _log_e(self, z: Tensor) -> Tensor:
        return self.log_peak - (self.df - 1) / 2 * torch.log1p(z * z / self.df)


def _tail_polynomial() -> Floats:
    """Coefficients of log r: rows by powers of 2 / df - 1, columns by falling powers of the variable of z."""

    def nodes(degree: int) -> Floats:
        return np.cos(np.pi * (np.arange(degree + 1) + 0.5) / (degree + 1))

    in_z, in_df = (nodes(degree) for degree in _TAIL_DEGREES)
    w = (in_z[:, None] + 1) / 2
    z, df = 2 * w / np.sqrt(1 - w * w), 2 * TAIL_DF[0] / (in_df + 1)
    above = special.stdtr(df, -z)
    log_e = log_gamma_ratio(torch.from_numpy(df / 2)).numpy() - np.log(np.pi * df) / 2
    log_e = log_e - (df - 1) / 2 * np.log1p(z * z / df)
    with np.errstate(divide="ignore"):
        exact = np.log(above) - log_e + np.log(z * z + 2) / 2
    # Where SciPy's value underflows: two terms of the expansion at infinity.
    values = np.where(above > 1e-280, exact, np.log1p(2 / (z * z)) / 2 - np.log1p(1 / (z * z)))
    fitted = np.linalg.solve(chebyshev.chebvander(in_z, len(in_z) - 1), values)
    fitted = np.linalg.solve(chebyshev.chebvander(in_df, len(in_df) - 1), fitted.T).T
    powers = np.apply_along_axis(chebyshev.cheb2poly, 0, fitted)
    return np.ascontiguousarray(np.apply_along_axis(chebyshev.cheb2poly, 1, powers)[::-1].T)


def _degrees_of_freedom(members: Distribution) -> Tensor:
    if isinstance(members, NIG):
        return (2 * members.alpha).clamp(*TAIL_DF)
    return torch.full_like(members.mean, TAIL_DF[1])  # a Normal, nearly


def traced_standard(members: Distribution, tails: StudentTails) -> Standard:
    """Return the tails of the standardised members, as `tailwise.core.truncation` needs them."""
    own: Tails = tails(_degrees_of_freedom(members))

    def standard(z: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        tail = own.above(z.abs())
        below, above = torch.where(z < 0, tail, 1 - tail), torch.where(z < 0, 1 - tail, tail)
        return below, above, own.partial_mean(z.abs())

    return standard


def grid_root(function: Callable[[Tensor], Tensor], low: Tensor, high: Tensor) -> Tensor:
    """Root of an increasing function, as a `tailwise.core.truncation.Root` of few operations.

    Each round evaluates all points of a grid at once; the last step is linear.
    """
    # A cumulative sum, because the exporter would store a constant for each use of `arange`.
    inner = torch.ones_like(low).expand(_GRID - 1, *low.shape).cumsum(0)
    for _ in range(_GRID_ROUNDS):
        width = (high - low) / _GRID
        low = low + width * (function(low + width * inner) < 0).to(width).sum(0)
        high = low + width
    below, above = function(torch.stack([low, high])).unbind(0)
    gap = above - below
    part = -below / torch.where(gap > 0, gap, torch.ones_like(gap))
    return low + (high - low) * part.clamp(0, 1)


class TracedTilt(nn.Module):
    """A tilt (VIR:dial) made of operations that ONNX has: turns a prediction into a `TracedTilted`.

    `levels` are those of the quantiles that will be asked for. None is a tilt that changes nothing, for the
    quantiles of mixtures. Memory: with C cells of constant weight (at most 100 for an emphasis) and a mixture
    of K members, C * K numbers per row, several times.
    """

    cuts: Tensor
    weights: Tensor
    levels: Tensor
    least_scale: Tensor
    parts: Tensor

    def __init__(self, tilt: Tilt | None, levels: Sequence[float] = ()) -> None:
        super().__init__()
        cuts, log_weights = (np.zeros(1), np.zeros(2)) if tilt is None else (tilt.cuts, tilt.log_weights)
        self.tilt = Tilt(cuts, log_weights)
        self.places = {level: k for k, level in enumerate(dict.fromkeys(round(q, 12) for q in levels))}
        self.register_buffer("cuts", torch.from_numpy(cuts))  # (C - 1,)
        self.register_buffer("weights", torch.from_numpy(np.exp(log_weights - log_weights.max())))  # (C,)
        self.register_buffer("levels", torch.tensor(list(self.places), dtype=torch.float64))  # (L,)
        self.register_buffer("least_scale", torch.tensor(1e-12, dtype=torch.float64))
        inner = torch.arange(1, _PARTS, dtype=torch.float64)
        self.register_buffer("parts", inner[:, None, None, None])  # (P, 1, 1, 1)
        self.tails = StudentTails()

    def forward(self, distribution: Distribution) -> TracedTilted:
        """distribution: (N,)"""
        return TracedTilted(distribution, self)


@dataclass(frozen=True)
class _Members:
    """The Student-t of each member of a mixture: (K, N) each."""

    weight: Tensor
    location: Tensor
    scale: Tensor
    tails: Tails

    def sides(self, y: Tensor) -> tuple[Tensor, Tensor]:
        """Probabilities below and above labels. (L, K, N)"""
        z = (y - self.location) / self.scale
        tail = self.tails.above(z.abs())
        return torch.where(z < 0, tail, 1 - tail), torch.where(z < 0, 1 - tail, tail)


class TracedTilted(Tilted):
    """What a graph needs of a `Tilted`: mean, variance, quantiles. The formulas are those of `Tilted`."""

    def __init__(self, base: Distribution, traced: TracedTilt) -> None:
        super().__init__(base, traced.tilt)
        inner = base.components if isinstance(base, Mixture) else base[None]
        weight = base.weights if isinstance(base, Mixture) else torch.ones_like(inner.mean)
        scale, df = inner.scale if isinstance(inner, NIG) else inner.std, _degrees_of_freedom(inner)
        scale = torch.maximum(scale, traced.least_scale)
        self._traced, self._inner = traced, _Members(weight, inner.mean, scale, traced.tails(df))
        self._cuts_at, self._w = traced.cuts[:, None, None], traced.weights[:, None]
        below, above = self._inner.sides(self._cuts_at)  # (C - 1, K, N)
        edge = torch.zeros_like(below[:1])
        low, high = torch.cat([edge, below]), torch.cat([below, edge + 1])
        over, beyond = torch.cat([edge + 1, above]), torch.cat([above, edge])
        # The tail that is small does not cancel.
        self._mass = torch.where(low > 0.5, over - beyond, high - low).clamp_min(0)  # (C, K, N)
        self._low, self._beyond = low, beyond

    def onto(self, base: Distribution) -> TracedTilted:
        return TracedTilted(base, self._traced)

    @cached_property
    def _moments(self) -> tuple[Tensor, Tensor]:
        """Mean and variance. (N,)"""
        inner, df = self._inner, self._inner.tails.df
        z = (self._cuts_at - inner.location) / inner.scale
        mean_weight = (self._w.unsqueeze(-1) * self._mass).sum(0)  # (K, N)
        jumps = (self._w[1:] - self._w[:-1]).unsqueeze(-1)
        steps = jumps * inner.tails.partial_mean(z.abs()) / mean_weight
        mean, second = steps.sum(0), (steps * z).sum(0)
        heavy = df <= 2
        square = (df + (df - 1) * second) / torch.where(heavy, torch.ones_like(df), df - 2)
        variance = torch.where(heavy, math.inf, (square - mean * mean).clamp_min(0))
        share = inner.weight * mean_weight
        share = share / share.sum(0)
        means = inner.location + inner.scale * mean
        overall = (share * means).sum(0)
        squares = inner.scale * inner.scale * variance + (means - overall) ** 2
        return overall, (share * squares).sum(0)

    @property
    def mean(self) -> Tensor:
        return self._moments[0]

    @property
    def variance(self) -> Tensor:
        return self._moments[1]

    def quantile(self, q: Number) -> Tensor:
        """q: one of the levels given to `TracedTilt` -> (N,)"""
        return self._quantiles[self._traced.places[round(float(q), 12)]]

    def interval(self, coverage: float = 0.9) -> tuple[Tensor, Tensor]:
        return self.quantile((1 - coverage) / 2), self.quantile((1 + coverage) / 2)

    @cached_property
    def _quantiles(self) -> Tensor:
        """Quantiles at all levels together. (L, N)"""
        level, weight = self._traced.levels[:, None], self._inner.weight
        low, beyond, mass = ((weight * part).sum(1) for part in (self._low, self._beyond, self._mass))
        share = self._w * mass
        share = share / share.sum(0)  # (C, N)
        before = share.cumsum(0)
        index = (before[:-1].unsqueeze(0) < level.unsqueeze(1)).long().sum(1)  # (L, N)
        share, mass, low, beyond, before = (
            part.gather(0, index) for part in (share, mass, low, beyond, torch.cat([low[:1], before[:-1]]))
        )
        part = ((level - before) / torch.where(share > 0, share, 1.0)).clamp(0.0, 1.0)
        below, above = low + part * mass, beyond + (1 - part) * mass
        side = torch.where(below <= above, -1.0, 1.0).to(below)
        found = self._at_tail(torch.minimum(below, above), side)
        cuts = self._traced.cuts
        end = torch.full_like(cuts[:1], math.inf)
        bounds = torch.cat([-end, cuts, end])
        return torch.minimum(torch.maximum(found, bounds[index]), bounds[index + 1])

    def _at_tail(self, level: Tensor, side: Tensor) -> Tensor:
        """Label with the probability `level` beyond it, below (side -1) or above it (+1). (L, N)"""
        inner, level, side = self._inner, level.unsqueeze(1), side.unsqueeze(1)
        each = inner.location + side * inner.scale * inner.tails.inverse(level)  # (L, K, N)
        if each.shape[1] == 1:
            return each.squeeze(1)
        # Between the members' own quantiles, refined by a factor of `_PARTS` at a time.
        low, high = each.amin(1, keepdim=True), each.amax(1, keepdim=True)  # (L, 1, N)
        for _ in range(_ROUNDS):
            width = (high - low) / _PARTS
            y = low + width * self._traced.parts  # (P, L, 1, N)
            below, above = ((inner.weight * part).sum(2, keepdim=True) for part in inner.sides(y))
            too_low = side * (torch.where(side < 0, below, above) - level) > 0
            low = low + width * too_low.to(width).sum(0)
            high = low + width
        return ((low + high) / 2).squeeze(1)
