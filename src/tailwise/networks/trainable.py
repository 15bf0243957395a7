"""The contract between the training loop and a model, whether it is one network or several."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor, nn

from tailwise.core.distributions import Distribution
from tailwise.core.labels import LabelBins
from tailwise.core.metrics import Metric
from tailwise.networks.losses import weighted_mean
from tailwise.networks.parts import Method


class Trainable(nn.Module):
    """What the training loop needs of a model, whether it is one network or several."""

    bins: LabelBins
    method: Method

    @property
    def device(self) -> torch.device:
        """Where the model's weights are."""
        return next(iter(self.parameters())).device

    def row_lengths(self, x: Any) -> Tensor | None:
        """Lengths of the rows of a padded input, on the CPU, if the backbone measures any. (N,)

        Layers within a backbone are not asked: only what x is given to knows which part of it is what.
        """
        for network in self.modules():
            backbone = getattr(network, "backbone", None) if isinstance(network, Trainable) else None
            measure = getattr(backbone, "row_lengths", None)
            if measure is not None:
                return cast("Tensor", measure(x)).cpu()
        return None

    @property
    def exact_statistics(self) -> bool:
        """Whether latent statistics want a pass of their own at the end of an epoch."""
        return self.method.smoothing is not None and self.method.smoothing.exact

    def loss(
        self, x: Any, y: Tensor, sample_weight: Tensor | None = None
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the objective of a batch (VIR:objective) and its parts, detached.

        y: (...), the leading shape of the features; sample_weight: (...), or (N,) for all labels of a row.
        """
        per_row = self.row_losses(x, y)
        total = sum(per_row.values(), start=torch.zeros((), device=y.device))
        parts = {k: weighted_mean(v.detach(), sample_weight) for k, v in per_row.items()}
        return weighted_mean(total, sample_weight), parts

    def score(self, metric: Metric, prediction: Distribution, y: Tensor) -> float:
        """Return a validation metric of predictions, in label units."""
        return metric(prediction, y, self.bins)

    @property
    def more_to_come(self) -> bool:
        """Whether a later stage of training is due, before which it must not stop."""
        return False

    if TYPE_CHECKING:

        def row_losses(self, x: Any, y: Tensor) -> dict[str, Tensor]:
            """Return each part of the objective per row, weighted. (N,) each"""

        def collect_statistics(self, batches: Iterable[tuple[Any, Tensor]]) -> None:
            """Replace this epoch's streamed sums by an exact pass over (x, y) batches."""

        def begin_epoch(self, progress: float) -> bool:
            """Prepare for an epoch; True if what is trained changed and earlier scores are void."""

        def end_epoch(self) -> None:
            """Let the latent statistics of the rows seen since the last call take effect."""
