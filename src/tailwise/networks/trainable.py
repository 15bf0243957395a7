"""The contract between the training loop and a model, whether it is one network or several."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, cast

import torch
from torch import Tensor, nn

from tailwise.core.distributions import Distribution
from tailwise.core.labels import LabelBins
from tailwise.core.metrics import Metric
from tailwise.networks.losses import weighted_mean
from tailwise.networks.parts import Inference, Method


class Trainable(nn.Module, ABC):
    """What the training loop needs from a model, whether it is one network or several."""

    bins: LabelBins
    method: Method

    @abstractmethod
    def forward(
        self, x: Any, inference: Inference | None = None, offset: Tensor | None = None
    ) -> Distribution:
        """Return the predictive distribution of each row's label, in label units.

        offset: base predictions in label units, with the shape of the labels (VIR:offset).
        """

    @abstractmethod
    def row_losses(self, x: Any, y: Tensor, offset: Tensor | None = None) -> dict[str, Tensor]:
        """Return each part of the objective per row, weighted. y, offset: (...) -> (N,) each"""

    @property
    @abstractmethod
    def takes_offset(self) -> bool:
        """Whether the model predicts around a base prediction, which it then needs with every input."""

    @abstractmethod
    def collect_statistics(self, batches: Iterable[tuple[Any, Tensor]]) -> None:
        """Replace the latent sums of this epoch by an exact pass over (x, y) batches."""

    @abstractmethod
    def begin_epoch(self, progress: float) -> bool:
        """Prepare for an epoch; return True if earlier validation scores no longer count.

        `progress` is the share of the epochs that are done, 0 at the start.
        """

    @abstractmethod
    def end_epoch(self) -> None:
        """Put the latent statistics of the rows since the last call into effect."""

    @contextmanager
    def compiled(self) -> Iterator[None]:
        """Compile what follows the latents of every network, while inside: smoothing, head and losses."""
        networks = [network for network in self.modules() if hasattr(network, "latent_losses")]
        for network in networks:
            network.__dict__["latent_losses"] = torch.compile(
                cast("Any", network).latent_losses, dynamic=False
            )
        try:
            yield
        finally:
            for network in networks:
                del network.__dict__["latent_losses"]

    @property
    def device(self) -> torch.device:
        """The device of the model's weights."""
        return next(iter(self.parameters())).device

    @property
    def _padded_backbone(self) -> nn.Module | None:
        """The backbone that takes x, if it measures rows. Layers inside a backbone do not count."""
        for network in self.modules():
            backbone = getattr(network, "backbone", None) if isinstance(network, Trainable) else None
            if hasattr(backbone, "row_lengths"):
                return cast("nn.Module", backbone)
        return None

    def row_lengths(self, x: Any) -> Tensor | None:
        """Return the lengths of padded rows on the CPU, or None if the backbone has no `row_lengths`. (N,)"""
        backbone = self._padded_backbone
        return None if backbone is None else cast("Any", backbone).row_lengths(x).cpu()

    @property
    def padded_inputs(self) -> tuple[str | int, ...]:
        """Which of several inputs are padded, as the backbone's `padded_inputs` says: names or positions."""
        return getattr(self._padded_backbone, "padded_inputs", ())

    @property
    def draws_its_own(self) -> bool:
        """Whether training draws by `tailwise.networks.draws` only; backbones of the user's own need not."""
        backbones = [getattr(network, "backbone", None) for network in self.modules()]
        kinds = {type(b) for b in backbones if b is not None} - {nn.Identity}
        return all(kind.__module__.startswith("tailwise.") for kind in kinds)

    @property
    def exact_statistics(self) -> bool:
        """Whether the latent statistics need their own pass over the data at the end of an epoch."""
        return self.method.smoothing is not None and self.method.smoothing.exact

    def loss(
        self,
        x: Any,
        y: Tensor,
        sample_weight: Tensor | None = None,
        offset: Tensor | None = None,
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the objective of a batch (VIR:objective) and its parts, detached.

        y, offset: (...), the leading shape of the features; sample_weight: (...), or (N,) for all labels of
        a row. Only a model built with ``offset=True`` takes an offset, and then it needs one.
        """
        if sample_weight is not None and sample_weight.numel() not in (len(y), y.numel()):
            raise ValueError(
                f"sample_weight has shape {tuple(sample_weight.shape)}, but labels have {tuple(y.shape)}: "
                "pass one weight per row"
            )
        per_row = self.row_losses(x, y, offset)
        total = sum(per_row.values(), start=torch.zeros((), device=y.device))
        parts = {k: weighted_mean(v.detach(), sample_weight) for k, v in per_row.items()}
        return weighted_mean(total, sample_weight), parts

    def score(self, metric: Metric, prediction: Distribution, y: Tensor) -> float:
        """Return a validation metric of predictions, in label units; of maps, over pixels with a label."""
        if y.dim() > 2:
            known = y.isfinite()
            prediction, y = prediction[known], y[known]
        return metric(prediction, y, self.bins)

    @property
    def more_to_come(self) -> bool:
        """Whether a later stage of training is due; early stopping waits until it has begun."""
        return False
