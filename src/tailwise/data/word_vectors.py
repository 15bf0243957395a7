"""Word vectors from files: npz, or GloVe's text format, of which only the wanted words are kept."""

from __future__ import annotations

import gzip
import itertools
import zlib
from collections.abc import Container, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from tailwise.data.sentences import read_arrays
from tailwise.table_files import TableError

if TYPE_CHECKING:
    from tailwise.data.words import Vocabulary

Vector = NDArray[np.float32]
_RESERVED = 2  # padding and unknown, the first two ids of a vocabulary


def word_vectors(path: str | Path, vocabulary: Vocabulary, *, seed: int = 0) -> NDArray[np.float32]:
    """Return a vector for every id of the vocabulary. (V, D)

    The file is npz with ``words`` (W,) and ``vectors`` (W, D), or text with a word and its D numbers on
    each line, gzip or not, as GloVe's and word2vec's are; a text file is read line by line and may be
    larger than memory. Padding is all zeros and the unknown word the mean of the vectors found. A word of
    the vocabulary that the file lacks gets a random vector of the same mean and spread, so that the
    network can tell that the same name is in both sentences.
    """
    found = _vectors_of(Path(path), frozenset(vocabulary.words))
    if not found:
        raise TableError(
            f"{path} has a vector for none of the {len(vocabulary.words)} words: is it the right file?"
        )
    rows = [found.get(word) for word in vocabulary.words]
    present = np.array([row is not None for row in rows])
    known = np.stack([row for row in rows if row is not None])
    mean, spread = known.mean(axis=0, dtype=np.float64), known.std(axis=0, dtype=np.float64)
    drawn = np.random.default_rng(seed).normal(mean, spread, (int((~present).sum()), known.shape[1]))
    table = np.zeros((len(vocabulary), known.shape[1]), np.float32)
    table[1] = mean
    table[_RESERVED:][present] = known
    table[_RESERVED:][~present] = drawn
    return table


def vector_words(path: str | Path, most: int | None = None) -> list[str]:
    """Return the words that a file of word vectors holds, in its order; at most the first `most`."""
    path = Path(path)
    words = _npz(path)[0] if path.suffix == ".npz" else (word for _, word, _ in _lines(path))
    return list(dict.fromkeys(itertools.islice(words, most)))


def _vectors_of(path: Path, wanted: Container[str]) -> dict[str, Vector]:
    """The vectors of the wanted words; where a word is there twice, the first counts."""
    found: dict[str, Vector] = {}
    if path.suffix == ".npz":
        words, vectors = _npz(path)
        for word, vector in zip(words, vectors, strict=True):
            if word in wanted:
                found.setdefault(word, vector)
        return found
    for line, word, numbers in _lines(path):
        if word in wanted and word not in found:
            found[word] = _vector(numbers, path, line)
    return found


def _npz(path: Path) -> tuple[list[str], Vector]:
    stored = read_arrays(path, ["words", "vectors"])
    words, vectors = stored["words"], stored["vectors"]
    kinds = words.dtype.kind == "U" and vectors.dtype.kind in "fiu"
    if not kinds or words.ndim != 1 or vectors.ndim != 2 or len(words) != len(vectors):
        raise TableError(
            f"{path}: words must be texts (W,) and vectors numbers (W, D), but they are "
            f"{words.dtype} {words.shape} and {vectors.dtype} {vectors.shape}"
        )
    with np.errstate(over="ignore"):
        numbers = vectors.astype(np.float32)
    bad = ~np.isfinite(numbers).all(axis=1)
    if bad.any():
        raise TableError(f"{path}: the vector of {str(words[bad.argmax()])!r} is not finite")
    return words.tolist(), numbers


def _lines(path: Path) -> Iterator[tuple[int, str, str]]:
    """Line number, word and the text of its numbers, for every line of a text file of vectors."""
    if not path.is_file():
        raise TableError(f"{path} does not exist: name a file of word vectors, npz or text")
    with path.open("rb") as raw:
        packed = raw.read(2) == b"\x1f\x8b"
    size = 0
    try:
        with gzip.open(path) if packed else path.open("rb") as file:
            for line, content in enumerate(file, start=1):
                text = content.decode("utf-8", errors="surrogateescape").rstrip()
                gaps = text.count(" ")
                if line == 1 and gaps == 1 and text.replace(" ", "").isdigit():
                    continue  # word2vec's first line: how many words, how many numbers each
                size = size or gaps
                if gaps < max(size, 1) or "  " in text:
                    raise TableError(
                        f"{path}: line {line} is not a word and {size or 'its'} numbers with one space "
                        "between: mend it, or download the file again"
                    )
                # Some words of GloVe hold spaces themselves: the numbers are the last fields.
                word = text.split(" ", 1)[0] if gaps == size else text.rsplit(" ", size)[0]
                yield line, word, text[len(word) + 1 :]
    except (OSError, EOFError, zlib.error) as error:
        raise TableError(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from None
    if not size:
        raise TableError(f"{path} is empty: a file of word vectors has a word and its numbers on each line")


def _vector(numbers: str, path: Path, line: int) -> Vector:
    try:
        with np.errstate(over="ignore"):
            vector = np.array(numbers.split(" ")).astype(np.float32)
    except ValueError as error:
        raise TableError(f"{path}: line {line} is not a word and its numbers: {error}") from None
    if not np.isfinite(vector).all():
        raise TableError(f"{path}: line {line} holds a number that is not finite")
    return vector
