"""Word vectors from npz files with ``words`` (W,) and ``vectors`` (W, D)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from tailwise_bench.sentences.words import Vocabulary

_RESERVED = 2  # padding and unknown, the first two ids of a vocabulary


def vector_words(path: Path) -> list[str]:
    """Return the words of a file of word vectors in its order."""
    with np.load(path, allow_pickle=False) as stored:
        words: list[str] = stored["words"].tolist()
    return words


def word_vectors(path: Path, vocabulary: Vocabulary, *, seed: int = 0) -> NDArray[np.float32]:
    """Return a vector for every id of the vocabulary. (V, D)

    Padding is all zeros; the unknown word is the mean of the vectors found. A word that the file lacks gets a
    random vector of the same mean and spread, so that the network sees whether both sentences contain the
    same name.
    """
    with np.load(path, allow_pickle=False) as stored:
        rows = {word: row for row, word in enumerate(stored["words"].tolist())}
        vectors = stored["vectors"].astype(np.float32)
    present = np.array([word in rows for word in vocabulary.words])
    known = vectors[[rows[word] for word in vocabulary.words if word in rows]]
    mean, spread = known.mean(axis=0, dtype=np.float64), known.std(axis=0, dtype=np.float64)
    drawn = np.random.default_rng(seed).normal(mean, spread, (int((~present).sum()), known.shape[1]))
    table = np.zeros((len(vocabulary), known.shape[1]), np.float32)
    table[1] = mean
    table[_RESERVED:][present] = known
    table[_RESERVED:][~present] = drawn
    return table
