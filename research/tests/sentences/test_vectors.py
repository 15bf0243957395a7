"""Word vectors: the same table from every kind of file, and bad lines named."""

import gzip
import random

import numpy as np
import pytest

from tailwise.tables.read import TableError
from tailwise_bench.sentences.pairs import load_stsb_dir
from tailwise_bench.sentences.vectors import vector_words, word_vectors
from tailwise_bench.sentences.words import Vocabulary

WORDS = ("the", "dog", ".", "ran", "unused")
VECTORS = np.random.default_rng(0).normal(size=(5, 4)).round(3).astype(np.float32)
VOCABULARY = Vocabulary(("dog", "zorp", "the", "ran", "blib"))
LINES = [f"{word} {' '.join(map(str, row))}" for word, row in zip(WORDS, VECTORS.tolist(), strict=True)]


class Trap:
    """Notes it if unpickled."""

    sprung = False

    def __reduce__(self):
        return setattr, (Trap, "sprung", True)


@pytest.fixture(params=["npz", "txt", "gz", "word2vec", "crlf", "tabs", "mark", "blank"])
def file(tmp_path, request):
    """The same vectors in every kind of file."""
    text = "\n".join(LINES) + "\n"
    path = tmp_path / f"v.{request.param}"
    match request.param:
        case "npz":
            np.savez(path, words=np.array(WORDS), vectors=VECTORS)
        case "txt":
            path.write_text(text)
        case "gz":
            path.write_bytes(gzip.compress(text.encode()))
        case "word2vec":
            path.write_text(f"5 4\n{text}")
        case "crlf":
            path.write_bytes(text.replace("\n", " \r\n").encode())
        case "tabs":
            path.write_text(text.replace(" ", "\t"))
        case "mark":
            path.write_text("\ufeff" + text, encoding="utf-8")
        case "blank":
            path.write_text("\n\n5 4\n" + text.replace("\n", "\n \t\n\n"))
    return path


def test_rows_are_those_of_the_ids(file):
    table = word_vectors(file, VOCABULARY)
    assert (table.shape, table.dtype) == ((7, 4), np.float32)
    np.testing.assert_array_equal(table[0], 0)
    np.testing.assert_allclose(table[1], VECTORS[[1, 0, 3]].mean(axis=0), rtol=1e-6)
    np.testing.assert_allclose(table[[2, 4, 5]], VECTORS[[1, 0, 3]], rtol=1e-6)


def test_words_without_a_vector_can_be_told_apart(file):
    table = word_vectors(file, VOCABULARY)
    zorp, blib = table[3], table[6]
    assert np.isfinite(table).all()
    assert not np.allclose(zorp, blib)
    np.testing.assert_array_equal(table, word_vectors(file, VOCABULARY))
    other = word_vectors(file, VOCABULARY, seed=1)
    assert not np.allclose(table[[3, 6]], other[[3, 6]])
    np.testing.assert_array_equal(table[[0, 1, 2, 4, 5]], other[[0, 1, 2, 4, 5]])


def test_drawn_vectors_have_the_mean_and_spread_of_the_others(tmp_path):
    rng = np.random.default_rng(0)
    words = [f"w{i}" for i in range(500)]
    vectors = rng.normal([5, -1], [0.1, 3], (500, 2))
    np.savez(tmp_path / "v.npz", words=np.array(words), vectors=vectors)
    table = word_vectors(tmp_path / "v.npz", Vocabulary((*words, *(f"x{i}" for i in range(2000)))))
    drawn = table[502:]
    np.testing.assert_allclose(drawn.mean(axis=0), vectors.mean(axis=0), atol=0.3)
    np.testing.assert_allclose(drawn.std(axis=0), vectors.std(axis=0), rtol=0.1)


def test_words_come_in_the_order_of_the_file(file):
    assert vector_words(file) == list(WORDS)
    assert vector_words(file, 2) == ["the", "dog"]


