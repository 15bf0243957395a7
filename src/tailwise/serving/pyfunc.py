"""Models for MLflow: the model file as it is, with a signature, loaded by this module. Nothing is pickled.

MLflow calls `_load_pyfunc`. Numbers must be float64, because MLflow refuses to turn integers into them.
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tailwise._version import __version__
from tailwise.serving.columns import COVERAGE, Columns

if TYPE_CHECKING:
    import pandas as pd

    from tailwise.estimator import TailRegressor

__all__ = ["log_model", "save_model", "signature"]


def save_model(model_file: str | Path, path: str | Path) -> Path:
    """Write a model file as an MLflow model to a new folder and return it.

    ``mlflow.pyfunc.load_model(path).predict(table, params={"coverage": 0.8})`` returns the table of
    `TailRegressor.predict_frame`, and a column for each level of the parameter ``quantiles``.
    """
    _call("save_model", model_file, path=str(path))
    return Path(path)


def log_model(model_file: str | Path, name: str = "model", **options: Any) -> Any:
    """Log a model file to the active MLflow run; options are those of `mlflow.pyfunc.log_model`."""
    return _call("log_model", model_file, name=name, **options)


def _call(function: str, model_file: str | Path, **options: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # MLflow's advice to give an example for a signature
        try:
            import mlflow.pyfunc
        except ImportError:
            raise ImportError("mlflow is not installed: pip install 'tailwise[mlflow]'") from None

        return getattr(mlflow.pyfunc, function)(
            **options,
            loader_module=__name__,
            data_path=str(model_file),
            signature=signature(_load_pyfunc(str(model_file)).model),
            pip_requirements=[f"tailwise=={__version__}"],
        )


def signature(model: TailRegressor) -> Any:
    """Return the MLflow signature of a model: its columns, its predictions and its parameters."""
    from mlflow.models import ModelSignature
    from mlflow.types import ColSpec, DataType, ParamSchema, ParamSpec, Schema

    columns = Columns.of(model)
    if not columns.named:
        raise ValueError("MLflow needs column names: fit the model on a DataFrame")
    inputs: list[Any] = []
    for column in columns.all:
        kind = DataType.string if column.kind in ("date", "text") else DataType.double
        if column.kind == "date" and column.date_format == "ISO8601":
            kind = DataType.datetime
        inputs.append(ColSpec(kind, column.name, required=column.kind != "unused"))
    frame = model.predict_frame(columns.table([columns.example_cells]))
    outputs: list[Any] = [
        ColSpec(DataType.double if cells.dtype.kind == "f" else DataType.string, str(name))
        for name, cells in frame.items()
    ]
    params = [
        ParamSpec("coverage", DataType.double, COVERAGE),
        ParamSpec("rare", DataType.double, None),
        ParamSpec("emphasis", DataType.double, None),
        ParamSpec("quantiles", DataType.double, [], shape=(-1,)),
    ]
    return ModelSignature(Schema(inputs), Schema(outputs), ParamSchema(params))


class Predictor:
    """A model as MLflow calls it."""

    def __init__(self, model: TailRegressor) -> None:
        self.model = model
        self._names = [column.name for column in Columns.of(model).all]

    def predict(self, table: pd.DataFrame, params: dict[str, Any] | None = None) -> pd.DataFrame:
        """Return the predictions of each row; `params` may have coverage, rare, emphasis and quantiles."""
        asked = {"coverage": COVERAGE, "rare": None, "emphasis": None, "quantiles": (), **(params or {})}
        table, levels = table.reindex(columns=self._names), list(asked.pop("quantiles"))
        frame = self.model.predict_frame(table, **asked)
        if levels:
            values = self.model.predict_quantiles(table, levels, emphasis=asked["emphasis"])
            for t, part in enumerate(values.reshape(len(table), -1, len(levels)).swapaxes(0, 1)):
                suffix = f"_{self.model.model_.target_name(t)}" if self.model.model_.several else ""
                frame[[f"quantile_{level:g}{suffix}" for level in levels]] = part
        return frame


def _load_pyfunc(data_path: str) -> Predictor:
    from tailwise.estimator import TailRegressor

    return Predictor(TailRegressor.load(data_path))
