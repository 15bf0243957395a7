"""Label bins: choosing them for real labels, and finding the bin of a label.

Everything here is plain NumPy in float64 and runs once per data set. `LabelBins.index` also takes
tensors on any device, because each training step needs the bins of a batch.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Annotated, Any, overload

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from tailwise.options import Items

Array = NDArray[np.float64]

MAX_LATTICE_BINS = 200
"""Labels on a grid (ages, counts, ratings) get one bin per grid point up to this many."""
MIN_BINS, MAX_BINS = 10, 100
"""Limits on the number of bins that the rule for continuous labels may choose."""
MOST_BINS = 10_000
"""Most bins there may be: the kernel over them is a matrix of its square."""
_MIN_LATTICE_VALUES = 5
_MAX_BEYOND = 100


def checked_labels(y: ArrayLike | Tensor, what: str = "labels") -> Array:
    """Return labels as a finite 1-d float64 array, or raise an error that names the first bad row."""
    raw = y.detach().double().cpu().numpy() if isinstance(y, Tensor) else np.asarray(y)
    try:
        if raw.dtype.kind in "cmM":
            raise TypeError("complex numbers, dates and durations cannot be labels")
        labels = raw.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{what} must be numbers, got {raw.dtype}: {error}") from None
    labels = labels.reshape(-1)
    if labels.size == 0:
        raise ValueError(f"no {what}: at least one row is needed")
    bad = ~np.isfinite(labels)
    if bad.any():
        row = int(np.argmax(bad))
        raise ValueError(
            f"{what} must be finite: row {row} is {labels[row]} ({int(bad.sum())} bad of "
            f"{labels.size}); drop or fill these rows"
        )
    return labels


def checked_weights(weights: ArrayLike | Tensor, count: int) -> Array:
    """Return one weight for each of `count` labels: finite, not negative, and one of them positive."""
    w = checked_labels(weights, "weights")
    if w.size != count:
        raise ValueError(f"{w.size} weights for {count} labels")
    if (w < 0).any() or not w.any():
        raise ValueError("weights must not be negative, and one of them must be positive")
    return w


def in_label_precision(y: Tensor) -> Tensor:
    """Return labels in float64, or in float32 on devices without float64.

    Float32 cannot tell 1e9 from 1e9 + 1.
    """
    return y.to(torch.float32 if y.device.type == "mps" else torch.float64)


@dataclass(frozen=True, eq=False)
class LabelSummary:
    """What bins are chosen from: the number of labels, their range, and the labels or a sample of them."""

    count: int
    low: float
    high: float
    sample: Array


@dataclass(frozen=True, eq=False)
class LabelBins:
    """Bins over the range of the training labels, with the number of labels in each (VIR:bins).

    ``b(y)`` clips to the first and last bin, so a label beyond the training range has a bin too.
    A label on an inner edge belongs to the upper bin, in float32 as in float64.

    >>> bins = LabelBins.from_labels([1, 2, 2, 4])
    >>> bins.centers, bins.counts
    (array([1., 2., 3., 4.]), array([1, 2, 0, 1]))
    >>> bins.index(np.array([-7.0, 2.2, 99.0]))
    array([0, 1, 3])
    """

    edges: Annotated[Array, Items(2, MOST_BINS + 1)]  # (B + 1,)
    counts: NDArray[np.int64]  # (B,)
    rule: str = "edges as given"
    _cuts_on: dict[torch.device, Tensor] = field(default_factory=dict, repr=False)

    def __getstate__(self) -> dict[str, Any]:
        """Leave tensors on devices out of copies and pickles: another machine may not have the device."""
        return {**self.__dict__, "_cuts_on": {}}

    @classmethod
    def from_labels(
        cls,
        y: ArrayLike | Tensor,
        *,
        width: float | None = None,
        count: int | None = None,
        edges: ArrayLike | None = None,
        weight: ArrayLike | None = None,
    ) -> LabelBins:
        """Choose bins for labels; one of `width`, `count` and `edges` may override the rule.

        Whole numbers, and labels on any other regular grid, get one bin per grid point (at most
        `MAX_LATTICE_BINS`). Other labels get equal-width bins over their range. Their number is that
        of the Freedman-Diaconis rule, limited to `MIN_BINS` to `MAX_BINS`. With `weight`, a bin's
        count is the total weight of its labels, rounded, and at least 1 if the bin has labels.
        """
        labels = checked_labels(y)
        summary = LabelSummary(labels.size, labels.min(), labels.max(), labels)
        bins = cls.from_summary(summary, width=width, count=count, edges=edges)
        index = bins.index(labels)
        weights = None if weight is None else np.bincount(index, np.asarray(weight), len(bins))
        return bins.counted(np.bincount(index, minlength=len(bins)), weights)

    @classmethod
    def from_summary(
        cls,
        summary: LabelSummary,
        *,
        width: float | None = None,
        count: int | None = None,
        edges: ArrayLike | None = None,
    ) -> LabelBins:
        """Choose bins as `from_labels` does; all counts are 0. Put the counts in with `counted`."""
        options = {"width": width, "count": count, "edges": edges}
        chosen = [name for name, value in options.items() if value is not None]
        if len(chosen) > 1:
            raise ValueError(f"give only one of width, count and edges, not {' and '.join(chosen)}")
        if edges is not None:
            grid, rule = _checked_edges(edges, summary), "edges as given"
        elif width is not None:
            grid, rule = _width_edges(summary, width), f"width {width:g} as given"
        elif count is not None:
            grid, rule = _count_edges(summary, count), f"{count} equal-width bins as given"
        else:
            grid, rule = _default_edges(summary)
        grid = np.unique(grid)  # rounding makes edges of labels a few floats apart equal
        if grid.size == 1:
            grid = np.append(grid, np.nextafter(grid, np.inf))
        return cls(grid, np.zeros(grid.size - 1, np.int64), rule)

    def counted(self, counts: ArrayLike, weights: ArrayLike | None = None) -> LabelBins:
        """Return the same bins with the number of labels in each, or their total weight, rounded. (B,)

        A bin with labels counts at least 1.
        """
        each = np.asarray(counts)
        if weights is not None:
            each = np.where(each > 0, np.maximum(np.rint(np.asarray(weights)), 1), 0)
        return LabelBins(self.edges, each.astype(np.int64), self.rule)

    def __len__(self) -> int:
        return self.edges.size - 1

    @cached_property
    def centers(self) -> Array:
        """Middle of each bin. (B,)"""
        return np.asarray((self.edges[:-1] + self.edges[1:]) / 2)

    @cached_property
    def location(self) -> float:
        """Mean training label, with each label at the centre of its bin."""
        return float(self.counts @ self.centers / max(self.counts.sum(), 1))

    @cached_property
    def scale(self) -> float:
        """Standard deviation of the training labels (bin centres), or the bins' range if that is 0."""
        spread = self.counts @ (self.centers - self.location) ** 2 / max(self.counts.sum(), 1)
        return float(np.sqrt(spread)) or float(self.edges[-1] - self.edges[0])

    def standardized(self) -> LabelBins:
        """The same bins for labels minus `location`, divided by `scale`."""
        return LabelBins((self.edges - self.location) / self.scale, self.counts, self.rule)

    @cached_property
    def _cuts(self) -> Array:
        """Inner edges, lowered by 1% of a bin so that a label on an edge goes to the upper bin.

        1% covers the rounding of float32 labels. It does not depend on where the labels lie, so
        shifting and scaling them moves no label to another bin.
        """
        inner, widths = self.edges[1:-1], np.diff(self.edges)
        return np.asarray(inner - 0.01 * np.minimum(widths[:-1], widths[1:]))

    @overload
    def index(self, y: Tensor) -> Tensor: ...
    @overload
    def index(self, y: ArrayLike) -> NDArray[np.int64]: ...
    def index(self, y: ArrayLike | Tensor) -> NDArray[np.int64] | Tensor:
        """Return the bin of each label, clipped to the first and last bin. y: (...) -> (...)

        A tensor stays on its device. It is not checked for NaN, because that would wait for the device.
        """
        if isinstance(y, Tensor):
            labels = in_label_precision(y.detach()).contiguous()
            cuts = self._cuts_on.get(y.device)
            if cuts is None:
                cuts = torch.as_tensor(self._cuts, dtype=labels.dtype, device=y.device)
                self._cuts_on[y.device] = cuts
            return torch.bucketize(labels, cuts, right=True)
        array = np.asarray(y, np.float64)
        if np.isnan(array).any():
            row = int(np.argmax(np.isnan(array.reshape(-1))))
            raise ValueError(f"a missing label has no bin: row {row} is NaN; drop or fill it")
        return np.searchsorted(self._cuts, array, side="right").astype(np.int64)

    def regions(self, many: int = 100, few: int = 20) -> NDArray[np.str_]:
        """Return ``"many"`` (count > many), ``"few"`` (count < few) or ``"medium"`` for each bin. (B,)"""
        if few > many:
            raise ValueError(f"few={few} must not exceed many={many}")
        return np.where(self.counts > many, "many", np.where(self.counts < few, "few", "medium"))

    def explain(self) -> str:
        """Return a text: which bins were chosen, by which rule, and what to watch for."""
        total, occupied = int(self.counts.sum()), int((self.counts > 0).sum())
        widths = np.diff(self.edges)
        size = f"width {widths.min():.4g}"
        if not np.allclose(widths, widths[0], rtol=1e-6):
            size = f"widths {widths.min():.4g} to {widths.max():.4g}"
        ends = np.where(np.abs(self.edges) < 1e-9 * widths.sum(), 0.0, self.edges)[[0, -1]]
        shots = [f"{int((self.regions() == r).sum())} {r}" for r in ("many", "medium", "few")]
        text = (
            f"{len(self)} bins of {size} from {ends[0]:.6g} to {ends[1]:.6g} "
            f"({self.rule}). {total} labels fill {occupied} of them; by shots: "
            f"{', '.join(shots)} (many: more than 100 labels, few: fewer than 20)."
        )
        if occupied < len(self):
            empty = len(self) - occupied
            text += f" {empty} bins are empty and take" if empty > 1 else " One bin is empty and takes"
            text += " no part in smoothing."
        share = float(self.counts.max() / max(total, 1))
        if len(self) > 1 and share > 0.5:
            top = int(self.counts.argmax())
            text += (
                f" {share:.0%} of the labels share the bin around {self.centers[top]:.4g}. If they are not "
                "all one value (such as zero), a larger `count` or `edges` on a log scale separates them."
            )
        return text


