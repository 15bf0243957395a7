"""Depth maps for the benchmark: NYUv2 at a small size, NYUD2-DIR, and networks for both."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from tailwise_bench.depth import (
    DEPTH_AUGMENTATIONS,
    EDGES,
    SHARES,
    DepthAugmentation,
    DepthMaps,
    balanced_pixels,
    load_depth_maps,
    split_maps,
)
from tailwise_bench.networks.depth import DepthNet, PixelDecoder
from tailwise_bench.problem import DataSet, Problem, data_folder
from tailwise_bench.recipe import DataKind

METRICS = ("log10", "delta1", "delta2", "delta3")
"""Metrics of depth besides the usual ones."""
PER_BIN = 500
"""Maximum number of scored pixels per depth bin of the small data set."""


def depth_problem(
    name: str,
    seed: int,
    train: DepthMaps,
    valid: DepthMaps,
    test: DepthMaps,
    *,
    per_bin: int | None = None,
    suite: str = "",
) -> Problem:
    """Return a problem with pictures as rows and maps as labels; the scored pixels balance the depths."""
    pixels = int(np.isfinite(train.depth).sum())
    return Problem(
        name,
        seed,
        *(train.rgb, train.depth, valid.rgb, valid.depth, test.rgb, test.depth),
        total=len(train) + len(valid) + len(test),
        suite=suite,
        edges=EDGES,
        shots=(round(SHARES[0] * pixels), round(SHARES[1] * pixels)),
        extra={
            "valid_pixels": balanced_pixels(valid.depth, per_bin=per_bin),
            "test_pixels": balanced_pixels(test.depth, per_bin=per_bin),
        },
        metrics=METRICS,
    )


@dataclass(frozen=True)
class SmallNYUv2:
    """NYUv2's 1,449 labelled pictures at 96 x 72, with depth at 48 x 36, split once at random."""

    name: str = "nyuv2"

    def problem(self, seed: int, *, max_rows: int = 0, suite: str = "") -> Problem:
        """Read and split the pictures; the seed only affects weights and batches."""
        maps = load_depth_maps(data_folder("nyuv2") / "nyuv2_96x72.npz")
        train, valid, test = (maps[rows] for rows in split_maps(len(maps)))
        return depth_problem(self.name, seed, train, valid, test, per_bin=PER_BIN, suite=suite)


@dataclass(frozen=True)
class NYUD2:
    """NYUD2-DIR in TAILWISE_DATA/nyud2: both listings and their files, decoded once into the cache."""

    name: str = "nyud2"

    def problem(self, seed: int, *, max_rows: int = 0, suite: str = "") -> Problem:
        """Read the listings and decode what the cache lacks; the seed only affects weights and batches."""
        from tailwise_bench.depth.nyud2 import load_nyud2

        return depth_problem(self.name, seed, *load_nyud2(data_folder("nyud2")), suite=suite)


DATA: dict[str, DataSet] = {"nyuv2-small": SmallNYUv2(), "nyud2": NYUD2()}
"""Data sets by the names that a suite's file uses."""


def _network(problem: Problem, *, encoder: str, weights: str | None = None, **options: Any) -> DepthNet:
    if weights is not None and not Path(weights).is_absolute():
        weights = str(data_folder(problem.name) / weights)
    return DepthNet(encoder, weights=weights, **options)


NETWORKS: dict[str, Callable[..., DepthNet]] = {
    f"depth-{encoder}": partial(_network, encoder=encoder) for encoder in ("resnet50", "resnet18", "plain")
}
"""Networks by the names that a suite's file uses."""


def _decoder(problem: Problem, latent_dim: int) -> PixelDecoder:
    return PixelDecoder(latent_dim)


def _augmentation(problem: Problem, *, name: str) -> DepthAugmentation:
    return DEPTH_AUGMENTATIONS[name]


DEPTH_MAPS = DataKind(
    DATA,
    NETWORKS,
    _decoder,
    {name: partial(_augmentation, name=name) for name in DEPTH_AUGMENTATIONS},
)
"""Pictures with a depth for every pixel."""
