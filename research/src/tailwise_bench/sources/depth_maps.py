"""Depth maps: NYUv2 at a small size and NYUD2-DIR, pictures with a depth for every pixel.

The code of NYUD2-DIR chooses the best epoch on the test part. Here some scenes of the training part are held
out for that. Its listings and files are decoded once into the cache.
"""

from __future__ import annotations

import csv
import hashlib
import io
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tailwise.images.pictures import ImageError, PictureFiles, cache_folder, decode_pictures
from tailwise.writing import write_atomically
from tailwise_bench.networks.depth import DEPTH_AUGMENTATIONS, DepthNet, PixelDecoder
from tailwise_bench.problem import Problem, data_folder
from tailwise_bench.recipe import DataKind

DEPTH = 10.0
"""Metres of the highest byte: NYUD2-DIR stores training depth as 8-bit numbers, value / 255 * 10 m."""
EDGES = np.linspace(0.0, DEPTH, 101)
"""Edges of the 100 label bins of NYUD2-DIR, each of 0.1 m."""
FIRST_BIN = 7
"""No pixel of NYUD2 is nearer than 0.7 m; bins before this one do not count."""
SHARES = (0.0296, 0.0114)
"""Share of the training pixels above which a bin is many-shot, and below which it is few-shot.

In NYUD2-DIR the limits are 2.6e7 and 1.0e7 of 8.8e8 pixels.
"""
METRICS = ("log10", "delta1", "delta2", "delta3")
"""Metrics of depth besides the usual ones."""
PER_BIN = 500
"""Maximum number of scored pixels per depth bin of the small data set."""
SIZE, CROP = (240, 320), (228, 304)
"""Height and width to which NYUD2-DIR scales pictures, and of the middle that a network sees."""
HELD_OUT = 0.05
"""Share of the training scenes that validate."""

Maps = tuple[NDArray[np.uint8], NDArray[np.float32]]
"""Pictures (N, H, W, 3) and the depth of their pixels in metres (N, h, w), NaN where it is not known."""
Pair = tuple[str, str]
"""Names of a picture and of its depth file."""


# -- depth and the pixels that are scored --------------------------------------------------------


def metres(stored: NDArray[Any]) -> NDArray[np.float32]:
    """Return stored depth in metres: 8-bit numbers as value / 255 * 10 m, 16-bit ones as millimetres.

    A stored 0 is a pixel without a depth and becomes NaN.
    """
    unit = {np.dtype(np.uint8): DEPTH / 255, np.dtype(np.uint16): 1 / 1000}.get(stored.dtype)
    if unit is None:
        raise ValueError(f"depth must be stored as 8-bit or 16-bit whole numbers, got {stored.dtype}")
    return np.where(stored == 0, np.float32(np.nan), stored.astype(np.float32) * np.float32(unit))


def half_size(depth: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return every second pixel of maps, which a network of half the picture's size predicts. (N, H, W)"""
    return np.ascontiguousarray(depth[:, ::2, ::2])


def balanced_pixels(depth: ArrayLike, *, per_bin: int | None = None) -> NDArray[np.int64]:
    """Return the flat positions of pixels that balance the depth bins, as DIR's test mask does.

    Every bin from `FIRST_BIN` on gives equally many pixels, drawn at random: as many as the rarest one that
    occurs has. With `per_bin` each gives at most that many, and a bin with fewer gives all of them. Pixels
    without a depth (0 or NaN) never count.
    """
    flat = np.asarray(depth, np.float64).reshape(-1)
    there = np.flatnonzero(np.isfinite(flat) & (flat > 0))
    index = np.clip(np.searchsorted(EDGES, flat[there] + 1e-6, side="right") - 1, 0, len(EDGES) - 2)
    there, index = there[index >= FIRST_BIN], index[index >= FIRST_BIN]
    if not len(there):
        raise ValueError(f"no pixel is at least {EDGES[FIRST_BIN]:g} m deep, so no bin can be balanced")
    shuffled = np.random.default_rng(0).permutation(len(there))
    there, index = there[shuffled], index[shuffled]
    order = np.argsort(index, kind="stable")
    counts = np.bincount(index)
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order)) - np.repeat(np.cumsum(counts) - counts, counts)
    most = counts[counts > 0].min() if per_bin is None else per_bin
    return np.sort(there[rank < most])


