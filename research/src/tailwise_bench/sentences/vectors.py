"""Word vectors from npz files or text files such as GloVe's; only the vectors of given words are kept."""

from __future__ import annotations

import gzip
import itertools
import re
import zipfile
import zlib
from collections.abc import Container, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from tailwise.tables.columns import as_number
from tailwise.tables.read import TableError, refuse_other_formats
from tailwise_bench.sentences.arrays import read_arrays

if TYPE_CHECKING:
    from tailwise_bench.sentences.words import Vocabulary

Vector = NDArray[np.float32]
_GZIP = b"\x1f\x8b"
_HEADER = re.compile(r"[0-9]{1,12} [0-9]{1,6}")
_RESERVED = 2  # padding and unknown, the first two ids of a vocabulary


def word_vectors(path: str | Path, vocabulary: Vocabulary, *, seed: int = 0) -> NDArray[np.float32]:
    """Return a vector for every id of the vocabulary. (V, D)

    The file is npz with ``words`` (W,) and ``vectors`` (W, D), or text with a word and its D numbers on
    each line, gzip or not, as from GloVe or word2vec. A text file is read line by line and may be larger
    than memory. If a word occurs twice, its first vector is used. Padding is all zeros; the unknown word is
    the mean of the vectors found. A word that the file lacks gets a random vector of the same mean and
    spread, so that the network sees whether both sentences contain the same name.
    """
    if not vocabulary.words:
        raise ValueError("the vocabulary holds no words: build it from the training sentences")
    found = _vectors_of(Path(path), frozenset(vocabulary.words))
    if not found:
        raise TableError(
            f"{path} has a vector for none of the {len(vocabulary.words)} words, such as "
            f"{vocabulary.words[0]!r}: is it the right file, with words in lower case?"
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
    """Return the words of a file of word vectors in its order, or its first `most` words."""
    if most is not None and most < 0:
        raise ValueError(f"most must be at least 0, got {most}")
    path = Path(path)
    words = _npz(path)[0] if _is_npz(path) else (word for _, word, _ in _lines(path))
    return list(dict.fromkeys(itertools.islice(words, most)))


def _vectors_of(path: Path, wanted: Container[str]) -> dict[str, Vector]:
    """The vectors of the wanted words; the first one if a word occurs twice."""
    found: dict[str, Vector] = {}
    if _is_npz(path):
        words, vectors = _npz(path)
        for word, vector in zip(words, vectors, strict=True):
            if word in wanted:
                found.setdefault(word, vector)
        return found
    for line, word, numbers in _lines(path):
        if word in wanted and word not in found:
            found[word] = _vector(numbers, path, line)
    return found


def _is_npz(path: Path) -> bool:
    """Whether a file is npz, by its name or by the arrays in it."""
    if path.suffix == ".npz" or not path.is_file() or not zipfile.is_zipfile(path):
        return path.suffix == ".npz"
    try:
        with zipfile.ZipFile(path) as archive:
            return "words.npy" in archive.namelist()
    except zipfile.BadZipFile:
        return False


def _npz(path: Path) -> tuple[list[str], Vector]:
    stored = read_arrays(path, ["words", "vectors"])
    words, vectors = stored["words"], stored["vectors"]
    kinds = words.dtype.kind == "U" and vectors.dtype.kind in "fiu"
    if not kinds or words.ndim != 1 or vectors.ndim != 2 or len(words) != len(vectors) or vectors.size == 0:
        raise TableError(
            f"{path}: words must be texts (W,) and vectors numbers (W, D), but they are "
            f"{words.dtype} {words.shape} and {vectors.dtype} {vectors.shape}"
        )
    with np.errstate(over="ignore"):
        numbers = vectors.astype(np.float32)
    bad = ~np.isfinite(numbers).all(axis=1)
    if bad.any():
        word = str(words[bad.argmax()])
        raise TableError(
            f"{path}: the vector of {word!r}, row {bad.argmax()}, holds a number that is not finite: "
            "correct or remove it"
        )
    return words.tolist(), numbers


def _lines(path: Path) -> Iterator[tuple[int, str, str]]:
    """Line number, word and the text of its numbers, for every line of a text file that is not blank."""
    if path.is_dir():
        raise TableError(f"{path} is a folder: name a file of word vectors in it, npz or text")
    if not path.is_file():
        raise TableError(f"{path} does not exist: name a file of word vectors, npz or text")
    try:
        with path.open("rb") as raw:
            head = raw.read(8)
        refuse_other_formats(head, str(path))
        with gzip.open(path) if head.startswith(_GZIP) else path.open("rb") as file:
            yield from _split(file, path)
    except (OSError, EOFError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or error
        raise TableError(f"cannot read {path}: {reason}: copy or download it again") from None


def _split(file: Iterable[bytes], path: Path) -> Iterator[tuple[int, str, str]]:
    size = stated = words = 0
    for line, content in enumerate(file, start=1):
        text = content.decode("utf-8", errors="surrogateescape").rstrip().replace("\t", " ")
        if line == 1:
            text = text.removeprefix("\ufeff")
        if not text:
            continue
        if not size and _HEADER.fullmatch(text):  # word2vec: the number of words, and of numbers per word
            stated, size = map(int, text.split(" "))
            continue
        gaps = text.count(" ")
        # Some words of GloVe contain spaces: the numbers are the last fields.
        size = size or min(gaps, _numbers_at_the_end(text))
        if size < 1 or gaps < size or "  " in text:
            raise TableError(f"{path}: {_line_message(content, line, size)}")
        word = text.split(" ", 1)[0] if gaps == size else text.rsplit(" ", size)[0]
        if gaps > size and as_number(word.rsplit(" ", 1)[1]) is not None:
            raise TableError(
                f"{path}: line {line} has more than {size} numbers: correct it, or download the file again"
            )
        words += 1
        yield line, word, text[len(word) + 1 :]
    if not words:
        raise TableError(f"{path} is empty: a file of word vectors has a word and its numbers on each line")
    if words < stated:
        raise TableError(
            f"{path} ends after {words} words, but its first line promises {stated}: download it again"
        )


def _numbers_at_the_end(text: str) -> int:
    fields = reversed(text.split(" "))
    return sum(1 for _ in itertools.takewhile(lambda field: as_number(field) is not None, fields))


def _line_message(content: bytes, line: int, size: int) -> str:
    if b"\x00" in content:
        return f"line {line} is no text: save the vectors as text; word2vec's binary format is not supported"
    return (
        f"line {line} is not a word and {size or 'its'} numbers with one space between: "
        "correct it, or download the file again"
    )


def _vector(numbers: str, path: Path, line: int) -> Vector:
    values = [as_number(field) for field in numbers.split(" ")]
    with np.errstate(over="ignore"):
        vector = np.array(values, np.float64).astype(np.float32)  # None becomes NaN
    if not np.isfinite(vector).all():
        place = int(np.isfinite(vector).argmin())
        written = numbers.split(" ")[place]
        kind = "not a number" if values[place] is None else "not finite"
        raise TableError(
            f"{path}: line {line} is not a word and its numbers: number {place + 1}, {written!r}, is {kind}: "
            "correct it, or download the file again"
        )
    return vector
