"""Values that labels can have: whole numbers and other equal steps, and values that many labels share.

A predicted distribution is continuous. Its quantiles, and the ends of intervals, are moved to values that
labels can have. Intervals only lose stretches without possible labels, so they get narrower and contain the
same labels.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from tailwise.labels.bins import Array, common_step
from tailwise.options import AnyNumber

MIN_LABELS = 30
"""Fewer labels do not show which values are possible."""
MAX_STEPS = 1000
"""A range of more steps than this counts as continuous."""
ATOM_SHARE = 0.1
"""A value is an atom if at least this share of the labels have it."""
_SLACK = 1e-6  # of a step: an end on a step stays there in spite of rounding


@dataclass(frozen=True)
class LabelSupport:
    """A grid of possible labels, or values that many labels share; see `from_labels`. Without either, all
    labels are possible and nothing moves.

    >>> whole = LabelSupport.from_labels(np.arange(60.0) % 6)
    >>> [end.tolist() for end in whole.between(torch.tensor([0.4, 1.2]), torch.tensor([3.9, 1.4]))]
    [[1.0, 1.0], [3.0, 1.0]]
    >>> half_zero = LabelSupport.from_labels(np.r_[np.zeros(50), 2 + np.random.default_rng(0).random(50)])
    >>> [end.tolist() for end in half_zero.between(torch.tensor([-0.3]), torch.tensor([1.5]))]
    [[0.0], [0.0]]
    """

    grid: tuple[float, ...] = ()
    """Possible labels at equal distances, from the smallest training label to the largest; () for no grid."""
    atoms: tuple[tuple[float, AnyNumber, AnyNumber], ...] = ()
    """Values that many labels share, with the next smaller and larger label; infinite if there is none."""

    def __post_init__(self) -> None:
        if len(self.grid) == 1 or not all(low < high for low, high in pairwise(self.grid)):
            raise ValueError("a grid of labels must rise")
        if not all(below < atom < above for atom, below, above in self.atoms):
            raise ValueError("a shared label must lie between its neighbours")

    @classmethod
    def from_labels(cls, y: Array) -> LabelSupport:
        """Return what the labels show; nothing if they are continuous. (N,)

        At least 30 labels are needed. They lie on a grid if all are multiples of one step, such as whole
        numbers, that repeat (at most half as many values as labels) and span at most 1,000 steps. Otherwise
        values that a tenth of the labels share are atoms.
        """
        values, counts = np.unique(y, return_counts=True)
        if y.size < MIN_LABELS or values.size < 2:
            return cls()
        grid = _grid(values) if 2 * values.size <= y.size else ()
        if grid:
            return cls(grid)
        around = np.concatenate([[-math.inf], values, [math.inf]])
        often = np.flatnonzero(counts >= ATOM_SHARE * y.size)
        atoms = tuple((float(values[k]), float(around[k]), float(around[k + 2])) for k in often)
        return cls((), atoms)

    def between(self, lower: Tensor, upper: Tensor) -> tuple[Tensor, Tensor]:
        """Return the narrowest ends of intervals that contain the same possible labels.

        An interval without a possible label becomes the one nearest to its middle. Beside an atom, an end
        moves to it over a stretch that has no training label. The chance that a new label lies in such a
        stretch is at most 2 in n + 1 for each atom, with n training labels.
        """
        if self.grid:
            low = (self._place(lower) - _SLACK).ceil()
            high = (self._place(upper) + _SLACK).floor()
            middle = self._place((lower + upper) / 2).round()
            empty = low > high
            return self._point(torch.where(empty, middle, low)), self._point(torch.where(empty, middle, high))
        for atom, below, above in self._atoms(lower):
            contains = (lower <= atom) & (upper >= atom)
            lower = torch.where(contains & (lower > below), atom, lower)
            upper = torch.where(contains & (upper < above), atom, upper)
        return lower, upper

    def nearest(self, y: Tensor) -> Tensor:
        """Return the nearest possible label: of the grid, or between an atom and the label next to it."""
        if self.grid:
            return self._point(self._place(y).round())
        for atom, below, above in self._atoms(y):
            side = torch.where(y < atom, below, above)
            near = (y > below) & (y < above) & ((y - atom).abs() <= (side - y).abs())
            y = torch.where(near, atom, y)
        return y

    @property
    def _step(self) -> float:
        return (self.grid[-1] - self.grid[0]) / (len(self.grid) - 1)

    def _place(self, y: Tensor) -> Tensor:
        """How many steps above the smallest label."""
        first, step = torch.tensor([self.grid[0], self._step], dtype=torch.float64, device=y.device).unbind()
        return (y - first) / step

    def _point(self, k: Tensor) -> Tensor:
        """The label at a whole number of steps above the smallest one, or below it."""
        points = torch.tensor(self.grid, dtype=torch.float64, device=k.device)
        step = torch.tensor(self._step, dtype=torch.float64, device=k.device)
        inside = k.clamp(0, len(self.grid) - 1)
        return points[inside.long()] + (k - inside) * step

    def _atoms(self, like: Tensor) -> list[tuple[Tensor, ...]]:
        table = torch.tensor(self.atoms, dtype=torch.float64, device=like.device).reshape(-1, 3)
        return [row.unbind() for row in table]


def _grid(values: Array) -> tuple[float, ...]:
    """All points between the smallest and largest value of the coarsest grid that has them; () if it is fine.

    The values themselves are points as they are. Others are rounded to 12 digits, so that 3 * 0.1 is 0.3.
    """
    step = common_step(values, MAX_STEPS + 0.5)
    if step is None:
        return ()
    places = (values - values[0]) / step
    whole = np.round(places).astype(np.int64)
    if np.abs(places - whole).max() > _SLACK:
        return ()
    points = [float(f"{values[0] + k * step:.12g}") for k in range(int(whole[-1]) + 1)]
    for k, value in zip(whole, values, strict=True):
        points[k] = float(value)
    return tuple(points)
