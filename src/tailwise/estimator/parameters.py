"""Types and ranges of the parameters of `TailRegressor`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from numbers import Integral, Real
from typing import Any

import numpy as np
from sklearn.utils._param_validation import Interval, StrOptions
from torch import nn

DEFAULT_BACKBONE = "mlp-ple"

_COUNT = Interval(Integral, 1, None, closed="left")
_SHOTS = Interval(Integral, 0, None, closed="left")
_AUTO = StrOptions({"auto"})

CONSTRAINTS: dict[str, list[Any]] = {
    "method": [str],
    "method_options": [Mapping, None],
    "base": [object],  # `tailwise.estimator.bases.resolve_base` says what is wrong with it
    "folds": [_COUNT, _AUTO],
    "emphasis": [Interval(Real, 0, 1, closed="both"), _AUTO],
    "backbone": [str, nn.Module, callable],
    "feature_dim": [_COUNT, None],
    "bins": [_COUNT, "array-like", None],
    "bounds": [object],  # `tailwise.core.truncation.bounds_of` says what is wrong with it
    "keep_values": ["boolean"],
    "epochs": [_COUNT, _AUTO],
    "batch_size": [_COUNT, _AUTO],
    "lr": [Interval(Real, 0, None, closed="neither"), _AUTO],
    "weight_decay": [Interval(Real, 0, None, closed="left")],
    "patience": [_COUNT, None],
    "monitor": [str],
    "validation_fraction": [Interval(Real, 0, 1, closed="neither")],
    "calibrate": ["boolean", StrOptions({"balanced"})],
    "conformal": [str, None],
    "conformal_by": [str, _SHOTS, None],
    "many": [_SHOTS],
    "few": [_SHOTS],
    "image_size": [_COUNT],
    "augment": [str, None],
    "device": [str],
    "random_state": ["random_state"],
    "verbose": ["verbose"],
}
"""In scikit-learn's terms; it words the errors."""


def table_config(rows: int) -> dict[str, Any]:
    """Return how to train on that many rows of a table: fewer epochs and larger batches for more rows.

    An epoch has about 12 steps or more: with three, ten epochs without improvement were often chance
    (docs/results/stopping.md).
    """
    return {
        "epochs": int(np.clip(3_000_000 / max(rows, 1), 12, 300)),
        "batch_size": int(np.clip(2 ** np.round(np.log2(max(rows, 1) / 12)), 32, 2048)),
        "lr": 1e-3,
    }


def stream_config(rows: int) -> dict[str, Any]:
    """Return how to train on that many rows of a stream: batches of up to 8,192 rows, and fewer epochs."""
    small = table_config(rows)
    return {
        "epochs": int(np.clip(100_000_000 / max(rows, 1), 2, small["epochs"])),
        "batch_size": max(small["batch_size"], min(2 ** round(math.log2(max(rows, 200) / 200)), 8192)),
        "lr": 3e-3,
    }
