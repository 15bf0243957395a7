"""Predictive densities multiplied by weights of the label: ``p_t(y|x) = p(y|x) w(y) / Z(x)`` (VIR:dial).

Everything about the result is exact, from the CDF, the quantiles and the partial moments of the
Normal and the Student-t over cells of constant weight. `tailwise.core.label_prior` makes the weights.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, Self

import numpy as np
import torch
from torch import Tensor

from tailwise.core.distributions import (
    NIG,
    Distribution,
    Mixture,
    Normal,
    Number,
    checked_coverage,
    checked_probability,
    concatenate,
)
from tailwise.core.labels import Array
from tailwise.core.weighted_cells import CellTable, Index, Member, log_sum, ratio, tilted_member

_CHUNK = 2**21


@dataclass(frozen=True, eq=False)
class Tilt:
    """Log weights of labels, constant on cells between cuts; neighbouring cells of equal weight are merged.

    Tilts add up on the union of their cuts. A tilt without cuts changes nothing. The log weight of the end
    cells may be -inf: there are no labels beyond the cut then (`tailwise.core.truncation`).

    >>> twice = Tilt(np.array([0.0]), np.log([1.0, 2.0]))  # labels from 0 on count twice
    >>> half = Tilt(np.array([0.0, 9.0]), np.log([1.0, 0.5, 0.5]))
    >>> half.cuts, (twice + half).is_identity
    (array([0.]), True)
    """

    cuts: Array  # (C - 1,) ascending, or (C - 1, *shape) with cuts of its own for each prediction
    log_weights: Array  # (C,)

    def __post_init__(self) -> None:
        differs = self.log_weights[1:] != self.log_weights[:-1]
        object.__setattr__(self, "cuts", self.cuts[differs])
        object.__setattr__(self, "log_weights", self.log_weights[np.append(True, differs)])

    def equals(self, other: Tilt) -> bool:
        """Whether both have the same cells and weights, shared by all predictions."""
        same = np.array_equal(self.log_weights, other.log_weights) and np.array_equal(self.cuts, other.cuts)
        return same and self.cuts.ndim == 1

    @property
    def is_identity(self) -> bool:
        """Whether all labels have the same weight."""
        return self.log_weights.size == 1

    @property
    def truncation(self) -> Tilt:
        """The part of this tilt that excludes labels: weight 0 where this one has 0, and 1 elsewhere."""
        return Tilt(self.cuts, np.where(self.log_weights == -np.inf, -np.inf, 0.0))

    def weights(self, y: Array) -> Array:
        """Return the weight of each label, relative to the largest weight. (n,) -> (n,)"""
        own = self.log_weights[np.searchsorted(self.cuts, y, side="right")]
        return np.asarray(np.exp(own - self.log_weights.max()))

    def __add__(self, other: Tilt) -> Tilt:
        if self.cuts.ndim > 1 or other.cuts.ndim > 1:
            raise ValueError(
                "tilts cannot be added after predictions were rescaled row by row: add them first"
            )
        cuts = np.union1d(self.cuts, other.cuts)
        lower = np.append(-np.inf, cuts)
        parts = (t.log_weights[np.searchsorted(t.cuts, lower, side="right")] for t in (self, other))
        return Tilt(cuts, sum(parts, np.zeros(lower.size)))

    def rescale(self, shift: Number, scale: Number) -> Tilt:
        """Tilt of ``scale * y + shift``, where both may differ between predictions."""
        moved, factor = (
            torch.as_tensor(v, dtype=torch.float64).detach().cpu().numpy() for v in (shift, scale)
        )
        if not ((factor > 0).all() or (factor < 0).all()):
            raise ValueError("scale must be positive for all predictions, or negative for all")
        extra = max(moved.ndim, factor.ndim, self.cuts.ndim - 1) + 1 - self.cuts.ndim
        cuts = self.cuts.reshape(self.cuts.shape + (1,) * extra) * factor + moved
        if factor.min() > 0:
            return Tilt(cuts, self.log_weights)
        return Tilt(cuts[::-1], self.log_weights[::-1])

    def apply(self, distribution: Distribution) -> Distribution:
        """Return the distribution under these weights; the identity returns the distribution itself."""
        if self.is_identity:
            return distribution
        if isinstance(distribution, Tilted):
            return (distribution.tilt + self).apply(distribution.base)
        return Tilted(distribution, self)


class _Summary(NamedTuple):
    log_z: Array  # (N,) log of the mean weight
    members: Array  # (K, N) weights of the members after the tilt
    mean: Array  # (N,)
    variance: Array  # (N,)


class Tilted(Distribution):
    """A Normal, an NIG or a mixture of them under another label prior: ``p(y|x) w(y) / Z(x)`` (VIR:dial).

    The weights w are constant on cells (a, b), so ``Z = sum w (F(b) - F(a))`` with F the CDF before the
    tilt. Mean and variance follow from the partial moments of the Normal and the Student-t over cells;
    an NIG with ``alpha <= 1`` has an infinite variance. Aleatoric and epistemic variance keep the
    proportion that they have before the tilt. Everything is evaluated by SciPy in float64, without
    gradient. Made by `Tilt.apply`.

    >>> tilted = Tilt(np.array([0.0]), np.log([1.0, 3.0])).apply(Normal(torch.tensor([0.0]), 1.0))
    >>> tilted.cdf(0.0).item(), round(tilted.mean.item(), 4)  # 3 of 4 labels lie above 0
    (0.25, 0.3989)
    """

    def __init__(self, base: Distribution, tilt: Tilt) -> None:
        members = base.components if isinstance(base, Mixture) else base
        if not isinstance(members, Normal | NIG):
            kind = type(members).__name__
            raise TypeError(f"a tilt applies to Normal, NIG and mixtures of them, not to {kind}")
        self.base, self.tilt = base, tilt

    def __repr__(self) -> str:
        return f"Tilted({self.base!r}, {self.tilt.log_weights.size} cells)"

    @property
    def shape(self) -> torch.Size:
        return self.base.shape

    def __len__(self) -> int:
        return len(self.base)

    def map(self, function: Callable[[Tensor], Tensor]) -> Self:
        tilt = self.tilt
        if tilt.cuts.ndim > 1:
            rows = [function(torch.from_numpy(cut).expand(self.shape)) for cut in tilt.cuts]
            tilt = Tilt(torch.stack(rows).double().cpu().numpy(), tilt.log_weights)
        return type(self)(self.base.map(function), tilt)

    def rescale(self, shift: Number, scale: Number) -> Self:
        return type(self)(self.base.rescale(shift, scale), self.tilt.rescale(shift, scale))

    def onto(self, base: Distribution) -> Tilted:
        """Return another distribution under the same weights."""
        return Tilted(base, self.tilt)

    @property
    def mean(self) -> Tensor:
        return self._tensor(self._summary.mean)

    @property
    def point(self) -> Tensor:
        """The median. The weights of rare labels can be large far from the prediction, where a heavy tail
        has little probability: they move the mean much more than the median. Bounds alone have no weights:
        the mean."""
        finite = self.tilt.log_weights[self.tilt.log_weights > -np.inf]
        return self.mean if (finite == finite[0]).all() else self.median

    @property
    def variance(self) -> Tensor:
        return self._tensor(self._summary.variance)

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

    @property
    def untilted(self) -> Distribution:
        """The prediction under the training labels: without the weights, but within the bounds if any."""
        return self.tilt.truncation.apply(self.base)

    @property
    def log_normalizer(self) -> Tensor:
        """Log of the mean weight Z of each prediction."""
        return self._tensor(self._summary.log_z)

    @property
    def members(self) -> tuple[Tilted, Tensor]:
        """Members of a mixture under the tilt, with their weights under it. (K, *shape) each"""
        if not isinstance(self.base, Mixture):
            return self[None], torch.ones_like(self.base.mean)[None]
        weights = self._tensor(self._summary.members, self.base.weights.shape)
        return Tilted(self.base.components, self.tilt), weights

    def nll(self, y: Number) -> Tensor:
        return self.base.nll(y).detach() - self._by_rows(Tilted._log_ratio, y)

    def cdf(self, y: Number) -> Tensor:
        return self._by_rows(Tilted._cdf, y)

    def quantile(self, q: Number) -> Tensor:
        return self._by_rows(Tilted._quantile, checked_probability(q))

    def interval(self, coverage: float = 0.9) -> tuple[Tensor, Tensor]:
        tail = (1 - checked_coverage(coverage)) / 2
        levels = torch.tensor([tail, 1 - tail], dtype=torch.float64)
        lower, upper = self.quantile(levels.reshape(2, *(1 for _ in self.shape)))
        return lower, upper

    @cached_property
    def median(self) -> Tensor:
        """Label that is exceeded with probability 1/2, computed once."""
        return self.quantile(0.5)

    @cached_property
    def central(self) -> tuple[Tensor, Tensor]:
        """Ends of the central 90% interval, computed once."""
        return self.interval(0.9)

    def sample(self, n: int, generator: torch.Generator | None = None) -> Tensor:
        return self.quantile(torch.rand((n, *self.shape), generator=generator, dtype=torch.float64))

    def deviation(self, y: Number) -> Tensor:
        """E|Y - y|, the first part of the CRPS."""
        return self._by_rows(Tilted._deviation, y)

    # ---------------------------------------------------------------- values for some rows, (L, n) each

    def _log_ratio(self, rows: slice, y: Array) -> Array:
        index, cuts = self._index(rows, y), self._cuts_of(rows)
        if self.tilt.log_weights[-1] == -np.inf:  # the upper bound itself is a possible label
            index = np.where(y == cuts[-1], index - 1, index)
        return self.tilt.log_weights[index] - self._summary.log_z[rows]

    def _cdf(self, rows: slice, y: Array) -> Array:
        parts = [(m.weight, *m.tails(m.standardized(y))) for m in self._members(rows)]
        below, above = (np.asarray(sum(part[0] * part[i] for part in parts)) for i in (1, 2))
        return self._table(rows).cdf(self._index(rows, y), below, above)

    def _quantile(self, rows: slice, q: Array) -> Array:
        table, cuts = self._table(rows), self._cuts_of(rows)
        index = np.zeros(q.shape, np.intp)
        for cumulated in table.share.cumsum(0)[:-1]:
            index += cumulated < q
        cell = table.at(index)
        part = ratio(q - cell.before, cell.share)
        below, above = cell.below + part * cell.mass, cell.above + (1 - part) * cell.mass
        # From the nearer end: a level close to 1 has lost the digits of the tail above it.
        lower, number = below <= 0.5, np.broadcast_to(np.arange(q.shape[1]) + rows.start, q.shape)
        found, turned = np.empty(q.shape), self._flat.rescale(0.0, -1.0)
        found[lower] = self._flat[number[lower]].quantile(torch.from_numpy(below[lower])).numpy()
        found[~lower] = -turned[number[~lower]].quantile(torch.from_numpy(above[~lower])).numpy()
        end = np.full((1, q.shape[1]), np.inf)
        bounds = np.concatenate([-end, np.broadcast_to(cuts, (len(cuts), q.shape[1])), end])
        first, last = (np.take_along_axis(bounds, index + i, 0) for i in (0, 1))
        possible = np.flatnonzero(self.tilt.log_weights > -np.inf)
        low, high = bounds[possible[0]], bounds[possible[-1] + 1]
        found = np.where(q <= 0, -np.inf, np.where(q >= 1, np.inf, np.clip(found, first, last)))
        return np.clip(found, low, high)

    def _deviation(self, rows: slice, y: Array) -> Array:
        log_w, index, total = self.tilt.log_weights, self._index(rows, y), np.zeros(y.shape)
        for weight, m in zip(self._summary.members[:, rows], self._members(rows), strict=True):
            tilted, z = tilted_member(m, self._cuts_of(rows), log_w[:, None]), m.standardized(y)
            # The mean of the labels below y, times their probability, in standardised units.
            steps = np.concatenate([np.zeros((1, m.scale.size)), tilted.steps.cumsum(0)])
            lower = np.take_along_axis(steps, index, 0)
            lower -= np.exp(log_w[index] - tilted.log_z + m.log_moment(z))
            with np.errstate(invalid="ignore"):
                own = m.scale * (z * (2 * tilted.table.cdf(index, *m.tails(z)) - 1) + tilted.mean - 2 * lower)
                own = np.where(m.scale == 0, np.abs(y - m.location), own)
                total += np.where(weight == 0, 0.0, weight * own)
        return total

    # ---------------------------------------------------------------- cells, some rows at a time

    @cached_property
    def _flat(self) -> Distribution:
        """The distribution before the tilt, in float64 on the CPU, in one dimension."""
        return self.base.map(lambda p: p.detach().to("cpu", torch.float64).reshape(-1))

    def _members(self, rows: slice) -> list[Member]:
        base = self._flat[rows]
        inner = base.components if isinstance(base, Mixture) else base[None]
        weights = base.weights if isinstance(base, Mixture) else torch.ones_like(inner.mean)
        scale = inner.scale if isinstance(inner, NIG) else inner.std
        df = (2 * inner.alpha).numpy() if isinstance(inner, NIG) else [None] * len(weights)
        parts = (weights.numpy(), inner.mean.numpy(), scale.numpy(), df)
        return [Member(*member) for member in zip(*parts, strict=True)]

    @cached_property
    def _cuts(self) -> Array:
        """Cuts between the cells, the same for all predictions (C - 1, 1) or not (C - 1, N)."""
        cuts = self.tilt.cuts
        if cuts.ndim > 1:
            aligned = cuts.reshape(len(cuts), *(1,) * (len(self.shape) + 1 - cuts.ndim), *cuts.shape[1:])
            cuts = np.broadcast_to(aligned, (len(cuts), *self.shape))
        return cuts.reshape(len(cuts), -1)

    def _cuts_of(self, rows: slice) -> Array:
        return self._cuts[:, rows] if self._cuts.shape[1] > 1 else self._cuts

    def _index(self, rows: slice, y: Array) -> Index:
        """Cell of each label. (L, N)"""
        cuts = self._cuts_of(rows)
        if cuts.shape[1] == 1:
            return np.searchsorted(cuts[:, 0], y, side="right")
        index = np.zeros(y.shape, np.intp)
        for cut in cuts:
            index += cut <= y
        return index

    def _chunks(self, width: int) -> list[slice]:
        step = max(1, _CHUNK // width)
        return [slice(start, start + step) for start in range(0, max(math.prod(self.shape), 1), step)]

    def _tabulated(self, rows: slice) -> tuple[CellTable, _Summary]:
        members, log_w = self._members(rows), self.tilt.log_weights[:, None]
        tilted = [tilted_member(m, self._cuts_of(rows), log_w) for m in members]
        below, above, mass = (
            np.asarray(sum(m.weight * t.table[i] for m, t in zip(members, tilted, strict=True)))
            for i in range(3)
        )
        with np.errstate(divide="ignore", invalid="ignore"):
            logs = np.stack([np.log(m.weight) + t.log_z for m, t in zip(members, tilted, strict=True)])
            log_z = log_sum(logs)
            share, weights = np.exp(log_w + np.log(mass) - log_z), np.exp(logs - log_z)
            means = np.stack([m.location + m.scale * t.mean for m, t in zip(members, tilted, strict=True)])
            mean = np.where(weights == 0, 0.0, weights * means).sum(0)
            squares = np.stack([m.scale**2 * t.variance for m, t in zip(members, tilted, strict=True)])
            squares += (means - mean) ** 2
            variance = np.where(weights == 0, 0.0, weights * squares).sum(0)
        return CellTable(below, above, mass, share), _Summary(log_z, weights, mean, variance)

    @cached_property
    def _whole(self) -> tuple[CellTable, _Summary] | None:
        """The table and the summary of all rows, unless they are too large to keep."""
        chunks = self._chunks(self.tilt.log_weights.size)
        return self._tabulated(chunks[0]) if len(chunks) == 1 else None

    @cached_property
    def _summary(self) -> _Summary:
        if self._whole is not None:
            return self._whole[1]
        chunks = self._chunks(self.tilt.log_weights.size)
        parts = zip(*(self._tabulated(rows)[1] for rows in chunks), strict=True)
        return _Summary(*(np.concatenate(part, -1) for part in parts))

    def _table(self, rows: slice) -> CellTable:
        if self._whole is None:
            return self._tabulated(rows)[0]
        return CellTable(*(part[:, rows] for part in self._whole[0]))

    def _tensor(self, values: Array, shape: tuple[int, ...] | None = None) -> Tensor:
        return torch.from_numpy(values.reshape(self.shape if shape is None else shape)).to(self.base.mean)

    def _by_rows(self, function: Callable[[Tilted, slice, Array], Array], value: Number) -> Tensor:
        """Evaluate one of the methods above for all rows and for values that broadcast against them."""
        given = torch.as_tensor(value, dtype=torch.float64).detach().cpu()
        full = torch.broadcast_shapes(given.shape, self.shape)
        shape = full[len(full) - len(self.shape) :]
        wide = self if shape == self.shape else self.map(lambda p: p.expand(shape))
        values = (
            given.expand(full).reshape(math.prod(full[: len(full) - len(shape)]), math.prod(shape)).numpy()
        )
        chunks = wide._chunks(max(self.tilt.log_weights.size, len(values)))
        return self._tensor(np.concatenate([function(wide, r, values[:, r]) for r in chunks], -1), full)

    @classmethod
    def _concatenated(cls, parts: Sequence[Self]) -> Self:
        tilt = parts[0].tilt
        if not all(p.tilt.equals(tilt) for p in parts):
            raise ValueError("only distributions under the same tilt can be joined")
        return cls(concatenate([p.base for p in parts]), tilt)
