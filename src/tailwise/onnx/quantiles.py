"""The Student-t from operations that ONNX has.

ONNX has no Student-t. `StudentQuantiles` (fixed levels) and `StudentTails` (any label) take its place by
polynomials that are fitted to SciPy's values when they are made. With `StudentTails` in place of SciPy,
bounds and label priors (VIR:dial) are traced as they are.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.polynomial import chebyshev
from numpy.polynomial.chebyshev import Chebyshev
from numpy.typing import NDArray
from scipy import special
from torch import Tensor, nn

from tailwise.distributions.members import Distribution
from tailwise.distributions.student_t import log_gamma_ratio, standardized
from tailwise.distributions.tilt import Tilt, Tilted

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
_FARTHEST = 1e12  # standardised labels of points without scale


class Quantiles(nn.Module):
    """Quantiles of predictions at fixed levels. (N,) -> (N, Q)"""

    levels: Tensor

    def __init__(self, levels: Sequence[float]) -> None:
        super().__init__()
        self.register_buffer("levels", torch.tensor(levels, dtype=torch.float64))
        self.student, self.tails = StudentQuantiles(levels), StudentTails()

    def forward(self, distribution: Distribution) -> Tensor:
        """Return one column per level."""
        m = distribution.members()
        if distribution.base is not distribution:  # under a label prior, made by `TracedTilt`
            return distribution.quantile(self.levels.unsqueeze(1)).T
        if len(m.df) == 1:
            standard: Tensor = self.student(m.df[0])
            return m.location.T + m.scale.T * standard
        weight, location, scale, df = (part.unsqueeze(1) for part in m)  # (K, 1, N)
        level = torch.minimum(self.levels, 1 - self.levels).unsqueeze(1).expand(-1, m.df.shape[1])
        side = torch.where(self.levels <= 0.5, 1.0, -1.0).to(level).unsqueeze(1)
        tails: Tails = self.tails(df)
        return (side * tails.mixture_quantile(weight, side * location, scale, level)).T


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
    t p(t) from z on is ``e(z) v / (v - 1)``. All arguments are float64 and broadcast; `TAIL_DF` limits v.

    >>> tails = StudentTails()(torch.tensor(3.0, dtype=torch.float64))
    >>> z = torch.tensor([0.0, 2.0, 9.0], dtype=torch.float64)
    >>> tails.above(z).numpy().round(6), tails.inverse(tails.above(z)).numpy().round(4)
    (array([0.5     , 0.069663, 0.001448]), array([0., 2., 9.]))
    """

    coefficients: Tensor
    parts: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("coefficients", torch.from_numpy(_tail_polynomial()))
        self.register_buffer("parts", torch.arange(1, _PARTS, dtype=torch.float64)[:, None, None])

    def forward(self, df: Tensor) -> Tails:
        """Return the functions of z for these degrees of freedom."""
        df = df.clamp(*TAIL_DF)
        x, powers = df.reciprocal() * (2 * TAIL_DF[0]) - 1, [torch.ones_like(df)]
        for _ in range(_TAIL_DEGREES[1]):
            powers.append(powers[-1] * x)
        polynomial = (torch.stack(powers, dim=-1) @ self.coefficients).unbind(-1)
        return Tails(df, log_gamma_ratio(df / 2) - (df * math.pi).log() / 2, polynomial, self.parts)


class Tails(NamedTuple):
    """A `tailwise.distributions.student_t.Student`; see `StudentTails`."""

    df: Tensor
    log_peak: Tensor  # log density at 0
    polynomial: tuple[Tensor, ...]  # of log r, the highest power first
    parts: Tensor  # inner points of a grid of quantiles, (P, 1, 1)

    def above(self, z: Tensor) -> Tensor:
        """Return the probability above z >= 0."""
        return (self._log_e(z) + self._log_ratio(z)).exp()

    def sides(self, z: Tensor) -> tuple[Tensor, Tensor]:
        """Return the probabilities below and above z."""
        tail = self.above(z.abs().clamp_max(_FARTHEST))
        return torch.where(z < 0, tail, 1 - tail), torch.where(z < 0, 1 - tail, tail)

    def log_moment(self, z: Tensor) -> Tensor:
        """Return the log of the integral of t p(t) from z to infinity."""
        return self._log_e(z.abs().clamp_max(_FARTHEST)) + (self.df / (self.df - 1)).log()

    def mixture_quantile(self, weight: Tensor, location: Tensor, scale: Tensor, level: Tensor) -> Tensor:
        """Return quantiles of mixtures at levels up to 1/2, between the members' own. (K, L, N), (L, N)

        They are refined by a factor of `_PARTS` at a time.
        """
        each = location - scale * self.inverse(level)
        if len(each) == 1:
            return each.squeeze(0)
        low, high = each.amin(0), each.amax(0)
        for _ in range(_ROUNDS):
            width = (high - low) / _PARTS
            y = (low + width * self.parts).unsqueeze(1)  # (P, 1, L, N)
            below = (weight * self.sides(standardized(y, location, scale))[0]).sum(1)
            low = low + width * (below < level).to(width).sum(0)
            high = low + width
        return (low + high) / 2

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


def grid_root(function: Callable[[Tensor], Tensor], low: Tensor, high: Tensor) -> Tensor:
    """Root of an increasing function, as a `tailwise.distributions.truncation.Root` of few operations.

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
    """A tilt (VIR:dial) made of operations that ONNX has; it may be the identity.

    Memory: with C cells of constant weight (at most 100 for an emphasis) and a mixture of K members, C * K
    numbers per row, several times.
    """

    def __init__(self, tilt: Tilt) -> None:
        super().__init__()
        self.tilt, self.tails = tilt, StudentTails()

    def forward(self, distribution: Distribution) -> Distribution:
        """distribution: (N,)"""
        return distribution if self.tilt.is_identity else Tilted(distribution, self.tilt, self.tails)
