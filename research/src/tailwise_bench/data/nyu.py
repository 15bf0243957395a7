"""Depth maps for the benchmark: NYUv2 at a small size, NYUD2-DIR, and networks for both."""

from __future__ import annotations

import base64
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tailwise.distributions.members import Distribution
from tailwise_bench.data.problems import DataSet, Problem, data_folder
from tailwise_bench.data.recipe import DataKind
from tailwise_bench.depth import (
    DEPTH,
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

METRICS = ("log10", "delta1", "delta2", "delta3")
"""Metrics of depth besides the usual ones."""
PER_BIN = 500
"""Maximum number of scored pixels per depth bin of the small data set."""
SHOWN = 4
"""Number of test pictures whose predicted maps are kept, of the first seed."""


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
    shown = {"shown": np.linspace(0, len(test) - 1, SHOWN).astype(np.int64)} if seed == 0 else {}
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
            **shown,
        },
        metrics=METRICS,
    )


@dataclass(frozen=True)
class SmallNYUv2:
    """NYUv2's 1,449 labelled pictures at 96 x 72, with depth at 48 x 36, split once at random."""

    name: str = "nyuv2"

    def problem(self, seed: int, *, max_rows: int = 0, per_bin: int = 0, suite: str = "") -> Problem:
        """Read and split the pictures; the seed only affects weights and batches."""
        maps = load_depth_maps(data_folder("nyuv2") / "nyuv2_96x72.npz")
        train, valid, test = (maps[rows] for rows in split_maps(len(maps)))
        return depth_problem(self.name, seed, train, valid, test, per_bin=PER_BIN, suite=suite)


@dataclass(frozen=True)
class NYUD2:
    """NYUD2-DIR in TAILWISE_DATA/nyud2: both listings and their files, decoded once into the cache."""

    name: str = "nyud2"

    def problem(self, seed: int, *, max_rows: int = 0, per_bin: int = 0, suite: str = "") -> Problem:
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


def _network_options(name: str) -> dict[str, Any]:
    return {"weights": str, "width": int}


def _augmentation(problem: Problem, *, name: str) -> DepthAugmentation:
    return DEPTH_AUGMENTATIONS[name]


DEPTH_MAPS = DataKind(
    DATA,
    NETWORKS,
    _network_options,
    _decoder,
    {name: partial(_augmentation, name=name) for name in DEPTH_AUGMENTATIONS},
)
"""Pictures with a depth for every pixel."""


# -- maps to look at -----------------------------------------------------------------------------


def packed_maps(prediction: Distribution) -> dict[str, Any]:
    """Return the mean and standard deviation of predicted maps (N, h, w) as text for a results line."""
    return {
        name: _packed(value.detach().double().cpu().numpy(), highest)
        for name, value, highest in (("mean", prediction.mean, DEPTH), ("std", prediction.std, None))
    }


def _packed(maps: NDArray[np.float64], highest: float | None) -> dict[str, Any]:
    top = float(f"{maps.max():.4g}") if highest is None else highest
    levels = np.clip(np.rint(maps / top * 255), 0, 255).astype(np.uint8)
    text = base64.b64encode(zlib.compress(levels.tobytes(), 9)).decode()
    return {"shape": list(maps.shape), "highest": top, "levels": text}


def unpacked_map(packed: Mapping[str, Any]) -> NDArray[np.float64]:
    """Return maps that `packed_maps` wrote, rounded to 255 levels. (N, h, w)"""
    levels = np.frombuffer(zlib.decompress(base64.b64decode(packed["levels"])), np.uint8)
    maps = levels.reshape(packed["shape"]).astype(np.float64)
    return maps * (float(packed["highest"]) / 255)
