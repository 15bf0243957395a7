"""TailRegressor keeps scikit-learn's contract, and its outputs agree with one another."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.compose import TransformedTargetRegressor
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.model_selection import GridSearchCV, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks
from torch import nn

import tailwise
from tailwise import TailRegressor
from tailwise.core.distributions import NIG, Mixture
from tailwise.uncertainty.scaling import NIGScaling
from tests.estimator.small_tables import quick, table


@parametrize_with_checks([TailRegressor(base=None, folds=1, epochs=12, lr=0.01)])
def test_scikit_learn_contract(estimator: Any, check: Any) -> None:
    check(estimator)


@pytest.mark.slow
@parametrize_with_checks(
    [
        TailRegressor(epochs=6),
        TailRegressor(base=HistGradientBoostingRegressor(max_iter=5), folds=2, epochs=3),
    ]
)
def test_scikit_learn_contract_of_the_default_and_of_an_own_base(
    estimator: Any, check: Any, few_trees: None
) -> None:
    check(estimator)


def test_outputs_agree_with_one_another(plain: TailRegressor) -> None:
    model, (x, _) = plain, table()
    mean, std = model.predict(x, return_std=True)
    distribution = model.predict_distribution(x)
    assert isinstance(distribution, NIG)
    np.testing.assert_allclose(mean, distribution.mean)
    np.testing.assert_allclose(std, np.sqrt(distribution.variance))
    quantiles = model.predict_quantiles(x, [0.1, 0.5, 0.9])
    assert quantiles.shape == (len(x), 3) and (np.diff(quantiles, axis=1) > 0).all()
    np.testing.assert_allclose(quantiles[:, 1], mean, atol=1e-6)
    interval = model.predict_interval(x, 0.8)
    wider = model.predict_interval(x, 0.95)
    assert (interval[:, 0] < interval[:, 1]).all()
    assert (wider[:, 0] <= interval[:, 0]).all() and (wider[:, 1] >= interval[:, 1]).all()
    out = model.predict_frame(pd.DataFrame(x, index=range(7, 7 + len(x))).to_numpy())
    assert list(out.columns) == [
        "prediction",
        "std",
        "lower",
        "upper",
        "aleatoric_std",
        "epistemic_std",
        "region",
    ]
    np.testing.assert_allclose(out["std"] ** 2, out["aleatoric_std"] ** 2 + out["epistemic_std"] ** 2)
    np.testing.assert_allclose(out[["lower", "upper"]], model.predict_interval(x))
    assert set(out["region"]) <= {"many", "medium", "few"}


def test_noise_is_told_from_a_lack_of_data_as_the_network_does(plain: TailRegressor) -> None:
    """Factors that calibration likes may trade one part for the other; the table does not."""
    model, (x, _) = pickle.loads(pickle.dumps(plain)), table()
    calibrator = model.calibrators_[0]
    calibrated = model.predict_frame(x)
    model.calibrators_ = [replace(calibrator, scaling=None)]
    own = model.predict_frame(x)
    model.calibrators_ = [replace(calibrator, scaling=NIGScaling(w_nu=1e-3, w_beta=0.1))]
    extreme = model.predict_frame(x)
    for frame in (calibrated, extreme):
        np.testing.assert_allclose(
            frame["epistemic_std"] / frame["std"], own["epistemic_std"] / own["std"], rtol=1e-4
        )


def test_score_by_region_by_hand(plain: TailRegressor) -> None:
    model, (x, y) = plain, table(600)
    scores = model.score_by_region(x, y).set_index("region")
    region = model.bins_.regions()[model.bins_.index(y)]
    lower, upper = model.predict_interval(x).T
    for name in ("all", "many", "medium", "few"):
        mask = np.ones(len(y), bool) if name == "all" else region == name
        assert scores.loc[name, "n"] == mask.sum()
        if mask.any():
            inside = (y[mask] >= lower[mask]) & (y[mask] <= upper[mask])
            assert scores.loc[name, "coverage"] == pytest.approx(inside.mean())
            assert scores.loc[name, "mae"] == pytest.approx(abs(y - model.predict(x))[mask].mean())
            assert scores.loc[name, "width"] == pytest.approx((upper - lower)[mask].mean())


@pytest.mark.parametrize("conformal", ["global", "region", None])
@pytest.mark.parametrize("calibrate", [True, False])
def test_intervals_cover_new_rows(conformal: str | None, calibrate: bool) -> None:
    fresh, truth = table(3000, seed=9)
    covered = []
    for seed in range(4):
        model = quick(conformal=conformal, calibrate=calibrate, random_state=seed).fit(*table(600, seed=seed))
        lower, upper = model.predict_interval(fresh, 0.9).T
        covered.append(((truth >= lower) & (truth <= upper)).mean())
    assert np.mean(covered) > (0.88 if conformal else 0.5)
    text = model.explain_intervals()
    assert ("distribution itself" in text) == (conformal is None)


@pytest.mark.slow
def test_conformal_coverage_over_repetitions() -> None:
    """Over fresh held-out parts the 90% interval holds at least 90% on average."""
    covered = []
    for seed in range(12):
        x, y = table(500, seed=seed)
        model = quick(epochs=3, conformal="global", random_state=seed).fit(x, y)
        fresh, truth = table(800, seed=1000 + seed)
        lower, upper = model.predict_interval(fresh, 0.9).T
        covered.append(((truth >= lower) & (truth <= upper)).mean())
    assert np.mean(covered) > 0.9 - 2 * np.std(covered) / np.sqrt(len(covered))


@pytest.mark.parametrize(("rows", "words"), [(12, "too small"), (200, "approximate"), (600, "")])
def test_intervals_say_which_rows_they_rest_on(rows: int, words: str, tmp_path: Path) -> None:
    model = quick(epochs=1).fit(*table(rows))
    said = model.explain_intervals()
    assert said.startswith("Conformal intervals") if not words else words in said.splitlines()[0]
    model.save(tmp_path / "m")
    assert TailRegressor.load(tmp_path / "m").explain_intervals() == said


def test_pipeline_search_and_friends() -> None:
    x, y = table(240)
    small = quick(epochs=3)
    search = GridSearchCV(
        make_pipeline(StandardScaler(), small), {"tailregressor__method": ["vanilla", "vir"]}, cv=2
    ).fit(x, y)
    assert search.best_params_["tailregressor__method"] in ("vanilla", "vir")
    assert cross_val_predict(small, x, y, cv=2).shape == y.shape
    logged = TransformedTargetRegressor(clone(small), func=np.log1p, inverse_func=np.expm1)
    assert logged.fit(x, y - y.min()).predict(x).shape == y.shape
    assert clone(quick(method="der", lr=0.1)).get_params()["lr"] == 0.1
    named = pd.DataFrame(x, columns=["a", "b", "c"])
    piped = make_pipeline(StandardScaler(), clone(small)).set_output(transform="pandas").fit(named, y)
    assert list(piped[-1].feature_names_in_) == ["a", "b", "c"] and piped.predict(named).shape == y.shape


def test_pickle_round_trip(boosted: TailRegressor) -> None:
    x, _ = table()
    twin = pickle.loads(pickle.dumps(boosted))
    np.testing.assert_array_equal(twin.predict_interval(x), boosted.predict_interval(x))


UNITS = [(1000.0, -5.0), (1e-12, 0.0), (1e12, 3e12)]


@cache
def in_own_units(base: str | None, whole: bool) -> TailRegressor:
    x, y = table(300)
    return quick(base=base).fit(x, np.round(4 * y) if whole else y)


@pytest.mark.parametrize(("scale", "shift"), UNITS)
@pytest.mark.parametrize(("base", "whole"), [(None, False), (None, True), ("catboost", False)])
def test_units_of_the_label_do_not_matter(
    scale: float, shift: float, base: str | None, whole: bool, few_trees: None
) -> None:
    x, y = table(300)
    y = np.round(4 * y) if whole else y
    ours = in_own_units(base, whole)
    theirs = quick(base=base).fit(x, scale * y + shift)
    tolerance = 1e-3 * y.std()
    assert theirs.emphasis_ == ours.emphasis_
    np.testing.assert_allclose((theirs.predict(x) - shift) / scale, ours.predict(x), atol=tolerance)
    np.testing.assert_allclose(
        (theirs.predict_interval(x) - shift) / scale, ours.predict_interval(x), atol=20 * tolerance
    )


@pytest.mark.parametrize("method", ["ensemble", "infer-noise", "vanilla", "lds-fds-der"])
def test_other_methods(method: str) -> None:
    x, y = table(200)
    model = quick(method=method).fit(x, y)
    out = model.predict_frame(x)
    assert (out["std"] > 0).all() and (out["lower"] < out["upper"]).all()
    assert isinstance(model.predict_distribution(x), Mixture) == (method in ("ensemble", "infer-noise"))


@pytest.mark.parametrize("method", ["vir", "vanilla", "ensemble"])
def test_members_that_share_a_backbone(method: str) -> None:
    """TabM, in a whole fit: calibrated mixtures, or points with one spread, that intervals take."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(150, 3))
    y = np.exp(X[:, 0]) + 0.1 * rng.normal(size=150)
    model = quick(method=method, backbone="tabm", epochs=4)
    if method == "ensemble":
        model.set_params(method_options={"members": 2})
    model.fit(X, y)
    frame = model.predict_frame(X)
    assert np.isfinite(frame.drop(columns="region").to_numpy()).all()
    assert (frame["lower"] <= frame["prediction"]).all() and (frame["prediction"] <= frame["upper"]).all()
    assert (frame["epistemic_std"] > 0).all() == (method != "vanilla")
    both = quick(method=method, backbone="tabm", epochs=1).fit(X, np.c_[y, -y])
    assert both.predict_interval(X[:7]).shape == (7, 2, 2)


