"""Predictions, intervals, tables and scores of TailRegressor agree with one another."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LinearRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures, StandardScaler

from tailwise import TailRegressor
from tailwise.distributions.members import NIG
from tests.estimator.small_tables import quick, table


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
    out = model.predict_frame(x)
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


def test_where_training_rows_are_missing_is_epistemic() -> None:
    """No training row has x between -1 and 1; networks and models of the base disagree there."""
    rng = np.random.default_rng(0)
    x = rng.choice([-1, 1], 400) * rng.uniform(1, 3, 400)
    y = np.sin(2 * x) + 0.1 * rng.normal(size=400)
    base = make_pipeline(StandardScaler(), PolynomialFeatures(14), LinearRegression())
    model = TailRegressor(base=base, epochs=2, random_state=0).fit(x[:, None], y)
    hole, inside = (
        model.predict_frame(np.linspace(*ends, 100)[:, None])["epistemic_std"].mean()
        for ends in ((-0.8, 0.8), (1.2, 2.8))
    )
    assert hole > 2 * inside


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


@pytest.mark.parametrize("conformal", ["global", None])
def test_intervals_cover_new_rows(conformal: str | None) -> None:
    fresh, truth = table(3000, seed=9)
    covered = []
    for seed in range(4 if conformal else 1):
        model = quick(conformal=conformal, random_state=seed, epochs=1)
        model.fit(*table(600, seed=seed))
        lower, upper = model.predict_interval(fresh, 0.9).T
        covered.append(((truth >= lower) & (truth <= upper)).mean())
    assert np.mean(covered) > (0.88 if conformal else 0.5)
    text = model.explain_intervals()
    assert ("distribution itself" in text) == (conformal is None)


@pytest.mark.parametrize(("rows", "words"), [(12, "too small"), (200, "approximate"), (600, "")])
def test_intervals_say_which_rows_they_rest_on(rows: int, words: str, tmp_path: Path) -> None:
    """Only rows that were given apart have been seen by no step of a fit."""
    model = quick(epochs=1).fit(*table(rows), eval_set=None if words else table(300, seed=5))
    said = model.explain_intervals()
    assert said.startswith("At least 0.9 of new rows") if not words else words in said.splitlines()[0]
    model.save(tmp_path / "m")
    assert TailRegressor.load(tmp_path / "m").explain_intervals() == said


def test_a_row_is_predicted_alike_whatever_rows_are_beside_it() -> None:
    x, y = table(60)
    model = quick(epochs=1, folds=2).fit(x, np.c_[y, -y])
    together = model.predict_interval(x, emphasis=0.5)
    for row in (0, 59):
        alone = model.predict_interval(x[[row]], emphasis=0.5)[0]
        np.testing.assert_allclose(alone, together[row], rtol=1e-12)  # float32 would be off by 1e-7
    with pytest.raises(ValueError, match="no rows to predict"):
        quick(epochs=1).fit(pd.DataFrame(x), y).predict(pd.DataFrame(x)[:0])
