"""An exported model says in onnxruntime what the estimator says in Python."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pandas as pd
import pytest
import torch
from scipy import stats
from torch import Tensor, nn

from tailwise import TailRegressor
from tailwise.core.distributions import NIG, Mixture, Normal
from tailwise.estimator.onnx import MIN_DF, Quantiles, StudentQuantiles

LEVELS = (0.05, 0.5, 0.95)


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


def on_an_edge(model: TailRegressor, x: Any) -> np.ndarray:
    """Rows predicted so near the edge of a label bin that rounding decides on their bin. (N,)"""
    assert model.preprocessor_ is not None
    with torch.no_grad():
        first = model.model_(torch.from_numpy(model.preprocessor_.transform(x)), "plain").mean
    near = np.zeros(len(first), bool)
    for t, calibrator in enumerate(model.calibrators_):
        for mean in (first.numpy(), model.predict(x)):
            own = mean[:, t] if mean.ndim == 2 else mean
            gaps = np.abs(own[:, None] - calibrator.bins._cuts)
            near |= (gaps < 1e-4 * calibrator.bins.scale).any(1)
    return near


def assert_agrees(
    model: TailRegressor, path: Path, x: Any, levels: tuple[float, ...] = LEVELS, coverage: float | None = 0.9
) -> float:
    """Compare every output on every row, in units of the labels' spread; return the largest difference."""
    assert model.preprocessor_ is not None
    found = outputs(path, model.preprocessor_.matrix(x))
    mean, std = model.predict(x, return_std=True)
    wanted = {"mean": mean, "std": std}
    if levels:
        wanted["quantiles"] = model.predict_quantiles(x, levels)
    if coverage is not None:
        ends = model.predict_interval(x, coverage)
        wanted |= {"lower": ends[..., 0], "upper": ends[..., 1]}
    assert found.keys() == wanted.keys()
    scales = np.array([calibrator.bins.scale for calibrator in model.calibrators_])
    edge, worst = on_an_edge(model, x), 0.0
    for name, value in wanted.items():
        assert found[name].shape == value.shape and found[name].dtype == np.float64
        assert np.isfinite(found[name]).all()
        scale = scales.reshape((-1,) + (1,) * (value.ndim - 2)) if model.n_targets_ > 1 else scales[0]
        off = (np.abs(found[name] - value) / scale).reshape(len(value), -1).max(1)
        apart = off > 1e-4
        assert not apart[~edge].any() and apart.sum() <= 1e-3 * len(apart), name
        worst = max(worst, off[~edge].max(initial=0.0))
    return worst


def fitted(y: Any = None, seed: int = 0, **params: Any) -> TailRegressor:
    x = numbers(600, seed)
    y = labels(x, seed) if y is None else y
    return TailRegressor(**{"epochs": 4, "random_state": seed, **params}).fit(x, y)


@pytest.fixture(scope="module")
def vir() -> TailRegressor:
    return fitted()


