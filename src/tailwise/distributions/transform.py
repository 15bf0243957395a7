"""Predictions on another scale of the label, such as its logarithm, in the units of the label.

Bins, networks and the base see latent labels, ``z = g(y)`` with an increasing function g. A prediction is
fitted, scaled, tilted and cut off there. `Transform.apply` then returns it in label units, as a `Transformed`
distribution behind the same contract as all others.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Annotated, Any, ClassVar, Self

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import stats
from sklearn.base import clone
from torch import Tensor

from tailwise.distributions.members import Distribution, Number, checked_probability, exactly
from tailwise.distributions.student_t import row_parts
from tailwise.distributions.tilt import Changed, Tilt
from tailwise.distributions.truncation import Bounds
from tailwise.options import Items, NotNegative, Positive

Array = NDArray[np.float64]

LEAST_PART = 0.01
"""What ``"log"`` adds to labels is at least this part of their median, unless all of them exceed that."""
KNOTS = 501
"""Points of a user's own transformer: so many quantiles of the labels, and as many at equal distances."""
_V, _WEIGHTS = (np.polynomial.legendre.leggauss(48) + np.array([[1.0], [0.0]])) / 2
_LEVELS = torch.from_numpy(_V * _V * (3 - 2 * _V))
_SHARES = torch.from_numpy(_WEIGHTS * 6 * _V * (1 - _V))
"""Levels of quantiles, dense in the tails, and their weights. (L,) each"""


class Transform:
    """An increasing function from labels to latent labels: here, labels as they are.

    Predicted labels are limited to ``label(low)`` and ``label(high)``, somewhat beyond the training labels:
    far beyond them an exponential has no limit.
    """

    name: ClassVar[str]
    """What users call it."""
    least: ClassVar[float] = -math.inf
    """Smallest label that it takes."""
    is_identity: ClassVar[bool] = False
    low: float
    high: float
    """Smallest and largest latent label that is predicted."""

    def __post_init__(self) -> None:
        if not self.low < self.high:
            raise ValueError(f"a transform needs a range of latent labels, got {self.low:g} to {self.high:g}")
        if math.isfinite(self.low) and not np.isfinite(self.labels(np.array([self.low, self.high]))).all():
            raise ValueError("the range of a transform has no labels")

    def latent(self, y: Tensor) -> Tensor:
        """Return latent labels, -inf where a label is impossible."""
        return y

    def label(self, z: Tensor) -> Tensor:
        """Return labels of latent labels, which are limited to `low` and `high`."""
        return z

    def log_slope(self, y: Tensor) -> Tensor:
        """Return the log of the derivative of `latent`."""
        return torch.zeros_like(y)

    def latents(self, y: Array) -> Array:
        """Return `latent` of an array."""
        return np.asarray(self.latent(torch.tensor(y, dtype=torch.float64, device="cpu")).numpy())

    def labels(self, z: Array) -> Array:
        """Return `label` of an array."""
        return np.asarray(self.label(torch.tensor(z, dtype=torch.float64, device="cpu")).numpy())

    def limited(self, y: Array) -> Array:
        """Return `latents` within `low` and `high`, for predictions of any kind."""
        return self.latents(y).clip(self.low, self.high)

    def apply(self, distribution: Distribution) -> Distribution:
        """Return a prediction of latent labels as one of labels."""
        return distribution if self.is_identity else Transformed(distribution, self)

    def tilt(self, tilt: Tilt) -> Tilt:
        """Return weights of labels as weights of latent labels."""
        cuts = self.latents(tilt.cuts)
        impossible = int(np.isneginf(cuts).sum())
        return Tilt(cuts[impossible:], tilt.log_weights[impossible:])

    def bounds(self, bounds: Bounds) -> Bounds:
        """Return bounds of labels as bounds of latent labels."""
        low, high = self.latents(np.array([bounds.low, bounds.high]))
        return Bounds(-math.inf if np.isnan(low) else float(low), math.inf if np.isnan(high) else float(high))

    def rescale(self, latent: tuple[float, float], label: tuple[float, float]) -> Rescaled:
        """Return the same function of ``label[0] + label[1] * y``, to ``latent[0] + latent[1] * z``."""
        low, high = (latent[0] + latent[1] * end for end in (self.low, self.high))
        return Rescaled(low, high, self, latent, label)


