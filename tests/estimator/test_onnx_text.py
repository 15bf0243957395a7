"""Free text in an ONNX graph, against skrub's StringEncoder."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from tailwise.data.tables.preprocessing import import_skrub
from tailwise.onnx.nodes import Nodes
from tailwise.onnx.text import _all_characters, can_encode, is_blank, text_parts
from tests.estimator.onnx_graphs import ran

LATIN = ["sunny loft", "Garden flat", "cellar", "LOFT with garden", "straße", "İzmir view", "a b", "old"]
GREEK = ["ΟΔΟΣ φως", "λόγος και", "ΣΑΣ σας", "big ΑΣ."]
ODD = [
    "",
    " \t\n",
    "x",
    "lo",
    "  sunny\t\tLOFT\n\u00a0garden\u2003flat\x85old\x1cview ",
    "İZMİR İİ vİew",  # one letter becomes two
    "STRASSE STRAßE",
    "\U0001f600loft \U0001f600",
    "e\u0301 é É ﬁ ǅ",
    "loft\u200bgarden",  # a space of no width is no white space
    "loft\x00garden",
    "loft" * 40,
    "loft loft",
    "zzz 中文 unseen",
    "ΟΔΟΣ ΟΔΟΣ' ΟΔΟΣ'Α ΣΑΣ 'Σ ΑΣ1 Α\u0301Σ\u0301 Α\u0301Σ\u0301Α Σ",  # a sigma at the end of a word
]


def fitted(texts: list[str], **options: Any) -> Any:
    column = pd.Series(texts, name="text", dtype=object)
    encoder = import_skrub().StringEncoder(n_components=3, random_state=0, **options)
    encoder.fit_transform(column)
    return encoder


def in_graph(encoder: Any, texts: list[str], nulls: tuple[str, ...] = ()) -> Any:
    nodes = Nodes()
    found = text_parts(nodes, "text", encoder, nulls)
    return ran(nodes, found, text=np.array(texts, dtype=object))


def in_python(encoder: Any, texts: list[str]) -> Any:
    return encoder.transform(pd.Series(texts, name="text", dtype=object)).to_numpy(np.float64)


@pytest.mark.parametrize("known", [LATIN, LATIN + GREEK], ids=["latin", "greek"])
def test_odd_texts_become_the_same_numbers_to_the_last_bit(known: list[str]) -> None:
    encoder = fitted(known)
    texts = [*known, *(text.upper() for text in known), *ODD]
    found = in_graph(encoder, texts)
    np.testing.assert_array_equal(found, in_python(encoder, texts))
    assert (np.abs(found).sum(1) > 0).sum() > len(known)
    for text in ODD[:4]:  # also when no row of a batch has a character or a known run
        np.testing.assert_array_equal(in_graph(encoder, [text]), in_python(encoder, [text]))


def test_random_texts_become_the_same_numbers() -> None:
    encoder = fitted(LATIN + GREEK)
    rng = np.random.default_rng(0)
    letters = [*"ΣΣΣσςΑΟΔο'.\u0301İi\u0307Il oftgardn  ", *rng.choice(list(_all_characters()), 40)]
    texts = ["".join(rng.choice(letters, rng.integers(0, 12))) for _ in range(2000)]
    np.testing.assert_array_equal(in_graph(encoder, texts), in_python(encoder, texts))


def test_without_a_projection_the_first_runs_are_the_components() -> None:
    encoder = fitted(["aa", "aa aa", "", "aa"])  # three runs
    assert not hasattr(encoder, "tsvd_")
    texts = ["aa", "bb aa aa", "x", ""]
    np.testing.assert_array_equal(in_graph(encoder, texts), in_python(encoder, texts))


def test_words_for_nothing_are_missing() -> None:
    encoder = fitted([*LATIN, "none of it"])
    assert in_python(encoder, ["none"]).any()  # skrub's vectorizer makes it missing before the encoder
    assert not in_graph(encoder, ["none", ""], nulls=("none", "NA")).any()


def test_blank_texts_are_found() -> None:
    nodes = Nodes()
    found = ran(nodes, is_blank(nodes, "text"), text=np.array(["", " \t\u00a0", "a", " a"], dtype=object))
    assert found.tolist() == [True, True, False, False]


def test_no_character_becomes_more_than_two() -> None:
    assert max(len(character.lower()) for character in _all_characters()) == 2


def test_other_encodings_are_told_apart() -> None:
    assert can_encode(fitted(LATIN))
    assert not can_encode(fitted(LATIN, vectorizer="hashing"))
    assert not can_encode(fitted(LATIN, analyzer="word", ngram_range=(1, 1)))
    assert not can_encode(fitted(LATIN, ngram_range=(2, 3)))
    assert not can_encode(SimpleNamespace())
