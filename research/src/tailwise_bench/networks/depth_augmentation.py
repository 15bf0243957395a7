"""Random changes of pictures together with their depth maps, for a whole batch on its device."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor
from torch.nn import functional as F


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
