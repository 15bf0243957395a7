"""The models of the suite `estimator` on tiny raw tables: predictions, CRPS, and missing packages."""

import importlib.util
from collections.abc import Callable
from functools import partial

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import stats

from tailwise.benchmark import Source
from tailwise.benchmark.data.natural_splits import NaturalSplit, natural_split
from tailwise.benchmark.data.suites import generated
from tailwise.benchmark.run import estimators
from tailwise.benchmark.run.estimators import (
    Estimator,
    Prediction,
    all_estimators,
    choose_estimators,
    fit_catboost,
    fit_conformal,
    fit_lightgbm,
    fit_ngboost,
    fit_tail,
    pinball_crps,
    sqinv_weights,
)
from tailwise.distributions.members import Distribution, Normal
from tailwise.metrics.scores import crps


def mixed_table() -> pd.DataFrame:
    """Numbers, a date, categories with missing values, and column names that LightGBM refuses."""
    table = generated(rows=260, columns=6)
    kinds = table["kind"].astype(object).where(np.arange(260) % 9 != 0, None)
    table["size, [cm]"] = table.pop("x1").where(np.arange(260) % 7 != 0)
    day = pd.Timestamp("2024-01-01") + pd.to_timedelta(np.arange(260), unit="D")
    return table.assign(kind=kinds, day=day, flag=table["x2"] > 0)


@pytest.fixture(scope="module")
def split() -> NaturalSplit:
    return natural_split(Source("mixed", "y", mixed_table), 0)


