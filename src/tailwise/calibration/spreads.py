"""How wide a prediction is: the unit of conformal intervals, and the standard deviation that users get."""

from __future__ import annotations

import torch
from torch import Tensor

from tailwise.distributions.members import Distribution, weighted

_Z90 = 1.6448536269514722
_SIDE_FLOOR = 0.1
LEAST_ALPHA = 1.25
"""Half of the fewest degrees of freedom that `standard_deviation` counts."""


def standard_deviation(distribution: Distribution) -> Tensor:
    """Return the standard deviation of each prediction, and a useful number where that is huge or infinite.

    The variance of a Student-t grows without limit as its degrees of freedom fall to 2, while its intervals
    hardly change. Calibration to labels with a heavy tail leads there. Fewer than 2.5 degrees of freedom
    count as 2.5 here, with the same location and scale: the standard deviation is at most 2.24 scales. All
    other predictions have ``distribution.std``.

    >>> from tailwise.distributions.members import NIG
    >>> beliefs = NIG(torch.zeros(3), 1.0, torch.tensor([3.0, 1.0001, 0.8]), torch.tensor([3.0, 1.0001, 0.8]))
    >>> [round(value, 2) for value in standard_deviation(beliefs).tolist()], round(beliefs.std[1].item())
    ([1.73, 3.16, 3.16], 141)
    """
    lighter = distribution.parametric.lighter(2 * LEAST_ALPHA)
    return (distribution if lighter is distribution.parametric else distribution.rebuilt(lighter)).std


def spread(distribution: Distribution) -> Tensor:
    """Return half the width of the central 90% interval, divided by 1.645.

    For a Normal that is the standard deviation. For an NIG it is the width of its Student-t by Peizer
    and Pratt's approximation, which is within 1% for 2 or more degrees of freedom and simple enough for
    ONNX. For a mixture it is the root of the mean of squared spreads plus the variance between means.
    Under another label prior it is exact.
    Unlike the standard deviation, it is finite for every alpha and does not explode near ``alpha = 1``.

    >>> from tailwise.distributions.members import NIG
    >>> belief = NIG(torch.tensor([0.0], dtype=torch.float64), 1.0, 3.0, 2.0)
    >>> low, high = belief.interval(0.9)
    >>> round(spread(belief).item(), 2), round((high - low).item() / 2 / 1.645, 2)
    (1.36, 1.36)
    """
    if distribution.base is not distribution:
        lower, upper = distribution.central
        return (upper - lower) / (2 * _Z90)
    m = distribution.members()
    df = m.df.clamp_min(1.5)  # the approximation is not monotone below
    moved = df - 2 / 3 + 0.1 / df
    tail = (df * torch.expm1(_Z90**2 * (df - 5 / 6) / moved / moved)).sqrt() / _Z90
    tail = torch.where(df.isinf(), 1.0, tail)
    squares = (m.scale * tail) ** 2 + (m.location - distribution.mean) ** 2
    return weighted(m.weight, squares).sqrt()


def sides(distribution: Distribution) -> tuple[Tensor, Tensor]:
    """Return the spread below and above the point; both are `spread` unless the label prior was changed.

    Under another label prior they are the distances of the point from the 5% and the 95% quantile, divided by
    1.645, and at least a tenth of `spread`.
    """
    both = spread(distribution)
    if distribution.base is distribution:
        return both, both
    lower, upper = distribution.central
    point, least = distribution.point, _SIDE_FLOOR * both
    return torch.maximum((point - lower) / _Z90, least), torch.maximum((upper - point) / _Z90, least)
