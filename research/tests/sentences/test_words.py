"""Words, ids and batches by length."""

import sys
import unicodedata

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailwise_bench.sentences.pairs import SentencePairs
from tailwise_bench.sentences.vectors import vector_words
from tailwise_bench.sentences.words import Vocabulary, tokenize

texts = st.text(max_size=80) | st.text("aAbz09.,'’-/&:$%\"` \tİß²\u0301\u0304\u093f\ufe0f", max_size=80)


# -- tokens --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("", ""),
        (" \t\n", ""),
        ("A man isn't playing.", "a man is n't playing ."),
        ("I can't, won't and shan't", "i can n't , will n't and shall n't"),
        ("It's they're I'm we've you'll he'd", "it 's they 're i 'm we 've you 'll he 'd"),
        ("the boys' dog’s don’t don´t", "the boys ' dog 's do n't do n't"),
        ("Mr. Bush 's plan do n't", "mr . bush 's plan do n't"),
        ("O'Brien 'quoted' rock", "o'brien ' quoted ' rock"),
        ("in the U.S. at 9 a.m., e.g. U.S", "in the u.s. at 9 a.m. , e.g. u.s"),
        ("The end.Next one", "the end . next one"),
        ("$1,000.50 is 5% of 9/11 at 12:01", "$ 1,000.50 is 5 % of 9/11 at 12:01"),
        ("1,2, 3. and/or http://a.b", "1,2 , 3 . and / or http : / / a.b"),
        ("well-known -- AT&T ...", "well-known -- at&t ..."),
        ("``quoted'' “text” «x»", '" quoted " " text " " x "'),
        ("snake_case (x)[y]", "snake _ case ( x ) [ y ]"),
        ("Bush‚Äôs ‚Äúplan‚ÄĚ", 'bush \'s " plan "'),  # UTF-8 once read as Macintosh text
        ("naïve CAFÉ 犬", "naïve café 犬"),
        ("हिन्दी भाषा में", "हिन्दी भाषा में"),
        ("İstanbul's", "i̇stanbul 's"),
        ("J\u030cx x\u0304-y\u0304, X\u0304.Y\u0304. 's\u0304", "\u01f0x x\u0304-ȳ , x\u0304.ȳ. ' s\u0304"),
        ("❤\ufe0fnice \u0301 ..\u0301", "❤\ufe0f nice \u0301 .. \u0301"),
        ("δο\u1f7bλος", "δο\u1f7bλος"),  # ύ as it is filed, though NFC has another
    ],
)
def test_tokens(text, tokens):
    assert tokenize(text) == tokens.split()


@given(text=texts)
def test_tokens_hold_no_blank_and_lose_no_letter(text):
    tokens = tokenize(text)
    assert all(token and not any(c.isspace() for c in token) for token in tokens)
    # The stems that contractions shorten, and misread quotation marks, are the only changed letters.
    if not any(stem in text.lower() for stem in ("ca", "wo", "sha")) and "‚Ä" not in text:
        before, after = (unicodedata.normalize("NFC", t) for t in (text.lower(), " ".join(tokens)))
        assert [c for c in after if c.isalnum()] == [c for c in before if c.isalnum()]


MARKED = ("x\u0304", "x\u0304.", "\u0304", "\u0304\u0323")  # the last two in the wrong order
UNITS = ("a", "1", "a.", "a-", "a'", "n't", "1,", "1a", ".", "-a", "_", "‚Ä", "a.b", *MARKED)


