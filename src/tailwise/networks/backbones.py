"""Networks that turn rows of tables into features, and `make_backbone`, which builds them by name.

None of them normalises over a batch: the features of a row do not depend on other rows. Any other `nn.Module`
that returns features works as well.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn
from torch.nn import functional as F

from tailwise.lookup import check_name, nearest
from tailwise.networks.draws import Dropout, dropout

Rows = ArrayLike | Tensor
Edges = Sequence[Sequence[float]]


class Backbone(nn.Module):
    """A network with features of a known size: (N, ...) -> (N, feature_dim).

    A network with `members` returns features of each member, (N, members, feature_dim).
    """

    feature_dim: int
    members: int | None = None
    name: str = ""
    """Its name, if it was made by name."""


class MLP(Backbone):
    """Plain network for tables and feature vectors: linear layers, ReLU and dropout.

    >>> MLP(8, hidden=(32, 16))(torch.zeros(5, 8)).shape
    torch.Size([5, 16])
    """

    def __init__(self, in_dim: int, hidden: Sequence[int] = (128, 64), dropout: float = 0.1) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for width in hidden:
            layers += [nn.Linear(in_dim, width), nn.ReLU(), Dropout(dropout)]
            in_dim = width
        self.layers = nn.Sequential(*layers)
        self.feature_dim = in_dim

    def forward(self, x: Tensor) -> Tensor:
        """x: (N, in_dim) -> features (N, feature_dim)"""
        features: Tensor = self.layers(x)
        return features


class ResidualMLP(Backbone):
    """Network for tables with skip connections: every block adds to the output of the last one.

    h <- h + W2 drop(relu(W1 norm(h))), then relu(norm(h)); the ResNet of Gorishniy et al., Revisiting
    Deep Learning Models for Tabular Data (NeurIPS 2021), with layer instead of batch normalisation.

    >>> ResidualMLP(8, width=32)(torch.zeros(5, 8)).shape
    torch.Size([5, 32])
    """

    def __init__(
        self, in_dim: int, width: int = 96, blocks: int = 2, expansion: float = 2.0, dropout: float = 0.1
    ) -> None:
        super().__init__()
        inner = max(1, round(width * expansion))
        self.first = nn.Linear(in_dim, width)
        self.blocks = nn.ModuleList(
            nn.Sequential(
                nn.LayerNorm(width),
                nn.Linear(width, inner),
                nn.ReLU(),
                Dropout(dropout),
                nn.Linear(inner, width),
            )
            for _ in range(blocks)
        )
        self.last = nn.Sequential(nn.LayerNorm(width), nn.ReLU())
        self.feature_dim = width

    def forward(self, x: Tensor) -> Tensor:
        """x: (N, in_dim) -> features (N, feature_dim)"""
        h = self.first(x)
        for block in self.blocks:
            h = h + block(h)
        features: Tensor = self.last(h)
        return features


class TabM(Backbone):
    """Many networks that share most of their weights: each row has features of every member.

    Member k scales the inputs and outputs of shared layers by vectors of its own and has its own
    biases, l_k(h) = s_k * W(r_k * h) + b_k (BatchEnsemble, Wen et al., ICLR 2020). Methods give
    each member its own head and loss, and only predictions are averaged or mixed: TabM
    (Gorishniy et al., TabM: Advancing Tabular Deep Learning with Parameter-Efficient Ensembling,
    ICLR 2025). At the start members differ only in the first layer's r: random signs.

    >>> TabM(8, hidden=(32, 16), members=4)(torch.zeros(5, 8)).shape
    torch.Size([5, 4, 16])
    """

    members: int

    def __init__(
        self, in_dim: int, hidden: Sequence[int] = (128, 64), members: int = 8, dropout: float = 0.1
    ) -> None:
        super().__init__()
        if members < 1 or not hidden:
            raise ValueError(f"members and layers must be at least 1, got {members!r} and {list(hidden)}")
        self.members, self.dropout = members, dropout
        self.shared = nn.ModuleList()
        self.scale_in, self.scale_out, self.bias = (nn.ParameterList() for _ in range(3))
        for width in hidden:
            self.shared.append(nn.Linear(in_dim, width, bias=False))
            self.scale_in.append(nn.Parameter(torch.ones(members, in_dim)))
            self.scale_out.append(nn.Parameter(torch.ones(members, width)))
            self.bias.append(nn.Parameter(torch.zeros(members, width)))
            in_dim = width
        self.feature_dim = in_dim
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Draw each member's own parameters again."""
        for r, s, b in zip(self.scale_in, self.scale_out, self.bias, strict=True):
            r.fill_(1.0)
            s.fill_(1.0)
            bound = 1 / math.sqrt(r.shape[-1])
            b.copy_(torch.empty_like(b[0]).uniform_(-bound, bound))
        first = self.scale_in[0]
        first.copy_(torch.randint(0, 2, first.shape) * 2 - 1)

    def forward(self, x: Tensor) -> Tensor:
        """x: (N, in_dim) -> features (N, members, feature_dim)"""
        rows = x.reshape(-1, x.shape[-1])
        h = rows.expand(self.members, *rows.shape)
        for r, shared, s, b in zip(self.scale_in, self.shared, self.scale_out, self.bias, strict=True):
            # Scaling the weights is cheaper than scaling a batch of rows.
            weight = shared.weight * r.unsqueeze(1) * s.unsqueeze(2)  # (members, out, in)
            h = F.relu(torch.baddbmm(b.unsqueeze(1), h, weight.mT))
            h = dropout(h, self.dropout, self.training)
        return h.transpose(0, 1).reshape(*x.shape[:-1], self.members, self.feature_dim)


