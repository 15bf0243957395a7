"""Risk estimators under label imbalance and the generalisation bound (VIR:risk, VIR:bound).

The setting: in a balanced data set, each sample of bin b is observed with probability P_b, its
propensity. The balanced risk is the mean over bins of a bin's mean loss. It is estimated from the
observed samples. Dividing by P is unbiased but has a large variance where P is small. Dividing by
smoothed propensities P~ (`smoothed`) trades some bias for a smaller variance: this is VIR.

All functions take arrays and compute in float64. Leading dimensions of `losses` and `observed`, such as
repeated draws, are kept.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from tailwise.labels.bins import Array


def _positive(values: ArrayLike, what: str) -> Array:
    """Return one positive finite number per bin, or raise an error that names the first bad bin."""
    array = np.asarray(values, np.float64)
    bad = ~(np.isfinite(array) & (array > 0))
    if array.ndim != 1 or bad.any():
        where = f": bin {int(np.argmax(bad))} has {array[bad][0]:g}" if array.ndim == 1 else ""
        raise ValueError(f"{what} must be one positive number per bin{where}; leave out bins without samples")
    return array


def propensities(counts: ArrayLike) -> Array:
    """Return P_b = counts / max(counts), the training set as a thinned balanced set. (B,)

    The balanced set has ``max(counts)`` samples in every bin.

    >>> propensities([10, 40, 20])
    array([0.25, 1.  , 0.5 ])
    """
    array = np.asarray(counts, np.float64)
    if array.size == 0 or not (array >= 0).all() or array.max() == 0:
        raise ValueError("counts must not be negative, and one of them must be positive")
    return np.asarray(array / array.max())


def smoothed(propensity: ArrayLike, kernel: ArrayLike) -> Array:
    """Return P~, each bin's average of P over its neighbours. propensity: (B,), kernel: (B, B)

    The rows of the kernel (`tailwise.labels.kernels.kernel_matrix`) are normalised to sum 1, so a constant
    P does not change.

    >>> smoothed([1.0, 0.25], [[1.0, 1.0], [0.0, 2.0]])
    array([0.625, 0.25 ])
    """
    matrix = np.asarray(kernel, np.float64)
    return np.asarray(matrix / matrix.sum(1, keepdims=True) @ np.asarray(propensity))


def naive_risk(losses: ArrayLike, observed: ArrayLike = 1.0) -> Array:
    """Return the mean loss of the observed samples, biased towards frequent bins (VIR:risk). (..., n)

    `observed` is 1 or 0 per sample. NaN if none is observed.

    >>> naive_risk([0.0, 0.0, 1.0], [1, 0, 1])
    array(0.5)
    """
    array, seen = np.broadcast_arrays(np.asarray(losses, np.float64), observed)
    with np.errstate(invalid="ignore"):
        return np.asarray((array * seen).sum(-1) / seen.sum(-1))


def ips_risk(
    losses: ArrayLike, index: ArrayLike, propensity: ArrayLike, sizes: ArrayLike, observed: ArrayLike = 1.0
) -> Array:
    """Return the inverse-propensity estimate, unbiased for the balanced risk (VIR:risk).

    ``1/B sum_b 1/U_b sum_{observed j in b} loss_j / P_b`` with U_b the size of bin b in the balanced set.
    With P~ in place of P it is the VIR estimate. losses: (..., n), index: (n,), propensity: (B,),
    sizes: (B,), observed: (..., n)

    >>> ips_risk([1.0, 1.0], [0, 1], propensity=[1.0, 0.5], sizes=[1, 2])
    array(1.)
    """
    chance, size = _positive(propensity, "propensities"), _positive(sizes, "bin sizes")
    if size.shape != chance.shape:
        raise ValueError(f"{size.size} bin sizes for {chance.size} propensities")
    seen = np.asarray(losses, np.float64) * np.asarray(observed)
    return np.asarray(seen @ (1 / (chance.size * size * chance))[np.asarray(index)])


def bias_term(propensity: ArrayLike, smoothed_propensity: ArrayLike, max_loss: float = 1.0) -> float:
    """Return a bound on how far smoothing shifts the estimate's mean (VIR:bound).

    ``D/B sum_b |1 - P_b/P~_b|`` where `max_loss` is the bound D on the loss. propensity: (B,),
    smoothed_propensity: (B,)

    >>> bias_term([1.0, 0.25], [0.8, 0.5])
    0.375
    """
    chance = _positive(smoothed_propensity, "smoothed propensities")
    return float(max_loss * np.abs(1 - np.asarray(propensity) / chance).mean())


def variance_term(
    smoothed_propensity: ArrayLike,
    max_loss: float = 1.0,
    *,
    eta: float = 0.05,
    hypotheses: int = 1,
    sizes: ArrayLike | None = None,
) -> float:
    """Return a bound on the estimate's distance from its mean, with probability 1 - eta (VIR:bound).

    ``D/B sqrt(log(2 H / eta) / 2) sqrt(sum 1/P~^2)`` for H hypotheses; smoothed_propensity: (B,).
    With the bin `sizes` U (B,), Hoeffding's inequality is applied to samples instead of bins, and the
    sum is over ``1/(U P~^2)``. This is never looser than the paper's term.

    >>> round(variance_term([0.5, 0.5], eta=0.1), 4)
    1.7308
    >>> round(variance_term([0.5, 0.5], eta=0.1, sizes=[100, 100]), 4)
    0.1731
    """
    chance = _positive(smoothed_propensity, "smoothed propensities")
    if not 0 < eta < 1:
        raise ValueError(f"eta must lie between 0 and 1, got {eta!r}")
    if hypotheses < 1:
        raise ValueError(f"hypotheses must be at least 1, got {hypotheses!r}")
    draws = np.ones_like(chance) if sizes is None else _positive(sizes, "bin sizes")
    spread = np.sqrt((1 / (draws * chance**2)).sum())
    return float(max_loss / chance.size * np.sqrt(np.log(2 * hypotheses / eta) / 2) * spread)


def bound(
    estimate: ArrayLike,
    propensity: ArrayLike,
    smoothed_propensity: ArrayLike,
    max_loss: float = 1.0,
    *,
    eta: float = 0.05,
    hypotheses: int = 1,
    sizes: ArrayLike | None = None,
) -> Array:
    """Return an upper bound on the balanced risk that holds with probability 1 - eta (VIR:bound).

    ``estimate + bias_term + variance_term``, where the estimate is the VIR estimate of the one of H
    hypotheses for which it is smallest, and losses lie between 0 and `max_loss`. estimate: (...),
    propensity: (B,), smoothed_propensity: (B,)

    >>> float(bound(0.25, [0.5, 0.5], [0.5, 0.5], eta=0.1).round(4))
    1.9808
    """
    bias = bias_term(propensity, smoothed_propensity, max_loss)
    deviation = variance_term(smoothed_propensity, max_loss, eta=eta, hypotheses=hypotheses, sizes=sizes)
    return np.asarray(np.asarray(estimate, np.float64) + bias + deviation)
