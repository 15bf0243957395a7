"""Bounds of the label as part of the predictive distribution.

A bounded prediction is the Normal or Student-t of each member, cut off at the bounds and divided by the
probability between them. It is a `tailwise.distributions.tilt.Tilted` whose weights are 0 beyond the
bounds, so that mean, variance, NLL, CDF, quantiles, samples and CRPS come from one density.

Cutting a distribution off moves its mean away from the bound. The mean is what the network and its base
were trained to predict, so location and scale are chosen first such that the mean after the cut is the one
before it, moved into the bounds if it lies outside.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass
from typing import cast

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from tailwise.distributions.members import Distribution
from tailwise.distributions.student_t import Array, Student, student
from tailwise.distributions.tilt import Tilt
from tailwise.options import AnyNumber

LEAST_DISTANCE = 0.1
"""Smallest distance of a bounded mean from the bound, in units of the scale before the cut, and at most a
tenth of the distance between two bounds."""
_WIDEST = 1e3  # a scale of more ranges is as good as uniform, and cancels
_TINY = 1e-300
_STEPS = 24
_EXACT = 1e-14
"""A root is exact if the function there is this share of its range."""

Root = Callable[[Callable[[Tensor], Tensor], Tensor, Tensor], Tensor]
"""From an increasing function and two ends to its root between them, element by element."""
IN_PLACE_OF_ILLINOIS: ContextVar[Root] = ContextVar("root")
"""What an exporter uses in place of `illinois` while it traces."""


@dataclass(frozen=True)
class Bounds:
    """Smallest and largest possible label; both are possible labels themselves. Without ends it does nothing.

    >>> from tailwise.distributions.members import Normal
    >>> low = Bounds(0.0).apply(Normal(torch.tensor([1.0, 9.0], dtype=torch.float64), 4.0))
    >>> low.mean.numpy().round(4), low.quantile(0.0).numpy(), low.cdf(0.0).numpy()
    (array([1., 9.]), array([0., 0.]), array([0., 0.]))
    """

    low: AnyNumber = -math.inf
    high: AnyNumber = math.inf

    def __post_init__(self) -> None:
        if not self.low < self.high or self.low == math.inf or self.high == -math.inf:
            raise ValueError(f"bounds need a low end below the high end, got {self.low:g} and {self.high:g}")

    @property
    def is_identity(self) -> bool:
        """Whether all labels are possible."""
        return math.isinf(self.low) and math.isinf(self.high)

    @property
    def tilt(self) -> Tilt:
        """Weight 1 between the bounds and 0 beyond them."""
        ends = [end for end in (self.low, self.high) if math.isfinite(end)]
        inside = [-math.inf] * math.isfinite(self.low) + [0.0] + [-math.inf] * math.isfinite(self.high)
        return Tilt(np.array(ends), np.array(inside))

    def rescale(self, shift: float, scale: float) -> Bounds:
        """Bounds of ``scale * y + shift`` for a positive scale."""
        return Bounds(self.low * scale + shift, self.high * scale + shift)

    def clip(self, y: Tensor) -> Tensor:
        """Return labels moved to the nearer bound where they lie beyond it."""
        return y.clamp(self.low, self.high)

    def check(self, y: ArrayLike, name: str = "y", *, row: str = "row", first: int = 0) -> None:
        """Raise an error that names the first row with a label beyond the bounds. y: (N,)

        `row` is what a row is called, and `first` the number of the first one.
        """
        labels = np.asarray(y, np.float64)
        bad = (labels < self.low) | (labels > self.high)
        if bad.any():
            place = int(np.argmax(bad))
            side, end = ("below", self.low) if labels[place] < self.low else ("above", self.high)
            raise ValueError(
                f"{name} is {labels[place]:.9g} in {row} {place + first}, {side} the bound {end:.9g} "
                f"({int(bad.sum())} such rows): correct these labels or widen the bounds"
            )

    def apply(self, distribution: Distribution) -> Distribution:
        """Return the prediction between the bounds, with the mean that it had if that lies between them."""
        return self.tilt.apply(distribution).onto(self.centred(distribution.base))

    def centred(self, distribution: Distribution) -> Distribution:
        """Return the prediction whose mean, after the cut at the bounds, is the one that it has now.

        Location and scale of each member change.
        """
        if self.is_identity:
            return distribution
        found = distribution.parametric
        own, least = found.scale, torch.full_like(found.mean, _TINY)
        low, high = (torch.full_like(own, end) for end in (self.low, self.high))
        width = self.high - self.low
        scale = torch.maximum(own, least)
        if math.isfinite(width):
            scale = torch.minimum(scale, torch.full_like(own, _WIDEST * width))
        margin = torch.minimum(LEAST_DISTANCE * scale, torch.full_like(own, width / 10))
        mean = torch.minimum(torch.maximum(found.mean.detach(), low + margin), high - margin)
        cut = _Cut(self, student(found.df))
        location, scale = cut.centred(mean, scale.detach(), low, high, IN_PLACE_OF_ILLINOIS.get(illinois))
        placed = found.map(Tensor.detach).placed(location, scale / torch.maximum(own.detach(), least))
        # Each member is cut off by itself: the cut of the whole would count it by its part inside.
        return distribution.rebuilt(placed, 1 / cut.mean_and_inside(location, scale)[1])


@dataclass(frozen=True)
class _Cut:
    """A Normal or Student-t cut off at bounds."""

    bounds: Bounds
    student: Student

    def mean_and_inside(self, location: Tensor, scale: Tensor) -> tuple[Tensor, Tensor]:
        """Mean after the cut, less the location and in units of the scale, and the probability inside."""
        inside, moment = torch.ones_like(location), torch.zeros_like(location)
        if math.isfinite(self.bounds.low):
            z = (self.bounds.low - location) / scale
            inside, moment = inside - self.student.sides(z)[0], moment + self.student.log_moment(z).exp()
        if math.isfinite(self.bounds.high):
            z = (self.bounds.high - location) / scale
            inside, moment = inside - self.student.sides(z)[1], moment - self.student.log_moment(z).exp()
        return moment / inside, inside

    def mean(self, location: Tensor, scale: Tensor) -> Tensor:
        return location + scale * self.mean_and_inside(location, scale)[0]

    def centred(
        self, mean: Tensor, scale: Tensor, low: Tensor, high: Tensor, root: Root
    ) -> tuple[Tensor, Tensor]:
        """Location within the bounds, and scale, for this mean; at a bound, the scale is narrowed."""
        has_low, has_high = math.isfinite(self.bounds.low), math.isfinite(self.bounds.high)
        start, end = low if has_low else mean, high if has_high else mean
        at_low = at_high = torch.zeros_like(mean, dtype=torch.bool)
        if has_low:
            at_low = self.mean(start, scale) > mean
        if has_high:
            at_high = self.mean(end, scale) < mean
        # With a location inside the bounds, the cut moves the mean by at most the mean of one half.
        reach = 2 * scale * self.student.log_moment(torch.zeros_like(mean)).exp()
        start, end = torch.maximum(start, mean - reach), torch.minimum(end, mean + reach)
        # Without a root inside, there is nothing to look for.
        start, end = torch.where(at_high, high, start), torch.where(at_low, low, end)
        inner = root(lambda at: self.mean(at, scale) - mean, start, end)
        location = torch.where(at_low, low, torch.where(at_high, high, inner))
        narrow = at_low | at_high
        if has_low and has_high:
            # On a log scale: from a scale at which the other bound does not matter to the given one.
            near = torch.where(at_low, mean - low, high - mean)
            side = torch.where(at_low, 1.0, -1.0).to(mean)
            least = torch.where(narrow, (near / 100).log(), scale.log())
            log_scale = root(lambda at: side * (self.mean(location, at.exp()) - mean), least, scale.log())
            return location, torch.where(narrow, log_scale.exp(), scale)
        distance = self.mean_and_inside(location, scale)[0].abs()
        return location, torch.where(narrow, (mean - location).abs() / distance, scale)


def illinois(function: Callable[[Tensor], Tensor], low: Tensor, high: Tensor) -> Tensor:
    """Root of an increasing function between low and high, element by element, by the Illinois rule.

    Without a root the result is one of the ends.
    """
    f_low, f_high = function(low), function(high)
    least = _EXACT * (f_high - f_low)
    kept = torch.zeros_like(low)  # which end stayed in the last step: -1 low, 1 high
    at, done = low, least == 0
    for step in range(_STEPS):
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


def bounds_of(given: object, labels: Array) -> Bounds:
    """Return the bounds that ``None``, ``"observed"`` or a pair describes, for these labels. (N,)

    Either end of a pair may be None or infinite. ``"observed"`` is the smallest and largest label; constant
    labels have no bounds.
    """
    wrong = ValueError(f"bounds must be None, 'observed' or a pair (low, high), got {given!r}")
    if given is None:
        return Bounds()
    if isinstance(given, str):
        if given != "observed":
            raise wrong
        low, high = float(labels.min()), float(labels.max())
        return Bounds(low, high) if low < high else Bounds()
    try:
        low_end, high_end = (None if end is None else float(end) for end in cast("list[float]", given))
    except (TypeError, ValueError):
        raise wrong from None
    low, high = -math.inf if low_end is None else low_end, math.inf if high_end is None else high_end
    if math.isnan(low) or math.isnan(high):
        raise wrong
    return Bounds(low, high)
