"""Several networks as one model: members with weights of their own or shared, or one tower per target."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from typing import Any, cast

import torch
from torch import Tensor, nn

from tailwise.core.distributions import Distribution, Mixture, stack
from tailwise.core.labels import LabelBins
from tailwise.core.metrics import Metric
from tailwise.networks.heads import PointHead
from tailwise.networks.model import TailModel, apply_backbone, redraw
from tailwise.networks.parts import Inference, Method
from tailwise.networks.smoothing import BinStatistics, LatentSmoother, SmoothingConfig, recolor
from tailwise.networks.trainable import Trainable


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


# -- members that share a backbone ----------------------------------------------------------------


def members_of(backbone: nn.Module) -> int | None:
    """How many members a backbone has, such as `TabM`, whose features are (..., members, D)."""
    members = getattr(backbone, "members", None)
    return members if isinstance(members, int) else None


def one_target(
    backbone: nn.Module,
    feature_dim: int,
    bins: LabelBins,
    method: Method,
    *,
    members: int | None = None,
    decoder: nn.Module | None = None,
) -> TailModel:
    """Return the model of one target: a `SharedEnsemble` where there are members."""
    if members is None:
        return TailModel(backbone, feature_dim, bins, method, decoder=decoder)
    return SharedEnsemble(backbone, feature_dim, bins, method, members=members, decoder=decoder)


class SharedEnsemble(TailModel):
    """Members that share a backbone, each with its own latent, bin statistics, head and loss (TabM).

    The backbone yields features (N, members, D). What follows it is a `TailModel` per member,
    evaluated for all of them at once; only an objective's own parameters and a decoder that is
    given are shared. The loss is the mean of the members' losses. Predictions are the mixture of the
    members' predictions; those of a point head are averaged, as in TabM (Gorishniy et al., ICLR 2025).
    """

    def __init__(
        self,
        backbone: nn.Module,
        feature_dim: int,
        bins: LabelBins,
        method: Method,
        *,
        members: int,
        decoder: nn.Module | None = None,
    ) -> None:
        super().__init__(backbone, feature_dim, bins, method, decoder=decoder)
        self.members = members
        alone = [
            TailModel(nn.Identity(), feature_dim, bins, method, decoder=decoder) for _ in range(members - 1)
        ]
        for part in ("latent", "head", "feature_decoder"):
            if getattr(self, part) is not None:
                setattr(self, part, _side_by_side([getattr(model, part) for model in (self, *alone)]))
        if self.smoother is not None:
            dim = self.smoother.stats.mu_mean.shape[1]
            self.smoother = MemberSmoother(len(bins), dim, members, self.smoother.config)
        if getattr(self.objective, "across_rows", False):
            self.objective = MemberObjective(self.objective, members)

    def features(self, x: Any) -> Tensor:
        """Return what the backbone makes of an input. (..., members, F)"""
        features = super().features(x)
        if features.dim() < 2 or features.shape[-2] != self.members:
            raise ValueError(
                f"a backbone with members={self.members} must yield features of shape "
                f"(rows, {self.members}, D), this one gave {tuple(features.shape)}"
            )
        return features

    def _for_members(self, y: Tensor) -> Tensor:
        return y.unsqueeze(-1).expand(*y.shape, self.members)

    def row_losses(self, x: Any, y: Tensor) -> dict[str, Tensor]:
        """Return each part of the objective per row, averaged over the members. (N,) each"""
        parts = super().row_losses(x, self._for_members(y))
        return {name: value.reshape(-1, self.members).mean(1) for name, value in parts.items()}

    def _penalty(self, z_mean: Tensor, target: Tensor) -> Tensor:
        each = [super(SharedEnsemble, self)._penalty(z, y) for z, y in self._by_member(z_mean, target)]
        return torch.stack(each).mean(0)

    def _by_member(self, *rows: Tensor) -> Iterable[tuple[Tensor, ...]]:
        return zip(*(value.unflatten(0, (-1, self.members)).unbind(1) for value in rows), strict=True)

    def _reconstruction(self, z: Tensor, x: Any) -> Tensor:
        each = [super(SharedEnsemble, self)._reconstruction(own, x) for (own,) in self._by_member(z)]
        return torch.stack(each, 1).flatten()

    def collect_statistics(self, batches: Iterable[tuple[Any, Tensor]]) -> None:
        """Replace every member's streamed sums by an exact pass over (x, y) batches."""
        super().collect_statistics((x, self._for_members(y)) for x, y in batches)

    def forward(self, x: Any, inference: Inference | None = None) -> Distribution:
        """Return the mixture, or for points the mean, of the members' predictions, in label units."""
        each = super().forward(x, inference)  # (N, members)
        if isinstance(each, Mixture):  # (S, N, members) -> (members S, N)
            components = each.components.map(_members_first)
            return Mixture(
                components.map(lambda p: p.flatten(0, 1)), _members_first(each.weights).flatten(0, 1)
            )
        if self.members == 1 or isinstance(self.head, PointHead):
            return each.map(lambda p: p.mean(-1))
        return Mixture(each.map(_members_first))


