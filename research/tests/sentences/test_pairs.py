"""Sentence pairs: every bad row is named by its line, and none is lost or made up."""

import gzip
import random

import numpy as np
import pytest

from tailwise import LabelBins
from tailwise.tables.read import TableError
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

HEADER = "index\tgenre\tfilename\tyear\told_index\tsource1\tsource2\tsentence1\tsentence2\tscore"
WORDS = (
    *("a", "the", "man", "woman", "dog", "cat", "plays", "rides", "eats", "guitar", "horse"),
    *("isn't", "U.S.", "1,000", '"quoted"', "café"),
)


def generated(rows: int, seed: int = 0) -> list[tuple[str, str, str]]:
    """Pairs as STS-B has them: short sentences, scores on a few grids."""
    draw = random.Random(seed)
    return [
        (
            " ".join(draw.choices(WORDS, k=draw.randint(3, 12))),
            " ".join(draw.choices(WORDS, k=draw.randint(3, 12))),
            draw.choice(["0.000", "2.5", "3", "4.57142857142857", "5.000"]),
        )
        for _ in range(rows)
    ]


def stsb_lines(pairs: list[tuple[str, str, str]]) -> list[str]:
    rows = (
        f"{i}\tcaptions\tMSRvid\t2012\t{i:04}\tnone\tnone\t{a}\t{b}\t{y}" for i, (a, b, y) in enumerate(pairs)
    )
    return [HEADER, *rows]


def write(path, lines) -> None:
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


# -- layouts -------------------------------------------------------------------------------------


def test_the_stsb_layout_is_read_as_it_is(tmp_path):
    pairs = generated(30)
    write(tmp_path / "train.tsv", stsb_lines(pairs))
    read = read_pairs(tmp_path / "train.tsv")
    assert (len(read), read.skipped) == (30, ())
    assert list(zip(read.first, read.second, strict=True)) == [(a, b) for a, b, _ in pairs]
    assert read.score.dtype == np.float64
    np.testing.assert_array_equal(read.score, [float(y) for _, _, y in pairs])
    assert read.sentences == read.first + read.second


def test_a_quotation_mark_between_tabs_is_a_character(tmp_path):
    write(tmp_path / "a.tsv", stsb_lines([('"Open', 'She said "no".', "1"), ("b", '"c"', "2")]))
    read = read_pairs(tmp_path / "a.tsv")
    assert (read.first, read.second) == (['"Open', "b"], ['She said "no".', '"c"'])


def test_only_line_feeds_end_a_line(tmp_path):
    write(tmp_path / "a.tsv", stsb_lines([("one\u2028two", "three\x0bfour\x85five", "1")]))
    read = read_pairs(tmp_path / "a.tsv")
    assert (read.first, read.second) == (["one\u2028two"], ["three\x0bfour\x85five"])


