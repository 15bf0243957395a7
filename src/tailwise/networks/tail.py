"""What follows a backbone for one target: latent, smoothing, head and losses."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np
import torch
from torch import Tensor, nn

from tailwise.distributions.members import Distribution, Mixture
from tailwise.labels.bins import LabelBins, in_label_precision
from tailwise.lookup import check_name
from tailwise.networks.draws import normal_like
from tailwise.networks.heads import Head, Latent, Perturbation, side_by_side
from tailwise.networks.losses import FeatureDecoder, LatentBatch, Loss
from tailwise.networks.smoothing import LatentSmoother, NoSmoothing

if TYPE_CHECKING:
    from tailwise.networks.parts import Method, Weights


_LIKELIEST = 8
"""Number of bins that `Marginal` averages over."""


class Latents(NamedTuple):
    """Latent rows to predict, and where their distributions are centred (VIR:offset)."""

    mean: Tensor  # (N, D)
    var: Tensor | None  # (N, D)
    base: Tensor | None  # (N,)


class Offset(nn.Module):
    """Where the predicted distribution is centred: a f0 + b, with f0 the base prediction (VIR:offset).

    f0 is standardised as labels are. The scalars a and b are learned, one pair per member; they start at 1
    and 0, so that an untrained network predicts the base.
    """

    def __init__(self, members: int = 1) -> None:
        super().__init__()
        self.slope = nn.Parameter(torch.ones(members))
        self.intercept = nn.Parameter(torch.zeros(members))

    def forward(self, base: Tensor) -> Tensor:
        """base: (N * members,), rows of member 0, 1, ... in turn -> (N * members,)"""
        by_member = base.reshape(-1, len(self.slope))
        return (by_member * self.slope + self.intercept).flatten()


class Tail(nn.Module):
    """The parts of a method on the features of a backbone, for one target.

    Features are (..., K, F): `members` K share the backbone, such as TabM's, each with its own latent, bin
    statistics and head, all evaluated at once. They share the losses and a decoder. Labels and predictions
    are (...), in label units; inside they are standardised by the bins. A row is one member of one label, so
    a pixel of a map is a row.
    """

    def __init__(
        self,
        feature_dim: int,
        bins: LabelBins,
        method: Method,
        *,
        members: int,
        decoder: nn.Module | None,
        offset: bool,
    ) -> None:
        super().__init__()
        self.feature_dim, self.bins, self.members = feature_dim, bins, members
        latents, heads = [], []
        for _ in range(members):
            latents.append(method.make("latent", feature_dim))
            heads.append(method.make("head", latents[0].dim, bins))
            if offset:
                heads[-1].start_at_zero()
        dim = latents[0].dim
        self.latent, self.head = cast("Latent", side_by_side(latents)), cast("Head", side_by_side(heads))
        self.offset = Offset(members) if offset else None
        smoother = method.make("smoothing", dim, bins, members)
        self.smoother: LatentSmoother | NoSmoothing = smoother or NoSmoothing()
        if decoder is None and any(part.options.get("features") for part in method.losses):
            decoder = FeatureDecoder(dim, feature_dim)
        self.decoder = decoder
        self.losses = nn.ModuleDict()
        for name, losses in method.make_losses(dim, bins, members).items():
            if name != "reconstruction" or decoder is not None:
                self.losses[name] = nn.ModuleList(losses)
        weights: Weights | None = method.make("weights", bins)
        self.weighs_losses = weights is not None and weights.on != "count"
        self.weighs_counts = weights is not None and weights.on != "loss"
        self.usual_weight = weights.usual if weights is not None and self.weighs_counts else 1.0
        per_bin = np.ones(len(bins)) if weights is None else weights.per_bin
        self.w = nn.Buffer(torch.as_tensor(per_bin, dtype=torch.float32))
        self.inference = method.inference.name
        self.perturbation: Perturbation | None = method.make("perturbation")
        self.noise: Tensor | None
        drawn = None
        if self.perturbation is not None:
            drawn = self.perturbation.draw(dim, torch.Generator().manual_seed(0))
        self.register_buffer("noise", drawn, persistent=False)

    # -- rows ----------------------------------------------------------------------------------

    def standardize(self, y: Tensor) -> Tensor:
        """Return labels on the scale the tail works on. y: (...) -> (...)"""
        exact = (in_label_precision(y) - self.bins.location) / self.bins.scale
        return exact.to(torch.float32 if self.w.dtype != torch.float64 else torch.float64)

    def in_label_units(self, prediction: Distribution) -> Distribution:
        """Return a prediction of standardised labels in the units of the labels."""
        return prediction.map(in_label_precision).rescale(self.bins.location, self.bins.scale)

    def _rows(self, features: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        """Return features and latents of all rows. (..., K, F) -> (N, F), (N, D) each"""
        rows = features.reshape(-1, self.feature_dim)
        # Statistics and likelihoods need float32, even after a backbone in bf16.
        rows = rows.to(torch.promote_types(rows.dtype, torch.float32))
        with torch.autocast(rows.device.type, enabled=False):
            return rows, *self.latent(rows)

    def _by_row(self, labels: Tensor) -> Tensor:
        """Repeat each label for every member. (...) -> (N,)"""
        return labels.unsqueeze(-1).expand(*labels.shape, self.members).reshape(-1)

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
        return cast("Tensor", self.offset(self._by_row(self.standardize(offset))))

    def _distribution(self, z: Tensor, w: Tensor | None, base: Tensor | None) -> Distribution:
        """Return the head's distribution, shifted to the base if there is one (VIR:offset). (N, D) -> (N,)"""
        prediction: Distribution = self.head(z, w)
        return prediction if base is None else self.head.moved(prediction, base)

    # -- training ------------------------------------------------------------------------------

    def row_losses(
        self,
        features: Tensor,
        x: Any,
        y: Tensor,
        offset: Tensor | None,
        *,
        weighted: bool,
        of_latents: bool | None = None,
    ) -> dict[str, Tensor]:
        """Return each loss per label, weighted and averaged over the members. (...) -> (N / K,) each

        With `of_latents`, the losses that read latents only, or with False the others; the rest is 0.
        """
        shape = features.shape[:-2]
        if y.shape != shape:
            raise ValueError(f"labels have shape {tuple(y.shape)}, but the features need {tuple(shape)}")
        base, labelled = self._base(offset, shape), None
        y = self._by_row(y)
        if len(shape) > 2:  # maps may have pixels without a label
            labelled = y.isfinite()
            y = torch.where(labelled, y, self.bins.location)
        rows, z_mean, z_var = self._rows(features)
        index, target = self.bins.index(y), self.standardize(y)
        with torch.autocast(rows.device.type, enabled=False):
            if self.training:
                self.smoother.accumulate(z_mean, z_var, index, labelled)
            noise = normal_like(z_mean) if z_var is not None and self.training else None
            z_mean, z_var = self.smoother(z_mean, z_var, index)
            z = z_mean if z_var is None or noise is None else z_mean + z_var.sqrt() * noise
            prediction = self._distribution(z, self.w[index] if self.weighs_counts else None, base)
        batch = LatentBatch(x, rows, z_mean, z_var, z, prediction, target, index, self.decoder)
        losses = {}
        for name, modules in self.losses.items():
            copies = cast("Sequence[Loss]", modules)
            loss = copies[0]
            if of_latents is not None and loss.of_latents != of_latents:
                losses[name] = torch.zeros_like(target).reshape(-1, self.members).mean(1)
                continue
            per_row = loss.weight * self._per_row(copies, batch)
            if weighted and self.weighs_losses and loss.weighted:
                per_row = self.w[index] * per_row
            if labelled is not None:
                per_row = per_row * labelled
            losses[name] = per_row.reshape(-1, self.members).mean(1)
        return losses

    def _per_row(self, copies: Sequence[Loss], batch: LatentBatch) -> Tensor:
        """Return a loss of each row, in the precision that it needs; members may have copies of it. (N,)"""
        loss = copies[0]
        half = loss.reads_input and torch.is_autocast_enabled(batch.y.device.type)
        with torch.autocast(batch.y.device.type, enabled=half):
            if self.members == 1 or not (loss.compares_rows or loss.reads_input):
                return cast("Tensor", loss(batch))
            rows = enumerate(batch.members(self.members))
            return torch.stack([copies[k % len(copies)](part) for k, part in rows], 1).flatten()

    # -- prediction ----------------------------------------------------------------------------

    def forward(self, features: Tensor, inference: str | None, offset: Tensor | None) -> Distribution:
        """Return the prediction of each label, for several members their mixture or mean. (..., K, F)"""
        prediction = self.by_member(features, inference, offset)
        if self.members == 1 or (self.head.averaged and prediction is prediction.parametric):
            return prediction.map(lambda p: p.mean(-1))
        return Mixture(prediction.map(_members_first))

    def by_member(self, features: Tensor, inference: str | None, offset: Tensor | None) -> Distribution:
        """Return the prediction of each label by each member. (..., K, F) -> (..., K)"""
        base, shape = self._base(offset, features.shape[:-2]), features.shape[:-1]
        _, z_mean, z_var = self._rows(features)
        check_name("inference", inference or self.inference, INFERENCES)
        with torch.autocast(z_mean.device.type, enabled=False):
            rows = INFERENCES[inference or self.inference](self, Latents(z_mean, z_var, base))
            return self.in_label_units(rows.map(lambda p: p.reshape(shape)))

    def predict(self, rows: Latents, index: Tensor | None = None) -> Distribution:
        """Predict rows, with the weights and statistics of the given bins if any. index: (N,) -> (N,)

        Without bins, every row has the weight of an average training row.
        """
        z_mean, z_var = rows.mean, rows.var
        w = None if self.usual_weight == 1 else z_mean.new_full(z_mean.shape[:1], self.usual_weight)
        if index is not None:
            w = self.w[index] if self.weighs_counts else None
            if self.smoother.at_inference:
                z_mean, z_var = self.smoother(z_mean, z_var, index)
        if self.noise is None or self.perturbation is None:
            return self._distribution(z_mean, w, rows.base)
        perturbed = (self.perturbation(z_mean, z_var, drawn) for drawn in self.noise)
        return Mixture([self._distribution(z, w, rows.base) for z in perturbed])

    def bin_of(self, prediction: Distribution) -> Tensor:
        """Return the label bin of each predicted mean. (N,)"""
        return self.bins.index(self.in_label_units(prediction).mean)

    def bin_log_mass(self, prediction: Distribution) -> Tensor:
        """Return the logarithm of each bin's probability, by the density at its centre. (B, N)"""
        widths = torch.as_tensor(np.diff(self.bins.edges) / self.bins.scale).to(prediction.mean)
        centers = self.standardize(torch.as_tensor(self.bins.centers, device=widths.device)).to(widths)
        return widths.log().unsqueeze(-1) - prediction.nll(centers.unsqueeze(-1))

    # -- state ---------------------------------------------------------------------------------

    def get_extra_state(self) -> Tensor:
        """Return the standardisation and edges of the bins."""
        return torch.tensor([self.bins.location, self.bins.scale, *self.bins.edges], dtype=torch.float64)

    def set_extra_state(self, state: Tensor) -> None:
        """Refuse a state with other bins."""
        now = self.get_extra_state()
        tolerance = 1e-6 * np.diff(self.bins.edges).min()
        if state.shape != now.shape or not torch.allclose(state.to(now), now, rtol=0, atol=tolerance):
            words = "{} bins from {:g} to {:g}"
            theirs, ours = (words.format(len(of) - 3, of[2], of[-1]) for of in (state.tolist(), now.tolist()))
            raise ValueError(
                f"this state was trained with {theirs}, but the model has {ours}: build it with the same bins"
            )


