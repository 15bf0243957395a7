"""Values that labels can have: whole numbers, steps of a decimal, and values that many labels share.

A predicted distribution is continuous. Its quantiles, and the ends of intervals, are moved to values that
labels can have. Intervals only lose stretches without possible labels, so they get narrower and contain the
same labels.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tailwise.core.labels import Array

MIN_LABELS = 30
"""Fewer labels do not show which values are possible."""
MAX_STEPS = 1000
"""A range of more steps than this counts as continuous."""
ATOM_SHARE = 0.1
"""A value is an atom if at least this share of the labels have it."""
_MAX_DECIMALS = 4
_EXACT = 2.0**53
_SLACK = 1e-6  # of a step: an end on a step stays there in spite of rounding


@dataclass(frozen=True)
class LabelSupport:
    """A grid of possible labels, or values that many labels share; see `from_labels`.

    >>> whole = LabelSupport.from_labels(np.arange(60.0) % 6)
    >>> [end.tolist() for end in whole.between(torch.tensor([0.4, 1.2]), torch.tensor([3.9, 1.4]))]
    [[1.0, 1.0], [3.0, 1.0]]
    >>> half_zero = LabelSupport.from_labels(np.r_[np.zeros(50), 2 + np.random.default_rng(0).random(50)])
    >>> [end.tolist() for end in half_zero.between(torch.tensor([-0.3]), torch.tensor([1.5]))]
    [[0.0], [0.0]]
    """

    grid: tuple[float, float, float] | None = None
    """Labels are (offset + k stride) / power for whole k: power, offset, stride."""
    atoms: tuple[tuple[float, float, float], ...] = ()
    """Values that many labels share, with the next smaller and larger label; infinite if there is none."""

    @classmethod
    def from_labels(cls, y: Array) -> LabelSupport | None:
        """Return what the labels show, or None if they are continuous. (N,)

        At least 30 labels are needed. They lie on a grid if they are whole numbers, or decimals of at most
        four places, that repeat (at most half as many values as labels) and span at most 1,000 steps.
        Otherwise values that a tenth of the labels share are atoms.
        """
        values, counts = np.unique(y, return_counts=True)
        if len(y) < MIN_LABELS or values.size < 2:
            return None
        grid = _grid(values) if 2 * values.size <= len(y) else None
        if grid is not None:
            return cls(grid)
        around = np.concatenate([[-math.inf], values, [math.inf]])
        often = np.flatnonzero(counts >= ATOM_SHARE * len(y))
        atoms = tuple((float(values[k]), float(around[k]), float(around[k + 2])) for k in often)
        return cls(None, atoms) if atoms else None

    def between(self, lower: Tensor, upper: Tensor) -> tuple[Tensor, Tensor]:
        """Return the narrowest ends of intervals that contain the same possible labels.

        An interval without a possible label becomes the one nearest to its middle. Beside an atom, an end
        moves to it over a stretch that has no training label. The chance that a new label lies in such a
        stretch is at most 2 in n + 1 for each atom, with n training labels.
        """
        if self.grid is not None:
            power, offset, stride = self._parts(lower)
            low = ((lower * power - offset) / stride - _SLACK).ceil()
            high = ((upper * power - offset) / stride + _SLACK).floor()
            nearest = ((lower + upper) / 2 * power - offset) / stride
            empty = low > high
            steps = (torch.where(empty, nearest.round(), k) for k in (low, high))
            low, high = ((offset + k * stride) / power for k in steps)
            return low, high
        for atom, below, above in self._atoms(lower):
            contains = (lower <= atom) & (upper >= atom)
            lower = torch.where(contains & (lower > below), atom, lower)
            upper = torch.where(contains & (upper < above), atom, upper)
        return lower, upper

    def nearest(self, y: Tensor) -> Tensor:
        """Return the nearest possible label: of the grid, or between an atom and the label next to it."""
        if self.grid is not None:
            power, offset, stride = self._parts(y)
            rounded: Tensor = (offset + ((y * power - offset) / stride).round() * stride) / power
            return rounded
        for atom, below, above in self._atoms(y):
            side = torch.where(y < atom, below, above)
            near = (y > below) & (y < above) & ((y - atom).abs() <= (side - y).abs())
            y = torch.where(near, atom, y)
        return y

    def _parts(self, like: Tensor) -> tuple[Tensor, ...]:
        return torch.tensor(self.grid, dtype=torch.float64, device=like.device).unbind()

    def _atoms(self, like: Tensor) -> list[tuple[Tensor, ...]]:
        table = torch.tensor(self.atoms, dtype=torch.float64, device=like.device).reshape(-1, 3)
        return [row.unbind() for row in table]

    def to_dict(self) -> dict[str, Any]:
        """Return plain lists of numbers."""
        return {
            "grid": None if self.grid is None else list(self.grid),
            "atoms": [list(a) for a in self.atoms],
        }

    @classmethod
    def from_dict(cls, state: Mapping[str, Any]) -> LabelSupport:
        """Rebuild what `to_dict` returned; numbers that make no grid are an error."""
        grid, atoms = state["grid"], tuple(tuple(map(float, atom)) for atom in state["atoms"])
        if grid is not None and not (grid[0] >= 1 and grid[2] >= 1 and all(map(math.isfinite, grid))):
            raise ValueError(f"a grid of labels cannot be {grid}")
        if not all(len(atom) == 3 and atom[1] < atom[0] < atom[2] for atom in atoms):
            raise ValueError("a shared label must lie between its neighbours")
        return cls(None if grid is None else tuple(map(float, grid)), atoms)  # type: ignore[arg-type]


def _grid(values: Array) -> tuple[float, float, float] | None:
    """Power of ten, offset and stride of values that are decimals of few places. (V,), ascending"""
    for power in (10.0**places for places in range(_MAX_DECIMALS + 1)):
        scaled = values * power
        if np.abs(scaled).max() >= _EXACT:
            return None
        whole = np.round(scaled)
        # Divided, a whole number gives the float that the decimal is read as.
        if (whole / power == values).all():
            stride = int(np.gcd.reduce(np.diff(whole).astype(np.int64)))
            steps = (whole[-1] - whole[0]) / stride
            return (power, float(whole[0] % stride), float(stride)) if steps <= MAX_STEPS else None
    return None
