"""Models for MLflow: the model file as it is, with a signature, loaded by this module. Nothing is pickled.

MLflow calls `_load_pyfunc`. Numbers must be float64, because MLflow refuses to turn integers into them.
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tailwise._version import __version__
from tailwise.serving.columns import Columns
from tailwise.serving.installation import require

if TYPE_CHECKING:
    import pandas as pd

    from tailwise.estimator import TailRegressor

__all__ = ["log_model", "save_model", "signature"]


COVERAGE = 0.9
FIGURES = ("prediction", "std", "lower", "upper", "aleatoric_std", "epistemic_std")
"""Numbers of each prediction; the columns of `TailRegressor.predict_frame` without the region."""


def save_model(model_file: str | Path, path: str | Path) -> Path:
    """Write a model file as an MLflow model to a new folder and return it.

    ``mlflow.pyfunc.load_model(path).predict(table, params={"coverage": 0.8})`` returns the table of
    `TailRegressor.predict_frame`, and a column for each level of the parameter ``quantiles``.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # MLflow's advice to give an example for a signature
        import_mlflow().pyfunc.save_model(str(path), **_contents(Path(model_file)))
    return Path(path)


def log_model(model_file: str | Path, name: str = "model", **options: Any) -> Any:
    """Log a model file to the active MLflow run; options are those of `mlflow.pyfunc.log_model`."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return import_mlflow().pyfunc.log_model(name=name, **_contents(Path(model_file)), **options)


def import_mlflow() -> Any:
    """Return MLflow; if it is missing, the error says how to install it."""
    require("mlflow", "mlflow")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of MLflow about its own types
        import mlflow
        import mlflow.pyfunc

    return mlflow


def _contents(model_file: Path) -> dict[str, Any]:
    return {
        "loader_module": __name__,
        "data_path": str(model_file),
        "signature": signature(_load_pyfunc(str(model_file)).model),
        "pip_requirements": [f"tailwise=={__version__}"],
    }


def signature(model: TailRegressor) -> Any:
    """Return the MLflow signature of a model: its columns, its predictions and its parameters."""
    import_mlflow()
    from mlflow.models import ModelSignature
    from mlflow.types import ColSpec, DataType, ParamSchema, ParamSpec, Schema

    columns = Columns.of(model)
    if not columns.named:
        raise ValueError("MLflow needs column names: fit the model on a DataFrame")
    inputs: list[Any] = []
    for column in columns.all:
        kind = DataType.string if column.kind in ("date", "text") else DataType.double
        if column.kind == "date" and column.date_format is None:
            kind = DataType.datetime
        inputs.append(ColSpec(kind, column.name, required=column.kind != "unused"))
    outputs: list[Any] = []
    for suffix in _suffixes(model):
        outputs += [ColSpec(DataType.double, figure + suffix) for figure in FIGURES]
        outputs.append(ColSpec(DataType.string, f"region{suffix}"))
    params = [
        ParamSpec("coverage", DataType.double, COVERAGE),
        ParamSpec("rare", DataType.double, None),
        ParamSpec("emphasis", DataType.double, None),
        ParamSpec("quantiles", DataType.double, [], shape=(-1,)),
    ]
    return ModelSignature(Schema(inputs), Schema(outputs), ParamSchema(params))


def _suffixes(model: TailRegressor) -> list[str]:
    """Return what the columns of each target end in, as `predict_frame` names them."""
    return [
        f"_{model.model_.target_name(t)}" if model.model_.several else "" for t in range(model.n_targets_)
    ]


class Predictor:
    """A model as MLflow calls it."""

    def __init__(self, model: TailRegressor) -> None:
        self.model = model
        self._names = [column.name for column in Columns.of(model).all]

    def predict(self, table: pd.DataFrame, params: dict[str, Any] | None = None) -> pd.DataFrame:
        """Return the predictions of each row; `params` may have coverage, rare, emphasis and quantiles."""
        params = params or {}
        emphasis, levels = params.get("emphasis"), list(params.get("quantiles") or [])
        table = table.reindex(columns=self._names)
        coverage, rare = float(params.get("coverage", COVERAGE)), params.get("rare")
        frame = self.model.predict_frame(table, coverage, rare=rare, emphasis=emphasis)
        if levels:
            values = self.model.predict_quantiles(table, levels, emphasis=emphasis)
            values = values.reshape(len(table), -1, len(levels))
            for t, suffix in enumerate(_suffixes(self.model)):
                for k, level in enumerate(levels):
                    frame[f"quantile_{level:g}{suffix}"] = values[:, t, k]
        return frame


def _load_pyfunc(data_path: str) -> Predictor:
    from tailwise.estimator import TailRegressor

    return Predictor(TailRegressor.load(data_path))
