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
from tailwise.distributions.transform import Transform

Floats = NDArray[np.float64]

SHARES = tuple(k / 20 for k in range(21))
LEAST = 0.1
"""A family with a smaller share than this is left out."""
DISTINCT = 0.5
"""With a smaller share of distinct rows nothing is pooled: held-out rows, of which none is a copy, cannot say
how copies are predicted."""


def share_alone(around: Distribution, alone: Distribution, y: Floats, transform: Transform) -> float:
    """Return the share of networks without a base by the CRPS of held-out rows.

    It is the smallest share within one standard error of the best one. Both predictions of latent labels are
    scaled first. Near 0 it is 0, near 1 it is 1. around, alone, y: (n,)
    """
    latent, labels = transform.limited(y), torch.from_numpy(y)
    families = [fit_scaling(family, latent).apply(family) for family in (around, alone)]
    pools = (transform.apply(pool(families[0], families[1], share)) for share in SHARES)
    losses = np.nan_to_num([pooled.crps(labels).numpy() for pooled in pools], nan=1e100)
    change = losses - losses[losses.mean(axis=1).argmin()]
    within = change.mean(axis=1) <= change.std(axis=1, ddof=1) / np.sqrt(len(y))
    share = SHARES[int(within.argmax())]
    return 0.0 if share < LEAST else 1.0 if share > 1 - LEAST else share


def pool(around: Distribution, alone: Distribution, share: float) -> Distribution:
    """Return one distribution for the predictions of both families, with the moments of their mixture."""
    return pooled([around, alone], torch.tensor([1 - share, share], dtype=torch.float64))
