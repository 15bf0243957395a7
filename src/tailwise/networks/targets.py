"""Several targets: one backbone, and for each target a network of its own on top."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, cast

import torch
from torch import Tensor, nn

from tailwise.core.distributions import Distribution, Mixture, stack
from tailwise.core.labels import LabelBins
from tailwise.core.metrics import Metric
from tailwise.networks.ensembles import NetworkGroup
from tailwise.networks.model import apply_backbone
from tailwise.networks.parts import Inference, Method
from tailwise.networks.shared_ensembles import members_of, one_target


class MultiTarget(NetworkGroup):
    """One backbone, and for each target its own bins, weights, latent and head.

    Labels and predictions are (N, T). The targets' losses, each on its own scale, are averaged.
    """

    def __init__(
        self,
        backbone: nn.Module,
        feature_dim: int,
        bins: Sequence[LabelBins],
        method: Method,
        *,
        offset: bool = False,
    ) -> None:
        super().__init__()
        self.backbone, self.method = backbone, method
        self.all_bins = tuple(bins)
        self.bins = self.all_bins[0]
        members = members_of(backbone)
        self.networks = nn.ModuleList(
            one_target(nn.Identity(), feature_dim, b, method, members=members, offset=offset) for b in bins
        )

    def _by_target(self, name: str, values: Tensor | None) -> Sequence[Tensor | None]:
        """Return the column of each target, or None for each. (N, T) -> T of (N,)"""
        if values is None:
            return [None] * len(self.networks)
        if values.dim() != 2 or values.shape[1] != len(self.networks):
            raise ValueError(f"{name} has shape {tuple(values.shape)}, expected (rows, {len(self.networks)})")
        return values.unbind(1)

    def row_losses(self, x: Any, y: Tensor, offset: Tensor | None = None) -> dict[str, Tensor]:
        """Return each part of the objective per row, averaged over the targets. y: (N, T) -> (N,)"""
        labels, offsets = self._by_target("y", y), self._by_target("offset", offset)
        features = apply_backbone(self.backbone, x)
        each = [
            network.row_losses(features, cast("Tensor", label), own)
            for network, label, own in zip(self._each(), labels, offsets, strict=True)
        ]
        return {name: torch.stack([parts[name] for parts in each]).mean(0) for name in each[0]}

    def collect_statistics(self, batches: Iterable[tuple[Any, Tensor]]) -> None:
        """Replace every target's latent sums by an exact pass over (x, y) batches."""
        training = self.training
        self.eval()
        kept = [(apply_backbone(self.backbone, x), y) for x, y in batches]
        self.train(training)
        for t, network in enumerate(self._each()):
            network.collect_statistics((features, y[:, t]) for features, y in kept)

    def score(self, metric: Metric, prediction: Distribution, y: Tensor) -> float:
        """Return the mean over targets of a metric, with each target standardised."""
        scores = [
            metric(
                prediction[:, t].rescale(-b.location / b.scale, 1 / b.scale),
                (y[:, t] - b.location) / b.scale,
                b.standardized(),
            )
            for t, b in enumerate(self.all_bins)
        ]
        return sum(scores) / len(scores)

    def forward(
        self, x: Any, inference: Inference | None = None, offset: Tensor | None = None
    ) -> Distribution:
        """Return predictions of all targets, in each one's units. (N, T)"""
        offsets = self._by_target("offset", offset)
        features = apply_backbone(self.backbone, x)
        each = zip(self._each(), offsets, strict=True)
        predictions = [network(features, inference, own) for network, own in each]
        if isinstance(predictions[0], Mixture):
            components = _stacked_last([p.components for p in predictions])
            return Mixture(components, torch.stack([p.weights for p in predictions], -1))
        return _stacked_last(predictions)


def _stacked_last(distributions: Sequence[Distribution]) -> Distribution:
    """Stack distributions of one shape along a new last dimension."""
    return stack(distributions).map(lambda p: p.movedim(0, -1))
