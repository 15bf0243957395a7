"""Several networks as one model: the members of an ensemble, or one tower per target."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from typing import Any, cast

import torch
from torch import Tensor, nn

from tailwise.distributions import Distribution, Mixture, stack
from tailwise.labels import LabelBins
from tailwise.method import Inference, Method
from tailwise.metrics import Metric
from tailwise.model import TailModel, Trainable, apply_backbone, redraw


class _Several(Trainable):
    """Shared by ensembles and towers: what every network does for itself."""

    networks: nn.ModuleList

    def _each(self) -> list[Trainable]:
        return [cast("Trainable", network) for network in self.networks]

    @property
    def more_to_come(self) -> bool:
        """Whether a later stage of training is due."""
        return any(network.more_to_come for network in self._each())

    def begin_epoch(self, progress: float) -> bool:
        """Tell every network; True if what is trained changed."""
        changed = [network.begin_epoch(progress) for network in self._each()]
        return any(changed)

    def end_epoch(self) -> None:
        """Let every network's latent statistics take effect."""
        for network in self._each():
            network.end_epoch()


class Ensemble(_Several):
    """Members with weights of their own, trained on the same batches; predictions are mixed.

    The variance between the members' means is epistemic (Lakshminarayanan et al., Simple and
    Scalable Predictive Uncertainty Estimation using Deep Ensembles, NeurIPS 2017). The members'
    losses are added up, so that each is trained as it would be alone.
    """

    def __init__(self, members: Sequence[Trainable]) -> None:
        super().__init__()
        self.bins, self.method = members[0].bins, members[0].method
        self.networks = nn.ModuleList(members)

    def row_losses(self, x: Any, y: Tensor) -> dict[str, Tensor]:
        """Return each part of the objective per row, added up over the members. (N,) each"""
        each = [network.row_losses(x, y) for network in self._each()]
        return {name: torch.stack([parts[name] for parts in each]).sum(0) for name in each[0]}

    def collect_statistics(self, batches: Iterable[tuple[Any, Tensor]]) -> None:
        """Replace every member's streamed sums by an exact pass over (x, y) batches."""
        kept = list(batches)
        for network in self._each():
            network.collect_statistics(kept)

    def score(self, metric: Metric, prediction: Distribution, y: Tensor) -> float:
        """Return a validation metric of predictions, as the members would."""
        return self._each()[0].score(metric, prediction, y)

    def forward(self, x: Any, inference: Inference | None = None) -> Distribution:
        """Return the mixture of the members' predictions, in label units."""
        predictions = [network(x, inference) for network in self._each()]
        if isinstance(predictions[0], Mixture):
            return Mixture(
                _joined([p.components for p in predictions]),
                torch.cat([p.weights for p in predictions]),
            )
        return Mixture(predictions)


def _joined(components: Sequence[Distribution]) -> Distribution:
    """Components of several mixtures side by side along their leading dimension."""
    stacked = stack(components)
    return stacked.map(lambda p: p.flatten(0, 1))


def fresh_copy(backbone: nn.Module) -> nn.Module:
    """Return a copy with new random weights where its layers know how to draw them."""
    twin = copy.deepcopy(backbone)
    redraw(twin)
    return twin


class MultiTarget(_Several):
    """One backbone, and for each target its own bins, weights, latent and head.

    Labels are (N, T) and so are predictions. Every target's loss counts alike, on its own scale.
    """

    def __init__(
        self, backbone: nn.Module, feature_dim: int, bins: Sequence[LabelBins], method: Method
    ) -> None:
        super().__init__()
        self.backbone, self.method = backbone, method
        self.all_bins = tuple(bins)
        self.bins = self.all_bins[0]
        self.networks = nn.ModuleList(TailModel(nn.Identity(), feature_dim, b, method) for b in bins)

    def row_losses(self, x: Any, y: Tensor) -> dict[str, Tensor]:
        """Return each part of the objective per row, averaged over the targets. y: (N, T) -> (N,)"""
        if y.dim() != 2 or y.shape[1] != len(self.networks):
            raise ValueError(f"labels have shape {tuple(y.shape)}, not (rows, {len(self.networks)})")
        features = apply_backbone(self.backbone, x)
        each = [network.row_losses(features, y[:, t]) for t, network in enumerate(self._each())]
        return {name: torch.stack([parts[name] for parts in each]).mean(0) for name in each[0]}

    def collect_statistics(self, batches: Iterable[tuple[Any, Tensor]]) -> None:
        """Replace every target's streamed sums by an exact pass over (x, y) batches."""
        training = self.training
        self.eval()
        kept = [(apply_backbone(self.backbone, x), y) for x, y in batches]
        self.train(training)
        for t, network in enumerate(self._each()):
            network.collect_statistics((features, y[:, t]) for features, y in kept)

    def score(self, metric: Metric, prediction: Distribution, y: Tensor) -> float:
        """Return the mean over targets of a metric, each target on its own scale of spread 1."""
        scores = [
            metric(
                prediction[:, t].rescale(-b.location / b.scale, 1 / b.scale),
                (y[:, t] - b.location) / b.scale,
                b.standardized(),
            )
            for t, b in enumerate(self.all_bins)
        ]
        return sum(scores) / len(scores)

    def forward(self, x: Any, inference: Inference | None = None) -> Distribution:
        """Return predictions of all targets, in each one's units. (N, T)"""
        features = apply_backbone(self.backbone, x)
        predictions = [network(features, inference) for network in self._each()]
        if isinstance(predictions[0], Mixture):
            components = _aside([p.components for p in predictions])
            return Mixture(components, torch.stack([p.weights for p in predictions], -1))
        return _aside(predictions)


def _aside(distributions: Sequence[Distribution]) -> Distribution:
    """Distributions of one shape under a new last dimension."""
    return stack(distributions).map(lambda p: p.movedim(0, -1))