def _checked_edges(edges: ArrayLike, labels: LabelSummary) -> Array:
    grid = np.asarray(edges, np.float64).reshape(-1)
    if grid.size < 2 or not np.isfinite(grid).all() or (np.diff(grid) <= 0).any():
        raise ValueError("edges must be at least two finite numbers in strictly increasing order")
    low, high = labels.low, labels.high
    outside = ((labels.sample < grid[0]) | (labels.sample > grid[-1])).mean()
    # Labels are standardised by the bins' centres, so a very wide end bin would set the scale.
    reach = max(high, grid[-2]) - min(low, grid[1])
    beyond = max(low - grid[0] if low < grid[1] else 0, grid[-1] - high if high >= grid[-2] else 0)
    if outside > 0.5 or beyond > _MAX_BEYOND * reach > 0:
        raise ValueError(
            f"edges from {grid[0]:g} to {grid[-1]:g} leave out most labels or reach far beyond them: end "
            f"them near the labels, {low:g} to {high:g}; labels beyond count in the first and last bin"
        )
    return grid


def _width_edges(labels: LabelSummary, width: float) -> Array:
    if not (np.isfinite(width) and width > 0):
        raise ValueError(f"width must be a positive number, got {width!r}")
    low, high = labels.low, labels.high
    number = max(1, int(np.ceil((high - low) / width - 1e-6)))
    if number > MOST_BINS:
        raise ValueError(f"width {width:g} gives {number} bins over {low:g} to {high:g}: choose a wider one")
    return np.asarray(low + width * np.arange(number + 1))


