"""The training configuration, its learning rate schedules and optimisers."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import nn

from tailwise.lookup import nearest
from tailwise.metrics.regions import get_metric


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """How to train; the same for every method in a comparison."""

    epochs: int = 100
    batch_size: int = 256
    """Rows of a step, over all ranks together; a `DataLoader` has its own, for each rank."""
    lr: float = 1e-3
    weight_decay: float = 1e-4
    optimizer: Literal["adam", "adamw", "sgd"] = "adamw"
    schedule: Literal["constant", "cosine", "step"] = "constant"
    warmup: float = 0.0
    """Epochs over which the learning rate rises from 0."""
    milestones: tuple[float, ...] = (60, 90)
    """Epochs at which ``schedule="step"`` multiplies the learning rate by `decay`."""
    decay: float = 0.1
    clip_norm: float | None = 5.0
    precision: Literal["fp32", "bf16"] = "fp32"
    """With ``bf16`` the backbone computes in bfloat16; statistics, head and losses stay in float32."""
    compile: bool = False
    """Compile smoothing, head and losses with `torch.compile`: fewer and larger kernels."""
    graphs: bool = False
    """On a GPU, record the training step as a CUDA graph and replay it; batches need few different shapes."""
    monitor: str = "balanced_mae"
    """Validation metric for early stopping and the best weights; see `tailwise.metrics.regions`."""
    patience: int | None = 20
    """Epochs without improvement after which training stops; None trains all epochs."""
    restore_best: bool = True
    seed: int = 0
    accelerator: str = "auto"
    devices: int = 1
    """Processes to start, each with a device of its own, unless several run already."""
    shards: int | None = None
    """Parts of each batch, each with random numbers of its own; by default as many as processes.

    Runs with the same number of shards give the same weights, up to rounding, whether one process works on
    all of them or several share them."""

    def __post_init__(self) -> None:
        for name, choices in (
            ("optimizer", ("adam", "adamw", "sgd")),
            ("schedule", tuple(SCHEDULES)),
            ("precision", ("fp32", "bf16")),
        ):
            value = getattr(self, name)
            if value not in choices:
                raise ValueError(f"unknown {name} {value!r}{nearest(str(value), choices)}")
        for name in ("epochs", "batch_size", "lr", "clip_norm", "patience", "devices", "shards"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise ValueError(f"{name} must be positive, got {value!r}")
        for name in ("weight_decay", "warmup", "decay", "seed"):
            if not getattr(self, name) >= 0:
                raise ValueError(f"{name} must not be negative, got {getattr(self, name)!r}")
        if self.graphs and (self.devices > 1 or (self.shards or 1) > 1):
            raise ValueError(
                "a CUDA graph holds the step of one device: set devices=1 and shards=1, or graphs=False"
            )
        if self.graphs and self.compile:
            raise ValueError("graphs and compile do not work together: choose one of them")
        get_metric(self.monitor)


DEVICES = ("auto", "cpu", "cuda", "mps", "gpu")
"""Names of devices to train on."""


def check_accelerator(name: str) -> None:
    """Raise an error if this machine does not have the named accelerator (`TrainConfig.accelerator`)."""
    available = {
        "auto": True,
        "cpu": True,
        "cuda": torch.cuda.is_available(),
        "mps": torch.backends.mps.is_available(),
    }
    available["gpu"] = available["cuda"] or available["mps"]
    if name not in available:
        raise ValueError(f"unknown device {name!r}{nearest(name, available)}")
    if not available[name]:
        raise ValueError(f"torch {torch.__version__} finds no {name!r} on this machine: use 'auto'")


def _constant(epoch: float, config: TrainConfig) -> float:
    return 1.0


def _cosine(epoch: float, config: TrainConfig) -> float:
    return 0.5 * (1 + math.cos(math.pi * min(epoch / config.epochs, 1.0)))


def _step(epoch: float, config: TrainConfig) -> float:
    return config.decay ** sum(epoch >= milestone for milestone in config.milestones)


SCHEDULES: dict[str, Callable[[float, TrainConfig], float]] = {
    "constant": _constant,
    "cosine": _cosine,
    "step": _step,
}


def learning_rate(epoch: float, config: TrainConfig) -> float:
    """Return the learning rate at a (fractional) epoch.

    >>> [learning_rate(e, TrainConfig(lr=1.0, schedule="step")) for e in (0, 60)]
    [1.0, 0.1]
    """
    warm = min((epoch + 1e-9) / config.warmup, 1.0) if config.warmup else 1.0
    return config.lr * warm * SCHEDULES[config.schedule](epoch, config)


def make_optimizer(model: nn.Module, config: TrainConfig, device: torch.device) -> torch.optim.Optimizer:
    """Return the configured optimiser for the model's trainable parameters."""
    parameters = [p for p in model.parameters() if p.requires_grad]
    fused = device.type == "cuda"
    recorded = fused and config.graphs
    # A recorded step reads the learning rate on the device, where it can change.
    lr = torch.tensor(config.lr, device=device) if recorded else config.lr
    if config.optimizer == "sgd":
        return torch.optim.SGD(parameters, lr, momentum=0.9, weight_decay=config.weight_decay, fused=fused)
    kind = torch.optim.Adam if config.optimizer == "adam" else torch.optim.AdamW
    return kind(parameters, lr, weight_decay=config.weight_decay, fused=fused, capturable=recorded)


def set_learning_rate(optimizer: torch.optim.Optimizer, lr: float) -> None:
    """Set the learning rate of all parameters, in place where it is a tensor."""
    for group in optimizer.param_groups:
        if isinstance(group["lr"], torch.Tensor):  # a checkpoint brings it on the CPU
            group["lr"] = group["lr"].to(group["params"][0].device).fill_(lr)
        else:
            group["lr"] = lr
