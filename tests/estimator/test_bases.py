"""Base regressors: what is accepted, how they are cross-fitted, and what a network makes of them."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from catboost import Pool
from sklearn.base import BaseEstimator, RegressorMixin, clone
from sklearn.compose import TransformedTargetRegressor
from sklearn.dummy import DummyRegressor
from sklearn.ensemble import HistGradientBoostingRegressor, RandomForestRegressor
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LinearRegression, Ridge
from sklearn.pipeline import make_pipeline

from tailwise import TailRegressor
from tailwise.model import base as preparing
from tailwise.model import training as fitting
from tailwise.model.base import BASES, CrossFit, deal_folds, resolve_bases
from tests.estimator.small_tables import frame, quick, table

Array = np.ndarray


class Recorded(RegressorMixin, BaseEstimator):
    """A regressor that predicts what it is told to, and remembers how it was fitted."""

    fits: ClassVar[list[tuple[Array, Array, Array | None]]] = []

    def __init__(self, answer: Any = 0.0) -> None:
        self.answer = answer

    def fit(self, X: Array, y: Array, sample_weight: Array | None = None) -> Recorded:
        self.fits.append((X, y, sample_weight))
        self.fitted_ = True
        return self

    def predict(self, X: Array) -> Any:
        return self.answer(X) if callable(self.answer) else np.full(len(X), self.answer)


@pytest.fixture(autouse=True)
def forget_fits() -> None:
    Recorded.fits.clear()


@pytest.fixture
def untrained(monkeypatch: pytest.MonkeyPatch) -> None:
    def train(*args: Any, **kwargs: Any) -> None:
        raise AssertionError("a network was trained")

    monkeypatch.setattr(fitting, "train", train)


# -- which base ------------------------------------------------------------------------------------


def test_a_regressor_is_cloned_and_seeded() -> None:
    own = RandomForestRegressor(3)
    (make,) = resolve_bases(own, 10)
    first, second = make(5), make(6)
    assert first is not own and own.random_state is None
    assert (first.random_state, second.random_state) == (5, 6)
    (piped,) = resolve_bases(make_pipeline(SimpleImputer(), RandomForestRegressor()), 10)
    assert piped(7)[-1].random_state == 7
    (fixed,) = resolve_bases(RandomForestRegressor(random_state=3), 10)
    assert fixed(7).random_state == 3


# -- cross-fitting ---------------------------------------------------------------------------------


def test_cross_fitting_by_hand() -> None:
    """The mean of the other folds, for rows of a fold; the mean over folds, for new rows."""
    labels, fold = np.array([1.0, 2.0, 4.0, 9.0]), np.array([0, 1, 0, 1])
    fit = CrossFit(lambda seed: DummyRegressor(), np.zeros((4, 1)), labels, np.ones(4), fold, 0)
    base, held_out = fit.whole()
    np.testing.assert_allclose(held_out, [5.5, 2.5, 5.5, 2.5])
    np.testing.assert_allclose(base.predict(np.zeros((2, 1))), [4.0, 4.0])
    assert base.spread == pytest.approx(((4.5**2 + 0.5**2 + 1.5**2 + 6.5**2) / 4) ** 0.5)


def test_a_base_sees_standardized_labels_of_the_other_folds_only() -> None:
    x, y = table(50)
    fold = deal_folds(y, 0)
    base, _ = CrossFit(lambda seed: Recorded(), x, 100 * y + 7, np.ones(50), fold, 0).whole()
    assert len(base.models) == len(Recorded.fits) == 5
    for k, (matrix, labels, weight) in enumerate(Recorded.fits):
        np.testing.assert_array_equal(matrix, x[fold != k])
        np.testing.assert_allclose(labels, ((y - y.mean()) / y.std())[fold != k])
        assert weight is None


def test_trees_end_where_the_held_out_fold_stops_gaining(monkeypatch: pytest.MonkeyPatch) -> None:
    """On noise that is early; the same trees as CatBoost's own, which is given that fold to stop by."""
    monkeypatch.setattr(preparing, "TREES", 300)
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(60, 2)), rng.normal(size=60)
    weight, fold = rng.uniform(1, 2, 60), np.arange(60) % 2
    base, held_out = CrossFit(BASES["catboost"], x, y, weight, fold, 3).whole()
    latent, train = (y - y.mean()) / y.std(), fold != 0
    expected = BASES["catboost"](3)
    expected.fit(
        Pool(x[train], latent[train], weight=weight[train]),
        eval_set=Pool(x[~train], latent[~train], weight=weight[~train]),
    )
    assert base.models[0].tree_count_ == expected.tree_count_ < 300
    np.testing.assert_allclose(held_out[~train], y.mean() + y.std() * expected.predict(x[~train]))


