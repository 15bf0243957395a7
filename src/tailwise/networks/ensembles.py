"""Several networks as one model, and an ensemble whose members have weights of their own."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from typing import Any, cast

import torch
from torch import Tensor, nn

from tailwise.core.distributions import Distribution, Mixture, stack
from tailwise.core.metrics import Metric
from tailwise.networks.model import redraw
from tailwise.networks.parts import Inference
from tailwise.networks.trainable import Trainable


class NetworkGroup(Trainable):
    """Several networks in one model; each keeps its own epochs and statistics."""

    networks: nn.ModuleList

    def _each(self) -> list[Trainable]:
        return [cast("Trainable", network) for network in self.networks]

    @property
    def takes_offset(self) -> bool:
        """Whether the networks predict around a base prediction."""
        return self._each()[0].takes_offset

    @property
    def more_to_come(self) -> bool:
        """Whether a later stage of training is due in any network."""
        return any(network.more_to_come for network in self._each())

    def begin_epoch(self, progress: float) -> bool:
        """Begin an epoch in every network; return True if earlier validation scores no longer count."""
        changed = [network.begin_epoch(progress) for network in self._each()]
        return any(changed)

    def end_epoch(self) -> None:
        """Put every network's latent statistics into effect."""
        for network in self._each():
            network.end_epoch()


class Ensemble(NetworkGroup):
    """Members with weights of their own, trained on the same batches; predictions are mixed.

    The variance between the members' means is epistemic (Lakshminarayanan et al., Simple and
    Scalable Predictive Uncertainty Estimation using Deep Ensembles, NeurIPS 2017). The loss is the sum of
    the members' losses, so that each member is trained as it would be alone.
    """

    def __init__(self, members: Sequence[Trainable]) -> None:
        super().__init__()
        self.bins, self.method = members[0].bins, members[0].method
        self.networks = nn.ModuleList(members)

    def row_losses(self, x: Any, y: Tensor, offset: Tensor | None = None) -> dict[str, Tensor]:
        """Return each part of the objective per row, summed over the members. (N,) each"""
        each = [network.row_losses(x, y, offset) for network in self._each()]
        return {name: torch.stack([parts[name] for parts in each]).sum(0) for name in each[0]}

    def collect_statistics(self, batches: Iterable[tuple[Any, Tensor]]) -> None:
        """Replace every member's latent sums by an exact pass over (x, y) batches."""
        kept = list(batches)
        for network in self._each():
            network.collect_statistics(kept)

    def score(self, metric: Metric, prediction: Distribution, y: Tensor) -> float:
        """Return a validation metric of predictions, computed as for one member."""
        return self._each()[0].score(metric, prediction, y)

    def forward(
        self, x: Any, inference: Inference | None = None, offset: Tensor | None = None
    ) -> Distribution:
        """Return the mixture of the members' predictions, in label units."""
        predictions = [network(x, inference, offset) for network in self._each()]
        if not isinstance(predictions[0], Mixture):
            return Mixture(predictions)
        components = stack([p.components for p in predictions])  # (members, K, ...)
        return Mixture(components.map(lambda p: p.flatten(0, 1)), torch.cat([p.weights for p in predictions]))


def fresh_copy(backbone: nn.Module) -> nn.Module:
    """Return a copy with new random weights in every layer that has a `reset_parameters`."""
    twin = copy.deepcopy(backbone)
    redraw(twin)
    return twin
