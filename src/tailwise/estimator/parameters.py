"""What `TailRegressor` takes as parameters, and what ``"auto"`` stands for."""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from sklearn.utils._param_validation import Interval, StrOptions
from torch import nn

from tailwise.core.lookup import nearest
from tailwise.learning.loop import TrainConfig
from tailwise.methods import get_method

if TYPE_CHECKING:
    from tailwise.estimator.regressor import TailRegressor

DEFAULT_BACKBONE = "mlp-ple"

_COUNT = Interval(Integral, 1, None, closed="left")
_SHOTS = Interval(Integral, 0, None, closed="left")
_AUTO = StrOptions({"auto"})

CONSTRAINTS: dict[str, list[Any]] = {
    "method": [str],
    "method_options": [Mapping, None],
    "backbone": [str, nn.Module, callable],
    "feature_dim": [_COUNT, None],
    "bins": [_COUNT, "array-like", None],
    "epochs": [_COUNT, _AUTO],
    "batch_size": [_COUNT, _AUTO],
    "lr": [Interval(Real, 0, None, closed="neither")],
    "weight_decay": [Interval(Real, 0, None, closed="left")],
    "patience": [_COUNT, None],
    "monitor": [str],
    "validation_fraction": [Interval(Real, 0, 1, closed="neither")],
    "calibrate": ["boolean"],
    "conformal": [str, None],
    "many": [_SHOTS],
    "few": [_SHOTS],
    "device": [str],
    "random_state": ["random_state"],
    "verbose": ["verbose"],
}
"""Types and ranges of parameters, in scikit-learn's terms; it words the errors."""


def check_settings(estimator: TailRegressor) -> None:
    """Raise an error for parameters that name nothing or contradict one another."""
    get_method(estimator.method).parts.with_options(**(estimator.method_options or {}))
    if estimator.conformal not in ("global", "region", None):
        hint = nearest(estimator.conformal, ("global", "region"))
        raise ValueError(f"unknown conformal {estimator.conformal!r}{hint}, or None")
    if estimator.few > estimator.many:
        raise ValueError(f"few={estimator.few} must not exceed many={estimator.many}")
    if estimator.feature_dim is not None and isinstance(estimator.backbone, str):
        raise ValueError(
            f"feature_dim is for a backbone of your own, and {estimator.backbone!r} brings one: leave it out"
        )


def train_config(estimator: TailRegressor, rows: int, seed: int) -> TrainConfig:
    """Return how to train on that many rows: fewer epochs and larger batches for larger tables."""
    size, epochs = estimator.batch_size, estimator.epochs
    if size == "auto":
        size = int(np.clip(2 ** np.round(np.log2(max(rows, 1) / 24)), 32, 2048))
    if epochs == "auto":
        epochs = int(np.clip(3_000_000 / max(rows, 1), 12, 300))
    cpu = estimator.device == "auto" and not torch.cuda.is_available()
    return TrainConfig(
        epochs=epochs,
        batch_size=size,
        lr=estimator.lr,
        weight_decay=estimator.weight_decay,
        patience=estimator.patience,
        monitor=estimator.monitor,
        seed=seed % 2**31,
        accelerator="cpu" if cpu else estimator.device,
    )


def predicting_device(estimator: TailRegressor) -> torch.device:
    """Where a backbone of the user's own predicts: where it trains, or the CPU if there is no such device."""
    there = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    wanted = {"auto": ("cuda",), "gpu": ("cuda", "mps")}.get(estimator.device, (estimator.device,))
    return torch.device(next((name for name in wanted if there.get(name)), "cpu"))