@dataclass(frozen=True)
class Identity(Transform):
    """Labels as they are."""

    name: ClassVar[str] = "none"
    is_identity: ClassVar[bool] = True
    low = -math.inf
    high = math.inf


@dataclass(frozen=True)
class Log(Transform):
    """``log(y + offset)``, for labels that are never negative.

    >>> Log.of(np.array([0.0, 1.0, 9.0, 99.0])).offset, Log.of(np.array([1.0, 9.0, 99.0])).offset
    (1.0, 0.0)
    """

    name: ClassVar[str] = "log"
    least: ClassVar[float] = 0.0

    low: float
    high: float
    offset: NotNegative = 0.0

    @classmethod
    def of(cls, labels: Array) -> Log:
        """Return the logarithm for these labels. (N,)

        Nothing is added to them if the smallest is at least `LEAST_PART` of the median of those above 0.
        Otherwise that part is added, or the smallest label above 0 if it is more.
        """
        row = int(np.argmin(labels))
        if labels[row] < 0 or not labels.any():
            raise ValueError(
                "target_transform='log' takes labels that are never negative, and some that are above 0: the "
                f"smallest is {labels[row]:.9g} in row {row}. Take 'yeo-johnson', or None"
            )
        above = labels[labels > 0]
        least = LEAST_PART * float(np.median(above))
        offset = 0.0 if labels.min() >= least else max(float(above.min()), least)
        low, high = _reach(np.log(labels + offset))
        return cls(max(low, math.log(offset)) if offset else low, high, offset)

    def latent(self, y: Tensor) -> Tensor:
        return (y + exactly(self.offset)).clamp_min(0).log()

    def label(self, z: Tensor) -> Tensor:
        return z.clamp(self.low, self.high).exp() - exactly(self.offset)

    def log_slope(self, y: Tensor) -> Tensor:
        return -self.latent(y)


@dataclass(frozen=True)
class YeoJohnson(Transform):
    """Yeo and Johnson's power of ``(y - location) / scale``, for labels of any sign (Biometrika 2000)."""

    name: ClassVar[str] = "yeo-johnson"

    low: float
    high: float
    power: float
    location: float
    scale: Positive

    @classmethod
    def of(cls, labels: Array) -> YeoJohnson:
        """Return the power with which these labels are nearest to a Normal. (N,)"""
        location, quartiles = float(np.median(labels)), np.quantile(labels, [0.25, 0.75])
        scale = float(quartiles[1] - quartiles[0]) or float(np.abs(labels - location).mean()) or 1.0
        power = float(stats.yeojohnson_normmax((labels - location) / scale)) if np.ptp(labels) else 1.0
        free = cls(-math.inf, math.inf, power, location, scale)
        low, high = _reach(ends := free.latents(labels))
        if power < 0:  # latent labels end at -1 / power
            high = min(high, (float(ends.max()) - 1 / power) / 2)
        if power > 2:
            low = max(low, (float(ends.min()) - 1 / (power - 2)) / 2)
        return replace(free, low=low, high=high)

    def _sides(self, value: Tensor) -> tuple[Tensor, Tensor]:
        """The exponent, and the sign of a value."""
        above = value >= 0
        power = torch.where(above, exactly(self.power), exactly(2 - self.power))
        return power, torch.where(above, 1.0, -1.0).to(value)

    def _standardized(self, y: Tensor) -> Tensor:
        return (y - exactly(self.location)) / exactly(self.scale)

    def latent(self, y: Tensor) -> Tensor:
        x = self._standardized(y)
        power, sign = self._sides(x)
        log = x.abs().log1p()
        flat = power.abs() < 1e-9
        return sign * torch.where(flat, log, torch.expm1(power * log) / torch.where(flat, 1.0, power))

    def label(self, z: Tensor) -> Tensor:
        z = z.clamp(self.low, self.high)
        power, sign = self._sides(z)
        flat = power.abs() < 1e-9
        log = torch.where(flat, z.abs(), (power * z.abs()).log1p() / torch.where(flat, 1.0, power))
        return sign * log.expm1() * exactly(self.scale) + exactly(self.location)

    def log_slope(self, y: Tensor) -> Tensor:
        x = self._standardized(y)
        power, _ = self._sides(x)
        return (power - 1) * x.abs().log1p() - math.log(self.scale)