def depth_problem(name: str, seed: int, parts: Sequence[Maps], *, per_bin: int | None = None) -> Problem:
    """Return a problem with pictures as rows and maps as labels; the scored pixels balance the depths."""
    train, valid, test = parts
    pixels = int(np.isfinite(train[1]).sum())
    return Problem(
        name,
        seed,
        *(*train, *valid, *test),
        total=sum(len(depth) for _, depth in parts),
        edges=EDGES,
        shots=(round(SHARES[0] * pixels), round(SHARES[1] * pixels)),
        extra={
            "valid_pixels": balanced_pixels(valid[1], per_bin=per_bin),
            "test_pixels": balanced_pixels(test[1], per_bin=per_bin),
        },
        metrics=METRICS,
    )


# -- NYUv2, small --------------------------------------------------------------------------------


@dataclass(frozen=True)
class SmallNYUv2:
    """NYUv2's 1,449 labelled pictures at 96 x 72, with depth at 48 x 36, split once at random."""

    name: str = "nyuv2"

    def problem(self, seed: int, max_rows: int = 0) -> Problem:
        """Read and split the pictures; the seed only affects weights and batches."""
        with np.load(data_folder("nyuv2") / "nyuv2_96x72.npz", allow_pickle=False) as file:
            rgb, depth = file["rgb"], half_size(metres(file["depth_u8"]))
        parts = [(rgb[rows], depth[rows]) for rows in split_rows(len(rgb))]
        return depth_problem(self.name, seed, parts, per_bin=PER_BIN)


def split_rows(count: int, *, valid: float = 0.1, test: float = 0.15) -> list[NDArray[np.int64]]:
    """Return the rows of the training, validation and test parts, drawn at random once.

    >>> [len(part) for part in split_rows(100)]
    [75, 10, 15]
    """
    cuts = np.cumsum([round(test * count), round(valid * count)])
    parts = np.split(np.random.default_rng(0).permutation(count), cuts)
    return [np.sort(part) for part in parts[::-1]]


