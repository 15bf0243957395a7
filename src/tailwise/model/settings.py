"""The parameters of `TailRegressor`, and what a fit reads from them."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping
from numbers import Integral, Real
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator
from sklearn.utils._param_validation import Interval, StrOptions
from torch import nn

from tailwise.lookup import check_name, nearest
from tailwise.methods import get_method
from tailwise.model.base import MakeBase, resolve_base
from tailwise.model.inputs import Inputs, PictureInputs, TableInputs, TensorInputs
from tailwise.model.pictures import augmentation, picture_config
from tailwise.networks.backbones import BACKBONES, IMAGE_BACKBONES
from tailwise.networks.parts import Method
from tailwise.training.config import DEVICES, TrainConfig
from tailwise.training.progress import visible

logger = logging.getLogger(__name__)
BackboneChoice = str | nn.Module | Callable[[], nn.Module]

DEFAULT_BACKBONE = "mlp-ple"

_COUNT = Interval(Integral, 1, 1 << 53, closed="both")
_SHOTS = Interval(Integral, 0, 1 << 53, closed="both")
_AUTO = StrOptions({"auto"})

CONSTRAINTS: dict[str, list[Any]] = {
    "method": [str],
    "method_options": [Mapping, None],
    "base": [object],  # `tailwise.model.base.resolve_base` says what is wrong with it
    "folds": [_COUNT, _AUTO],
    "emphasis": [Interval(Real, 0, 1, closed="both"), _AUTO],
    "backbone": [str, nn.Module, callable],
    "feature_dim": [_COUNT, None],
    "bins": [_COUNT, "array-like", None],
    "bounds": [object],  # `tailwise.distributions.truncation.bounds_of` says what is wrong with it
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


class Settings(BaseEstimator):  # type: ignore[misc,unused-ignore]
    """The parameters of `TailRegressor`, which says what they mean."""

    _parameter_constraints = CONSTRAINTS

    def __init__(
        self,
        *,
        method: str = "vir-dial",
        method_options: Mapping[str, Any] | None = None,
        base: Any = "auto",
        folds: int | Literal["auto"] = "auto",
        emphasis: float | Literal["auto"] = "auto",
        backbone: BackboneChoice = "auto",
        feature_dim: int | None = None,
        bins: int | ArrayLike | None = None,
        bounds: Any = None,
        keep_values: bool = True,
        epochs: int | Literal["auto"] = "auto",
        batch_size: int | Literal["auto"] = "auto",
        lr: float | Literal["auto"] = "auto",
        weight_decay: float = 1e-4,
        patience: int | None = 10,
        monitor: str = "nll",
        validation_fraction: float = 0.2,
        calibrate: bool | Literal["balanced"] = True,
        conformal: Literal["global", "region"] | None = "region",
        conformal_by: str | int | None = None,
        many: int = 100,
        few: int = 20,
        image_size: int = 224,
        augment: str | None = "crop-flip",
        device: str = "auto",
        random_state: int | np.random.RandomState | None = None,
        verbose: int = 0,
    ) -> None:
        self.method = method
        self.method_options = method_options
        self.base = base
        self.folds = folds
        self.emphasis = emphasis
        self.backbone = backbone
        self.feature_dim = feature_dim
        self.bins = bins
        self.bounds = bounds
        self.keep_values = keep_values
        self.epochs = epochs
        self.batch_size = batch_size
        self.lr = lr
        self.weight_decay = weight_decay
        self.patience = patience
        self.monitor = monitor
        self.validation_fraction = validation_fraction
        self.calibrate = calibrate
        self.conformal = conformal
        self.conformal_by = conformal_by
        self.many = many
        self.few = few
        self.image_size = image_size
        self.augment = augment
        self.device = device
        self.random_state = random_state
        self.verbose = verbose

    def check(self) -> None:
        """Raise an error for parameters that are wrong by themselves or contradict one another."""
        self.check_all_but_the_method()
        _ = self.parts

    def check_all_but_the_method(self) -> None:
        """Do what `check` does, but for the method: a stored model has the parts of its own."""
        self._validate_params()
        if self.conformal not in ("global", "region", None):
            hint = nearest(str(self.conformal), ("global", "region"))
            raise ValueError(f"unknown conformal {self.conformal!r}{hint}, or None")
        if self.conformal_by is not None and self.conformal is None:
            raise ValueError("conformal_by needs conformal intervals: leave out conformal=None")
        if self.conformal_by is not None and not self.takes_tables:
            raise ValueError("conformal_by names a column of a table: leave it out for other inputs")
        if self.few > self.many:
            raise ValueError(f"few={self.few} must not exceed many={self.many}")
        self.train_config(1, 0)  # raises an error for an unknown monitor
        if isinstance(self.backbone, str) and self.backbone != "auto":
            check_name("backbone", self.backbone, [*BACKBONES, *IMAGE_BACKBONES])
        augmentation(self.augment)  # raises an error for an unknown name
        check_name("device", self.device, DEVICES)
        if self.feature_dim is not None and isinstance(self.backbone, str):
            raise ValueError(
                f"feature_dim is for a backbone of your own; {self.backbone!r} has its own: leave it out"
            )

    def log(self, text: str, *values: Any) -> None:
        """Say what a slow step does, if progress is shown."""
        if self.verbose:
            with visible():
                logger.info(text, *values)

    @property
    def parts(self) -> Method:
        """The parts of the method, with the options of the user."""
        return get_method(self.method).parts.with_options(**(self.method_options or {}))

    @property
    def takes_pictures(self) -> bool:
        """Whether X has pictures, for one of our networks for them."""
        return isinstance(self.backbone, str) and self.backbone in IMAGE_BACKBONES

    @property
    def takes_tables(self) -> bool:
        """Whether X is a table; otherwise it goes to the backbone as tensors."""
        return isinstance(self.backbone, str) and not self.takes_pictures

    def inputs(self) -> Inputs:
        """Return inputs of the kind that the backbone takes."""
        if self.takes_pictures:
            return PictureInputs((self.image_size, self.image_size))
        return TableInputs(self.conformal_by) if self.takes_tables else TensorInputs()

    @property
    def given_bins(self) -> dict[str, Any]:
        """The label bins asked for, as arguments of `LabelBins.from_labels`."""
        return {} if self.bins is None else {"count" if np.ndim(self.bins) == 0 else "edges": self.bins}

    def base_maker(self, rows: int, *, given: bool) -> MakeBase | None:
        """Return what makes the base, if any. By default methods with new rows and own backbones have none.

        `given` says that the user gives predictions of a base.
        """
        unasked = isinstance(self.base, str) and self.base == "auto"
        resampling = self.parts.resampling
        if given:
            if not unasked and self.base is not None:
                raise ValueError(f"give base_prediction or base={self.base!r}, not both")
            if resampling is not None:
                raise ValueError(f"method {self.method!r} makes new rows, which have no base_prediction")
            return None
        if unasked and (not self.takes_tables or resampling is not None):
            return None
        make = resolve_base(self.base, rows)
        if make is not None and not self.takes_tables:
            raise ValueError(
                "a base takes tables, not pictures or what a backbone of your own takes: leave out base, or "
                "pass its predictions as base_prediction"
            )
        if make is not None and resampling is not None:
            raise ValueError(f"method {self.method!r} makes new rows, which have no base: pass base=None")
        return make

    def train_config(self, rows: int, seed: int, *, streamed: bool = False) -> TrainConfig:
        """Return how to train on that many rows, where the parameters leave it open."""
        cpu = self.device == "auto" and not torch.cuda.is_available()
        cuda = self.device in ("auto", "gpu", "cuda") and torch.cuda.is_available()
        settings = picture_config(rows, cuda) if self.takes_pictures else table_config(rows)
        settings = stream_config(rows) if streamed else settings
        given = {"epochs": self.epochs, "batch_size": self.batch_size, "lr": self.lr}
        settings |= {name: value for name, value in given.items() if value != "auto"}
        return TrainConfig(
            **settings,
            weight_decay=self.weight_decay,
            patience=self.patience,
            monitor=self.monitor,
            seed=seed % 2**31,
            accelerator="cpu" if cpu else self.device,
        )


def table_config(rows: int) -> dict[str, Any]:
    """Return how to train on that many rows of a table: fewer epochs and larger batches for more rows.

    An epoch has about 12 steps or more: with three, ten epochs without improvement were often chance
    (research/results/stopping.md).
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
