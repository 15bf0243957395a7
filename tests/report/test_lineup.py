"""Baselines of a model on the same test rows, and what differs."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from catboost import CatBoostRegressor
from scipy.stats import t, ttest_rel
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LinearRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from tailwise import TailRegressor
from tailwise.calibration.interval_scores import constant_interval
from tailwise.distributions.transform import Identity, Log
from tailwise.model.base import CrossFit
from tailwise.model.inputs import TensorInputs
from tailwise.report.scores import CONSTANT, Lineup, Seen, base_title, fit_rival, line_up
from tailwise.report.verdict import (
    Contrast,
    Difference,
    Outcome,
    Standing,
    mean_difference,
    rmse_difference,
    standings_of,
)
from tests.report.made import Table

Rows = tuple[pd.DataFrame, np.ndarray]


def test_a_lineup_has_the_baselines_that_the_model_holds(
    models: dict[str, TailRegressor], lineup: Lineup, new_rows: Rows
) -> None:
    x, y = new_rows
    assert list(lineup.baselines) == ["baseline", "base", "constant"]
    assert lineup.rivals[0].title == "plain network"
    assert len({id(s.bins) for s in lineup.all}) == 1  # the same regions for all
    model = models["vir"]
    assert model.base_ is not None
    held = line_up(model, Seen(model, x), y).booster
    assert held is not None and held.title == "CatBoost"
    np.testing.assert_allclose(held.mean, model.base_[0].predict(model.model_.encode(x).matrix))
    alone = line_up(models["vanilla"], Seen(models["vanilla"], x), y)
    assert list(alone.baselines) == [CONSTANT]


def test_the_constant_is_that_of_training_labels(lineup: Lineup, models: dict[str, TailRegressor]) -> None:
    """The same wherever it is needed: from quantiles that the model keeps."""
    constant, kept = lineup.constant, models["vir"].model_.targets[0].labels.quantiles
    assert constant is not None
    rng = np.random.default_rng(0)
    x = rng.normal(size=(700, 3))
    labels = np.round(2 * np.exp(x[:, 0]) + 0.3 * rng.normal(size=700))  # as the fixture makes them
    for level in (0.5, 0.8, 0.9, 0.95):
        assert constant_interval(kept, level) == constant_interval(labels, level)
    assert (constant.lower[0], constant.upper[0]) == constant_interval(labels, 0.9)
    assert (constant.mean == np.median(labels)).all()


@pytest.mark.parametrize("log", [False, True])
def test_intervals_of_trees_are_those_of_cv_plus(log: bool) -> None:
    """By hand: each fold's prediction of the row, minus and plus the errors of that fold."""
    rng = np.random.default_rng(0)
    x, fold = rng.normal(size=(60, 2)), np.arange(60) % 3
    y = np.where(np.arange(60) % 4 == 0, 0.0, np.exp(x[:, 0] + 0.3 * rng.normal(size=60)))
    transform = Log.of(y) if log else Identity()
    z = transform.latents(y)
    fit = CrossFit(lambda seed: LinearRegression(), x, y, np.ones(60), fold, 0, transform)
    trees, predictions = fit.whole()
    new, low, high = rng.normal(size=(5, 2)), [], []
    for k in range(3):
        model = LinearRegression().fit(x[fold != k], z[fold != k])
        errors = np.abs(z[fold == k] - model.predict(x[fold == k]))
        sample = np.quantile(errors, np.linspace(0, 1, 201), method="higher")
        low.append(model.predict(new)[:, None] - sample)
        high.append(model.predict(new)[:, None] + sample)
    place = int(np.ceil(0.8 * 604)) - 1
    ends = -np.sort(-np.hstack(low))[:, place], np.sort(np.hstack(high))[:, place]
    wanted = [transform.labels(end) for end in ends]
    np.testing.assert_allclose(trees.intervals(new, [0.8])[0], wanted, atol=1e-9)
    assert predictions.shape == (60,)


def test_trees_learn_the_logarithm_where_that_is_better() -> None:
    rng = np.random.default_rng(0)
    x = pd.DataFrame(rng.normal(size=(200, 2)), columns=["a", "b"])
    y = np.exp(3 * x["a"].to_numpy())
    model = TailRegressor(base="hist-gradient-boosting", folds=1, epochs=1, random_state=0).fit(x, y)
    logged, raw = fit_rival(model, x, y), fit_rival(model, x, y - 1)
    assert logged is not None and isinstance(logged.transform, Log) and model.base_ is not None
    assert raw is model.base_[0]  # negative labels have no logarithm, so these are the base
    groups = np.repeat(np.arange(40), 5)
    grouped = fit_rival(model, x, y, np.ones(200), groups)
    assert grouped is not None and len(grouped.models) == 5
    weighted = fit_rival(model, x, y, weighted=True)
    assert weighted is not None and isinstance(weighted.transform, Identity)


def test_where_there_is_nothing_to_fit_trees_to(models: dict[str, TailRegressor], new_rows: Rows) -> None:
    x, y = new_rows
    plain = models["vanilla"]
    assert fit_rival(plain, x.assign(a=0.0, b=0.0, c=0.0), y) is None  # no column varies
    assert fit_rival(plain, x[:9], y[:9]) is None  # too few rows
    own = TailRegressor()
    own.model_ = replace(plain.model_, inputs=TensorInputs())  # of a backbone of the user's own
    assert fit_rival(own, x, y) is None