# -- NYUD2-DIR -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class NYUD2:
    """NYUD2-DIR in TAILWISE_DATA/nyud2: both listings and their files.

    Training pictures are 320 x 240 with depth at 160 x 120; `DepthAugmentation` turns and crops them. The
    other parts are cropped: 304 x 228 with depth at 152 x 114.
    """

    name: str = "nyud2"

    def problem(self, seed: int, max_rows: int = 0) -> Problem:
        """Read the listings and decode what the cache lacks; the seed only affects weights and batches."""
        folder = data_folder("nyud2")
        listed, tested = (read_pairs(folder / f"nyu2_{part}.csv") for part in ("train", "test"))
        held_out = scenes_held_out(listed)
        trained, valid = (
            [pair for pair, held in zip(listed, held_out, strict=True) if held == wanted]
            for wanted in (False, True)
        )
        parts = [_decoded(trained, folder, (SIZE[0] // 2, SIZE[1] // 2))]
        for pairs in (valid, tested):
            rgb, depth = (_cropped(maps) for maps in _decoded(pairs, folder, SIZE))
            parts.append((rgb, half_size(depth)))
        return depth_problem(self.name, seed, parts)


def read_pairs(path: Path) -> list[Pair]:
    """Read a listing without a header: on each line a picture and its depth file, below its folder."""
    with path.open(newline="", encoding="utf-8") as file:
        pairs = [tuple(cell.strip() for cell in row) for row in csv.reader(file)]
    for number, row in enumerate(pairs, start=1):
        if len(row) != 2 or not all(row):
            raise ValueError(f"{path}, line {number}: expected a picture and its depth file, got {row}")
    # Published names start with ``data/``, which may be the folder itself.
    above = "" if (path.parent / pairs[0][0]).exists() else "data/"
    return [(picture.removeprefix(above), depth.removeprefix(above)) for picture, depth in pairs]


def scenes_held_out(pairs: Sequence[Pair]) -> NDArray[np.bool_]:
    """Return which pairs belong to the held-out scenes; frames of one folder are one scene. (N,)

    Neighbouring frames are almost equal, so single frames would validate what the network has seen.
    """
    scene = np.array([str(PurePosixPath(picture).parent) for picture, _ in pairs])
    names = np.unique(scene)
    if len(names) < 2:
        raise ValueError(f"all pictures are of one scene, {names[0]!r}: a validation part needs a second")
    count = min(max(1, round(HELD_OUT * len(names))), len(names) - 1)
    return np.isin(scene, np.random.default_rng(0).choice(names, count, replace=False))


def read_depth(content: bytes, size: tuple[int, int]) -> NDArray[np.float32]:
    """Return a depth file in metres at (height, width); each pixel is the nearest one of the file."""
    from PIL import Image

    try:
        with Image.open(io.BytesIO(content)) as file:
            stored = np.asarray(file)
    except (OSError, ValueError, SyntaxError) as error:
        raise ImageError(f"it is not a picture that Pillow can decode ({error})") from None
    if stored.ndim != 2:
        raise ImageError(f"a depth file has one channel, this one has shape {stored.shape}")
    rows, columns = (
        ((np.arange(wanted) + 0.5) * stored_size / wanted).astype(np.int64)
        for wanted, stored_size in zip(size, stored.shape, strict=True)
    )
    return metres(stored[rows[:, None], columns])


def _decoded(pairs: Sequence[Pair], folder: Path, size: tuple[int, int]) -> Maps:
    """Return pictures, and depth at a size, mapped from files of the cache that are written if missing."""
    pictures, names = zip(*pairs, strict=True)
    rgb = decode_pictures(pictures, folder, size=SIZE).part(0, len(pictures))
    files, digest = PictureFiles(folder), hashlib.blake2b(digest_size=8)
    for name in names:
        digest.update(f"{name}\t{files.stamp(name)}\n".encode())
    path = cache_folder() / f"{digest.hexdigest()}-depth-{size[0]}x{size[1]}.npy"

    def write(to: Path) -> None:
        maps = np.lib.format.open_memmap(to, "w+", np.float32, (len(names), *size))

        def decode_row(row: int) -> None:
            try:
                maps[row] = read_depth(files.read(names[row]), size)
            except (OSError, ValueError) as error:
                raise ImageError(f"{names[row]} in {folder} cannot be used: {error}") from None

        with ThreadPoolExecutor(os.cpu_count()) as pool:
            list(pool.map(decode_row, range(len(names))))
        maps.flush()

    if not path.is_file():
        write_atomically(path, write)
    return rgb, np.load(path, mmap_mode="c", allow_pickle=False)


def _cropped(maps: NDArray[Any]) -> NDArray[Any]:
    """Return the middle of maps. (N, H, W, ...) -> (N, *CROP, ...)"""
    top, left = ((whole - part) // 2 for whole, part in zip(maps.shape[1:3], CROP, strict=True))
    return np.ascontiguousarray(maps[:, top : top + CROP[0], left : left + CROP[1]])


def _network(problem: Problem, *, encoder: str, weights: str | None = None, **options: Any) -> DepthNet:
    if weights is not None:
        weights = str(data_folder(problem.name) / weights)
    return DepthNet(encoder, weights=weights, **options)


def _decoder(problem: Problem, latent_dim: int) -> PixelDecoder:
    return PixelDecoder(latent_dim)


DEPTH_MAPS = DataKind(
    {"nyuv2-small": SmallNYUv2(), "nyud2": NYUD2()},
    {f"depth-{encoder}": partial(_network, encoder=encoder) for encoder in ("resnet50", "resnet18")},
    _decoder,
    DEPTH_AUGMENTATIONS,
)
"""Pictures with a depth for every pixel."""
