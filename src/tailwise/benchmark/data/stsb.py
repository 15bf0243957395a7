"""STS-B-DIR for the benchmark: sentence pairs as words or as frozen vectors, and networks for either."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from tailwise.benchmark.data.problems import Problem
from tailwise.networks.backbones import PAIR_ENCODERS, Backbone, PairDecoder, VectorPair, make_pair_backbone

EDGES = np.linspace(0.0, 5.0, 51)
"""Label bins of STS-B-DIR: 50 of width 0.1."""
SHOTS = (100, 30)
"""DIR's published lists of few-shot bins hold those of fewer than 30 training pairs, not 20."""
WORDS, VECTORS = "glove6B_50+100d.npz", "minilm384.npz"


def _folder() -> Path:
    named = os.environ.get("TAILWISE_DATA")
    if not named:
        raise ValueError(
            "STS-B-DIR is read from TAILWISE_DATA/stsb-dir: set TAILWISE_DATA to the folder above"
        )
    return Path(named) / "stsb-dir"


@dataclass(frozen=True)
class WordPairs:
    """Word numbers (N, 2, L) of each pair, with the words' vectors beside them; DIR's own split."""

    name: str = "stsb"
    max_length: int = 40

    def problem(self, seed: int, *, max_rows: int = 0, per_bin: int = 0, suite: str = "") -> Problem:
        """Read the three parts; a seed draws weights and batches only."""
        from tailwise.data import Vocabulary, load_stsb_dir, word_vectors

        folder = _folder()
        parts = load_stsb_dir(folder)
        vocabulary = Vocabulary.build(parts.train.sentences, vectors=folder / WORDS)
        x = {p: vocabulary.encode_pairs(getattr(parts, p), self.max_length) for p in ("train", "dev", "test")}
        return Problem(
            self.name,
            seed,
            *(x["train"], parts.train.score, x["dev"], parts.dev.score, x["test"], parts.test.score),
            total=len(parts.train) + len(parts.dev) + len(parts.test),
            suite=suite,
            edges=EDGES,
            shots=SHOTS,
            # Half precision keeps the file small; rounding them changes vectors by a part in 2,000.
            extra={"vectors": word_vectors(folder / WORDS, vocabulary).astype(np.float16)},
        )


@dataclass(frozen=True)
class VectorPairs:
    """Frozen vectors (N, 2, D) of both sentences of each pair; DIR's own split."""

    name: str = "stsb"

    def problem(self, seed: int, *, max_rows: int = 0, per_bin: int = 0, suite: str = "") -> Problem:
        """Read the three parts; a seed draws weights and batches only."""
        from tailwise.data import load_sentence_vectors

        parts = load_sentence_vectors(_folder() / VECTORS)
        return Problem(
            self.name,
            seed,
            *(parts.train.x, parts.train.y, parts.dev.x, parts.dev.y, parts.test.x, parts.test.y),
            total=len(parts.train) + len(parts.dev) + len(parts.test),
            suite=suite,
            edges=EDGES,
            shots=SHOTS,
        )


DATA: dict[str, WordPairs | VectorPairs] = {"stsb-words": WordPairs(), "stsb-vectors": VectorPairs()}
"""Data sets that a configuration can name."""


def word_pair(problem: Problem, *, encoder: str, **options: object) -> Backbone:
    """Build a network on the problem's word vectors."""
    return make_pair_backbone(encoder, problem.extra["vectors"], **options)


def vector_pair(problem: Problem, **options: object) -> Backbone:
    """Build a network on sentence vectors, standardised by the training part."""
    return VectorPair(problem.x_train.shape[-1], rows=problem.x_train, **options)  # type: ignore[arg-type]


NETWORKS: dict[str, Callable[..., Backbone]] = {
    **{f"{name}-pair": partial(word_pair, encoder=name) for name in PAIR_ENCODERS},
    "vector-pair": vector_pair,
}
"""Networks that a configuration can name, with the options of their classes."""


def pair_decoder(problem: Problem, latent_dim: int) -> PairDecoder:
    """Build what reconstructs the vectors of both sentences: given ones, or the mean of their words'."""
    if "vectors" in problem.extra:
        return PairDecoder(latent_dim, problem.extra["vectors"])
    return PairDecoder(latent_dim, dim=problem.x_train.shape[-1])


def network_options(name: str) -> dict[str, Any]:
    """Options of a network that a configuration can set, with their types."""
    kind = VectorPair if name == "vector-pair" else PAIR_ENCODERS[name.removesuffix("-pair")]
    parameters = inspect.signature(kind, eval_str=True).parameters.values()
    return {p.name: p.annotation for p in parameters if p.kind is p.KEYWORD_ONLY and p.name != "rows"}
