"""Encodings of text: those that are found, those that are named, and those that cannot be told."""

from pathlib import Path

import pytest

from tailwise.tables.read import TableError, read_table

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


@pytest.mark.parametrize("encoding", ["nonsense", "hex", "rot13"])
def test_encodings_that_are_none(tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(b"a,b\n1,2\n")
    with pytest.raises(TableError, match=f"unknown encoding '{encoding}'"):
        read_table(path, encoding)
    path.write_bytes(b"a,b\n1,\xff\n")
    with pytest.raises(TableError, match=r"t\.csv is damaged or in another encoding: byte 6 is not utf-8"):
        read_table(path, "utf-8")
