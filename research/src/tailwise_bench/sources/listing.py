"""Listings: which pictures there are, with an age and a part for each."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tailwise.images.pictures import ImageError, PictureFiles
from tailwise.labels.bins import checked_labels
from tailwise.tables.read import parse_table, read_table
from tailwise.tables.split import as_parts


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
    parts = as_parts(table["split"].astype(str).tolist(), "split", str(source))
    return ImageListing(tuple(map(str, table["path"])), labels, parts)