@pytest.mark.gpu
@pytest.mark.parametrize("own", [{}, {"backbone": nn.Linear(3, 4), "feature_dim": 4}], ids=["table", "own"])
@pytest.mark.parametrize("method", ["vir", "ensemble", "rrt"])
def test_a_model_trained_on_a_gpu_goes_anywhere(own: dict[str, Any], method: str, tmp_path: Path) -> None:
    X, y = table(200)
    model = quick(method=method, epochs=3, **own).fit(X, y)
    assert model.networks_[0].device.type == ("cuda" if own else "cpu")
    expected = model.predict_frame(X)
    file = model.save(tmp_path / "model.tailwise")
    again = TailRegressor.load(file, backbone=own.get("backbone"))
    pd.testing.assert_frame_equal(again.predict_frame(X), expected, check_exact=True)
    pd.testing.assert_frame_equal(
        pickle.loads(pickle.dumps(model)).predict_frame(X), expected, check_exact=True
    )
    assert model.networks_[0].device.type == ("cuda" if own else "cpu")  # pickling leaves it where it is
    (tmp_path / "model.pkl").write_bytes(pickle.dumps(model))
    np.save(tmp_path / "x.npy", X)
    code = (
        "import pickle, numpy as np; model = pickle.load(open('model.pkl', 'rb')); "
        "model.predict_frame(np.load('x.npy')).to_pickle('frame.pkl')"
    )
    source = Path(tailwise.__file__).parents[1]
    hidden = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "PYTHONPATH": str(source)}
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=hidden, check=True)
    elsewhere = pd.read_pickle(tmp_path / "frame.pkl")
    pd.testing.assert_frame_equal(elsewhere, expected, check_exact=not own, rtol=1e-3, atol=1e-3)
