"""NYUD2-DIR: listings of pictures and depth files, decoded once, with a validation part of whole scenes.

The benchmark's own code chooses the best epoch on the test part. Here some scenes of the training part are
held out for that.
"""

from __future__ import annotations

import csv
import hashlib
import io
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tailwise.images.pictures import ImageError, PictureFiles, cache_folder, decode_pictures, require_pillow
from tailwise.writing import write_atomically
from tailwise_bench.depth.maps import DepthMaps, half_size, metres

TRAIN, TEST = "nyu2_train.csv", "nyu2_test.csv"
SIZE = (240, 320)
"""Height and width to which pictures are scaled."""
CROP = (228, 304)
"""Height and width that a network sees, from the middle of the scaled picture."""
HELD_OUT = 0.05
"""Share of the training scenes that validate."""


@dataclass(frozen=True)
class Pairs:
    """Names of pictures and of their depth files, below one folder."""

    pictures: tuple[str, ...]
    depths: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.pictures)

    def take(self, rows: Sequence[int] | NDArray[Any]) -> Pairs:
        """Return some pairs by their positions."""
        chosen = [int(row) for row in rows]
        return Pairs(tuple(self.pictures[r] for r in chosen), tuple(self.depths[r] for r in chosen))


def read_pairs(path: Path) -> Pairs:
    """Read a listing without a header: on each line a picture and its depth file."""
    if not path.is_file():
        raise FileNotFoundError(f"{path} is missing: set TAILWISE_DATA to the folder that has it")
    pictures, depths = [], []
    with path.open(newline="", encoding="utf-8") as file:
        for number, row in enumerate(csv.reader(file), start=1):
            if len(row) != 2 or not all(cell.strip() for cell in row):
                raise ValueError(f"{path}, line {number}: expected a picture and its depth file, got {row}")
            pictures.append(row[0].strip())
            depths.append(row[1].strip())
    if not pictures:
        raise ValueError(f"{path} is empty: it should list a picture and its depth file on each line")
    return Pairs(tuple(pictures), tuple(depths))


def scenes_held_out(pairs: Pairs, share: float = HELD_OUT, seed: int = 0) -> NDArray[np.bool_]:
    """Return which pairs belong to the held-out scenes; frames of one folder are one scene. (N,)

    Neighbouring frames are almost equal, so single frames would validate what the network has seen.
    """
    scene = np.array([str(PurePosixPath(name).parent) for name in pairs.pictures])
    names = np.unique(scene)
    if len(names) < 2:
        raise ValueError(f"all pictures are of one scene, {names[0]!r}: a validation part needs a second")
    count = min(max(1, round(share * len(names))), len(names) - 1)
    chosen = np.random.default_rng(seed).choice(names, count, replace=False)
    return np.isin(scene, chosen)


def read_depth(content: bytes, size: tuple[int, int]) -> NDArray[np.float32]:
    """Return a depth file in metres at (height, width); each pixel is the nearest one of the file."""
    from PIL import Image

    height, width = size
    try:
        with Image.open(io.BytesIO(content)) as file:
            stored = np.asarray(file)
    except (OSError, ValueError, SyntaxError) as error:
        raise ImageError(f"it is not a picture that Pillow can decode ({error})") from None
    if stored.dtype == np.int32:  # how older versions of Pillow open 16-bit files
        stored = stored.astype(np.uint16)
    if stored.ndim != 2:
        raise ImageError(f"a depth file has one channel, this one has shape {stored.shape}")
    rows = ((np.arange(height) + 0.5) * stored.shape[0] / height).astype(np.int64)
    columns = ((np.arange(width) + 0.5) * stored.shape[1] / width).astype(np.int64)
    return metres(stored[rows[:, None], columns])


def decode_depths(
    names: Sequence[str],
    root: str | os.PathLike[str],
    *,
    size: tuple[int, int],
    cache: Path | None = None,
    threads: int | None = None,
) -> NDArray[np.float32]:
    """Return depth files in metres, mapped from one file of the cache that is written if it is missing."""
    require_pillow()
    files, digest = PictureFiles(root), hashlib.blake2b(digest_size=8)
    for name in names:
        digest.update(f"{name}\t{files.stamp(name)}\n".encode())
    folder = cache_folder() if cache is None else cache
    path = folder / f"{digest.hexdigest()}-depth-{size[0]}x{size[1]}.npy"

    def write(to: Path) -> None:
        shape = (len(names), *size)
        with to.open("wb") as file:  # the header first: `open_memmap` would add an ending to the name
            header = {"descr": "<f4", "fortran_order": False, "shape": shape}
            np.lib.format.write_array_header_2_0(file, header)
            offset = file.tell()
            file.truncate(offset + 4 * int(np.prod(shape)))
        maps = np.memmap(to, np.float32, "r+", offset, shape)

        def decode_row(row: int) -> None:
            try:
                maps[row] = read_depth(files.read(names[row]), size)
            except FileNotFoundError:
                raise FileNotFoundError(f"{names[row]} in {root} does not exist: copy it again") from None
            except ValueError as error:
                raise ImageError(f"{names[row]} in {root} cannot be used: {error}") from None

        with ThreadPoolExecutor(threads or os.cpu_count() or 1, "depths") as pool:
            for _ in pool.map(decode_row, range(len(names))):
                pass
        maps.flush()

    if not path.is_file():
        folder.mkdir(parents=True, exist_ok=True)
        write_atomically(path, write)
    return np.load(path, mmap_mode="c", allow_pickle=False)  # type: ignore[no-any-return]


def _below(pairs: Pairs, root: Path) -> Pairs:
    """Return names below the root. Published ones start with ``data/``, which may be the root itself."""
    if (root / pairs.pictures[0]).exists() or not pairs.pictures[0].startswith("data/"):
        return pairs
    return Pairs(*(tuple(n.removeprefix("data/") for n in names) for names in (pairs.pictures, pairs.depths)))


def _cropped(maps: NDArray[Any], size: tuple[int, int]) -> NDArray[Any]:
    """Return the middle of maps. (N, H, W, ...) -> (N, *size, ...)"""
    top, left = ((whole - part) // 2 for whole, part in zip(maps.shape[1:3], size, strict=True))
    return np.ascontiguousarray(maps[:, top : top + size[0], left : left + size[1]])


def load_nyud2(
    folder: Path, *, cache: Path | None = None, held_out: float = HELD_OUT
) -> tuple[DepthMaps, DepthMaps, DepthMaps]:
    """Return the training, validation and test parts of NYUD2-DIR, from its folder with both listings.

    Training pictures are 320 x 240 with depth at 160 x 120, mapped from the cache; `DepthAugmentation` turns
    and crops them. The other parts are cropped: 304 x 228 with depth at 152 x 114.
    """
    listed, tested = (_below(read_pairs(folder / name), folder) for name in (TRAIN, TEST))
    valid = scenes_held_out(listed, held_out)
    parts = [listed.take(np.flatnonzero(rows)) for rows in (~valid, valid)]
    half = (SIZE[0] // 2, SIZE[1] // 2)

    def pictures(pairs: Pairs) -> NDArray[np.uint8]:
        return decode_pictures(pairs.pictures, folder, size=SIZE, cache=cache).part(0, len(pairs))

    train = DepthMaps(pictures(parts[0]), decode_depths(parts[0].depths, folder, size=half, cache=cache))
    others = [
        DepthMaps(
            _cropped(pictures(pairs), CROP),
            half_size(_cropped(decode_depths(pairs.depths, folder, size=SIZE, cache=cache), CROP)),
        )
        for pairs in (parts[1], tested)
    ]
    return train, others[0], others[1]
