"""Listings of faces from tables and archives."""

from __future__ import annotations

from pathlib import Path

import numpy as np
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
        listing = read_listing(source)
        assert listing.names == ("a.jpg", "b.jpg", "c.jpg")
        assert listing.labels.tolist() == [31, 59, 70] and listing.rows("val").tolist() == [1]
    kept = listing.without(np.array([True, False, True]))
    assert kept.names == ("b.jpg", "c.jpg") and kept.parts.tolist() == ["val", "test"]


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
