"""Perturbations of latent rows or of a layer's output; the predictions of several are averaged.

The draws are made once and are the same for every row, so that neither the size nor the order of a
batch changes a prediction.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from tailwise.core.lookup import check_name


class Perturbation(ABC):
    """Perturbs latent rows by a draw (D,); `scale` is `Method.perturbation_scale`."""

    def __init__(self, scale: float) -> None:
        self.scale = scale

    def draw(self, samples: int, dim: int, generator: torch.Generator) -> Tensor:
        """Return one draw per sample, standard normal unless overridden. (samples, dim)"""
        return torch.randn(samples, dim, generator=generator)

    def acts_on(self, z_var: Tensor | None) -> bool:
        """Whether latent rows with this variance can be perturbed."""
        return True

    @abstractmethod
    def __call__(self, z_mean: Tensor, z_var: Tensor | None, drawn: Tensor) -> Tensor:
        """Return perturbed rows. z_mean, z_var: (N, D), drawn: (D,) -> (N, D)"""


class LatentVariance(Perturbation):
    """Noise of the latent's own variance: a sample of z."""

    def acts_on(self, z_var: Tensor | None) -> bool:
        """Only a latent with a variance can be sampled."""
        return z_var is not None

    def __call__(self, z_mean: Tensor, z_var: Tensor | None, drawn: Tensor) -> Tensor:
        """z_mean + sqrt(z_var) drawn"""
        assert z_var is not None
        return z_mean + z_var.sqrt() * drawn


class RelativeNoise(Perturbation):
    """Noise relative to the size (root mean square) of the latent row (Infer-Noise)."""

    def __call__(self, z_mean: Tensor, z_var: Tensor | None, drawn: Tensor) -> Tensor:
        """z_mean + scale rms(z_mean) drawn"""
        size = z_mean.pow(2).mean(-1, keepdim=True).sqrt()
        return z_mean + self.scale * size * drawn


class Dropout(Perturbation):
    """Dropout of latent dimensions at the rate `scale` (Infer-Dropout)."""

    def __init__(self, scale: float) -> None:
        super().__init__(scale)
        if scale >= 1:
            raise ValueError(f"perturbation_scale is the rate of dropout: it must be below 1, got {scale!r}")

    def draw(self, samples: int, dim: int, generator: torch.Generator) -> Tensor:
        """Return masks that are 0 or 1 / (1 - scale). (samples, dim)"""
        kept = 1 - self.scale
        return torch.bernoulli(torch.full((samples, dim), kept), generator=generator) / kept

    def __call__(self, z_mean: Tensor, z_var: Tensor | None, drawn: Tensor) -> Tensor:
        """z_mean drawn"""
        return z_mean * drawn


def intermediate_layer(backbone: nn.Module, name: str) -> nn.Module:
    """Return a layer of a backbone by name; ``middle`` is the one halfway, without the last."""
    layers: dict[str, nn.Module] = dict(backbone.named_modules())
    if name != "middle":
        check_name("layer of the backbone", name, [key for key in layers if key])
        return layers[name]
    inner = [layer for layer in layers.values() if isinstance(layer, (nn.Linear, nn.Conv2d))][:-1]
    if not inner:
        raise ValueError(
            f"{type(backbone).__name__} has no linear or convolutional layer before its last: name the layer "
            "to perturb, or leave perturbation_layer out to perturb its features"
        )
    return inner[len(inner) // 2]


@contextmanager
def perturbed_output(layer: nn.Module, perturbation: Perturbation, sample: int) -> Iterator[None]:
    """Perturb what a layer returns by the draw of this number, the same for every row. (N, ...)"""

    def perturb(module: nn.Module, arguments: object, output: object) -> Tensor:
        if not isinstance(output, Tensor) or output.dim() < 2:
            raise ValueError(
                f"a layer of type {type(module).__name__} does not return a tensor of rows: name another"
            )
        rows = output.flatten(1)
        generator = torch.Generator().manual_seed(sample)
        drawn = perturbation.draw(1, rows.shape[1], generator)[0].to(rows)
        return perturbation(rows, None, drawn).reshape(output.shape)

    handle = layer.register_forward_hook(perturb)
    try:
        yield
    finally:
        handle.remove()


PERTURBATIONS: dict[str, type[Perturbation]] = {
    "latent": LatentVariance,
    "noise": RelativeNoise,
    "dropout": Dropout,
}
"""Perturbations by name."""