def test_all_trees_judge_and_those_behind_the_best_one_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preparing, "TREES", 300)
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(60, 2)), rng.normal(size=60)
    fit = CrossFit(BASES["catboost"], x, y, np.ones(60), np.arange(60) % 2, 3).fit([0], every_tree=True)
    held, errors = fit.fold == 0, []
    assert fit.models[0].tree_count_ == 300
    for latent in fit.models[0].staged_predict(x[held]):
        errors.append(((y.mean() + y.std() * latent - y[held]) ** 2).mean())
    assert fit.stopped().models[0].tree_count_ == 1 + np.argmin(errors)
    assert ((fit.held_out[held] - y[held]) ** 2).mean() == pytest.approx(min(errors))


def test_a_base_that_takes_no_weights_gets_repeated_rows() -> None:
    x, y = table(50)
    weight, fold = np.where(y > 1, 3.0, 1.0), deal_folds(y, 0)

    def make(seed: int) -> Any:
        return TransformedTargetRegressor(LinearRegression())

    _, found = CrossFit(make, x, y, weight, fold, 0).whole()
    _, expected = CrossFit(lambda seed: LinearRegression(), x, y, weight, fold, 0).whole()
    np.testing.assert_allclose(found, expected)
    with pytest.raises(ValueError, match="the base TransformedTargetRegressor takes no sample_weight"):
        CrossFit(make, x, y, weight + 0.5, fold, 0).whole()


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (np.nan, "the base Recorded predicted nan for 12 of 12 rows"),
        (lambda X: np.zeros((len(X), 2)), r"the base Recorded predicted an array of shape \(12, 2\)"),
    ],
    ids=["nan", "columns"],
)
def test_predictions_that_are_no_numbers_per_row(answer: Any, message: str, untrained: None) -> None:
    with pytest.raises(ValueError, match=message):
        quick(base=Recorded(answer)).fit(*table(60))


def test_rows_that_all_are_the_same(few_trees: None) -> None:
    with pytest.raises(ValueError, match="a base needs more than one sample"):
        quick(base="lightgbm").fit(np.ones((9, 2)), np.ones(9))
    _, y = table(120)
    constant = quick(base="catboost").fit(np.ones((120, 2)), y)  # no column varies
    assert constant.base_ is None and np.ptp(constant.predict(np.ones((5, 2)))) < 1e-9
    missing = np.full((120, 1), np.nan)
    missing[1:3] = 1.0
    assert quick(base="lightgbm").fit(missing, y).base_ is not None


def test_a_single_label_that_differs(few_trees: None) -> None:
    """The fold without it has labels of one value, which CatBoost refuses by default."""
    x, _ = table(120)
    model = quick(base="catboost").fit(x, np.eye(1, 120)[0])
    assert np.isfinite(model.predict_interval(x)).all()


# -- several regressors, and quantiles -------------------------------------------------------------


class Spread(RegressorMixin, BaseEstimator):
    """A stand-in for a foundation model: labels of the nearest rows, as quantiles and as a mean."""

    def __init__(self, columns: int = 3) -> None:
        self.columns = columns

    def fit(self, X: Array, y: Array) -> Spread:
        self.rows_, self.labels_ = X, y
        return self

    def _near(self, X: Array) -> Array:
        distance = ((X[:, None] - self.rows_) ** 2).sum(-1)
        return self.labels_[np.argsort(distance, axis=1)[:, :20]]

    def predict(self, X: Array) -> Array:
        return self._near(X).mean(axis=1)

    def predict_quantiles(self, X: Array, levels: list[float]) -> Array:
        return np.quantile(self._near(X)[:, : self.columns * 7], levels[: self.columns + 2], axis=1).T