@pytest.mark.parametrize("ending", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
@pytest.mark.parametrize("packed", [False, True])
def test_line_endings_marks_and_gzip_change_nothing(tmp_path, ending, mark, packed):
    content = (mark + ending.join(stsb_lines(generated(5))) + 2 * ending).encode()
    path = tmp_path / "pairs"
    path.write_bytes(gzip.compress(content) if packed else content)
    assert [float(y) for *_, y in generated(5)] == read_pairs(path).score.tolist()


@pytest.mark.parametrize(
    ("name", "lines", "columns"),
    [
        ("a.csv", ["text,other,alike", '"a, b","say ""hi""",0.5', "c,d,2"], ("text", "other", "alike")),
        ("a.csv", ["Alike;Text;Other", '0.5;a, b;"say ""hi"""', "2;c;d"], ("text", "other", "alike")),
        ("a.csv", ["0.5|a, b|\"say \"\"hi\"\"\"", "2|c|d"], (1, 2, 0)),
        ("a.txt", ["0.5\ta, b\tsay \"hi\"", "2\tc\td\tsource"], (1, 2, 0)),
        ("a.tsv", ["y\ta\tb", "0.5\ta, b\tsay \"hi\"", "2\tc\td"], (1, 2, 0)),
        ("a.tsv", ["y\ta\tb", "0.5\ta, b\tsay \"hi\"", "2\tc\td"], ("a", 2, "y")),
    ],
)  # fmt: skip
def test_other_layouts_by_name_or_place(tmp_path, name, lines, columns):
    write(tmp_path / name, lines)
    read = read_pairs(tmp_path / name, columns=columns)
    assert (read.first, read.second) == (["a, b", "c"], ['say "hi"', "d"])
    assert read.score.tolist() == [0.5, 2.0]


def test_ten_columns_under_other_names_are_taken_by_place(tmp_path):
    lines = stsb_lines(generated(3))
    lines[0] = HEADER.replace("sentence", "s").replace("score", "gold")
    write(tmp_path / "a.tsv", lines)
    assert len(read_pairs(tmp_path / "a.tsv")) == 3


def test_other_columns_than_ten_are_not_taken_by_place(tmp_path):
    rows = [f"{line}\t1" for line in stsb_lines(generated(3))]
    write(tmp_path / "a.tsv", [rows[0].replace("sentence", "s"), *rows[1:]])
    with pytest.raises(TableError, match=r"no columns sentence1, sentence2; .*name the columns of"):
        read_pairs(tmp_path / "a.tsv")


def test_a_first_row_without_a_score_is_kept_in_mind_where_there_are_no_names(tmp_path):
    write(tmp_path / "a.tsv", ["a\tb\t", "c\td\t2"])
    assert read_pairs(tmp_path / "a.tsv", columns=(0, 1, 2)).skipped == ()  # taken for names
    read = read_pairs(tmp_path / "a.tsv", columns=(0, 1, 2), named=False, on_error="skip")
    assert (read.first, read.skipped) == (["c"], ("line 1: the score '' is not a number",))
    write(tmp_path / "a.tsv", ["1\t2\t3", "c\td\t2"])
    assert read_pairs(tmp_path / "a.tsv", columns=(0, 1, 2), named=True).first == ["c"]


# -- bad rows ------------------------------------------------------------------------------------


BAD = {
    3: ("1\tx\tx\tx\tx\tx\tx\tone\ttwo", "line 3: 9 fields where the first line has 10"),
    5: ("1\tx\tx\tx\tx\tx\tx\tone\ttwo\t3\textra", "line 5: 11 fields where the first line has 10"),
    6: ("1\tx\tx\tx\tx\tx\tx\tone\ttwo\tgood", "line 6: the score 'good' is not a number"),
    7: ("1\tx\tx\tx\tx\tx\tx\tone\ttwo\t", "line 7: the score '' is not a number"),
    8: ("1\tx\tx\tx\tx\tx\tx\tone\ttwo\tnan", "line 8: the score 'nan' is not finite"),
    10: ("1\tx\tx\tx\tx\tx\tx\tone\ttwo\t1e999", "line 10: the score '1e999' is not finite"),
    11: ("1\tx\tx\tx\tx\tx\tx\t \ttwo\t1", "line 11: the first sentence is empty"),
    12: ("1\tx\tx\tx\tx\tx\tx\tone\t\t1", "line 12: the second sentence is empty"),
    13: ("1\tx\tx\tx\tx\tx\tx\tone\tt\udce9\t1", "line 13: bytes that are not UTF-8"),
    14: ("1\tx\tx\tx\tx\tx\tx\tone\ttwo\t1_0", "line 14: the score '1_0' is not a number"),
    16: ("1\tx\tx\tx\tx\tx\tx\tone\ttwo\t1,5", "line 16: the score '1,5' is not a number: write 1.5"),
    17: ("1\tx\tx\tx\tx\tx\tx\tone\x00\ttwo\t1", "line 17: a zero byte, which is no text"),
}


@pytest.fixture
def broken(tmp_path):
    """A file with bad rows in the lines that BAD names, a blank line, and 8 good rows."""
    good = iter(stsb_lines(generated(8)))
    lines = [BAD[n][0] if n in BAD else "" if n == 15 else next(good) for n in range(1, 23)]
    path = tmp_path / "broken.tsv"
    path.write_bytes("\n".join(lines).encode(errors="surrogateescape"))
    return path


def test_bad_rows_are_refused_by_line(broken):
    with pytest.raises(TableError) as error:
        read_pairs(broken)
    message = str(error.value)
    assert message.startswith(f"{broken}: 12 of 20 rows cannot be used: line 3: ")
    assert all(BAD[n][1] in message for n in (3, 5, 6, 7, 8))
    assert "line 10" not in message
    assert "on_error='skip'" in message


def test_bad_rows_are_skipped_and_kept_in_mind(broken):
    read = read_pairs(broken, on_error="skip")
    assert list(read.skipped) == [reason for _, reason in BAD.values()]
    assert read.first == [a for a, _, _ in generated(8)]


def test_rows_without_names_need_the_wanted_columns_only(tmp_path):
    write(tmp_path / "a.tsv", ["1\ta\tb\tsource", "2\tc\td", "3\te"])
    read = read_pairs(tmp_path / "a.tsv", columns=(1, 2, 0), on_error="skip")
    assert (read.first, read.score.tolist()) == (["a", "c"], [1, 2])
    assert read.skipped == ("line 3: 2 fields, but column 2 (from 0) is needed",)


def test_an_open_quotation_mark_in_csv_spoils_its_own_line_only(tmp_path):
    lines = ["sentence1,sentence2,score", "a,b,1", 'c,"d,2', "e,f,3", 'g,"h",4', 'i,"j,5']
    write(tmp_path / "a.csv", lines)
    with pytest.raises(TableError, match=r"2 of 5 rows .* line 3: a quotation mark is left open; line 6"):
        read_pairs(tmp_path / "a.csv")
    read = read_pairs(tmp_path / "a.csv", on_error="skip")
    assert (read.first, read.second) == (["a", "e", "g"], ["b", "f", "h"])
    assert read.skipped == ("line 3: a quotation mark is left open", "line 6: a quotation mark is left open")


def test_a_field_that_swallowed_a_line_is_suspected(tmp_path):
    write(tmp_path / "a.csv", ["sentence1,sentence2,score", "a,b,1", 'c,"d,2', 'e"', "f,g,3"])
    read = read_pairs(tmp_path / "a.csv", on_error="skip")
    assert (read.first, read.second) == (["a", "f"], ["b", "g"])
    assert read.skipped == ("line 3: 2 fields where the first line has 3; is a quotation mark left open?",)


def test_stray_quotation_marks_and_returns_within_a_line_of_csv_are_passed_over(tmp_path):
    path = tmp_path / "a.csv"
    path.write_bytes(b'sentence1,sentence2,score\n"Stop," he said,so 5" long,1\na\rb,c,2\n')
    read = read_pairs(path)
    assert (read.first, read.second) == (["Stop, he said", "a\rb"], ['so 5" long', "c"])


@pytest.mark.parametrize("mark", ["", '"'])
def test_a_very_long_field_is_no_trouble_to_other_rows(tmp_path, mark):
    text = "x" * 140_000
    write(tmp_path / "a.csv", ["sentence1,sentence2,score", f"{mark}{text}{mark},b,1", "c,d,2"])
    read = read_pairs(tmp_path / "a.csv", on_error="skip")
    if mark:
        assert read.skipped == (
            "line 2: a field of more than 131,072 characters: is a quotation mark left open?",
        )
    assert read.first == (["c"] if mark else [text, "c"])


def test_quotation_marks_between_tabs_enclose_fields_where_asked_or_plain(tmp_path):
    path = tmp_path / "a.tsv"
    row = '"say ""hi""\tthere"\tb\t1'
    write(path, ["sentence1\tsentence2\tscore", row])
    assert read_pairs(path, quoted=True).first == ['say "hi"\tthere']
    with pytest.raises(TableError, match="line 2: 4 fields"):
        read_pairs(path)
    write(path, ['"sentence1"\t"sentence2"\t"score"', row])  # as spreadsheets write them
    assert read_pairs(path).first == ['say "hi"\tthere']
    write(tmp_path / "a.csv", ["sentence1,sentence2,score", 'a "b,"c,1'])
    assert read_pairs(tmp_path / "a.csv", quoted=False).second == ['"c']


def test_lines_are_counted_through_quoted_line_breaks(tmp_path):
    write(tmp_path / "a.csv", ["sentence1,sentence2,score", '"a\nb",c,1', "d,e,none"])
    with pytest.raises(TableError, match="line 4: the score 'none'"):
        read_pairs(tmp_path / "a.csv")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b"\n \n\n", "is empty"),
        (b'""\n', "is empty"),
        (HEADER.encode(), "no rows"),
        (b"sentence1\tsentence2\tgold\na\tb\t1\n", r"no column score; .*columns=\(first, second, score\)"),
        (b"just a sentence\nand another\n", "has no columns sentence1, sentence2, score"),
        ("sentence1\tsentence2\tscore".encode("utf-16"), "is UTF-16: save it as UTF-8"),
        (b"\x1f\x8bno gzip at all", "is a damaged gzip file .*: copy or download it again"),
        (
            gzip.compress(HEADER.encode(), mtime=0)[:-9],
            "is a damaged gzip file .*: copy or download it again",
        ),
        (b"PK\x03\x04\x00", "is a ZIP archive or an Excel workbook: unpack it"),
        (b"BZh91AY", "is compressed with bzip2: unpack it first"),
        (b"PAR1\x00", "is a Parquet file: save it as CSV"),
        (HEADER.encode("utf-16-le"), "is a binary file, or UTF-16 without its mark: save it as UTF-8"),
        (b"\x07\x00\x01\n", "is a binary file"),
        (b'"sentence1,sentence2,score\na,b,1\n', "line 1: a quotation mark is left open: correct it"),
        (b"sentence1\tsentence2\tscore\na\tb\tc\n", "1 of 1 rows .* line 2: .*check the columns"),
        (b'sentence1,sentence2,score\na,"' + b"x" * 140_000, "line 2: a field of .*mark left open"),
    ],
)
@pytest.mark.parametrize("on_error", ["raise", "skip"])
def test_files_without_pairs_say_so(tmp_path, content, message, on_error):
    path = tmp_path / "a.tsv"
    path.write_bytes(content)
    with pytest.raises(TableError, match=message) as error:
        read_pairs(path, on_error=on_error)
    assert str(path) in str(error.value)


