"""Free text in an ONNX graph: skrub's StringEncoder, from characters to components.

The encoder counts runs of 3 and 4 characters within words, weights and normalises the counts, and projects
them. Python makes text lower case first. No operator of ONNX does that for all of Unicode, so a table made by
Python says what each character becomes.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Collection, Iterator
from typing import Any, NamedTuple

import numpy as np

from tailwise.onnx.nodes import OWN, Nodes

PADDING = "no character"
"""What fills short rows of characters; longer than any of them."""
BOUNDARY, UNKNOWN = 0, 1
"""Numbers of white space and of characters in no known run."""
PLAIN, CASED, IGNORED = 0, 1, 2
"""What a character means for a capital sigma near it. See `_sigma_kinds`."""
SIGMA, SIGMA_WITHIN, SIGMA_LAST = "Σσς"


class Became(NamedTuple):
    """What a character becomes: no, one or two numbers of lower-case characters, and its kind for a sigma."""

    first: int = UNKNOWN
    second: int = 0
    width: int = 1
    kind: int = PLAIN
    is_sigma: int = 0


def can_encode(encoder: Any) -> bool:
    """Whether a graph can do what a fitted StringEncoder does."""
    vectorizer = getattr(encoder, "vectorizer_", None)
    return (
        getattr(encoder, "vectorizer", "") == "tfidf"
        and vectorizer is not None
        and vectorizer.analyzer == "char_wb"
        and vectorizer.ngram_range[0] >= 3  # shorter runs would count the space between two words once
        and vectorizer.lowercase
        and (vectorizer.norm, vectorizer.sublinear_tf, vectorizer.strip_accents) == ("l2", False, None)
    )


def characters(nodes: Nodes, column: str) -> str:
    """Return the characters of strings, (N,) -> (N, C), with `PADDING` where a string has fewer."""
    return nodes.add(
        "Tokenizer", column, domain=OWN, separators=[""], mark=0, mincharnum=1, pad_value=PADDING
    )


def is_blank(nodes: Nodes, column: str) -> str:
    """Return which strings have no character but white space. (N,)"""
    known = dict.fromkeys([PADDING, *(character for character in _changed() if character.isspace())], 0)
    visible = nodes.look_up(characters(nodes, column), known, 1)
    count = nodes.add("ReduceSum", visible, nodes.constant([1]), keepdims=0)
    return nodes.add("Equal", count, nodes.constant(0))


def text_parts(nodes: Nodes, column: str, encoder: Any, nulls: Collection[str]) -> str:
    """Return the components of a column of strings, float64 (N, K); those of `nulls` are missing.

    White space becomes 0, and zeros surround each text. A run of characters with 0 inside belongs to two
    words and is not in the vocabulary, so counting the runs of the whole text counts those of its words.
    """
    vocabulary = encoder.vectorizer_.vocabulary_
    runs = sorted(vocabulary, key=lambda run: (len(run), vocabulary[run]))
    numbers = {" ": BOUNDARY}
    for run in runs:
        for character in run:
            numbers.setdefault(character, len(numbers) + 1)
    shortest, longest = encoder.vectorizer_.ngram_range
    held = [n * sum(len(run) == n for run in runs) for n in range(1, longest)]
    counts = nodes.add(
        "TfIdfVectorizer",
        _lower_case(nodes, characters(nodes, column), numbers),
        mode="TF",
        min_gram_length=shortest,
        max_gram_length=longest,
        max_skip_count=0,
        ngram_counts=[0, *np.cumsum(held).tolist()],
        ngram_indexes=[vocabulary[run] for run in runs],
        pool_int64s=[numbers[character] for run in runs for character in run],
    )
    found = _projected(nodes, counts, encoder)
    if nulls:
        held_text = nodes.column_of(nodes.look_up(column, dict.fromkeys(nulls, 0), 1))
        found = nodes.add("Mul", found, nodes.cast(held_text, np.float32))
    return nodes.cast(found, np.float64)


def _projected(nodes: Nodes, counts: str, encoder: Any) -> str:
    """Components of the counts, (N, V) -> (N, K) float32.

    Sums run over the same numbers in the same order and precision as those of scikit-learn and SciPy. So a
    text gets the same numbers to the last bit, and falls on the same side of a tree's threshold.
    """
    vocabulary = len(encoder.vectorizer_.vocabulary_)
    svd = getattr(encoder, "tsvd_", None)
    projection = np.eye(vocabulary, encoder.n_components_) if svd is None else svd.components_.T
    cells = nodes.add("NonZero", counts)  # (2, C), row by row
    row, run = (nodes.add("Gather", cells, nodes.constant(k), axis=0) for k in (0, 1))
    weight = nodes.cast(nodes.add("GatherND", counts, nodes.add("Transpose", cells)), np.float64)
    idf = nodes.add("Gather", nodes.constant(encoder.vectorizer_.idf_, np.float64), run)
    weight = nodes.add("Mul", weight, idf)
    rows = nodes.add("Gather", nodes.add("Shape", counts), nodes.constant([0]))
    squares = nodes.add("Mul", weight, weight)
    squares = _sums(nodes, squares, row, nodes.add("ConstantOfShape", rows, value=_zero(np.float64)))
    length = nodes.add("Gather", nodes.add("Sqrt", squares), row)
    weight = nodes.column_of(nodes.cast(nodes.add("Div", weight, length), np.float32))
    part = nodes.add("Gather", nodes.constant(projection, np.float32), run)
    part = nodes.add("Mul", weight, part)  # (C, K)
    row = nodes.add("Expand", nodes.column_of(row), nodes.add("Shape", part))
    size = nodes.add("Concat", rows, nodes.constant([encoder.n_components_]), axis=0)
    found = _sums(nodes, part, row, nodes.add("ConstantOfShape", size, value=_zero(np.float32)))
    return nodes.add("Div", found, nodes.constant(getattr(encoder, "scaling_factor_", 1.0), np.float32))


def _sums(nodes: Nodes, values: str, rows: str, zeros: str) -> str:
    """Sums of the values of each row, one value after another."""
    return nodes.add("ScatterElements", zeros, rows, values, axis=0, reduction="add")


def _lower_case(nodes: Nodes, letters: str, numbers: dict[str, int]) -> str:
    """Numbers of the lower-case characters of texts, 0 around them. (N, C) strings -> (N, 2C + 2)"""
    greek = SIGMA_WITHIN in numbers or SIGMA_LAST in numbers
    became = {PADDING: Became(0, 0, 0)} | {
        character: made
        for character in _relevant(numbers, greek)
        if (made := _became(character, numbers, greek)) != Became()
    }
    rows = [Became(), *dict.fromkeys(became.values())]
    place = {row: k for k, row in enumerate(rows)}
    codes = nodes.look_up(letters, {character: place[row] for character, row in became.items()}, 0)

    def of_code(field: str) -> str:
        return nodes.add("Gather", nodes.constant([getattr(row, field) for row in rows]), codes)

    first, width = of_code("first"), of_code("width")
    if greek:
        last = _is_last_sigma(nodes, of_code("kind"), of_code("is_sigma"))
        first = nodes.add("Where", last, nodes.constant(numbers.get(SIGMA_LAST, UNKNOWN)), first)
    end = nodes.add("CumSum", width, nodes.constant(1))
    start = nodes.add("Add", nodes.add("Sub", end, width), nodes.constant(1))
    size = nodes.add("Mul", nodes.add("Shape", letters), nodes.constant([1, 2]))
    line = nodes.add("ConstantOfShape", nodes.add("Add", size, nodes.constant([0, 2])), value=_zero())
    line = nodes.add("ScatterElements", line, start, first, axis=1, reduction="add")
    return nodes.add("ScatterElements", line, end, of_code("second"), axis=1, reduction="add")


def _zero(kind: type = np.int64) -> Any:
    from onnx import numpy_helper

    return numpy_helper.from_array(np.zeros(1, kind))


def _is_last_sigma(nodes: Nodes, kind: str, is_sigma: str) -> str:
    """Which characters are a capital sigma at the end of a word, by the rule of Unicode. (N, C)

    The nearest character before it is cased and the nearest after it is not, not counting ignored ones.
    """
    counted = nodes.cast(nodes.add("Less", kind, nodes.constant(IGNORED)), np.int64)
    cased = nodes.cast(nodes.add("Equal", kind, nodes.constant(CASED)), np.int64)
    place = nodes.add("CumSum", counted, nodes.constant(1))  # from 1, without the ignored
    size = nodes.add("Add", nodes.add("Shape", kind), nodes.constant([0, 2]))
    line = nodes.add("ConstantOfShape", size, value=_zero())
    line = nodes.add("ScatterElements", line, place, cased, axis=1, reduction="add")

    def neighbour(step: int) -> str:
        at = nodes.add("Add", place, nodes.constant(step))
        at = nodes.add("Max", at, nodes.constant(0))
        return nodes.add("GatherElements", line, at, axis=1)

    found = nodes.add("Mul", is_sigma, neighbour(-1))
    return nodes.add("Less", neighbour(1), found)  # 0 and 1


def _relevant(numbers: dict[str, int], greek: bool) -> Iterator[str]:
    """Characters that may become something other than `Became()`."""
    yield from numbers
    yield from _changed()
    if greek:
        yield from _sigma_kinds()


def _became(character: str, numbers: dict[str, int], greek: bool) -> Became:
    kind = _sigma_kinds().get(character, PLAIN) if greek else PLAIN
    if character.isspace():
        return Became(BOUNDARY, kind=kind)
    lower = [numbers.get(letter, UNKNOWN) for letter in character.lower()]
    return Became(lower[0], sum(lower[1:]), len(lower), kind, int(greek and character == SIGMA))


def _all_characters() -> Iterator[str]:
    """All of Unicode but surrogates, which no text in UTF-8 has."""
    yield from map(chr, range(0xD800))
    yield from map(chr, range(0xE000, sys.maxunicode + 1))


@functools.cache
def _changed() -> list[str]:
    """Characters that are white space or have another lower case."""
    return [c for c in _all_characters() if c.isspace() or c.lower() != c]


@functools.cache
def _sigma_kinds() -> dict[str, int]:
    """Characters that are cased or ignored when Python makes a capital sigma lower case.

    A sigma after a letter is the last of its word unless a cased character follows it. An ignored character
    is passed over, so that the next one counts.
    """
    kinds = {}
    for character in _all_characters():
        if f"A{SIGMA}{character}".lower()[1] == SIGMA_WITHIN:
            kinds[character] = CASED
        elif f"A{SIGMA}{character}A".lower()[1] == SIGMA_WITHIN:
            kinds[character] = IGNORED
    return kinds
