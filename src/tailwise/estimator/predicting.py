"""What the networks of a fitted `TailRegressor` predict for new rows."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from tailwise.core.distributions import Distribution
from tailwise.data.inputs import row_count
from tailwise.estimator.preparing import Floats, Preparing, Rows
from tailwise.learning.loop import predict
from tailwise.networks.trainable import Trainable
from tailwise.uncertainty.calibrator import Calibrator, Predicted, Raw

BATCH = 8192
"""Pictures and other tensors that are predicted at a time, which bounds the memory."""
TABLE_BATCH = 1024
"""Rows of a table that are predicted at a time: so many stay in the processor's cache."""


class Predicting(Preparing):
    """Predictions before and after calibration."""

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
        return predict(exact, x.double(), TABLE_BATCH, offset=around)

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

    def _checked_rows(self, X: Any) -> Any:
        X = self._validated(X, reset=False)
        if row_count(X) == 0:
            raise ValueError("no rows to predict")
        return X

    def raw_predictions(self, X: Any, base_prediction: ArrayLike | None = None) -> list[Raw]:
        """Return what the networks predict for each target, before calibration. (N,) each"""
        X = self._checked_rows(X)
        features, matrix = self._features(X)
        offset = self._offset(matrix, row_count(X), base_prediction)
        return self._raw(features, offset, self._interval_groups(X))

    def encoded(self, X: Any) -> Floats:
        """Return the rows of a table as numbers, which `raw_of_encoded` takes. (N, F)

        With `conformal_by`, the last number of a row is the code of its group.
        """
        check_is_fitted(self, "networks_")
        if self.preprocessor_ is None:
            raise ValueError("this model takes no tables: its inputs have no columns")
        X = self._checked_rows(X)
        matrix, groups = self.preprocessor_.matrix(X), self._interval_groups(X)
        return matrix if groups is None else np.column_stack([matrix, groups])

    @property
    def encoded_places(self) -> dict[str, list[int]]:
        """The places in `encoded` of each column of the table."""
        assert self.preprocessor_ is not None
        places = self.preprocessor_.places
        if self.conformal_groups_ is not None:
            column = self.conformal_groups_.column
            name = column if isinstance(column, str) else list(places)[column]
            places[name].append(len(self.preprocessor_.numeric.center))
        return places

    def raw_of_encoded(self, matrix: Floats) -> list[Raw]:
        """Return what `raw_predictions` returns, for rows that are encoded already. (N, F) -> (N,) each"""
        assert self.preprocessor_ is not None
        groups = None
        if self.conformal_groups_ is not None:
            matrix, groups = np.ascontiguousarray(matrix[:, :-1]), matrix[:, -1].astype(np.int64)
        features = torch.from_numpy(self.preprocessor_.scaled(matrix))
        return self._raw(features, self._offset(matrix, len(matrix), None), groups)

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
