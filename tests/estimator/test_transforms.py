"""Models that are fitted to transformed labels."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.preprocessing import FunctionTransformer

from tailwise import TailRegressor
from tailwise.distributions.transform import Identity, Log, Tabulated, YeoJohnson

RNG = np.random.default_rng(0)
X = RNG.normal(size=(160, 3))
Y = np.where(RNG.random(160) < 0.2, 0.0, 100 * np.exp(1.5 * X[:, 0] + 0.3 * RNG.normal(size=160)))
SQRT = FunctionTransformer(np.sqrt, np.square)
KINDS: dict[str, Any] = {"log": Log, "yeo-johnson": YeoJohnson, "own": Tabulated}


def small(**settings: Any) -> TailRegressor:
    trees = HistGradientBoostingRegressor(max_iter=10)
    return TailRegressor(**{"base": trees, "epochs": 1, "folds": 2, "random_state": 0, **settings})


def transform_of(model: TailRegressor) -> Any:
    return model.model_.targets[0].labels.transform


@pytest.fixture(scope="module", params=KINDS)
def model(request: pytest.FixtureRequest) -> TailRegressor:
    asked = SQRT if request.param == "own" else request.param
    fitted = small(target_transform=asked, bounds=(0, None)).fit(X, Y)
    assert isinstance(transform_of(fitted), KINDS[request.param])
    return fitted


def test_everything_is_in_label_units(model: TailRegressor) -> None:
    frame = model.predict_frame(X, emphasis=0.5)
    assert np.isfinite(frame.drop(columns="region").to_numpy(np.float64)).all()
    assert (frame["lower"] >= 0).all() and (frame["lower"] <= frame["upper"]).all()
    assert Y.max() / 10 < frame["upper"].max()
    quantiles = model.predict_quantiles(X, [0.1, 0.5, 0.9])
    assert (np.diff(quantiles, axis=1) >= 0).all()
    distribution: Any = model.predict_distribution(X)
    assert np.array_equal(model.predict(X), distribution.median.numpy())
    assert np.isfinite(distribution.crps(Y).numpy()).all()
    assert model.base_ is not None and model.bins_.edges[0] >= 0
    assert set(model.score_by_region(X, Y)["region"]) == {"all", "many", "medium", "few"}
    assert model.predict(X, label_prior=Y[Y > 50]).mean() > model.predict(X, emphasis=0.0).mean()


def test_intervals_of_logarithms_do_not_reach_below_0() -> None:
    model = small(target_transform="log", keep_values=False, emphasis=0.0).fit(X, Y + 1)
    near = model.predict(X)
    near[::10] = 0.001  # intervals are stretched until they contain these
    lower, upper = model.recalibrate(X, near).predict_interval(X, 0.95).T
    assert (lower == 0).any() and (lower >= 0).all() and (upper > lower).all()


def test_a_saved_model_predicts_the_same(model: TailRegressor, tmp_path: Path) -> None:
    loaded = TailRegressor.load(model.save(tmp_path / "a.tailwise"))
    pd.testing.assert_frame_equal(loaded.predict_frame(X), model.predict_frame(X))
    assert np.array_equal(loaded.predict(X, emphasis=0.7), model.predict(X, emphasis=0.7))
    again = loaded.recalibrate(X, Y)
    assert type(transform_of(again)) is type(transform_of(model))


def test_scaling_labels_scales_predictions() -> None:
    settings: dict[str, Any] = {"target_transform": "log", "emphasis": 0.0, "keep_values": False}
    one, other = (small(**settings).fit(X, factor * Y).predict(X) for factor in (1.0, 8.0))
    np.testing.assert_allclose(other, 8 * one, rtol=1e-6)


def test_predictions_of_ones_own_and_streams_are_in_label_units() -> None:
    given = np.maximum(Y - 5.0, -5.0)
    model = small(target_transform="log", base="auto").fit(X, Y, base_prediction=given)
    assert np.isfinite(model.predict(X, base_prediction=given)).all()
    table = pd.DataFrame(X, columns=list("abc")).assign(y=Y)
    streamed = small(target_transform="log", folds="auto").fit_batches([table, table, table], "y")
    assert isinstance(transform_of(streamed), Log) and (streamed.predict(table[list("abc")]) >= 0).all()


def test_auto_takes_logarithms_where_the_base_gains() -> None:
    wide = np.exp(3 * X[:, 0] + 0.1 * RNG.normal(size=160))
    several = np.column_stack([wide, X[:, 1]])
    model = small(target_transform="auto").fit(X, several)
    kinds = [type(target.labels.transform) for target in model.model_.targets]
    assert kinds == [Log, Identity]


@pytest.mark.parametrize(
    ("asked", "y", "words"),
    [
        ("lgo", Y, "unknown target_transform 'lgo'.*log"),
        (3, Y, "scikit-learn transformer"),
        ("log", Y - 1, "never negative.*row"),
    ],
)
def test_a_wrong_transform_is_an_error(asked: Any, y: np.ndarray, words: str) -> None:
    with pytest.raises((TypeError, ValueError), match=words):
        small(target_transform=asked).fit(X, y)


@pytest.mark.slow
@pytest.mark.parametrize("asked", ["log", "yeo-johnson"])
def test_onnx_predicts_the_same(asked: str, tmp_path: Path) -> None:
    runtime = pytest.importorskip("onnxruntime")
    model = small(target_transform=asked, folds=1, emphasis=0.0).fit(X, Y)
    session = runtime.InferenceSession(model.export_onnx(tmp_path / "a.onnx"))
    names = [output.name for output in session.get_outputs()]
    outputs = dict(zip(names, session.run(None, {"x": X}), strict=True))
    frame = model.predict_frame(X)
    for name in ("prediction", "std", "lower", "upper"):
        assert np.median(np.abs(outputs[name] - frame[name])) < 1e-3 * Y.std()
