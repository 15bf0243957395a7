"""Listings: which pictures there are, with an age and a part for each."""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tailwise.images.pictures import ImageError, PictureFiles
from tailwise.labels.bins import checked_labels
from tailwise.tables.read import parse_table, read_table
from tailwise.tables.split import Split

PARTS = ("train", "val", "test")
SAME = {"valid": "val", "validation": "val", "dev": "val", "training": "train", "testing": "test"}


@dataclass(frozen=True, eq=False)
class ImageListing:
    """Names of pictures inside a folder or an archive, with a label and a part for each."""

    names: tuple[str, ...]
    labels: NDArray[np.float64]  # (N,)
    parts: NDArray[np.str_]  # (N,): train, val or test

    def __len__(self) -> int:
        return len(self.names)

    def rows(self, part: str) -> NDArray[np.int64]:
        """Return the row numbers of a part."""
        return np.flatnonzero(self.parts == part).astype(np.int64)

    def take(self, rows: NDArray[Any]) -> ImageListing:
        """Return some rows, in the given order."""
        names = tuple(self.names[int(row)] for row in rows)
        return ImageListing(names, self.labels[rows], self.parts[rows])

    def without(self, inside: NDArray[np.bool_]) -> ImageListing:
        """Return the listing without the training and validation rows of a mask. inside: (N,)"""
        return self.take(np.flatnonzero(~inside | (self.parts == "test")))


def read_listing(source: Path) -> ImageListing:
    """Read a table with the columns age, path and split, or the one CSV file of a zip archive."""
    if source.suffix.lower() == ".zip":
        archive = PictureFiles(source)
        tables = archive.names((".csv",))
        if len(tables) != 1:
            raise ImageError(f"{source} has {len(tables)} CSV files, not one: name the listing itself")
        table = parse_table(archive.read(tables[0]), f"{tables[0]} in {source}")
    else:
        table = read_table(source)
    if missing := [column for column in ("age", "path", "split") if column not in table.columns]:
        raise ImageError(f"{source} has no column {missing[0]!r}")
    labels = checked_labels(table["age"].to_numpy(), f"ages of {source}")
    parts = table["split"].astype(str).str.strip().str.lower().replace(SAME).to_numpy(dtype="<U5")
    if not np.isin(parts, PARTS).all():
        row = int(np.isin(parts, PARTS).argmin())
        raise ImageError(
            f"{source}, row {row}: split is {table['split'][row]!r}, not one of {', '.join(PARTS)}"
        )
    return ImageListing(tuple(map(str, table["path"])), labels, parts)


def dir_split(labels: NDArray[np.float64], *, per_label: int = 30, seed: int = 666) -> Split:
    """Return the split of DIR's face data: validation and test parts balanced over the label values.

    From c rows of a label, ``min(floor(c / 3), per_label)`` go to the validation part, as many to the test
    part. With the defaults, the rows of AgeDB-DIR give its published parts; IMDB-WIKI-DIR has
    ``per_label=150``.

    >>> ages = np.repeat([30, 70, 100], [90, 9, 1])
    >>> split = dir_split(ages, per_label=5)
    >>> np.unique(ages[split.test], return_counts=True)
    (array([30, 70]), array([5, 3]))
    """
    generator = random.Random(seed)  # Python's own shuffle, because the published parts were drawn by it
    valid, test = (np.zeros(len(labels), bool) for _ in range(2))
    for value in np.unique(labels):
        rows = np.flatnonzero(labels == value).tolist()
        generator.shuffle(rows)
        take = min(len(rows) // 3, per_label)
        valid[rows[:take]] = True
        test[rows[take : 2 * take]] = True
    return Split(*(np.flatnonzero(rows) for rows in (~(valid | test), valid, test)))
