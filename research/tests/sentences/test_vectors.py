"""Word vectors of a vocabulary."""

from pathlib import Path

import numpy as np
import pytest

from tailwise_bench.sentences.pairs import load_stsb_dir
from tailwise_bench.sentences.vectors import vector_words, word_vectors
from tailwise_bench.sentences.words import Vocabulary

WORDS = ("the", "dog", ".", "ran", "unused")
VECTORS = np.random.default_rng(0).normal(size=(5, 4)).round(3).astype(np.float32)
VOCABULARY = Vocabulary(("dog", "zorp", "the", "ran", "blib"))


class Trap:
    """Notes it if unpickled."""

    sprung = False

    def __reduce__(self):
        return setattr, (Trap, "sprung", True)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    np.savez(tmp_path / "v.npz", words=np.array(WORDS), vectors=VECTORS)
    return tmp_path / "v.npz"


def test_rows_are_those_of_the_ids_and_words_without_a_vector_differ(file: Path) -> None:
    assert vector_words(file) == list(WORDS)
    table = word_vectors(file, VOCABULARY)
    assert (table.shape, table.dtype) == ((7, 4), np.float32)
    np.testing.assert_array_equal(table[0], 0)
    np.testing.assert_allclose(table[1], VECTORS[[1, 0, 3]].mean(axis=0), rtol=1e-6)
    np.testing.assert_array_equal(table[[2, 4, 5]], VECTORS[[1, 0, 3]])
    assert np.isfinite(table).all() and not np.allclose(table[3], table[6])
    other = word_vectors(file, VOCABULARY, seed=1)
    assert not np.allclose(table[[3, 6]], other[[3, 6]])
    np.testing.assert_array_equal(table[[0, 1, 2, 4, 5]], other[[0, 1, 2, 4, 5]])


def test_drawn_vectors_have_the_mean_and_spread_of_the_others(tmp_path: Path) -> None:
    vectors = np.random.default_rng(0).normal([5, -1], [0.1, 3], (500, 2))
    words = [f"w{i}" for i in range(500)]
    np.savez(tmp_path / "v.npz", words=np.array(words), vectors=vectors)
    drawn = word_vectors(tmp_path / "v.npz", Vocabulary((*words, *(f"x{i}" for i in range(2000)))))[502:]
    np.testing.assert_allclose(drawn.mean(axis=0), vectors.mean(axis=0), atol=0.3)
    np.testing.assert_allclose(drawn.std(axis=0), vectors.std(axis=0), rtol=0.1)


def test_objects_in_a_file_are_not_run(tmp_path: Path) -> None:
    np.savez(tmp_path / "v.npz", words=np.array([Trap()], object), vectors=np.ones((1, 1)))
    with pytest.raises(ValueError, match="Object arrays cannot be loaded"):
        vector_words(tmp_path / "v.npz")
    assert not Trap.sprung


def test_real_vectors_fill_the_vocabulary(data_root: Path) -> None:
    stsb = load_stsb_dir(data_root / "stsb-dir")
    path = data_root / "stsb-dir" / "glove6B_50+100d.npz"
    vocabulary = Vocabulary.build(stsb.train.sentences, vectors=path)
    table = word_vectors(path, vocabulary)
    assert table.shape == (len(vocabulary), 150) and (table[2:] != 0).any(axis=1).all()
    # Only training words that no vector covers are drawn.
    assert len(vocabulary.words) - len(vector_words(path)) < 0.02 * len(vocabulary)
