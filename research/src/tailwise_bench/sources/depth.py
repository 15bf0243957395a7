"""Depth maps: NYUv2 at a small size and NYUD2-DIR, pictures with a depth for every pixel, and their network.

The code of NYUD2-DIR chooses the best epoch on the test part. Here some scenes of the training part are held
out for that. Its listings and files are decoded once into the cache.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path, PurePosixPath
from typing import Any, TypeVar, cast

import joblib
import numpy as np
import pandas as pd
import torch
from numpy.typing import ArrayLike, NDArray
from PIL import Image
from torch import Tensor, nn
from torch.nn import functional as F

from tailwise.images.pictures import ImageError, PictureFiles, cache_folder, decode_pictures
from tailwise.networks.backbones import Backbone
from tailwise.networks.images import Pixels, make_image_backbone
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
IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
"""Mean and standard deviation of ImageNet's channels."""
FUSED = 16
"""Channels to which MFF brings each stage."""

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
    groups = pd.Series(index).groupby(index)
    most = groups.size().min() if per_bin is None else per_bin
    return np.sort(there[groups.cumcount() < most])


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
            rgb, depth = file["rgb"], metres(file["depth_u8"])[:, ::2, ::2]
        cuts = np.cumsum([round(0.15 * len(rgb)), round(0.1 * len(rgb))])  # test, then validation
        test, valid, train = np.split(np.random.default_rng(0).permutation(len(rgb)), cuts)
        parts = [(rgb[rows], depth[rows]) for rows in map(np.sort, (train, valid, test))]
        return depth_problem(self.name, seed, parts, per_bin=PER_BIN)


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
            rgb, depth = (middle(maps, *CROP) for maps in _decoded(pairs, folder, SIZE))
            parts.append((rgb, depth[:, ::2, ::2]))
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


def read_depth(files: PictureFiles, name: str, size: tuple[int, int]) -> NDArray[np.float32]:
    """Return a depth file in metres at (height, width); each pixel is the nearest one of the file."""
    try:
        with Image.open(io.BytesIO(files.read(name))) as file:
            stored = np.asarray(file)
        if stored.ndim != 2:
            raise ImageError(f"a depth file has one channel, this one has shape {stored.shape}")
        depth = metres(stored)
    except (OSError, ValueError, SyntaxError) as error:
        raise ImageError(f"the depth file {name} in {files.root} cannot be used: {error}") from None
    rows, columns = (
        ((np.arange(wanted) + 0.5) * length / wanted).astype(np.int64)
        for wanted, length in zip(size, stored.shape, strict=True)
    )
    nearest: NDArray[np.float32] = depth[rows[:, None], columns]
    return nearest


def read_depths(
    folder: Path, names: Sequence[str], stamps: Sequence[str], size: tuple[int, int]
) -> NDArray[np.float32]:
    """Return depth files at one size. (N, H, W) Those in a cache count while the `stamps` are the same."""
    files, threads = PictureFiles(folder), joblib.Parallel(-1, prefer="threads")
    return np.stack(threads(joblib.delayed(read_depth)(files, name, size) for name in names))


def _decoded(pairs: Sequence[Pair], folder: Path, size: tuple[int, int]) -> Maps:
    """Return pictures, and depth at a size, mapped from files of the cache that are written if missing."""
    pictures, names = zip(*pairs, strict=True)
    rgb = decode_pictures(pictures, folder, size=SIZE).part(0, len(pictures))
    files, memory = PictureFiles(folder), joblib.Memory(cache_folder(), mmap_mode="c", verbose=0)
    return rgb, memory.cache(read_depths)(folder, names, [files.stamp(name) for name in names], size)


Array = TypeVar("Array", Tensor, NDArray[Any])


def middle(maps: Array, height: int, width: int) -> Array:
    """Return the middle of maps. (N, H, W, ...) -> (N, height, width, ...)"""
    top, left = (maps.shape[1] - height) // 2, (maps.shape[2] - width) // 2
    return maps[:, top : top + height, left : left + width]


# -- a network -----------------------------------------------------------------------------------