class SmoothClip(nn.Module):
    """Numbers on a robust scale, bent softly so that none exceeds 3: z / sqrt(1 + (z / 3)^2).

    z = (x - median) / (q75 - q25) of training rows. A column whose quartiles are equal is divided by half of
    its range instead, and a constant column becomes 0.

    >>> clip = SmoothClip(1, [[0.0], [1.0], [2.0], [3.0], [4.0]])
    >>> clip(torch.tensor([[2.0], [4.0], [1e9]])).flatten()
    tensor([0.0000, 0.9487, 3.0000])
    """

    center: Tensor
    factor: Tensor

    def __init__(self, in_dim: int, rows: ArrayLike | Tensor | None = None) -> None:
        super().__init__()
        center, factor = np.zeros(in_dim), np.ones(in_dim)
        if rows is not None:
            low, q25, center, q75, high = np.quantile(np.asarray(rows), [0, 0.25, 0.5, 0.75, 1], axis=0)
            spread = np.where(q75 > q25, q75 - q25, (high - low) / 2)
            factor = np.divide(1.0, spread, out=np.zeros(in_dim), where=spread > 1e-6)
        self.register_buffer("center", torch.tensor(center, dtype=torch.float32))
        self.register_buffer("factor", torch.tensor(factor, dtype=torch.float32))

    def forward(self, x: Tensor) -> Tensor:
        """x: (N, F) -> (N, F)"""
        z = (x - self.center) * self.factor
        return z / (1 + (z / 3) ** 2).sqrt()


class DensePeriodic(nn.Module):
    """Each number x_j beside a few learnt mixtures of its waves: W_j cos(2 pi c_j x_j + b_j) + d_j.

    Each column has its own frequencies c_j, phases b_j and mixtures W_j, d_j.

    >>> DensePeriodic(3, frequencies=16, dim=3, frequency_std=0.1)(torch.zeros(5, 3)).shape
    torch.Size([5, 12])
    """

    def __init__(self, in_dim: int, frequencies: int, dim: int, frequency_std: float) -> None:
        super().__init__()
        self.frequency_std = frequency_std
        self.frequency = nn.Parameter(torch.empty(in_dim, 1, frequencies))
        self.phase = nn.Parameter(torch.empty(in_dim, 1, frequencies))
        self.mixture = nn.Parameter(torch.empty(in_dim, frequencies, dim))
        self.bias = nn.Parameter(torch.empty(in_dim, 1, dim))
        self.out_dim = in_dim * (1 + dim)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the waves and their mixtures again."""
        bound = self.mixture.shape[1] ** -0.5
        nn.init.normal_(self.frequency, 0.0, self.frequency_std)
        nn.init.uniform_(self.phase, -math.pi, math.pi)
        nn.init.uniform_(self.mixture, -bound, bound)
        nn.init.uniform_(self.bias, -bound, bound)

    def forward(self, x: Tensor) -> Tensor:
        """x: (N, F) -> (N, F * (1 + dim))"""
        column = x.T.unsqueeze(-1)  # (F, N, 1)
        waves = torch.cos(2 * math.pi * column * self.frequency + self.phase)
        return torch.cat([column, waves @ self.mixture + self.bias], -1).transpose(0, 1).flatten(1)


class WideLayer(nn.Module):
    """A linear layer, dropout, and x + a (mish(x) - x) with a learnt `a` for each neuron."""

    def __init__(self, in_dim: int, width: int, dropout: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(width, in_dim))
        self.bias = nn.Parameter(torch.empty(width))
        self.bend = nn.Parameter(torch.empty(width))
        self.dropout = dropout
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw weights and biases again, all layers with outputs of about unit variance."""
        nn.init.normal_(self.weight, 0.0, self.weight.shape[1] ** -0.5)
        nn.init.normal_(self.bias)
        nn.init.ones_(self.bend)

    def forward(self, x: Tensor) -> Tensor:
        """x: (N, in_dim) -> (N, width)"""
        x = F.linear(x, self.weight, self.bias)
        return dropout(x + self.bend * (F.mish(x) - x), self.dropout, self.training)


