"""Functions of the Student-t that torch lacks or loses digits in."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import special
from torch import Tensor


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


def _numpy(value: Tensor) -> NDArray[np.float64]:
    return cast("NDArray[np.float64]", value.detach().double().cpu().numpy())


def with_scipy(function: Callable[..., NDArray[np.float64]], like: Tensor, *args: Tensor) -> Tensor:
    """Evaluate a function of SciPy in float64, without gradient; dtype and device are those of `like`."""
    result = np.asarray(function(*(_numpy(a) for a in args)))
    return torch.from_numpy(result).to(dtype=like.dtype, device=like.device)


def student_quantile(df: NDArray[np.float64], q: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return quantiles of the Student-t; SciPy returns +inf at level 0."""
    return np.where(q <= 0, -np.inf, special.stdtrit(df, q))
