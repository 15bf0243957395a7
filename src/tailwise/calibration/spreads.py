"""The standard deviation that users get."""

from __future__ import annotations

from torch import Tensor

from tailwise.distributions.members import Distribution

LEAST_ALPHA = 1.25
"""Half of the fewest degrees of freedom that `standard_deviation` counts."""


def standard_deviation(distribution: Distribution) -> Tensor:
    """Return the standard deviation of each prediction, and a useful number where that is huge or infinite.

    The variance of a Student-t grows without limit as its degrees of freedom fall to 2, while its intervals
    hardly change. Calibration to labels with a heavy tail leads there. Fewer than 2.5 degrees of freedom
    count as 2.5 here, with the same location and scale: the standard deviation is at most 2.24 scales. All
    other predictions have ``distribution.std``.

    >>> import torch
    >>> from tailwise.distributions.members import NIG
    >>> beliefs = NIG(torch.zeros(3), 1.0, torch.tensor([3.0, 1.0001, 0.8]), torch.tensor([3.0, 1.0001, 0.8]))
    >>> [round(value, 2) for value in standard_deviation(beliefs).tolist()], round(beliefs.std[1].item())
    ([1.73, 3.16, 3.16], 141)
    """
    lighter = distribution.parametric.lighter(2 * LEAST_ALPHA)
    return (distribution if lighter is distribution.parametric else distribution.rebuilt(lighter)).std
