"""Pictures with a depth for every pixel: labelled maps, their split, and which test pixels count."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

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


@dataclass(frozen=True, eq=False)
class DepthMaps:
    """Pictures as bytes and the depth of their pixels in metres, NaN where it is not known."""

    rgb: NDArray[np.uint8]  # (N, H, W, 3)
    depth: NDArray[np.float32]  # (N, h, w)

    def __post_init__(self) -> None:
        if self.rgb.ndim != 4 or self.rgb.shape[-1] != 3 or self.rgb.dtype != np.uint8:
            raise ValueError(f"pictures must be bytes (N, H, W, 3), got {self.rgb.dtype} {self.rgb.shape}")
        if self.depth.ndim != 3 or len(self.depth) != len(self.rgb):
            raise ValueError(f"{len(self.rgb)} pictures, but depths of shape {self.depth.shape}")

    def __len__(self) -> int:
        return len(self.rgb)

    def __getitem__(self, rows: Any) -> DepthMaps:
        return DepthMaps(self.rgb[rows], self.depth[rows])


def metres(stored: NDArray[Any]) -> NDArray[np.float32]:
    """Return stored depth in metres: 8-bit numbers as value / 255 * 10 m, 16-bit ones as millimetres.

    A stored 0 is a pixel without a depth and becomes NaN.
    """
    unit = {np.dtype(np.uint8): DEPTH / 255, np.dtype(np.uint16): 1 / 1000}.get(stored.dtype)
    if unit is None:
        raise ValueError(f"depth must be stored as 8-bit or 16-bit whole numbers, got {stored.dtype}")
    return np.where(stored == 0, np.float32(np.nan), stored.astype(np.float32) * np.float32(unit))


def load_depth_maps(path: Path) -> DepthMaps:
    """Read an ``.npz`` file with `rgb` (N, H, W, 3) and `depth_u8` (N, H, W); keep depth at half the size."""
    if not path.is_file():
        raise FileNotFoundError(f"{path} is missing: set TAILWISE_DATA to the folder that has it")
    with np.load(path, allow_pickle=False) as file:
        for name in ("rgb", "depth_u8"):
            if name not in file:
                raise ValueError(f"{path} has no array {name!r}; it has {', '.join(file)}")
        return DepthMaps(file["rgb"], half_size(metres(file["depth_u8"])))


def half_size(depth: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return every second pixel of maps, which a network of half the picture's size predicts. (N, H, W)"""
    return np.ascontiguousarray(depth[:, ::2, ::2])


def split_maps(count: int, *, valid: float = 0.1, test: float = 0.15, seed: int = 0) -> tuple[Any, Any, Any]:
    """Return the rows of the training, validation and test parts, drawn at random once per seed.

    >>> [len(part) for part in split_maps(100)]
    [75, 10, 15]
    """
    order = np.random.default_rng(seed).permutation(count)
    cuts = np.cumsum([round(test * count), round(valid * count)])
    test_rows, valid_rows, train_rows = np.split(order, cuts)
    return np.sort(train_rows), np.sort(valid_rows), np.sort(test_rows)


def balanced_pixels(
    depth: ArrayLike, *, per_bin: int | None = None, edges: NDArray[np.float64] = EDGES, seed: int = 0
) -> NDArray[np.int64]:
    """Return the flat positions of pixels that balance the depth bins, as DIR's test mask does.

    Every bin from `FIRST_BIN` on gives equally many pixels, drawn at random: as many as the rarest one that
    occurs has. With `per_bin` each gives at most that many, and a bin with fewer gives all of them. Pixels
    without a depth (0 or NaN) never count.
    """
    flat = np.asarray(depth, np.float64).reshape(-1)
    there = np.flatnonzero(np.isfinite(flat) & (flat > 0))
    index = np.clip(np.searchsorted(edges, flat[there] + 1e-6, side="right") - 1, 0, len(edges) - 2)
    kept = index >= FIRST_BIN
    there, index = there[kept], index[kept]
    if not len(there):
        raise ValueError(f"no pixel is at least {edges[FIRST_BIN]:g} m deep, so no bin can be balanced")
    shuffled = np.random.default_rng(seed).permutation(len(there))
    there, index = there[shuffled], index[shuffled]
    order = np.argsort(index, kind="stable")
    counts = np.bincount(index)
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order)) - np.repeat(np.cumsum(counts) - counts, counts)
    most = counts[counts > 0].min() if per_bin is None else per_bin
    return np.sort(there[rank < most])
