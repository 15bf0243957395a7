"""Sentences as word ids: a tokenizer, a vocabulary, and batches of similar length.

The tokenizer splits as the Penn Treebank does. GloVe was trained on such tokens, so its vectors fit.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from tailwise_bench.sentences.vectors import vector_words

if TYPE_CHECKING:
    from tailwise_bench.sentences.pairs import SentencePairs

PADDING, UNKNOWN = 0, 1
"""Ids of padding and of every word that is not in the vocabulary."""
_FIRST_WORD = 2

_QUOTES = str.maketrans(
    {"’": "'", "‘": "'", "´": "'", "`": "'", "“": '"', "”": '"', "„": '"', "«": '"', "»": '"'}
)
# UTF-8 that was misread as Central European Macintosh text, as in some sentences of STS-B.
_MISREAD = re.compile("‚Ä[^\\s]")
# Combining marks, such as vowel signs and accents without a composed letter: `re` would end words at them.
_PLACES_OF_MARKS = (*range(0x300, 0x20000), *range(0xE0100, 0xE01F0))  # searching all of Unicode takes 0.1 s
_MARKS = "".join(c for c in map(chr, _PLACES_OF_MARKS) if unicodedata.category(c)[0] == "M")
_MARK = rf"(?:(?![\x00-\u02ff])[{_MARKS}])"  # the lookahead makes it fast on plain text
# A character with marks or further Korean letters. At most 30, as in Unicode's Stream-Safe Text Format,
# because the time to compose them grows with the square of their number.
_DECOMPOSED = re.compile(rf"\S(?:(?![\x00-\u02ff])[\u1160-\u11ff{_MARKS}]){{1,30}}")
_LETTER = rf"[^\W\d_]{_MARK}*"
_LETTERS = rf"[^\W\d_]+(?:{_MARK}+[^\W\d_]*)*"
_RUN = rf"[^\W_]+(?:{_MARK}+[^\W_]*)*"
_END = rf"(?![^\W_]|{_MARK})"
_TOKEN = re.compile(
    rf"""
      {_LETTER}(?:\.{_LETTER})+\.?{_END}            # u.s., p.m.
    | '(?:s|m|d|re|ve|ll){_END}                     # an ending that is already separate
    | {_RUN}(?:(?:[-'&]|(?<=\d)[.,:/](?=\d)){_RUN})*   # words, o'brien, at&t, 1,000.5, 9/11
    | \.{{2,}} | -{{2,}}
    | ''                                            # the Treebank's quotation mark
    | \S{_MARK}*
    """,
    re.VERBOSE,
)
_CONTRACTION = re.compile(r"(.+)(n't|'(?:s|m|d|re|ve|ll))")
_STEMS = {"ca": "can", "wo": "will", "sha": "shall"}
_PART = re.compile(rf"{_LETTERS}|\d+(?:[.,]\d+)*")
_MAX_DIGITS = 15  # a longer number is not a quantity
_NUMBER = re.compile(r"\d+(?:[.,]\d+)*")


def tokenize(text: str) -> list[str]:
    """Split a sentence into lower-case words, numbers and punctuation marks.

    A letter and its combining marks stay together, as one character where Unicode has one.

    >>> tokenize("They don't play the U.S. team's 1,000 well-known songs (yet).")
    ['they', 'do', "n't", 'play', 'the', 'u.s.', 'team', "'s", '1,000', 'well-known', 'songs',
     '(', 'yet', ')', '.']
    """
    lower = _MISREAD.sub(_reread, text).lower()
    # Compose after lowering the case, because some capitals have no composed form (J̌). Compose only what is
    # decomposed, because normalising the whole text would change letters that vectors are stored under.
    plain = _DECOMPOSED.sub(_composed, lower).translate(_QUOTES)
    tokens: list[str] = []
    for token in _TOKEN.findall(plain):
        split = _CONTRACTION.fullmatch(token) if "'" in token else None
        if token == "''":
            tokens.append('"')
        elif split:
            stem, ending = split.groups()
            tokens += [_STEMS.get(stem, stem) if ending == "n't" else stem, ending]
        else:
            tokens.append(token)
    return tokens


def _composed(found: re.Match[str]) -> str:
    return unicodedata.normalize("NFC", found[0])


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
    >>> vocabulary.encode(["The cat-sat", "A dog"])
    [[7, 3, 6], [4, 1]]
    """

    words: tuple[str, ...]

    @classmethod
    def build(
        cls,
        sentences: Iterable[str],
        *,
        vectors: Path | None = None,
    ) -> Vocabulary:
        """Return the vocabulary of the training sentences, the most frequent words first.

        With a file of word `vectors`, a word without a vector is split into words with one, if possible.
        All words of the file are added too, because their vectors carry their meaning even if no training
        sentence contains them.
        """
        known = vector_words(vectors) if vectors is not None else []
        seen = _counted(sentences, frozenset(known))
        words = sorted(seen, key=lambda word: (-seen[word], word))
        return cls((*words, *(word for word in known if word not in seen)))

    def __len__(self) -> int:
        return _FIRST_WORD + len(self.words)

    @cached_property
    def _ids(self) -> dict[str, int]:
        return {word: place for place, word in enumerate(self.words, start=_FIRST_WORD)}

    def encode(self, sentences: Iterable[str], max_length: int = 40) -> list[list[int]]:
        """Return the word ids of each sentence: at least one, at most `max_length`."""
        known: dict[str, list[int]] = {}
        rows = []
        for sentence in sentences:
            ids: list[int] = []
            for token in tokenize(sentence):
                if token not in known:
                    known[token] = [self._ids.get(piece, UNKNOWN) for piece in _pieces(token, self._ids)]
                ids += known[token]
                if len(ids) >= max_length:
                    break
            rows.append(ids[:max_length] or [UNKNOWN])
        return rows

    def encode_pairs(self, pairs: SentencePairs, max_length: int = 40) -> NDArray[np.int32]:
        """Return word ids, padded on the right to the longest sentence of these pairs. (N, 2, L)"""
        rows = self.encode(pairs.sentences, max_length)
        sizes = np.array([len(row) for row in rows], np.int64)
        tokens = np.full((len(rows), sizes.max(initial=1)), PADDING, np.int32)
        flat = np.fromiter((word for row in rows for word in row), np.int32, sizes.sum())
        tokens[np.arange(tokens.shape[1]) < sizes[:, None]] = flat
        return np.ascontiguousarray(tokens.reshape(2, len(pairs), tokens.shape[1]).transpose(1, 0, 2))


def _counted(sentences: Iterable[str], known: Container[str]) -> Counter[str]:
    """How often each word occurs. A word that is not known counts in its simpler, known forms."""
    pieces: Counter[str] = Counter()
    for token, count in Counter(token for text in sentences for token in tokenize(text)).items():
        for piece in _pieces(token, known):
            pieces[piece] += count
    return pieces


def _pieces(token: str, known: Container[str]) -> Sequence[str]:
    """The token if it is known, else simpler forms that are known, else the token."""
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
    """Forms of a number: as it is, whole, then with fewer leading digits, each with and without commas."""
    yield number
    whole = number.partition(".")[0]
    yield whole
    digits = whole.replace(",", "")
    for kept in (len(digits), 3, 2, 1):
        if kept <= len(digits) <= _MAX_DIGITS:
            short = int(digits[:kept] + "0" * (len(digits) - kept))
            yield from (str(short), f"{short:,}")
