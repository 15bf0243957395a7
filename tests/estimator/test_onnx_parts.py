"""Boosted trees and Student-t predictions in operations of ONNX, against their libraries and SciPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from catboost import CatBoostRegressor
from lightgbm import LGBMRegressor
from scipy import stats
from sklearn.base import clone
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.impute import SimpleImputer
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline
from torch import Tensor

from tailwise.calibration.scaling import standard_deviation
from tailwise.distributions.members import NIG, Distribution, Mixture, Normal
from tailwise.distributions.tilt import Tilt
from tailwise.distributions.truncation import Bounds
from tailwise.labels.bins import LabelBins
from tailwise.model.base import CrossFit, CrossFitted, deal_folds
from tailwise.onnx.nodes import BASE, tree_nodes
from tailwise.onnx.student_t import TAIL_DF, StudentTails, traceable


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


LEVELS = (0.001, 0.05, 0.5, 0.95, 0.999)


def degrees_of_freedom() -> Tensor:
    low, high = TAIL_DF
    return torch.from_numpy(np.concatenate([np.linspace(low, 8, 200), np.geomspace(low, high, 300)]))[:, None]


def test_tails_against_scipy() -> None:
    df = degrees_of_freedom()
    z = torch.from_numpy(np.concatenate([np.linspace(0, 8, 200), np.geomspace(8, 1e5, 100)]))
    tails, exact = StudentTails()(df).above(z).numpy(), stats.t.sf(z, df)
    seen = exact > 1e-250
    np.testing.assert_allclose(tails[seen], exact[seen], rtol=2e-6)
    assert (tails[~seen] < 1e-240).all()


def test_quantiles_against_scipy() -> None:
    level = torch.from_numpy(np.concatenate([np.geomspace(1e-12, 0.5, 100), np.linspace(0.01, 0.999, 50)]))
    df = degrees_of_freedom()
    one, exact = torch.ones(1, *df.shape, dtype=df.dtype), stats.t.ppf(level, df)
    quantiles = StudentTails()(df[None]).mixture_quantile(one, 0 * one, one, level.expand(len(df), -1))
    np.testing.assert_allclose(quantiles, exact, rtol=1e-5, atol=1e-5)


def test_partial_means_against_the_normal() -> None:
    z = torch.linspace(0, 6, 50, dtype=torch.float64)
    moment = StudentTails()(torch.tensor(TAIL_DF[1], dtype=torch.float64)).log_moment(z).exp()
    np.testing.assert_allclose(moment, stats.norm.pdf(z), rtol=1e-4)


def belief(n: int = 500) -> NIG:
    """Predictions narrow and wide, within the labels and beyond, with tails heavy and light."""
    rng = np.random.default_rng(0)
    gamma, nu, alpha, beta = rng.normal(size=(4, n))
    return NIG(
        *map(torch.from_numpy, (2 * gamma, np.exp(nu), 1.001 + np.exp(2 * alpha), np.exp(2 * beta - 3)))
    )


def emphasis() -> Tilt:
    """The weights of an emphasis of 1: labels around 0 are 400 times as common as those beyond 3.5."""
    cuts = np.linspace(-3, 6, 99)
    centers = np.append(cuts - 0.05, cuts[-1] + 0.05)
    return Tilt(cuts, -np.log(np.maximum(stats.norm.pdf(centers), 0.001)))


def kinds() -> dict[str, Distribution]:
    nig = belief()
    normal = Normal(nig.mean, nig.variance)
    mean = torch.tensor([0.3, 1.3], dtype=torch.float64)
    return {
        "NIG": nig,
        "Normal": normal,
        "mixture of NIG": Mixture([nig, nig.rescale(1.0, 2.0), nig.rescale(-1.0, 0.3)]),
        "mixture of Normal": Mixture([normal, Normal(normal.mean + 0.5 * normal.std, 2 * normal.variance)]),
        "members far apart": Mixture([Normal(mean, 0.01), Normal(mean + 0.6, 0.02)]),
        "heavy tail": NIG(torch.zeros(1, dtype=torch.float64), 1.0, 0.9, 1.0),
        "no spread": Normal(mean, 0.0),
    }


@pytest.mark.parametrize("kind", kinds())
@pytest.mark.parametrize("bounds", [Bounds(), Bounds(-1.0, 2.0)], ids=str)
@pytest.mark.parametrize("tilt", [Tilt(), emphasis()], ids=["no emphasis", "emphasis"])
def test_predictions_agree(kind: str, bounds: Bounds, tilt: Tilt) -> None:
    def answers() -> list[Tensor]:
        prediction = bounds.apply(tilt.apply(kinds()[kind]))
        quantiles = [prediction.quantile(level) for level in LEVELS]
        return [prediction.mean, prediction.point, standard_deviation(prediction), *quantiles]

    exact = answers()
    with traceable(StudentTails()):
        traced = answers()
    for a, b in zip(traced, exact, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4, equal_nan=True)
