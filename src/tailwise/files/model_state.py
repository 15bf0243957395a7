"""What a model file holds, as dataclasses. `tailwise.files.codec` writes, reads and checks them.

A field is one line here or in the class that it belongs to. What must agree with another field is checked in
`__post_init__`, so that `save` refuses what could not be loaded.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, Any

import numpy as np
import torch
from numpy.typing import NDArray

from tailwise.calibration.calibration import Calibration, HeldOut, Labels, Prior
from tailwise.calibration.intervals import ConformalIntervals, Intervals, OwnIntervals
from tailwise.calibration.scaling import Scaling
from tailwise.files.base_files import BaseState
from tailwise.labels.bins import Array, checked_weights
from tailwise.model.model import Record
from tailwise.options import Between, Count, Fraction, Items, NotNegative, Positive
from tailwise.tables.column_encoders import AnyColumn
from tailwise.tables.encode import NumericEncoder, TablePreprocessor

MAX_NETWORKS = 1000
MAX_WIDTH = 1 << 16
"""Largest size of a layer."""
Width = Annotated[int, Between(1, MAX_WIDTH)]
Members = Annotated[int, Between(1, MAX_NETWORKS)]
Few = Annotated[int, Between(0, 100)]


@dataclass(frozen=True, kw_only=True)
class NetworkOptions:
    """Options of the networks in `tailwise.networks.backbones`; None for those that a network lacks."""

    hidden: Annotated[tuple[Width, ...], Items(0, 100)] | None = None
    width: Width | None = None
    blocks: Few | None = None
    expansion: Annotated[float, Between(0, 1000)] | None = None
    members: Members | None = None
    frequencies: Width | None = None
    dim: Width | None = None
    frequency_std: NotNegative | None = None
    bins: Width | None = None
    edges: tuple[Annotated[Array, Items(2, MAX_WIDTH)], ...] | None = None
    dropout: Fraction | None = None
    mean: tuple[float, float, float] | None = None
    std: tuple[Positive, Positive, Positive] | None = None

    @property
    def given(self) -> dict[str, Any]:
        """The options that the network has."""
        return {name: value for name, value in vars(self).items() if value is not None}


@dataclass(frozen=True)
class TableState:
    """How a table becomes numbers for networks; no columns for a table of numbers."""

    names: tuple[str, ...] | None
    center: NDArray[np.float64]
    scale: NDArray[np.float64]
    missing: NDArray[np.int64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]
    columns: tuple[AnyColumn, ...]

    def __post_init__(self) -> None:
        count = self.center.size
        if self.center.shape != (count,) or self.scale.shape != (count,) or not (self.scale > 0).all():
            raise ValueError("every number of a row needs a centre and a positive scale")
        if self.low.shape != (count,) or self.high.shape != (count,) or (self.low > self.high).any():
            raise ValueError("every number of a row needs a range")
        if self.missing.ndim != 1 or ((self.missing < 0) | (self.missing >= count)).any():
            raise ValueError("columns that may be missing must be columns")
        made = [output for column in self.columns for output in column.outputs]
        if self.columns and tuple(column.name for column in self.columns) != self.names:
            raise ValueError("names and columns differ")
        if self.columns and (len(made) != count or len(set(made)) < count):
            raise ValueError(f"the columns become {len(set(made))} different numbers, and a row has {count}")
        if not self.columns and self.names is not None and len(self.names) != count:
            raise ValueError(f"{len(self.names)} names for {count} columns")

    @classmethod
    def of(cls, encoder: TablePreprocessor) -> TableState:
        """Take the encoding of a table apart."""
        names, numeric = encoder.columns, encoder.numeric
        scales = (numeric.center.numpy(), numeric.scale.numpy(), numeric.missing.numpy())
        ends = (numeric.low.numpy(), numeric.high.numpy())
        return cls(None if names is None else tuple(names), *scales, *ends, encoder.encoders)

    def preprocessor(self) -> TablePreprocessor:
        """Build the encoding again."""
        numbers = (self.center, self.scale, self.missing, self.low, self.high)
        numeric = NumericEncoder(*map(torch.from_numpy, numbers))
        return TablePreprocessor(None if self.names is None else list(self.names), numeric, self.columns)


@dataclass(frozen=True)
class Backbone:
    """What builds the network without its weights."""

    name: str | None
    """None for a backbone of the user's own."""
    own: str | None
    """The name of the class of such a backbone."""
    options: NetworkOptions
    feature_dim: Width


