"""Models for MLflow."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tailwise import TailRegressor
from tests.estimator.small_tables import quick
from tests.estimator.small_tables import table as numbers

mlflow = pytest.importorskip("mlflow")

from tailwise.serving import pyfunc  # noqa: E402


def as_floats(table: pd.DataFrame) -> pd.DataFrame:
    """Return a table as MLflow takes it: numbers as float64, categories as text."""
    return table.assign(
        whole=table["whole"].astype("float64"),
        flag=table["flag"].astype("float64"),
        kind=table["kind"].astype(object),
        word=table["word"].astype(object),
        hour=table["hour"].dt.tz_convert("UTC").dt.tz_localize(None),
    ).drop(columns="empty")


@pytest.mark.slow
def test_mlflow_takes_every_kind_of_column(
    model: TailRegressor, model_file: Path, table: pd.DataFrame, tmp_path: Path
) -> None:
    path = pyfunc.save_model(model_file, tmp_path / "mlflow")
    assert [f.name for f in (path / "data").iterdir()] == ["model.tailwise"]
    assert not [f for f in path.rglob("*") if f.suffix in (".pkl", ".pickle", ".joblib")]
    loaded = mlflow.pyfunc.load_model(str(path))
    params = {"coverage": 0.8, "emphasis": 1.0, "quantiles": [0.1, 0.9]}
    found = loaded.predict(as_floats(table), params=params)
    expected = model.predict_frame(table, 0.8, emphasis=1.0)
    pd.testing.assert_frame_equal(found[expected.columns], expected, rtol=1e-5)
    quantiles = model.predict_quantiles(table, [0.1, 0.9], emphasis=1.0)
    np.testing.assert_allclose(found[["quantile_0.1", "quantile_0.9"]], quantiles, rtol=1e-5)
    plain = loaded.predict(as_floats(table))
    pd.testing.assert_frame_equal(plain, model.predict_frame(table), rtol=1e-5)
    assert set(plain.columns) == set(loaded.metadata.signature.outputs.input_names())


def test_mlflow_predicts_what_the_model_does(tmp_path: Path) -> None:
    x, y = numbers(120)
    data = pd.DataFrame(x, columns=["a", "b", "c"])
    model = quick(epochs=1).fit(data, y)
    file = model.save(tmp_path / "m.tailwise")
    path = pyfunc.save_model(
        file, tmp_path / "mlflow"
    )  # first: it imports mlflow.pyfunc without its warnings
    loaded = mlflow.pyfunc.load_model(str(path))
    found = loaded.predict(data, params={"coverage": 0.8})
    pd.testing.assert_frame_equal(found, model.predict_frame(data, 0.8))
    with pytest.raises(mlflow.exceptions.MlflowException, match="missing inputs"):
        loaded.predict(data[["a", "b"]])


def test_the_signature_of_several_targets_and_of_arrays() -> None:
    x, y = numbers(120)
    data = pd.DataFrame(x, columns=["a", "b", "c"])
    both = quick(epochs=1).fit(data, pd.DataFrame({"u": y, "v": -y}))
    names = pyfunc.signature(both).outputs.input_names()
    assert "upper_u" in names and "region_v" in names
    found = pyfunc.Predictor(both).predict(data, {"quantiles": [0.5]})
    np.testing.assert_allclose(found["quantile_0.5_v"], both.predict_quantiles(data, 0.5)[:, 1, 0])
    with pytest.raises(ValueError, match="MLflow needs column names"):
        pyfunc.signature(quick(epochs=1).fit(x, y))
