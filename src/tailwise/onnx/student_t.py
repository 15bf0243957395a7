"""The Student-t from operations that ONNX has.

ONNX has no Student-t. While the code that predicts is traced, `StudentTails` takes the place of SciPy by
polynomials that are fitted to SciPy's values when it is made.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np
import torch
from numpy.polynomial import chebyshev
from numpy.typing import NDArray
from scipy import special
from torch import Tensor, nn

from tailwise.distributions.student_t import IN_PLACE_OF_SCIPY, log_gamma_ratio, standardized

Floats = NDArray[np.float64]

TAIL_DF = (0.5, 1e7)
"""`StudentTails` is for degrees of freedom between these two."""
_TAIL_DEGREES = 12, 10  # in the label and in 1 / df
_LEAST_LEVEL = 1e-15
_NEWTON_STEPS = 4
_PARTS, _ROUNDS, _MIXTURE_ROUNDS = 16, 3, 5  # roots are found to one part in 16^3, then interpolated
_FARTHEST = 1e12  # standardised labels of points without scale


@contextmanager
def traceable(tails: StudentTails) -> Iterator[None]:
    """Let predictions be computed by operations that ONNX has, in this thread."""
    token = IN_PLACE_OF_SCIPY.set(tails)
    try:
        yield
    finally:
        IN_PLACE_OF_SCIPY.reset(token)


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
        self.register_buffer("parts", torch.arange(1, _PARTS, dtype=torch.float64))

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
    parts: Tensor  # inner points of a grid, (P,)

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
        """Return quantiles of mixtures, between the members' own. (K, ...) each, level: (...)"""
        side = torch.where(level <= 0.5, 1.0, -1.0).to(level)  # the smaller tail does not cancel
        level, location = torch.minimum(level, 1 - level), side * location
        quantiles = location - scale * self.inverse(level)
        if len(quantiles) == 1:
            return side * quantiles.squeeze(0)

        def excess(y: Tensor) -> Tensor:
            """y: (P, ...)"""
            return (weight * self.sides(standardized(y.unsqueeze(1), location, scale))[0]).sum(1) - level

        return side * self.root(excess, quantiles.amin(0), quantiles.amax(0), rounds=_MIXTURE_ROUNDS)

    def root(
        self, function: Callable[[Tensor], Tensor], low: Tensor, high: Tensor, rounds: int = _ROUNDS
    ) -> Tensor:
        """Return roots of an increasing function by grids, each in a part of the one before it.

        All points of a grid are evaluated at once.
        """
        inner = self.parts.reshape(-1, *[1] * low.dim())
        for _ in range(rounds):
            width = (high - low) / _PARTS
            low = low + width * (function(low + width * inner) < 0).to(width).sum(0)
            high = low + width
        below, above = function(torch.stack([low, high])).unbind(0)
        gap = above - below
        part = -below / torch.where(gap > 0, gap, torch.ones_like(gap))
        return low + (high - low) * part.clamp(0, 1)

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