def _members_first(parameter: Tensor) -> Tensor:
    return parameter.movedim(-1, 0)


# -- prediction without labels -----------------------------------------------------------------


def plain(tail: Tail, rows: Latents) -> Distribution:
    """Predict without weights and without recolouring, as the preview code does."""
    return tail.predict(rows)


def self_inference(tail: Tail, rows: Latents) -> Distribution:
    """Predict like `plain`, then with the weight of the predicted bin.

    Latents are recoloured by its statistics if the option `at_inference` of smoothing says so.
    """
    return tail.predict(rows, tail.bin_of(tail.predict(rows)))


def marginal(tail: Tail, rows: Latents) -> Distribution:
    """Average over the bins that are likely under a first prediction, each with its weight."""
    log_mass = tail.bin_log_mass(tail.predict(rows))  # (B, N)
    top, index = log_mass.topk(min(_LIKELIEST, len(log_mass)), dim=0)  # (K, N)
    mean, var, base = (t if t is None else torch.cat([t] * len(index)) for t in rows)
    prediction = tail.predict(Latents(cast("Tensor", mean), var, base), index.reshape(-1))  # (K N,)
    return Mixture(prediction.map(lambda p: p.reshape(len(index), -1)), top.softmax(0), check=False)


INFERENCES: dict[str, Callable[[Tail, Latents], Distribution]] = {
    "plain": plain,
    "self": self_inference,
    "marginal": marginal,
}
"""Rules that predict latent rows without their labels, by name. They return (N,) of standardised labels.

``tail.predict(rows)`` neither weights nor recolours; ``tail.predict(rows, index)`` does so by bins (N,).
"""
