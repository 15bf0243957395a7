"""Boosted trees in onnxruntime, against the libraries that fitted them."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from catboost import CatBoostRegressor
from lightgbm import LGBMRegressor
from sklearn.base import clone
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.impute import SimpleImputer
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline

from tailwise.labels.bins import LabelBins
from tailwise.model.base import CrossFit, CrossFitted, deal_folds
from tailwise.onnx.nodes import BASE, tree_nodes


def catboost(**options: Any) -> CatBoostRegressor:
    return CatBoostRegressor(iterations=10, verbose=False, allow_writing_files=False, **options)


def lightgbm(**options: Any) -> LGBMRegressor:
    return LGBMRegressor(n_estimators=10, verbosity=-1, n_jobs=1, **options)


def table(n: int = 300) -> tuple[np.ndarray, np.ndarray]:
    """One column with missing values at fit, one of whole numbers."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(n, 4))
    y = 1000 + 50 * (np.exp(x[:, 0]) + np.abs(x[:, 1]) + x[:, 3])
    x[rng.random(n) < 0.2, 1] = np.nan
    x[:, 3] = np.round(x[:, 3])
    return x, y


def new_rows() -> np.ndarray:
    """Missing values in columns that never had any, and numbers beyond all others."""
    rng = np.random.default_rng(1)
    x = 2 * rng.normal(size=(500, 4))
    x[rng.random(x.shape) < 0.3] = np.nan
    x[0], x[1], x[2, 0] = np.nan, 1e300, -1e300
    return np.concatenate([x, table()[0]])


def fitted(regressor: Any) -> tuple[CrossFitted, LabelBins]:
    x, y = table()
    base, _ = CrossFit(lambda _: clone(regressor), x, y, np.ones(len(y)), deal_folds(y, 0, 2), 0).whole()
    return base, LabelBins.from_labels(y)


def run(bases: list[CrossFitted], bins: list[LabelBins], x: np.ndarray) -> np.ndarray:
    """Predictions of the bases, from a graph that returns its input `BASE`."""
    helper, double = onnx.helper, onnx.TensorProto.DOUBLE
    values = {"x": ["rows", 4], BASE: ["rows", len(bases)], "answer": ["rows", len(bases)]}
    *inputs, answer = (helper.make_tensor_value_info(name, double, shape) for name, shape in values.items())
    graph = helper.make_graph([helper.make_node("Identity", [BASE], ["answer"])], "g", inputs, [answer])
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    tree_nodes(bases, bins).put(proto)
    onnx.checker.check_model(proto, full_check=True)
    found: np.ndarray = onnxruntime.InferenceSession(proto.SerializeToString()).run(None, {"x": x})[0]
    return found


@pytest.mark.parametrize(
    "regressor",
    [
        catboost(),
        catboost(nan_mode="Max"),
        lightgbm(),
        lightgbm(min_child_samples=290),  # trees of one leaf
        HistGradientBoostingRegressor(max_iter=10),
        HistGradientBoostingRegressor(max_iter=2, min_samples_leaf=290),
    ],
    ids=lambda regressor: f"{type(regressor).__name__}",
)
def test_trees_predict_as_their_library(regressor: Any) -> None:
    base, bins = fitted(regressor)
    x = new_rows()
    wide = LabelBins(bins.edges * 7 + 3, bins.counts)
    found = run([base, base], [bins, wide], x)
    wanted = np.stack([(base.predict(x) - b.location) / b.scale for b in (bins, wide)], axis=1)
    np.testing.assert_allclose(found, wanted, atol=1e-5)


@pytest.mark.parametrize(
    ("regressor", "message"),
    [
        (lightgbm(linear_tree=True), "cannot be exported as ONNX .*it has an option that changes"),
        (lightgbm(zero_as_missing=True), "LGBMRegressor cannot be exported .*zeros that count as missing"),
        (HistGradientBoostingRegressor(max_iter=3, categorical_features=[3]), "it has categorical features"),
        (
            make_pipeline(SimpleImputer(), Ridge()),
            "Pipeline cannot be exported as ONNX .it is no model of boosted trees.*HistGradientBoosting",
        ),
        (catboost(grow_policy="Lossguide"), "CatBoostRegressor cannot be exported as ONNX .*non symmetric"),
    ],
    ids=str,
)
def test_options_that_trees_do_not_show(regressor: Any, message: str) -> None:
    base, bins = fitted(regressor)
    with pytest.raises(ValueError, match=message):
        run([base], [bins], new_rows())
