"""What `TailRegressor` makes of its inputs: checked tables and labels, label bins, features and the base."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from numbers import Real
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_consistent_length
from torch import nn

from tailwise.core.labels import LabelBins
from tailwise.core.lookup import check_name
from tailwise.core.support import LabelSupport
from tailwise.core.truncation import Bounds, bounds_of
from tailwise.data.inputs import as_tensors, row_count, take_rows
from tailwise.data.tables.checks import checked_eval_set, checked_table, checked_targets
from tailwise.data.tables.preprocessing import TablePreprocessor
from tailwise.estimator.bases import (
    FOLDS,
    CrossFitted,
    MakeBase,
    cross_fit,
    deal_folds,
    given_predictions,
    resolve_base,
)
from tailwise.estimator.holdout import deal_group_folds
from tailwise.estimator.picture_inputs import as_pictures, picture_tensor
from tailwise.learning.loop import FitResult
from tailwise.learning.progress import visible
from tailwise.methods import get_method
from tailwise.networks.backbones import IMAGE_BACKBONES
from tailwise.networks.trainable import Trainable
from tailwise.uncertainty.calibrator import Calibrator
from tailwise.uncertainty.column_groups import MAX_GROUPS, ColumnGroups

logger = logging.getLogger(__name__)
Floats = NDArray[np.float64]
Rows = NDArray[np.int64]
BackboneChoice = str | nn.Module | Callable[[], nn.Module]


def _table_column(X: Any, column: str | int) -> Any:
    """A column of a checked table, by name or, if it has no names, by number. (N,)"""
    if hasattr(X, "columns"):
        names = [str(name) for name in X.columns]
        if isinstance(column, str):
            check_name("column of conformal_by", column, names)
        elif column >= len(names):
            raise ValueError(f"conformal_by={column} is not one of {len(names)} columns")
        return X[X.columns[names.index(column) if isinstance(column, str) else column]]
    if isinstance(column, str):
        raise ValueError(f"conformal_by={column!r} names a column, but X has no names: give its number")
    if column >= X.shape[1]:
        raise ValueError(f"conformal_by={column} is not one of {X.shape[1]} columns")
    values = X[:, [column]]
    return (values.toarray() if hasattr(values, "toarray") else values)[:, 0]


class Preparing(BaseEstimator):  # type: ignore[misc,unused-ignore]
    """Parameters and fitted parts of `TailRegressor`, and what it makes of inputs and labels."""

    method: str
    method_options: Mapping[str, Any] | None
    base: Any
    folds: int | Literal["auto"]
    emphasis: float | Literal["auto"]
    backbone: BackboneChoice
    feature_dim: int | None
    bins: int | ArrayLike | None
    bounds: Any
    keep_values: bool
    epochs: int | Literal["auto"]
    batch_size: int | Literal["auto"]
    lr: float | Literal["auto"]
    weight_decay: float
    patience: int | None
    monitor: str
    validation_fraction: float
    calibrate: bool | Literal["balanced"]
    conformal: Literal["global", "region"] | None
    conformal_by: str | int | None
    many: int
    few: int
    image_size: int
    augment: str | None
    device: str
    verbose: int

    n_targets_: int
    feature_names_in_: NDArray[Any]
    bins_: LabelBins | list[LabelBins]
    preprocessor_: TablePreprocessor | None
    picture_size_: tuple[int, int] | None
    base_: list[CrossFitted] | None
    base_given_: bool
    networks_: list[Trainable]
    histories_: list[FitResult]
    calibrators_: list[Calibrator]
    conformal_groups_: ColumnGroups | None
    held_out_: bool
    unseen_: bool
    recalibrated_: int
    """Rows that the model was recalibrated on, 0 if it was not."""

    @property
    def _takes_pictures(self) -> bool:
        """Whether X has pictures, for one of our networks for them."""
        return isinstance(self.backbone, str) and self.backbone in IMAGE_BACKBONES

    @property
    def _raw_inputs(self) -> bool:
        """Whether X goes to the backbone as tensors: pictures, or what a backbone of the user's own takes."""
        return self._takes_pictures or not isinstance(self.backbone, str)

    def _log(self, text: str, *values: Any) -> None:
        """Say what a slow step does, if progress is shown."""
        if self.verbose:
            with visible():
                logger.info(text, *values)

    def _validated(self, X: Any, *, reset: bool) -> Any:
        if not self._takes_pictures:
            if reset:
                self.picture_size_ = None
            return X if self._raw_inputs else checked_table(self, X, reset=reset)
        known = None if reset else self.picture_size_
        pictures = as_pictures(X, known or (self.image_size, self.image_size), like=known is not None)
        if reset:
            self.picture_size_, self.n_features_in_ = (pictures.shape[1], pictures.shape[2]), 1
            if hasattr(self, "feature_names_in_"):
                del self.feature_names_in_
            if hasattr(X, "columns"):
                self.feature_names_in_ = np.array([str(X.columns[0])], dtype=object)
        return pictures

    def _labels(self, X: Any, y: Any, *, reset: bool = False) -> Floats:
        """Labels as numbers, one for each row; without `reset`, as many targets as at fit."""
        if y is None:
            raise ValueError(
                "This TailRegressor estimator requires y to be passed, but the target y is None."
            )
        labels = checked_targets(y)
        check_consistent_length(range(row_count(X)), labels)
        targets = labels.shape[1] if labels.ndim == 2 else 1
        if not reset and targets != self.n_targets_:
            raise ValueError(f"y has {targets} targets, but the model was fitted with {self.n_targets_}")
        return labels

    def _label_bounds(self, labels: Floats, where: str = "y") -> list[Bounds | None]:
        """Bounds of each target; a label beyond them is an error."""
        columns = list(labels.reshape(len(labels), -1).T)
        each = self._bounds_of(columns)
        for bounds, column in zip(each, columns, strict=True):
            if bounds is not None:
                bounds.check(column, where)
        return each

    def _bounds_of(self, columns: Sequence[Floats]) -> list[Bounds | None]:
        """Bounds of each target, as given or as observed in its labels."""
        given = self.bounds
        pair = isinstance(given, list | tuple) and all(e is None or isinstance(e, Real) for e in given)
        if len(columns) > 1 and isinstance(given, list | tuple) and not pair:
            if len(given) != len(columns):
                raise ValueError(f"bounds has {len(given)} entries for {len(columns)} targets")
            return [bounds_of(own, column) for own, column in zip(given, columns, strict=True)]
        return [bounds_of(given, column) for column in columns]

    def _label_supports(self, labels: Floats) -> list[LabelSupport | None]:
        """Values that the labels of each target can have, if they are not continuous."""
        columns = labels.reshape(len(labels), -1).T
        return [LabelSupport.from_labels(column) if self.keep_values else None for column in columns]

    def _column(self, X: Any, given: Any, what: str) -> Any:
        """Values that are given as an array, or as the name of a column of X."""
        if not isinstance(given, str):
            return given
        if not hasattr(X, "columns"):
            raise ValueError(f"{what}={given!r} names a column, but X has no names: pass the values")
        kind = what if what == "column" else f"column of {what}"
        check_name(kind, given, [str(name) for name in X.columns])
        return X[given]

    def _find_interval_groups(self, X: Any) -> None:
        self.conformal_groups_ = None
        if self.conformal_by is not None:
            values = _table_column(X, self.conformal_by)
            self.conformal_groups_ = ColumnGroups.of(values, self.conformal_by, at_most=MAX_GROUPS)

    def _interval_groups(self, X: Any) -> Rows | None:
        """Codes of the rows of a table in the column that intervals go by, if there is one. (N,)"""
        groups = self.conformal_groups_
        return None if groups is None else groups.codes(_table_column(X, groups.column))

    @property
    def _given_bins(self) -> dict[str, Any]:
        return {} if self.bins is None else {"count" if np.ndim(self.bins) == 0 else "edges": self.bins}

    def _label_bins(self, labels: Floats, weight: Floats) -> LabelBins | list[LabelBins]:
        given = self._given_bins
        if labels.ndim == 1:
            return LabelBins.from_labels(labels, weight=weight, **given)
        return [LabelBins.from_labels(column, weight=weight, **given) for column in labels.T]

    def _all_bins(self) -> list[LabelBins]:
        return self.bins_ if isinstance(self.bins_, list) else [self.bins_]

    def _fit_preprocessing(self, X: Any, trained: Rows) -> None:
        self.preprocessor_ = None if self._raw_inputs else TablePreprocessor().fit(take_rows(X, trained))

    def _features(self, X: Any) -> tuple[Any, Floats | None]:
        """Features for the network, and the matrix of numbers that they come from, for a base."""
        if self.preprocessor_ is None:
            return picture_tensor(X) if self._takes_pictures else as_tensors(X), None
        matrix = self.preprocessor_.matrix(X)
        return torch.from_numpy(self.preprocessor_.scaled(matrix)), matrix

    def _resolved_base(self, rows: int, base_prediction: ArrayLike | None) -> MakeBase | None:
        """The base to fit, if any. Methods that make new rows and own backbones have none by default."""
        unasked = isinstance(self.base, str) and self.base == "auto"
        resampling = get_method(self.method).parts.with_options(**(self.method_options or {})).resampling
        if base_prediction is not None:
            if not unasked and self.base is not None:
                raise ValueError(f"give base_prediction or base={self.base!r}, not both")
            if resampling is not None:
                raise ValueError(f"method {self.method!r} makes new rows, which have no base_prediction")
            return None
        if unasked and (self._raw_inputs or resampling is not None):
            return None
        make = resolve_base(self.base, rows)
        if make is not None and self._raw_inputs:
            raise ValueError(
                "a base takes tables, not pictures or what a backbone of your own takes: leave out base, or "
                "pass its predictions as base_prediction"
            )
        if make is not None and resampling is not None:
            raise ValueError(f"method {self.method!r} makes new rows, which have no base: pass base=None")
        return make

    def _fitted_base(
        self,
        make: MakeBase | None,
        matrix: Floats | None,
        labels: Floats,
        weight: Floats,
        groups: Rows | None,
        seed: int,
        folds: int = FOLDS,
    ) -> tuple[list[CrossFitted] | None, Floats | None]:
        """The base of each target, and out-of-fold predictions in the shape of the labels."""
        if make is None or matrix is None:
            return None, None
        if len(labels) < 2 or (groups is not None and groups.max() == 0):
            raise ValueError("a base needs more than one sample (equal rows count once): pass base=None")
        if ((matrix == matrix[0]) | (np.isnan(matrix) & np.isnan(matrix[0]))).all():
            return None, None  # CatBoost refuses a table without a column that varies
        columns = labels.reshape(len(labels), -1).T
        fold = deal_folds(columns[0], seed, folds)
        if groups is not None:
            fold = deal_group_folds(columns[0], groups, seed, min(FOLDS, int(groups.max()) + 1))
        fitted = [cross_fit(make, matrix, column, weight, fold, seed) for column in columns]
        offset = np.stack([held for _, held in fitted], axis=1).reshape(labels.shape)
        return [base for base, _ in fitted], offset

    def _offset(self, matrix: Floats | None, rows: int, base_prediction: ArrayLike | None) -> Floats | None:
        """Base predictions for new rows, if the model has a base. (N,) or (N, T)"""
        shape = (rows,) if self.n_targets_ == 1 else (rows, self.n_targets_)
        if self.base_given_:
            if base_prediction is None:
                raise ValueError("this model was fitted with base_prediction: pass it for these rows as well")
            return given_predictions(base_prediction, shape)
        if base_prediction is not None:
            raise ValueError("this model was fitted without base_prediction: leave it out")
        if self.base_ is None:
            return None
        assert matrix is not None
        return np.stack([base.predict(matrix) for base in self.base_], axis=1).reshape(shape)

    def _inputs(self, features: Any, offset: Floats | None) -> Any:
        """What the network takes: features, and for tables the standardised base prediction beside them."""
        if offset is None or self.preprocessor_ is None:
            return features
        columns = offset.reshape(len(offset), -1)
        standardized = [(columns[:, t] - b.location) / b.scale for t, b in enumerate(self._all_bins())]
        beside = torch.from_numpy(np.stack(standardized, axis=1)).to(features.dtype)
        return torch.cat([features, beside], dim=1)

    def _checked_eval_set(self, eval_set: Any, base_given: bool) -> tuple[Any, Floats]:
        """X and labels of an `eval_set`."""
        X, y = checked_eval_set(eval_set)
        if base_given:
            raise ValueError("eval_set cannot be used with base_prediction: leave one of them out")
        labels = self._labels(X, y)
        return self._validated(X, reset=False), labels

    @property
    def _has_offset(self) -> bool:
        return self.base_ is not None or self.base_given_
