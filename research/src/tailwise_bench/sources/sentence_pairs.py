"""STS-B-DIR: sentence pairs as words or as frozen vectors, and networks for both."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tailwise.networks.backbones import Backbone
from tailwise_bench.networks.sentence_pairs import BiLSTMPair, PairDecoder, VectorPair
from tailwise_bench.problem import DataSet, Problem, data_folder
from tailwise_bench.recipe import DataKind

EDGES = np.linspace(0.0, 5.0, 51)
"""Edges of the 50 label bins of STS-B-DIR, each of width 0.1."""
SHOTS = (100, 30)
"""Limits of many and few shots: in DIR's published lists, few-shot bins have fewer than 30 training pairs."""
FOLDER, WORDS, VECTORS = "stsb-dir", "glove6B_50+100d.npz", "minilm384.npz"


Part = tuple[Any, Any]


def _problem(name: str, seed: int, train: Part, dev: Part, test: Part, **about: Any) -> Problem:
    """Return a problem from the inputs and scores of training, development and test pairs."""
    total = sum(len(scores) for _, scores in (train, dev, test))
    return Problem(name, seed, *train, *dev, *test, total=total, edges=EDGES, shots=SHOTS, **about)


@dataclass(frozen=True)
class WordPairs:
    """Word numbers (N, 2, L) of each pair and the vectors of all words, with DIR's split."""

    name: str = "stsb"
    max_length: int = 40

    def problem(self, seed: int, *, max_rows: int = 0, suite: str = "") -> Problem:
        """Read the three parts; the seed only affects weights and batches."""
        from tailwise_bench.sentences.pairs import load_stsb_dir
        from tailwise_bench.sentences.vectors import word_vectors
        from tailwise_bench.sentences.words import Vocabulary

        folder = data_folder(FOLDER)
        parts = load_stsb_dir(folder)
        vocabulary = Vocabulary.build(parts.train.sentences, vectors=folder / WORDS)
        train, dev, test = (
            (vocabulary.encode_pairs(part, self.max_length), part.score)
            for part in (parts.train, parts.dev, parts.test)
        )
        # Half precision keeps the file small; it changes vectors by at most 1 part in 2,000.
        vectors = word_vectors(folder / WORDS, vocabulary).astype(np.float16)
        return _problem(self.name, seed, train, dev, test, suite=suite, extra={"vectors": vectors})


@dataclass(frozen=True)
class VectorPairs:
    """Frozen vectors (N, 2, D) of both sentences of each pair, with DIR's split."""

    name: str = "stsb"

    def problem(self, seed: int, *, max_rows: int = 0, suite: str = "") -> Problem:
        """Read the three parts; the seed only affects weights and batches."""
        from tailwise_bench.sentences.pairs import load_sentence_vectors

        parts = load_sentence_vectors(data_folder(FOLDER) / VECTORS)
        train, dev, test = ((part.x, part.y) for part in (parts.train, parts.dev, parts.test))
        return _problem(self.name, seed, train, dev, test, suite=suite)


DATA: dict[str, DataSet] = {"stsb-words": WordPairs(), "stsb-vectors": VectorPairs()}
"""Data sets by the names that a suite's file uses."""


def word_pair(problem: Problem, **options: Any) -> Backbone:
    """Build a network that starts from the problem's word vectors."""
    return BiLSTMPair(problem.extra["vectors"], **options)


def vector_pair(problem: Problem, **options: object) -> Backbone:
    """Build a network on sentence vectors that are standardised by the training part."""
    return VectorPair(problem.x_train.shape[-1], rows=problem.x_train, **options)  # type: ignore[arg-type]


NETWORKS: dict[str, Callable[..., Backbone]] = {
    "bilstm-pair": word_pair,
    "vector-pair": vector_pair,
}
"""Networks by the names that a suite's file uses."""


def pair_decoder(problem: Problem, latent_dim: int) -> PairDecoder:
    """Build a decoder of both sentences' vectors: the given ones, or means of word vectors."""
    if "vectors" in problem.extra:
        return PairDecoder(latent_dim, problem.extra["vectors"])
    return PairDecoder(latent_dim, dim=problem.x_train.shape[-1])


PAIRS = DataKind(DATA, NETWORKS, pair_decoder)
"""Sentence pairs."""
