"""Functions of the Student-t, and of mixtures of it, that torch lacks or loses digits in."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import special
from torch import Tensor

Array = NDArray[np.float64]
_QUANTILE_STEPS = 80


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


def as_numpy(value: Tensor) -> Array:
    """Return the values in float64, without gradient."""
    return cast("NDArray[np.float64]", value.detach().double().cpu().numpy())


def with_scipy(function: Callable[..., Array], like: Tensor, *args: Tensor) -> Tensor:
    """Evaluate a function of SciPy in float64, without gradient; dtype and device are those of `like`."""
    result = np.asarray(function(*(as_numpy(a) for a in args)))
    return torch.from_numpy(result).to(dtype=like.dtype, device=like.device)


def student_quantile(df: Array, q: Array) -> Array:
    """Return quantiles of the Student-t; SciPy returns +inf at level 0."""
    return np.where(q <= 0, -np.inf, special.stdtrit(df, q))


def mixture_quantile(weight: Array, location: Array, scale: Array, df: Array | None, level: Array) -> Array:
    """Return quantiles of mixtures of Student-t, or of Normals without `df`. (K, n) each, level: (n,) -> (n,)

    By Newton's method, kept between the members' own quantiles. Only elements that still move are computed
    again. NumPy has no threads here: torch shares even small steps among threads, which on a busy machine
    wait for one another much longer than they compute.
    """
    with np.errstate(all="ignore"):  # of members without spread, and at the levels 0 and 1
        log_peak = -np.log(scale) - math.log(2 * math.pi) / 2
        if df is not None:
            ratio = log_gamma_ratio(torch.from_numpy(df / 2)).numpy()
            log_peak = ratio - np.log(scale) - np.log(math.pi * df) / 2
        ends = location + scale * (special.ndtri(level) if df is None else student_quantile(df, level))
        low, high, x = ends.min(0), ends.max(0), (weight * ends).sum(0)
        tolerance, found = 1e-12 * (high - low), x.copy()
        left, aim = np.arange(x.size), level
        for _ in range(_QUANTILE_STEPS):
            z = (x - location) / scale
            if df is None:
                below, log_density = special.ndtr(z), log_peak - z * z / 2
            else:
                below, log_density = special.stdtr(df, z), log_peak - (df + 1) / 2 * np.log1p(z * z / df)
            excess, density = (weight * below).sum(0) - aim, (weight * np.exp(log_density)).sum(0)
            low, high = np.where(excess < 0, x, low), np.where(excess < 0, high, x)
            newton = x - excess / density
            # At the quantile itself Newton's step is 0 and ends at one of the two ends.
            inside = (newton >= low) & (newton <= high) & np.isfinite(density)
            moved = np.where(inside, newton, (low + high) / 2)
            found[left] = moved
            going = np.abs(moved - x) > tolerance
            if not going.any():
                break
            x, low, high, tolerance, left, aim, weight, location, scale, log_peak = (
                values[..., going]
                for values in (moved, low, high, tolerance, left, aim, weight, location, scale, log_peak)
            )
            df = None if df is None else df[:, going]
    return np.where(level <= 0, -np.inf, np.where(level >= 1, np.inf, found))
