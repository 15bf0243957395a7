"""An exported model says in onnxruntime what the estimator says in Python."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from sklearn.dummy import DummyRegressor
from torch import nn

from tailwise import TailRegressor
from tailwise.model import base as bases
from tailwise.model.model import beside_features, offset_tensor

LEVELS = (0.05, 0.5, 0.95)
FEW_SAMPLES = {"method_options": {"perturbation.samples": 4}}


def numbers(n: int, seed: int = 0, *, spread: float = 1.0) -> np.ndarray:
    """Rows with missing cells; some lie far beyond all the others."""
    rng = np.random.default_rng(seed)
    x = spread * rng.normal(size=(n, 4))
    x[rng.random(x.shape) < 0.05] = np.nan
    if spread > 1:
        x[: n // 50] *= 1e6
        x[0] = np.nan
    return x


def labels(x: np.ndarray, seed: int = 0) -> np.ndarray:
    noise = np.random.default_rng(seed).normal(size=len(x))
    return np.exp(np.nan_to_num(x[:, 0])) + 0.1 * noise


def session(path: Path) -> Any:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(path, options)


def outputs(path: Path, x: np.ndarray) -> dict[str, np.ndarray]:
    run = session(path)
    return dict(zip((o.name for o in run.get_outputs()), run.run(None, {"x": x}), strict=True))


def on_an_edge(model: TailRegressor, x: Any, **prior: Any) -> np.ndarray:
    """Rows predicted so near the edge of a label bin that rounding decides on their bin. (N,)"""
    fitted = model.model_
    rows = fitted.encode(x)
    offset = fitted.base.offset(rows.matrix, len(rows), None)
    inputs = beside_features(rows.x, offset, fitted.bins)
    with torch.no_grad():
        means = [
            network(inputs.double(), "plain", offset_tensor(offset)).mean.numpy()
            for network in fitted.networks
        ]
    near = np.zeros(len(rows), bool)
    for t, calibrator in enumerate(fitted.targets):
        for mean in (*means, model.predict(x, **prior)):
            own = mean[:, t] if mean.ndim == 2 else mean
            gaps = np.abs(own[:, None] - calibrator.bins._cuts)
            near |= (gaps < 1e-4 * calibrator.bins.scale).any(1)
    return near


def assert_agrees(
    model: TailRegressor,
    path: Path,
    x: Any,
    levels: tuple[float, ...] = LEVELS,
    coverage: float | None = 0.9,
    **prior: Any,
) -> float:
    """Compare every output on every row, in units of the labels' spread; return the largest difference."""
    assert model.preprocessor_ is not None
    found = outputs(path, model.preprocessor_.matrix(x))
    mean, std = model.predict(x, return_std=True, **prior)
    wanted = {"prediction": mean, "std": std}
    if levels:
        wanted["quantiles"] = model.predict_quantiles(x, levels, **prior)
    if coverage is not None:
        ends = model.predict_interval(x, coverage, **prior)
        wanted |= {"lower": ends[..., 0], "upper": ends[..., 1]}
    assert found.keys() == wanted.keys()
    scales = np.array([calibrator.bins.scale for calibrator in model.calibrators_])
    edge, worst = on_an_edge(model, x, **prior), 0.0
    for name, value in wanted.items():
        assert found[name].shape == value.shape and found[name].dtype == np.float64
        assert np.isfinite(found[name]).all()
        scale = scales.reshape((-1,) + (1,) * (value.ndim - 2)) if model.n_targets_ > 1 else scales[0]
        off = (np.abs(found[name] - value) / scale).reshape(len(value), -1).max(1)
        apart = off > 1e-4
        assert not apart[~edge].any() and apart.sum() <= 1e-3 * len(apart), name
        worst = max(worst, off[~edge].max(initial=0.0))
    return worst


@pytest.fixture(scope="module", autouse=True)
def few_trees() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bases, "TREES", 20)
        yield