def test_missing_files_and_folders_are_named(tmp_path):
    with pytest.raises(TableError, match=r"none.tsv does not exist"):
        read_pairs(tmp_path / "none.tsv")
    with pytest.raises(TableError, match=r"is a folder: name a CSV or tsv file in it$"):
        read_pairs(tmp_path)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (("sentense1", "sentence2", "score"), "no column 'sentense1'; did you mean 'sentence1'"),
        ((7, 8, 10), "has 10 columns, counted from 0: there is no column 10"),
        ((7, 8, -1), "there is no column -1"),
        ((7, 7, 9), "three different columns"),
        (("sentence1", 7, "score"), "three different columns"),
        (("sentence1", "sentence2"), "three different columns"),
        ("abc", "three different columns .*, got 'abc'"),
        ((7, 8, 9.0), "a column must be a name or a place counted from 0, got 9.0"),
        ((7, True, 9), "a column must be a name or a place counted from 0, got True"),
        ((7, None, 9), "a column must be a name or a place counted from 0, got None"),
    ],
)
def test_wrong_columns_are_named(tmp_path, columns, message):
    write(tmp_path / "a.tsv", stsb_lines(generated(2)))
    with pytest.raises(ValueError, match=message):
        read_pairs(tmp_path / "a.tsv", columns=columns)


