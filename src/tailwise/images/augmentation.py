"""Random changes of training pictures, computed for a whole batch on its device."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from tailwise.lookup import check_name


@dataclass(frozen=True)
class Augmentation:
    """Changes pictures (N, H, W, 3) at random; labels stay. Bytes in, bytes out.

    A crop of the picture padded with black, a mirror image, and optionally more: rotation, zoom, brightness,
    contrast, saturation, and an erased rectangle. Random numbers come from the generator of the device.
    """

    padding: float = 16 / 224
    """How far a picture may move, as a share of its width."""
    mirror: bool = True
    rotation: float = 0.0
    """Largest angle in degrees."""
    zoom: float = 0.0
    """0.2 changes the size by up to 20%."""
    color: float = 0.0
    """0.3 changes brightness, contrast and saturation by up to 30%."""
    erase: float = 0.0
    """Probability that a rectangle is replaced by grey."""

    def __post_init__(self) -> None:
        for name in ("padding", "rotation", "zoom", "color", "erase"):
            value = getattr(self, name)
            most = 180 if name == "rotation" else 1
            if not 0 <= value <= most:
                raise ValueError(f"{name} must lie between 0 and {most}, got {value!r}")

    def __call__(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """x: (N, H, W, 3) uint8, y: (N, ...) -> both, with x changed"""
        moved = self._turned(x) if self.rotation or self.zoom else self._cropped(x)
        if self.color or self.erase:
            moved = self._colored(moved)
        return moved, y

    def _cropped(self, x: Tensor) -> Tensor:
        """Crop the padded picture and mirror half of them, by one gather."""
        rows, height, width, _ = x.shape
        pad = round(self.padding * width)
        device = x.device
        padded = F.pad(x, (0, 0, pad, pad, pad, pad))
        top, left = (torch.randint(0, 2 * pad + 1, (rows, 1), device=device) for _ in range(2))
        columns = torch.arange(width, device=device).expand(rows, width)
        if self.mirror:
            columns = torch.where(_coin(rows, device).unsqueeze(1), width - 1 - columns, columns)
        down = torch.arange(height, device=device) + top  # (N, H)
        number = torch.arange(rows, device=device).reshape(-1, 1, 1)
        return padded[number, down.unsqueeze(2), (columns + left).unsqueeze(1)]

    def _turned(self, x: Tensor) -> Tensor:
        """Move, mirror, rotate and zoom by one affine map, with bilinear interpolation."""
        rows, device = len(x), x.device
        angle = _uniform(rows, math.radians(self.rotation), device)
        scale = 1 + _uniform(rows, self.zoom, device)
        sign = 1 - 2 * (_coin(rows, device).float() if self.mirror else torch.zeros(rows, device=device))
        shift = torch.stack([_uniform(rows, 2 * self.padding, device) for _ in range(2)], 1)
        cos, sin = angle.cos() / scale, angle.sin() / scale
        turn = torch.stack([torch.stack([sign * cos, -sin], 1), torch.stack([sign * sin, cos], 1)], 1)
        theta = torch.cat([turn, shift.unsqueeze(2)], 2)  # (N, 2, 3)
        pictures = x.permute(0, 3, 1, 2).float()
        grid = F.affine_grid(theta, list(pictures.shape), align_corners=False)
        return _as_bytes(F.grid_sample(pictures, grid, align_corners=False).permute(0, 2, 3, 1))

    def _colored(self, x: Tensor) -> Tensor:
        rows, height, width, _ = x.shape
        pictures, device = x.float(), x.device

        def factor() -> Tensor:
            return (1 + _uniform(rows, self.color, device)).reshape(-1, 1, 1, 1)

        pictures = pictures * factor()
        middle = pictures.mean((1, 2, 3), keepdim=True)
        pictures = middle + (pictures - middle) * factor()
        grey = pictures.mean(3, keepdim=True)
        pictures = grey + (pictures - grey) * factor()
        if self.erase:
            box = torch.rand(rows, 4, device=device)
            tall, wide = (0.1 + 0.3 * box[:, i : i + 1] for i in range(2))
            inside = []
            for start, share, length in ((box[:, 2:3], tall, height), (box[:, 3:4], wide, width)):
                at = (torch.arange(length, device=device) + 0.5) / length
                first = start * (1 - share)
                inside.append((at >= first) & (at < first + share))
            erased = inside[0].unsqueeze(2) & inside[1].unsqueeze(1)  # (N, H, W)
            erased &= (torch.rand(rows, device=device) < self.erase).reshape(-1, 1, 1)
            pictures = torch.where(erased.unsqueeze(3), 127.5, pictures)
        return _as_bytes(pictures)


def _coin(rows: int, device: torch.device) -> Tensor:
    return torch.rand(rows, device=device) < 0.5


def _uniform(rows: int, most: float, device: torch.device) -> Tensor:
    return (2 * torch.rand(rows, device=device) - 1) * most


def _as_bytes(pictures: Tensor) -> Tensor:
    return pictures.round_().clamp_(0, 255).to(torch.uint8)


AUGMENTATIONS: Mapping[str, Augmentation] = {
    "crop-flip": Augmentation(),
    "strong": Augmentation(rotation=15, zoom=0.15, color=0.3, erase=0.25),
}
"""Augmentations by name: that of the face benchmarks, and a stronger one."""


def make_augmentation(name: str, **options: Any) -> Augmentation:
    """Return an augmentation by name, with some of its options changed.

    >>> make_augmentation("crop-flip", padding=0.1).padding
    0.1
    """
    check_name("augmentation", name, AUGMENTATIONS)
    return replace(AUGMENTATIONS[name], **options)
