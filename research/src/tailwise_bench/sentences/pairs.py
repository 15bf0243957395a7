"""Sentence pairs with a score, as words or as frozen vectors: STS-B-DIR."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tailwise.labels.bins import checked_labels

T = TypeVar("T")
COLUMNS = ("sentence1", "sentence2", "score")
"""Columns of GLUE's STS-B files."""
DIR_BINS = 50
"""Number of DIR's bins over the scores 0 to 5, each 0.1 wide."""
DIR_MANY = (0, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30, 32, 34, 36, 38, 40, 42, 44, 46, 48, 49)
DIR_MEDIUM = (2, 4, 6, 8, 27, 35, 37)
"""DIR's published many-shot and medium-shot bins of STS-B-DIR; all other bins are few-shot."""
PARTS = ("train", "dev", "test")


@dataclass(frozen=True, eq=False)
class SentencePairs:
    """Pairs of sentences with a score of their similarity."""

    first: list[str]  # N
    second: list[str]  # N
    score: NDArray[np.float64]  # (N,)

    def __len__(self) -> int:
        return len(self.first)

    @property
    def sentences(self) -> list[str]:
        """All first sentences, then all second sentences. 2N"""
        return [*self.first, *self.second]


@dataclass(frozen=True, eq=False)
class PairVectors:
    """Sentence pairs as pairs of vectors, with their scores."""

    x: NDArray[np.float32]  # (N, 2, D)
    y: NDArray[np.float64]  # (N,)


@dataclass(frozen=True, eq=False)
class Parts(Generic[T]):
    """The three parts of a benchmark."""

    train: T
    dev: T
    test: T


def read_pairs(path: Path) -> SentencePairs:
    """Read a file in the layout of GLUE's STS-B, whose quotation marks are plain characters.

    Fields are separated by tabs, and the first line names the columns. An error names the line of a row with
    other fields, an empty sentence, or a score that is not a number from 0 to 5.
    """
    names, *rows = path.read_text(encoding="utf-8").rstrip("\n").split("\n")
    titles = names.split("\t")
    if missing := [name for name in COLUMNS if name not in titles]:
        raise ValueError(f"{path} has no column {missing[0]}; its first line is {titles}")
    places = [titles.index(name) for name in COLUMNS]
    pairs = []
    for line, row in enumerate(rows, start=2):
        fields = row.split("\t")
        if len(fields) != len(titles):
            raise ValueError(
                f"{path}, line {line}: {len(fields)} fields where the first line has {len(titles)}"
            )
        first, second, score = (fields[place].strip() for place in places)
        if not first or not second or not 0 <= _number(score) <= 5:
            raise ValueError(f"{path}, line {line}: expected two sentences and a score from 0 to 5")
        pairs.append((first, second, float(score)))
    first_ones, second_ones, scores = (list(column) for column in zip(*pairs, strict=True))
    return SentencePairs(first_ones, second_ones, np.array(scores, np.float64))


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan


def load_stsb_dir(folder: Path) -> Parts[SentencePairs]:
    """Read STS-B-DIR, the split of DIR (Yang et al., 2021) with balanced dev and test parts.

    The folder holds ``train.tsv``, ``dev.tsv`` and ``test.tsv``, or ``train_new.tsv`` and so on, which DIR's
    script writes beside the original files.
    """
    end = "_new" if (folder / "train_new.tsv").is_file() else ""
    return Parts(*(read_pairs(folder / f"{part}{end}.tsv") for part in PARTS))


def load_sentence_vectors(path: Path) -> Parts[PairVectors]:
    """Read frozen sentence vectors in float32 from an npz file with arrays ``{train,dev,test}_{a,b,y}``."""
    with np.load(path, allow_pickle=False) as stored:
        return Parts(
            *(
                PairVectors(
                    np.stack([stored[f"{part}_a"], stored[f"{part}_b"]], axis=1).astype(np.float32),
                    stored[f"{part}_y"].astype(np.float64),
                )
                for part in PARTS
            )
        )


def overlap(train: SentencePairs, test: SentencePairs) -> NDArray[np.int64]:
    """Return the rows of `test` whose pair is also in `train`, in either order of its sentences.

    >>> train = SentencePairs(["a cat", "a dog"], ["one cat", "one dog"], np.zeros(2))
    >>> test = SentencePairs(["a bird", "one dog"], ["a cat", "a dog"], np.zeros(2))
    >>> overlap(train, test)
    array([1])
    """
    seen = {frozenset(pair) for pair in zip(train.first, train.second, strict=True)}
    pairs = zip(test.first, test.second, strict=True)
    return np.array([row for row, pair in enumerate(pairs) if frozenset(pair) in seen], np.int64)


def dir_shots(scores: ArrayLike) -> NDArray[np.str_]:
    """Return ``"many"``, ``"medium"`` or ``"few"`` for each score from 0 to 5, by DIR's published lists.

    Use these regions to compare with published figures. They count bins of STS-B-DIR's training part with
    fewer than 30 rows as *few*, not fewer than 20 as the papers of DIR and VIR say: five bins of 20 to 27
    rows are few-shot. `LabelBins.regions` follows the papers. Scores and bin edges are compared in float32,
    as in DIR, so that 0.3 is in the bin that starts at 0.3; a score of 5 is in the last bin.

    >>> dir_shots([0.0, 0.1, 0.2, 2.5, 5.0])
    array(['many', 'few', 'medium', 'few', 'many'], dtype='<U6')
    """
    labels = checked_labels(scores, "scores")
    edges = np.linspace(0, 5, DIR_BINS + 1).astype(np.float32)
    place = np.searchsorted(edges, labels.astype(np.float32), side="right") - 1
    shots = np.full(DIR_BINS + 1, "few", dtype="<U6")
    shots[list(DIR_MEDIUM)] = "medium"
    shots[[*DIR_MANY, DIR_BINS]] = "many"  # a score of 5 lies on the last edge
    return shots[place]
