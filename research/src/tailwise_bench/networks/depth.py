"""A network for depth maps: the features of every pixel, from the four stages of an encoder.

Hu et al., Revisiting Single Image Depth Estimation (WACV 2019), which NYUD2-DIR uses: a decoder (D) doubles
the last stage's map four times, a fusion (MFF) brings all four stages to the same size, and a refinement (R)
joins both. R's last convolution is left out: the method's head takes its place, on the features of a pixel.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from typing import Any, Protocol, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tailwise.lookup import check_name
from tailwise.networks.backbones import Backbone
from tailwise.networks.images import STAGES, Pixels, make_image_backbone

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


class _Encoder(Protocol):
    stage_dims: Sequence[int]

    def stages(self, x: Tensor) -> list[Tensor]: ...


class PlainEncoder(nn.Module):
    """Four stages of strided convolutions, from 1/4 to 1/32 of the picture; does not need torchvision."""

    def __init__(self, *, width: int = 32) -> None:
        super().__init__()
        self.pixels = Pixels(IMAGENET_MEAN, IMAGENET_STD)
        self.stage_dims = tuple(width * 2**k for k in range(4))
        self.first = _conv(3, width, 3, stride=2)
        before = (width, *self.stage_dims[:-1])
        self.layers = nn.ModuleList(
            nn.Sequential(_conv(i, o, 3, stride=2), _conv(o, o, 3))
            for i, o in zip(before, self.stage_dims, strict=True)
        )

    def stages(self, x: Tensor) -> list[Tensor]:
        """x: (N, H, W, 3) bytes -> (N, C, H / 4, W / 4), ..., (N, C, H / 32, W / 32)"""
        h, found = self.first(self.pixels(x)), []
        for layer in self.layers:
            h = layer(h)
            found.append(h)
        return found


DEPTH_ENCODERS: dict[str, Callable[..., nn.Module]] = {
    "plain": PlainEncoder,
    **{name: partial(make_image_backbone, name, mean=IMAGENET_MEAN, std=IMAGENET_STD) for name in STAGES},
}
"""Encoders of a depth network by name."""


def _conv(i: int, o: int, size: int, *, stride: int = 1, active: bool = True) -> nn.Sequential:
    layers = [nn.Conv2d(i, o, size, stride=stride, padding=size // 2, bias=False), nn.BatchNorm2d(o)]
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

    `encoder` is ``resnet50`` as in NYUD2-DIR, ``resnet18`` or ``plain``; `weights` is a file with the weights
    that the encoder starts from. `width` is the number of channels of D's last map, and of MFF's.

    >>> DepthNet("plain", width=8)(torch.zeros(2, 36, 48, 3, dtype=torch.uint8)).shape
    torch.Size([2, 18, 24, 16])
    """

    def __init__(self, encoder: str = "resnet50", *, weights: str | None = None, width: int = 64) -> None:
        super().__init__()
        check_name("encoder of depth", encoder, DEPTH_ENCODERS)
        self.encoder = DEPTH_ENCODERS[encoder](**({} if weights is None else {"weights": weights}))
        dims = tuple(cast("_Encoder", self.encoder).stage_dims)
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
        stages = cast("_Encoder", self.encoder).stages(x)
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
