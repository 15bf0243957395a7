"""Faces with ages for the benchmark: AgeDB-DIR, IMDB-WIKI-DIR and UTKFace, with ResNets on them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np

from tailwise.networks.backbones import Backbone
from tailwise.networks.images import IMAGE_BACKBONES, ImageDecoder, make_image_backbone
from tailwise.training.batches import Transform
from tailwise_bench.problem import DataSet, Problem, data_folder
from tailwise_bench.recipe import DataKind
from tailwise_bench.sources.listing import ImageListing, read_listing


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

    def read(self) -> ImageListing:
        """Read the listing."""
        folder = data_folder(self.folder)
        if not (folder / self.listing).is_file():
            raise FileNotFoundError(
                f"{folder / self.listing} is missing: set TAILWISE_DATA to the folder that has it"
            )
        return read_listing(folder / self.listing)

    def problem(self, seed: int, *, max_rows: int = 0, suite: str = "") -> Problem:
        """Read the listing and decode what the cache lacks; the seed only affects weights and batches."""
        return self.problem_of(self.read(), seed, suite)

    def problem_of(self, listing: ImageListing, seed: int, suite: str) -> Problem:
        """Decode the pictures of a listing."""
        from tailwise.images import decode_pictures

        folder = data_folder(self.folder)
        rows = {part: listing.rows(part) for part in ("train", "val", "test")}
        ordered = listing.take(np.concatenate(list(rows.values())))
        archive = None if self.archive is None else folder / self.archive
        root = archive if archive is not None and archive.is_file() else folder
        pictures = decode_pictures(ordered.names, root, size=self.size)
        ends = np.cumsum([0, *(len(own) for own in rows.values())]).tolist()
        (x_train, y_train), (x_valid, y_valid), (x_test, y_test) = (
            (pictures.part(start, stop), ordered.labels[start:stop]) for start, stop in pairwise(ends)
        )
        return Problem(
            self.name,
            seed,
            *(x_train, y_train, x_valid, y_valid, x_test, y_test),
            total=len(listing),
            suite=suite,
        )


DATA: dict[str, DataSet] = {
    "utkface": Faces("utkface", "utkface", "utkface96.zip", 96, "utkface96.zip"),
    "agedb": Faces("agedb", "agedb", "agedb.csv", 224, "agedb.zip"),
    "imdb-wiki": Faces("imdb-wiki", "imdb-wiki", "imdb_wiki.csv", 224, "imdb_wiki.zip"),
}
"""Data sets by the names that a suite's file uses."""


def _network(problem: Problem, *, name: str, **options: Any) -> Backbone:
    return make_image_backbone(name, **options)


NETWORKS: dict[str, Callable[..., Backbone]] = {
    name: partial(_network, name=name) for name in IMAGE_BACKBONES
}
"""Networks by the names that a suite's file uses."""


def image_decoder(problem: Problem, latent_dim: int) -> ImageDecoder:
    """Build a decoder of the picture at a reduced size."""
    return ImageDecoder(latent_dim)


def _augment(problem: Problem, *, name: str) -> Transform:
    from tailwise.images import make_augmentation

    return make_augmentation(name)


FACES = DataKind(
    DATA,
    NETWORKS,
    image_decoder,
    {name: partial(_augment, name=name) for name in ("crop-flip", "strong")},
)
"""Faces with ages."""
