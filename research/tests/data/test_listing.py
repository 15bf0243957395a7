"""Listings of faces from tables and archives, and DIR's parts."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tailwise.images import ImageError
from tailwise.labels.bins import LabelBins
from tailwise_bench.sources.listing import dir_split, read_listing
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
    (path.parent / "more.csv").write_text(TABLE)
    with pytest.raises(ImageError, match="has 2 CSV files, not one"):
        read_listing(zipped(path.parent, archive))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("31", "x", "ages of"),
        ("valid", "other", "row 1: split is 'other'"),
        ("path", "paths", "no column 'path'"),
    ],
)
def test_tables_that_are_no_listing_are_explained(old: str, new: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "faces.csv").write_text(TABLE.replace(old, new))
    with pytest.raises(ValueError, match=message):
        read_listing(tmp_path / "faces.csv")


def test_agedb_dir_has_its_published_parts_and_shots(data_root: Path) -> None:
    """`dir_split` gives the published parts row by row."""
    published = read_listing(data_root / "agedb" / "agedb.csv")
    split = dir_split(published.labels, per_label=30, seed=666)
    for part, rows in (("train", split.train), ("val", split.valid), ("test", split.test)):
        assert np.array_equal(np.sort(rows), published.rows(part)), part
    train = published.labels[published.rows("train")]
    bins = LabelBins.from_labels(train, edges=np.arange(-0.5, 102.5))
    shots = bins.regions()[bins.counts > 0]
    assert [int((shots == region).sum()) for region in ("many", "medium", "few")] == [51, 16, 33]


def test_dir_split_takes_a_third_of_each_label_up_to_a_maximum() -> None:
    y = np.repeat([1.0, 2.5, 7.0], [200, 10, 2])
    split = dir_split(y, per_label=30)
    for part in (split.valid, split.test):
        assert np.unique(y[part], return_counts=True)[1].tolist() == [30, 3]
    assert sorted([*split.train, *split.valid, *split.test]) == list(range(212))
    assert not np.array_equal(dir_split(y, seed=1).test, split.test)
