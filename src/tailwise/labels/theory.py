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
    array = np.asarray(values, np.float64)
    if not (array > 0).all():
        raise ValueError(f"{what} must be positive: bin {np.argmin(array)} has {array.min():g}; leave it out")
    return array


def propensities(counts: ArrayLike) -> Array:
    """Return P_b = counts / max(counts), the training set as a thinned balanced set. (B,)

    The balanced set has ``max(counts)`` samples in every bin.

    >>> propensities([10, 40, 20])
    array([0.25, 1.  , 0.5 ])
    """
    array = np.asarray(counts, np.float64)
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

    `observed` is 1 or 0 per sample.

    >>> naive_risk([0.0, 0.0, 1.0], [1, 0, 1])
    array(0.5)
    """
    array, seen = np.broadcast_arrays(np.asarray(losses, np.float64), observed)
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
    seen = np.asarray(losses, np.float64) * np.asarray(observed)
    return np.asarray(seen @ (1 / (chance.size * size * chance))[np.asarray(index)])


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

    The estimate is the VIR estimate of the one of H hypotheses for which it is smallest, and losses lie
    between 0 and `max_loss` (D). To it is added a bound on how far smoothing shifts its mean,
    ``D/B sum_b |1 - P_b/P~_b|``, and one on its distance from that mean,
    ``D/B sqrt(log(2H/eta)/2) sqrt(sum_b 1/(U_b P~_b^2))``. With `sizes`, U_b is the size of bin b in the
    balanced set. Without, it is 1, as in the paper: a larger bound.
    estimate: (...), propensity: (B,), smoothed_propensity: (B,), sizes: (B,)

    >>> float(bound(0.25, [0.5, 0.5], [0.5, 0.5], eta=0.1).round(4))
    1.9808
    """
    chance = _positive(smoothed_propensity, "smoothed propensities")
    if not 0 < eta < 1 <= hypotheses:
        raise ValueError(f"eta must lie between 0 and 1, and hypotheses from 1 on: {eta!r}, {hypotheses!r}")
    draws = np.ones_like(chance) if sizes is None else _positive(sizes, "bin sizes")
    bias = np.abs(1 - np.asarray(propensity) / chance).mean()
    spread = np.sqrt((1 / (draws * chance**2)).sum()) / chance.size
    deviation = np.sqrt(np.log(2 * hypotheses / eta) / 2) * spread
    return np.asarray(np.asarray(estimate, np.float64) + max_loss * (bias + deviation))
