"""Families of networks: those around a base and those without it, pooled by what held-out rows say.

Neither is best on every table. Where labels are a smooth function of the columns, networks alone are up to a
third better than around trees, and elsewhere they are worse (research/results/networks.md).
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from tailwise.calibration.scaling import fit_scaling
from tailwise.distributions.members import Distribution, pooled

Floats = NDArray[np.float64]

SHARES = tuple(k / 20 for k in range(21))
LEAST = 0.1
"""A family with a smaller share than this is left out."""


def share_alone(around: Distribution, alone: Distribution, y: Floats) -> float:
    """Return the share of networks without a base with which held-out rows have the lowest CRPS.

    Both predictions are scaled first. Near 0 it is 0, near 1 it is 1. around, alone, y: (n,)
    """
    labels = torch.from_numpy(y)
    families = [fit_scaling(family, y).apply(family) for family in (around, alone)]
    scores = [float(pool(families[0], families[1], share).crps(labels).mean()) for share in SHARES]
    share = SHARES[int(np.argmin(np.nan_to_num(scores, nan=np.inf)))]
    return 0.0 if share < LEAST else 1.0 if share > 1 - LEAST else share


def pool(around: Distribution, alone: Distribution, share: float) -> Distribution:
    """Return one distribution for the predictions of both families, with the moments of their mixture."""
    return pooled([around, alone], torch.tensor([1 - share, share], dtype=torch.float64))
