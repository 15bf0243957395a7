"""Networks for pictures: torchvision's ResNets as backbones, and a decoder for VIR:recon.

torchvision is imported here only, when a network is built. Nothing is downloaded: weights come from a file.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tailwise.lookup import check_name
from tailwise.networks.backbones import Backbone

STAGES = {"resnet18": (64, 128, 256, 512), "resnet50": (256, 512, 1024, 2048)}
"""Networks by their name in torchvision, with the channels of their four stages."""
HALF = (0.5, 0.5, 0.5)


class Pixels(nn.Module):
    """Pictures as a network reads them: scaled to [0, 1], normalised per channel, channels last in memory.

    Bytes (N, H, W, 3) become floats (N, 3, H, W). Floats of that shape count as normalised and stay.
    """

    mean: Tensor
    std: Tensor

    def __init__(self, mean: Sequence[float] = HALF, std: Sequence[float] = HALF) -> None:
        super().__init__()
        self.register_buffer("mean", 255 * torch.tensor(mean, dtype=torch.float32), persistent=False)
        self.register_buffer("std", 255 * torch.tensor(std, dtype=torch.float32), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """x: (N, H, W, 3) uint8, or (N, 3, H, W) floats -> (N, 3, H, W)"""
        if x.dim() == 4 and x.is_floating_point() and x.shape[1] == 3:
            return x.contiguous(memory_format=torch.channels_last)
        if x.dim() != 4 or x.dtype != torch.uint8 or x.shape[-1] != 3:
            raise ValueError(
                "pictures must be bytes of shape (N, height, width, 3), or normalised floats of shape "
                f"(N, 3, height, width), not {x.dtype} {tuple(x.shape)}"
            )
        # A permuted view of (N, H, W, 3) has the memory format channels_last: nothing is copied for it.
        return ((x - self.mean) / self.std).permute(0, 3, 1, 2)


class ImageResNet(Backbone):
    """A ResNet of torchvision on pictures: (N, H, W, 3) bytes to the mean features of its last stage.

    With `weights`, a file of a state dict (``.pth``, ``.pt`` or ``.safetensors``), training starts from them;
    the classifier in the file is ignored. `stages` returns the features of all four stages, for dense heads.
    """

    def __init__(
        self,
        name: str = "resnet18",
        *,
        weights: str | os.PathLike[str] | None = None,
        mean: Sequence[float] = HALF,
        std: Sequence[float] = HALF,
    ) -> None:
        super().__init__()
        check_name("image backbone", name, STAGES)
        self.name, self.weights = name, weights
        self.mean, self.std = tuple(map(float, mean)), tuple(map(float, std))
        self.stage_dims = STAGES[name]
        self.feature_dim = self.stage_dims[-1]
        self.pixels = Pixels(mean, std)
        self.network = _resnet(name)
        self.restart()
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def restart(self) -> None:
        """Draw random weights as torchvision does, or read the file again: how a new member starts."""
        for layer in self.network.modules():
            if isinstance(layer, nn.Conv2d):
                nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")
        if self.weights is not None:
            _load(self.network, Path(self.weights))

    def stages(self, x: Tensor) -> list[Tensor]:
        """Return the features of the four stages, from 1/4 to 1/32 of the input's size.

        x: (N, H, W, 3) -> (N, C, H / 4, W / 4), ..., (N, C, H / 32, W / 32), with C of `stage_dims`
        """
        net = cast("Any", self.network)
        h, features = net.maxpool(net.relu(net.bn1(net.conv1(self.pixels(x))))), []
        for stage in (net.layer1, net.layer2, net.layer3, net.layer4):
            h = stage(h)
            features.append(h)
        return features

    def forward(self, x: Tensor) -> Tensor:
        """x: (N, H, W, 3) -> features (N, feature_dim)"""
        return self.stages(x)[-1].mean((2, 3))


def _resnet(name: str) -> nn.Module:
    """Build torchvision's network without its classifier."""
    try:
        from torchvision.models import resnet
    except ImportError:
        raise ImportError(
            f"the backbone {name!r} needs torchvision: pip install 'tailwise[images]'"
        ) from None
    except RuntimeError as error:  # torchvision's compiled part belongs to another torch
        raise ImportError(
            f"torchvision does not fit torch {torch.__version__} ({error}): install both from the "
            "same index, pip install --force-reinstall torch torchvision"
        ) from None
    network = cast("nn.Module", getattr(resnet, name)(weights=None))
    network.fc = nn.Identity()
    return network


def _load(network: nn.Module, path: Path) -> None:
    """Read weights from a file; all but the classifier's must fit."""
    if not path.is_file():
        raise FileNotFoundError(
            f"the weights {path} do not exist: name a file with the state dict of a ResNet"
        )
    try:
        if path.suffix == ".safetensors":
            from safetensors.torch import load_file

            state = load_file(path)
        else:
            state = torch.load(path, map_location="cpu", weights_only=True)
        network.load_state_dict({key: value for key, value in state.items() if not key.startswith("fc.")})
    except Exception as error:
        reason = " ".join(str(error).split())[:200]
        raise ValueError(
            f"{path} has no weights of this network ({reason}): name a file with the state dict of "
            "torchvision's network of the same name"
        ) from error


IMAGE_BACKBONES = tuple(STAGES)
"""Names of networks for pictures."""


def make_image_backbone(name: str, **options: Any) -> ImageResNet:
    """Build a network for pictures by name; its `feature_dim` is the size of its features.

    Options are those of `ImageResNet`: `weights`, a local file, and `mean` and `std` of the channels.
    """
    check_name("image backbone", name, STAGES)
    for option in options:
        check_name(f"option of backbone {name!r}", option, ("weights", "mean", "std"))
    return ImageResNet(name, **options)


class ImageDecoder(nn.Module):
    """Reconstructs a picture from its latent, for VIR:recon, at a reduced size.

    A linear layer makes a map of `size` / 8 squared; three blocks double it. The likelihood is
    Gaussian. It is averaged over pixels and channels, not summed, so that its weight against the label's
    likelihood does not depend on the resolution.
    """

    def __init__(
        self,
        latent_dim: int,
        *,
        size: int = 32,
        width: int = 64,
        mean: Sequence[float] = HALF,
        std: Sequence[float] = HALF,
    ) -> None:
        super().__init__()
        if size < 8 or size % 8:
            raise ValueError(f"size must be a multiple of 8, got {size!r}")
        self.size, self.width = size, width
        self.pixels = Pixels(mean, std)
        self.first = nn.Linear(latent_dim, width * (size // 8) ** 2)
        blocks: list[nn.Module] = []
        for _ in range(3):
            blocks += [
                nn.Upsample(scale_factor=2.0),
                nn.Conv2d(width, width, 3, padding=1, bias=False),
                nn.BatchNorm2d(width),
                nn.ReLU(inplace=True),
            ]
        self.blocks = nn.Sequential(*blocks, nn.Conv2d(width, 3, 3, padding=1))
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def forward(self, z: Tensor) -> Tensor:
        """z: (N, D) -> normalised pictures (N, 3, size, size)"""
        start = self.first(z).unflatten(1, (self.width, self.size // 8, self.size // 8))
        pictures: Tensor = self.blocks(start.contiguous(memory_format=torch.channels_last))
        return pictures

    def nll(self, z: Tensor, x: Tensor) -> Tensor:
        """Return -log p(x | z) per number, without constants. z: (N, D), x: (N, H, W, 3) -> (N,)"""
        target = F.adaptive_avg_pool2d(self.pixels(x), self.size)
        missed: Tensor = target - self(z)
        return 0.5 * missed.pow(2).flatten(1).mean(1)
