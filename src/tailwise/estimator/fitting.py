"""How `TailRegressor` is fitted, step by step, and what its networks predict for new rows."""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from numbers import Real
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_consistent_length, check_is_fitted
from torch import Tensor, nn

from tailwise.core.distributions import Distribution, concatenate
from tailwise.core.labels import LabelBins
from tailwise.core.lookup import check_name, nearest
from tailwise.core.support import LabelSupport
from tailwise.core.truncation import Bounds, bounds_of
from tailwise.data.inputs import as_tensors, row_count, take_rows
from tailwise.data.splits import halves
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
from tailwise.estimator.holdout import MIN_HOLDOUT, deal_group_folds
from tailwise.estimator.parameters import DEFAULT_BACKBONE, table_config
from tailwise.estimator.picture_inputs import as_pictures, augmentation, picture_config, picture_tensor
from tailwise.learning.config import TrainConfig
from tailwise.learning.loop import FitResult, TensorData, fit, predict
from tailwise.learning.progress import visible
from tailwise.methods import build_model, get_method
from tailwise.networks.backbones import BACKBONES, IMAGE_BACKBONES, make_backbone, make_image_backbone
from tailwise.networks.heads import HEADS
from tailwise.networks.trainable import Trainable
from tailwise.resampling.smogn import resampled
from tailwise.uncertainty.calibrator import Calibrator, Predicted, Raw, fit_calibrator
from tailwise.uncertainty.column_groups import MAX_GROUPS, ColumnGroups

logger = logging.getLogger(__name__)

Floats = NDArray[np.float64]
Rows = NDArray[np.int64]
BackboneChoice = str | nn.Module | Callable[[], nn.Module]

BATCH = 8192
"""Rows that are predicted at a time, which bounds the memory."""


class FitRows(NamedTuple):
    """Rows on their way to a network."""

    features: Any
    labels: Floats  # (N,) or (N, T)
    weight: Floats  # (N,)
    offset: Floats | None  # base predictions, in the shape of the labels
    groups: Rows | None = None  # codes in the column that intervals go by, (N,)

    def rows(self, rows: Rows) -> FitRows:
        offset = None if self.offset is None else self.offset[rows]
        groups = None if self.groups is None else self.groups[rows]
        return FitRows(take_rows(self.features, rows), self.labels[rows], self.weight[rows], offset, groups)

    def tensors(self, *, weighted: bool = True) -> TensorData:
        """As the training loop takes them; weights have a mean of 1."""
        weight = None
        if weighted and not (self.weight == self.weight[0]).all():
            weight = torch.from_numpy(self.weight / self.weight.mean()).float()
        offset = None if self.offset is None else torch.tensor(self.offset)
        # A copy: the labels may be read-only.
        return TensorData(self.features, torch.tensor(self.labels), weight, offset=offset)


def _numbered(path: Path, k: int) -> Path:
    return path if k == 0 else path.with_name(f"{path.name}.{k}")


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


