"""The predicted spread, and its calibration: a few positive factors that minimise the NLL of held-out rows.

The predicted means do not change. On the rows it was fitted to, calibration is never worse than
none. Fit it on rows that the model was not trained on, with `balanced_weights` unless their labels
are balanced.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from scipy import optimize
from torch import Tensor

from tailwise.distributions.members import NIG, Distribution, Number
from tailwise.labels.bins import LabelBins, checked_labels, checked_weights
from tailwise.metrics.scores import prepared
from tailwise.options import Positive

MAX_FACTOR = 1e6
"""Upper bound on fitted factors and on their inverses. It keeps perfect predictions finite."""
LEAST_ALPHA = 1.25
"""Half of the fewest degrees of freedom that `standard_deviation` counts."""
_RIDGE = 1e-6
_LIMIT = math.log(MAX_FACTOR)


@dataclass(frozen=True)
class NIGScaling:
    """Factors on the parameters of an NIG, or of every member of a mixture of NIG (VIR:calibrate).

    Under another label prior they act on the distribution before the tilt.

    ``nu -> w_nu nu``, ``beta -> w_beta beta`` and ``alpha -> 1 + w_alpha (alpha - 1)``, which keeps
    alpha above 1 and scales the aleatoric variance ``beta / (alpha - 1)`` by ``w_beta / w_alpha``
    exactly. An alpha of 1 or less, where the variance is infinite, does not change.

    >>> belief = NIG(torch.tensor([0.0]), 2.0, 3.0, 4.0)
    >>> scaled = NIGScaling(w_nu=1.0, w_alpha=2.0, w_beta=4.0).apply(belief)
    >>> scaled.alpha.item(), scaled.beta.item(), scaled.aleatoric.item() / belief.aleatoric.item()
    (5.0, 16.0, 2.0)
    """

    w_nu: Positive = 1.0
    w_alpha: Positive = 1.0
    w_beta: Positive = 1.0

    def apply(self, distribution: Distribution) -> Distribution:
        """Return the calibrated distribution, of the same type, shape, dtype and device."""
        return _scaled(distribution, self.w_nu, self.w_alpha, self.w_beta)


@dataclass(frozen=True)
class VarianceScaling:
    """One factor on the variance of any distribution, stretched about its mean.

    In a mixture the members' variances and the distances between their means both grow, so that the
    total variance is multiplied by w. Under another label prior it acts on the distribution before the tilt.

    >>> from tailwise.distributions.members import Normal
    >>> VarianceScaling(4.0).apply(Normal(torch.tensor([1.0]), 2.0)).variance.item()
    8.0
    """

    w: Positive = 1.0

    def apply(self, distribution: Distribution) -> Distribution:
        """Return the calibrated distribution, of the same type, shape, dtype and device."""
        if self.w == 1:
            return distribution
        stretch, mean, members = math.sqrt(self.w), distribution.base.mean, distribution.parametric
        return distribution.rebuilt(members.placed(mean + (members.mean - mean) * stretch, stretch))


Scaling = NIGScaling | VarianceScaling


def _scaled(distribution: Distribution, nu: Number, alpha: Number, beta: Number) -> Distribution:
    belief = distribution.parametric
    if not isinstance(belief, NIG):
        raise TypeError(f"only an NIG has evidence, not a {type(belief).__name__}: use VarianceScaling")
    moved = (alpha * (belief.alpha - 1) + 1).clamp_min(1 + torch.finfo(belief.alpha.dtype).eps)
    moved = torch.where(belief.alpha > 1, moved, belief.alpha)
    return distribution.rebuilt(NIG(belief.gamma, belief.nu * nu, moved, belief.beta * beta))


def standard_deviation(distribution: Distribution) -> Tensor:
    """Return the standard deviation of each prediction, and a useful number where that is huge or infinite.

    The variance of a Student-t grows without limit as its degrees of freedom fall to 2, while its intervals
    hardly change. Calibration to labels with a heavy tail leads there. Fewer than 2.5 degrees of freedom
    count as 2.5 here, with the same location and scale: the standard deviation is at most 2.24 scales. All
    other predictions have ``distribution.std``.

    >>> beliefs = NIG(torch.zeros(3), 1.0, torch.tensor([3.0, 1.0001, 0.8]), torch.tensor([3.0, 1.0001, 0.8]))
    >>> [round(value, 2) for value in standard_deviation(beliefs).tolist()], round(beliefs.std[1].item())
    ([1.73, 3.16, 3.16], 141)
    """
    belief = distribution.parametric
    # A graph serves rows to come; anything else is left alone where it may be.
    if isinstance(belief, NIG) and (
        torch.compiler.is_compiling() or bool((belief.alpha < LEAST_ALPHA).any())
    ):
        alpha = belief.alpha.clamp_min(LEAST_ALPHA)
        distribution = distribution.rebuilt(
            NIG(belief.gamma, belief.nu, alpha, belief.beta * (alpha / belief.alpha))
        )
    return distribution.std


def split_variance(calibrated: Distribution, raw: Distribution) -> tuple[Tensor, Tensor]:
    """Return aleatoric and epistemic variance of a calibrated prediction, in the proportion of the raw one.

    Calibration corrects the total only. A larger nu and a smaller beta have nearly the same NLL, so the
    fitted factors may move all of the noise into the epistemic part, or the reverse. Both add up to the
    square of `standard_deviation`.

    >>> raw = NIG(torch.tensor([0.0]), 4.0, 3.0, 2.0)
    >>> calibrated = NIGScaling(w_nu=0.01, w_beta=0.1).apply(raw)
    >>> [round(part.item(), 2) for part in (*split_variance(calibrated, raw), calibrated.variance)]
    [2.08, 0.52, 2.6]
    """
    share = raw.epistemic / raw.variance
    share = torch.where(share.isnan(), 0.5, share)  # 0/0 and inf/inf
    variance = standard_deviation(calibrated) ** 2
    return variance * (1 - share), variance * share


def balanced_weights(y: ArrayLike | Tensor, bins: LabelBins) -> NDArray[np.float64]:
    """Return one weight per label, with mean 1, that gives every occupied label bin the same total. (n,)

    >>> bins = LabelBins.from_labels([0, 0, 0, 1])
    >>> balanced_weights([0, 0, 0, 1], bins).round(3)
    array([0.667, 0.667, 0.667, 2.   ])
    """
    index = bins.index(checked_labels(y))
    counts = np.bincount(index)
    return np.asarray(index.size / ((counts > 0).sum() * counts[index]))


def fit_scaling(
    distribution: Distribution, y: ArrayLike | Tensor, weights: ArrayLike | Tensor | None = None
) -> Scaling:
    """Fit the factors that minimise the (weighted) mean NLL of held-out labels (VIR:calibrate).

    An NIG, or a mixture of NIG, gets an `NIGScaling`; anything else a `VarianceScaling`. Among factors
    of equal NLL the result is nearest to 1. distribution: (n,), y: (n,), weights: (n,)

    >>> from tailwise.distributions.members import Normal
    >>> predicted = Normal(torch.zeros(4), 1.0)
    >>> fit_scaling(predicted, [2.0, -2.0, 2.0, -2.0])
    VarianceScaling(w=4.0)
    """
    exact, labels = prepared(distribution, y)
    if labels.numel() == 0:
        raise ValueError("no labels: calibration needs at least one held-out row")
    bad = ~exact.mean.isfinite() | exact.variance.isnan()
    if bad.any():
        row = int(bad.to(torch.int8).argmax())
        raise ValueError(f"predictions must be numbers: row {row} is not ({int(bad.sum())} bad rows)")
    n = labels.numel()
    shares = torch.from_numpy(np.ones(n) if weights is None else checked_weights(weights, n))
    shares /= shares.sum()
    fit = _fit_nig if isinstance(exact.parametric, NIG) else _fit_variance
    return fit(exact, labels, shares)


def _weighted(losses: Tensor, shares: Tensor) -> Tensor:
    """Weighted mean that ignores losses of weight 0, even infinite ones."""
    return (torch.where(shares > 0, losses, 0.0) * shares).sum()


def _fit_nig(exact: Distribution, labels: Tensor, shares: Tensor) -> NIGScaling:
    def objective(log_factors: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        theta = torch.tensor(log_factors, dtype=torch.float64, requires_grad=True)
        scaled = _scaled(exact, *theta.exp().unbind())
        loss = _weighted(scaled.nll(labels), shares) + _RIDGE * (theta**2).sum()
        (gradient,) = torch.autograd.grad(loss, theta)
        return float(loss.detach()), gradient.numpy()

    none = np.zeros(3)
    # Starting where the variance matches the residuals finds factors far from 1 reliably.
    residual = _weighted((labels - exact.mean) ** 2 / exact.variance, shares).item()
    matched = np.array([0.0, 0.0, np.clip(np.log(max(residual, 1e-300)), -_LIMIT, _LIMIT)])
    found = optimize.minimize(
        objective,
        min(none, matched, key=lambda start: objective(start)[0]),
        jac=True,
        method="L-BFGS-B",
        bounds=[(-_LIMIT, _LIMIT)] * 3,
        options={"maxiter": 300, "ftol": 1e-12, "gtol": 1e-8},
    )
    best = found.x if found.fun < objective(none)[0] else none
    return NIGScaling(*(float(w) for w in np.exp(best)))


def _fit_variance(exact: Distribution, labels: Tensor, shares: Tensor) -> VarianceScaling:
    centered = labels - exact.mean
    if exact.members().df.isinf().all() and len(exact.members().df) == 1:  # Normals have a closed form
        ratio = _weighted(centered**2 / exact.variance, shares).item()
        if math.isnan(ratio):  # predictions without spread and without error: 0/0
            return VarianceScaling()
        return VarianceScaling(min(max(ratio, 1 / MAX_FACTOR), MAX_FACTOR))

    def objective(log_factor: float) -> float:
        # The stretched density at y is the original one at y pulled towards the mean.
        pulled = exact.mean + centered * math.exp(-log_factor / 2)
        loss = _weighted(exact.nll(pulled), shares) + log_factor / 2
        return float(loss) + _RIDGE * log_factor**2

    return VarianceScaling(math.exp(_minimum(objective)))


def _minimum(objective: Callable[[float], float]) -> float:
    """Minimum of a function of one log-factor: the best of a grid, refined by Brent's method."""
    grid = np.linspace(-_LIMIT, _LIMIT, 57)  # contains 0, no change
    values = np.array([objective(t) for t in grid])
    best = int(np.nanargmin(values))
    low, high = grid[max(best - 1, 0)], grid[min(best + 1, grid.size - 1)]
    found: Any = optimize.minimize_scalar(
        objective, bounds=(low, high), method="bounded", options={"xatol": 1e-10}
    )
    return float(found.x) if found.fun < values[best] else float(grid[best])
