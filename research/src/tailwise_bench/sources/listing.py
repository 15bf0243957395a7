"""Listings: which pictures there are, with a label and a part for each."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tailwise.images.pictures import ImageError, PictureFiles
from tailwise.labels.bins import checked_labels
from tailwise.lookup import nearest
from tailwise.tables.split import as_parts, dir_split

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, eq=False)
class ImageListing:
    """Names of pictures inside a folder or an archive, a label for each and, if known, its part."""

    names: tuple[str, ...]
    labels: NDArray[np.float64]  # (N,)
    parts: NDArray[np.str_] | None = None  # (N,): train, val or test

    def __post_init__(self) -> None:
        if len(self.names) != len(self.labels):
            raise ImageError(f"{len(self.names)} names, but {len(self.labels)} labels")

    def __len__(self) -> int:
        return len(self.names)

    def rows(self, part: str) -> NDArray[np.int64]:
        """Return the row numbers of a part."""
        if self.parts is None:
            raise ImageError("the listing has no parts: make them with balanced()")
        return np.flatnonzero(self.parts == part).astype(np.int64)

    def take(self, rows: NDArray[Any]) -> ImageListing:
        """Return some rows, in the given order."""
        names = tuple(self.names[int(row)] for row in np.arange(len(self))[rows])
        return ImageListing(names, self.labels[rows], None if self.parts is None else self.parts[rows])

    def balanced(self, per_label: int = 30, seed: int = 666) -> ImageListing:
        """Return the listing with the balanced parts of DIR, see `tailwise.tables.split.dir_split`.

        IMDB-WIKI-DIR has ``per_label=150``.
        """
        split = dir_split(self.labels, per_label=per_label, seed=seed)
        parts = np.full(len(self), "train", dtype="<U5")
        parts[split.valid], parts[split.test] = "val", "test"
        return ImageListing(self.names, self.labels, parts)

    def without(self, inside: NDArray[np.bool_]) -> ImageListing:
        """Return the listing without the training and validation rows of a mask. inside: (N,)"""
        if self.parts is None:
            raise ImageError("the listing has no parts: make them with balanced()")
        return self.take(np.flatnonzero(~inside | (self.parts == "test")))

    def frame(self, target: str = "age") -> pd.DataFrame:
        """Return a table in the layout of AgeDB-DIR: the label, ``path`` and, with parts, ``split``."""
        import pandas as pd

        whole = bool((self.labels == np.round(self.labels)).all())
        table = pd.DataFrame({target: self.labels.astype(np.int64) if whole else self.labels})
        table["path"] = list(self.names)
        if self.parts is not None:
            table["split"] = self.parts.astype(object)
        return table


def read_listing(
    source: str | os.PathLike[str], *, target: str = "age", path: str = "path", split: str = "split"
) -> ImageListing:
    """Read a listing from a table with a column of labels, one of paths and, if it has one, one of parts.

    A zip archive must contain one CSV file.
    """
    from tailwise.tables.read import parse_table, read_table

    where = Path(source)
    if where.suffix.lower() == ".zip":
        archive = PictureFiles(where)
        tables = archive.names((".csv",))
        if len(tables) != 1:
            raise ImageError(f"{where} has {len(tables)} CSV files, not one: name the listing itself")
        table = parse_table(archive.read(tables[0]), f"{tables[0]} in {where}")
    else:
        table = read_table(where)
    return listing_from(table, str(where), target=target, path=path, split=split)


def listing_from(
    table: pd.DataFrame, where: str, *, target: str = "age", path: str = "path", split: str | None = "split"
) -> ImageListing:
    """Return the listing in a table; `where` is its name in errors. With ``split=None`` parts are ignored."""
    for column in (target, path):
        if column not in table.columns:
            raise ImageError(f"{where} has no column {column!r}{nearest(column, map(str, table.columns))}")
    empty = np.flatnonzero(table[path].isna().to_numpy())
    if empty.size:
        raise ImageError(f"{where}, row {int(empty[0])}: the column {path!r} is empty; drop the row")
    labels = checked_labels(table[target].to_numpy(), f"labels ({target!r} of {where})")
    names = tuple(str(name) for name in table[path])
    if split is None or split not in table.columns:
        return ImageListing(names, labels)
    return ImageListing(names, labels, as_parts(table[split].astype(str).tolist(), split, where))
