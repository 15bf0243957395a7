"""One network for every method: backbone -> latent -> smoothing -> sample -> head (+ decoder)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from tailwise.core.distributions import NIG, Distribution, Mixture
from tailwise.core.kernels import label_weights
from tailwise.core.labels import LabelBins, in_label_precision
from tailwise.core.lookup import nearest
from tailwise.networks.draws import normal_like
from tailwise.networks.heads import make_head
from tailwise.networks.latents import LATENTS
from tailwise.networks.losses import (
    MOST_COMPARED,
    PENALTIES,
    evidence_regularizer,
    gaussian_reconstruction,
    latent_kl,
    make_objective,
)
from tailwise.networks.offset import Offset
from tailwise.networks.parts import INFERENCE, Inference, Method
from tailwise.networks.perturbations import PERTURBATIONS, intermediate_layer, perturbed_output
from tailwise.networks.ranks import rank_and_ranks
from tailwise.networks.smoothing import LatentSmoother
from tailwise.networks.trainable import Trainable


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


class TailModel(Trainable):
    """A backbone with the parts of a method on top: `loss(x, y)` trains it, `model(x)` predicts.

    Labels are in their own units on both sides; inside they are standardised by the bins. The
    input may be a tensor, or a tuple or mapping of what the backbone takes. Features may have any
    leading shape: with features (N, H, W, D) and labels (N, H, W) each pixel is a row, and a pixel
    whose label is NaN counts neither in losses nor in statistics. With ``offset=True`` the model
    predicts around a base prediction (VIR:offset), the argument `offset` of `loss` and `forward`.

    Latent statistics take effect when `end_epoch` is called. In a training loop that never calls
    `begin_epoch`, an epoch ends after as many rows as the training set has.
    """

    members = 1
    """Latent rows per label; more than one in `tailwise.networks.shared_ensembles.SharedEnsemble`."""

    def __init__(
        self,
        backbone: nn.Module,
        feature_dim: int,
        bins: LabelBins,
        method: Method,
        *,
        decoder: nn.Module | None = None,
        offset: bool = False,
    ) -> None:
        super().__init__()
        method = method.for_bins(bins)
        self.backbone, self.bins, self.method, self.decoder = backbone, bins, method, decoder
        self.feature_dim = feature_dim
        latent = LATENTS[method.latent](
            feature_dim, method.latent_dim, method.latent_mean, method.latent_var_start
        )
        self.latent: nn.Module = latent
        dim = latent.dim
        self.smoother = LatentSmoother(len(bins), dim, method.smoothing) if method.smoothing else None
        self.head = make_head(method.head, dim, method.head_options)
        self.head.see(bins)
        self.offset: Offset | None = None
        if offset:
            self.offset = Offset()
            self.head.start_at_zero()
        self.objective = make_objective(method.objective, bins, method.objective_options)
        self.feature_decoder = None
        if decoder is None and method.decode_features:
            self.feature_decoder = nn.Linear(dim, feature_dim)
        self.w: Tensor
        self.register_buffer(
            "w", torch.as_tensor(label_weights(bins, **vars(method.weights)), dtype=torch.float32)
        )
        self.perturbation = PERTURBATIONS[method.perturbation](method.perturbation_scale)
        samples = method.latent_samples if method.perturbation_layer is None else 0
        drawn = self.perturbation.draw(samples, dim, torch.Generator().manual_seed(0))
        self.register_buffer("noise", drawn, persistent=False)
        self.noise: Tensor
        self._rows_seen = 0
        self._retraining = False
        self._bracketed = False  # whether the loop calls `begin_epoch`, and so `end_epoch` as well

    # -- rows ----------------------------------------------------------------------------------

    def features(self, x: Any) -> Tensor:
        """Return the backbone's features of an input. (..., F)"""
        with torch.set_grad_enabled(torch.is_grad_enabled() and not self._retraining):
            features = apply_backbone(self.backbone, x)
        # Targets that share a backbone get its features as x, so these are detached as well.
        return features.detach() if self._retraining else features

    def _rows(self, x: Any) -> tuple[Tensor, Tensor | None, Tensor]:
        """Return latent rows (N, D) of an input, and its features (..., F)."""
        features = self.features(x)
        if features.shape[-1:] != (self.feature_dim,):
            raise ValueError(
                f"the backbone returned features of shape {tuple(features.shape)}, but the model was built "
                f"for (..., {self.feature_dim}): feature_dim must be their last dimension"
            )
        rows = features.reshape(-1, self.feature_dim)
        # Statistics and likelihoods need float32, even after a backbone in bf16.
        rows = rows.to(torch.promote_types(rows.dtype, torch.float32))
        with torch.autocast(rows.device.type, enabled=False):
            z_mean, z_var = self.latent(rows)
        return z_mean, z_var, features

    def standardize(self, y: Tensor) -> Tensor:
        """Return labels on the scale the network works on. y: (...) -> (...)"""
        exact = (in_label_precision(y) - self.bins.location) / self.bins.scale
        return exact.to(torch.float32 if self.w.dtype != torch.float64 else torch.float64)

    @property
    def takes_offset(self) -> bool:
        """Whether the model was built with ``offset=True``."""
        return self.offset is not None

    def _base(self, offset: Tensor | None, shape: torch.Size) -> Tensor | None:
        """Return where the head's distribution is centred, a f0 + b, if there is an offset. (...) -> (N,)"""
        if self.offset is None and offset is None:
            return None
        if self.offset is None:
            raise ValueError(
                "the model was built without an offset: pass offset=True to build_model, or leave offset out"
            )
        if offset is None:
            raise ValueError(
                "the model was built with offset=True: pass offset=..., a base prediction for every label"
            )
        if offset.shape != shape:
            raise ValueError(f"offset has shape {tuple(offset.shape)}, but the features need {tuple(shape)}")
        based: Tensor = self.offset(self.standardize(offset).reshape(-1))
        return based

    def _distribution(self, z: Tensor, w: Tensor | None, base: Tensor | None) -> Distribution:
        """Return the head's distribution, shifted to the base if there is one (VIR:offset). (N, D) -> (N,)"""
        prediction: Distribution = self.head(z, w)
        return prediction if base is None else self.head.moved(prediction, base)

    def _in_label_units(self, prediction: Distribution, shape: torch.Size) -> Distribution:
        exact = prediction.map(lambda p: in_label_precision(p).reshape(shape))
        return exact.rescale(self.bins.location, self.bins.scale)

    # -- training ------------------------------------------------------------------------------

    def row_losses(self, x: Any, y: Tensor, offset: Tensor | None = None) -> dict[str, Tensor]:
        """Return each part of the objective per row, weighted and ready to be added up. (N,) each"""
        method = self.method
        z_mean, z_var, features = self._rows(x)
        shape = features.shape[:-1]
        if y.shape != shape:
            raise ValueError(f"labels have shape {tuple(y.shape)}, but the features need {tuple(shape)}")
        y, base, known = y.reshape(-1), self._base(offset, shape), None
        if len(shape) > 2:  # maps may have pixels without a label
            known = y.isfinite()
            y = torch.where(known, y, self.bins.location)
        index, target = self.bins.index(y), self.standardize(y)
        with torch.autocast(z_mean.device.type, enabled=False):
            if self.smoother is not None and self.training and not self.smoother.config.exact:
                self._collect(z_mean, z_var, index, known)
            noise = normal_like(z_mean) if z_var is not None and self.training else None
            z, parts = self.latent_losses(z_mean, z_var, noise, index, target, base)
            if self.decoder is None and self.feature_decoder is not None and method.recon:
                rows = features.detach().reshape(len(z), -1).to(z.dtype)
                missed = gaussian_reconstruction(rows, self.feature_decoder(z))
                parts["recon"] = method.recon * self._per_number(missed, self.feature_dim)
        if self.decoder is not None and method.recon:
            # In the precision of the backbone: a decoder of pictures costs as much as some of its stages.
            parts["recon"] = method.recon * self._reconstruction(z, x)
        if known is not None:
            parts = {name: value * known for name, value in parts.items()}
        return parts

    def latent_losses(
        self,
        z_mean: Tensor,
        z_var: Tensor | None,
        noise: Tensor | None,
        index: Tensor,
        target: Tensor,
        base: Tensor | None,
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Smooth latents, sample them, and return them with each part of the objective but VIR:recon.

        z_mean, z_var, noise: (N, D), index, target, base: (N,) -> (N, D), and (N,) for each part. Nothing
        here changes the model or reads a number on the host, so `Trainable.compiled` can compile it.
        """
        method = self.method
        if self.smoother is not None:
            z_mean, z_var = self.smoother(z_mean, z_var, self._recolored_by(z_mean, index, base))
        z = z_mean if z_var is None or noise is None else z_mean + z_var.sqrt() * noise
        w = self.w[index]
        counted = w if method.reweight in ("pseudo-count", "both") else None
        prediction = self._distribution(z, counted, base)
        parts = {method.objective: self.objective(prediction, target)}
        if method.regularizer and isinstance(prediction, NIG):
            penalty = evidence_regularizer(prediction, target, method.regularizer_form)
            parts["reg"] = method.regularizer * penalty
        if method.reweight in ("likelihood", "both") and self._weighs:
            parts = {name: w * value for name, value in parts.items()}
        if method.kl and z_var is not None:
            kl = latent_kl(z_mean, z_var)
            parts["kl"] = method.kl * (kl / z_mean.shape[-1] if method.elbo == "mean" else kl)
        if method.penalty is not None and self.training:
            penalty = self._penalty(z_mean, target)
            parts[method.penalty] = method.penalty_weight * penalty.expand_as(target)
        return z, parts

    def _recolored_by(self, z_mean: Tensor, index: Tensor, base: Tensor | None) -> Tensor:
        """Return the bin whose statistics recolour each row in training. (N, D), (N,) -> (N,)"""
        if not self.method.recolor_predicted:
            return index
        with torch.no_grad():
            first = self._distribution(z_mean, None, base)
            return self.bins.index(self._in_label_units(first, first.shape).mean)

    def _penalty(self, z_mean: Tensor, target: Tensor) -> Tensor:
        # Pairs of rows are compared: of the pixels of a batch, only as many as fit in memory.
        apart = max(1, -(-len(target) // MOST_COMPARED))
        return PENALTIES[cast("str", self.method.penalty)](z_mean[::apart], target[::apart])

    def _reconstruction(self, z: Tensor, x: Any) -> Tensor:
        likelihood = getattr(self.decoder, "nll", None)
        if likelihood is not None:
            # A decoder of pictures has no `numbers`: its likelihood is an average already.
            numbers = int(getattr(self.decoder, "numbers", 1))
            return self._per_number(cast("Tensor", likelihood(z, x)), numbers)
        if not isinstance(x, Tensor):
            raise TypeError(
                f"a decoder reconstructs one tensor, but the input is a {type(x).__name__}: give the decoder "
                "a method nll(z, x) that returns -log p(x | z) of each row"
            )
        missed = gaussian_reconstruction(x, cast("nn.Module", self.decoder)(z))
        return self._per_number(missed, x[0].numel())

    def _per_number(self, total: Tensor, numbers: int) -> Tensor:
        """Return a sum over reconstructed numbers, or with ``elbo="mean"`` their mean. (N,)"""
        return total / numbers if self.method.elbo == "mean" else total

    def _collect(
        self, z_mean: Tensor, z_var: Tensor | None, index: Tensor, known: Tensor | None = None
    ) -> None:
        assert self.smoother is not None
        if not self._bracketed and self._rows_seen >= self.bins.counts.sum() > 0:
            self.end_epoch()
        self.smoother.accumulate(z_mean, z_var, index, known)
        self._rows_seen += index.shape[0] // self.members * rank_and_ranks()[1]

    @torch.no_grad()
    def collect_statistics(self, batches: Iterable[tuple[Any, Tensor]]) -> None:
        """Replace the latent sums of this epoch by an exact pass over (x, y) batches, without dropout."""
        if self.smoother is None:
            return
        self.smoother.reset()
        self._rows_seen = 0
        modes = {module: module.training for module in self.modules()}
        self.eval()
        for x, y in batches:
            z_mean, z_var, features = self._rows(x)
            known = y.reshape(-1).isfinite() if features.dim() > 3 else None
            self.smoother.accumulate(z_mean, z_var, self.bins.index(y.reshape(-1)), known)
            self._rows_seen += y.numel()
        for module, training in modes.items():
            module.training = training

    @property
    def more_to_come(self) -> bool:
        """Whether the second stage is still due."""
        return self.method.retrain_from is not None and not self._retraining

    @property
    def _weighs(self) -> bool:
        """Whether losses are weighted: with two stages, only in the second."""
        return self.method.retrain_from is None or self._retraining

    def begin_epoch(self, progress: float) -> bool:
        """Start the second stage if it is due: freeze the encoder, train a new head with weights."""
        if self._bracketed:  # the loop did not end its last epoch
            self.end_epoch()
        self._bracketed, begin = True, self.method.retrain_from
        if begin is None or self._retraining or progress < begin:
            return False
        self._retraining = True
        redraw(self.head)
        if self.offset is not None:
            self.head.start_at_zero()
        return True

    def end_epoch(self) -> None:
        """Put the latent statistics of the rows since the last call into effect."""
        if self.smoother is not None:
            self.smoother.commit()  # without rows it changes nothing; steps that are replayed count none here
            self._rows_seen = 0
        self._bracketed = False

    # -- prediction ----------------------------------------------------------------------------

    def forward(
        self, x: Any, inference: Inference | None = None, offset: Tensor | None = None
    ) -> Distribution:
        """Return the predictive distribution of each row's label, in label units. No label is read.

        ``plain`` neither smooths nor weights. ``self`` predicts once, then again with the weight (and,
        with `recolor`, the statistics) of the predicted label's bin. ``marginal`` averages over
        the bins that are likely under the first prediction. `offset` is the base prediction of each
        label, in label units, for a model built with ``offset=True``.
        """
        mode = inference or self.method.inference
        if mode not in INFERENCE:
            raise ValueError(f"unknown inference {mode!r}{nearest(mode, INFERENCE)}")
        name = self.method.perturbation_layer
        if name is None or not self.method.latent_samples:
            return self._forward(x, mode, offset)
        layer, mixed = intermediate_layer(self.backbone, name), []
        for sample in range(self.method.latent_samples):
            with perturbed_output(layer, self.perturbation, sample):
                mixed.append(self._forward(x, mode, offset))
        return Mixture(mixed)

    def _forward(self, x: Any, mode: Inference, offset: Tensor | None) -> Distribution:
        z_mean, z_var, features = self._rows(x)
        base = self._base(offset, features.shape[:-1])
        with torch.autocast(z_mean.device.type, enabled=False):
            first = self._predict(z_mean, z_var, None, base)
            if mode == "self":
                index = self.bins.index(self._in_label_units(first, first.shape).mean)
                first = self._predict(z_mean, z_var, index, base)
            elif mode == "marginal":
                first = self._marginal(first, z_mean, z_var, base)
            return self._in_label_units(first, features.shape[:-1])

    def _predict(
        self, z_mean: Tensor, z_var: Tensor | None, index: Tensor | None, base: Tensor | None
    ) -> Distribution:
        """Predict rows, with the weights and statistics of the given bins if any. (N, D), (N,) -> (N,)"""
        w = None
        if index is not None:
            if self.method.reweight in ("pseudo-count", "both"):
                w = self.w[index]
            if self.smoother is not None and self.method.recolor:
                z_mean, z_var = self.smoother(z_mean, z_var, index)
        if not len(self.noise) or not self.perturbation.acts_on(z_var):
            return self._distribution(z_mean, w, base)
        perturbed = (self.perturbation(z_mean, z_var, drawn) for drawn in self.noise)
        return Mixture([self._distribution(z, w, base) for z in perturbed])

    def _marginal(
        self, first: Distribution, z_mean: Tensor, z_var: Tensor | None, base: Tensor | None
    ) -> Distribution:
        widths = torch.as_tensor(np.diff(self.bins.edges) / self.bins.scale).to(z_mean)
        centers = self.standardize(torch.as_tensor(self.bins.centers, device=z_mean.device))
        log_mass = widths.log().unsqueeze(-1) - first.nll(centers.to(z_mean).unsqueeze(-1))  # (B, N)
        top, index = log_mass.topk(min(self.method.top_bins, len(self.bins)), dim=0)  # (K, N)
        members = index.shape[0]
        repeated = z_mean.repeat(members, 1)
        var = None if z_var is None else z_var.repeat(members, 1)
        bases = None if base is None else base.repeat(members)
        prediction = self._predict(repeated, var, index.reshape(-1), bases)  # (K N,)
        shares = top.softmax(0)
        if isinstance(prediction, Mixture):  # (S, K N) -> (S K, N)
            samples = prediction.components.shape[0]
            components = prediction.components.map(lambda p: p.reshape(samples * members, -1))
            own = prediction.weights.reshape(samples, members, -1) * shares
            return Mixture(components, own.reshape(samples * members, -1))
        return Mixture(prediction.map(lambda p: p.reshape(members, -1)), shares)

    # -- state ---------------------------------------------------------------------------------

    def get_extra_state(self) -> Tensor:
        """Return the rows seen in this epoch, the stage, and the standardisation and edges of the bins."""
        known = (self._rows_seen, self._retraining, self.bins.location, self.bins.scale, *self.bins.edges)
        return torch.tensor(known, dtype=torch.float64)

    def set_extra_state(self, state: Tensor) -> None:
        """Continue an epoch from a saved state; a state with other bins is an error."""
        rows_seen, retraining, location, scale, *rest = state.tolist()
        edges, own = np.array(rest), self.bins
        tolerance = 1e-6 * np.diff(own.edges).min()
        if edges.shape != own.edges.shape or np.abs(edges - own.edges).max() > tolerance:
            raise ValueError(
                f"this state was trained with {len(edges) - 1} bins from {edges[0]:g} to {edges[-1]:g}, but "
                f"the model has {len(self.bins)} from {self.bins.edges[0]:g} to "
                f"{self.bins.edges[-1]:g}: build the model with the same bins"
            )
        if abs(location - own.location) > tolerance or abs(scale - own.scale) > tolerance:
            raise ValueError(
                f"this state was trained on labels of mean {location:g} and spread {scale:g}, but the "
                f"bins of this model have {own.location:g} and {own.scale:g}: build it with the same bins"
            )
        self._rows_seen, self._retraining, self._bracketed = int(rows_seen), bool(retraining), False
