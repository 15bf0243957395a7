"""Reading and writing tables: what users have on disk, and what is wrong with it."""

import gzip
import io
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tailwise.tables import read as files
from tailwise.tables.read import TableError, read_table, write_table

ROWS = "name;größe;y\nä b;1,5;2\nc;2,5;3\n"


def written(folder: Path, content: bytes | str, name: str = "t.csv") -> Path:
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


@pytest.mark.parametrize("encoding", ["utf-8-sig", "latin-1", "utf-16", "utf-32"])
def test_encodings_and_decimal_commas(tmp_path: Path, encoding: str) -> None:
    table = read_table(written(tmp_path, ROWS.encode(encoding)))
    assert list(table.columns) == ["name", "größe", "y"]
    assert table["größe"].tolist() == [1.5, 2.5]
    assert table["name"].tolist() == ["ä b", "c"]


def test_commas_are_decimal_only_where_they_cannot_mark_thousands(tmp_path: Path) -> None:
    quoted = read_table(written(tmp_path, 'a,b\n"58,7","1,250"\n"3","2,500"\n'))
    assert quoted.to_dict("list") == {
        "a": [58.7, 3.0],
        "b": ["1,250", "2,500"],
    }  # other columns prove nothing
    cells = ["0,125", "12,50", "2,500", "", "7"]
    lines = "".join(f"{cell}\tx\n" for cell in cells)
    np.testing.assert_array_equal(
        read_table(written(tmp_path, f"a\tb\n{lines}"))["a"], [0.125, 12.5, 2.5, np.nan, 7.0]
    )
    strayed = 'a,b\n"2,000",x\n"1,50",y\n"3,500",z\n800,u\n'  # a mistake among thousands
    assert read_table(written(tmp_path, strayed))["a"].tolist() == ["2,000", "1,50", "3,500", "800"]
    for text in ('a,b\n"1,250",x\n999,y\n', "a\tb\n1,250\tx\n999\ty\n"):
        assert read_table(written(tmp_path, text))["a"].tolist() == ["1,250", "999"]
    assert read_table(written(tmp_path, "a;b\n1,250;x\n999;y\n"))["a"].tolist() == [1.25, 999.0]


@pytest.mark.parametrize(
    ("delimiter", "ending"), [(",", "\n"), (";", "\r\n"), ("\t", "\r"), ("|", "\n"), (" ", "\n")]
)
def test_delimiters_and_line_endings(tmp_path: Path, delimiter: str, ending: str) -> None:
    lines = [["a", "b", "c"], ["1", "2.5", "x"], ["3", "", "y"]]
    text = ending.join(delimiter.join(line) for line in lines if delimiter != " " or "" not in line) + ending
    table = read_table(written(tmp_path, text))
    assert list(table.columns) == ["a", "b", "c"]
    assert table["b"].iloc[0] == 2.5


def test_gzip_stdin_and_excel_marks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(read_table(written(tmp_path, gzip.compress(b"a,b\n1,2\n")))) == 1
    assert list(read_table(written(tmp_path, "sep=;\na;b\n1;2\n")).columns) == ["a", "b"]

    class Stdin:
        buffer = io.BytesIO(b"a,b\n1,2\n3,4\n")

    monkeypatch.setattr(sys, "stdin", Stdin())
    assert read_table("-").shape == (2, 2)


def test_unnamed_columns_are_left_out_and_counted(tmp_path: Path) -> None:
    table = read_table(written(tmp_path, ",a,b,\n0,1,2,\n1,3,4,\n"))
    assert list(table.columns) == ["a", "b"]
    assert table.attrs["unnamed"] == 2


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "is empty"),
        (b"\n \n", "is empty"),
        (b"a,b\n", "no rows"),
        (b"a,b,a\n1,2,3\n", "columns 1 and 3 are both named 'a'"),
        (b"a,b\n1,2\n3,4,5\n", "3 cells in line 3"),
        (b"a,b\n1,2,3\n4,5,6\n", "more cells than the 2 column names"),
        (b'a,b\n1,"2\n3,4\n', "line 2 that is never closed"),
        (b'a,"b\n1,2\n3,4\n', "quotation mark"),
        (b",,\n1,2,3\n", "names no columns"),
        (b"PK\x03\x04abc", "Excel"),
        (b"PAR1abc", "Parquet"),
        (b"%PDF-1.7", "PDF"),
        (bytes(range(256)) * 20, "binary"),
        (gzip.compress(b"a,b\n1,2\n" * 99, mtime=0)[:-9], "damaged gzip"),
        (b"\xff\xfea\x00,", "damaged"),
    ],
)
def test_what_is_wrong_is_said_with_the_file(tmp_path: Path, content: bytes, words: str) -> None:
    path = written(tmp_path, content)
    with pytest.raises(TableError) as raised:
        read_table(path)
    assert words in str(raised.value)
    assert str(path) in str(raised.value)


def test_missing_files_and_folders_point_to_what_is_there(tmp_path: Path) -> None:
    written(tmp_path, "a,b\n1,2\n", "houses.csv")
    with pytest.raises(TableError, match=r"did you mean 'houses.csv'"):
        read_table(tmp_path / "house.csv")
    with pytest.raises(TableError, match=r"is a folder: name a CSV"):
        read_table(tmp_path)
    with pytest.raises(TableError, match="no folder"):
        read_table(tmp_path / "none" / "x.csv")


