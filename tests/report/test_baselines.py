"""Baselines of a model, on the same test rows."""

from copy import copy
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from tailwise import TailRegressor
from tailwise.model.inputs import TensorInputs
from tailwise.report import baselines
from tailwise.report.baselines import Lineup, Training, fit_booster, line_up, score_constant
from tailwise.report.scoring import Scored

Rows = tuple[pd.DataFrame, np.ndarray]


def test_the_booster_is_the_base_with_conformal_intervals_of_one_width(
    models: dict[str, TailRegressor], catboost: Scored, new_rows: Rows
) -> None:
    x, _ = new_rows
    model = models["vir"]
    assert model.base_ is not None and model.preprocessor_ is not None
    (base,) = model.base_
    assert catboost.title == "CatBoost"
    np.testing.assert_allclose(catboost.mean, base.predict(model.preprocessor_.matrix(x)))
    np.testing.assert_allclose(catboost.width, 2 * base.reach(0.9), rtol=1e-6)
    assert (base.errors <= base.reach(0.9)).mean() == pytest.approx(0.9, abs=0.01)
    assert (catboost.covered[0.9] == catboost.inside).all()


def test_label_weights_change_the_booster(lineup: Lineup) -> None:
    assert lineup.weighted is not None and lineup.booster is not None
    assert lineup.weighted.title == "weighted CatBoost"
    assert np.abs(lineup.weighted.mean - lineup.booster.mean).mean() > 0.01
    assert [s.title for s in lineup.rivals] == ["plain network", "CatBoost", "weighted CatBoost"]
    assert len({id(s.bins) for s in lineup.all}) == 1  # the same regions for all


def test_a_constant_ignores_the_columns(vir: Scored) -> None:
    labels = np.repeat([1.0, 2.0, 9.0], [60, 30, 10])
    constant = score_constant(vir, labels)
    assert (constant.mean == 1).all() and (constant.lower == 1).all() and (constant.upper == 9).all()
    assert constant.reliability()[-2] == ((vir.y >= 1) & (vir.y <= 9)).mean()


def test_pictures_are_not_called_columns(
    models: dict[str, TailRegressor], vir: Scored, monkeypatch: pytest.MonkeyPatch
) -> None:
    pictures = copy(models["vanilla"])
    pictures.model_ = replace(pictures.model_, inputs=TensorInputs())
    monkeypatch.setattr(baselines, "score_model", lambda *_, **__: vir)
    assert [line_up(model, None, None).inputs for model in (models["vanilla"], pictures)] == [
        "columns",
        "inputs",
    ]


def test_a_model_without_a_base_is_compared_with_catboost(
    models: dict[str, TailRegressor], new_rows: Rows
) -> None:
    x, y = new_rows
    alone = line_up(models["vanilla"], x, y)
    assert alone.booster is None and alone.weighted is None and alone.constant is not None
    one = x.assign(a=0.0, b=0.0, c=0.0)
    plain = TailRegressor(base=None, folds=1, epochs=1, random_state=0).fit(one, y)
    assert fit_booster(plain, Training(one, y)) is None  # no column varies
    assert fit_booster(models["vanilla"], Training(x[:9], y[:9])) is None  # too few rows
    own = copy(models["vanilla"])
    own.model_ = replace(own.model_, inputs=TensorInputs())  # of a backbone of the user's own
    assert fit_booster(own, Training(x, y)) is None
    found = fit_booster(models["vanilla"], Training(x[:40], y[:40]))
    assert found is not None and len(found.models) == 5
    again = fit_booster(models["vanilla"], Training(x[:40], y[:40], np.ones(40)))
    assert again is not None and again.reach(0.9) == found.reach(0.9)
