"""STS-B-DIR (Yang et al., 2021): sentence pairs as words or as frozen vectors, and networks for both."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from tailwise.networks.backbones import MLP, Backbone
from tailwise.networks.draws import Dropout
from tailwise_bench.problem import Problem, data_folder
from tailwise_bench.recipe import DataKind
from tailwise_bench.sources.words import PADDING, Vocabulary, word_vectors

EDGES = np.linspace(0.0, 5.0, 51)
"""Edges of the 50 label bins of STS-B-DIR, each of width 0.1."""
SHOTS = (100, 30)
"""Limits of many and few shots: in DIR's published lists, few-shot bins have fewer than 30 training pairs."""
FOLDER, WORDS, VECTORS = "stsb-dir", "glove6B_50+100d.npz", "minilm384.npz"
PARTS = ("train", "dev", "test")
COLUMNS = ("sentence1", "sentence2", "score")


def read_pairs(path: Path) -> tuple[list[tuple[str, str]], NDArray[np.float64]]:
    """Return pairs of sentences and their scores (N,) from a file in the layout of GLUE's STS-B.

    Tabs are between its fields, and quotation marks are characters.
    """
    names, *lines = path.read_text(encoding="utf-8").rstrip("\n").split("\n")
    places = [names.split("\t").index(column) for column in COLUMNS]
    pairs, scores = [], []
    for number, line in enumerate(lines, start=2):
        fields = line.split("\t")
        try:
            first, second, score = (fields[place].strip() for place in places)
            if not (first and second and 0 <= float(score) <= 5):
                raise ValueError
        except (ValueError, IndexError):
            raise ValueError(f"{path}, line {number}: expected two sentences and a score of 0 to 5") from None
        pairs.append((first, second))
        scores.append(float(score))
    return pairs, np.array(scores)


Part = tuple[NDArray[Any], NDArray[np.float64]]


def _problem(name: str, seed: int, train: Part, dev: Part, test: Part, **about: Any) -> Problem:
    """Return a problem from the inputs and scores of training, dev and test pairs."""
    total = sum(len(scores) for _, scores in (train, dev, test))
    return Problem(name, seed, *train, *dev, *test, total=total, edges=EDGES, shots=SHOTS, **about)


@dataclass(frozen=True)
class WordPairs:
    """Word numbers (N, 2, L) of each pair and the vectors of all words, with DIR's split.

    DIR's own files, ``train_new.tsv``, have precedence.
    """

    name: str = "stsb"

    def problem(self, seed: int, max_rows: int = 0) -> Problem:
        """Read the three parts; the seed only affects weights and batches."""
        folder = data_folder(FOLDER)
        end = "_new" if (folder / "train_new.tsv").is_file() else ""
        parts = [read_pairs(folder / f"{part}{end}.tsv") for part in PARTS]
        with np.load(folder / WORDS, allow_pickle=False) as stored:
            words, vectors = stored["words"].tolist(), stored["vectors"].astype(np.float32)
        firsts, seconds = zip(*parts[0][0], strict=True)
        vocabulary = Vocabulary.build([*firsts, *seconds], words)
        encoded = [(vocabulary.encode_pairs(pairs), scores) for pairs, scores in parts]
        # Half precision changes vectors by at most 1 part in 2,000.
        table = word_vectors(words, vectors, vocabulary).astype(np.float16)
        return _problem(self.name, seed, *encoded, extra={"vectors": table})


@dataclass(frozen=True)
class VectorPairs:
    """Frozen vectors (N, 2, D) of both sentences of each pair, with DIR's split."""

    name: str = "stsb"

    def problem(self, seed: int, max_rows: int = 0) -> Problem:
        """Read the three parts; the seed only affects weights and batches."""
        parts = []
        with np.load(data_folder(FOLDER) / VECTORS, allow_pickle=False) as stored:
            for part in PARTS:
                pairs = np.stack([stored[f"{part}_a"], stored[f"{part}_b"]], axis=1)
                parts.append((pairs.astype(np.float32), stored[f"{part}_y"].astype(np.float64)))
        return _problem(self.name, seed, *parts)


# -- networks --------------------------------------------------------------------------------------


def pair_features(u: Tensor, v: Tensor) -> Tensor:
    """Return the features of two sentences, [u; v; |u - v|; u v]. (N, D) twice -> (N, 4 D)"""
    return torch.cat([u, v, (u - v).abs(), u * v], -1)


class _BiLSTMLayer(nn.Module):
    """One layer, both directions, for sentences of unequal length, padded on the right.

    The backward direction starts at each sentence's last word: sentences are reversed within their
    length, so padding stays on the right, where it does not affect any state in use. Unlike packing,
    this needs no lengths on the host, so nothing waits for the device.
    """

    def __init__(self, in_dim: int, hidden: int) -> None:
        super().__init__()
        self.forth = nn.LSTM(in_dim, hidden, batch_first=True)
        self.back = nn.LSTM(in_dim, hidden, batch_first=True)

    def forward(self, x: Tensor, turned: Tensor) -> Tensor:
        """x: (N, L, in_dim), turned: (N, L, 1) positions read from the end -> (N, L, 2 hidden)"""
        forth, _ = self.forth(x)
        back, _ = self.back(x.gather(1, turned.expand_as(x)))
        return torch.cat([forth, back.gather(1, turned.expand_as(back))], -1)


