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
from dataclasses import dataclass
from typing import Any

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
        ends = np.array([self.low, self.high])
        weights = np.array([-math.inf, 0.0, -math.inf])
        return Tilt(
            ends[np.isfinite(ends)], weights[[math.isfinite(self.low), True, math.isfinite(self.high)]]
        )

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
        members = distribution.parametric.map(Tensor.detach)
        least, width = torch.full_like(members.scale, _TINY), self.high - self.low
        before = torch.maximum(members.scale, least)
        scale = before.clamp(max=_WIDEST * width) if math.isfinite(width) else before
        low, high = (torch.full_like(scale, end) for end in (self.low, self.high))
        margin = torch.minimum(LEAST_DISTANCE * scale, torch.full_like(scale, width / 10))
        mean = torch.minimum(torch.maximum(members.mean, low + margin), high - margin)
        tails = student(members.df)
        location, scale = self._place(tails, mean, scale, low, high)
        # Each member is cut off by itself: the cut of the whole would count it by its part inside.
        inside = self._cut(tails, location, scale)[1]
        return distribution.rebuilt(members.placed(location, scale / before), 1 / inside)

    def _cut(self, tails: Student, location: Tensor, scale: Tensor) -> tuple[Tensor, Tensor]:
        """Mean after the cut, less the location and in units of the scale, and the probability inside."""
        inside, moment = torch.ones_like(location), torch.zeros_like(location)
        for side, (end, sign) in enumerate(((self.low, 1), (self.high, -1))):
            if math.isfinite(end):
                z = (end - location) / scale
                inside = inside - tails.sides(z)[side]
                moment = moment + sign * tails.log_moment(z).exp()
        return moment / inside, inside

    def _place(
        self, tails: Student, mean: Tensor, scale: Tensor, low: Tensor, high: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Location within the bounds, and scale, for this mean; at a bound, the scale is narrowed."""

        def after(location: Tensor, scale: Tensor) -> Tensor:
            return location + scale * self._cut(tails, location, scale)[0]

        has_low, has_high = math.isfinite(self.low), math.isfinite(self.high)
        start, end = low if has_low else mean, high if has_high else mean
        no = torch.zeros_like(mean, dtype=torch.bool)
        at_low = after(start, scale) > mean if has_low else no
        at_high = after(end, scale) < mean if has_high else no
        # With a location inside the bounds, the cut moves the mean by at most the mean of one half.
        reach = 2 * scale * tails.log_moment(torch.zeros_like(mean)).exp()
        start, end = torch.maximum(start, mean - reach), torch.minimum(end, mean + reach)
        # Without a root inside, there is nothing to look for.
        start, end = torch.where(at_high, high, start), torch.where(at_low, low, end)
        inner = tails.root(lambda at: after(at, scale) - mean, start, end)
        location = torch.where(at_low, low, torch.where(at_high, high, inner))
        narrow = at_low | at_high
        if has_low and has_high:
            # On a log scale: from a scale at which the other bound does not matter to the present one.
            near = torch.where(at_low, mean - low, high - mean)
            side = torch.where(at_low, 1.0, -1.0).to(mean)
            least = torch.where(narrow, (near / 100).log(), scale.log())
            log_scale = tails.root(lambda at: side * (after(location, at.exp()) - mean), least, scale.log())
            return location, torch.where(narrow, log_scale.exp(), scale)
        distance = self._cut(tails, location, scale)[0].abs()
        return location, torch.where(narrow, (mean - location).abs() / distance, scale)


def bounds_of(given: object, labels: Array) -> Bounds:
    """Return the bounds that ``None``, ``"observed"`` or a pair describes, for these labels. (N,)

    Either end of a pair may be None or infinite. ``"observed"`` is the smallest and largest label; constant
    labels have no bounds.
    """
    if given is None:
        return Bounds()
    if isinstance(given, str) and given == "observed":
        low, high = float(labels.min()), float(labels.max())
        return Bounds(low, high) if low < high else Bounds()
    ends: Any = () if isinstance(given, str) else given
    try:
        low, high = ends
        low, high = float(-math.inf if low is None else low), float(math.inf if high is None else high)
    except (TypeError, ValueError):
        low = high = math.nan
    if math.isnan(low) or math.isnan(high):
        raise ValueError(f"bounds must be None, 'observed' or a pair (low, high), got {given!r}")
    return Bounds(low, high)