def test_places_may_be_numpy_numbers(tmp_path):
    write(tmp_path / "a.tsv", stsb_lines(generated(2)))
    assert len(read_pairs(tmp_path / "a.tsv", columns=tuple(np.array([7, 8, 9])))) == 2


def test_a_name_that_two_columns_share_is_refused(tmp_path):
    write(tmp_path / "a.tsv", ["Score\tsentence1\tsentence2\tSCORE", "1\ta\tb\t2"])
    for columns in (None, ("sentence1", "sentence2", "score")):
        with pytest.raises(TableError, match=r"2 columns named 'score': choose one by its place, \[0, 3\]"):
            read_pairs(tmp_path / "a.tsv", columns=columns)
    assert read_pairs(tmp_path / "a.tsv", columns=("sentence1", "sentence2", "SCORE")).score.tolist() == [2]


def test_errors_can_be_printed_whatever_the_bytes(tmp_path):
    path = tmp_path / "a.tsv"
    path.write_bytes(b"caf\xe9\tb\tc\nx\ty\t1\n")
    for columns in (None, ("none", "b", "c")):
        with pytest.raises(TableError) as error:
            read_pairs(path, columns=columns)
        str(error.value).encode()
    assert read_pairs(path, columns=(0, 1, 2)).first == ["x"]


