"""The parameters of `TailRegressor`, and what a fit reads from them."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from scipy import stats
from sklearn.utils._param_validation import Interval, StrOptions
from torch import nn

from tailwise.calibration.calibration import latent_bins
from tailwise.distributions.transform import AnyTransform, Identity, Log, Tabulated, Transform, YeoJohnson
from tailwise.labels.bins import LabelBins, LabelSummary
from tailwise.lookup import check_name, nearest
from tailwise.methods import get_method
from tailwise.model.base import Base, MakeBase, resolve_bases
from tailwise.model.inputs import (
    Inputs,
    PictureInputs,
    TableInputs,
    TensorInputs,
    augmentation,
    picture_config,
)
from tailwise.networks.backbones import BACKBONES
from tailwise.networks.images import IMAGE_BACKBONES
from tailwise.networks.parts import Method
from tailwise.training.config import DEVICES, TrainConfig
from tailwise.training.loop import visible

if TYPE_CHECKING:  # scikit-learn has no types: without these, a misspelt attribute would pass

    class BaseEstimator:
        def get_params(self, deep: bool = True) -> dict[str, Any]: ...
        def set_params(self, **parameters: Any) -> Self: ...
        def _validate_params(self) -> None: ...
        def __sklearn_tags__(self) -> Any: ...
        def __getstate__(self) -> Any: ...

    class RegressorMixin:
        def score(self, X: Any, y: Any, sample_weight: ArrayLike | None = None) -> float: ...
else:
    from sklearn.base import BaseEstimator
    from sklearn.base import RegressorMixin as RegressorMixin

logger = logging.getLogger(__name__)
Floats = NDArray[np.float64]
BackboneChoice = str | nn.Module | Callable[[], nn.Module]

AROUND, ALONE = "mlp-ple", "realmlp"
"""The networks of ``backbone="auto"``; the second for networks without a base that are pooled with others."""

_COUNT = Interval(Integral, 1, 1 << 53, closed="both")
_SHOTS = Interval(Integral, 0, 1 << 53, closed="both")
_AUTO = StrOptions({"auto"})


def _parameter(default: Any, *constraints: Any) -> Any:
    """Return a parameter with what may be passed, in scikit-learn's terms."""
    return field(default=default, metadata={"constraints": list(constraints)})


