"""Predictive densities multiplied by weights of the label: ``p_t(y|x) = p(y|x) w(y) / Z(x)`` (VIR:dial).

Everything about the result is exact, from the CDF, the quantiles and the partial moments of the
Normal and the Student-t over cells of constant weight. `tailwise.labels.prior` makes the weights.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from torch import Tensor

from tailwise.distributions.members import (
    Distribution,
    Number,
    Parametric,
    checked_probability,
    exactly,
)
from tailwise.distributions.student_t import (
    Array,
    Members,
    row_parts,
    staircase_difference,
    standardized,
    student,
    weighted,
)

_NEAR_2 = 1e-6


@dataclass(frozen=True, eq=False)
class Tilt:
    """Log weights of labels, constant on cells between cuts; neighbouring cells of equal weight are merged.

    Tilts add up on the union of their cuts. A `Tilt()` without cuts changes nothing. The log weight of the
    end cells may be -inf: there are no labels beyond the cut then (`tailwise.distributions.truncation`).

    >>> twice = Tilt(np.array([0.0]), np.log([1.0, 2.0]))  # labels from 0 on count twice
    >>> half = Tilt(np.array([0.0, 9.0]), np.log([1.0, 0.5, 0.5]))
    >>> half.cuts, (twice + half).is_identity
    (array([0.]), True)
    """

    cuts: Array = field(default_factory=lambda: np.zeros(0))  # (C - 1,) ascending
    log_weights: Array = field(default_factory=lambda: np.zeros(1))  # (C,)

    def __post_init__(self) -> None:
        differs = self.log_weights[1:] != self.log_weights[:-1]
        object.__setattr__(self, "cuts", self.cuts[differs])
        object.__setattr__(self, "log_weights", self.log_weights[np.append(True, differs)])

    @property
    def is_identity(self) -> bool:
        """Whether all labels have the same weight."""
        return self.log_weights.size == 1

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Tilt) and all(
            map(np.array_equal, (self.cuts, self.log_weights), (other.cuts, other.log_weights))
        )

    def at(self, y: Array) -> Array:
        """Return the log weight of each label. (n,) -> (n,)"""
        return np.asarray(self.log_weights[np.searchsorted(self.cuts, y, side="right")])

    def weights(self, y: Array) -> Array:
        """Return the weight of each label, relative to the largest weight. (n,) -> (n,)"""
        return np.asarray(np.exp(self.at(y) - self.log_weights.max()))

    def __add__(self, other: Tilt) -> Tilt:
        cuts = np.union1d(self.cuts, other.cuts)
        lower = np.append(-np.inf, cuts)
        return Tilt(cuts, self.at(lower) + other.at(lower))

    def rescale(self, shift: float, scale: float) -> Tilt:
        """Tilt of ``scale * y + shift``."""
        order = 1 if scale > 0 else -1
        return Tilt((self.cuts * scale + shift)[::order], self.log_weights[::order])

    def apply(self, distribution: Distribution) -> Distribution:
        """Return the distribution under these weights; the identity returns the distribution itself."""
        if self.is_identity:
            return distribution
        whole = distribution.change + self if isinstance(distribution, Tilted) else self
        return distribution.base if whole.is_identity else Tilted(distribution.base, whole)


class Changed(Distribution):
    """A prediction that is changed as a whole: under weights of the label, or on another scale of it.

    It is evaluated in float64, without gradient. What it is made of is that of `base`, the prediction inside,
    and aleatoric and epistemic variance keep the proportion that they have there.
    """

    def __init__(self, inner: Distribution, change: Any) -> None:
        self.inner, self.change = inner, change

    @property
    def shape(self) -> torch.Size:
        return self.inner.shape

    @property
    def base(self) -> Distribution:
        return self.inner.base

    def onto(self, base: Distribution) -> Distribution:
        inner = self.inner.onto(base)
        return self if inner is self.inner else type(self)(inner, self.change)

    def members(self) -> Members:
        return self.base.members()

    @property
    def parametric(self) -> Parametric:
        return self.base.parametric

    def rebuilt(self, parametric: Parametric, weight_factor: Number = 1.0) -> Distribution:
        return self.onto(self.base.rebuilt(parametric, weight_factor))

    def pooled(self, weights: Tensor | None = None) -> Distribution:
        return self.onto(self.base.pooled(weights))

    @classmethod
    def _joined(cls, parts: Sequence[Self], function: Callable[..., Tensor]) -> Self:
        inner, change = parts[0].inner, parts[0].change
        if any(part.change != change for part in parts):
            raise ValueError("only distributions under the same tilt and transform can be joined")
        return cls(type(inner)._joined([part.inner for part in parts], function), change)

    @property
    def aleatoric(self) -> Tensor:
        return self.variance * (1 - self._epistemic_share)

    @property
    def epistemic(self) -> Tensor:
        return self.variance * self._epistemic_share

    @property
    def _epistemic_share(self) -> Tensor:
        share = self.base.epistemic.detach() / self.base.variance.detach()
        return torch.where(share.isnan(), 0.5, share)


class Tilted(Changed):
    """A Normal, an NIG or a mixture of them under another label prior: ``p(y|x) w(y) / Z(x)`` (VIR:dial).

    The weights w are constant on cells (a, b), so ``Z = sum w (F(b) - F(a))`` with F the CDF before the
    tilt. Mean and variance follow from the partial moments of the Normal and the Student-t over cells;
    an NIG with ``alpha <= 1`` has an infinite variance. Made by `Tilt.apply`.

    >>> from tailwise.distributions.members import Normal
    >>> tilted = Tilt(np.array([0.0]), np.log([1.0, 3.0])).apply(Normal(torch.tensor([0.0]), 1.0))
    >>> tilted.cdf(0.0).item(), round(tilted.mean.item(), 4)  # 3 of 4 labels lie above 0
    (0.25, 0.3989)
    """

    change: Tilt

    def rescale(self, shift: Number, scale: Number) -> Self:
        """Distribution of ``scale * Y + shift``, with one shift and scale for all predictions."""
        moved = self.change.rescale(float(shift), float(scale))
        return type(self)(self.inner.rescale(shift, scale), moved)

    @property
    def mean(self) -> Tensor:
        return self._shaped(self._moments.mean)

    @property
    def variance(self) -> Tensor:
        return self._shaped(self._moments.variance)

    @property
    def point(self) -> Tensor:
        """The median. The weights of rare labels can be large far from the prediction, where a heavy tail
        has little probability: they move the mean much more than the median. Bounds alone have no weights:
        the mean."""
        finite = self.change.log_weights[self.change.log_weights > -np.inf]
        return self.mean if (finite == finite[0]).all() else self.median

    def nll(self, y: Number) -> Tensor:
        return self.base.nll(y).detach() - self._by_rows(_Cells.log_ratio, y)

    def cdf(self, y: Number) -> Tensor:
        return self._by_rows(_Cells.cdf, y)

    def quantile(self, q: Number) -> Tensor:
        return self._by_rows(_Cells.quantile, checked_probability(q))

    def deviation(self, y: Number) -> Tensor:
        return self._by_rows(_Cells.deviation, y)

    def mean_difference(self) -> Tensor:
        weights = self._moments.weights
        members = Tilted(self.parametric.exact.map(lambda p: p.reshape(weights.shape)), self.change)
        difference = staircase_difference(lambda rows, levels: members[:, rows].quantile(levels), weights)
        return self._shaped(difference)

    @cached_property
    def _flat(self) -> Members:
        """The members before the tilt, in float64 on the CPU. (K, N) each"""
        return self.base.exact.map(lambda p: p.reshape(-1)).members()

    @cached_property
    def _whole(self) -> _Cells:
        return _Cells(self._flat, self.change)

    def _parts(self, values: int = 1) -> Iterator[tuple[slice, _Cells]]:
        """The cells of all rows, or of some at a time if `values` numbers per cell and row are too many."""
        members, rows = self._flat.weight.shape
        for part in row_parts(rows, members * self.change.log_weights.size * max(values, 1)):
            some = Members(*(p[:, part] for p in self._flat))
            yield part, self._whole if part == slice(None) else _Cells(some, self.change)

    @cached_property
    def _moments(self) -> _Moments:
        parts = zip(*(cells.moments for _, cells in self._parts()), strict=True)
        return _Moments(*(torch.cat(part, -1) for part in parts))

    def _by_rows(self, function: Callable[[_Cells, Tensor], Tensor], value: Number) -> Tensor:
        """Evaluate a function of `_Cells` for all rows and for values that broadcast against them."""
        exact = exactly(value)
        full = torch.broadcast_tensors(exact, exact.new_empty(self.shape))[0].shape
        shape = full[len(full) - len(self.shape) :]
        wide = self if shape == self.shape else self.map(lambda p: p.expand(shape))
        values = exact.expand(full).reshape(math.prod(full[: len(full) - len(shape)]), math.prod(shape))
        parts = [function(cells, values[:, rows]) for rows, cells in wide._parts(len(values))]
        return self._shaped(torch.cat(parts, -1), full)

    def _shaped(self, values: Tensor, shape: Sequence[int] | None = None) -> Tensor:
        return values.reshape(self.shape if shape is None else shape).to(self.parametric.mean)


class _Moments(NamedTuple):
    log_z: Tensor  # (N,) log of the mean weight
    weights: Tensor  # (K, N) weights of the members after the tilt
    mean: Tensor  # (N,)
    variance: Tensor  # (N,)


class _Cells:
    """N mixtures of K members over C cells of constant weight, for labels (L, N).

    With h(z) the integral of t p(t) from z to infinity, the mean of a standardised member over a cell (a, b)
    is h(a) - h(b). Summed over cells, each cut c adds h(c) times the difference of the weights above and
    below it. The second moment has c h(c) in place of h(c), plus a constant.
    """

    def __init__(self, members: Members, tilt: Tilt) -> None:
        self.members = Members(*(part.unsqueeze(1) for part in members))  # (K, 1, N) each
        self.cuts = torch.as_tensor(tilt.cuts)  # (C - 1,)
        self.log_w = torch.as_tensor(tilt.log_weights).unsqueeze(1)  # (C, 1)
        self.possible = np.flatnonzero(tilt.log_weights > -np.inf)  # numbers of the cells with labels
        ends = tilt.log_weights[[0, -1]]
        self.closed, self.closed_above = bool((ends == -np.inf).all()), bool(ends[1] == -np.inf)
        df = self.members.df
        if self.closed:
            # Between two bounds the variance is finite for any df; at 2 the formula is 0 / 0.
            df = torch.where((df - 2).abs() < _NEAR_2, 2 + _NEAR_2, df)
        self.student = student(df)
        z = self._standardized(self.cuts.unsqueeze(1))  # (K, C - 1, N)
        below, above = self.student.sides(z)
        none = torch.zeros_like(below[:, :1])
        # Probabilities below, from, and beyond each cell, and of it, before the tilt. (K, C, N)
        self.below, self.beyond = torch.cat([none, below], 1), torch.cat([above, none], 1)
        self.from_here = torch.cat([none + 1, above], 1)
        mass = torch.cat([below, none + 1], 1) - self.below
        # The tail that is small does not cancel.
        self.mass = torch.where(self.below > 0.5, self.from_here - self.beyond, mass).clamp_min(0)
        logs = self.log_w + self.mass.log()
        self.log_z = logs.logsumexp(1, keepdim=True)  # (K, 1, N)
        self.share = (logs - self.log_z).exp()  # of each cell, after the tilt
        log_h = self.student.log_moment(z) - self.log_z
        self.steps = (self.log_w[1:] + log_h).exp() - (self.log_w[:-1] + log_h).exp()  # (K, C - 1, N)
        self.z = z

    def _standardized(self, y: Tensor) -> Tensor:
        return standardized(y, self.members.location, self.members.scale)

    @cached_property
    def moments(self) -> _Moments:
        """Normaliser, weights, mean and variance under the tilt."""
        m, inverse, centre = self.members, 1 / self.student.df, self._centre
        logs = m.weight.log() + self.log_z
        log_z = logs.logsumexp(0, keepdim=True)
        weights = (logs - log_z).exp()  # (K, 1, N)
        second = torch.where(self.steps == 0, 0.0, self.steps * self.z).sum(1, keepdim=True)
        finite = (inverse < 0.5) | self.closed
        square = (1 + (1 - inverse) * second) / torch.where(finite, 1 - 2 * inverse, 1.0)
        spread = torch.where(finite, (square - centre**2).clamp_min(0), math.inf)
        means = m.location + m.scale * centre
        mean = weighted(weights, means)
        variance = weighted(weights, m.scale**2 * spread + (means - mean) ** 2)
        return _Moments(log_z[0, 0], weights[:, 0], mean[0], variance[0])

    @cached_property
    def _centre(self) -> Tensor:
        """Mean of each standardised member under the tilt. (K, 1, N)"""
        return torch.where(self.student.df > 1, self.steps.sum(1, keepdim=True), math.nan)

    def _index(self, y: Tensor) -> Tensor:
        return torch.bucketize(y.contiguous(), self.cuts, right=True)

    def log_ratio(self, y: Tensor) -> Tensor:
        """Log of a label's weight over the mean weight."""
        index = self._index(y)
        if self.closed_above:  # the upper bound itself is a possible label
            index = torch.where(y == self.cuts[-1], index - 1, index)
        return self.log_w[index, 0] - self.moments.log_z

    def cdf(self, y: Tensor) -> Tensor:
        """Probability below labels."""
        return weighted(self.moments.weights.unsqueeze(1), self._member_cdf(y))

    def _member_cdf(self, y: Tensor) -> Tensor:
        """Probability below labels for each member. (K, L, N)"""
        index = self._index(y)
        low, from_here, mass, share, until = (
            _at(part, index)
            for part in (self.below, self.from_here, self.mass, self.share, self.share.cumsum(1))
        )
        below, above = self.student.sides(self._standardized(y))
        # The smaller tail does not cancel.
        part = torch.where(low > 0.5, from_here - above, below - low)
        return (until - share + share * _ratio(part, mass)).clamp(0, 1)

    def deviation(self, y: Tensor) -> Tensor:
        """E|Y - y|."""
        m, index, z = self.members, self._index(y), self._standardized(y)
        # The mean of the labels below y, times their probability, in standardised units.
        steps = torch.cat([torch.zeros_like(self.steps[:, :1]), self.steps.cumsum(1)], 1)
        lower = _at(steps, index) - (self.log_w[index, 0] - self.log_z + self.student.log_moment(z)).exp()
        spread = m.scale * (z * (2 * self._member_cdf(y) - 1) + self._centre - 2 * lower)
        spread = torch.where(m.scale == 0, (y - m.location).abs(), spread)
        return weighted(self.moments.weights.unsqueeze(1), spread)

    def quantile(self, q: Tensor) -> Tensor:
        """Label that is exceeded with probability 1 - q."""
        m = self.members
        below, beyond, mass = ((m.weight * part).sum(0) for part in (self.below, self.beyond, self.mass))
        share = weighted(self.moments.weights.unsqueeze(1), self.share)  # (C, N)
        until = share.cumsum(0)
        index = (until[:-1].unsqueeze(1) < q).sum(0)
        before = torch.cat([torch.zeros_like(until[:1]), until[:-1]])
        part = _ratio(q - _at(before, index), _at(share, index))
        low, high = (_at(end, index) + p * _at(mass, index) for end, p in ((below, part), (beyond, 1 - part)))
        # From the nearer end: a level close to 1 has lost the digits of the tail above it.
        side = torch.where(low <= high, 1.0, -1.0).to(low)
        level = torch.minimum(low, high)
        found = side * self.student.mixture_quantile(m.weight, side * m.location, m.scale, level)
        end = torch.full_like(self.cuts[:1], math.inf)
        ends = torch.cat([-end, self.cuts, end])
        found = torch.minimum(torch.maximum(found, ends[index]), ends[index + 1])
        found = torch.where(q <= 0, -math.inf, torch.where(q >= 1, math.inf, found))
        return found.clamp(ends[self.possible[0]], ends[self.possible[-1] + 1])


def _at(table: Tensor, index: Tensor) -> Tensor:
    """Look cells up by number. (..., C, N), (L, N) -> (..., L, N)"""
    return table.gather(-2, index.expand(*table.shape[:-2], *index.shape))


def _ratio(part: Tensor, whole: Tensor) -> Tensor:
    """part / whole between 0 and 1, and 0 where the whole is 0."""
    return torch.where(whole != 0, part / whole, 0.0).clamp(0, 1)
