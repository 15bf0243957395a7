"""Every parameter is checked before anything is trained, and the error names it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import Ridge

from tailwise import TailRegressor
from tailwise.model import base as preparing
from tailwise.model import fit as fitting
from tests.estimator.small_tables import quick, table

X, Y = table(60)


@pytest.fixture
def untrained(monkeypatch: pytest.MonkeyPatch) -> None:
    def train(*args: Any, **kwargs: Any) -> None:
        raise AssertionError("something was trained")

    monkeypatch.setattr(preparing, "CrossFit", train)
    monkeypatch.setattr(fitting, "train", train)


@pytest.mark.parametrize(
    ("options", "base_prediction", "message"),
    [
        ({"method": "vri"}, None, "did you mean 'vir'"),
        ({"method_options": {"evidance.weight": 1}}, None, "did you mean 'evidence.weight'"),
        ({"conformal": "region"}, None, "give 'global' or None"),
        ({"validation_fraction": 0.0}, None, "validation_fraction"),
        ({"monitor": "balanced_maee"}, None, "did you mean 'balanced_mae'"),
        ({"backbone": "mpl"}, None, "did you mean 'mlp'"),
        ({"backbone": None}, None, "'backbone' parameter of TailRegressor must be"),
        ({"epochs": 1.5}, None, "'epochs' parameter of TailRegressor must be an int"),
        ({"calibrate": "yes"}, None, "'calibrate' parameter"),
        ({"feature_dim": 3}, None, "'auto' sets it: leave it out"),
        ({"few": 200}, None, "few=200 must not exceed many=100"),
        ({"folds": 61}, None, "folds=61 needs at least 61 rows, got n_samples=60"),
        ({"emphasis": np.nan}, None, "'emphasis' parameter"),
        ({"base": "catboost", "method": "smogn"}, None, "method 'smogn' makes new rows.*pass base=None"),
        ({"base": "catbost"}, None, r"unknown base 'catbost'; did you mean 'catboost'\?, or None"),
        ({"base": "xyz"}, None, "choose one of auto, catboost, hist-gradient-boosting, lightgbm, or None"),
        ({"base": []}, None, "base is an empty list"),
        ({}, Y[1:], r"base_prediction has shape \(59,\), not \(60,\): one value per label"),
        ({}, np.where(np.arange(60) == 7, np.nan, 0), r"base_prediction is nan in row 7 \(1 such values\)"),
        ({"base": "catboost"}, Y, "give base_prediction or base='catboost', not both"),
        ({"base": Ridge()}, Y, r"give base_prediction or base=Ridge\(\), not both"),
        ({"method": "smogn"}, Y, "method 'smogn' makes new rows, which have no base_prediction"),
    ],
)
def test_wrong_values_are_named_before_any_training(
    options: dict[str, Any], base_prediction: Any, message: str, untrained: None
) -> None:
    with pytest.raises(ValueError, match=message):
        quick(**options).fit(X, Y, base_prediction=base_prediction)


@pytest.mark.parametrize("base", [Ridge, 3, ["catboost", None]], ids=str)
def test_what_is_no_regressor_is_no_base(base: Any, untrained: None) -> None:
    with pytest.raises(
        TypeError, match=r"base must be a name, .* regressor with fit and predict, or None, not"
    ):
        quick(base=base).fit(X, Y)


@pytest.mark.parametrize("levels", [[0.5, 1.0], [], [np.nan]], ids=str)
def test_levels_of_quantiles(levels: list[float], plain: TailRegressor) -> None:
    with pytest.raises(ValueError, match="between 0 and 1"):
        plain.predict_quantiles(table(5)[0], levels)