def fitted(y: Any = None, seed: int = 0, **params: Any) -> TailRegressor:
    """One network without a base or an emphasis, unless asked for."""
    x = numbers(600, seed)
    y = labels(x, seed) if y is None else y
    alone = {"base": None, "folds": 1, "emphasis": 0.0, "epochs": 4, "random_state": seed}
    return TailRegressor(**{**alone, **params}).fit(x, y)


@pytest.fixture(scope="module")
def whole() -> TailRegressor:
    """Everything that a default model has: a base, several networks, an emphasis, intervals."""
    return fitted(base="catboost", folds=2, emphasis=0.5, epochs=2)


@pytest.fixture(scope="module")
def exported(whole: TailRegressor, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The model without its emphasis and with one level, whose graph is exported sooner."""
    path = tmp_path_factory.mktemp("onnx") / "model.onnx"
    return whole.export_onnx(path, quantiles=(0.3,), emphasis=0.0)


@pytest.mark.parametrize("rows", [1, 2, 5000])
def test_onnxruntime_agrees(rows: int, whole: TailRegressor, exported: Path) -> None:
    assert assert_agrees(whole, exported, numbers(rows, 5, spread=3.0), (0.3,), emphasis=0.0) < 1e-4


@pytest.mark.slow
def test_the_emphasis_of_the_model_is_exported_by_default(
    whole: TailRegressor, exported: Path, tmp_path: Path
) -> None:
    (tmp_path / "m.onnx").write_bytes(b"an older file, which is replaced")
    path = whole.export_onnx(tmp_path / "m.onnx")
    for x in (numbers(5000, 7, spread=3.0), numbers(600), numbers(1)):
        assert assert_agrees(whole, path, x) < 1e-4
    moved = outputs(path, numbers(600))["prediction"] - outputs(exported, numbers(600))["prediction"]
    assert np.abs(moved).max() > 0.01
    assert metadata(path)["emphasis"] == 0.5 and metadata(exported)["emphasis"] == 0.0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("params", "levels", "coverage"),
    [
        ({"calibrate": False, "conformal": None}, (0.01, 0.3, 0.999), 0.8),
        ({"method": "vanilla", "conformal": None}, LEVELS, 0.95),
        ({"method": "vir-reference", "calibrate": False}, LEVELS, None),
        ({"bounds": (-0.5, None), "emphasis": 1.0, "conformal": None}, LEVELS, 0.8),
        ({"backbone": "residual-ple", "method": "vanilla"}, LEVELS, 0.9),
        ({"backbone": "tabm", "method": "der"}, LEVELS, 0.9),
        ({"backbone": "realmlp"}, LEVELS, 0.9),
        ({"method": "ensemble", "method_options": {"members": 2}, "folds": 2}, (0.5,), 0.9),
        ({"method": "vanilla", "base": "lightgbm"}, LEVELS, 0.9),
        ({"method": "infer-dropout", **FEW_SAMPLES, "conformal": None}, LEVELS, None),
        ({"method_options": {"inference": "marginal"}}, (), 0.9),
    ],
    ids=str,
)
def test_methods_and_settings(
    params: dict[str, Any], levels: tuple[float, ...], coverage: float | None, tmp_path: Path
) -> None:
    model = fitted(**params)
    path = model.export_onnx(tmp_path / "m.onnx", quantiles=levels, coverage=coverage)
    assert_agrees(model, path, numbers(1000, 7, spread=3.0), levels, coverage)


@pytest.mark.slow
def test_targets_in_units_far_apart_each_with_a_label_prior(tmp_path: Path) -> None:
    """Each is held to its own spread: beside one of 1e12, no error in one of 1e-12 would be seen."""
    y = labels(numbers(600))
    y = np.stack([1e-12 * y, 1e6 - y], axis=1)
    model = fitted(y, base="hist-gradient-boosting")
    priors = [y[:50, 0], ([1e6 - 8, 1e6 - 3, 1e6], [1, 3])]
    path = model.export_onnx(tmp_path / "m.onnx", quantiles=(0.1, 0.5, 0.9), label_prior=priors)
    x = numbers(2000, 9, spread=3.0)
    assert assert_agrees(model, path, x, (0.1, 0.5, 0.9), label_prior=priors) < 1e-4
    found = outputs(path, numbers(3))
    assert found["prediction"].shape == (3, 2) and found["quantiles"].shape == (3, 2, 3)
    assert metadata(path)["emphasis"] == [None, None]


def metadata(path: Path) -> dict[str, Any]:
    return {entry.key: json.loads(entry.value) for entry in onnx.load(path).metadata_props}


def test_the_file_is_one_and_says_what_it_holds(exported: Path) -> None:
    assert os.listdir(exported.parent) == ["model.onnx"]
    assert exported.stat().st_size < 2e6
    onnx.checker.check_model(onnx.load(exported), full_check=True)
    about = metadata(exported)
    assert about["quantiles"] == [0.3] and about["coverage"] == 0.9
    assert about["method"] == "vir-dial" and about["columns"] == ["x0", "x1", "x2", "x3"]
    run = session(exported)
    assert [(i.name, i.type, i.shape) for i in run.get_inputs()] == [("x", "tensor(double)", ["rows", 4])]


# -- what is refused -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("params", "asked", "message"),
    [
        ({"base": DummyRegressor()}, {}, r"DummyRegressor cannot be exported.*CatBoost, LightGBM"),
        ({"backbone": nn.Linear(4, 4), "feature_dim": 4}, {}, "export_onnx is for tables"),
        ({"conformal_by": 1}, {}, "an ONNX file cannot hold intervals by a column: pass coverage=None"),
        ({}, {"quantiles": (0.0,)}, "quantile levels must lie between 0 and 1"),
        ({}, {"coverage": 90}, "coverage must lie between 0 and 1"),
    ],
    ids=str,
)
def test_what_cannot_be_exported(
    params: dict[str, Any], asked: dict[str, Any], message: str, tmp_path: Path
) -> None:
    x = np.nan_to_num(numbers(600))
    model = TailRegressor(**{"base": None, "folds": 1, "epochs": 1, **params}).fit(x, labels(x))
    with pytest.raises(ValueError, match=message):
        model.export_onnx(tmp_path / "m.onnx", **asked)
    assert not os.listdir(tmp_path)


def test_without_the_extra(whole: TailRegressor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    with pytest.raises(ImportError, match=r"needs onnxscript: pip install 'tailwise\[export\]'"):
        whole.export_onnx(tmp_path / "m.onnx")


def test_an_export_that_went_wrong_is_not_written(
    tmp_path: Path, whole: TailRegressor, exported: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tailwise.onnx import export, nodes

    for wrong in (other_scale, one_row_only):
        monkeypatch.setattr(export, "_traced", lambda *_, wrong=wrong: wrong(onnx.load(exported)))
        monkeypatch.setattr(nodes.Front, "put", lambda *_: None)
        with pytest.raises(RuntimeError, match="would not predict as the model does"):
            whole.export_onnx(tmp_path / "m.onnx")
    assert not os.listdir(tmp_path)


def other_scale(proto: Any) -> Any:
    """The same graph with its largest table of weights doubled."""
    floats = [i for i in proto.graph.initializer if i.data_type == onnx.TensorProto.FLOAT]
    largest = max(floats, key=lambda i: len(i.raw_data))
    largest.raw_data = (2 * np.frombuffer(largest.raw_data, np.float32)).tobytes()
    return proto


def one_row_only(proto: Any) -> Any:
    proto.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 1
    return proto


@pytest.mark.slow
def test_intervals_of_rare_labels(tmp_path: Path) -> None:
    model, x = fitted(emphasis=0.5), numbers(500, 7)
    found = outputs(model.export_onnx(tmp_path / "m.onnx", rare=0.8), x)
    wanted = model.predict_interval(x, rare=0.8)
    off = np.abs(np.stack([found["lower"], found["upper"]], axis=1) - wanted) / model.bins_.scale
    assert np.quantile(off, 0.99) < 1e-3  # rounding may carry a row beyond the end of a stretch
    with pytest.raises(ValueError, match="rare is for intervals"):
        model.export_onnx(tmp_path / "n.onnx", rare=0.8, coverage=None)