def test_a_rival_is_saved_with_its_model(held: TailRegressor, new_rows: Rows, tmp_path: Path) -> None:
    x, y = new_rows
    again = TailRegressor.load(held.save(tmp_path / "m"))
    first, second = (line_up(m, Seen(m, x), y).baselines["base"] for m in (held, again))
    np.testing.assert_array_equal(first.mean, second.mean)
    np.testing.assert_array_equal(first.upper, second.upper)


@pytest.mark.parametrize(
    ("base", "title"),
    [
        (make_pipeline(SimpleImputer(), StandardScaler(), LinearRegression()), "linear model"),
        (HistGradientBoostingRegressor(max_iter=2), "boosted trees"),
        (CatBoostRegressor(iterations=2, verbose=False, allow_writing_files=False), "CatBoost"),
    ],
)
def test_a_base_is_called_the_same_after_it_was_in_a_file(base: Any, title: str, tmp_path: Path) -> None:
    x = np.random.default_rng(0).normal(size=(40, 2))
    model = TailRegressor(base=base, folds=1, epochs=1, random_state=0).fit(x, x[:, 0])
    loaded = TailRegressor.load(model.save(tmp_path / "model"))
    for one in (model, loaded):
        assert one.base_ is not None
        assert base_title(one.base_[0].models[0]) == title


# -- differences ------------------------------------------------------------------------------------

LOWER, HIGHER = Difference(1.0, 2.0, 0.5, 50), Difference(2.0, 1.0, 0.5, 50)
SLIGHTLY_LOWER, SLIGHTLY_HIGHER = Difference(1.0, 1.1, 0.5, 50), Difference(1.1, 1.0, 0.5, 50)


def outcome(mae: Difference, rmse: Difference) -> Outcome:
    return Contrast("few", mae, rmse, LOWER).outcome


def test_a_region_is_better_only_if_no_measure_rises() -> None:
    assert outcome(LOWER, LOWER) == outcome(LOWER, SLIGHTLY_LOWER) == "better"
    assert outcome(SLIGHTLY_LOWER, LOWER) == "better"
    assert outcome(LOWER, SLIGHTLY_HIGHER) == outcome(LOWER, HIGHER) == "mixed"
    assert outcome(HIGHER, HIGHER) == outcome(HIGHER, SLIGHTLY_HIGHER) == "worse"
    assert outcome(HIGHER, SLIGHTLY_LOWER) == "mixed"
    assert outcome(SLIGHTLY_LOWER, SLIGHTLY_HIGHER) == "undecided"


def standing(rival: str, **outcomes: Difference) -> Standing:
    return Standing(
        rival, tuple(Contrast(r, d, d, d) for r, d in outcomes.items()), Contrast("all", *[LOWER] * 3)
    )


def test_a_standing_is_what_all_regions_say_together() -> None:
    near = Difference(1.0, 1.01, 0.02, 50)
    assert standing("a", many=SLIGHTLY_LOWER, few=LOWER).ahead
    for few in (HIGHER, SLIGHTLY_LOWER):
        assert not standing("a", many=SLIGHTLY_LOWER, few=few).ahead
    assert not standing("a", many=HIGHER, few=LOWER).ahead and not standing("a").ahead
    assert standing("a", many=near, few=near).close
    assert not standing("a", many=near, few=SLIGHTLY_LOWER).close and not standing("a").close
    assert standing("a", many=HIGHER, few=LOWER).regions("better") == ["few"]


def test_regions_with_few_rows_are_left_out() -> None:
    table = Table.of(100, 9, 30)
    lineup = Lineup(table.model(), {"base": table.model(seed=3, title="b")})
    (found,) = standings_of(lineup)
    assert [c.region for c in found.contrasts] == ["many", "few"] and found.overall.mae.n == 139
    assert found.intervals("worse") == []


def test_pairs_of_errors_are_compared_row_by_row() -> None:
    ours, theirs = np.array([1.0, 2.0, 3.0]), np.array([2.0, 3.0, 5.0])
    change = mean_difference(ours, theirs, confidence=0.95)
    assert (change.ours, change.n, change.value) == (2.0, 3, pytest.approx(-4 / 3))
    textbook = ttest_rel(ours, theirs)
    assert change.value + change.half == pytest.approx(textbook.confidence_interval(0.95).high)
    assert change.outcome == "undecided" and textbook.pvalue > 0.05  # three rows are few
    assert mean_difference(np.tile(ours, 9), np.tile(theirs, 9)).outcome == "better"
    one = mean_difference(ours[:1], theirs[:1])
    assert one.value == -1 and one.outcome == "undecided"


def test_root_mean_squares_are_compared_as_a_bootstrap_over_rows_would() -> None:
    rng = np.random.default_rng(0)
    ours, theirs = np.abs(rng.normal(0, 1, 400)), np.abs(rng.normal(0, 1.2, 400))
    found = rmse_difference(ours, theirs, confidence=0.99)
    assert found.ours == pytest.approx(math.sqrt((ours**2).mean()))
    drawn = rng.integers(0, 400, size=(4000, 400))
    spread = (np.sqrt((ours[drawn] ** 2).mean(1)) - np.sqrt((theirs[drawn] ** 2).mean(1))).std()
    assert found.half == pytest.approx(t.ppf(0.995, 399) * spread, rel=0.05)
    assert found.outcome == "better"
    assert found.bound == pytest.approx((abs(found.value) + found.half) / found.theirs)
    exact = rmse_difference(np.zeros(3), np.zeros(3))
    assert (exact.value, exact.half, exact.bound) == (0, 0, math.inf)
    assert rmse_difference(ours[:0], theirs[:0]).n == 0