def _count_edges(labels: LabelSummary, count: int) -> Array:
    if not 1 <= count <= MOST_BINS or count != int(count):
        raise ValueError(f"count must be a whole number from 1 to {MOST_BINS}, got {count!r}")
    low, high = (labels.low, labels.high) if labels.low < labels.high else _around(labels.low)
    return np.linspace(low, high, int(count) + 1)


def _around(value: float) -> tuple[float, float]:
    """Return the ends of a range around the only label."""
    half = 0.5 if value == np.round(value) and abs(value) < 2**52 else abs(value) / 2
    return value - half, value + half


def _default_edges(labels: LabelSummary) -> tuple[Array, str]:
    low, high = labels.low, labels.high
    if low == high:
        return np.array(_around(low)), "all labels are equal"
    step, name = _lattice_step(np.unique(np.append(labels.sample, [low, high])))
    if step is not None:
        number = int(np.round((high - low) / step)) + 1
        return np.asarray(low + step * (np.arange(number + 1) - 0.5)), name
    quartiles = np.subtract(*np.percentile(labels.sample, [75, 25]))
    # A zero-inflated label may have no interquartile range: take the standard deviation instead.
    reach = high - low
    spread = quartiles / reach if quartiles > 0 else 1.349 * ((labels.sample - low) / reach).std()
    wanted = np.ceil(1 / max(2 * spread * labels.count ** (-1 / 3), 1e-9))
    number = int(np.clip(wanted, MIN_BINS, MAX_BINS))
    if wanted > MAX_BINS:
        how = f"the Freedman-Diaconis rule asks for more, capped at {MAX_BINS}"
    elif wanted < MIN_BINS:
        how = f"the Freedman-Diaconis rule asks for fewer, raised to {MIN_BINS}"
    else:
        how = "the Freedman-Diaconis rule"
    return np.linspace(low, high, number + 1), f"continuous labels, equal width, {how}"


