"""Families of networks: those around a base and those without it, pooled by what held-out rows say.

Neither is best on every table. Where labels are a smooth function of the columns, networks alone are up to a
third better than around trees, and elsewhere they are worse (research/results/networks.md).
"""

from __future__ import annotations

from dataclasses import replace
from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray

from tailwise.calibration.scaling import fit_scaling
from tailwise.distributions.members import Distribution, pooled
from tailwise.distributions.transform import Transform
from tailwise.model.base import Base
from tailwise.model.model import Model
from tailwise.model.training import Held, Run, Training
from tailwise.networks.network import Network
from tailwise.networks.together import Pool

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


def started(start: Model | None, name: str) -> tuple[Network, ...]:
    """Return the networks of a family that training goes on from, if any: ``around`` a base, or ``alone``."""
    networks = () if start is None else start.networks
    pools = [getattr(network, name) for network in networks if isinstance(network, Pool)]
    plain = [network for network in networks if isinstance(network, Network) and name == "around"]
    return tuple(pools or plain)


def joined(
    training: Training, runs: list[Run], held: Held, others: list[Run], alone: Held
) -> tuple[Training, list[Run], Held]:
    """Pool networks around a base with others without it, or leave out one of the families."""
    chosen = held.select
    shares = [
        share_alone(mine[chosen], its[chosen], y[chosen], about.transform)
        for mine, its, y, about in zip(held.raw, alone.raw, held.y.T, training.labels, strict=True)
    ]
    if not any(shares):
        return training, runs, held
    if min(shares) == 1 and not training.base.given:
        return replace(training, base=Base()), others, replace(alone, base=held.base)
    pools = [
        Run(
            Pool(*cast("tuple[Network, Network]", (mine.network, its.network)), shares),
            (*mine.histories, *its.histories),
            mine.raw,
        )
        for mine, its in zip(runs, others, strict=True)
    ]
    raw = tuple(pool(*both) for both in zip(held.raw, alone.raw, shares, strict=True))
    return training, pools, replace(held, raw=raw)
