"""Several networks as one: those of the folds side by side, and those around a base pooled with others."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any, cast

import torch
from torch import Tensor, nn

from tailwise.distributions.members import Distribution, pooled
from tailwise.labels.bins import LabelBins
from tailwise.networks.backbones import MLP, Embedded, PiecewiseLinearEncoding, ResidualMLP
from tailwise.networks.draws import Dropout
from tailwise.networks.heads import Head, Latent, side_by_side
from tailwise.networks.network import Network, targets_beside
from tailwise.networks.parts import Method
from tailwise.networks.smoothing import NoSmoothing
from tailwise.networks.tail import Offset, Tail

_ANY_LEADING_SHAPE = (
    *(nn.Sequential, nn.ModuleList, nn.ReLU, nn.Identity, Dropout),
    *(MLP, ResidualMLP, Embedded, PiecewiseLinearEncoding),
)
"""Modules that take rows of any leading shape, so that members can be a dimension."""


class Together(nn.Module):
    """The predictions of K networks for the same rows, before they are pooled: (N, F) -> (N, K).

    They are those of each network by itself, up to rounding.
    """

    device = torch.device("cpu")

    def __init__(self, networks: Sequence[Network]) -> None:
        super().__init__()
        self.members, self.targets = len(networks), len(networks[0].tails)
        self.several_targets = networks[0].several_targets
        backbones, self.embedding = [network.backbone for network in networks], None
        first = backbones[0]
        if isinstance(first, Embedded) and _alike(
            [cast("Embedded", b).embedding for b in backbones], weights=True
        ):
            self.embedding = copy.deepcopy(first.embedding)
            backbones = [cast("Embedded", backbone).network for backbone in backbones]
        self.backbone = _members_first(backbones)
        tails = [[cast("Tail", network.tails[t]) for network in networks] for t in range(self.targets)]
        self.tails = nn.ModuleList(map(_joined, tails))
        self.eval().requires_grad_(requires_grad=False)

    def forward(self, x: Tensor, inference: str | None = None, offset: Tensor | None = None) -> Distribution:
        """x: (N, F), offset: (N,) or (N, T) -> (N, K) or (N, K, T)"""
        if self.embedding is not None:
            x = torch.cat([x, self.embedding(x)], -1)
        features = self.backbone(x.expand(self.members, *x.shape)).transpose(0, 1)  # (N, K, D)
        offsets = [offset] * self.targets
        if offset is not None and self.several_targets:
            offsets = list(offset.unbind(1))
        tails = cast("list[Tail]", list(self.tails))
        pairs = zip(tails, offsets, strict=True)
        of_targets = [tail.by_member(features, inference, base) for tail, base in pairs]
        return targets_beside(of_targets) if self.several_targets else of_targets[0]


def together(predictors: Sequence[Predictor]) -> Together | Pool | None:
    """Return networks for tables as one, or None if they cannot be: one network, or parts that differ.

    Networks that are pooled become a pool of networks together.
    """
    networks = [network for network in predictors if isinstance(network, Network)]
    pools = [pool for pool in predictors if isinstance(pool, Pool)]
    if len(pools) == len(predictors) and all(pool.shares.equal(pools[0].shares) for pool in pools):
        families = together([pool.around for pool in pools]), together([pool.alone for pool in pools])
        if None in families:
            return None
        return Pool(*cast("tuple[Network, Network]", families), pools[0].shares.tolist())
    if len(networks) == 1 or pools or any(type(n).forward is not Network.forward for n in networks):
        return None
    first = networks[0]
    if (
        first.shared is not None
        or len(first.backbones) > 1
        or any(n.method != first.method for n in networks)
    ):
        return None
    for tails in zip(*(network.tails for network in networks), strict=True):
        one = cast("Tail", tails[0])
        parts = [nn.ModuleList([tail.latent, tail.head]) for tail in cast("tuple[Tail]", tails)]
        own = [m for m in parts[0].modules() if _has_weights(m) and not isinstance(m, nn.Linear)]
        if own or one.noise is not None or one.smoother.at_inference or not _alike(parts):
            return None
        if any(not cast("Tail", tail).w.equal(one.w) for tail in tails):
            return None
    return Together(networks)


class _Linear(nn.Module):
    """A linear layer per member. (K, N, in) -> (K, N, out)"""

    def __init__(self, layers: Sequence[nn.Linear]) -> None:
        super().__init__()
        biases = [torch.zeros(len(o.weight)).to(o.weight) if o.bias is None else o.bias for o in layers]
        self.weight = nn.Parameter(torch.stack([layer.weight.detach().T for layer in layers], dim=1))
        self.bias = nn.Parameter(torch.stack([bias.detach() for bias in biases]))  # (K, out)

    def forward(self, rows: Tensor) -> Tensor:
        if rows.stride(0) == 0:  # all members have the same rows: one product is faster than K
            product = torch.addmm(self.bias.flatten(), rows[0], self.weight.flatten(1))
            return product.reshape(-1, *self.bias.shape).transpose(0, 1)
        return torch.baddbmm(self.bias.unsqueeze(1), rows, self.weight.transpose(0, 1))


class _OneByOne(nn.Module):
    """Any layer of each member, one after the other. (K, N, ...) -> (K, N, ...)"""

    def __init__(self, parts: Sequence[nn.Module]) -> None:
        super().__init__()
        self.parts = nn.ModuleList(copy.deepcopy(part) for part in parts)

    def forward(self, rows: Tensor) -> Tensor:
        return torch.stack([part(of_one) for part, of_one in zip(self.parts, rows, strict=True)])


def _members_first(parts: Sequence[nn.Module]) -> nn.Module:
    """Return one module that applies the part of each member to its rows. (K, N, ...) -> (K, N, ...)"""
    first = parts[0]
    if type(first) is nn.Linear:
        return _Linear(cast("Sequence[nn.Linear]", parts))
    if type(first) not in _ANY_LEADING_SHAPE or not _alike(parts):
        return _OneByOne(parts)
    if type(first) is nn.ReLU:
        return nn.ReLU(inplace=True)  # behind a layer, whose output nothing else reads
    joined = copy.deepcopy(first)
    for name, _ in first.named_children():
        setattr(joined, name, _members_first([part.get_submodule(name) for part in parts]))
    return joined


def _joined(tails: Sequence[Tail]) -> Tail:
    """Return one tail whose members are these. They must be alike apart from the weights."""
    joined = copy.deepcopy(tails[0])
    joined.members = len(tails)
    joined.latent = cast("Latent", side_by_side([copy.deepcopy(tail.latent) for tail in tails]))
    joined.head = cast("Head", side_by_side([copy.deepcopy(tail.head) for tail in tails]))
    offsets = [tail.offset for tail in tails if tail.offset is not None]
    if offsets:
        joined.offset = Offset(len(tails))
        joined.offset.slope = nn.Parameter(torch.cat([offset.slope.detach() for offset in offsets]))
        joined.offset.intercept = nn.Parameter(torch.cat([offset.intercept.detach() for offset in offsets]))
    joined.smoother, joined.losses, joined.decoder = NoSmoothing(), nn.ModuleDict(), None
    return joined


def _has_weights(module: nn.Module) -> bool:
    return any(True for _ in module.parameters(recurse=False))


def _alike(parts: Sequence[nn.Module], *, weights: bool = False) -> bool:
    """Whether modules have the same buffers; with `weights`, the same weights as well."""

    def state(part: nn.Module) -> list[Tensor]:
        return [*part.buffers(), *(part.parameters() if weights else ())]

    first = state(parts[0])
    return all(
        len(state(part)) == len(first) and all(map(torch.equal, state(part), first)) for part in parts[1:]
    )


# -- networks around a base, and without it ---------------------------------------------------------


class Pool(nn.Module):
    """Two networks that were trained on the same rows, of which only the first sees a base; or K such pairs.

    It predicts as a `Network` does: inputs end with the base predictions, one column for each target, which
    `alone` does not get. `shares` has the weight of `alone` for each target.
    """

    shares: Tensor

    def __init__(self, around: Network, alone: Network, shares: Sequence[float]) -> None:
        super().__init__()
        self.around, self.alone = around, alone
        self.register_buffer("shares", torch.tensor(shares, dtype=torch.float64))  # (T,)

    @property
    def bins(self) -> LabelBins:
        """The label bins, of several targets those of the first."""
        return self.around.bins

    @property
    def method(self) -> Method:
        """The parts of both networks."""
        return self.around.method

    @property
    def backbone(self) -> nn.Module:
        """The backbone of the network around the base."""
        return self.around.backbone

    @property
    def device(self) -> torch.device:
        """The device of the weights."""
        return self.around.device

    def forward(self, x: Any, inference: str | None = None, offset: Tensor | None = None) -> Distribution:
        """Return the predictive distribution of each row's label. x: (N, F + T), offset: (N,) or (N, T)"""
        features = x[:, : x.shape[1] - len(self.shares)]
        predictions = self.around(x, inference, offset), self.alone(features, inference)
        others = [1] * (len(predictions[0].shape) - 1)  # dimensions between families and targets
        return pooled(predictions, torch.stack([1 - self.shares, self.shares]).reshape(2, *others, -1))


Predictor = Network | Pool
"""What a model predicts with."""