@pytest.fixture
def few_trees(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CATBOOST_TREES", "LIGHTGBM_TREES", "NGBOOST_TREES"):
        monkeypatch.setattr(estimators, name, 20)


FITS: dict[str, Callable[..., estimators.Predict]] = {
    "catboost": partial(fit_catboost, trees=200),
    "lightgbm": fit_lightgbm,
    "ngboost": fit_ngboost,
    "tailwise": partial(fit_tail, base=None, epochs=8),
}


def check(prediction: Prediction, split: NaturalSplit) -> None:
    """A mean that follows the labels, ordered ends, and a CRPS below the MAE."""
    everything = np.ones(len(split.y_test), bool)
    error = np.abs(prediction.mean - split.y_test).mean()
    assert np.corrcoef(prediction.mean, split.y_test)[0, 1] > 0.3
    assert (prediction.lower <= prediction.upper).all() and prediction.mean.shape == split.y_test.shape
    assert 0 < prediction.crps(split.y_test, everything) < error


@pytest.mark.usefixtures("few_trees")
@pytest.mark.filterwarnings("ignore")  # what other packages warn about is theirs
@pytest.mark.parametrize(
    "package", [pytest.param(name, marks=pytest.mark.slow if name == "ngboost" else ()) for name in FITS]
)
def test_a_raw_table_is_fitted_and_predicted(package: str, split: NaturalSplit) -> None:
    predict = FITS[package](split.x_train, split.y_train, 0)
    prediction = predict(split.x_test)
    check(prediction, split)
    unseen = split.x_test.assign(kind="never seen")
    assert np.isfinite(predict(unseen).mean).all()
    again = FITS[package](split.x_train, split.y_train, 0)(split.x_test)
    np.testing.assert_array_equal(prediction.mean, again.mean)


@pytest.mark.usefixtures("few_trees")
@pytest.mark.filterwarnings("ignore")
def test_label_weights_change_the_fit(split: NaturalSplit) -> None:
    weights = sqinv_weights(split.y_train)
    assert weights.mean() == pytest.approx(1) and weights[split.y_train.argmax()] > 1
    plain, weighted = (
        fit_lightgbm(split.x_train, split.y_train, 0, weighted=w)(split.x_test) for w in (False, True)
    )
    assert weighted.mean.mean() > plain.mean.mean()  # the rare labels are large
    assert not np.array_equal(plain.quantiles, weighted.quantiles)


def gaussian(x: pd.DataFrame, y: np.ndarray, seed: int) -> estimators.Predict:
    """Predicts its one column as the mean, and a spread that is a tenth of the true one."""

    def predict(x: pd.DataFrame) -> Prediction:
        mean, spread = x["mean"].to_numpy().copy(), 0.1 * x["spread"].to_numpy()
        return Prediction(mean, mean - spread, mean + spread, Normal(torch.from_numpy(mean), 1.0))

    return predict


def test_conformal_intervals_cover_and_keep_their_shape() -> None:
    rng = np.random.default_rng(0)
    x = pd.DataFrame({"mean": rng.normal(size=4000), "spread": rng.uniform(0.5, 3, 4000)})
    y = x["mean"].to_numpy() + x["spread"].to_numpy() * rng.normal(size=4000)
    own, conformal = gaussian(x, y, 0), fit_conformal(x[:2000], y[:2000], 0, fit=gaussian)
    shares = []
    for predict in (own, conformal):
        found = predict(x[2000:])
        shares.append(((found.lower <= y[2000:]) & (y[2000:] <= found.upper)).mean())
    assert shares[0] < 0.2 and shares[1] == pytest.approx(0.9, abs=0.03)
    found = conformal(x[2000:])
    ratio = (found.upper - found.lower) / x["spread"][2000:]
    assert ratio.min() == pytest.approx(ratio.max())  # wide where the model is unsure
    np.testing.assert_array_equal(found.mean, own(x[2000:]).mean)


def test_crps_of_quantiles_is_that_of_their_distribution() -> None:
    rng = np.random.default_rng(0)
    quantiles, y = rng.normal(size=(5, 10)), rng.normal(size=5)
    # E|Q - y| - E|Q - Q'| / 2 for Q drawn from the ten quantiles.
    spread = np.abs(quantiles[:, :, None] - quantiles[:, None, :]).mean((1, 2))
    expected = (np.abs(quantiles - y[:, None]).mean(1) - spread / 2).mean()
    assert pinball_crps(quantiles, y) == pytest.approx(expected)
    levels = (np.arange(400) + 0.5) / 400
    fine = np.tile(stats.norm.ppf(levels), (1, 1))
    assert pinball_crps(fine, np.array([0.3])) == pytest.approx(
        crps(Normal(torch.zeros(1, dtype=torch.float64), 1.0), [0.3]), rel=1e-3
    )


def test_a_prediction_needs_something_to_score() -> None:
    with pytest.raises(ValueError, match="needs a distribution or quantiles"):
        Prediction(np.zeros(2), np.zeros(2), np.ones(2)).crps(np.zeros(2), np.ones(2, bool))


def test_a_distribution_without_a_closed_form_is_scored_by_its_quantiles(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    normal = Normal(torch.zeros(3, dtype=torch.float64), 1.0)
    prediction = Prediction(np.zeros(3), np.zeros(3), np.ones(3), normal)
    y, rows = np.array([0.0, 1.0, 2.0]), np.array([True, False, True])
    exact = prediction.crps(y, rows)

    def refuse(distribution: Distribution, y: object) -> float:
        raise TypeError("no closed form")

    monkeypatch.setattr(estimators, "crps", refuse)
    assert prediction.crps(y, rows) == pytest.approx(exact, rel=1e-2)


# -- choosing ------------------------------------------------------------------------------------


def test_every_model_is_there_with_and_without_conformal_intervals() -> None:
    names = [estimator.name for estimator in all_estimators()]
    assert len(names) == len(set(names))
    assert {"tail", "tail-none", "tail-lightgbm", "tail-hist"} <= set(names)
    for name in ("catboost", "catboost-weighted", "lightgbm", "lightgbm-weighted", "ngboost"):
        assert {name, f"{name}+conformal"} <= set(names)


def test_missing_packages_are_named_with_their_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    lines: list[str] = []
    chosen = choose_estimators(report=lines.append)
    assert [estimator.name for estimator in chosen] == ["tail", "tail-none", "tail-hist"]
    assert "catboost needs catboost: pip install 'tailwise[peers]'; it is left out" in lines
    assert any(line.startswith("catboost+conformal needs catboost and crepes: pip") for line in lines)
    with pytest.raises(ImportError, match=r"ngboost needs ngboost: pip install 'tailwise\[peers\]'"):
        choose_estimators(["tail", "ngboost"])
    with pytest.raises(ValueError, match="unknown estimator 'tial'; did you mean 'tail'"):
        choose_estimators(["tial"])


def test_an_estimator_without_packages_misses_none() -> None:
    assert Estimator("own", "Own", gaussian).missing() == []
