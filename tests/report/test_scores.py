"""Predictions of new rows, baselines on the same rows, and figures by region and along the label."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from catboost import CatBoostRegressor
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LinearRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from tailwise import TailRegressor
from tailwise.calibration.calibration import Labels
from tailwise.calibration.interval_scores import constant_interval
from tailwise.distributions.members import Normal
from tailwise.distributions.transform import Identity, Log
from tailwise.labels.bins import LabelBins
from tailwise.labels.prior import rarest
from tailwise.model.base import CrossFit
from tailwise.model.inputs import TensorInputs
from tailwise.report.scores import (
    CONSTANT,
    LEVELS,
    Baseline,
    Lineup,
    Scores,
    Seen,
    base_title,
    fit_rival,
    line_up,
)
from tailwise.report.wording import number
from tests.report.conftest import Rows, some


@pytest.fixture
def by_hand() -> Scores:
    """Six rows of two bins: five common labels, and one rare label whose interval misses it."""
    y = np.array([0.0, 0, 0, 0, 0, 4])
    mean = torch.tensor([1.0, -1, 1, -1, 1, 2], dtype=torch.float64)
    distribution = Normal(mean, torch.tensor([1.0, 2, 3, 4, 5, 6], dtype=torch.float64))
    train = np.repeat([0.0, 4.0], [200, 3])
    ends = dict.fromkeys(LEVELS, (mean.numpy() - 1, mean.numpy() + 1.5))
    return Scores(
        "made", y, Labels(LabelBins.from_labels(train), quantiles=train), Baseline(distribution, ends)
    )


def test_figures_by_region_by_hand(by_hand: Scores) -> None:
    table = by_hand.by_region
    assert table["n"].to_dict() == {"all": 6, "many": 5, "medium": 0, "few": 1}
    assert table.loc["many", ["mae", "bias", "coverage", "width"]].tolist() == [1.0, 0.2, 1.0, 2.5]
    assert table.loc[["many", "few"], "interval_score"].tolist() == pytest.approx([2.5, 12.5])
    assert table.loc["few", ["mae", "bias", "coverage", "width"]].tolist() == [2.0, -2.0, 0.0, 2.5]
    assert table["share"].tolist() == pytest.approx([1, 5 / 6, 0, 1 / 6])
    assert table.loc["medium", ["mae", "bias", "coverage", "width"]].isna().all()


def test_points_along_the_label_pool_whole_bins(by_hand: Scores) -> None:
    curve = by_hand.along_label(min_rows=1)
    assert curve[["center", "n", "mae"]].to_numpy().tolist() == [[0, 5, 1], [4, 1, 2]]
    pooled = by_hand.along_label(min_rows=2)  # the last row alone is too few
    assert pooled["n"].tolist() == [6] and pooled["mae"].tolist() == pytest.approx([7 / 6])


def test_sparsification_is_thinned_and_ends_before_the_last_rows(vir: Scores) -> None:
    curves = vir.sparsification(points=20)
    assert curves.error.size == curves.oracle.size == 20
    assert curves.removed[0] == 0 and curves.error[0] == pytest.approx(vir.error.mean())
    assert curves.removed[-1] == pytest.approx(1 - 10 / 300)


def test_scores_agree_with_the_estimators_own(
    models: dict[str, TailRegressor], vir: Scores, new_rows: Rows
) -> None:
    X, y = new_rows
    own = models["vir"].score_by_region(X, y).set_index("region")
    for name in ("mae", "rmse", "nll", "coverage", "width"):
        np.testing.assert_allclose(vir.by_region[name], own[name], rtol=1e-5, equal_nan=True)
    np.testing.assert_allclose(np.stack([vir.lower, vir.upper], 1), models["vir"].predict_interval(X, 0.9))
    assert vir.reliability()[LEVELS.index(0.9)] == pytest.approx(vir.inside.mean())


def test_one_of_several_targets_is_chosen(new_rows: Rows) -> None:
    X, y = new_rows
    model = TailRegressor(epochs=1, random_state=0).fit(X, np.stack([y, 100 - y], 1))
    with pytest.raises(ValueError, match="the model has 2 targets: choose one of them"):
        Seen(model, X).scores(y)
    second = Seen(model, X).scores(100 - y, target=1)
    np.testing.assert_allclose(second.mean, model.predict(X)[:, 1], rtol=1e-6)
    assert second.bins.edges[-1] > 99


def test_rows_are_encoded_and_predicted_once(
    models: dict[str, TailRegressor], new_rows: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = Seen(models["vir"], new_rows[0])
    monkeypatch.setattr(type(rows.model), "encode", None)
    at = [rows.scores(new_rows[1], emphasis=emphasis) for emphasis in (0.0, 1.0)]
    assert (at[0].mean != at[1].mean).any()


# -- the dial ------------------------------------------------------------------------------------


def test_errors_are_those_of_predictions_at_every_emphasis(
    models: dict[str, TailRegressor], vir: Scores, new_rows: Rows
) -> None:
    dial = vir.dial
    assert dial is not None and vir.calibration is not None
    x, y = new_rows
    rare = rarest(y, vir.calibration.labels.density)
    assert rare.sum() == 45  # 15% of 300
    overall, of_rare = dial.curve
    for k in (0, 10):
        setting = dial.settings[k]
        error = np.abs(models["vir"].predict(x, emphasis=setting) - y)
        assert (overall[k], of_rare[k]) == pytest.approx((error.mean(), error[rare].mean()))
        lower, upper = models["vir"].predict_interval(x, emphasis=setting).T
        few, figures = vir.mask("few"), dial.figures["few"]
        assert figures["mae"][k] == number(error[few].mean())
        assert figures["coverage"][k] == f"{((lower <= y) & (y <= upper))[few].mean():.1%}"
        assert figures["width"][k] == number((upper - lower)[few].mean())
    assert dial.point(vir) == (pytest.approx(vir.error.mean()), pytest.approx(vir.error[rare].mean()))


def test_no_dial_without_calibration_or_rows(vir: Scores) -> None:
    assert some(vir, np.arange(300)).dial is None
    assert replace(vir, y=vir.y[:10]).dial is None


# -- baselines -------------------------------------------------------------------------------------


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
