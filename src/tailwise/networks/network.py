"""One network for every method: backbones, and a tail for each target and member."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from tailwise.distributions.members import Distribution, Mixture, stack
from tailwise.labels.bins import LabelBins
from tailwise.metrics.regions import Metric
from tailwise.networks.losses import FeatureDecoder, Loss, weighted_mean
from tailwise.networks.parts import Method, Retrain, SharpnessAware
from tailwise.networks.ranks import rank_and_ranks
from tailwise.networks.smoothing import recomputing
from tailwise.networks.tail import Tail


def apply_backbone(backbone: nn.Module, x: Any) -> Tensor:
    """Call a backbone with a tensor, or with a tuple or mapping of its arguments."""
    if isinstance(x, Mapping):
        return cast("Tensor", backbone(**x))
    return cast("Tensor", backbone(*x) if isinstance(x, (tuple, list)) else backbone(x))


def redraw(module: nn.Module) -> None:
    """Draw new random weights in place for layers that have a `reset_parameters`; frozen layers stay.

    A module that starts otherwise, such as from a file, does so in `restart`.
    """
    for layer in module.modules():
        # `nn.MultiheadAttention` has an underscore.
        reset = getattr(layer, "reset_parameters", None) or getattr(layer, "_reset_parameters", None)
        if reset is not None and all(p.requires_grad for p in layer.parameters()):
            reset()
    for part in module.modules():
        restart = getattr(part, "restart", None)
        if restart is not None:
            restart()


def fresh_copy(module: nn.Module) -> nn.Module:
    """Return a copy with new random weights in every layer that has a `reset_parameters`."""
    twin = copy.deepcopy(module)
    redraw(twin)
    return twin


def warn_without_decoder(method: Method, decoder: nn.Module | None) -> None:
    """Warn once of a method that reconstructs inputs (VIR:recon) but has no decoder to do so."""
    reconstruction = method.loss("reconstruction")
    if decoder is None and reconstruction is not None and not reconstruction.options["features"]:
        warnings.warn(
            "the loss 'reconstruction' is left out, because there is no decoder: give VIR or build_model "
            "decoder=..., a module from latents (rows, D) to inputs, or set the option reconstruction=None",
            stacklevel=3,
        )


class Network(nn.Module):
    """A backbone with the parts of a method on top: `loss(x, y)` trains it, `network(x)` predicts.

    Labels are in their own units on both sides. The input may be a tensor, or a tuple or mapping of what the
    backbone takes. Features may have any leading shape: with features (N, H, W, D) and labels (N, H, W) each
    pixel is a row, and a pixel whose label is NaN counts neither in losses nor in statistics.

    With a sequence of bins, one for each target, labels and predictions are (N, T); each target has its own
    tail on the same backbone, and their losses, each on its own scale, are averaged. Each of several
    `method.members` has a copy of the backbone and the decoder with weights of its own. Their losses are
    added, so that each trains as it would alone, and their predictions are mixed (Lakshminarayanan et al.,
    Simple and Scalable Predictive Uncertainty Estimation using Deep Ensembles, NeurIPS 2017). A backbone with
    `members`, such as TabM, returns features (..., members, D); the tails' members share it, and their losses
    are averaged (Gorishniy et al., ICLR 2025).

    With ``offset=True`` the network predicts around a base prediction (VIR:offset), the argument `offset` of
    `loss` and of a call, in label units and in the shape of the labels.

    Latent statistics take effect when `end_epoch` is called. In a training loop that never calls
    `begin_epoch`, an epoch ends after as many rows as the training set has.
    """

    def __init__(
        self,
        backbone: nn.Module,
        feature_dim: int,
        bins: LabelBins | Sequence[LabelBins],
        method: Method,
        *,
        decoder: nn.Module | None = None,
        offset: bool = False,
    ) -> None:
        super().__init__()
        self.several_targets = not isinstance(bins, LabelBins)
        self.all_bins = (bins,) if isinstance(bins, LabelBins) else tuple(bins)
        if decoder is not None:
            if self.several_targets:
                raise ValueError(
                    "several targets share a backbone and cannot have a decoder: leave it out, or build one "
                    "model per target"
                )
            method = method.with_options(reconstruction={})
        self.method, self.feature_dim = method, feature_dim
        shared = getattr(backbone, "members", None)
        self.shared = shared if isinstance(shared, int) else None
        self.schedule: Retrain | None = method.make("schedule")
        self.sharpness: SharpnessAware | None = method.make("sharpness")
        """What `tailwise.training.loop.fit` perturbs the weights by in each step, if the method says so."""
        self.backbones, self.tails = nn.ModuleList(), nn.ModuleList()
        for member in range(method.members):
            self.backbones.append(fresh_copy(backbone) if member else backbone)
            of_member = decoder if decoder is None or not member else fresh_copy(decoder)
            for target in self.all_bins:
                tail = Tail(
                    feature_dim, target, method, members=self.shared or 1, decoder=of_member, offset=offset
                )
                self.tails.append(tail)
        losses = self._losses()
        self._by_epoch = method.smoothing is not None or any(loss.by_epoch for loss in losses)
        latents_first = self.schedule is not None and self.schedule.latents_first
        if latents_first and not any(loss.of_latents for loss in losses):
            raise ValueError("the schedule 'pretrain' needs a loss of latents to start with, such as 'rnc'")
        # An array, because a compiled loss would be specialised to an int.
        self._rows_seen = np.zeros((), dtype=np.int64)
        self._retraining = False
        self._bracketed = False  # whether the loop calls `begin_epoch`, and so `end_epoch` as well

    @property
    def bins(self) -> LabelBins:
        """The label bins, of several targets those of the first."""
        return self.all_bins[0]

    @property
    def backbone(self) -> nn.Module:
        """The backbone, of several members that of the first."""
        return self.backbones[0]

    @property
    def device(self) -> torch.device:
        """The device of the weights."""
        return next(iter(self.parameters())).device

    @property
    def draws_its_own(self) -> bool:
        """Whether training draws by `tailwise.networks.draws` only; backbones of the user's own need not."""
        return all(type(backbone).__module__.startswith("tailwise.") for backbone in self.backbones)

    def _tails(self) -> list[list[Tail]]:
        """Return the tails of each member, one for each target."""
        tails, targets = cast("list[Tail]", list(self.tails)), len(self.all_bins)
        return [tails[start : start + targets] for start in range(0, len(tails), targets)]

    def _losses(self) -> list[Loss]:
        return [module for module in self.modules() if isinstance(module, Loss)]

    def features(self, backbone: nn.Module, x: Any) -> Tensor:
        """Return a backbone's features of an input, of its members side by side. (..., K, F)"""
        with torch.set_grad_enabled(torch.is_grad_enabled() and not self._retraining):
            features = apply_backbone(backbone, x)
        if self.shared is not None and (features.dim() < 2 or features.shape[-2] != self.shared):
            raise ValueError(
                f"a backbone with members={self.shared} must return features of shape "
                f"(rows, {self.shared}, D), this one returned {tuple(features.shape)}"
            )
        if features.shape[-1:] != (self.feature_dim,):
            raise ValueError(
                f"the backbone returned features of shape {tuple(features.shape)}, but the model was built "
                f"for (..., {self.feature_dim}): feature_dim must be their last dimension"
            )
        return features.unsqueeze(-2) if self.shared is None else features

    def _by_target(self, name: str, values: Tensor | None) -> Sequence[Tensor | None]:
        """Return the column of each target, or None for each. (N, T) -> T of (N,)"""
        if values is None or not self.several_targets:
            return [values] * len(self.all_bins)
        if values.dim() != 2 or values.shape[1] != len(self.all_bins):
            raise ValueError(f"{name} has shape {tuple(values.shape)}, expected (rows, {len(self.all_bins)})")
        return values.unbind(1)

    # -- training ------------------------------------------------------------------------------

    def loss(
        self, x: Any, y: Tensor, sample_weight: Tensor | None = None, offset: Tensor | None = None
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the objective of a batch (VIR:objective) and its parts, detached.

        y, offset: (...), the leading shape of the features; sample_weight: (...), or (N,) for all labels of
        a row. Only a model built with ``offset=True`` takes an offset, and then it needs one.
        """
        if sample_weight is not None and sample_weight.numel() not in (
            (len(y),) if self.several_targets else (len(y), y.numel())
        ):
            raise ValueError(
                f"sample_weight has shape {tuple(sample_weight.shape)}, but labels have {tuple(y.shape)}: "
                "pass one weight per row"
            )
        per_row = self.row_losses(x, y, offset)
        total = sum(per_row.values(), start=torch.zeros((), device=y.device))
        parts = {k: weighted_mean(v.detach(), sample_weight) for k, v in per_row.items()}
        return weighted_mean(total, sample_weight), parts

    def row_losses(self, x: Any, y: Tensor, offset: Tensor | None = None) -> dict[str, Tensor]:
        """Return each loss per row, weighted. y, offset: (...) -> (N,) each"""
        labels = cast("Sequence[Tensor]", self._by_target("y", y))
        offsets = self._by_target("offset", offset)
        if self.training and self._by_epoch:
            self._count(labels[0].numel())
        weighted, of_latents = self.schedule is None or self._retraining, None
        if self.schedule is not None and self.schedule.latents_first:
            of_latents = not self._retraining
        of_members = []
        for backbone, tails in zip(self.backbones, self._tails(), strict=True):
            features = self.features(backbone, x)
            of_targets = [
                tail.row_losses(features, x, label, base, weighted=weighted, of_latents=of_latents)
                for tail, label, base in zip(tails, labels, offsets, strict=True)
            ]
            of_members.append(
                {name: torch.stack([parts[name] for parts in of_targets]).mean(0) for name in of_targets[0]}
            )
        return {name: torch.stack([parts[name] for parts in of_members]).sum(0) for name in of_members[0]}

    def _count(self, rows: int) -> None:
        """End the epoch before a batch, if all training rows were seen and the loop does not say so."""
        if self._bracketed or recomputing():
            return
        if self._rows_seen >= self.bins.counts.sum() > 0:
            self.end_epoch()
        self._rows_seen += rows * rank_and_ranks()[1]

    @property
    def more_to_come(self) -> bool:
        """Whether the second stage of training is due; early stopping waits until it has begun."""
        return self.schedule is not None and not self._retraining

    def begin_epoch(self, progress: float) -> bool:
        """Prepare for an epoch; return True if earlier validation scores no longer count.

        `progress` is the share of the epochs that are done, 0 at the start.
        """
        if self._bracketed:  # the loop did not end its last epoch
            self.end_epoch()
        self._bracketed = True
        if self.schedule is None or self._retraining or not self.schedule.begins(progress):
            return False
        self._retraining = True
        for tail in cast("list[Tail]", list(self.tails)):
            redraw(tail.head)
            if tail.offset is not None:
                tail.head.start_at_zero()
        return True

    def end_epoch(self) -> None:
        """Put the latent statistics of the rows since the last call into effect."""
        for tail in cast("list[Tail]", list(self.tails)):
            tail.smoother.commit()  # without rows it changes nothing
        for loss in self._losses():
            loss.end_epoch()
        self._rows_seen.fill(0)
        self._bracketed = False

    def score(self, metric: Metric, prediction: Distribution, y: Tensor) -> float:
        """Return a validation metric of predictions, in label units; of maps, over pixels with a label.

        Of several targets it is the mean of theirs, each standardised.
        """
        if self.several_targets:
            scores = [
                metric(
                    prediction[:, t].rescale(-b.location / b.scale, 1 / b.scale),
                    (y[:, t] - b.location) / b.scale,
                    b.standardized(),
                )
                for t, b in enumerate(self.all_bins)
            ]
            return sum(scores) / len(scores)
        if y.dim() > 2:
            labelled = y.isfinite()
            prediction, y = prediction[labelled], y[labelled]
        return metric(prediction, y, self.bins)

    # -- prediction ----------------------------------------------------------------------------

    def forward(self, x: Any, inference: str | None = None, offset: Tensor | None = None) -> Distribution:
        """Return the predictive distribution of each row's label, in label units. No label is read.

        `inference` names a rule of `tailwise.networks.tail.INFERENCES` in place of the method's own:
        ``plain`` neither smooths nor weights. ``self`` predicts once, then again with the weight of the
        predicted label's bin. ``marginal`` averages over the bins that are likely under the first prediction.
        """
        offsets, predictions = self._by_target("offset", offset), []
        for backbone, tails in zip(self.backbones, self._tails(), strict=True):
            features = self.features(backbone, x)
            of_targets = [tail(features, inference, base) for tail, base in zip(tails, offsets, strict=True)]
            predictions.append(targets_beside(of_targets) if self.several_targets else of_targets[0])
        return predictions[0] if len(predictions) == 1 else Mixture(predictions)

    # -- state ---------------------------------------------------------------------------------

    def drop_decoders(self) -> None:
        """Leave out decoders of the input, which only training needs."""
        for tail in cast("list[Tail]", list(self.tails)):
            if tail.decoder is not None and not isinstance(tail.decoder, FeatureDecoder):
                tail.decoder = None
                del tail.losses["reconstruction"]

    def get_extra_state(self) -> Tensor:
        """Return the rows seen in this epoch and the stage."""
        return torch.tensor([int(self._rows_seen), self._retraining])

    def set_extra_state(self, state: Tensor) -> None:
        """Continue an epoch from a saved state."""
        rows_seen, retraining = state.tolist()
        self._rows_seen.fill(rows_seen)
        self._retraining, self._bracketed = bool(retraining), False


def targets_beside(predictions: Sequence[Distribution]) -> Distribution:
    """Return one prediction of all targets. T of (...) -> (..., T)"""
    return stack(predictions).map(lambda p: p.movedim(0, -1))
