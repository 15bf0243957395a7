"""A network for depth maps: the features of every pixel, from the four stages of an encoder; augmentation.

Hu et al., Revisiting Single Image Depth Estimation (WACV 2019), which NYUD2-DIR uses: a decoder (D) doubles
the last stage's map four times, a fusion (MFF) brings all four stages to the same size, and a refinement (R)
joins both. R's last convolution is left out: the method's head takes its place, on the features of a pixel.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tailwise.networks.backbones import Backbone
from tailwise.networks.images import Pixels, make_image_backbone

IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
"""Mean and standard deviation of ImageNet's channels."""
FUSED = 16
"""Channels to which MFF brings each stage."""


def map_size(height: int, width: int) -> tuple[int, int]:
    """Return height and width of the map for a picture: half of it, in steps of the encoder's first stage.

    >>> map_size(228, 304)
    (114, 152)
    """
    return 2 * -(-height // 4), 2 * -(-width // 4)


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
        full = map_size(*cast("Any", x.shape[1:3] if x.dtype == torch.uint8 else x.shape[2:]))
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
        target = F.adaptive_avg_pool2d(self.pixels(x), map_size(*x.shape[1:3]))
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
            pictures = _middle(pictures, height, width)
            depth = _middle(depth, height // tall, width // wide)
        for center in (0.0, pictures.mean((1, 2, 3), keepdim=True), None):
            middle = pictures.mean(3, keepdim=True) if center is None else center
            factor = 1 + self.color * (2 * torch.rand(rows, 1, 1, 1, device=device) - 1)
            pictures = middle + (pictures - middle) * factor
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


def _middle(maps: Tensor, height: int, width: int) -> Tensor:
    """Return the middle of maps. (N, H, W, ...) -> (N, height, width, ...)"""
    top, left = (maps.shape[1] - height) // 2, (maps.shape[2] - width) // 2
    return maps[:, top : top + height, left : left + width]


# Main directions of ImageNet's colours (columns) and their spread, by Krizhevsky et al. (NeurIPS 2012).
_SPREAD = (0.2175, 0.0188, 0.0045)
_COLOURS = (
    (-0.5675, 0.7192, 0.4009),
    (-0.5808, -0.0045, -0.8140),
    (-0.5836, -0.6948, 0.4203),
)
DEPTH_AUGMENTATIONS = {
    "mirror-color": DepthAugmentation(),
    "nyud2": DepthAugmentation(rotation=5.0, color=0.4, lighting=0.1, crop=(228, 304)),
}
"""Augmentations of depth maps by name: a plain one, and that of NYUD2-DIR."""
