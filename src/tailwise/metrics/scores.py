"""Single scores ``f(distribution, y) -> float`` of predictions.

They read only the predictive distribution and are computed in float64 on the CPU, in O(n log n)
or better. Without any label a score is NaN, and so is a correlation with a constant. The module
`tailwise.metrics.regions` adds label bins, regions and names.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from scipy.stats import rankdata
from torch import Tensor

from tailwise.distributions.members import Distribution, Normal, checked_coverage
from tailwise.lookup import check_name

Labels = ArrayLike | Tensor
By = Literal["std", "epistemic"]

GM_FLOOR = 1e-10
"""Smallest absolute error, in label units, that the geometric mean counts."""
DEPTH_FLOOR = 1e-3
"""Smallest prediction that log10 and delta count, in label units (metres for depth)."""


def prepared(distribution: Distribution, y: Labels) -> tuple[Distribution, Tensor]:
    """Return predictions and labels flat, detached, in float64 on the CPU; bad labels are an error."""
    raw = y.detach() if isinstance(y, Tensor) else torch.from_numpy(np.array(y, np.float64))
    labels, shape = raw.to("cpu", torch.float64), distribution.shape
    if [s for s in labels.shape if s != 1] != [s for s in shape if s != 1]:
        raise ValueError(f"labels of shape {tuple(labels.shape)} for predictions of shape {tuple(shape)}")
    labels = labels.reshape(-1)
    bad = ~labels.isfinite()
    if bad.any():
        row = int(bad.to(torch.int8).argmax())
        raise ValueError(
            f"labels must be finite: row {row} is {labels[row].item()} ({int(bad.sum())} bad of "
            f"{labels.numel()}); drop these rows before scoring"
        )
    flat = distribution.map(lambda p: p.detach().to("cpu", torch.float64).reshape(-1))
    return flat, labels


PerRow = Callable[..., Tensor]
Function = Callable[..., float]
MEANS: dict[Function, tuple[PerRow, Callable[[Tensor], Tensor]]] = {}
"""Metrics that are a function of the mean of a loss per row: that loss, and the function."""


def _same(mean: Tensor) -> Tensor:
    return mean


def _mean(finish: Callable[[Tensor], Tensor] = _same) -> Callable[[PerRow], Function]:
    """Turn a loss per row into a score of predictions and labels: a function of its mean."""

    def of(loss: PerRow) -> Function:
        @functools.wraps(loss)
        def score(distribution: Distribution, y: Labels, **options: float) -> float:
            return float(finish(loss(*prepared(distribution, y), **options).mean()))

        MEANS[score] = loss, finish
        return score

    return of


@_mean()
def mae(distribution: Distribution, y: Tensor) -> Tensor:
    """Mean absolute error of the predicted label (`Distribution.point`), in label units.

    >>> mae(Normal(torch.tensor([1.0, 2.0]), 1.0), [0.0, 5.0])
    2.0
    """
    return (y - distribution.point).abs()


@_mean()
def mse(distribution: Distribution, y: Tensor) -> Tensor:
    """Mean squared error of the predicted label (`Distribution.point`).

    >>> mse(Normal(torch.tensor([1.0, 2.0]), 1.0), [0.0, 5.0])
    5.0
    """
    return (y - distribution.point) ** 2


@_mean(torch.sqrt)
def rmse(distribution: Distribution, y: Tensor) -> Tensor:
    """Root mean squared error of the predicted label (`Distribution.point`), in label units.

    >>> rmse(Normal(torch.tensor([0.0, 0.0]), 1.0), [1.0, 7.0])
    5.0
    """
    return (y - distribution.point) ** 2


@_mean(torch.exp)
def gm(distribution: Distribution, y: Tensor, *, floor: float = GM_FLOOR) -> Tensor:
    """Geometric mean of the absolute errors; errors below `floor` (1e-10) count as the floor.

    >>> round(gm(Normal(torch.tensor([0.0, 0.0]), 1.0), [2.0, 8.0]), 6)
    4.0
    """
    if floor <= 0:
        raise ValueError(f"floor must be positive, got {floor!r}")
    return (y - distribution.point).abs().clamp_min(floor).log()


@_mean()
def nll(distribution: Distribution, y: Tensor) -> Tensor:
    """Mean negative log-likelihood: Student-t for NIG (VIR:nll), Gaussian, or mixture.

    >>> round(nll(Normal(torch.tensor([0.0]), 1.0), [0.0]), 4)
    0.9189
    """
    return distribution.nll(y)


@_mean()
def gaussian_nll(distribution: Distribution, y: Tensor) -> Tensor:
    """Mean negative log-likelihood of a Gaussian with the predicted mean and total variance.

    It is not the likelihood of an evidential model, whose labels follow a Student-t.
    """
    return Normal(distribution.mean, distribution.variance).nll(y)


@_mean()
def gaussian_nll_reference(distribution: Distribution, y: Tensor) -> Tensor:
    """As the authors' preview code computes it: Gaussian with the epistemic variance alone.

    NaN where the epistemic variance is 0, as it is for a `Normal`.
    """
    return Normal(distribution.mean, distribution.epistemic).nll(y)


@_mean()
def crps(distribution: Distribution, y: Tensor) -> Tensor:
    """Mean continuous ranked probability score, E|Y - y| - E|Y - Y'| / 2, in label units.

    Equal to the mean absolute error if all variances are 0. Exact for Normal, NIG and mixtures of Normals.
    For mixtures of NIG, and under another label prior, the second term is a quadrature with an error of about
    1e-3 standard deviations (2e-4 for up to five members). NaN for an NIG without a mean (alpha of 1/2 or
    less).

    >>> round(crps(Normal(torch.tensor([0.0]), 1.0), [0.0]), 4)
    0.2337
    """
    return distribution.crps(y)


@_mean()
def coverage(distribution: Distribution, y: Tensor, *, level: float = 0.9) -> Tensor:
    """Share of labels inside the central interval of the given level; best when equal to it.

    >>> coverage(Normal(torch.zeros(4), 1.0), [0.0, 1.0, -1.6, 3.0], level=0.9)
    0.75
    """
    # A label lies in the central interval if its CDF does: one CDF is cheaper than two quantiles.
    return ((distribution.cdf(y) - 0.5).abs() <= checked_coverage(level) / 2).double()


@_mean()
def width(distribution: Distribution, y: Tensor, *, level: float = 0.9) -> Tensor:
    """Mean width of the central interval of the given level, in label units.

    >>> round(width(Normal(torch.zeros(1), 4.0), [0.0], level=0.95), 3)
    7.84
    """
    lower, upper = distribution.interval(level)
    return upper - lower


@_mean()
def interval_score(distribution: Distribution, y: Tensor, *, level: float = 0.9) -> Tensor:
    """Mean interval score of Winkler, for the central interval of the given level, in label units.

    Its width, plus ``2 / (1 - level)`` times the distance of the label from it. The expected score is
    smallest for the true quantiles, so it judges coverage and width together.

    >>> round(interval_score(Normal(torch.zeros(2), 1.0), [0.0, 3.0], level=0.9), 3)
    16.841
    """
    return winkler(*distribution.interval(level), y, level)


def winkler(lower: Tensor, upper: Tensor, y: Tensor, level: float = 0.9) -> Tensor:
    """Return the interval score of each row, for any intervals; see `interval_score`. (N,) each"""
    outside = (lower - y).clamp_min(0) + (y - upper).clamp_min(0)
    return upper - lower + 2 / (1 - checked_coverage(level)) * outside


@_mean()
def log10(distribution: Distribution, y: Tensor) -> Tensor:
    """Mean absolute log10 error, for depth; predictions below `DEPTH_FLOOR` count as the floor.

    >>> round(log10(Normal(torch.tensor([10.0, 1.0]), 1.0), [1.0, 1.0]), 6)
    0.5
    """
    if (y <= 0).any():
        raise ValueError(f"log10 and delta need positive labels, the smallest is {y.min().item():g}")
    return (distribution.point.clamp_min(DEPTH_FLOOR).log10() - y.log10()).abs()


@_mean()
def delta(distribution: Distribution, y: Tensor, *, k: int = 1) -> Tensor:
    """Share of predictions within a factor of ``1.25 ** k`` of the label, for depth.

    >>> delta(Normal(torch.tensor([1.2, 1.5]), 1.0), [1.0, 1.0], k=1)
    0.5
    """
    return (MEANS[log10][0](distribution, y) < k * math.log10(1.25)).double()


def pearson(distribution: Distribution, y: Labels) -> float:
    """Linear correlation of predictions and labels; NaN if either is constant.

    >>> round(pearson(Normal(torch.tensor([1.0, 2.0, 3.0]), 1.0), [2.0, 4.0, 6.0]), 6)
    1.0
    """
    d, labels = prepared(distribution, y)
    return _correlation(d.point, labels)


def spearman(distribution: Distribution, y: Labels) -> float:
    """Rank correlation of predictions and labels; ties get their mean rank.

    >>> round(spearman(Normal(torch.tensor([1.0, 2.0, 9.0]), 1.0), [2.0, 4.0, 5.0]), 6)
    1.0
    """
    d, labels = prepared(distribution, y)
    return _correlation(*(torch.from_numpy(rankdata(values.numpy())) for values in (d.point, labels)))


def _groups(ordered: Tensor) -> Tensor:
    """Number the runs of equal values in a sorted tensor: 0, 0, 1, 2, 2, ..."""
    # Two infinite values are equal, although their difference is NaN.
    same = torch.ones_like(ordered[:1], dtype=torch.bool)
    return (~torch.cat([same, ordered[1:] == ordered[:-1]])).cumsum(0)


def _correlation(a: Tensor, b: Tensor) -> float:
    # Not SciPy's `pearsonr`, which warns about constants and spends its time on p-values.
    if a.numel() < 2 or a.min() == a.max() or b.min() == b.max():
        return math.nan
    # Dividing by the largest deviation keeps squares of tiny or huge labels within float64.
    a, b = a - a.mean(), b - b.mean()
    a, b = a / a.abs().max(), b / b.abs().max()
    return float(((a @ b) / (a.norm() * b.norm())).clamp(-1, 1))


class Sparsification(NamedTuple):
    """The error that remains after removing a share of the samples, most uncertain first."""

    removed: NDArray[np.float64]  # (n,) share removed: 0, 1/n, ..., (n-1)/n
    error: NDArray[np.float64]  # (n,) mean absolute error of the rest
    oracle: NDArray[np.float64]  # (n,) the same if the largest errors were removed first


def _by_falling(key: Tensor, values: Tensor) -> Tensor:
    """Values sorted by decreasing key. Values of equal keys become their mean, so order does not matter."""
    key, order = key.sort(descending=True)
    group = _groups(key)
    return (torch.bincount(group, values[order]) / torch.bincount(group))[group]


def sparsification(distribution: Distribution, y: Labels, *, by: By = "std") -> Sparsification:
    """Return the sparsification curves behind `ause`, in label units, for plots.

    Samples of equal uncertainty count as removed in random order: the curves are expectations.

    >>> curves = sparsification(Normal(torch.zeros(3), torch.tensor([1.0, 2.0, 3.0])), [1.0, 3.0, 2.0])
    >>> curves.error, curves.oracle
    (array([2., 2., 1.]), array([2. , 1.5, 1. ]))
    """
    check_name("uncertainty", by, ("std", "epistemic"))
    d, labels = prepared(distribution, y)
    errors = (labels - d.point).abs()
    uncertainty = d.variance if by == "std" else d.epistemic
    left = torch.arange(errors.numel(), 0, -1, dtype=torch.float64)

    def remaining(ordered: Tensor) -> NDArray[np.float64]:
        return np.asarray((ordered.flip(0).cumsum(0).flip(0) / left).numpy())

    ordered = errors.sort(descending=True).values
    removed = np.asarray(1 - left.numpy() / max(1, errors.numel()))
    return Sparsification(removed, remaining(_by_falling(uncertainty, errors)), remaining(ordered))


def ause(
    distribution: Distribution, y: Labels, *, form: Literal["standard", "reference"] = "standard"
) -> float:
    """Area under the sparsification error: 0 if uncertainty ranks samples as their errors do.

    ``standard`` ranks by the total standard deviation and averages (error - oracle) over the share
    removed, in units of the mean absolute error. ``reference`` follows the preview code: it ranks by
    epistemic variance, removes at least one sample, and divides |error - oracle| by its own maximum;
    it is NaN for fewer than three samples.

    >>> round(ause(Normal(torch.zeros(3), torch.tensor([1.0, 2.0, 3.0])), [1.0, 3.0, 2.0]), 6)
    0.083333
    """
    check_name("form", form, ("standard", "reference"))
    curves = sparsification(distribution, y, by="std" if form == "standard" else "epistemic")
    gap, n = curves.error - curves.oracle, curves.error.size
    if n < (1 if form == "standard" else 3):
        return math.nan
    if form == "reference":
        gap = np.abs(gap[1:])
        area, unit = float(np.trapezoid(gap, dx=1 / (n - 2))), float(gap.max())
    else:
        # Both ends of the curve are 0, so the trapezoid rule is the plain mean.
        area, unit = float(gap.mean()), float(curves.error[0])
    return area / unit if unit != 0 else 0.0


def ause_reference(distribution: Distribution, y: Labels) -> float:
    """Area under the sparsification error as in the authors' preview code; see `ause`."""
    return ause(distribution, y, form="reference")


def ence(distribution: Distribution, y: Labels, *, groups: int = 10) -> float:
    """Expected normalised calibration error: 0 if predicted variance matches squared errors.

    Samples are sorted by predicted variance into groups of equal size. The result is the mean over
    groups of ``|RMV - RMSE| / RMV``, with root mean variance RMV and root mean squared error RMSE.

    >>> ence(Normal(torch.zeros(2), torch.tensor([1.0, 4.0])), [1.0, 3.0], groups=2)
    0.25
    """
    if groups < 1:
        raise ValueError(f"groups must be at least 1, got {groups!r}")
    d, labels = prepared(distribution, y)
    n = labels.numel()
    group = torch.arange(n) * min(groups, n) // max(n, 1)
    squared = torch.bincount(group, _by_falling(d.variance, (labels - d.point) ** 2)).sqrt()
    predicted = torch.bincount(group, d.variance.sort(descending=True).values).sqrt()
    return float(((predicted - squared).abs() / predicted).mean())
