"""Models for MLflow: the model file as it is, with a signature, loaded by this module. Nothing is pickled.

MLflow calls `_load_pyfunc`. Numbers must be float64, because MLflow refuses to turn integers into them.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tailwise.serving.batches_of_requests import COVERAGE, FIGURES
from tailwise.serving.installation import require
from tailwise.serving.row_schema import RowSchema

if TYPE_CHECKING:
    import pandas as pd

    from tailwise.estimator import TailRegressor

__all__ = ["log_model", "save_model", "signature"]


def save_model(model_file: str | Path, path: str | Path) -> Path:
    """Write a model file as an MLflow model to a new folder and return it.

    ``mlflow.pyfunc.load_model(path).predict(table, params={"coverage": 0.8})`` returns the table of
    `TailRegressor.predict_frame`, and a column for each level of the parameter ``quantiles``.
    """
    with _quietly():
        import_mlflow().pyfunc.save_model(str(path), **_contents(Path(model_file)))
    return Path(path)


def log_model(model_file: str | Path, name: str = "model", **options: Any) -> Any:
    """Log a model file to the active MLflow run; options are those of `mlflow.pyfunc.log_model`."""
    with _quietly():
        return import_mlflow().pyfunc.log_model(name=name, **_contents(Path(model_file)), **options)


@contextmanager
def _quietly() -> Iterator[None]:
    """Hide what MLflow says about its own types, and its advice to give an example for a signature."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        yield


def import_mlflow() -> Any:
    """Return MLflow; if it is missing, the error says how to install it."""
    require("mlflow", "mlflow")
    with _quietly():
        import mlflow
        import mlflow.pyfunc

    return mlflow


def _contents(model_file: Path) -> dict[str, Any]:
    from tailwise._version import __version__
    from tailwise.estimator import TailRegressor

    model = TailRegressor.load(model_file)
    return {
        "loader_module": __name__,
        "data_path": str(model_file),
        "signature": signature(model),
        "pip_requirements": [f"tailwise=={__version__}"],
    }


def signature(model: TailRegressor) -> Any:
    """Return the MLflow signature of a model: its columns, its predictions and its parameters."""
    import_mlflow()
    from mlflow.models import ModelSignature
    from mlflow.types import ColSpec, DataType, ParamSchema, ParamSpec, Schema

    def kind(column: Any) -> Any:
        if column.kind == "date" and column.date_format is None:
            return DataType.datetime
        return DataType.string if column.kind in ("date", "text") else DataType.double

    rows = RowSchema.of(model)
    if not rows.named:
        raise ValueError("MLflow needs column names: fit the model on a DataFrame")
    inputs: list[Any] = [ColSpec(kind(c), c.name, required=c.kind != "unused") for c in rows.columns]
    names = _target_suffixes(model)
    outputs: list[Any] = [
        ColSpec(DataType.string if figure == "region" else DataType.double, figure + suffix)
        for suffix in names
        for figure in (*FIGURES, "region")
    ]
    params = [
        ParamSpec("coverage", DataType.double, COVERAGE),
        ParamSpec("emphasis", DataType.double, None),
        ParamSpec("quantiles", DataType.double, [], shape=(-1,)),
    ]
    return ModelSignature(Schema(inputs), Schema(outputs), ParamSchema(params))


def _target_suffixes(model: TailRegressor) -> list[str]:
    """Return what the columns of each target end in, as `predict_frame` names them."""
    if model.n_targets_ == 1:
        return [""]
    return [f"_{name}" for name in model.target_names_ or range(model.n_targets_)]


class Predictor:
    """A model as MLflow calls it."""

    def __init__(self, model: TailRegressor) -> None:
        self._model = model
        self._columns = RowSchema.of(model).columns

    def predict(self, table: pd.DataFrame, params: dict[str, Any] | None = None) -> pd.DataFrame:
        """Return the predictions of each row; `params` may have coverage, emphasis and quantiles."""
        asked = params or {}
        emphasis, levels = asked.get("emphasis"), list(asked.get("quantiles") or [])
        table = table.reindex(columns=[column.name for column in self._columns])
        found = self._model.predict_frame(table, float(asked.get("coverage", COVERAGE)), emphasis=emphasis)
        if levels:
            values = self._model.predict_quantiles(table, levels, emphasis=emphasis)
            values = values.reshape(len(table), -1, len(levels))
            for t, suffix in enumerate(_target_suffixes(self._model)):
                for k, level in enumerate(levels):
                    found[f"quantile_{level:g}{suffix}"] = values[:, t, k]
        return found


def _load_pyfunc(data_path: str) -> Predictor:
    from tailwise.estimator import TailRegressor

    return Predictor(TailRegressor.load(data_path))
