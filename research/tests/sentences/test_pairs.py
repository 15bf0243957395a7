"""Sentence pairs: rows are read as they are, and a bad one is named by its line."""

import numpy as np
import pytest

from tailwise import LabelBins
from tailwise_bench.sentences.pairs import (
    DIR_BINS,
    DIR_MANY,
    DIR_MEDIUM,
    SentencePairs,
    dir_shots,
    load_sentence_vectors,
    load_stsb_dir,
    overlap,
    read_pairs,
)

HEADER = "index\tsentence1\tsentence2\tscore"


def write(path, *rows) -> None:
    path.write_text("\n".join([HEADER, *rows]) + "\n", encoding="utf-8")


def test_quotation_marks_and_other_line_ends_are_characters(tmp_path):
    write(tmp_path / "a.tsv", '0\t"Open\tone\u2028two\t4.571', '1\tcafé\tShe said "no".\t5')
    read = read_pairs(tmp_path / "a.tsv")
    assert (read.first, read.second) == (['"Open', "café"], ["one\u2028two", 'She said "no".'])
    assert read.score.tolist() == [4.571, 5.0] and read.sentences == read.first + read.second


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("0\ta\tb", "line 3: 3 fields where the first line has 4"),
        *((f"0\ta\tb\t{score}", "line 3: expected two") for score in ("", "nan", "5.1", "-1", "good")),
        ("0\t \tb\t1", "line 3: expected two sentences"),
    ],
)
def test_a_bad_row_is_named_by_its_line(tmp_path, row, message):
    write(tmp_path / "a.tsv", "0\ta\tb\t1", row)
    with pytest.raises(ValueError, match=rf"a\.tsv, {message}"):
        read_pairs(tmp_path / "a.tsv")
    (tmp_path / "b.tsv").write_text("sentence1\tsentence2\tgold\na\tb\t1\n")
    with pytest.raises(ValueError, match="has no column score"):
        read_pairs(tmp_path / "b.tsv")


def test_the_files_that_dir_makes_are_preferred(tmp_path):
    for part in ("train", "dev", "test"):
        write(tmp_path / f"{part}.tsv", "0\ta\tb\t1")
    assert len(load_stsb_dir(tmp_path).dev) == 1
    write(tmp_path / "train_new.tsv", "0\ta\tb\t1")
    with pytest.raises(FileNotFoundError, match=r"dev_new\.tsv"):  # parts of two splits are not mixed
        load_stsb_dir(tmp_path)


def test_overlap_ignores_the_order_of_a_pair():
    train = SentencePairs(["a", "b", "c", "x"], ["b", "c", "d", "x"], np.zeros(4))
    test = SentencePairs(["b", "a", "c", "x", "a"], ["a", "c", "b", "x", "a"], np.zeros(5))
    assert overlap(train, test).tolist() == [0, 2, 3]
    assert overlap(test, SentencePairs([], [], np.zeros(0))).tolist() == []


def test_dir_shots_follow_the_published_lists():
    middles = (np.arange(DIR_BINS) + 0.5) / 10
    shots = dir_shots(middles)
    assert np.flatnonzero(shots == "many").tolist() == list(DIR_MANY)
    assert np.flatnonzero(shots == "medium").tolist() == list(DIR_MEDIUM)
    assert (shots == "few").sum() == DIR_BINS - len(DIR_MANY) - len(DIR_MEDIUM)


def test_dir_bins_are_those_of_float32():
    # In float64 0.6 and 2.4 lie a little below the edges 6 * 0.1 and 24 * 0.1, in float32 on them.
    tenths = np.arange(50) / 10
    np.testing.assert_array_equal(dir_shots(tenths), dir_shots(tenths + 0.05))
    np.testing.assert_array_equal(dir_shots(tenths.astype(np.float32)), dir_shots(tenths))
    in_float64 = np.searchsorted(np.linspace(0, 5, 51), tenths, side="right") - 1
    assert (in_float64 != np.arange(50)).any()
    assert dir_shots([5.0]).tolist() == ["many"]


# -- the real data -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def stsb(data_root):
    return load_stsb_dir(data_root / "stsb-dir")


def test_stsb_dir_has_the_published_sizes(stsb):
    assert (len(stsb.train), len(stsb.dev), len(stsb.test)) == (5249, 1000, 1000)
    for part in (stsb.train, stsb.dev, stsb.test):
        assert (part.score.min(), part.score.max()) == (0, 5)
    # dev and test are balanced over 20 bins.
    np.testing.assert_array_equal(np.histogram(stsb.test.score.astype(np.float32), 20, (0, 5))[0], 50)


def test_some_test_pairs_were_trained_on(stsb):
    again = overlap(stsb.train, stsb.test)
    trained = set(zip(stsb.train.first, stsb.train.second, strict=True))
    same_order = [row for row in again if (stsb.test.first[row], stsb.test.second[row]) in trained]
    assert (len(again), len(same_order)) == (19, 15)


def test_the_published_shots_are_counts_with_few_below_30(stsb):
    bins = LabelBins.from_labels(stsb.train.score, edges=np.linspace(0, 5, DIR_BINS + 1))
    for part in (stsb.train, stsb.dev, stsb.test):
        np.testing.assert_array_equal(bins.regions(few=30)[bins.index(part.score)], dir_shots(part.score))


def test_published_shots_agree_with_published_figures(stsb):
    """The MSE of all rows is the mean of the regions' MSEs, in DIR's table only with these regions."""
    shots = dir_shots(stsb.test.score)
    rows = np.array([(shots == region).sum() for region in ("many", "medium", "few")])
    assert rows.tolist() == [756, 170, 74]
    published = {"LDS": (0.914, 0.819, 1.319, 0.955), "LDS + FDS": (0.907, 0.802, 1.363, 0.942)}
    for overall, *regions in published.values():
        assert rows @ regions / 1000 == pytest.approx(overall, abs=1e-3)
    bins = LabelBins.from_labels(stsb.train.score, edges=np.linspace(0, 5, DIR_BINS + 1))
    printed = bins.regions()[bins.index(stsb.test.score)]
    assert [int((printed == region).sum()) for region in ("many", "medium", "few")] == [756, 207, 37]


def test_sentence_vectors_are_in_the_order_of_the_pairs(stsb, data_root):
    vectors = load_sentence_vectors(data_root / "stsb-dir" / "minilm384.npz")
    for part in ("train", "dev", "test"):
        np.testing.assert_allclose(getattr(vectors, part).y, getattr(stsb, part).score, atol=1e-6)
    a, b = vectors.test.x[:, 0], vectors.test.x[:, 1]
    cosine = (a * b).sum(1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)
    assert np.corrcoef(cosine, vectors.test.y)[0, 1] > 0.8