def test_weights_of_several_regressors() -> None:
    """Of the truth, noise and a constant, only the truth counts; of two halves of it, both by half."""
    x, y = table(200)
    half = np.where(np.arange(200) % 2, 0.4, -0.4)
    answers = [lambda X: X[:, 0], lambda X: X[:, 1], lambda X: np.zeros(len(X))]
    matrix, fold = np.c_[(y - y.mean()) / y.std(), x[:, 1], half], deal_folds(y, 0)
    makers = [lambda seed, answer=answer: Recorded(answer) for answer in answers]
    fits = [CrossFit(make, matrix, y, np.ones(200), fold, 0) for make in makers]
    base, held_out = preparing.joined(fits)
    assert base.weights == (1.0,) and len(base.models) == 5
    np.testing.assert_allclose(held_out, y[:, None])

    halves = [lambda X: X[:, 0] + X[:, 2], lambda X: X[:, 0] - X[:, 2]]
    makers = [lambda seed, answer=answer: Recorded(answer) for answer in halves]
    base, held_out = preparing.joined([CrossFit(m, matrix, y, np.ones(200), fold, 0) for m in makers])
    np.testing.assert_allclose(base.weights, 0.5, atol=1e-3)
    np.testing.assert_allclose(base.predict(matrix), held_out[:, 0])
    assert base.shares.sum() == pytest.approx(1) and len(base.shares) == len(base.models) == 10


def test_a_list_of_bases_in_a_fit(few_trees: None, tmp_path: Path) -> None:
    x, y = table(120)
    model = quick(base=["catboost", Ridge()], target_transform=None).fit(x, y)
    base = model.base_[0]
    assert len(base.models) == 5 * len(base.weights) and sum(base.weights) == pytest.approx(1)
    loaded = TailRegressor.load(model.save(tmp_path / "m"))
    np.testing.assert_array_equal(loaded.predict_interval(x), model.predict_interval(x))
    np.testing.assert_array_equal(clone(model).fit(x, y).predict(x), model.predict(x))


def test_networks_see_the_quantiles_of_a_base(few_trees: None) -> None:
    x, y = table(120)
    labels = np.c_[y, -y]
    alone = quick(base="catboost").fit(x, labels)
    model = quick(base=["catboost", Spread()]).fit(x, labels)
    offset = model.model_.base.offset(x, 120, None)
    assert offset.shape == (120, 2 + 2 * 5) and (np.diff(offset[:, 2:7]) >= 0).all()
    sizes = [sum(p.numel() for p in one.networks_[0].parameters()) for one in (alone, model)]
    assert sizes[0] < sizes[1]  # ten more inputs
    assert np.isfinite(model.predict_interval(x)).all()
    moved = quick(base=["catboost", Spread()]).fit(x, 1000 * labels + 5)
    scale = 1000 * np.std(y)
    np.testing.assert_allclose(moved.predict(x), 1000 * model.predict(x) + 5, atol=1e-3 * scale)


def test_quantiles_that_are_none(untrained: None) -> None:
    with pytest.raises(
        ValueError, match=r"predict_quantiles of the base Spread must return finite .* \(12, 5\)"
    ):
        quick(base=Spread(columns=2)).fit(*table(60))


# -- in a fit --------------------------------------------------------------------------------------


def test_an_untrained_network_predicts_the_base() -> None:
    x, y = table(120)
    model = quick(base=Ridge(), epochs=1, lr=1e-12, emphasis=0.0).fit(x, y)
    np.testing.assert_allclose(model.predict(x), model.base_[0].predict(x), atol=1e-6 * y.std())


@pytest.mark.parametrize("name", sorted(BASES))
def test_bases_by_name(name: str, few_trees: None, monkeypatch: pytest.MonkeyPatch) -> None:
    few = {**BASES, "hist-gradient-boosting": lambda seed: HistGradientBoostingRegressor(max_iter=10)}
    monkeypatch.setattr(preparing, "BASES", few)
    data, y = frame()
    model = quick(base=name).fit(data, y)
    assert model.base_ is not None and np.corrcoef(model.predict(data), y)[0, 1] > 0.6
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda n, *a: None if n == name else find(n, *a))
    if name != "hist-gradient-boosting":
        with pytest.raises(ImportError, match=f"base='{name}' needs the package {name}: pip install {name}"):
            model.fit(data, y)
