"""The training configuration: its device, learning rate schedules and optimisers."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Literal, get_type_hints

import torch

from tailwise.lookup import nearest
from tailwise.metrics.regions import get_metric
from tailwise.options import Between, Count, NotNegative, Positive, checked_value

AtLeastOne = Annotated[int, Between(1)]


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """How to train; the same for every method in a comparison."""

    epochs: AtLeastOne = 100
    batch_size: AtLeastOne = 256
    """Rows of a step, over all ranks together; a `DataLoader` has its own."""
    lr: Positive = 1e-3
    weight_decay: NotNegative = 1e-4
    optimizer: Literal["adam", "adamw", "sgd"] = "adamw"
    schedule: Literal["constant", "cosine", "step"] = "constant"
    warmup: NotNegative = 0.0
    """Epochs over which the learning rate rises from 0."""
    milestones: tuple[float, ...] = (60, 90)
    """Epochs at which ``schedule="step"`` multiplies the learning rate by `decay`."""
    decay: NotNegative = 0.1
    clip_norm: Positive | None = 5.0
    precision: Literal["fp32", "bf16"] = "fp32"
    """With ``bf16`` the backbone computes in bfloat16; statistics, head and losses stay in float32."""
    graphs: bool = False
    """On a GPU, record the training step as a CUDA graph and replay it; batches need few different shapes."""
    monitor: str = "balanced_mae"
    """Validation metric for early stopping and the best weights; see `tailwise.metrics.regions`."""
    patience: AtLeastOne | None = 20
    """Epochs without improvement after which training stops; None trains all epochs."""
    seed: Count = 0
    accelerator: str = "auto"
    """The device: one of `DEVICES`."""
    shards: AtLeastOne | None = None
    """Parts of each batch, each with random numbers of its own; by default as many as processes.

    Runs with the same number of shards give the same weights, up to rounding, whether one process works on
    all of them or several share them."""

    def __post_init__(self) -> None:
        for name, hint in get_type_hints(TrainConfig, include_extras=True).items():
            if name != "milestones":
                checked_value(name, getattr(self, name), hint)
        if self.graphs and (self.shards or 1) > 1:
            raise ValueError("a CUDA graph holds the step of one shard: set shards=1, or graphs=False")
        get_metric(self.monitor)


DEVICES = ("auto", "cpu", "cuda", "mps", "gpu")
"""Names of devices to train on."""


def training_device(name: str) -> torch.device:
    """Return the device of a name in `DEVICES`; one that this machine does not have is an error."""
    cuda = "cuda" if torch.cuda.is_available() else ""
    mps = "mps" if torch.backends.mps.is_available() else ""
    kinds = {"auto": cuda or mps or "cpu", "cpu": "cpu", "cuda": cuda, "mps": mps, "gpu": cuda or mps}
    if name not in kinds:
        raise ValueError(f"unknown device {name!r}{nearest(name, kinds)}")
    if not kinds[name]:
        raise ValueError(f"torch {torch.__version__} finds no {name!r} on this machine: use 'auto'")
    if kinds[name] == "cuda":
        return torch.device("cuda", torch.cuda.current_device())
    return torch.device(kinds[name])


def learning_rate(epoch: float, config: TrainConfig) -> float:
    """Return the learning rate at a (fractional) epoch.

    >>> [learning_rate(e, TrainConfig(lr=1.0, schedule="step")) for e in (0, 60)]
    [1.0, 0.1]
    """
    lr = config.lr * (min((epoch + 1e-9) / config.warmup, 1.0) if config.warmup else 1.0)
    if config.schedule == "cosine":
        return lr * (0.5 * (1 + math.cos(math.pi * min(epoch / config.epochs, 1.0))))
    if config.schedule == "step":
        return lr * config.decay ** sum(epoch >= milestone for milestone in config.milestones)
    return lr
