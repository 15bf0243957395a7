"""Fitted bases come back to the last bit; those that no file can hold are refused by `save`."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from catboost import CatBoostRegressor
from lightgbm import LGBMRegressor
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.ensemble import HistGradientBoostingRegressor, RandomForestRegressor
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LassoCV, Ridge
from sklearn.neighbors import KNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler

from tailwise import TailRegressor
from tailwise.files.bases import BaseState
from tailwise.files.codec import decoded, encoded
from tailwise.model.base import CrossFit, CrossFitted, resolve_bases
from tests.estimator.small_tables import quick, table

KINDS: dict[str, Any] = {
    "catboost": "catboost",
    "lightgbm": "lightgbm",
    "histogram": HistGradientBoostingRegressor(max_iter=4),
    "quantiles": HistGradientBoostingRegressor(max_iter=4, loss="quantile", quantile=0.4),
    "pipeline": make_pipeline(SimpleImputer(), StandardScaler(), Ridge()),
    "linear": make_pipeline(SimpleImputer(strategy="median"), LassoCV(cv=3)),
}


def fitted(base: Any, rows: int = 200, folds: int = 2) -> CrossFitted:
    x, y = table(rows)
    x[::9, 1] = np.nan
    make, *_ = resolve_bases(base, rows)
    return CrossFit(make, x, y, np.ones(rows), np.arange(rows) % folds, 0).whole()[0]


@pytest.mark.parametrize("kind", KINDS)
def test_bases_come_back_to_the_last_bit(kind: str, few_trees: None) -> None:
    base = fitted(KINDS[kind])
    content = encoded(BaseState.of(base), {})
    loaded = decoded(BaseState, content)[0].base()
    x, _ = table(300, seed=1)
    x[::9, 1] = np.nan
    np.testing.assert_array_equal(loaded.predict(x), base.predict(x))
    for other in (loaded, fitted(KINDS[kind])):  # also fitted once more, with the same seed
        assert encoded(BaseState.of(other), {}) == content


# -- saved models ----------------------------------------------------------------------------------


class Own(RegressorMixin, BaseEstimator):
    def fit(self, X: Any, y: Any) -> Own:
        self.mean_ = float(np.mean(y))
        return self

    def predict(self, X: Any) -> Any:
        return np.full(len(X), self.mean_)


@pytest.mark.parametrize(
    ("base", "why"),
    [
        (Own(), "it is of no known package"),
        (KNeighborsRegressor(), "it ends with KNeighborsRegressor"),
        (RandomForestRegressor(2), "it ends with RandomForestRegressor"),
        (make_pipeline(FunctionTransformer(lambda X: X), Ridge()), "it holds FunctionTransformer"),
        (make_pipeline(SimpleImputer(add_indicator=True), Ridge()), "needs a number for each column"),
        (HistGradientBoostingRegressor(max_iter=2, categorical_features=[0]), "it has categorical features"),
        (
            CatBoostRegressor(iterations=2, grow_policy="Depthwise", verbose=False),
            "than symmetric trees",
        ),
        (LGBMRegressor(n_estimators=2, linear_tree=True, verbosity=-1), "changes its predictions"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_base_that_no_file_can_hold_is_refused_by_save(base: Any, why: str, tmp_path: Path) -> None:
    x, y = table(60)
    x = np.round(np.abs(2 * x))
    if "indicator" in str(base):
        x[0, 1] = np.nan
    model = quick(base=base, epochs=1).fit(x, y)
    with pytest.raises(ValueError, match=rf"the base \w+ cannot be saved: .*{why}.*Bases that can be saved"):
        model.save(tmp_path / "m")
    assert not (tmp_path / "m").exists()


def test_loading_without_the_package(saved_boosted: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda n, *a: None if n == "catboost" else find(n, *a))
    with pytest.raises(ValueError, match=r"cannot be loaded: .*needs the package catboost: pip install"):
        TailRegressor.load(saved_boosted)