class BiLSTMPair(Backbone):
    """Encode two sentences with one BiLSTM and compare them: word numbers (N, 2, L) to features.

    Word vectors, two layers of 1500 units per direction, the maximum over time for each sentence,
    u and v, then [u; v; |u - v|; u v] and a hidden layer: the encoder of GLUE's baselines (Wang et
    al., 2018) that DIR and VIR use on STS-B-DIR. Row 0 of `vectors` (words, dim) is the padding. The
    vectors are not trained. With `projection` None the features are the 4 * 2 * hidden
    numbers of the pair. Dropout has one mask for both sentences of a pair and all their words.

    >>> net = BiLSTMPair(np.eye(5, 4), hidden=8, layers=1, projection=16)
    >>> net(torch.tensor([[[1, 2, 0], [3, 4, 1]]])).shape
    torch.Size([1, 16])
    """

    vectors: Tensor

    def __init__(
        self,
        vectors: ArrayLike | Tensor,
        *,
        hidden: int = 1500,
        layers: int = 2,
        dropout: float = 0.2,
        projection: int | None = 512,
    ) -> None:
        super().__init__()
        table = torch.as_tensor(np.asarray(vectors), dtype=torch.float32)
        # Not an `nn.Embedding`: the vectors are data and must not be drawn again.
        self.register_buffer("vectors", table)
        widths = [table.shape[1]] + [2 * hidden] * (layers - 1)
        self.layers = nn.ModuleList(_BiLSTMLayer(width, hidden) for width in widths)
        self.dropout = Dropout(dropout)
        self.feature_dim = 8 * hidden
        self.project: nn.Module = nn.Identity()
        if projection is not None:
            self.project = nn.Sequential(
                nn.Linear(self.feature_dim, projection),
                nn.Tanh(),
                nn.LayerNorm(projection),
                Dropout(dropout),
            )
            self.feature_dim = projection

    @staticmethod
    def row_lengths(x: Tensor) -> Tensor:
        """Return the number of words of each pair's longer sentence. (N, 2, L) -> (N,)"""
        return (x != PADDING).sum(-1).amax(-1)

    def encode(self, words: Tensor) -> Tensor:
        """Return sentence vectors: the maximum over time of the last layer. (2 N, L) -> (2 N, 2 hidden)

        The first N rows are the first sentences of the pairs, the other N the second ones.
        """
        there = words != PADDING
        at, length = torch.arange(words.shape[1], device=words.device), there.sum(-1, keepdim=True)
        turned = torch.where(at < length, length - 1 - at, at).unsqueeze(-1)
        h = F.embedding(words, self.vectors, padding_idx=PADDING)
        for layer in self.layers:
            h = layer(self._dropped(h), turned)
        lowest = torch.finfo(h.dtype).min
        # The vector of an empty sentence is 0.
        return h.masked_fill(~there.unsqueeze(-1), lowest).amax(1) * (length > 0)

    def _dropped(self, h: Tensor) -> Tensor:
        """Return h after dropout with one mask for both sentences of a pair and all their words. (2 N, L, D)

        With separate masks, two sentences look less alike in training than at prediction, so the network
        would overestimate their similarity.
        """
        mask: Tensor = self.dropout(h.new_ones(len(h) // 2, 1, h.shape[-1]))
        return h * mask.repeat(2, 1, 1)

    def forward(self, x: Tensor) -> Tensor:
        """x: (N, 2, L) word numbers, padded on the right -> features (N, feature_dim)"""
        u, v = self.encode(x.transpose(0, 1).reshape(-1, x.shape[-1])).chunk(2)  # (N, 2 hidden) each
        features: Tensor = self.project(self.dropout(pair_features(u, v)))
        return features


class VectorPair(Backbone):
    """Compare two sentences by frozen vectors of any encoder: (N, 2, D) to features.

    [u + v; |u - v|; u v] and the cosine of u and v, which do not depend on the order of the sentences,
    standardised by training `rows` if given, then a small network.

    >>> VectorPair(384, hidden=(64,))(torch.rand(5, 2, 384)).shape
    torch.Size([5, 64])
    """

    location: Tensor
    scale: Tensor

    def __init__(
        self,
        dim: int,
        *,
        rows: ArrayLike | Tensor | None = None,
        hidden: Sequence[int] = (256, 64),
        dropout: float = 0.2,
        input_dropout: float = 0.0,
    ) -> None:
        super().__init__()
        width = 3 * dim + 1
        self.register_buffer("location", torch.zeros(width))
        self.register_buffer("scale", torch.ones(width))
        if rows is not None:
            known = self._compared(torch.as_tensor(np.asarray(rows), dtype=torch.float32))
            self.location.copy_(known.mean(0))
            self.scale.copy_(known.std(0, correction=0).clamp(min=1e-6))
        self.input_dropout = Dropout(input_dropout)
        self.network = MLP(width, hidden, dropout)
        self.feature_dim = self.network.feature_dim

    def _compared(self, x: Tensor) -> Tensor:
        u, v = x.unbind(-2)
        return torch.cat([u + v, (u - v).abs(), u * v, F.cosine_similarity(u, v, dim=-1).unsqueeze(-1)], -1)

    def forward(self, x: Tensor) -> Tensor:
        """x: (N, 2, D) -> features (N, feature_dim)"""
        standardised = (self._compared(x) - self.location) / self.scale
        features: Tensor = self.network(self.input_dropout(standardised))
        return features


class PairDecoder(nn.Module):
    """Reconstructs the sentence embeddings of a pair from its latent, for VIR:recon.

    The embedding of a sentence is the mean of its word vectors. Unlike the BiLSTM's own it is fixed, so
    that the encoder cannot make the task easy by making all sentences alike. Inputs that are sentence
    vectors (N, 2, D) are reconstructed themselves.
    """

    vectors: Tensor

    def __init__(self, latent_dim: int, vectors: ArrayLike | Tensor | None = None, dim: int = 0) -> None:
        super().__init__()
        table = torch.as_tensor(np.zeros((0, dim)) if vectors is None else np.asarray(vectors))
        self.register_buffer("vectors", table.to(torch.float32))
        self.numbers = 2 * table.shape[1]
        self.head = nn.Linear(latent_dim, self.numbers)

    def targets(self, x: Tensor) -> Tensor:
        """Return the sentence embeddings of a pair. (N, 2, L) words or (N, 2, D) vectors -> (N, 2 D)"""
        if x.is_floating_point():
            return x.flatten(1)
        there = (x != PADDING).unsqueeze(-1)
        means = (F.embedding(x, self.vectors) * there).sum(-2) / there.sum(-2).clamp(min=1)
        return means.flatten(1)

    def nll(self, z: Tensor, x: Tensor) -> Tensor:
        """Return -log p(embeddings | z) with unit variance, without constants. z: (N, D) -> (N,)"""
        predicted: Tensor = self.head(z)
        return 0.5 * (self.targets(x) - predicted).pow(2).sum(-1)


# -- batches ---------------------------------------------------------------------------------------

POOL = 16
"""Number of batches whose rows are sorted together: more need less padding, fewer mix rows better."""


@dataclass(frozen=True)
class BatchesByLength:
    """Rows of word numbers, padded along their last dimension, in batches cut to their longest row.

    x: (N, ..., L), y: (N,), lengths: (N,)
    """

    x: Tensor
    y: Tensor
    lengths: Tensor

    @property
    def row_count(self) -> int:
        """The number of rows."""
        return len(self.y)

    def fingerprint(self) -> str:
        """Return a text that differs for other labels or lengths."""
        return f"labels that sum to {float(self.y.sum())!r}, words to {int(self.lengths.sum())}"

    def shard(self, number: int, shards: int, size: int, seed: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield every `shards`-th batch of an epoch, from `number` on."""
        order = torch.randperm(len(self.y), generator=torch.Generator().manual_seed(seed))
        for rows in by_length(order, self.lengths[order], size, seed)[number::shards]:
            yield self.x[rows][..., : max(1, int(self.lengths[rows].max()))], self.y[rows]


def by_length(rows: Tensor, lengths: Tensor, size: int, seed: int) -> tuple[Tensor, ...]:
    """Group rows of similar length into batches of nearly equal size, in random order. rows, lengths: (n,)

    >>> by_length(torch.tensor([7, 8, 9]), torch.tensor([5, 1, 5]), size=2, seed=0)
    (tensor([9, 7]), tensor([8]))
    """
    count = -(-len(rows) // size)
    rng = np.random.default_rng(seed)
    order, longest = rng.permutation(len(rows)), lengths.numpy()
    ends = np.arange(count + 1) * len(rows) // count
    for start in range(0, count, POOL):
        drawn = slice(ends[start], ends[min(start + POOL, count)])
        order[drawn] = order[drawn][np.argsort(longest[order[drawn]], kind="stable")]
    return tuple(rows[torch.from_numpy(order[ends[i] : ends[i + 1]])] for i in rng.permutation(count))


def _word_network(problem: Problem, **options: Any) -> Backbone:
    return BiLSTMPair(problem.extra["vectors"], **options)


def _vector_network(problem: Problem, **options: Any) -> Backbone:
    return VectorPair(problem.x_train.shape[-1], rows=problem.x_train, **options)


def _decoder(problem: Problem, latent_dim: int) -> PairDecoder:
    return PairDecoder(latent_dim, problem.extra.get("vectors"), dim=problem.x_train.shape[-1])


PAIRS = DataKind(
    {"stsb-words": WordPairs(), "stsb-vectors": VectorPairs()},
    {"bilstm-pair": _word_network, "vector-pair": _vector_network},
    _decoder,
)
"""Sentence pairs."""