@dataclass(kw_only=True, eq=False, repr=False)
class Settings(BaseEstimator):
    """The parameters of `TailRegressor`, which says what they mean."""

    method: str = _parameter("vir-dial", str)
    method_options: Mapping[str, Any] | None = _parameter(None, Mapping, None)
    base: Any = _parameter("auto", object)  # `tailwise.model.base.resolve_bases` says what is wrong with it
    pool: bool = _parameter(False, "boolean")
    folds: int | Literal["auto"] = _parameter("auto", _COUNT, _AUTO)
    emphasis: float | Literal["auto"] = _parameter("auto", Interval(Real, 0, 1, closed="both"), _AUTO)
    backbone: BackboneChoice = _parameter("auto", str, nn.Module, callable)
    feature_dim: int | None = _parameter(None, _COUNT, None)
    bins: int | ArrayLike | None = _parameter(None, _COUNT, "array-like", None)
    bounds: Any = _parameter(None, object)  # `tailwise.distributions.truncation.bounds_of` does
    keep_values: bool = _parameter(True, "boolean")
    target_transform: Any = _parameter("auto", object)  # `check_transform` does
    epochs: int | Literal["auto"] = _parameter("auto", _COUNT, _AUTO)
    batch_size: int | Literal["auto"] = _parameter("auto", _COUNT, _AUTO)
    lr: float | Literal["auto"] = _parameter("auto", Interval(Real, 0, None, closed="neither"), _AUTO)
    weight_decay: float = _parameter(1e-4, Interval(Real, 0, None, closed="left"))
    patience: int | Literal["auto"] | None = _parameter("auto", _COUNT, _AUTO, None)
    monitor: str = _parameter("auto", str)
    validation_fraction: float = _parameter(0.2, Interval(Real, 0, 1, closed="neither"))
    calibrate: bool | Literal["balanced"] = _parameter(True, "boolean", StrOptions({"balanced"}))
    conformal: Literal["global"] | None = _parameter("global", str, None)
    conformal_by: str | int | None = _parameter(None, str, _SHOTS, None)
    many: int = _parameter(100, _SHOTS)
    few: int = _parameter(20, _SHOTS)
    image_size: int = _parameter(224, _COUNT)
    augment: str | None = _parameter("crop-flip", str, None)
    device: str = _parameter("auto", str)
    random_state: int | np.random.RandomState | None = _parameter(None, "random_state")
    verbose: int = _parameter(0, "verbose")

    @property
    def _parameter_constraints(self) -> dict[str, list[Any]]:
        return {parameter.name: parameter.metadata["constraints"] for parameter in fields(self)}

    def check(self) -> None:
        """Raise an error for parameters that are wrong by themselves or contradict one another."""
        self.check_all_but_the_method()
        _ = self.parts

    def check_all_but_the_method(self) -> None:
        """Do what `check` does, but for the method: a stored model has the parts of its own."""
        self._validate_params()
        if self.conformal not in ("global", None):
            raise ValueError(f"unknown conformal {self.conformal!r}: give 'global' or None")
        if self.conformal_by is not None and self.conformal is None:
            raise ValueError("conformal_by needs conformal intervals: leave out conformal=None")
        if self.conformal_by is not None and not self.takes_tables:
            raise ValueError("conformal_by names a column of a table: leave it out for other inputs")
        if self.few > self.many:
            raise ValueError(f"few={self.few} must not exceed many={self.many}")
        check_transform(self.target_transform)
        self.train_config(1, 0)  # raises an error for an unknown monitor
        if isinstance(self.backbone, str) and self.backbone != "auto":
            check_name("backbone", self.backbone, [*BACKBONES, *IMAGE_BACKBONES])
        augmentation(self.augment)  # raises an error for an unknown name
        check_name("device", self.device, DEVICES)
        if self.feature_dim is not None and isinstance(self.backbone, str):
            raise ValueError(
                f"feature_dim is for a backbone of your own, and {self.backbone!r} sets it: leave it out"
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

    @property
    def backbone_name(self) -> str:
        """The name of the network; of one of the user's own, its class."""
        if isinstance(self.backbone, str):
            return AROUND if self.backbone == "auto" else self.backbone
        return type(self.backbone).__name__

    def without_base(self) -> Settings:
        """Return the settings for networks without a base beside those around it."""
        return replace(self, base=None, backbone=ALONE if self.backbone == "auto" else self.backbone)

    def inputs(self) -> Inputs:
        """Return inputs of the kind that the backbone takes."""
        if self.takes_pictures:
            return PictureInputs(size=(self.image_size, self.image_size))
        return TableInputs(self.conformal_by) if self.takes_tables else TensorInputs()

    @property
    def given_bins(self) -> dict[str, Any]:
        """The label bins asked for, as arguments of `LabelBins.from_labels`."""
        return {} if self.bins is None else {"count" if np.ndim(self.bins) == 0 else "edges": self.bins}

    def base_makers(self, rows: int, *, given: bool) -> list[MakeBase]:
        """Return what makes each regressor of the base; see `resolve_bases`.

        By default methods with new rows and backbones of your own have none.
        `given` says that the user gives predictions of a base.
        """
        unasked = isinstance(self.base, str) and self.base == "auto"
        resampling = self.parts.resampling
        if given:
            if not unasked and self.base is not None:
                raise ValueError(f"give base_prediction or base={self.base!r}, not both")
            if resampling is not None:
                raise ValueError(f"method {self.method!r} makes new rows, which have no base_prediction")
            return []
        if unasked and (not self.takes_tables or resampling is not None):
            return []
        makers = resolve_bases(self.base, rows)
        if makers and not self.takes_tables:
            raise ValueError(
                "a base takes tables, not pictures or what a backbone of your own takes: leave out base, or "
                "pass its predictions as base_prediction"
            )
        if makers and resampling is not None:
            raise ValueError(f"method {self.method!r} makes new rows, which have no base: pass base=None")
        return makers

    def train_config(self, rows: int, seed: int, *, streamed: bool = False) -> TrainConfig:
        """Return how to train on that many rows, where the parameters leave it open."""
        cpu = self.device == "auto" and not torch.cuda.is_available()
        cuda = self.device in ("auto", "gpu", "cuda") and torch.cuda.is_available()
        settings: dict[str, Any] = {"patience": 10, "monitor": "nll"}
        if streamed:
            settings |= stream_config(rows)
        elif self.takes_pictures:
            settings |= picture_config(rows, cuda)
        else:
            settings |= realmlp_config(rows) if self.backbone == "realmlp" else table_config(rows)
        names = ("epochs", "batch_size", "lr", "patience", "monitor")
        asked = {name: getattr(self, name) for name in names}
        settings |= {name: value for name, value in asked.items() if value != "auto"}
        return TrainConfig(
            **settings,
            weight_decay=self.weight_decay,
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


def realmlp_config(rows: int) -> dict[str, Any]:
    """Return how to train the network ``realmlp``: at most about 1,200 steps, at a rate that falls to 0."""
    table = table_config(rows)
    schedule = {"lr": 3e-3, "schedule": "cosine", "patience": 30, "monitor": "crps"}
    return table | schedule | {"epochs": min(table["epochs"], 100)}


def stream_config(rows: int) -> dict[str, Any]:
    """Return how to train on that many rows of a stream: batches of up to 8,192 rows, and fewer epochs."""
    small = table_config(rows)
    return {
        "epochs": int(np.clip(100_000_000 / max(rows, 1), 2, small["epochs"])),
        "batch_size": max(small["batch_size"], min(2 ** round(math.log2(max(rows, 200) / 200)), 8192)),
        "lr": 3e-3,
    }


# -- labels: which transform a model is fitted on, and their bins ----------------------------------

TRANSFORMS = ("auto", "log", "yeo-johnson")
SKEWED = 1.0
"""Labels of this skewness or more are candidates for a logarithm."""


def check_transform(asked: Any) -> None:
    """Raise an error for a `target_transform` that is none."""
    if isinstance(asked, str):
        if asked not in TRANSFORMS:
            raise ValueError(f"unknown target_transform {asked!r}{nearest(asked, TRANSFORMS)}, or None")
    elif asked is not None and (isinstance(asked, type) or not hasattr(asked, "inverse_transform")):
        raise TypeError(
            "target_transform must be 'auto', 'log', 'yeo-johnson', a scikit-learn transformer with "
            f"inverse_transform, or None, not {asked!r:.80}"
        )


def candidates(asked: Any, labels: Floats) -> list[AnyTransform]:
    """Return the transforms to choose from for the labels of a target; several only for ``"auto"``. (N,)"""
    if asked is None or labels.min() == labels.max():
        return [Identity()]
    if not isinstance(asked, str):
        return [Tabulated.of(asked, labels)]
    if asked == "auto":
        skewed = labels.min() >= 0 and stats.skew(labels / labels.max()) >= SKEWED
        return [Identity(), Log.of(labels)] if skewed else [Identity()]
    return [Log.of(labels) if asked == "log" else YeoJohnson.of(labels)]


def chosen_transforms(base: Base, choices: list[list[AnyTransform]]) -> list[AnyTransform]:
    """Return the transform of each target: that of its base, or the first to choose from without one."""
    return [fitted.transform for fitted in base.targets] or [choice[0] for choice in choices]


def bins_of(transform: Transform, labels: Floats, weight: ArrayLike | None, **bins: Any) -> LabelBins:
    """Return bins of labels that were chosen for latent labels; `bins` are options of `LabelBins`. (N,)"""
    if transform.is_identity or "edges" in bins:
        chosen = LabelBins.from_labels(labels, weight=weight, **bins)
        if (np.diff(latent_bins(chosen, transform).edges) <= 0).any():
            raise ValueError("several edges of bins lie beyond the labels that target_transform allows")
        return chosen
    return in_label_units(transform, LabelBins.from_labels(transform.latents(labels), weight=weight, **bins))


def in_label_units(transform: Transform, bins: LabelBins) -> LabelBins:
    """Return bins of latent labels as bins of labels."""
    if transform.is_identity:
        return bins
    edges = transform.labels(bins.edges)
    return LabelBins(edges, bins.counts, f"{len(bins)} bins of equal width after the target transform")


def bins_from_summary(transform: Transform, summary: LabelSummary, **bins: Any) -> LabelBins:
    """Return bins, without counts, as `bins_of` chooses them, of labels that do not fit in memory."""
    if transform.is_identity or "edges" in bins:
        return LabelBins.from_summary(summary, **bins)
    low, high = transform.latents(np.array([summary.low, summary.high]))
    latent = LabelSummary(summary.count, float(low), float(high), transform.latents(summary.sample))
    return in_label_units(transform, LabelBins.from_summary(latent, **bins))