def test_a_word_may_hold_spaces_and_be_there_twice(tmp_path):
    path = tmp_path / "v.txt"
    path.write_text("the 1 2\n. . . 3 4\nat name@x 5 6\nthe 7 8\n")
    assert vector_words(path) == ["the", ". . .", "at name@x"]
    np.testing.assert_array_equal(word_vectors(path, Vocabulary(("the", ". . .")))[2:], [[1, 2], [3, 4]])
    np.savez(tmp_path / "v.npz", words=np.array(["the", "the"]), vectors=[[1, 2], [7, 8]])
    assert vector_words(tmp_path / "v.npz") == ["the"]
    np.testing.assert_array_equal(word_vectors(tmp_path / "v.npz", Vocabulary(("the",)))[2:], [[1, 2]])


@pytest.mark.parametrize("header", ["", "3 2\n"])
def test_the_first_word_may_hold_spaces_or_be_a_number(tmp_path, header):
    path = tmp_path / "v.txt"
    path.write_text(f"{header}. . 3 4\nthe 1 2\n2003 5 6\n")
    assert vector_words(path) == [". .", "the", "2003"]
    path.write_text(f"{header}2003 5 6\n. . 3 4\nthe 1 2\n")
    np.testing.assert_array_equal(word_vectors(path, Vocabulary(("the", "2003")))[2:], [[1, 2], [5, 6]])


def test_npz_is_known_by_what_it_holds(tmp_path):
    with (tmp_path / "v.vectors").open("wb") as file:
        np.savez(file, words=np.array(WORDS), vectors=VECTORS)
    assert vector_words(tmp_path / "v.vectors") == list(WORDS)


@pytest.mark.parametrize("there", [3, 4])
def test_a_cut_off_file_is_told_by_what_it_promises(tmp_path, there):
    path = tmp_path / "v.txt"
    path.write_text("5 4\n" + "\n".join(LINES[:there]) + "\n\n")
    with pytest.raises(TableError, match=f"ends after {there} words, but .* promises 5: download it"):
        word_vectors(path, VOCABULARY)
    assert vector_words(path, 2) == ["the", "dog"]


def test_only_wanted_words_are_kept(tmp_path):
    """Numbers of other words are not even looked at, so their count does not matter to memory."""
    path = tmp_path / "v.txt"
    path.write_text("the 1 2\nother x y\ncaf\udce9 1 2\n", errors="surrogateescape")
    assert word_vectors(path, Vocabulary(("the",))).tolist() == [[0, 0], [1, 2], [1, 2]]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b"2 4\n", "is empty"),
        (b"\n \n", "is empty"),
        (b"\nthe 1\n2\n", "line 3 is not a word and 1 numbers"),
        (b"the 1 2\ndog 3\n", "line 2 is not a word and 2 numbers"),
        (b"the 1 2\n\ndog 3\n", "line 3 is not a word and 2 numbers"),
        (b"the 1 2\ndog 3 x\n", "line 2 is not a word and its numbers: number 2, 'x', is not a number"),
        (b"the 1 2\ndog 3 1_0\n", "number 2, '1_0', is not a number"),
        (b"the 1 2\ndog 3 4 5\n", "line 2 has more than 2 numbers: correct it"),
        (b"2 3\nthe 1 2\n", "line 2 is not a word and 3 numbers"),
        (b"2 2\nthe \x00\x01\xff\n", "line 2 is no text: .*word2vec's binary format is not supported"),
        (b"PK\x03\x04\x14\x00", "is a ZIP archive .*: unpack it"),
        (b"the 1 2\ndog 3  4\n", "line 2 is not a word and 2 numbers with one space between"),
        (b"the 1 nan\n", "line 1 .*: number 2, 'nan', is not finite: correct it"),
        (b"the 1 1e39\n", "line 1 .*: number 2, '1e39', is not finite"),
        (b"cat 1 2\n", "a vector for none of the 2 words"),
        (gzip.compress(b"the 1 2\n" * 100, mtime=0)[:-12], "cannot read .*: copy or download it again"),
    ],
)
def test_bad_lines_are_named(tmp_path, content, message):
    path = tmp_path / "v.txt"
    path.write_bytes(content)
    with pytest.raises(TableError, match=message) as error:
        word_vectors(path, Vocabulary(("the", "dog")))
    assert str(path) in str(error.value)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"words": np.array(["a"])}, "no array 'vectors'"),
        ({"words": np.array(["a"]), "vectors": np.zeros((2, 3))}, r"words must be texts \(W,\)"),
        ({"words": np.array([1]), "vectors": np.zeros((1, 3))}, r"words must be texts \(W,\)"),
        ({"words": np.array(["a"]), "vectors": np.array([["x"]])}, r"words must be texts \(W,\)"),
        (
            {"words": np.array(["a", "b"]), "vectors": np.array([[0.0], [1e39]])},
            "of 'b', row 1, .* not finite",
        ),
        ({"words": np.array(["a"]), "vectors": np.zeros((1, 0))}, r"words must be texts \(W,\)"),
        ({"words": np.array(["a"], object), "vectors": np.zeros((1, 3))}, "'words' holds Python objects"),
    ],
)
def test_wrong_arrays_are_named(tmp_path, arrays, message):
    np.savez(tmp_path / "v.npz", **arrays)
    with pytest.raises(TableError, match=message):
        word_vectors(tmp_path / "v.npz", Vocabulary(("a",)))


