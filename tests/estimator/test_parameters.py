"""Every parameter is checked before anything is trained, and the error names it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tailwise import TailRegressor
from tailwise.model import base as preparing
from tailwise.model import fit as fitting
from tests.estimator.small_tables import quick, table


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"method": "vri"}, "did you mean 'vir'"),
        ({"method_options": {"evidance.weight": 1}}, "did you mean 'evidence.weight'"),
        ({"conformal": "region"}, "give 'global' or None"),
        ({"validation_fraction": 0.0}, "validation_fraction"),
        ({"monitor": "balanced_maee"}, "did you mean 'balanced_mae'"),
        ({"backbone": "mpl"}, "did you mean 'mlp'"),
        ({"backbone": None}, "'backbone' parameter of TailRegressor must be"),
        ({"epochs": 1.5}, "'epochs' parameter of TailRegressor must be an int"),
        ({"calibrate": "yes"}, "'calibrate' parameter"),
        ({"feature_dim": 3}, "'auto' sets it: leave it out"),
        ({"few": 200}, "few=200 must not exceed many=100"),
        ({"folds": 61}, "folds=61 needs at least 61 rows, got n_samples=60"),
        ({"emphasis": np.nan}, "'emphasis' parameter"),
        ({"base": "catboost", "method": "smogn"}, "method 'smogn' makes new rows.*pass base=None"),
    ],
    ids=str,
)
def test_wrong_values_are_named_before_any_training(
    options: dict[str, Any], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def train(*args: Any, **kwargs: Any) -> None:
        raise AssertionError("something was trained")

    monkeypatch.setattr(preparing, "CrossFit", train)
    monkeypatch.setattr(fitting, "train", train)
    with pytest.raises(ValueError, match=message.replace("?,", r"\?,")):
        quick(**options).fit(*table(60))


@pytest.mark.parametrize("levels", [[0.5, 1.0], [], [np.nan]], ids=str)
def test_levels_of_quantiles(levels: list[float], plain: TailRegressor) -> None:
    with pytest.raises(ValueError, match="between 0 and 1"):
        plain.predict_quantiles(table(5)[0], levels)
