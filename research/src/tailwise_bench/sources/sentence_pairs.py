"""STS-B-DIR (Yang et al., 2021): sentence pairs as words or as frozen vectors, and networks for both."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tailwise.networks.backbones import Backbone
from tailwise_bench.networks.sentence_pairs import BiLSTMPair, PairDecoder, VectorPair
from tailwise_bench.problem import Problem, data_folder
from tailwise_bench.recipe import DataKind
from tailwise_bench.sources.words import Vocabulary, word_vectors

EDGES = np.linspace(0.0, 5.0, 51)
"""Edges of the 50 label bins of STS-B-DIR, each of width 0.1."""
SHOTS = (100, 30)
"""Limits of many and few shots: in DIR's published lists, few-shot bins have fewer than 30 training pairs."""
FOLDER, WORDS, VECTORS = "stsb-dir", "glove6B_50+100d.npz", "minilm384.npz"
PARTS = ("train", "dev", "test")
COLUMNS = ("sentence1", "sentence2", "score")


@dataclass(frozen=True, eq=False)
class SentencePairs:
    """Pairs of sentences with a score of their similarity."""

    first: list[str]  # N
    second: list[str]  # N
    score: NDArray[np.float64]  # (N,)


def read_pairs(path: Path) -> SentencePairs:
    """Read a file in the layout of GLUE's STS-B: tabs between fields, quotation marks are characters."""
    names, *lines = path.read_text(encoding="utf-8").rstrip("\n").split("\n")
    places = [names.split("\t").index(column) for column in COLUMNS]
    pairs = []
    for number, line in enumerate(lines, start=2):
        fields = line.split("\t")
        try:
            first, second, score = (fields[place].strip() for place in places)
            if not (first and second and 0 <= float(score) <= 5):
                raise ValueError
        except (ValueError, IndexError):
            raise ValueError(f"{path}, line {number}: expected two sentences and a score of 0 to 5") from None
        pairs.append((first, second, float(score)))
    first_ones, second_ones, scores = (list(column) for column in zip(*pairs, strict=True))
    return SentencePairs(first_ones, second_ones, np.array(scores, np.float64))


def load_stsb_dir(folder: Path) -> list[SentencePairs]:
    """Return the training, dev and test parts, of DIR's files ``train_new.tsv`` if they are there."""
    end = "_new" if (folder / "train_new.tsv").is_file() else ""
    return [read_pairs(folder / f"{part}{end}.tsv") for part in PARTS]


Part = tuple[Any, Any]


def _problem(name: str, seed: int, train: Part, dev: Part, test: Part, **about: Any) -> Problem:
    """Return a problem from the inputs and scores of training, dev and test pairs."""
    total = sum(len(scores) for _, scores in (train, dev, test))
    return Problem(name, seed, *train, *dev, *test, total=total, edges=EDGES, shots=SHOTS, **about)


@dataclass(frozen=True)
class WordPairs:
    """Word numbers (N, 2, L) of each pair and the vectors of all words, with DIR's split."""

    name: str = "stsb"

    def problem(self, seed: int, max_rows: int = 0) -> Problem:
        """Read the three parts; the seed only affects weights and batches."""
        folder = data_folder(FOLDER)
        parts = load_stsb_dir(folder)
        vocabulary = Vocabulary.build([*parts[0].first, *parts[0].second], vectors=folder / WORDS)
        encoded = [(vocabulary.encode_pairs(part.first, part.second), part.score) for part in parts]
        # Half precision keeps the file small; it changes vectors by at most 1 part in 2,000.
        vectors = word_vectors(folder / WORDS, vocabulary).astype(np.float16)
        return _problem(self.name, seed, *encoded, extra={"vectors": vectors})


@dataclass(frozen=True)
class VectorPairs:
    """Frozen vectors (N, 2, D) of both sentences of each pair, with DIR's split."""

    name: str = "stsb"

    def problem(self, seed: int, max_rows: int = 0) -> Problem:
        """Read the three parts; the seed only affects weights and batches."""
        with np.load(data_folder(FOLDER) / VECTORS, allow_pickle=False) as stored:
            pairs = {part: np.stack([stored[f"{part}_a"], stored[f"{part}_b"]], axis=1) for part in PARTS}
            parts = [
                (x.astype(np.float32), stored[f"{part}_y"].astype(np.float64)) for part, x in pairs.items()
            ]
        return _problem(self.name, seed, *parts)


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
