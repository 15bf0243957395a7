"""A fitted `TailRegressor` as a file: pickle, our own format, and ONNX."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, cast

from sklearn.utils.validation import check_is_fitted
from torch import nn

from tailwise.estimator.parameters import DEFAULT_BACKBONE
from tailwise.estimator.streaming import Streaming

if TYPE_CHECKING:
    from tailwise.estimator.regressor import TailRegressor


class ModelFiles(Streaming):
    """Methods that write and read files."""

    def __getstate__(self) -> Any:
        """For pickle and joblib: weights as on a CPU, so that a machine without a GPU can read them."""
        state = super().__getstate__()
        networks = state.get("networks_")
        if networks is None or all(network.device.type == "cpu" for network in networks):
            return state
        return {**state, "networks_": [copy.deepcopy(network).to("cpu") for network in networks]}

    def save(
        self, path: str | Path, *, overwrite: bool = False, key: bytes | str | Path | None = None
    ) -> Path:
        """Write the fitted model to one file, without pickle, and return its path; see `load`.

        A file that exists is an error unless `overwrite`. Of a backbone of your own only the weights
        are written. With `key`, a secret or the name of a file that holds it, the file is signed.
        """
        from tailwise.estimator.saving import save

        check_is_fitted(self, "networks_")
        return save(
            cast("TailRegressor", self), path, default_backbone=DEFAULT_BACKBONE, overwrite=overwrite, key=key
        )

    @classmethod
    def load(
        cls,
        path: str | Path,
        *,
        backbone: nn.Module | Callable[[], nn.Module] | None = None,
        key: bytes | str | Path | None = None,
    ) -> Self:
        """Read a model written by `save`; predictions are the same to the last bit on one machine.

        A `backbone` of your own must be given again. Nothing in the file is run, and one that is
        damaged, changed or of another kind is an error that says so. With `key`, a file that was not
        signed with it is an error too.
        """
        from tailwise.estimator.loading import load

        return load(path, into=cls, backbone=backbone, key=key)

    def export_onnx(
        self,
        path: str | Path,
        *,
        quantiles: Sequence[float] = (0.05, 0.5, 0.95),
        coverage: float | None = 0.9,
        emphasis: float | None = None,
        label_prior: Any = None,
        raw_columns: bool = False,
    ) -> Path:
        """Write the model as ONNX and return the path. Outputs: prediction, std, quantiles, lower, upper.

        The file contains the base, the networks, the calibration, the intervals and the dial at one
        `emphasis` or `label_prior`, by default ``emphasis_``. The input ``x`` is ``preprocessor_.matrix(X)``:
        float64, NaN where missing. No `quantiles`, or a `coverage` of None, leaves those outputs out. A base
        other than CatBoost, LightGBM or HistGradientBoostingRegressor is an error. With `raw_columns` the
        inputs are the columns of the table: numbers, categories, text, dates and durations, encoded in the
        file; see `tailwise.estimator.onnx.export_onnx`.
        """
        from tailwise.estimator.onnx import export_onnx

        check_is_fitted(self, "networks_")
        return export_onnx(
            self,
            path,
            quantiles=quantiles,
            coverage=coverage,
            emphasis=emphasis,
            label_prior=label_prior,
            raw_columns=raw_columns,
        )