class RealMLP(Backbone):
    """RealMLP: robust scaling with a smooth clip, learnt scales, waves of each number and wide layers.

    Written from Holzmueller, Grinsztajn and Steinwart, Better by Default: Strong Pre-Tuned MLPs and Boosted
    Trees on Tabular Data (NeurIPS 2024). `research/results/networks.md` says which of its parts are here.
    Without `rows` it expects the buffers of another one.

    >>> RealMLP(4, width=32)(torch.zeros(5, 4)).shape
    torch.Size([5, 32])
    """

    def __init__(
        self,
        in_dim: int,
        *,
        rows: ArrayLike | Tensor | None = None,
        width: int = 256,
        blocks: int = 3,
        frequencies: int = 16,
        dim: int = 3,
        frequency_std: float = 0.1,
        dropout: float = 0.15,
    ) -> None:
        super().__init__()
        self.clip = SmoothClip(in_dim, rows)
        self.scale = nn.Parameter(torch.zeros(in_dim))
        self.embedding = DensePeriodic(in_dim, frequencies, dim, frequency_std)
        widths = [self.embedding.out_dim, *[width] * blocks]
        self.layers = nn.Sequential(*(WideLayer(*ends, dropout) for ends in pairwise(widths)))
        self.feature_dim = width

    def forward(self, x: Tensor) -> Tensor:
        """x: (..., in_dim) -> features (..., feature_dim)"""
        # Ten times as fast as other weights learn, and drawn towards 1 by weight decay.
        numbers = self.clip(x.reshape(-1, x.shape[-1])) * (1 + 10 * self.scale)
        features: Tensor = self.layers(self.embedding(numbers))
        return features.reshape(*x.shape[:-1], self.feature_dim)


def quantile_edges(rows: Rows, count: int = 16, max_rows: int = 100_000) -> list[list[float]]:
    """Return edges for `PiecewiseLinearEncoding` from training rows: at most `count` bins per column.

    A column with few distinct values has an edge at each value, any other column at its quantiles. Equal
    edges are merged; a constant column has one bin that starts at its value. rows: (N, F)

    >>> quantile_edges([[0, 5], [1, 5], [1, 5], [4, 5]], count=2)
    [[0.0, 1.0, 4.0], [5.0, 6.0]]
    """
    table = rows.detach().cpu().numpy() if isinstance(rows, Tensor) else np.asarray(rows)
    if table.ndim != 2:
        raise ValueError(f"rows must have shape (N, F), got {table.shape}")
    if len(table) > max_rows:
        table = table[np.random.default_rng(0).choice(len(table), max_rows, replace=False)]
    edges_of_columns = []
    for column in table.astype(np.float64).T:
        finite = column[np.isfinite(column)]
        edges = np.unique(finite)
        if edges.size > count + 1:
            edges = np.unique(np.quantile(finite, np.linspace(0, 1, count + 1)))
        if edges.size > 1:
            # Bins much narrower than the column's range would turn rounding errors into large inputs.
            apart = np.diff(edges) > 1e-6 * (edges[-1] - edges[0]) + 1e-30
            edges = edges[np.concatenate([[True], apart])]
        if edges.size < 2:
            start = edges[0] if edges.size else 0.0
            edges = np.array([start, start + max(1.0, 1e-6 * abs(start))])
        edges_of_columns.append([float(edge) for edge in edges])
    return edges_of_columns


