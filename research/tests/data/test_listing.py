"""Listings from tables and archives, and DIR's parts."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tailwise.images import ImageError
from tailwise_bench.sources.listing import ImageListing, listing_from, read_listing
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
        assert listing.labels.tolist() == [31, 59, 70]
        assert listing.rows("val").tolist() == [1]
    assert listing.frame().to_csv(index=False) == TABLE.replace("valid", "val")
    (path.parent / "more.csv").write_text(TABLE)
    with pytest.raises(ImageError, match="has 2 CSV files, not one"):
        read_listing(zipped(path.parent, archive))


def test_some_rows_keep_labels_and_parts_together() -> None:
    parts = np.array(["train", "val", "test"])
    listing = ImageListing(("a", "b", "c"), np.array([1.0, 2, 3]), parts)
    some = listing.take(np.array([2, 0]))
    assert some.names == ("c", "a") and some.labels.tolist() == [3, 1]
    assert some.parts is not None and some.parts.tolist() == ["test", "train"]
    assert ImageListing(("a",), np.array([1.5])).frame().columns.tolist() == ["age", "path"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"age": ["x", "y"]}, "labels"),
        ({"path": ["a.jpg", None]}, "row 1: the column 'path' is empty"),
        ({"split": ["train", "other"]}, "row 1: split is 'other', not one of train, val, test"),
        ({"path": None}, "has no column 'path'; did you mean 'paths'"),
    ],
)
def test_tables_that_are_no_listing_are_explained(change: dict[str, list[object]], message: str) -> None:
    columns = {"age": [1, 2], "path": ["a.jpg", "b.jpg"], "split": ["train", "val"]} | change
    if columns["path"] is None:
        columns["paths"] = columns.pop("path") or ["a", "b"]
    with pytest.raises(ValueError, match=message):
        listing_from(pd.DataFrame(columns), "faces.csv")


def test_parts_are_needed_and_made_balanced() -> None:
    labels = np.repeat([30.0, 70.0, 100.0], [90, 9, 1])
    listing = ImageListing(tuple(map(str, range(100))), labels)
    with pytest.raises(ImageError, match="has no parts"):
        listing.rows("train")
    made = listing.balanced(per_label=5)
    assert np.unique(labels[made.rows("val")], return_counts=True)[1].tolist() == [5, 3]
    with pytest.raises(ImageError, match="1 names, but 2 labels"):
        ImageListing(("a",), np.zeros(2))