def test_scores_outside_the_limits_are_bad_rows(tmp_path):
    write(tmp_path / "a.tsv", stsb_lines([("a", "b", "0"), ("c", "d", "-0.1"), ("e", "f", "5.2")]))
    read = read_pairs(tmp_path / "a.tsv", limits=(0, 5), on_error="skip")
    assert read.skipped == (
        "line 3: the score '-0.1' is not between 0 and 5",
        "line 4: the score '5.2' is not between 0 and 5",
    )
    assert len(read_pairs(tmp_path / "a.tsv")) == 3
    with pytest.raises(ValueError, match="the lowest and the highest score"):
        read_pairs(tmp_path / "a.tsv", limits=(5, 0))


def test_a_misspelt_on_error_is_answered_with_the_nearest(tmp_path):
    with pytest.raises(ValueError, match="unknown on_error 'skp'; did you mean 'skip'"):
        read_pairs(tmp_path / "a.tsv", on_error="skp")


def test_pairs_need_as_many_of_everything():
    with pytest.raises(ValueError, match="2 first sentences, 1 second sentences and 2 scores"):
        SentencePairs(["a", "b"], ["c"], np.zeros(2))
    with pytest.raises(TypeError, match="lists of sentences, got one text"):
        SentencePairs("ab", "cd", np.zeros(2))


def test_scores_of_pairs_may_be_a_list():
    assert SentencePairs(["a"], ["b"], [1]).score.dtype == np.float64


def mutated(content: bytes, draw: random.Random) -> bytes:
    """The content with a few bytes cut, doubled, moved or replaced by troublesome ones."""
    data = bytearray(content)
    marks = [b"\t", b"\n", b"\r", b'"', b",", b";", b"  ", b"nan"]
    troublesome = [*marks, b"\x00", b"\xff", b"\xe2\x80", b"\xef\xbb\xbf"]
    for _ in range(draw.randint(1, 12)):
        at = draw.randrange(len(data) + 1)
        match draw.randrange(4):
            case 0:
                del data[at : at + draw.choice([1, 3, 40, 400])]
            case 1:
                data[at:at] = draw.choice(troublesome)
            case 2:
                data[at : at + 1] = draw.choice(troublesome)
            case _:
                data[at:at] = data[draw.randrange(len(data) + 1) :][:50]
    return bytes(data)


