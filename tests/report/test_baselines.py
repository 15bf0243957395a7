"""Baselines of a model, on the same test rows."""

from copy import copy
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from tailwise import TailRegressor
from tailwise.model.inputs import TensorInputs
from tailwise.report.baselines import (
    BASELINES,
    BOOSTER,
    CONSTANT,
    WEIGHTED,
    Lineup,
    Training,
    fit_boosters,
    line_up,
    score_constant,
)
from tailwise.report.scores import Scores, Seen

Rows = tuple[pd.DataFrame, np.ndarray]


def test_the_booster_is_the_base_with_conformal_intervals_of_one_width(
    models: dict[str, TailRegressor], catboost: Scores, new_rows: Rows
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
    weighted, booster = lineup.baselines[WEIGHTED], lineup.baselines[BOOSTER]
    assert weighted.title == "weighted CatBoost" and np.abs(weighted.mean - booster.mean).mean() > 0.01
    assert [s.title for s in lineup.rivals] == ["plain network", "CatBoost", "weighted CatBoost"]
    assert list(lineup.baselines) == list(BASELINES)
    assert len({id(s.bins) for s in lineup.all}) == 1  # the same regions for all


def test_a_constant_ignores_the_columns(vir: Scores) -> None:
    labels = np.repeat([1.0, 2.0, 9.0], [60, 30, 10])
    constant = score_constant(vir, labels)
    assert (constant.mean == 1).all() and (constant.lower == 1).all() and (constant.upper == 9).all()
    assert constant.reliability()[-2] == ((vir.y >= 1) & (vir.y <= 9)).mean()


def test_a_model_without_a_base_is_compared_with_catboost(
    models: dict[str, TailRegressor], new_rows: Rows
) -> None:
    x, y = new_rows
    plain = models["vanilla"]
    alone = line_up(plain, Seen(plain, x), y)
    assert list(alone.baselines) == [CONSTANT] and alone.inputs == "columns"
    one = x.assign(a=0.0, b=0.0, c=0.0)
    constant = TailRegressor(base=None, folds=1, epochs=1, random_state=0).fit(one, y)
    assert fit_boosters(constant, Training(one, y)) == {}  # no column varies
    assert fit_boosters(plain, Training(x[:9], y[:9])) == {}  # too few rows
    own = copy(plain)
    own.model_ = replace(own.model_, inputs=TensorInputs())  # of a backbone of the user's own
    assert fit_boosters(own, Training(x, y)) == {}
    first = fit_boosters(plain, Training(x[:40], y[:40]))
    assert list(first) == [BOOSTER, WEIGHTED] or list(first) == [WEIGHTED, BOOSTER]
    again = fit_boosters(plain, Training(x[:40], y[:40], np.ones(40)), names=[BOOSTER])[BOOSTER]
    assert len(again.models) == 5 and again.reach(0.9) == first[BOOSTER].reach(0.9)


def test_training_rows_are_encoded_once(
    models: dict[str, TailRegressor], new_rows: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoded, kind = [], type(models["vanilla"].model_)
    encode = kind.encode
    monkeypatch.setattr(kind, "encode", lambda self, X: encoded.append(len(X)) or encode(self, X))
    x, y = new_rows
    fit_boosters(models["vanilla"], Training(x[:40], y[:40]))
    assert encoded == [40]
