"""Listings of faces from tables and archives."""

from __future__ import annotations

from pathlib import Path

import pytest

from tailwise_bench.sources.faces import read_listing
from tests.picture_samples import zipped

TABLE = "age,path,split\n31,a.jpg,train\n59,b.jpg,valid\n70,c.jpg,test\n"


def test_a_table_and_an_archive_are_read_alike(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    path = tmp_path / "in" / "faces.csv"
    path.write_text(TABLE)
    archive = zipped(path.parent, tmp_path / "faces.zip")
    for source in (path, archive):
        names, ages, parts = read_listing(source)
        assert names == ["a.jpg", "b.jpg", "c.jpg"] and ages.tolist() == [31, 59, 70]
        assert parts.tolist() == ["train", "val", "test"]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("31", "x", "ages of"),
        ("valid", "other", "a split is 'other'"),
        ("path", "paths", "no column 'path'"),
    ],
)
def test_tables_that_are_no_listing_are_explained(old: str, new: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "faces.csv").write_text(TABLE.replace(old, new))
    with pytest.raises(ValueError, match=message):
        read_listing(tmp_path / "faces.csv")
