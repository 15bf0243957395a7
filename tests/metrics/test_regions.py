"""Metrics by name, by region, balanced over bins and as scikit-learn's scorers."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import stats
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.dummy import DummyRegressor
from sklearn.linear_model import LinearRegression, Ridge
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler

from tailwise import metrics as m
from tailwise.distributions.members import NIG, Normal
from tailwise.labels.bins import LabelBins
from tailwise.metrics.scores import MEANS
from tests.prediction_samples import KINDS, make


@pytest.mark.parametrize("name", ["mae", "rmse", "gm", "nll", "crps", "coverage"])
def test_balanced_equals_a_loop_over_bins(name):
    predicted, y = make("nig", 200)
    bins = LabelBins.from_labels(y[:50], count=12)
    index = bins.index(y).numpy()
    loop = [getattr(m, name)(predicted[index == b], y[index == b]) for b in np.unique(index)]
    assert m.get_metric(f"balanced_{name}")(predicted, y, bins) == pytest.approx(np.mean(loop), rel=1e-12)


# ---------------------------------------------------------------- regions and names


@pytest.fixture
def regional():
    """Bins of 200, 50, 5 and 0 training labels, and 30 test rows in the first three."""
    bins = LabelBins.from_labels(np.repeat([0, 1, 2], [200, 50, 5]), edges=[-0.5, 0.5, 1.5, 2.5, 3.5])
    predicted, _ = make("nig", 30)
    return predicted, np.repeat([0.0, 1.0, 2.0], [15, 10, 5]), bins


def test_by_region_equals_scores_of_the_parts(regional):
    predicted, y, bins = regional
    table = m.by_region(predicted, y, bins, ["mae", "gm", "nll", "ause", "coverage", "balanced_mae"])
    assert table.index.tolist() == ["all", "many", "medium", "few"]
    assert table["n"].tolist() == [30, 15, 10, 5]
    for region, label in (("many", 0), ("medium", 1), ("few", 2)):
        part = y == label
        for name in ("mae", "gm", "nll", "ause", "coverage"):
            alone = getattr(m, name)(predicted[part], y[part])
            assert table.loc[region, name] == pytest.approx(alone), (region, name)
            assert m.get_metric(f"{region}/{name}")(predicted, y, bins) == pytest.approx(alone)
    assert table.loc["all", "mae"] == pytest.approx(m.mae(predicted, y))
    by_bin = table.loc[["many", "medium", "few"], "mae"].mean()
    assert table.loc["all", "balanced_mae"] == pytest.approx(by_bin)


def test_by_bin_has_a_row_for_each_bin_that_occurs(regional):
    predicted, y, bins = regional
    table = m.by_bin(predicted, y[:], bins, ["mae", "ause"])
    assert table.index.tolist() == [0, 1, 2]
    assert table["center"].tolist() == [0, 1, 2]
    assert table["train"].tolist() == [200, 50, 5]
    assert table["n"].tolist() == [15, 10, 5]
    assert table.loc[1, "mae"] == pytest.approx(m.mae(predicted[15:25], y[15:25]))
    assert table.loc[2, "ause"] == pytest.approx(m.ause(predicted[25:], y[25:]))
    few = m.by_bin(predicted[:0], y[:0], bins)
    assert few.empty


def test_every_registered_metric_runs_on_every_kind(regional):
    _, y, bins = regional
    for kind in KINDS:
        predicted, _ = make(kind, 30)
        got = m.evaluate(predicted.rescale(5.0, 1.0), y + 0.1, bins, m.METRICS)
        assert list(got) == list(m.METRICS)
        none = (predicted.epistemic == 0).any()  # then there is no likelihood of the epistemic part
        undefined = {name for name, v in got.items() if not math.isfinite(v)}
        assert undefined == ({x for x in got if x.endswith("gaussian_nll_reference")} if none else set()), (
            kind
        )


def test_metrics_know_which_way_is_better():
    assert m.get_metric("mae").loss(2.0) < m.get_metric("mae").loss(3.0)
    assert m.get_metric("few/pearson").loss(0.9) < m.get_metric("few/pearson").loss(0.8)
    assert m.get_metric("coverage").loss(0.88) < m.get_metric("coverage").loss(0.99)
    assert m.get_metric("gap/nll").loss(-0.1) < m.get_metric("gap/nll").loss(0.5)
    assert m.get_metric("gap/pearson").loss(-0.1) < m.get_metric("gap/pearson").loss(0.5)
    assert m.get_metric("delta1").loss(1.0) < m.get_metric("delta1").loss(0.5)
    assert m.get_metric("mae").loss(math.nan) == math.inf
    assert {x.direction for x in m.METRICS.values()} == {"lower", "higher", "target"}


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("balancd_mae", "did you mean 'balanced_mae'"),
        ("few/peerson", "did you mean 'pearson'"),
        ("fwe/mae", "unknown region 'fwe' in metric 'fwe/mae'; did you mean 'few'"),
    ],
)
def test_unknown_names_are_told_the_nearest(name, message):
    with pytest.raises(ValueError, match=message):
        m.get_metric(name)


def test_no_labels_at_all_is_nan():
    predicted, y = make("nig", 4)
    bins = LabelBins.from_labels(y)
    assert all(math.isnan(m.get_metric(name)(predicted[:0], y[:0], bins)) for name in m.METRICS)


# ---------------------------------------------------------------- rows in parts


MEAN_METRICS = [x.name for x in m.METRICS.values() if x.function in MEANS]


def predictions(n: int = 900) -> tuple[NIG, torch.Tensor, LabelBins]:
    generator = torch.Generator().manual_seed(0)
    y = torch.exp(3 + torch.randn(n, generator=generator)).double()
    parts = [0.5 + torch.rand(n, generator=generator).double() for _ in range(3)]
    gamma = y + torch.randn(n, generator=generator)
    return NIG(gamma, parts[0], 1 + parts[1], parts[2]), y, LabelBins.from_labels(y.numpy())


def test_every_mean_equals_that_of_all_rows() -> None:
    d, y, bins = predictions()
    names = [f"{region}{name}" for name in MEAN_METRICS for region in ("", "few/", "gap/")]
    scores, table = m.RunningScores(bins, names, many=50, few=10), m.RunningScores(bins, many=50, few=10)
    for rows in (*torch.arange(y.numel()).split(137), torch.arange(0)):
        scores.add(d[rows], y[rows])
        table.add(d[rows], y[rows])
    expected = m.evaluate(d, y, bins, names, many=50, few=10)
    assert scores.evaluate() == pytest.approx(expected, rel=1e-9, abs=1e-11, nan_ok=True)
    assert math.isfinite(expected["gap/balanced_nll"])
    whole = m.by_region(d, y, bins, ["mae", "rmse", "nll", "crps", "coverage"], many=50, few=10)
    np.testing.assert_allclose(table.by_region(), whole, rtol=1e-9)


def test_metrics_that_need_all_rows_are_refused() -> None:
    for name in ("ause", "few/spearman", "pearson"):
        with pytest.raises(ValueError, match=f"'{name}' needs all rows at once"):
            m.RunningScores(LabelBins.from_labels([0, 1]), [name])


# ---------------------------------------------------------------- scikit-learn's scorers


class Shifted(RegressorMixin, BaseEstimator):
    """Predicts its first column plus a shift, with label bins and regions as `TailRegressor` has them."""

    def __init__(self, shift=0.0, many=100, few=20):
        self.shift, self.many, self.few = shift, many, few

    def fit(self, X, y):
        each = [LabelBins.from_labels(column) for column in np.atleast_2d(np.transpose(y))]
        self.bins_ = each if len(each) > 1 else each[0]
        return self

    def predict(self, X):
        raise AssertionError("distributions come first")

    def predict_distribution(self, X):
        first = Normal(torch.as_tensor(np.asarray(X)[:, 0] + self.shift), 4.0)
        return [first, first] if isinstance(self.bins_, list) else first


TRAINING = np.repeat([0.0, 1.0, 2.0], [150, 50, 5])
FITTED = Shifted().fit(None, TRAINING)
X_TEST, Y_TEST = np.zeros((4, 1)), np.array([0.0, 0.0, 1.0, 2.0])


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("mae", -3 / 4),
        ("balanced_mae", -1.0),
        ("few/mae", -2.0),
        ("medium/mae", -1.0),
        ("gap/mae", -2.0),
        ("coverage", -0.1),  # all four covered: 1 against 0.9
        ("width", -4 * stats.norm.ppf(0.95)),
    ],
)
def test_a_scorer_is_the_metric_in_the_bins_of_the_training_labels_and_greater_is_better(name, expected):
    assert m.scorer(name)(FITTED, X_TEST, Y_TEST) == pytest.approx(expected)


def test_a_scorer_reaches_the_regressor_within_searches_and_pipelines():
    y = np.tile(TRAINING, 2)
    pipeline = make_pipeline(FunctionTransformer(lambda X: X + 1), "passthrough", Shifted())
    search = GridSearchCV(pipeline, {"shifted__shift": [5.0, -1.0]}, scoring=m.scorer("few/mae"), cv=2)
    search.fit(np.zeros((len(y), 1)), y)
    assert search.best_params_ == {"shifted__shift": -1.0}
    for fitted in (search, search.best_estimator_):  # the features' 1 and the shift of -1 cancel
        assert m.scorer("balanced_mae")(fitted, X_TEST, Y_TEST) == pytest.approx(-1.0)
        assert m.scorer("nll")(fitted, X_TEST, Y_TEST) == pytest.approx(
            stats.norm(0, 2).logpdf(Y_TEST).mean()
        )
    plain = make_pipeline(StandardScaler(), LinearRegression())
    X = np.arange(20.0)[:, None]
    assert m.scorer("mse")(plain.fit(X, 3 * X[:, 0]), X, 3 * X[:, 0] + 2) == pytest.approx(-4.0)


def test_without_bins_of_its_own_a_model_is_scored_in_those_of_y_or_in_given_ones():
    X, y = np.zeros((6, 1)), np.array([0.0, 0.0, 0.0, 0.0, 1.0, 2.0])
    model = DummyRegressor(strategy="constant", constant=0.0).fit(X, y)
    assert m.scorer("balanced_mae")(model, X, y) == pytest.approx(-(0 + 1 + 2) / 3)
    assert math.isnan(m.scorer("many/mae")(model, X, y))  # y has no such bin
    wide = LabelBins.from_labels(y, edges=[-0.5, 0.5, 2.5])
    assert m.scorer("balanced_mae", wide)(model, X, y) == pytest.approx(-(0 + 1.5) / 2)
    # given bins count for more than an estimator's own
    assert m.scorer("balanced_mae", wide)(FITTED, X, y) == pytest.approx(-(0 + 1.5) / 2)


def test_several_targets_score_as_their_mean_each_in_its_own_bins():
    y = np.stack([Y_TEST, 10 * Y_TEST], axis=1)
    model = Shifted().fit(None, np.stack([TRAINING, 10 * TRAINING], axis=1))
    assert m.scorer("balanced_mae")(model, X_TEST, pd.DataFrame(y)) == pytest.approx(-(1 + 10) / 2)
    points = DummyRegressor(strategy="constant", constant=[0.0, 0.0]).fit(X_TEST, y)
    assert m.scorer("balanced_mae")(points, X_TEST, y) == pytest.approx(-(1 + 10) / 2)
    with pytest.raises(ValueError, match="y has 1 targets, but the estimator predicts 2"):
        m.scorer("mae")(model, X_TEST, Y_TEST)


@pytest.mark.parametrize("name", ["few/nll", "balanced_width", "ause", "coverage"])
def test_points_have_no_score_of_uncertainty(name):
    with pytest.raises(ValueError, match=f"metric '{name}' needs predicted uncertainty, which Ridge does"):
        m.scorer(name)(Ridge().fit(X_TEST, Y_TEST), X_TEST, Y_TEST)
    assert m.scorer("crps")(DummyRegressor(strategy="mean").fit(X_TEST, Y_TEST), X_TEST, Y_TEST) < 0