@pytest.mark.parametrize("unit", UNITS)
def test_long_texts_are_no_trouble(unit):
    """With 60,000 characters, a regular expression that backtracks would take hours."""
    text = unit * (60_000 // len(unit))
    assert sum(map(len, tokenize(text))) == len(text)
    assert tokenize(text + "!")[-1] == "!"


def test_marks_are_all_those_of_unicode():
    """Only some ranges are searched for them; a later Unicode may have others."""
    marks = [c for c in map(chr, range(sys.maxunicode + 1)) if unicodedata.category(c)[0] == "M"]
    assert len(marks) > 2000
    assert [mark for mark in marks if len(tokenize(f"x{mark}y")) > 1] == []


# -- vocabulary ----------------------------------------------------------------------------------


@pytest.fixture
def vectors(tmp_path):
    """A file of vectors for a few words."""
    numbers = ["1,520", "1500", "30", "361000"]
    words = ["us", ".", "-", "tech", "heavy", "cafe", "year", "the", "dog", "th", "न", "❤", *numbers]
    np.savez(tmp_path / "v.npz", words=np.array(words), vectors=np.ones((len(words), 3), np.float32))
    return tmp_path / "v.npz"


def test_words_are_ordered_by_frequency_then_alphabet():
    assert Vocabulary.build(["b b a", "c a b"]).words == ("b", "a", "c")


@pytest.mark.parametrize(
    ("token", "pieces"),
    [
        ("dog", ["dog"]),
        ("U.S.", ["us"]),
        ("--", ["-"]),
        ("...", ["."]),
        ("café", ["cafe"]),
        ("tech-heavy", ["tech", "heavy"]),
        ("tech-laden", ["tech", None]),
        ("30-year", ["30", "year"]),
        ("30th", ["30", "th"]),
        ("1,520.15", ["1,520"]),
        ("1520", ["1,520"]),
        ("1,544", ["1500"]),
        ("361,499", ["361000"]),
        ("77", [None]),
        ("zorp-blib", [None]),
        ("9" * 5000, [None]),
        ("²m", [None]),
        ("cafe\u0304", ["cafe"]),
        ("न\u094dत", [None]),  # not its single letters, though one of them is known
        ("न\u094dत-dog", [None, "dog"]),
        ("❤\ufe0f", ["❤"]),
    ],
)
def test_unknown_words_are_tried_in_simpler_forms(vectors, token, pieces):
    vocabulary = Vocabulary(tuple(vector_words(vectors)))
    ids = {None: 1} | {word: place + 2 for place, word in enumerate(vocabulary.words)}
    assert vocabulary.encode([token]) == [[ids[piece] for piece in pieces]]


def pairs_of(first, second):
    return SentencePairs(first, second, np.zeros(len(first)))


@given(
    sentences=st.lists(st.tuples(texts, texts), min_size=1, max_size=8),
    train=st.lists(texts, max_size=4),
    max_length=st.integers(1, 12),
)
def test_encoded_pairs_agree_with_a_plain_loop(sentences, train, max_length):
    vocabulary = Vocabulary.build(train)
    pairs = pairs_of(*map(list, zip(*sentences, strict=True)))
    tokens = vocabulary.encode_pairs(pairs, max_length)
    assert (tokens.dtype, tokens.flags.c_contiguous) == (np.int32, True)
    longest = 1
    for row, pair in enumerate(sentences):
        for place, sentence in enumerate(pair):
            ids = vocabulary.encode([sentence], max_length)[0]
            assert 1 <= len(ids) <= max_length
            assert all(1 <= i < len(vocabulary) for i in ids)
            padded = ids + [0] * (tokens.shape[2] - len(ids))
            assert tokens[row, place].tolist() == padded
            longest = max(longest, len(ids))
    assert tokens.shape == (len(sentences), 2, longest)


def test_a_sentence_without_words_is_one_unknown_word():
    tokens = Vocabulary(("a",)).encode_pairs(pairs_of(["", "a a"], [" ", "b"]))
    assert tokens.tolist() == [[[1, 0], [1, 0]], [[2, 2], [1, 0]]]


def test_training_words_keep_their_ids():
    sentences = ["A dog ran .", "a cat , a dog"]
    vocabulary = Vocabulary.build(sentences)
    words = dict(enumerate(vocabulary.words, start=2))
    for sentence, ids in zip(sentences, vocabulary.encode(sentences), strict=True):
        assert [words[i] for i in ids] == tokenize(sentence)


# -- batches -------------------------------------------------------------------------------------