@dataclass(frozen=True, eq=False)
class Tabulated(Transform):
    """A transformer of the user's own, at `KNOTS` points and linear between them.

    No label beyond those of the training rows is predicted.
    """

    name: ClassVar[str] = "your own"

    knots: Annotated[Array, Items(2, 4 * KNOTS)]
    """Labels, ascending. (K,)"""
    values: Annotated[Array, Items(2, 4 * KNOTS)]
    """Their latent labels, ascending. (K,)"""

    def __post_init__(self) -> None:
        if self.knots.shape != self.values.shape or self.knots.ndim != 1:
            raise ValueError("a transform needs as many latent labels as labels")
        if len(self.knots) < 2 or (np.diff([self.knots, self.values]) <= 0).any():
            raise ValueError("target_transform must increase with the label")

    @classmethod
    def of(cls, transformer: Any, labels: Array) -> Tabulated:
        """Fit a copy of a scikit-learn transformer to these labels, and read it at points. (N,)"""
        fitted = clone(transformer).fit(labels[:, None])
        points = np.quantile(labels, np.linspace(0, 1, KNOTS))
        knots = np.unique(np.append(points, np.linspace(labels.min(), labels.max(), KNOTS)))
        values = np.asarray(fitted.transform(knots[:, None]), np.float64)
        if values.size != knots.size or not np.isfinite(values).all():
            name = type(transformer).__name__
            raise ValueError(f"target_transform={name}(...) must return one finite number per label")
        values = values.reshape(-1)
        kept = np.append(True, np.diff(values) != 0)
        return cls(knots[kept], values[kept])

    @property
    def low(self) -> float:  # type: ignore[override]
        return float(self.values[0])

    @property
    def high(self) -> float:  # type: ignore[override]
        return float(self.values[-1])

    def latent(self, y: Tensor) -> Tensor:
        return _interpolated(y, self.knots, self.values)

    def label(self, z: Tensor) -> Tensor:
        return _interpolated(z.clamp(self.low, self.high), self.values, self.knots)

    def log_slope(self, y: Tensor) -> Tensor:
        slopes = torch.from_numpy(np.diff(self.values) / np.diff(self.knots))
        return slopes.log()[_segment(y, self.knots)]


AnyTransform = Identity | Log | YeoJohnson | Tabulated
"""The transforms that a file can hold."""


@dataclass(frozen=True)
class Rescaled(Transform):
    """A transform between other units of the label and of the latent label."""

    name: ClassVar[str] = "rescaled"

    low: float
    high: float
    inner: Transform
    latent_units: tuple[float, float]
    label_units: tuple[float, float]
    """Shift and positive scale."""

    def latent(self, y: Tensor) -> Tensor:
        shift, scale = map(exactly, self.label_units)
        inner = self.inner.latent((y - shift) / scale)
        return inner * exactly(self.latent_units[1]) + exactly(self.latent_units[0])

    def label(self, z: Tensor) -> Tensor:
        shift, scale = map(exactly, self.latent_units)
        inner = self.inner.label((z - shift) / scale)
        return inner * exactly(self.label_units[1]) + exactly(self.label_units[0])

    def log_slope(self, y: Tensor) -> Tensor:
        shift, scale = map(exactly, self.label_units)
        factor = math.log(self.latent_units[1]) - math.log(self.label_units[1])
        return self.inner.log_slope((y - shift) / scale) + factor