@dataclass(frozen=True)
class Target:
    """How the predictions of one target are calibrated."""

    labels: Labels
    scaling: Scaling
    emphasis: Fraction
    intervals: Intervals
    held: HeldOut

    def __post_init__(self) -> None:
        bins, held, intervals = self.labels.bins, self.held, self.intervals
        _check_edges(bins.edges, bins.counts, "bins")
        quantiles = self.labels.quantiles
        if quantiles.ndim != 1 or quantiles.size == 0 or (np.diff(quantiles) < 0).any():
            raise ValueError("the quantiles of the labels must ascend")
        if (bins.counts < 0).any() or not bins.counts.any():
            raise ValueError("bins need labels")
        if held.labels.ndim != 1 or held.prediction.shape != held.labels.shape:
            raise ValueError("the held-out predictions do not fit their labels")
        groups = len(intervals.column.names)
        if isinstance(intervals, ConformalIntervals):
            _check_edges(intervals.bins.edges, intervals.bins.counts, "bins of intervals")
            if not (intervals.scores >= 0).all():
                raise ValueError("scores of intervals are distances")
            for weights in (intervals.weights, intervals.rare):
                checked_weights(weights, held.labels.size)
        if held.groups.shape != held.labels.shape or ((held.groups < 0) | (held.groups > groups)).any():
            raise ValueError("the held-out rows do not fit the groups of their column")

    @classmethod
    def of(cls, fitted: Calibration) -> Target:
        """Take a calibration apart."""
        return cls(fitted.labels, fitted.scaling, fitted.emphasis, fitted.intervals, fitted.held)

    def calibration(self) -> Calibration:
        """Build the calibration again."""
        intervals = self.intervals
        if isinstance(intervals, ConformalIntervals):
            intervals = replace(intervals, bins=self.labels.bins)
        prior = Prior.emphasized(self.labels.density, self.emphasis)
        return Calibration(self.labels, self.scaling, prior, intervals, self.held)


def _check_edges(edges: NDArray[Any], values: NDArray[Any], name: str) -> None:
    if edges.ndim != 1 or values.shape != (edges.size - 1,) or not (np.diff(edges) > 0).all():
        raise ValueError(f"{name} need edges in ascending order and one value between each two")


@dataclass(frozen=True, kw_only=True)
class ModelState:
    """A fitted `TailRegressor`, but for the weights of its networks."""

    params: dict[str, Any]
    """The estimator checks them."""
    parts: dict[str, Any]
    """Options of `Method`, which checks them."""
    backbone: Backbone
    alone: Backbone | None
    """The network without a base that is pooled with the first one around it, if there is one."""
    n_features_in: Count | None
    feature_names_in: tuple[str, ...] | None
    picture_size: tuple[Width, Width] | None
    table: TableState | None
    base_given: bool
    bases: tuple[BaseState, ...]
    rivals: tuple[BaseState, ...]
    target_names: tuple[str, ...] | None
    targets: Annotated[tuple[Target, ...], Items(1, MAX_NETWORKS)]
    record: Record

    def __post_init__(self) -> None:
        count = len(self.targets)
        if self.alone is not None and (len(self.record.histories) % 2 or not (self.bases or self.base_given)):
            raise ValueError("networks without a base are pooled with as many around one")
        if not 1 <= len(self.record.histories) <= MAX_NETWORKS:
            raise ValueError(f"there must be 1 to {MAX_NETWORKS} networks, each with a history")
        sizes = {"names": self.target_names, "bases": self.bases or None, "rivals": self.rivals or None}
        for name, values in sizes.items():
            if values is not None and len(values) != count:
                raise ValueError(f"{len(values)} {name} for {count} targets")
        if self.feature_names_in is not None and len(self.feature_names_in) != self.n_features_in:
            raise ValueError(f"{len(self.feature_names_in)} names for {self.n_features_in} features")
        wanted = OwnIntervals if self.params.get("conformal") is None else ConformalIntervals
        if not all(isinstance(target.intervals, wanted) for target in self.targets):
            raise ValueError(f"the intervals are not those of conformal={self.params.get('conformal')!r:.40}")
        if (self.backbone.own is None) == (self.backbone.name is None):
            raise ValueError("a network has a name, or is the user's own")
        kinds = (self.table is not None, self.picture_size is not None, self.backbone.own is not None)
        if sum(kinds) != 1:
            raise ValueError("inputs must be a table, pictures, or those of a backbone of your own")
        width = None if self.table is None else self.table.center.size
        for model in (model for base in (*self.bases, *self.rivals) for model in base.models):
            if model.features != width or (self.base_given and self.bases):
                raise ValueError(f"a base for {model.features} columns does not fit the inputs")
