"""Label priors, and what turns predictions under one into predictions under another (VIR:dial).

A `LabelDensity` says how likely each label is. `emphasis` and `change_of_prior` turn densities into
a `Tilt`, weights over cells of labels, and `Tilt.apply` changes a prediction without training again.

>>> import torch
>>> from tailwise.distributions.members import Normal
>>> training = LabelDensity.from_bins(LabelBins.from_labels([0, 0, 0, 1]), kernel=None)
>>> prediction = Normal(torch.tensor([0.5]), 1.0)
>>> balanced = emphasis(training, 1.0).apply(prediction)
>>> prediction.cdf(0.5).item(), round(balanced.cdf(0.5).item(), 4)
(0.5, 0.25)
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tailwise.distributions.tilt import Tilt
from tailwise.labels.bins import Array, LabelBins, checked_labels
from tailwise.labels.kernels import smoothed_density

FLOOR = 0.1
"""Smallest density of a label, relative to the mean density over the range of the labels.

Without a floor, a stretch of labels with one training row, or none, would get an almost infinite
weight. With it, emphasis 1 multiplies no label by more than 10 times the weight of an even density. 0.1 is
the smallest of 0.01, 0.03, 0.1 and 0.3 with which the error of rare labels falls along the whole dial on
the development tables (research/results/dial.md).
"""
RARE_SHARE = 0.15
"""Share of the labels that count as rare."""
MAX_CELLS = 100
"""Most cells of a density; more bins are merged, so that the cost per row is bounded."""
_NODES, _NODE_WEIGHTS = np.polynomial.legendre.leggauss(8)


@dataclass(frozen=True, eq=False)
class LabelDensity:
    """A density of labels, constant on each cell and never 0; the end cells extend to infinity.

    >>> training = LabelDensity.from_bins(LabelBins.from_labels([0, 0, 0, 1]), kernel=None)
    >>> training.edges, training.density
    (array([-0.5,  0.5,  1.5]), array([0.75, 0.25]))
    """

    edges: Array  # (B + 1,), ascending
    density: Array  # (B,), positive, per unit of the label; integrates to 1 over the edges

    @classmethod
    def from_bins(cls, bins: LabelBins, *, floor: float = FLOOR, **kernel: Any) -> LabelDensity:
        """Smooth the training labels over their bins (VIR:density), with at most `MAX_CELLS` cells.

        `floor` is the smallest density, relative to the mean density. Keyword arguments are those of
        `tailwise.labels.kernels.kernel_matrix`. The kernel reflects at the ends of the range, so that an
        even density stays even.
        """
        starts = np.unique(np.linspace(0, len(bins), MAX_CELLS + 1).astype(np.int64)[:-1])
        counts = np.add.reduceat(bins.counts, starts)
        if counts.sum() == 0:
            raise ValueError("the label bins have no labels: a density needs at least one")
        cells = LabelBins(bins.edges[np.append(starts, len(bins))], counts)
        return cls._floored(cells.edges, smoothed_density(cells, **{"boundary": "reflect", **kernel}), floor)

    @classmethod
    def from_prior(cls, prior: Any, like: LabelDensity) -> LabelDensity:
        """Return the density of labels that a user expects, on the cells of the training density `like`.

        `prior` is a `LabelDensity`, a function of the label that need not integrate to 1, a histogram as a
        pair of edges and counts in either order, or a sample of labels. What lies beyond the cells of `like`
        is left out of a histogram and counts in the end cells of a sample; if all of it does, it is an error.
        """
        if isinstance(prior, LabelDensity):
            return prior
        if callable(prior):
            masses = like._integrals(prior)
        elif isinstance(prior, tuple | list) and len(prior) == 2 and all(np.ndim(p) == 1 for p in prior):
            edges, counts = sorted((np.asarray(part) for part in prior), key=len, reverse=True)
            masses = like._overlaps(edges, counts)
        else:
            labels = checked_labels(prior)
            low, high = labels.min(), labels.max()
            if not ((labels >= like.edges[0]) & (labels <= like.edges[-1])).any():
                raise ValueError(f"{like._no_mass}: its labels lie between {low:g} and {high:g}")
            cells = LabelBins(like.edges, np.zeros(like.density.size, np.int64))
            return cls.from_bins(cells.counted(np.bincount(cells.index(labels), minlength=len(cells))))
        if not masses.sum() > 0:
            raise ValueError(like._no_mass)
        return cls._floored(like.edges, masses, FLOOR)

    def _integrals(self, function: Callable[[Array], ArrayLike]) -> Array:
        """Integrate a density function of the label over each cell. (B,)"""
        half = np.diff(self.edges)[:, None] / 2
        points = self.edges[:-1, None] + half * (1 + _NODES)  # (B, nodes)
        values = np.asarray(function(points.reshape(-1)), np.float64)
        if values.shape != (points.size,) or not (np.isfinite(values) & (values >= 0)).all():
            raise ValueError("a label prior must return one density per label, finite and not negative")
        return np.asarray(values.reshape(points.shape) @ _NODE_WEIGHTS * half[:, 0])

    def _overlaps(self, edges: ArrayLike, counts: ArrayLike) -> Array:
        """Divide a histogram among the cells by overlap. edges: (H + 1,), counts: (H,) -> (B,)"""
        grid, masses = checked_labels(edges, "edges"), checked_labels(counts, "counts")
        if grid.size != masses.size + 1 or (np.diff(grid) <= 0).any():
            raise ValueError(f"{masses.size} counts need {masses.size + 1} ascending edges, got {grid.size}")
        if (masses < 0).any():
            raise ValueError(f"counts must not be negative, got {masses.min():g}")
        return np.diff(np.interp(self.edges, grid, np.concatenate([[0.0], np.cumsum(masses)])))

    @classmethod
    def _floored(cls, edges: Array, masses: Array, floor: float) -> LabelDensity:
        """Raise cells to the floor and lower the others in proportion, so that the integral stays 1."""
        if not 0 < floor < 1:
            raise ValueError(f"floor must lie between 0 and 1, got {floor!r}")
        widths, least = np.diff(edges), floor / (edges[-1] - edges[0])
        density = masses / masses.sum() / widths
        low = density < least
        while True:
            raised = np.where(low, least, density)
            rest = ~low
            raised[rest] *= (1 - least * widths[low].sum()) / (density[rest] @ widths[rest])
            if not (raised[rest] < least).any():
                return cls(edges, raised)
            low |= raised < least

    def at(self, y: Array) -> Array:
        """Return the density at labels; beyond the edges it is that of the end cell. (n,) -> (n,)"""
        return np.asarray(self.density[np.searchsorted(self.edges[1:-1], y, side="right")])

    @property
    def _no_mass(self) -> str:
        low, high = self.edges[[0, -1]]
        return f"the label prior has no mass between {low:g} and {high:g}, the range of the training labels"


def rarest(y: Array, density: LabelDensity, share: float = RARE_SHARE) -> NDArray[np.bool_]:
    """Return which labels are the rarest `share` of them, by the density of training labels. (n,) -> (n,)"""
    chosen = np.zeros(len(y), bool)
    chosen[np.argsort(density.at(y), kind="stable")[: math.ceil(share * len(y))]] = True
    return chosen


def rare_stretches(bins: LabelBins, share: float = RARE_SHARE) -> tuple[tuple[float, float], ...]:
    """Return the ends of the stretches of lowest density with this share of the training labels, or more.

    The lower end of a stretch belongs to it, the upper end does not.

    >>> rare_stretches(LabelBins(np.arange(7.0), np.array([5, 40, 90, 80, 40, 10])))
    ((-inf, 2.0), (5.0, inf))
    """
    density = LabelDensity.from_bins(bins)
    counts = np.diff(np.interp(density.edges, bins.edges, np.append(0, np.cumsum(bins.counts))))
    order = np.argsort(density.density, kind="stable")
    enough = np.searchsorted(np.cumsum(counts[order]), share * counts.sum())
    rare = density.density <= density.density[order[enough]]
    ends = np.concatenate([[-np.inf], density.edges[1:-1], [np.inf]])
    steps = np.diff(np.concatenate([[0], rare, [0]]))
    return tuple(zip(ends[steps == 1].tolist(), ends[steps == -1].tolist(), strict=True))


def emphasis(density: LabelDensity, t: float) -> Tilt:
    """Return the tilt from training labels towards rare ones, -t log rho (VIR:dial).

    0 leaves labels as in training, 1 makes every label equally likely, and a negative t favours
    common labels.

    >>> training = LabelDensity.from_bins(LabelBins.from_labels([0, 0, 0, 1]), kernel=None)
    >>> tilt = emphasis(training, 1.0)
    >>> tilt.cuts, np.exp(tilt.log_weights).round(3)
    (array([0.5]), array([1.333, 4.   ]))
    """
    if not math.isfinite(t):
        raise ValueError(f"emphasis must be a finite number, got {t!r}")
    return Tilt(density.edges[1:-1], -t * np.log(density.density))


def change_of_prior(old: LabelDensity, new: LabelDensity) -> Tilt:
    """Return the tilt from labels as likely as in `old` to labels as likely as in `new` (VIR:dial)."""
    return emphasis(old, 1.0) + emphasis(new, -1.0)