class Fitting(BaseEstimator):  # type: ignore[misc,unused-ignore]
    """The steps of `TailRegressor.fit` and of its predictions, in their order."""

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

    def _check_parameters(self) -> None:
        """Raise an error for parameters that name nothing or contradict one another."""
        get_method(self.method).parts.with_options(**(self.method_options or {}))
        if self.conformal not in ("global", "region", None):
            hint = nearest(str(self.conformal), ("global", "region"))
            raise ValueError(f"unknown conformal {self.conformal!r}{hint}, or None")
        if self.conformal_by is not None and self.conformal is None:
            raise ValueError("conformal_by needs conformal intervals: leave out conformal=None")
        if self.conformal_by is not None and self._raw_inputs:
            raise ValueError("conformal_by names a column of a table: leave it out for other inputs")
        if self.few > self.many:
            raise ValueError(f"few={self.few} must not exceed many={self.many}")
        self._train_config(1, 0)  # raises an error for an unknown monitor
        if isinstance(self.backbone, str) and self.backbone != "auto":
            check_name("backbone", self.backbone, [*BACKBONES, *IMAGE_BACKBONES])
        augmentation(self.augment)  # raises an error for an unknown name
        if self.feature_dim is not None and isinstance(self.backbone, str):
            raise ValueError(
                f"feature_dim is for a backbone of your own; {self.backbone!r} has its own: leave it out"
            )

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
            raise ValueError(f"y has {targets} targets, but there were {self.n_targets_} at fit")
        return labels

    def _label_bounds(self, labels: Floats, where: str = "y") -> list[Bounds | None]:
        """Bounds of each target; a label beyond them is an error."""
        columns, given = labels.reshape(len(labels), -1).T, self.bounds
        pair = isinstance(given, list | tuple) and all(e is None or isinstance(e, Real) for e in given)
        if len(columns) > 1 and isinstance(given, list | tuple) and not pair:
            if len(given) != len(columns):
                raise ValueError(f"bounds has {len(given)} entries for {len(columns)} targets")
            each = [bounds_of(own, column) for own, column in zip(given, columns, strict=True)]
        else:
            each = [bounds_of(given, column) for column in columns]
        for bounds, column in zip(each, columns, strict=True):
            if bounds is not None:
                bounds.check(column, where)
        return each

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
        check_name(f"column of {what}", given, [str(name) for name in X.columns])
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

    def _label_bins(self, labels: Floats, weight: Floats) -> LabelBins | list[LabelBins]:
        given: dict[str, Any] = {}
        if self.bins is not None:
            given = {"count" if np.ndim(self.bins) == 0 else "edges": self.bins}
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

    def _fitted_base(
        self,
        make: MakeBase | None,
        matrix: Floats | None,
        labels: Floats,
        weight: Floats,
        groups: Rows | None,
        seed: int,
    ) -> tuple[list[CrossFitted] | None, Floats | None]:
        """The base of each target, and out-of-fold predictions in the shape of the labels."""
        if make is None or matrix is None:
            return None, None
        if len(labels) < 2 or (groups is not None and groups.max() == 0):
            raise ValueError("a base needs more than one sample (equal rows count once): pass base=None")
        if ((matrix == matrix[0]) | (np.isnan(matrix) & np.isnan(matrix[0]))).all():
            return None, None  # CatBoost refuses a table without a column that varies
        columns = labels.reshape(len(labels), -1).T
        fold = deal_folds(columns[0], seed)
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

    def _watched(self, X: Any, labels: Floats) -> FitRows:
        """Rows to stop and calibrate by."""
        features, matrix = self._features(X)
        offset = self._offset(matrix, len(labels), None)
        return FitRows(features, labels, np.ones(len(labels)), offset, self._interval_groups(X))

    def _build(self, inputs: Any, trained: Rows) -> Trainable:
        if isinstance(self.backbone, str) and self._takes_pictures:
            network: nn.Module = make_image_backbone(self.backbone)
        elif isinstance(self.backbone, str):
            name = DEFAULT_BACKBONE if self.backbone == "auto" else self.backbone
            network = make_backbone(name, inputs.shape[1], rows=take_rows(inputs, trained))
        else:
            made = self.backbone if isinstance(self.backbone, nn.Module) else self.backbone()
            if not isinstance(made, nn.Module):
                raise TypeError(f"backbone gives {type(made).__name__}: it must be or make a torch module")
            # A module given as a parameter is never trained itself, so that fitting twice gives the same.
            network = copy.deepcopy(made)
        dim = self.feature_dim or getattr(network, "feature_dim", None)
        if dim is None:
            raise ValueError("give feature_dim, the number of features that the backbone yields")
        options = self.method_options or {}
        return build_model(self.method, network, int(dim), self.bins_, offset=self._has_offset, **options)

    @property
    def _has_offset(self) -> bool:
        return self.base_ is not None or self.base_given_

    def _train(
        self,
        data: FitRows,
        parts: Sequence[tuple[Rows, Rows]],
        watched: FitRows | None,
        trained: Rows,
        seed: int,
        checkpoint: str | Path | None,
        start: Sequence[Trainable] | None = None,
    ) -> tuple[Distribution, FitRows, Rows, Rows]:
        """Train a network for each part; return predictions for held-out rows, those rows, and which of
        them may choose (`select`) and which nothing has used so far (`confirm`)."""
        inputs = self._inputs(data.features, data.offset)
        data = data._replace(features=inputs)
        if watched is not None:
            watched = watched._replace(features=self._inputs(watched.features, watched.offset))
        self.networks_, self.histories_ = [], []
        held, predictions = [], []
        change = augmentation(self.augment) if self._takes_pictures else None
        with torch.random.fork_rng(devices=[]), visible() if self.verbose else nullcontext():
            for k, (train, rest) in enumerate(parts):
                valid = watched if watched is not None else data.rows(rest)
                select, confirm = np.arange(len(valid.labels)), np.arange(len(valid.labels))
                if len(parts) == 1:
                    select, confirm = halves(len(valid.labels), seed, 4 * MIN_HOLDOUT)
                if self.verbose and len(parts) > 1:
                    logger.info("network %d of %d", k + 1, len(parts))
                torch.manual_seed(seed + k)
                if start is None:
                    network = self._build(inputs, trained)
                else:
                    network = copy.deepcopy(start[k % len(start)])
                path = None if checkpoint is None else _numbered(Path(checkpoint), k)
                self.histories_.append(
                    fit(
                        network,
                        replace(self._resampled(network, data.rows(train), seed).tensors(), transform=change),
                        valid.rows(select).tensors(weighted=False),
                        self._train_config(len(train), seed + k),
                        checkpoint=path,
                        progress=None if self.verbose else False,
                    )
                )
                self.networks_.append(network)
                held.append(valid)
                predictions.append(self._network_prediction(network, valid.features, valid.offset))
        self.held_out_ = watched is not None or parts[0][0] is not parts[0][1]
        self.unseen_ = self.held_out_ and len(parts) == 1 and len(confirm) < len(held[0].labels)
        if len(parts) > 1:
            rows = np.concatenate([rest for _, rest in parts])
            select = confirm = np.arange(len(rows))
            return concatenate(predictions), data.rows(rows), select, confirm
        return predictions[0], held[0], select, confirm

    def _resampled(self, network: Trainable, data: FitRows, seed: int) -> FitRows:
        """Training rows, resampled if the method asks for it."""
        name = network.method.resampling
        if name is None:
            return data
        if self._raw_inputs or data.labels.ndim == 2:
            raise ValueError(
                f"method {self.method!r} makes new rows between those of a table, for one target: "
                "choose another one for pictures, a backbone of your own or several targets"
            )
        x, y = resampled(name, data.features, data.labels, data.weight, seed)
        return FitRows(x, y, np.ones(len(y)), None)

    def _train_config(self, rows: int, seed: int) -> TrainConfig:
        """How to train on that many rows, where the parameters leave it open."""
        cpu = self.device == "auto" and not torch.cuda.is_available()
        cuda = self.device in ("auto", "gpu", "cuda") and torch.cuda.is_available()
        settings = picture_config(rows, cuda) if self._takes_pictures else table_config(rows)
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

    @property
    def _scalable(self) -> bool:
        return HEADS[self.networks_[0].method.head].scalable

    def _calibrate(
        self,
        raw: Distribution,
        held: FitRows,
        select: Rows,
        confirm: Rows,
        bounds: Sequence[Bounds | None],
        supports: Sequence[LabelSupport | None],
    ) -> None:
        """Fit scaling, emphasis and intervals of each target on held-out rows."""
        self.calibrators_ = []
        for t, bins in enumerate(self._all_bins()):
            several = held.labels.ndim == 2
            fitted = fit_calibrator(
                raw[:, t] if several else raw,
                held.labels[:, t] if several else held.labels,
                bins,
                select,
                confirm,
                base=None if held.offset is None else held.offset.reshape(len(held.labels), -1)[:, t],
                calibrate=self.calibrate if self._scalable else False,
                conformal=self.conformal,
                emphasis=self.emphasis,
                bounds=bounds[t],
                many=self.many,
                few=self.few,
                held_out=self.held_out_,
                votes=len(self.networks_) > 1,
                column=self.conformal_groups_,
                column_codes=held.groups,
            )
            self.calibrators_.append(replace(fitted, support=supports[t]))

    # -- predict -------------------------------------------------------------------------------

    def _network_prediction(self, network: Trainable, x: Any, offset: Floats | None) -> Distribution:
        """One network's predictions before calibration, in batches of bounded memory.

        A model predicts in the same place wherever it was trained, so that its numbers are the same.
        """
        around = None if offset is None else torch.from_numpy(offset)
        if self._raw_inputs:
            return predict(network.to(self._predicting_device()), x, BATCH, offset=around)
        # In float64 a row's prediction does not depend on the rows beside it; float32 products round
        # differently for each batch size.
        exact = copy.deepcopy(network.to("cpu")).double()
        return predict(exact, x.double(), BATCH, offset=around)

    def _predicting_device(self) -> torch.device:
        """Where a backbone of the user's own predicts: where it trains, or the CPU without that device."""
        there = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
        wanted = {"auto": ("cuda",), "gpu": ("cuda", "mps")}.get(self.device, (self.device,))
        return torch.device(next((name for name in wanted if there.get(name)), "cpu"))

    def predictions(
        self,
        X: Any,
        emphasis: float | None = None,
        label_prior: Any = None,
        base_prediction: ArrayLike | None = None,
    ) -> list[Predicted]:
        """Return calibrated predictions of each target, with their intervals at any coverage."""
        check_is_fitted(self, "networks_")
        calibrators = self.calibrators_at(emphasis, label_prior)
        each = self.raw_predictions(X, base_prediction)
        return [c.predicted(raw) for raw, c in zip(each, calibrators, strict=True)]

    def raw_predictions(self, X: Any, base_prediction: ArrayLike | None = None) -> list[Raw]:
        """Return what the networks predict for each target, before calibration. (N,) each"""
        X = self._validated(X, reset=False)
        features, matrix = self._features(X)
        offset = self._offset(matrix, row_count(X), base_prediction)
        return self._raw(features, offset, self._interval_groups(X))

    def encoded(self, X: Any) -> Floats:
        """Return the rows of a table as numbers, which `raw_of_encoded` takes. (N, F)"""
        check_is_fitted(self, "networks_")
        if self.preprocessor_ is None:
            raise ValueError("this model takes no tables: its inputs have no columns")
        return self.preprocessor_.matrix(self._validated(X, reset=False))

    def raw_of_encoded(self, matrix: Floats) -> list[Raw]:
        """Return what `raw_predictions` returns, for rows that are encoded already. (N, F) -> (N,) each

        The values of the column of `conformal_by` are not known here: intervals have the overall limits.
        """
        assert self.preprocessor_ is not None
        features = torch.from_numpy(self.preprocessor_.scaled(matrix))
        return self._raw(features, self._offset(matrix, len(matrix), None))

    def _raw(self, features: Any, offset: Floats | None, groups: Rows | None = None) -> list[Raw]:
        x = self._inputs(features, offset)
        each = [self._network_prediction(network, x, offset) for network in self.networks_]
        if self.n_targets_ == 1:
            return [Raw.of(each, groups)]
        return [Raw.of([own[:, t] for own in each], groups) for t in range(self.n_targets_)]

    def calibrators_at(self, emphasis: float | None, label_prior: Any) -> list[Calibrator]:
        """Return the calibrator of each target under the label prior asked for."""
        priors = [label_prior] if self.n_targets_ == 1 else label_prior
        if priors is None:
            priors = [None] * self.n_targets_
        if not isinstance(priors, list | tuple) or len(priors) != self.n_targets_:
            raise ValueError(f"label_prior must be a list with one for each of the {self.n_targets_} targets")
        return [c.at(emphasis, prior) for c, prior in zip(self.calibrators_, priors, strict=True)]

    def _joined(self, columns: Sequence[Tensor]) -> Floats:
        arrays = [np.asarray(column.numpy(), np.float64) for column in columns]
        return arrays[0] if self.n_targets_ == 1 else np.stack(arrays, axis=1)