class Transformed(Changed):
    """A prediction of latent labels in label units.

    Its density is that of the latent label times the slope of the transform. Its CDF and its quantiles are
    exact. Mean, variance and CRPS are those of its quantiles at 48 levels between 1e-6 and 1 - 1e-6, so that
    they are finite where an exponential of a Student-t has no mean.

    >>> from tailwise.distributions.members import Normal
    >>> logs = Normal(torch.tensor([0.0, 1.0], dtype=torch.float64), 0.25)
    >>> lognormal = Log(-9.0, 9.0).apply(logs)
    >>> lognormal.median.numpy().round(3), lognormal.mean.numpy().round(3)
    (array([1.   , 2.718]), array([1.133, 3.08 ]))
    """

    change: Transform

    def rescale(self, shift: Number, scale: Number) -> Self:
        """Distribution of ``scale * Y + shift``, with one shift and positive scale for all predictions."""
        units = float(shift), float(scale)
        return type(self)(self.inner, self.change.rescale((0.0, 1.0), units))

    @cached_property
    def _quantiles(self) -> Tensor:
        """The labels at `_LEVELS`. (*shape, L)"""
        levels = _LEVELS.reshape(-1, *(1 for _ in self.shape))
        each = len(_LEVELS) * len(self.inner.members().weight)
        parts = row_parts(self.shape[0], each) if len(self.shape) == 1 else [slice(None)]
        quantiles = torch.cat([self.inner[part].quantile(levels) for part in parts], -1)
        return self.change.label(quantiles.double()).movedim(0, -1)

    @property
    def mean(self) -> Tensor:
        return (_SHARES * self._quantiles).sum(-1)

    @property
    def variance(self) -> Tensor:
        return (_SHARES * (self._quantiles - self.mean.unsqueeze(-1)) ** 2).sum(-1)

    @property
    def point(self) -> Tensor:
        return self.median

    def nll(self, y: Number) -> Tensor:
        labels = exactly(y)
        latent = self.change.latent(labels)
        possible = latent.isfinite()
        nll = self.inner.nll(torch.where(possible, latent, 0.0)) - self.change.log_slope(labels)
        return torch.where(possible, nll, math.inf)

    def cdf(self, y: Number) -> Tensor:
        latent = self.change.latent(exactly(y))
        below = self.inner.cdf(latent)
        return torch.where(latent < self.change.low, 0.0, torch.where(latent >= self.change.high, 1.0, below))

    def quantile(self, q: Number) -> Tensor:
        return self.change.label(self.inner.quantile(checked_probability(q)))

    def sample(self, n: int, generator: torch.Generator | None = None) -> Tensor:
        return self.change.label(self.inner.sample(n, generator))

    def deviation(self, y: Number) -> Tensor:
        return (_SHARES * (self._quantiles - exactly(y).unsqueeze(-1)).abs()).sum(-1)

    def mean_difference(self) -> Tensor:
        below = _SHARES.cumsum(0)[:-1]
        return 2 * (below * (1 - below) * self._quantiles.diff(dim=-1)).sum(-1)


def _reach(latents: Array) -> tuple[float, float]:
    """Return the range of latent training labels, wider by a standard deviation on each side."""
    margin = float(latents.std())
    return float(latents.min()) - margin, float(latents.max()) + margin


def _segment(x: Tensor, knots: Array) -> Tensor:
    """Return the segment between knots of each value, the first or the last for those beyond."""
    return torch.bucketize(x.contiguous(), torch.from_numpy(knots[1:-1].copy()), right=True)


def _interpolated(x: Tensor, knots: Array, values: Array) -> Tensor:
    """Return values at x, linear between knots and beyond them."""
    at = _segment(x, knots)
    start, value = (torch.from_numpy(part[:-1].copy())[at] for part in (knots, values))
    slope = torch.from_numpy(np.diff(values) / np.diff(knots))[at]
    return value + slope * (x - start)
