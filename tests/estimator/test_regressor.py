"""TailRegressor keeps scikit-learn's contract, with other methods and in tools of scikit-learn too."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
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
from tests.estimator.small_tables import quick, table


@parametrize_with_checks([TailRegressor(base=None, folds=1, epochs=5, lr=0.03)])
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


UNITS = [(1e-12, 0.0), (1e12, 3e12)]


@cache
def in_own_units(base: str | None, whole: bool) -> TailRegressor:
    x, y = table(200)
    return quick(base=base).fit(x, np.round(4 * y) if whole else y)


@pytest.mark.parametrize(("scale", "shift"), UNITS)
@pytest.mark.parametrize(("base", "whole"), [(None, True), ("catboost", False)])
def test_units_of_the_label_do_not_matter(
    scale: float, shift: float, base: str | None, whole: bool, few_trees: None
) -> None:
    x, y = table(200)
    y = np.round(4 * y) if whole else y
    ours = in_own_units(base, whole)
    theirs = quick(base=base).fit(x, scale * y + shift)
    tolerance = 1e-3 * y.std()
    assert theirs.emphasis_ == ours.emphasis_
    np.testing.assert_allclose((theirs.predict(x) - shift) / scale, ours.predict(x), atol=tolerance)
    np.testing.assert_allclose(
        (theirs.predict_interval(x) - shift) / scale, ours.predict_interval(x), atol=20 * tolerance
    )


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