@pytest.mark.parametrize("name", ["t.csv", "t.csv.gz", "t.tsv", "deep/er/t.csv", "t.parquet"])
def test_tables_are_written_and_read_back(tmp_path: Path, name: str) -> None:
    table = pd.DataFrame({"a": [1.5, 2.5], "b": ["x, y", "z"]})
    write_table(table, tmp_path / name)
    pd.testing.assert_frame_equal(read_table(tmp_path / name), table)
    assert [p.name for p in (tmp_path / name).parent.iterdir()] == [Path(name).name]


def test_parquet_needs_pyarrow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_table(pd.DataFrame({"a": [1]}), tmp_path / "t.parquet")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(TableError, match=r"t.parquet is a Parquet file, .* pip install 'tailwise\[big\]'"):
        read_table(tmp_path / "t.parquet")
    with pytest.raises(TableError, match=r"writing Parquet needs pyarrow: pip install 'tailwise\[big\]'"):
        write_table(pd.DataFrame({"a": [1]}), tmp_path / "new.parquet")


def test_a_zero_byte_far_down_names_its_line(tmp_path: Path) -> None:
    with pytest.raises(TableError, match="holds a NUL character in line 2002: remove it"):
        read_table(written(tmp_path, b"a,b\n" + b"1,2\n" * 2000 + b"3,\x00\n"))


# -- encodings and bytes -------------------------------------------------------------------------


WORDS = {
    "shift_jis": "名前,値段,y\n東京都新宿区,りんご,1\n大阪,ﾘﾝｺﾞ,2\n",
    "gb18030": "名称,价格,y\n北京市朝阳区,苹果,1\n上海,梨,2\n",
    "big5": "名稱,價格,y\n臺北市大安區,蘋果,1\n高雄,梨,2\n",
    "koi8-r": "имя,цена,y\nМосква город,яблоко,1\nТверь,груша,2\n",
    "euc-kr": "이름,값,y\n서울시,사과,1\n부산시,배,2\n",
}


@pytest.mark.parametrize("encoding", WORDS)
def test_text_of_other_scripts_is_not_read_as_western_text(tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(WORDS[encoding].encode(encoding))
    with pytest.raises(TableError, match=r"t\.csv is neither UTF-8 nor western text: .* name its encoding"):
        read_table(path)
    table = read_table(path, encoding)
    assert table.to_csv(index=False) == WORDS[encoding] and "encoding" not in table.attrs


def test_western_text_says_how_it_was_read(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes("name,größe\nKöln Straße,1\nHélène née à Évreux,2\n".encode("cp1252"))
    table = read_table(path)
    assert table.attrs["encoding"] == "cp1252" and list(table) == ["name", "größe"]


@pytest.mark.parametrize("encoding", ["nonsense", "hex"])
def test_encodings_that_are_none(tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(b"a,b\n1,2\n")
    with pytest.raises(TableError, match=f"unknown encoding '{encoding}'"):
        read_table(path, encoding)
    path.write_bytes(b"a,b\n1,\xff\n")
    with pytest.raises(TableError, match=r"t\.csv is damaged or in another encoding: byte 6 is not utf-8"):
        read_table(path, "utf-8")


def test_bytes_of_parquet_are_text_or_named(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    pd.DataFrame({"a": [b"x", None], "y": [1, 2]}).to_parquet(path)
    assert read_table(path)["a"].fillna("none").tolist() == ["x", "none"]
    pd.DataFrame({"a": [b"x", b"\xff"], "y": [1, 2]}).to_parquet(path)
    with pytest.raises(TableError, match=r"t\.parquet: column 'a' holds bytes that are not text"):
        read_table(path)


def test_a_gzip_bomb_is_not_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "MAX_UNPACKED", 1000)
    path = tmp_path / "t.csv.gz"
    path.write_bytes(gzip.compress(bytes(1_000_000)))
    with pytest.raises(TableError, match=r"t\.csv\.gz unpacks to more than \d+ bytes"):
        read_table(path)


# -- numbers with a unit -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cells", "numbers", "unit"),
    [
        (["1.257,33 EUR", "12 EUR", "-0,5 EUR"], [1257.33, 12, -0.5], "EUR"),
        (["€1,257.33", "€ 12", "-€3"], [1257.33, 12, -3], "€"),
        (["7%", "12.5 %"], [7, 12.5], "%"),
        (["12 km", "1'200 km", "1.257.000 km"], [12, 1200, 1257000], "km"),
        (["20 °C", "-3 °C"], [20, -3], "°C"),
    ],
)
def test_numbers_with_one_unit_are_numbers(
    tmp_path: Path, cells: list[str], numbers: list[float], unit: str
) -> None:
    lines = "".join(f'"{cell}";1\n' for cell in cells)
    table = read_table(written(tmp_path, f"x;y\n{lines};2\n"))
    np.testing.assert_array_equal(table["x"], [*numbers, np.nan])
    assert table.attrs["units"] == {"x": unit}


@pytest.mark.parametrize(
    "cells",
    [
        ["1.257 EUR", "1.300 EUR"],  # thousands or decimals
        ["1,5 km", "2.5 km"],
        ["12 km", "12 mi"],
        ["12 km", "far"],
        ["1.png", "20.png"],  # pictures
        ["3rd", "4th"],
    ],
)
def test_numbers_whose_unit_or_decimals_are_open_stay_text(tmp_path: Path, cells: list[str]) -> None:
    table = read_table(written(tmp_path, "x;y\n" + "".join(f"{cell};1\n" for cell in cells)))
    assert table["x"].tolist() == cells and "units" not in table.attrs