def _members_first(parameter: Tensor) -> Tensor:
    return parameter.movedim(-1, 0)


class MemberLinear(nn.Module):
    """A linear layer of its own for each member; its rows are those of member 0, 1, ... in turn."""

    def __init__(self, layers: Sequence[nn.Linear]) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.stack([layer.weight.detach() for layer in layers]))
        self.bias = None
        if layers[0].bias is not None:
            self.bias = nn.Parameter(torch.stack([layer.bias.detach() for layer in layers]))

    def reset_parameters(self) -> None:
        """Draw every member's weights as `nn.Linear` does."""
        bound = self.weight.shape[-1] ** -0.5
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -bound, bound)

    def forward(self, rows: Tensor) -> Tensor:
        """rows: (N * members, in) -> (N * members, out)"""
        by_member = rows.unflatten(0, (-1, len(self.weight))).transpose(0, 1)  # (members, N, in)
        each: Tensor = by_member @ self.weight.mT
        if self.bias is not None:
            each = each + self.bias.unsqueeze(1)
        return each.transpose(0, 1).flatten(0, 1)


def _side_by_side(parts: Sequence[nn.Module]) -> nn.Module:
    """One module that does for the rows of each member what that member's part does."""
    first = parts[0]
    if isinstance(first, nn.Linear):
        return MemberLinear([cast("nn.Linear", part) for part in parts])
    if any(True for _ in first.parameters(recurse=False)):
        raise ValueError(
            f"{type(first).__name__} has weights besides those of linear layers, which members cannot have "
            "of their own: choose a backbone without members"
        )
    for name, _ in first.named_children():
        setattr(first, name, _side_by_side([part.get_submodule(name) for part in parts]))
    return first


class MemberObjective(nn.Module):
    """An objective in which rows of a batch meet, for the rows of each member on their own."""

    def __init__(self, objective: nn.Module, members: int) -> None:
        super().__init__()
        self.objective, self.members = objective, members

    def forward(self, prediction: Distribution, y: Tensor) -> Tensor:
        """y: (N * members,) -> (N * members,)"""
        each = [
            self.objective(prediction[k :: self.members], y[k :: self.members]) for k in range(self.members)
        ]
        return torch.stack(each, 1).flatten()


class MemberSmoother(LatentSmoother):
    """Bin statistics of each member's latents on their own, for the rows of member 0, 1, ... in turn.

    As statistics of one dimension never touch those of another, K members with D dimensions have
    those of one latent with K D.
    """

    def __init__(self, num_bins: int, dim: int, members: int, config: SmoothingConfig) -> None:
        super().__init__(num_bins, members * dim, config)
        self.dim, self.members = dim, members

    def accumulate(self, z_mean: Tensor, z_var: Tensor | None, index: Tensor) -> None:
        """Add rows, of which those of one label follow one another. (N * members, D), (N * members,)"""
        wide = (-1, self.members * self.dim)
        var = None if z_var is None else z_var.reshape(wide)
        super().accumulate(z_mean.reshape(wide), var, index[:: self.members])

    def forward(self, z_mean: Tensor, z_var: Tensor | None, index: Tensor) -> tuple[Tensor, Tensor | None]:
        """Return rows recoloured by the statistics of their member in their bin (VIR:F)."""
        member = torch.arange(self.members, device=index.device)
        own = (index.reshape(-1, self.members) * self.members + member).flatten()
        weight = self.self_weight.repeat_interleave(self.members) if self.config.cov_variance else None
        stats, smoothed = self._by_member(self.stats), self._by_member(self.smoothed)
        return recolor(z_mean, z_var, own, stats, smoothed, self.config.clip, weight)

    def _by_member(self, stats: BinStatistics) -> BinStatistics:
        """Statistics (B, K D) as (B K, D)."""
        count, *values = stats.tensors()
        return BinStatistics(
            count.repeat_interleave(self.members), *(value.reshape(-1, self.dim) for value in values)
        )


# -- several targets -------------------------------------------------------------------------------


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
        members = members_of(backbone)
        self.networks = nn.ModuleList(
            one_target(nn.Identity(), feature_dim, b, method, members=members) for b in bins
        )

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
