"""Sentences as word ids and vectors: a tokenizer, a vocabulary, and the vectors of its words.

The tokenizer splits as the Penn Treebank does. GloVe was trained on such tokens, so its vectors fit.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Collection, Container, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

PADDING, UNKNOWN, FIRST_WORD = 0, 1, 2
"""Ids of padding, of every word that is not in the vocabulary, and of its first word."""
LONGEST = 40
"""Words of a sentence that are read."""

_QUOTES = str.maketrans("’‘´`“”„«»", '\'\'\'\'"""""')
# UTF-8 that was misread as Central European Macintosh text, as in some sentences of STS-B.
_MISREAD = re.compile("‚Ä[^\\s]")
_END = r"(?![^\W_])"
_TOKEN = re.compile(
    rf"""
      [^\W\d_](?:\.[^\W\d_])+\.?{_END}              # u.s., p.m.
    | '(?:s|m|d|re|ve|ll){_END}                     # an ending that is already separate
    | [^\W_]+(?:(?:[-'&]|(?<=\d)[.,:/](?=\d))[^\W_]+)*   # words, o'brien, at&t, 1,000.5, 9/11
    | \.{{2,}} | -{{2,}}
    | ''                                            # the Treebank's quotation mark
    | \S
    """,
    re.VERBOSE,
)
_CONTRACTION = re.compile(r"(.+)(n't|'(?:s|m|d|re|ve|ll))")
_STEMS = {"ca": "can", "wo": "will", "sha": "shall"}
_NUMBER = re.compile(r"\d+(?:[.,]\d+)*")
_PART = re.compile(rf"[^\W\d_]+|{_NUMBER.pattern}")
_MAX_DIGITS = 15  # a longer number is not a quantity


def tokenize(text: str) -> list[str]:
    """Split a sentence into lower-case words, numbers and punctuation marks.

    >>> tokenize("They don't play the U.S. team's 1,000 well-known songs (yet).")
    ['they', 'do', "n't", 'play', 'the', 'u.s.', 'team', "'s", '1,000', 'well-known', 'songs',
     '(', 'yet', ')', '.']
    """
    tokens: list[str] = []
    for token in _TOKEN.findall(_MISREAD.sub(_reread, text).lower().translate(_QUOTES)):
        split = _CONTRACTION.fullmatch(token) if "'" in token else None
        if split:
            stem, ending = split.groups()
            tokens += [_STEMS.get(stem, stem) if ending == "n't" else stem, ending]
        else:
            tokens.append('"' if token == "''" else token)
    return tokens


def _reread(found: re.Match[str]) -> str:
    try:
        return found[0].encode("mac_latin2").decode("utf-8")
    except UnicodeError:
        return found[0]


@dataclass(frozen=True)
class Vocabulary:
    """Words and their ids: 0 is padding, 1 an unknown word, and 2 the first word.

    A word that is not in the vocabulary is tried in simpler forms before it counts as unknown: ``u.s.`` as
    ``us``, ``tech-heavy`` as ``tech`` and ``heavy``, ``café`` as ``cafe``, ``1,520.15`` as ``1,520`` or
    ``1500``.

    >>> vocabulary = Vocabulary.build(["A cat sat.", "The cat ran."])
    >>> vocabulary.words
    ('.', 'cat', 'a', 'ran', 'sat', 'the')
    >>> vocabulary.encode("The cat-sat"), vocabulary.encode("A dog")
    ([7, 3, 6], [4, 1])
    """

    words: tuple[str, ...]

    @classmethod
    def build(cls, sentences: Iterable[str], known: Collection[str] = ()) -> Vocabulary:
        """Return the vocabulary of the training sentences, the most frequent words first.

        A word that is not one of the `known` words, which have vectors, is split into such words, if
        possible. All of them are added too, because their vectors carry their meaning even if no training
        sentence contains them.
        """
        known = dict.fromkeys(known)
        seen: Counter[str] = Counter()
        for token, count in Counter(token for text in sentences for token in tokenize(text)).items():
            for piece in _pieces(token, known):
                seen[piece] += count
        words = sorted(seen, key=lambda word: (-seen[word], word))
        return cls((*words, *(word for word in known if word not in seen)))

    def __len__(self) -> int:
        return FIRST_WORD + len(self.words)

    @cached_property
    def _ids(self) -> dict[str, int]:
        return {word: place for place, word in enumerate(self.words, start=FIRST_WORD)}

    def encode(self, sentence: str) -> list[int]:
        """Return the ids of a sentence's words: at least one, at most `LONGEST`."""
        pieces = (piece for token in tokenize(sentence) for piece in _pieces(token, self._ids))
        return [self._ids.get(piece, UNKNOWN) for piece in pieces][:LONGEST] or [UNKNOWN]

    def encode_pairs(self, pairs: Iterable[tuple[str, str]]) -> NDArray[np.int32]:
        """Return word ids, padded on the right to the longest sentence of these pairs. (N, 2, L)"""
        rows = [self.encode(sentence) for pair in pairs for sentence in pair]
        ids = np.full((len(rows), max(map(len, rows))), PADDING, np.int32)
        for place, row in enumerate(rows):
            ids[place, : len(row)] = row
        return ids.reshape(-1, 2, ids.shape[1])


def _pieces(token: str, known: Container[str]) -> Sequence[str]:
    """Return the token if it is known, else simpler forms that are known, else the token."""
    if token in known:
        return [token]
    parts = _PART.findall(token)
    if not parts:  # dashes, dots
        return [token[0]] if token[0] in known else [token]
    if _NUMBER.fullmatch(token) is None:
        for form in (token.replace(".", ""), _without_accents(token)):
            if form in known:
                return [form]
    simpler = [
        next((form for form in _rounded(part) if form in known), part) if _NUMBER.fullmatch(part) else part
        for part in parts
    ]
    return simpler if any(part in known for part in simpler) else [token]


def _without_accents(word: str) -> str:
    return "".join(c for c in unicodedata.normalize("NFKD", word) if not unicodedata.combining(c))


def _rounded(number: str) -> Iterator[str]:
    """Yield a number as it is, whole, then with fewer leading digits, each with and without commas."""
    whole = number.partition(".")[0]
    yield from (number, whole)
    digits = whole.replace(",", "")
    for kept in (len(digits), 3, 2, 1):
        if kept <= len(digits) <= _MAX_DIGITS:
            short = int(digits[:kept] + "0" * (len(digits) - kept))
            yield from (str(short), f"{short:,}")


def word_vectors(
    words: Sequence[str], vectors: NDArray[np.float32], vocabulary: Vocabulary
) -> NDArray[np.float32]:
    """Return a vector for every id of the vocabulary, from those of some words. (W, D) -> (V, D)

    Padding is all zeros; the unknown word is the mean of the vectors in use. A word without a vector gets a
    random one of the same mean and spread, so that the network sees whether both sentences contain the
    same name.
    """
    rows = {word: row for row, word in enumerate(words)}
    present = np.array([word in rows for word in vocabulary.words])
    known = vectors[[rows[word] for word in vocabulary.words if word in rows]]
    mean, spread = known.mean(axis=0, dtype=np.float64), known.std(axis=0, dtype=np.float64)
    table = np.zeros((len(vocabulary), known.shape[1]), np.float32)
    table[UNKNOWN] = mean
    table[FIRST_WORD:][present] = known
    table[FIRST_WORD:][~present] = np.random.default_rng(0).normal(
        mean, spread, ((~present).sum(), len(mean))
    )
    return table