@pytest.fixture(scope="module")
def exported(vir: TailRegressor, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return vir.export_onnx(tmp_path_factory.mktemp("onnx") / "model.onnx")


@pytest.mark.parametrize("rows", [1, 2, 5000])
def test_onnxruntime_agrees(rows: int, vir: TailRegressor, exported: Path) -> None:
    assert assert_agrees(vir, exported, numbers(rows, 5, spread=3.0)) < 1e-4


def test_one_row_at_a_time_or_all_at_once(exported: Path) -> None:
    x = numbers(40, 6)
    together = outputs(exported, x)
    for row in range(len(x)):
        alone = outputs(exported, x[row : row + 1]) if row < 5 else None
        for name, value in (alone or {}).items():
            np.testing.assert_allclose(value[0], together[name][row], rtol=1e-5, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_onnxruntime_agrees_for_other_seeds(seed: int, tmp_path: Path) -> None:
    model = fitted(seed=seed, epochs=15)
    path = model.export_onnx(tmp_path / "m.onnx")
    for rows in (1, 5000):
        assert_agrees(model, path, numbers(rows, 10 + seed, spread=3.0))


@pytest.mark.parametrize(
    ("params", "levels", "coverage"),
    [
        ({"calibrate": False, "conformal": None}, (0.01, 0.3, 0.999), 0.8),
        ({"method": "vanilla", "conformal": None}, LEVELS, 0.95),
        ({"method": "gaussian", "conformal": "global"}, (0.25,), 0.9),
        pytest.param({"method": "vir-reference", "calibrate": False}, LEVELS, None, marks=pytest.mark.slow),
        pytest.param({"method": "vir-paper"}, LEVELS, 0.9, marks=pytest.mark.slow),
        pytest.param({"backbone": "residual-ple"}, LEVELS, 0.9, marks=pytest.mark.slow),
        pytest.param({"backbone": "mlp-plr"}, LEVELS, 0.9, marks=pytest.mark.slow),
        ({"backbone": "tabm", "method": "vanilla"}, LEVELS, 0.9),
        ({"backbone": "tabm"}, (), 0.9),
        ({"backbone": "tabm-ple", "method": "der"}, (), 0.9),
        ({"method": "ensemble", "method_options": {"members": 3}}, (), 0.9),
        pytest.param({"method": "infer-noise"}, (), 0.9, marks=pytest.mark.slow),
        ({"method": "infer-dropout", "conformal": None}, (), None),
        pytest.param({"method_options": {"inference": "marginal"}}, (), 0.9, marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_methods_and_settings(
    params: dict[str, Any], levels: tuple[float, ...], coverage: float | None, tmp_path: Path
) -> None:
    model = fitted(**params)
    path = model.export_onnx(tmp_path / "m.onnx", quantiles=levels, coverage=coverage)
    assert_agrees(model, path, numbers(3000, 7, spread=3.0), levels, coverage)


@pytest.mark.parametrize(("scale", "shift"), [(1e-12, 0.0), (1e12, 0.0), (1.0, 1e6)])
def test_units_of_the_label_do_not_matter(scale: float, shift: float, tmp_path: Path) -> None:
    model = fitted(scale * labels(numbers(600)) + shift)
    path = model.export_onnx(tmp_path / "m.onnx")
    assert assert_agrees(model, path, numbers(5000, 9, spread=3.0)) < 1e-4


def test_targets_in_units_far_apart(tmp_path: Path) -> None:
    """Each is held to its own spread: beside one of 1e12, no error in one of 1e-12 would be seen."""
    y = labels(numbers(600))
    model = fitted(np.stack([1e-12 * y, 1e12 * y, y + 1e6], axis=1))
    path = model.export_onnx(tmp_path / "m.onnx")
    assert assert_agrees(model, path, numbers(5000, 9, spread=3.0)) < 1e-4


@pytest.mark.slow
def test_several_targets(tmp_path: Path) -> None:
    x = numbers(600)
    model = fitted(np.stack([labels(x), 1e6 - 1e3 * labels(x, 1)], axis=1))
    path = model.export_onnx(tmp_path / "m.onnx", quantiles=(0.1, 0.9))
    assert_agrees(model, path, numbers(2000, 8, spread=3.0), (0.1, 0.9))
    found = outputs(path, x[:3])
    assert found["mean"].shape == (3, 2) and found["quantiles"].shape == (3, 2, 2)


def test_tables_with_text_start_from_the_vectorizer(tmp_path: Path) -> None:
    x = pd.DataFrame({"a": numbers(300)[:, 0], "kind": np.random.default_rng(0).choice(["p", "q"], 300)})
    y = labels(x[["a"]].to_numpy()) + (x["kind"] == "p")
    model = TailRegressor(method="vanilla", epochs=2, random_state=0).fit(x, y)
    path = model.export_onnx(tmp_path / "m.onnx")
    assert_agrees(model, path, x)
    assert metadata(path)["columns"] == list(model.preprocessor_.vectorizer.get_feature_names_out())


def metadata(path: Path) -> dict[str, Any]:
    return {entry.key: json.loads(entry.value) for entry in onnx.load(path).metadata_props}


def test_the_file_is_one_and_says_what_it_holds(vir: TailRegressor, exported: Path) -> None:
    assert os.listdir(exported.parent) == ["model.onnx"]
    assert exported.stat().st_size < 2e6
    onnx.checker.check_model(onnx.load(exported), full_check=True)
    about = metadata(exported)
    assert about["quantiles"] == [0.05, 0.5, 0.95] and about["coverage"] == 0.9
    assert about["method"] == "vir" and about["columns"] == ["x0", "x1", "x2", "x3"]
    run = session(exported)
    assert [(i.name, i.type, i.shape) for i in run.get_inputs()] == [("x", "tensor(double)", ["rows", 4])]


def test_exporting_leaves_the_model_alone(tmp_path: Path) -> None:
    model = fitted(method="vanilla")
    fresh = fitted(method="vanilla")
    model.export_onnx(tmp_path / "m.onnx")
    model.export_onnx(tmp_path / "m.onnx")  # replaces
    pd.testing.assert_frame_equal(
        model.predict_frame(numbers(50)), fresh.predict_frame(numbers(50)), check_exact=True
    )


def test_an_infinity_counts_as_missing(exported: Path) -> None:
    x = numbers(8, 3)
    infinite, missing = x.copy(), x.copy()
    infinite[:, 1], missing[:, 1] = np.inf, np.nan
    for name, value in outputs(exported, infinite).items():
        np.testing.assert_array_equal(value, outputs(exported, missing)[name])


# -- what is refused -------------------------------------------------------------------------------


def test_mixtures_have_no_exported_quantiles(tmp_path: Path) -> None:
    model = fitted(method="infer-noise", conformal=None, epochs=1)
    for levels, coverage in ((LEVELS, None), ((), 0.9)):
        with pytest.raises(ValueError, match=r"predicts a mixture.*pass quantiles=\(\)"):
            model.export_onnx(tmp_path / "m.onnx", quantiles=levels, coverage=coverage)
    assert not os.listdir(tmp_path)


def test_wrong_levels(vir: TailRegressor, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="quantile levels must lie between 0 and 1"):
        vir.export_onnx(tmp_path / "m.onnx", quantiles=(0.0,))
    with pytest.raises(ValueError, match="coverage must lie between 0 and 1"):
        vir.export_onnx(tmp_path / "m.onnx", coverage=90)


def test_a_backbone_of_ones_own(tmp_path: Path) -> None:
    class Own(nn.Module):
        feature_dim = 4

        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(4, 4)

        def forward(self, x: Tensor) -> Tensor:
            features: Tensor = self.linear(torch.nan_to_num(x))
            return features

    with pytest.raises(ValueError, match="export_onnx is for tables"):
        fitted(backbone=Own(), epochs=1).export_onnx(tmp_path / "m.onnx")


@pytest.mark.parametrize("package", ["onnx", "onnxscript", "onnxruntime"])
def test_without_the_extra(
    package: str, vir: TailRegressor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ImportError, match=rf"needs {package}: pip install 'tailwise\[export\]'"):
        vir.export_onnx(tmp_path / "m.onnx")


def test_an_export_that_went_wrong_is_not_written(
    tmp_path: Path, vir: TailRegressor, exported: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tailwise.estimator import onnx as export

    for wrong in (other_scale, one_row_only):
        monkeypatch.setattr(export, "_traced", lambda *_, wrong=wrong: wrong(onnx.load(exported)))
        with pytest.raises(RuntimeError, match="has not exported this network faithfully"):
            vir.export_onnx(tmp_path / "m.onnx")
    assert not os.listdir(tmp_path)


def other_scale(proto: Any) -> Any:
    """The same graph with its largest table of weights doubled."""
    largest = max(proto.graph.initializer, key=lambda i: len(i.raw_data))
    largest.raw_data = (2 * np.frombuffer(largest.raw_data, np.float32)).tobytes()
    return proto


def one_row_only(proto: Any) -> Any:
    proto.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 1
    return proto


# -- Student's quantiles ---------------------------------------------------------------------------


@pytest.mark.parametrize(("least", "tolerance"), [(2.0, 1e-7), (MIN_DF, 1e-5)])
def test_student_quantiles_against_scipy(least: float, tolerance: float) -> None:
    levels = np.array([1e-4, 0.001, 0.025, 0.05, 0.25, 0.49, 0.5, 0.51, 0.9, 0.975, 0.999, 0.9999])
    df = np.concatenate([np.linspace(least, 12, 2000), np.geomspace(least, 1e9, 2000)])
    found = StudentQuantiles(levels)(torch.from_numpy(df)).numpy()
    exact = stats.t.ppf(levels, df[:, None])
    np.testing.assert_allclose(found, exact, rtol=tolerance, atol=1e-12)


def test_quantiles_of_distributions() -> None:
    rng = np.random.default_rng(0)
    gamma, nu, beta = (torch.from_numpy(a) for a in (rng.normal(size=50), *rng.random((2, 50)) + 0.1))
    alpha = torch.from_numpy(1.0001 + 30 * rng.random(50) ** 4)
    for distribution in (NIG(gamma, nu, alpha, beta), Normal(gamma, beta)):
        found = Quantiles((0.2, 0.95))(distribution)
        for column, level in enumerate((0.2, 0.95)):
            np.testing.assert_allclose(found[:, column], distribution.quantile(level), rtol=1e-8)
    with pytest.raises(ValueError, match="a mixture"):
        Quantiles((0.2,))(Mixture([Normal(gamma, beta)]))