class PiecewiseLinearEncoding(nn.Module):
    """The position of a number in each bin of its column, from 0 to 1, so that each bin has its own slope.

    (x_j - e_t) / (e_{t+1} - e_t), clipped to [0, 1]; Gorishniy et al., On Embeddings for Numerical
    Features in Tabular Deep Learning (NeurIPS 2022). The authors do not clip the outer bins; a value
    outside a narrow training range then dominates all other inputs. `edges` come from training rows, see
    `quantile_edges`.

    >>> PiecewiseLinearEncoding([[0, 1, 3]])(torch.tensor([[0.5], [2.0], [4.0]]))
    tensor([[0.5000, 0.0000],
            [1.0000, 0.5000],
            [1.0000, 1.0000]])
    """

    column: Tensor
    left: Tensor
    width: Tensor

    def __init__(self, edges: Edges) -> None:
        super().__init__()
        ends = [np.asarray(marks, dtype=np.float64) for marks in edges]
        for j, marks in enumerate(ends):
            if len(marks) < 2 or not (np.diff(marks) > 0).all():
                raise ValueError(
                    f"edges of column {j} must be two or more increasing numbers, got {marks.tolist()}"
                )
        column = np.repeat(np.arange(len(ends)), [len(marks) - 1 for marks in ends])
        left = np.concatenate([np.empty(0), *(marks[:-1] for marks in ends)])
        width = np.concatenate([np.empty(0), *map(np.diff, ends)])
        self.register_buffer("column", torch.as_tensor(column, dtype=torch.int64))
        self.register_buffer("left", torch.as_tensor(left, dtype=torch.float32))
        self.register_buffer("width", torch.as_tensor(width, dtype=torch.float32))
        self.edges = [marks.tolist() for marks in ends]
        self.out_dim = len(column)

    def forward(self, x: Tensor) -> Tensor:
        """x: (N, F) -> (N, bins of all columns)"""
        if x.shape[-1] != len(self.edges):
            raise ValueError(f"inputs have {x.shape[-1]} columns, but there are edges for {len(self.edges)}")
        # In place, because this is a third of the time of a step with large batches.
        return x.index_select(-1, self.column).sub_(self.left).div_(self.width).clamp_(0.0, 1.0)


class Embedded(Backbone):
    """A network whose inputs are the numbers and an embedding of them.

    >>> Embedded(PiecewiseLinearEncoding([[0, 1, 3]] * 3), MLP(3 + 6))(torch.zeros(5, 3)).shape
    torch.Size([5, 64])
    """

    def __init__(self, embedding: nn.Module, network: Backbone) -> None:
        super().__init__()
        self.embedding, self.network = embedding, network
        self.feature_dim, self.members = network.feature_dim, network.members

    def forward(self, x: Tensor) -> Tensor:
        """x: (N, in_dim) -> features (N, feature_dim), or with members (N, members, feature_dim)"""
        features: Tensor = self.network(torch.cat([x, self.embedding(x)], -1))
        return features


# -- by name -----------------------------------------------------------------------------------


BACKBONES: dict[str, type[Backbone]] = {
    "mlp": MLP,
    "residual": ResidualMLP,
    "mlp-ple": MLP,
    "residual-ple": ResidualMLP,
    "tabm": TabM,
    "realmlp": RealMLP,
}
"""Networks for tables by name; those named ``-ple`` are behind a `PiecewiseLinearEncoding`.

`research/results/backbones.md` compares them.
"""


def make_backbone(name: str, in_dim: int, *, rows: Rows | None = None, **options: Any) -> Backbone:
    """Build a network for standardised tables by name; its `feature_dim` is the size of its features.

    `rows` are training inputs (N, in_dim), from which networks named ``-ple`` take their bins, at most `bins`
    per column, and ``realmlp`` its scale; a model that is only loaded can take their `edges` instead, or the
    state of the other. Other options go to the network.

    >>> make_backbone("mlp", 8, hidden=(32,)).feature_dim
    32
    >>> make_backbone("mlp-ple", 2, rows=torch.rand(100, 2), bins=4)(torch.rand(5, 2)).shape
    torch.Size([5, 64])
    """
    check_name("backbone", name, BACKBONES)
    kind, encoded = BACKBONES[name], name.endswith("-ple")
    known = {*inspect.signature(kind).parameters, *(("edges", "bins") if encoded else ())} - {"in_dim"}
    for option in options:
        if option not in known:
            raise ValueError(f"unknown option {option!r} of backbone {name!r}{nearest(option, known)}")
    if encoded:
        edges, bins = options.pop("edges", None), options.pop("bins", 16)
        if edges is None and rows is None:
            raise ValueError("this backbone needs training rows or edges: pass rows=... or edges=...")
        edges = quantile_edges(cast("Rows", rows), bins) if edges is None else edges
        if len(edges) != in_dim:
            raise ValueError(f"there are edges for {len(edges)} columns, but the inputs have {in_dim}")
        embedding = PiecewiseLinearEncoding(edges)
        made: Backbone = Embedded(embedding, kind(in_dim + embedding.out_dim, **options))
    else:
        made = kind(in_dim, **options, **({"rows": rows} if "rows" in known else {}))
    made.name = name
    return made