def _conv(i: int, o: int, size: int, *, active: bool = True) -> nn.Sequential:
    layers = [nn.Conv2d(i, o, size, padding=size // 2, bias=False), nn.BatchNorm2d(o)]
    return nn.Sequential(*layers, nn.ReLU(inplace=True)) if active else nn.Sequential(*layers)


class UpProjection(nn.Module):
    """Brings a map to a larger size, then adds a branch of two convolutions to a branch of one."""

    def __init__(self, i: int, o: int) -> None:
        super().__init__()
        self.branch = nn.Sequential(_conv(i, o, 5), _conv(o, o, 3, active=False))
        self.skip = _conv(i, o, 5, active=False)

    def forward(self, h: Tensor, size: Sequence[int]) -> Tensor:
        """h: (N, i, H, W) -> (N, o, *size)"""
        larger = F.interpolate(h, size=tuple(size), mode="bilinear")
        return F.relu(self.branch(larger) + self.skip(larger))


class DepthNet(Backbone):
    """Features of every pixel at half the picture's size: (N, H, W, 3) bytes to (N, H / 2, W / 2, 2 width).

    `encoder` is ``resnet50`` as in NYUD2-DIR, or ``resnet18``; `weights` is a file with the weights
    that the encoder starts from. `width` is the number of channels of D's last map, and of MFF's.

    Hu et al., Revisiting Single Image Depth Estimation (WACV 2019), which NYUD2-DIR uses: a decoder (D)
    doubles the last stage's map four times, a fusion (MFF) brings all four stages to the same size, and a
    refinement (R) joins both. R's last convolution is left out: the method's head takes its place, on the
    features of a pixel.
    """

    def __init__(self, encoder: str = "resnet50", *, weights: str | None = None, width: int = 64) -> None:
        super().__init__()
        start = {} if weights is None else {"weights": weights}
        self.encoder = make_image_backbone(encoder, mean=IMAGENET_MEAN, std=IMAGENET_STD, **start)
        dims = self.encoder.stage_dims
        top = dims[-1]
        # For ResNet-50: 1024, then 512, 256, 128, 64.
        sizes = [max(width, top // 2 ** (k + 1)) for k in range(5)]
        self.squeeze = _conv(top, sizes[0], 1)
        self.up = nn.ModuleList(UpProjection(i, o) for i, o in pairwise(sizes))
        self.fuse = nn.ModuleList(UpProjection(dim, FUSED) for dim in dims)
        self.fused = _conv(FUSED * len(dims), width, 5)
        self.feature_dim = sizes[-1] + width
        self.refine = nn.Sequential(
            _conv(self.feature_dim, self.feature_dim, 5), _conv(self.feature_dim, self.feature_dim, 5)
        )
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def forward(self, x: Tensor) -> Tensor:
        """x: (N, H, W, 3) bytes -> features (N, H / 2, W / 2, feature_dim)"""
        stages = self.encoder.stages(x)
        full = [side // 2 for side in (x.shape[1:3] if x.dtype == torch.uint8 else x.shape[2:])]
        h = self.squeeze(stages[-1])
        for up, size in zip(self.up, (*(s.shape[2:] for s in stages[-2::-1]), full), strict=True):
            h = up(h, size)
        fused = self.fused(torch.cat([f(s, full) for f, s in zip(self.fuse, stages, strict=True)], 1))
        features: Tensor = self.refine(torch.cat([h, fused], 1))
        # Channels are last in memory: this is a view, and so are the rows that the model makes of its pixels.
        return features.permute(0, 2, 3, 1)


class PixelDecoder(nn.Module):
    """Reconstructs the colour of every pixel from its latent, for VIR:recon.

    The likelihood is Gaussian and averaged over the channels, as `ImageDecoder` does.
    """

    def __init__(self, latent_dim: int) -> None:
        super().__init__()
        self.pixels = Pixels(IMAGENET_MEAN, IMAGENET_STD)
        self.linear = nn.Linear(latent_dim, 3)

    def nll(self, z: Tensor, x: Tensor) -> Tensor:
        """Return -log p(colour | z) per number, without constants. (N h w, D), (N, H, W, 3) -> (N h w,)"""
        target = F.adaptive_avg_pool2d(self.pixels(x), (x.shape[1] // 2, x.shape[2] // 2))
        colours = target.permute(0, 2, 3, 1).reshape(-1, 3)
        predicted: Tensor = self.linear(z)
        return 0.5 * (colours - predicted).pow(2).mean(-1)


# -- augmentation --------------------------------------------------------------------------------


@dataclass(frozen=True)
class DepthAugmentation:
    """Mirrors, turns and recolours pictures (N, H, W, 3); depth maps (N, h, w) follow. Bytes in, bytes out.

    NYUD2-DIR mirrors half of the pictures, turns them by up to 5 degrees, changes brightness, contrast and
    saturation by up to 40%, and adds light along the main directions of ImageNet's colours.
    """

    rotation: float = 0.0
    """Largest angle in degrees. What turns in from outside repeats the border."""
    color: float = 0.4
    """0.4 changes brightness, contrast and saturation by up to 40%."""
    lighting: float = 0.0
    """Standard deviation of the light along each main direction of the colours."""
    crop: tuple[int, int] | None = None
    """Height and width that are kept from the middle, after turning."""

    def __call__(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """x: (N, H, W, 3) uint8, y: (N, h, w) -> both"""
        rows, device = len(x), x.device
        mirrored = (torch.rand(rows, device=device) < 0.5).reshape(-1, 1, 1)
        pictures = torch.where(mirrored.unsqueeze(3), x.flip(2), x).float()
        depth = torch.where(mirrored, y.flip(2), y)
        if self.rotation:
            pictures, depth = self._turned(pictures, depth)
        if self.crop is not None:
            height, width = self.crop
            tall, wide = x.shape[1] // y.shape[1], x.shape[2] // y.shape[2]
            pictures = middle(pictures, height, width)
            depth = middle(depth, height // tall, width // wide)
        for center in (0.0, pictures.mean((1, 2, 3), keepdim=True), None):
            fixed = pictures.mean(3, keepdim=True) if center is None else center
            factor = 1 + self.color * (2 * torch.rand(rows, 1, 1, 1, device=device) - 1)
            pictures = fixed + (pictures - fixed) * factor
        if self.lighting:
            drawn = (255 * self.lighting * torch.randn(rows, 3, device=device)).unbind(1)
            # Python's numbers: a tensor of them would have to be copied to the device, which waits for it.
            light = [sum(v * s * d for v, s, d in zip(row, _SPREAD, drawn, strict=True)) for row in _COLOURS]
            pictures = pictures + torch.stack(cast("list[Tensor]", light), 1).reshape(-1, 1, 1, 3)
        return pictures.round_().clamp_(0, 255).to(torch.uint8), depth

    def _turned(self, pictures: Tensor, depth: Tensor) -> tuple[Tensor, Tensor]:
        """Turn both by one angle: colours between pixels are interpolated, depths are the nearest pixel's."""
        angle = math.radians(self.rotation) * (2 * torch.rand(len(depth), device=depth.device) - 1)
        cos, sin, zero = angle.cos(), angle.sin(), torch.zeros_like(angle)
        # Coordinates run from -1 to 1 on both sides, so a turn also depends on the picture's shape.
        tall = depth.shape[1] / depth.shape[2]
        rows = [torch.stack([cos, -sin * tall, zero], 1), torch.stack([sin / tall, cos, zero], 1)]
        theta = torch.stack(rows, 1)  # (N, 2, 3)
        channels = pictures.permute(0, 3, 1, 2), depth.unsqueeze(1)
        turned = [
            F.grid_sample(
                given,
                F.affine_grid(theta.to(given.dtype), list(given.shape), align_corners=False),
                mode=mode,
                padding_mode="border",
                align_corners=False,
            )
            for given, mode in zip(channels, ("bilinear", "nearest"), strict=True)
        ]
        return turned[0].permute(0, 2, 3, 1), turned[1].squeeze(1)


# Main directions of ImageNet's colours (columns) and their spread, by Krizhevsky et al. (NeurIPS 2012).
_SPREAD = (0.2175, 0.0188, 0.0045)
_COLOURS = (
    (-0.5675, 0.7192, 0.4009),
    (-0.5808, -0.0045, -0.8140),
    (-0.5836, -0.6948, 0.4203),
)
DEPTH_AUGMENTATIONS = {
    "mirror-color": DepthAugmentation(),
    "nyud2": DepthAugmentation(rotation=5.0, color=0.4, lighting=0.1, crop=CROP),
}
"""Augmentations of depth maps by name: a plain one, and that of NYUD2-DIR."""


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