@pytest.mark.parametrize("layout", ["tsv", "csv"])
def test_no_broken_file_gives_an_unclear_error_or_a_bad_pair(tmp_path, layout):
    pairs = generated(12)
    lines = stsb_lines(pairs)
    if layout == "csv":
        lines = ["sentence1,sentence2,score", *(f'{a.replace(",", " ")},"b",{y}' for a, _, y in pairs)]
    content, path = "\n".join(lines).encode(), tmp_path / f"a.{layout}"
    outcomes = {"read": 0, "skipped": 0, "refused": 0}
    for seed in range(120):
        path.write_bytes(mutated(content, random.Random(seed)))
        try:
            lenient = read_pairs(path, on_error="skip")
        except TableError as error:
            assert str(path) in str(error), seed
            lenient = None
        try:
            strict = read_pairs(path)
        except TableError as error:
            assert str(path) in str(error), seed
            strict = None
        # Refused in full only where something was skipped; what is read is the same either way.
        assert (strict is not None) == (lenient is not None and not lenient.skipped), seed
        if lenient is None:
            outcomes["refused"] += 1
            continue
        outcomes["skipped" if lenient.skipped else "read"] += 1
        assert strict is None or strict.sentences == lenient.sentences
        assert np.isfinite(lenient.score).all()
        assert all(text.strip() for text in lenient.sentences)
        assert all(c < "\udc80" or c > "\udcff" for text in lenient.sentences for c in text)
        assert all(reason.startswith("line ") for reason in lenient.skipped)
    assert min(outcomes.values()) > 5, outcomes


# -- STS-B-DIR -----------------------------------------------------------------------------------


def test_a_folder_of_three_parts(tmp_path):
    for part, rows in (("train", 7), ("dev", 3), ("test", 2)):
        write(tmp_path / f"{part}.tsv", stsb_lines(generated(rows)))
    split = load_stsb_dir(tmp_path)
    assert (len(split.train), len(split.dev), len(split.test)) == (7, 3, 2)
    # DIR's own folder has the original files beside the balanced ones.
    for part, rows in (("train", 5), ("dev", 4), ("test", 6)):
        write(tmp_path / f"{part}_new.tsv", stsb_lines(generated(rows)))
    split = load_stsb_dir(tmp_path)
    assert (len(split.train), len(split.dev), len(split.test)) == (5, 4, 6)


@pytest.mark.parametrize("gone", ["train", "dev", "test"])
def test_parts_of_two_splits_are_not_mixed(tmp_path, gone):
    for part in ("train", "dev", "test"):
        write(tmp_path / f"{part}.tsv", stsb_lines(generated(3)))
        if part != gone:
            write(tmp_path / f"{part}_new.tsv", stsb_lines(generated(3)))
    with pytest.raises(TableError, match=rf"_new.tsv but no {gone}_new.tsv: .* test rows would be"):
        load_stsb_dir(tmp_path)


def test_bad_rows_of_a_part_are_refused_or_skipped(tmp_path):
    for part in ("train", "dev", "test"):
        write(tmp_path / f"{part}.tsv", stsb_lines(generated(4)))
    write(tmp_path / "dev.tsv", [*stsb_lines(generated(2)), "too\tshort"])
    with pytest.raises(TableError, match=r"dev.tsv: 1 of 3 rows cannot be used: line 4"):
        load_stsb_dir(tmp_path)
    assert load_stsb_dir(tmp_path, on_error="skip").dev.skipped == (
        "line 4: 2 fields where the first line has 10",
    )


def test_stsb_scores_are_from_0_to_5(tmp_path):
    for part in ("train", "dev", "test"):
        write(tmp_path / f"{part}.tsv", stsb_lines([("a", "b", "5.0"), ("c", "d", "50")]))
    with pytest.raises(TableError, match=r"train.tsv: 1 of 2 .*line 3: the score '50' is not between"):
        load_stsb_dir(tmp_path)
    assert load_stsb_dir(tmp_path, on_error="skip").test.score.tolist() == [5]