def test_missing_files_are_named(tmp_path):
    for name in ("v.npz", "v.txt"):
        with pytest.raises(TableError, match=f"{name} does not exist"):
            vector_words(tmp_path / name)
    with pytest.raises(TableError, match="is a folder: name a file of word vectors in it"):
        vector_words(tmp_path)


def test_nothing_to_look_up_is_refused(file):
    with pytest.raises(ValueError, match="the vocabulary holds no words: build it"):
        word_vectors(file, Vocabulary(()))
    with pytest.raises(ValueError, match="most must be at least 0, got -1"):
        vector_words(file, -1)


def test_objects_in_a_file_are_not_run(tmp_path):
    np.savez(tmp_path / "v.npz", words=np.array([Trap()], object), vectors=np.ones((1, 1)))
    with pytest.raises(TableError, match="which could run code and are not loaded"):
        vector_words(tmp_path / "v.npz")
    assert not Trap.sprung


@pytest.mark.parametrize("kind", ["txt", "gz", "npz"])
def test_no_broken_file_gives_an_unclear_error(tmp_path, kind):
    path = tmp_path / f"v.{kind}"
    text = "\n".join(LINES).encode()
    if kind == "npz":
        np.savez_compressed(path, words=np.array(WORDS), vectors=VECTORS)
    else:
        path.write_bytes(text if kind == "txt" else gzip.compress(text))
    content = path.read_bytes()
    refused = 0
    for seed in range(80):
        draw, data = random.Random(seed), bytearray(content)
        for _ in range(draw.randint(1, 4)):
            at = draw.randrange(len(data))
            data[at : at + draw.choice([0, 1, 9])] = draw.choice([b"", b" ", b"\n", b"\xff", b"9", b"\x00"])
        path.write_bytes(data)
        try:
            table = word_vectors(path, VOCABULARY)
        except TableError as error:
            assert str(path) in str(error), seed
            refused += 1
        else:
            assert np.isfinite(table).all(), seed
    assert refused > 8


def test_real_vectors_fill_the_vocabulary(data_root):
    stsb = load_stsb_dir(data_root / "stsb-dir")
    path = data_root / "stsb-dir" / "glove6B_50+100d.npz"
    vocabulary = Vocabulary.build(stsb.train.sentences, vectors=path)
    table = word_vectors(path, vocabulary)
    assert table.shape == (len(vocabulary), 150)
    # 50 numbers, then 100; a word that lacks the 100 has zeros there.
    with np.load(path) as stored:
        lacks = dict(zip(stored["words"].tolist(), ~stored["has100"], strict=True))
    rows = np.array([lacks.get(word, False) for word in ("", "", *vocabulary.words)])
    assert rows.sum() == 790
    assert (table[rows, 50:] == 0).all()
    assert (table[rows, :50] != 0).any(axis=1).all()
    # Only training words that no vector covers are drawn.
    assert len(vocabulary.words) - len(lacks) < 0.02 * len(vocabulary)
