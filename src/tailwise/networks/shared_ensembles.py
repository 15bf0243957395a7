"""Members that share a backbone, such as TabM's, each with its own latent, statistics and head."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, cast

import torch
from torch import Tensor, nn

from tailwise.core.distributions import Distribution, Mixture
from tailwise.core.labels import LabelBins
from tailwise.networks.heads import PointHead
from tailwise.networks.model import TailModel
from tailwise.networks.offset import Offset
from tailwise.networks.parts import Inference, Method
from tailwise.networks.smoothing import BinStatistics, LatentSmoother, SmoothingConfig, recolor


def members_of(backbone: nn.Module) -> int | None:
    """Return the number of members of a backbone with features (..., members, D), such as `TabM`, or None."""
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
    offset: bool = False,
) -> TailModel:
    """Return the model of one target: a `SharedEnsemble` if there are members."""
    if members is None:
        return TailModel(backbone, feature_dim, bins, method, decoder=decoder, offset=offset)
    return SharedEnsemble(
        backbone, feature_dim, bins, method, members=members, decoder=decoder, offset=offset
    )


class SharedEnsemble(TailModel):
    """Members that share a backbone, each with its own latent, bin statistics, head and loss (TabM).

    The backbone returns features (N, members, D). A `TailModel` per member follows, all evaluated at
    once. The members share only the objective's parameters and the decoder, if there is one. The loss
    is the mean of the members' losses. Predictions are the mixture of the members' predictions; point
    predictions are averaged, as in TabM (Gorishniy et al., ICLR 2025).
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
        offset: bool = False,
    ) -> None:
        super().__init__(backbone, feature_dim, bins, method, decoder=decoder, offset=offset)
        self.members = members
        alone = [
            TailModel(nn.Identity(), feature_dim, bins, method, decoder=decoder, offset=offset)
            for _ in range(members - 1)
        ]
        for part in ("latent", "head", "feature_decoder"):
            if getattr(self, part) is not None:
                setattr(self, part, _side_by_side([getattr(model, part) for model in (self, *alone)]))
        if self.offset is not None:
            self.offset = Offset(members)
        if self.smoother is not None:
            dim = self.smoother.stats.mu_mean.shape[1]
            self.smoother = MemberSmoother(len(bins), dim, members, self.smoother.config)
        if getattr(self.objective, "across_rows", False):
            self.objective = MemberObjective(self.objective, members)

    def features(self, x: Any) -> Tensor:
        """Return the backbone's features of an input. (..., members, F)"""
        features = super().features(x)
        if features.dim() < 2 or features.shape[-2] != self.members:
            raise ValueError(
                f"a backbone with members={self.members} must return features of shape "
                f"(rows, {self.members}, D), this one returned {tuple(features.shape)}"
            )
        return features

    def _for_members(self, y: Tensor) -> Tensor:
        """Repeat each label, or offset, for every member. (...) -> (..., members)"""
        return y.unsqueeze(-1).expand(*y.shape, self.members)

    def row_losses(self, x: Any, y: Tensor, offset: Tensor | None = None) -> dict[str, Tensor]:
        """Return each part of the objective per row, averaged over the members. (N,) each"""
        offset = None if offset is None else self._for_members(offset)
        parts = super().row_losses(x, self._for_members(y), offset)
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
        """Replace every member's latent sums by an exact pass over (x, y) batches."""
        super().collect_statistics((x, self._for_members(y)) for x, y in batches)

    def forward(
        self, x: Any, inference: Inference | None = None, offset: Tensor | None = None
    ) -> Distribution:
        """Return the mixture of the members' predictions (their mean for points), in label units."""
        offset = None if offset is None else self._for_members(offset)
        each = super().forward(x, inference, offset)  # (N, members)
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
    """One linear layer per member; input rows belong to member 0, 1, ... in turn."""

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
    """Return one module that applies each member's part to the rows of that member."""
    first = parts[0]
    if isinstance(first, nn.Linear):
        return MemberLinear([cast("nn.Linear", part) for part in parts])
    if any(True for _ in first.parameters(recurse=False)):
        raise ValueError(
            f"{type(first).__name__} has weights outside linear layers, which cannot differ between members: "
            "choose a backbone without members"
        )
    for name, _ in first.named_children():
        setattr(first, name, _side_by_side([part.get_submodule(name) for part in parts]))
    return first


class MemberObjective(nn.Module):
    """An objective that compares rows of a batch, applied to each member's rows separately."""

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
    """Bin statistics of each member's latents; rows belong to member 0, 1, ... in turn.

    Statistics of different dimensions are independent, so K members with D dimensions are kept as one
    latent with K D dimensions.
    """

    def __init__(self, num_bins: int, dim: int, members: int, config: SmoothingConfig) -> None:
        super().__init__(num_bins, members * dim, config)
        self.dim, self.members = dim, members

    def accumulate(
        self, z_mean: Tensor, z_var: Tensor | None, index: Tensor, known: Tensor | None = None
    ) -> None:
        """Add rows; the members' rows of one label are consecutive. (N * members, D), (N * members,)"""
        wide = (-1, self.members * self.dim)
        var = None if z_var is None else z_var.reshape(wide)
        some = None if known is None else known[:: self.members]
        super().accumulate(z_mean.reshape(wide), var, index[:: self.members], some)

    def forward(self, z_mean: Tensor, z_var: Tensor | None, index: Tensor) -> tuple[Tensor, Tensor | None]:
        """Return rows recoloured by their member's statistics of their bin (VIR:F)."""
        member = torch.arange(self.members, device=index.device)
        own = (index.reshape(-1, self.members) * self.members + member).flatten()
        weight = self.self_weight.repeat_interleave(self.members) if self.config.cov_variance else None
        stats, smoothed = self._by_member(self.stats), self._by_member(self.smoothed)
        clip, shrink = self.config.clip, self.config.shrink
        return recolor(z_mean, z_var, own, stats, smoothed, clip, weight, shrink)

    def _by_member(self, stats: BinStatistics) -> BinStatistics:
        """Statistics (B, K D) as (B K, D)."""
        count, *values = stats.tensors()
        return BinStatistics(
            count.repeat_interleave(self.members), *(value.reshape(-1, self.dim) for value in values)
        )