def test_an_incomplete_folder_is_named(tmp_path):
    with pytest.raises(TableError, match="is not a folder"):
        load_stsb_dir(tmp_path / "none")
    with pytest.raises(TableError, match=r"holds no train.tsv"):
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


@pytest.mark.parametrize("score", [-0.1, 5.01])
def test_dir_shots_refuse_other_scales(score):
    with pytest.raises(ValueError, match="row 1 is"):
        dir_shots([1.0, score])


# -- sentence vectors ----------------------------------------------------------------------------


def vector_arrays(**changed):
    rng = np.random.default_rng(0)
    arrays = {}
    for part, rows in (("train", 6), ("dev", 3), ("test", 2)):
        arrays[f"{part}_a"] = rng.normal(size=(rows, 4)).astype(np.float16)
        arrays[f"{part}_b"] = rng.normal(size=(rows, 4)).astype(np.float16)
        arrays[f"{part}_y"] = rng.uniform(0, 5, rows).astype(np.float32)
    return arrays | changed


def test_sentence_vectors_are_pairs_in_float32(tmp_path):
    arrays = vector_arrays()
    np.savez(tmp_path / "v.npz", **arrays)
    parts = load_sentence_vectors(tmp_path / "v.npz")
    assert (parts.train.x.shape, parts.dev.x.shape, len(parts.test)) == ((6, 2, 4), (3, 2, 4), 2)
    assert (parts.train.x.dtype, parts.train.y.dtype) == (np.float32, np.float64)
    np.testing.assert_array_equal(parts.test.x[:, 1], arrays["test_b"])
    np.testing.assert_array_equal(parts.dev.y, arrays["dev_y"])


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"dev_b": np.zeros((2, 4))}, r"dev_a and dev_b must be numbers \(N, D\)"),
        ({"dev_y": np.array(["a", "b", "c"])}, "but they are float16"),
        ({"dev_y": np.array([0.0, np.nan, 1.0])}, "row 1 of dev_y holds a number that is not finite"),
        ({"dev_a": np.full((3, 4), 1e39)}, "row 0 of dev_a holds a number that is not finite"),
        ({"test_a": np.zeros((2, 5)), "test_b": np.zeros((2, 5))}, r"have \[4, 4, 5\] numbers"),
        ({"dev_y": np.array([None, 1, 2], dtype=object)}, "'dev_y' holds Python objects, which could"),
        ({f"dev_{what}": np.zeros((0, 4)[: 1 + (what != "y")]) for what in "aby"}, "dev_a and dev_b must be"),
    ],
)
def test_wrong_sentence_vectors_are_named(tmp_path, changed, message):
    np.savez(tmp_path / "v.npz", **vector_arrays(**changed))
    with pytest.raises(TableError, match=message) as error:
        load_sentence_vectors(tmp_path / "v.npz")
    assert str(tmp_path / "v.npz") in str(error.value)


def test_files_that_are_no_sentence_vectors_are_named(tmp_path):
    path = tmp_path / "v.npz"
    with pytest.raises(TableError, match="does not exist"):
        load_sentence_vectors(path)
    np.savez(path, train_a=np.zeros((1, 2)))
    with pytest.raises(TableError, match="no array 'train_b': it holds train_a, but needs train_a, "):
        load_sentence_vectors(path)
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(TableError, match="is not an npz file"):
        load_sentence_vectors(path)


# -- the real data -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def stsb(data_root):
    return load_stsb_dir(data_root / "stsb-dir")


def test_stsb_dir_has_the_published_sizes(stsb):
    assert (len(stsb.train), len(stsb.dev), len(stsb.test)) == (5249, 1000, 1000)
    assert stsb.train.skipped == stsb.dev.skipped == stsb.test.skipped == ()
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