def _lattice_step(values: Array) -> tuple[float | None, str]:
    """Return the step of the grid that sorted distinct labels lie on, if the grid has few enough points."""
    reach = values[-1] - values[0]
    whole = bool((values == np.round(values)).all())
    if values.size >= _MIN_LATTICE_VALUES:
        step = common_step(values, MAX_LATTICE_BINS)
        if step is not None:
            kind = "whole-number labels" if whole and step == 1 else "labels on a regular grid"
            return step, f"{kind}, one bin for each step of {step:g}"
    if whole and reach < MAX_LATTICE_BINS:
        return 1.0, "whole-number labels, one bin for each step of 1"
    return None, ""


def common_step(values: Array, most: float) -> float | None:
    """Return the largest step that divides all gaps of sorted values, by Euclid's algorithm with rounding.

    None if the values span `most` steps or more, or if the step is not larger than rounding.
    """
    gaps, reach, largest = np.diff(values), values[-1] - values[0], np.abs(values).max()
    step = float(gaps.min())
    while reach < most * step and step > 16 * np.spacing(largest):
        rounding = 1e-3 * step + 4 * float(np.finfo(np.float32).eps) * largest
        off = np.abs(gaps - step * np.round(gaps / step))
        wrong = off > min(rounding, 0.01 * step)
        if not wrong.any():
            # The longest distance measures the step best: rounding is largest in the smallest gap.
            return float(reach / np.round(reach / step))
        step = float(off[wrong].min())
    return None
