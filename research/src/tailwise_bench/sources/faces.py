"""Faces with ages for the benchmark: AgeDB-DIR, IMDB-WIKI-DIR and UTKFace, with ResNets on them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tailwise.images import decode_pictures, make_augmentation
from tailwise.images.pictures import ImageError, PictureFiles
from tailwise.labels.bins import checked_labels
from tailwise.networks.backbones import Backbone
from tailwise.networks.images import ImageDecoder, make_image_backbone
from tailwise.tables.read import parse_table, read_table
from tailwise_bench.problem import DataSet, Problem, data_folder
from tailwise_bench.recipe import DataKind

PARTS = ("train", "val", "test")
SAME = {"valid": "val", "validation": "val", "dev": "val", "training": "train", "testing": "test"}


def read_listing(source: Path) -> tuple[list[str], NDArray[np.float64], NDArray[np.str_]]:
    """Return names, ages and parts (N,) of a table with the columns age, path and split.

    Of a zip archive it is the only CSV file.
    """
    if source.suffix.lower() == ".zip":
        archive = PictureFiles(source)
        (name,) = archive.names((".csv",))
        table = parse_table(archive.read(name), f"{name} in {source}")
    else:
        table = read_table(source)
    if missing := [column for column in ("age", "path", "split") if column not in table.columns]:
        raise ImageError(f"{source} has no column {missing[0]!r}")
    labels = checked_labels(table["age"].to_numpy(), f"ages of {source}")
    parts = table["split"].astype(str).str.strip().str.lower().replace(SAME).to_numpy(dtype="<U5")
    if unknown := set(parts.tolist()) - set(PARTS):
        raise ImageError(f"{source}: a split is {unknown.pop()!r}, not one of {', '.join(PARTS)}")
    return list(map(str, table["path"])), labels, parts


@dataclass(frozen=True)
class Faces:
    """A listing of faces (age, path, split) in TAILWISE_DATA, and their pictures, decoded at one size.

    The pictures are in the folder of the listing or in a zip archive of the same folder. The decoded pixels
    are in the cache that all processes share (TAILWISE_CACHE); a problem refers to them.
    """

    name: str
    folder: str
    listing: str
    size: int
    archive: str | None = None

    def problem(self, seed: int, max_rows: int = 0) -> Problem:
        """Read the listing and decode what the cache lacks; the seed only affects weights and batches."""
        folder = data_folder(self.folder)
        names, labels, parts = read_listing(folder / self.listing)
        rows = [np.flatnonzero(parts == part) for part in PARTS]
        archive = folder / (self.archive or "")
        root = archive if archive.is_file() else folder
        pictures = decode_pictures([names[row] for row in np.concatenate(rows)], root, size=self.size)
        ends = np.cumsum([0, *map(len, rows)]).tolist()
        train, valid, test = (
            (pictures.part(*between), labels[chosen])
            for between, chosen in zip(pairwise(ends), rows, strict=True)
        )
        return Problem(self.name, seed, *train, *valid, *test, total=len(names))


DATA: dict[str, DataSet] = {
    "utkface": Faces("utkface", "utkface", "utkface96.zip", 96, "utkface96.zip"),
    "agedb": Faces("agedb", "agedb", "agedb.csv", 224, "agedb.zip"),
    "imdb-wiki": Faces("imdb-wiki", "imdb-wiki", "imdb_wiki.csv", 224, "imdb_wiki.zip"),
}
"""Data sets by the names that a suite's file uses."""


def _network(problem: Problem, *, name: str, **options: Any) -> Backbone:
    return make_image_backbone(name, **options)


def _decoder(problem: Problem, latent_dim: int) -> ImageDecoder:
    return ImageDecoder(latent_dim)


FACES = DataKind(
    DATA,
    {name: partial(_network, name=name) for name in ("resnet18", "resnet50")},
    _decoder,
    {"crop-flip": make_augmentation("crop-flip")},
)
"""Faces with ages."""
