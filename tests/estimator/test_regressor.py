"""TailRegressor keeps scikit-learn's contract, and its own."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import sparse
from sklearn.base import clone
from sklearn.compose import TransformedTargetRegressor
from sklearn.model_selection import GridSearchCV, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import tailwise
from tailwise import LabelBins, TailRegressor
from tailwise.core.distributions import NIG, Mixture
from tailwise.estimator.parameters import predicting_device
from tailwise.uncertainty.scaling import NIGScaling

torch.set_num_threads(1)
FAST = {"epochs": 8, "random_state": 0}


@parametrize_with_checks([TailRegressor(epochs=30, patience=10)])
def test_scikit_learn_contract(estimator: Any, check: Any) -> None:
    check(estimator)


def table(rows: int = 600, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, 3))
    return x, np.exp(x[:, 0]) + 0.3 * x[:, 1] + 0.1 * rng.normal(size=rows)


def frame(rows: int = 400) -> tuple[pd.DataFrame, pd.Series]:
    rng = np.random.default_rng(1)
    kind = rng.choice(["a", "b", "c"], rows)
    number = rng.normal(size=rows)
    data = pd.DataFrame(
        {
            "number": np.where(rng.random(rows) < 0.1, np.nan, number),
            "kind": pd.Categorical(kind),
            "text": np.where(rng.random(rows) < 0.1, None, kind),
            "flag": rng.random(rows) < 0.5,
            "day": pd.date_range("2024-01-01", periods=rows, freq="h"),
            "empty": np.nan,
            "same": 1.0,
        },
        index=[f"row{i}" for i in range(rows)],
    )
    return data, pd.Series(np.exp(number) + (kind == "a"), index=data.index, name="price")


# -- what comes out ----------------------------------------------------------------------------


def test_outputs_agree_with_one_another() -> None:
    x, y = table()
    model = TailRegressor(**FAST).fit(x, y)
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
    out = model.predict_frame(pd.DataFrame(x, index=range(7, 7 + len(x))).to_numpy())
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


def test_noise_is_told_from_a_lack_of_data_as_the_network_does() -> None:
    """Factors that calibration likes may trade one part for the other; the table does not."""
    x, y = table()
    model = TailRegressor(**FAST).fit(x, y)
    calibrator = model.calibrators_[0]
    calibrated = model.predict_frame(x)
    model.calibrators_ = [replace(calibrator, scaling=None)]
    own = model.predict_frame(x)
    model.calibrators_ = [replace(calibrator, scaling=NIGScaling(w_nu=1e-3, w_beta=0.1))]
    extreme = model.predict_frame(x)
    for frame in (calibrated, extreme):
        np.testing.assert_allclose(
            frame["epistemic_std"] / frame["std"], own["epistemic_std"] / own["std"], rtol=1e-4
        )


def test_score_by_region_by_hand() -> None:
    x, y = table()
    model = TailRegressor(**FAST).fit(x, y)
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


@pytest.mark.parametrize("conformal", ["global", "region", None])
@pytest.mark.parametrize("calibrate", [True, False])
def test_intervals_cover_new_rows(conformal: str | None, calibrate: bool) -> None:
    x, y = table(1500)
    fresh, truth = table(3000, seed=9)
    model = TailRegressor(conformal=conformal, calibrate=calibrate, **FAST).fit(x, y)
    lower, upper = model.predict_interval(fresh, 0.9).T
    covered = ((truth >= lower) & (truth <= upper)).mean()
    assert covered > (0.86 if conformal else 0.5)
    text = model.explain_intervals()
    assert ("distribution itself" in text) == (conformal is None)


@pytest.mark.slow
def test_conformal_coverage_over_repetitions() -> None:
    """Over fresh held-out parts the 90% interval holds at least 90% on average."""
    covered = []
    for seed in range(12):
        x, y = table(500, seed=seed)
        model = TailRegressor(epochs=3, conformal="global", random_state=seed).fit(x, y)
        fresh, truth = table(800, seed=1000 + seed)
        lower, upper = model.predict_interval(fresh, 0.9).T
        covered.append(((truth >= lower) & (truth <= upper)).mean())
    assert np.mean(covered) > 0.9 - 2 * np.std(covered) / np.sqrt(len(covered))


# -- what goes in ------------------------------------------------------------------------------


def test_a_table_as_users_have_it() -> None:
    data, y = frame()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = TailRegressor(**FAST).fit(data, y)
        out = model.predict_frame(new := data.iloc[:5])
    assert list(out.index) == list(new.index)
    assert np.isfinite(out["prediction"]).all()
    assert list(model.feature_names_in_) == list(data.columns)
    with pytest.raises(ValueError, match="feature names"):
        model.predict(data.rename(columns={"number": "numbre"}))


@pytest.mark.slow
def test_containers_give_the_same_model() -> None:
    x, y = table(300)
    expected = TailRegressor(**FAST).fit(x, y).predict(x)
    others = [
        x.tolist(),
        torch.as_tensor(x),
        sparse.csr_matrix(x),
        np.asfortranarray(x),
        x.astype(np.longdouble),
    ]
    others += [torch.tensor(x, requires_grad=True), torch.as_tensor(x).to_sparse()]
    for other in others:
        np.testing.assert_allclose(TailRegressor(**FAST).fit(other, y).predict(other), expected, rtol=1e-6)
    for labels in (y.tolist(), torch.as_tensor(y), pd.Series(y)):
        np.testing.assert_allclose(TailRegressor(**FAST).fit(x, labels).predict(x), expected, rtol=1e-6)


def test_tensors_of_half_precision() -> None:
    x, y = table(60)
    rounded = torch.as_tensor(x).bfloat16(), torch.as_tensor(y).bfloat16()
    expected = TailRegressor(**FAST).fit(*(t.double() for t in rounded)).predict(rounded[0].double())
    np.testing.assert_array_equal(TailRegressor(**FAST).fit(*rounded).predict(rounded[0]), expected)


def test_tables_of_other_kinds_are_told_what_to_become() -> None:
    import polars as pl
    import pyarrow as pa

    x, y = table(60)
    columns = {name: x[:, i] for i, name in enumerate("abc")}
    with (
        pytest.raises(TypeError, match="polars's LazyFrame: turn it into a DataFrame"),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore")
        TailRegressor(**FAST).fit(pl.LazyFrame(columns), y)
    with pytest.raises(TypeError, match="pyarrow's Table: turn it into a DataFrame"):
        TailRegressor(**FAST).fit(pa.table(columns), y)
    with pytest.raises(ValueError, match="give text as columns of a DataFrame"):
        TailRegressor(**FAST).fit(np.array([[1.0, "a"]] * 60, dtype=object), y)
    infinite = pl.DataFrame({**columns, "text": ["a", "b", "c"] * 20}).with_columns(
        pl.when(pl.int_range(60) == 41).then(float("inf")).otherwise(pl.col("b")).alias("b")
    )
    with pytest.raises(ValueError, match="column 'b' holds an infinity in row 41"):
        TailRegressor(**FAST).fit(infinite, y)


def test_polars() -> None:
    import polars as pl

    data, y = frame(200)
    text = [None if t is None else str(t) for t in data["text"]]
    kind = data["kind"].astype(str).tolist()
    table = pl.DataFrame(
        {
            "number": data["number"].to_numpy(),
            "missing": [None if i % 3 == 0 else float(i) for i in range(200)],
            "empty": pl.Series([None] * 200, dtype=pl.Float64),
            "text": text,
            "kind": pl.Series(kind, dtype=pl.Categorical),
            "enum": pl.Series(kind, dtype=pl.Enum(["a", "b", "c"])),
            "flag": data["flag"].to_numpy(),
            "day": data["day"].dt.to_pydatetime().tolist(),
        }
    )
    model = TailRegressor(**FAST).fit(table, pl.Series("price", y.to_numpy()))
    assert list(model.feature_names_in_) == table.columns and model.target_names_ == ["price"]
    out = model.predict_frame(table[:4])
    assert out.shape == (4, 7) and np.isfinite(out.drop(columns="region").to_numpy()).all()
    with pytest.raises(ValueError, match="feature names"):
        model.predict(table.rename({"number": "numbre"}))
    twice = pl.concat([table, table[:50]])
    weight = np.r_[np.full(50, 2.0), np.ones(150)]
    labels = y.to_numpy()
    weighted = TailRegressor(**FAST).fit(table, labels, sample_weight=weight).predict(table)
    repeated = TailRegressor(**FAST).fit(twice, np.r_[labels, labels[:50]]).predict(table)
    np.testing.assert_allclose(weighted, repeated)


def test_models_of_pandas_take_polars_and_the_other_way_round(tmp_path: Path) -> None:
    import polars as pl

    data, y = frame(200)
    table = pl.from_pandas(data)
    for own, other in ((data, table), (table, data)):
        model = TailRegressor(epochs=1, random_state=0).fit(own, y.to_numpy())
        model.save(tmp_path / "m", overwrite=True)
        expected = model.predict(own)
        for fitted in (model, TailRegressor.load(tmp_path / "m")):
            np.testing.assert_array_equal(fitted.predict(other), expected)


def test_several_targets() -> None:
    x, y = table(500)
    both = np.c_[y, 1000 * x[:, 1] - 5]
    model = TailRegressor(epochs=25, random_state=0, lr=3e-3).fit(x, both)
    mean, std = model.predict(x, return_std=True)
    assert mean.shape == std.shape == both.shape
    assert model.predict_interval(x[:7]).shape == (7, 2, 2)
    assert model.predict_quantiles(x[:7], [0.1, 0.9]).shape == (7, 2, 2)
    assert len(model.bins_) == 2 and len(model.predict_distribution(x[:3])) == 2
    assert {"prediction_0", "upper_1", "region_1"} <= set(model.predict_frame(x[:3]).columns)
    assert set(model.score_by_region(x, both)["target"]) == {0, 1}
    assert model.score(x, both) > 0.5
    named = TailRegressor(epochs=1).fit(x, pd.DataFrame(both, columns=["price", "size"]))
    assert list(named.score_by_region(x, both)["target"].unique()) == ["price", "size"]


def test_as_many_targets_as_at_fit() -> None:
    x, y = table(100)
    two = np.c_[y, y]
    one_target, two_targets = (TailRegressor(epochs=1).fit(x, labels) for labels in (y, two))
    with pytest.raises(ValueError, match="y has 2 targets, but there were 1 at fit"):
        one_target.score_by_region(x, two)
    for wrong in (y, np.c_[y, y, y]):
        with pytest.raises(ValueError, match=r"y has \d targets, but there were 2 at fit"):
            two_targets.score_by_region(x, wrong)
        with pytest.raises(ValueError, match=r"y has \d targets, but there were 2 at fit"):
            TailRegressor(epochs=1).fit(x, two, eval_set=(x, wrong))
    with pytest.raises(ValueError, match="target name 'a' occurs twice"):
        TailRegressor(epochs=1).fit(x, pd.DataFrame(two, columns=["a", "a"]))


def test_a_backbone_of_ones_own() -> None:
    class Picture(nn.Module):
        feature_dim = 6

        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(1, 6, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.relu(self.conv(x)).mean((2, 3))

    rng = np.random.default_rng(0)
    images = rng.normal(size=(150, 1, 8, 8)).astype(np.float32) + rng.normal(size=(150, 1, 1, 1))
    y = images.mean((1, 2, 3))
    for backbone in (Picture(), Picture):
        model = TailRegressor(backbone=backbone, **FAST).fit(images, y)
        assert model.predict(images[:5]).shape == (5,)
    untouched = Picture()
    before = untouched.conv.weight.clone()
    TailRegressor(backbone=untouched, **FAST).fit(torch.as_tensor(images), y)
    assert torch.equal(before, untouched.conv.weight), "a parameter must not be trained"
    with pytest.raises(ValueError, match="feature_dim"):
        TailRegressor(backbone=nn.Linear(3, 4), **FAST).fit(rng.normal(size=(50, 3)), np.arange(50.0))


def test_a_backbone_with_two_inputs() -> None:
    class Pair(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(4, 5)

        def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
            return torch.relu(self.linear(a) - self.linear(b))

    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(2, 120, 4)).astype(np.float32)
    pair = Pair()
    model = TailRegressor(backbone=pair, feature_dim=5, **FAST).fit((a, b), a[:, 0] - b[:, 0])
    assert model.predict((a[:3], b[:3])).shape == (3,)
    named = TailRegressor(backbone=pair, feature_dim=5, **FAST).fit({"a": a, "b": b}, a[:, 0] - b[:, 0])
    np.testing.assert_allclose(named.predict({"a": a, "b": b}), model.predict((a, b)), rtol=1e-5)
    fresh = TailRegressor(backbone=pair, feature_dim=5, **FAST)
    with pytest.raises(ValueError, match=r"different numbers of rows: \[120, 50\]"):
        fresh.fit((a, b[:50]), a[:, 0])
    with pytest.raises(ValueError, match=r"inconsistent numbers of samples: \[120, 50\]"):
        fresh.fit((a, b), a[:50, 0])
    with pytest.raises(ValueError, match=r"inconsistent numbers of samples: \[120, 50\]"):
        fresh.fit((a, b), a[:, 0], eval_set=((a, b), a[:50, 0]))


def test_rows_for_a_backbone_as_a_list() -> None:
    """Token ids as lists are rows, whatever their number, and so are tensors in a list."""

    class Bag(nn.Module):
        feature_dim = 4

        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Embedding(20, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.embedding(x).mean(1)

    tokens = np.random.default_rng(0).integers(0, 20, size=(150, 6))
    y = tokens.mean(1)
    expected = TailRegressor(backbone=Bag, **FAST).fit(torch.as_tensor(tokens), y).predict(tokens)
    for rows in (tokens.tolist(), list(torch.as_tensor(tokens))):
        np.testing.assert_allclose(TailRegressor(backbone=Bag, **FAST).fit(rows, y).predict(rows), expected)
    with pytest.raises(ValueError, match="takes numbers, and X holds object: encode it first"):
        TailRegressor(backbone=Bag, **FAST).fit(np.array([["a", None]] * 150, dtype=object), y)


def test_inputs_of_a_backbone_that_someone_optimizes() -> None:
    x, y = table(100)
    traced = (2 * torch.tensor(x, requires_grad=True)).float()
    model = TailRegressor(backbone=nn.Linear(3, 4), feature_dim=4, epochs=2, random_state=0)
    assert model.fit(traced, y).predict(traced).shape == y.shape


def test_eval_set_is_held_out_and_all_of_x_trained_on() -> None:
    x, y = table(300)
    fresh, truth = table(200, seed=5)
    model = TailRegressor(**FAST).fit(x, y, eval_set=(fresh, truth))
    assert model.bins_.counts.sum() == 300 and model.held_out_
    assert "200" not in model.explain_intervals() and "100 held-out rows" in model.explain_intervals()
    listed = TailRegressor(**FAST).fit(x, y, eval_set=[(fresh, truth)])
    np.testing.assert_array_equal(listed.predict_interval(x), model.predict_interval(x))
    for wrong in ([(fresh, truth), (x, y)], x, fresh[0], (fresh, truth, truth)):
        with pytest.raises(ValueError, match=r"eval_set must be one pair \(X, y\)"):
            TailRegressor(epochs=1).fit(x, y, eval_set=wrong)


def test_an_eval_set_of_other_labels_or_too_few_rows() -> None:
    x, y = table(100)
    constant = TailRegressor(**FAST).fit(x, y, eval_set=(x[:50], np.full(50, 1.0)))
    beyond = TailRegressor(**FAST).fit(x, y, eval_set=(x[:50], y[:50] + 1e6))
    for model in (constant, beyond):
        assert np.isfinite(model.predict_frame(x).drop(columns="region").to_numpy()).all()
    lower, upper = beyond.predict_interval(x).T
    assert ((y + 1e6 >= lower) & (y + 1e6 <= upper)).mean() > 0.8
    single = TailRegressor(**FAST).fit(x, y, eval_set=(x[:1], y[:1]))
    text = single.explain_intervals()
    assert np.isfinite(single.predict_interval(x)).all() and "inf" not in text
    assert "No promise: 0.9 takes 9 held-out rows" in text and "the largest error seen" in text


# -- scikit-learn's tools ----------------------------------------------------------------------


def test_pipeline_search_and_friends() -> None:
    x, y = table(240)
    small = TailRegressor(epochs=3, random_state=0)
    search = GridSearchCV(
        make_pipeline(StandardScaler(), small), {"tailregressor__method": ["vanilla", "vir"]}, cv=2
    ).fit(x, y)
    assert search.best_params_["tailregressor__method"] in ("vanilla", "vir")
    assert cross_val_predict(small, x, y, cv=2).shape == y.shape
    logged = TransformedTargetRegressor(clone(small), func=np.log1p, inverse_func=np.expm1)
    assert logged.fit(x, y - y.min()).predict(x).shape == y.shape
    assert clone(TailRegressor(method="der", lr=0.1)).get_params()["lr"] == 0.1
    named = pd.DataFrame(x, columns=["a", "b", "c"])
    piped = make_pipeline(StandardScaler(), clone(small)).set_output(transform="pandas").fit(named, y)
    assert list(piped[-1].feature_names_in_) == ["a", "b", "c"] and piped.predict(named).shape == y.shape


def test_pickle_round_trip() -> None:
    x, y = table(200)
    model = TailRegressor(**FAST).fit(x, y)
    twin = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(twin.predict_interval(x), model.predict_interval(x))


def test_sample_weight_moves_the_model_and_equals_repetition() -> None:
    x, y = table(200)
    weight = np.where(y > np.median(y), 3.0, 1.0)
    weighted = TailRegressor(**FAST).fit(x, y, sample_weight=weight).predict(x)
    repeated = np.repeat(np.arange(200), weight.astype(int))
    again = TailRegressor(**FAST).fit(x[repeated], y[repeated]).predict(x)
    np.testing.assert_allclose(weighted, again)
    assert not np.allclose(weighted, TailRegressor(**FAST).fit(x, y).predict(x), rtol=1e-3)
    with pytest.raises(ValueError, match="at least one non-zero"):
        TailRegressor(**FAST).fit(x, y, sample_weight=np.zeros(200))
    with pytest.raises(ValueError, match="too large to count rows by"):
        TailRegressor(**FAST).fit(x, y, sample_weight=1e300 * weight)


def test_weights_that_sum_to_one_leave_the_imbalance_as_it_is() -> None:
    x, y = table(200)
    plain = TailRegressor(**FAST).fit(x, y)
    shares = TailRegressor(**FAST).fit(x, y, sample_weight=np.full(200, 1 / 200))
    np.testing.assert_array_equal(shares.bins_.counts, plain.bins_.counts)
    np.testing.assert_array_equal(shares.predict(x), plain.predict(x))
    rare = np.where(y > 2, 2.0, 1.0)
    uneven = TailRegressor(**FAST).fit(x, y, sample_weight=rare / rare.sum())
    np.testing.assert_array_equal(
        uneven.predict(x), TailRegressor(**FAST).fit(x, y, sample_weight=rare / rare.mean()).predict(x)
    )


def test_random_state() -> None:
    x, y = table(200)
    same = [TailRegressor(**FAST).fit(x, y).predict(x) for _ in range(2)]
    np.testing.assert_array_equal(*same)
    other = TailRegressor(epochs=8, random_state=1).fit(x, y).predict(x)
    assert not np.array_equal(same[0], other)


# -- units -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("scale", "shift"), [(1000.0, -5.0), (1e-12, 0.0), (1e12, 3e12)])
@pytest.mark.parametrize("whole", [False, True])
def test_units_of_the_label_do_not_matter(scale: float, shift: float, whole: bool) -> None:
    x, y = table(300)
    y = np.round(4 * y) if whole else y
    ours = TailRegressor(**FAST).fit(x, y)
    theirs = TailRegressor(**FAST).fit(x, scale * y + shift)
    tolerance = 1e-3 * y.std()
    np.testing.assert_allclose((theirs.predict(x) - shift) / scale, ours.predict(x), atol=tolerance)
    np.testing.assert_allclose(
        (theirs.predict_interval(x) - shift) / scale, ours.predict_interval(x), atol=20 * tolerance
    )


# -- bad and odd input -------------------------------------------------------------------------


def test_labels_that_cannot_be_regressed_on() -> None:
    x, y = table(60)
    y = y.copy()
    y[17] = np.nan
    with pytest.raises(ValueError, match=r"row 17 is nan.*drop these rows"):
        TailRegressor(**FAST).fit(x, y)
    with pytest.raises(ValueError, match="dates or times: subtract a start and divide by a unit"):
        TailRegressor(**FAST).fit(x, pd.Series(pd.date_range("2024", periods=60)))
    with pytest.raises(ValueError, match="must be numbers"):
        TailRegressor(**FAST).fit(x, ["cheap"] * 60)
    with pytest.raises(ValueError, match="inconsistent"):
        TailRegressor(**FAST).fit(x, np.zeros(50))
    with pytest.raises(ValueError, match=r"\(rows, targets\)"):
        TailRegressor(**FAST).fit(x, np.zeros((60, 2, 2)))
    with pytest.raises(ValueError, match=r"y exceeds 1e\+150 in row 5: rescale it"):
        TailRegressor(**FAST).fit(x, np.where(np.arange(60) == 5, 1e200, 1.0))


def test_tables_that_cannot_be_used() -> None:
    x, y = table(60)
    x[3, 1] = np.inf
    with pytest.raises(ValueError, match="infinity"):
        TailRegressor(**FAST).fit(x, y)
    data = pd.DataFrame(x[:, :2], columns=["a", "a"])
    with pytest.raises(ValueError, match="'a' occurs twice"):
        TailRegressor(**FAST).fit(data, y)
    named = pd.DataFrame(x, columns=["a", "b", "c"])
    with pytest.raises(ValueError, match="column 'b' holds an infinity in row 3"):
        TailRegressor(**FAST).fit(named, y)
    with pytest.raises(ValueError, match="column 'd' holds complex numbers"):
        TailRegressor(**FAST).fit(named.assign(d=1j), y)
    with pytest.raises(ValueError, match="0 feature"):
        TailRegressor(**FAST).fit(named[[]], y)
    with pytest.raises(ValueError, match="0 sample"):
        TailRegressor(**FAST).fit(named[:0], y[:0])
    empty = pd.DataFrame({"a": [None] * 60, "b": [None] * 60}, dtype=object)
    with pytest.raises(ValueError, match=r"no column of X holds a value \(a, b\)"):
        TailRegressor(**FAST).fit(empty, y)
    with pytest.raises(ValueError, match="column 'a' holds an infinity or a number too large"):
        TailRegressor(**FAST).fit(empty.assign(a=pd.Series([np.inf] + [1.0] * 59, dtype=object)), y)


def test_warnings_about_new_rows_survive_saving(tmp_path: Path) -> None:
    x, y = frame(200)
    towns = np.where(np.arange(200) % 4 > 0, "capital", [f"c{i}" for i in range(200)])  # 50 occur once
    x = x.assign(town=towns)
    model = TailRegressor(epochs=1, random_state=0).fit(x, y)  # the rows held out give no warning
    model.save(tmp_path / "m")
    new = x.assign(flag=None, kind="never seen", town=np.where(towns == "capital", towns, "abroad"))
    for fitted in (model, TailRegressor.load(tmp_path / "m")):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            assert np.isfinite(fitted.predict(new)).all()
        assert [str(warning.message).partition(":")[0] for warning in caught] == [
            "column 'flag' was never missing at fit, but is in 200 of 200 rows",
            "column 'kind' holds values unknown at fit, such as 'never seen', in 200 of 200 rows",
        ]


@pytest.mark.parametrize("rows", [1, 2, 3, 10, 30])
def test_very_few_rows(rows: int) -> None:
    x, y = table(rows)
    model = TailRegressor(**FAST).fit(x, y)
    assert np.isfinite(model.predict_frame(x).drop(columns="region").to_numpy()).all()
    assert "too small" in model.explain_intervals()


@pytest.mark.parametrize(("rows", "words"), [(12, "No rows were held out"), (200, "approximate"), (600, "")])
def test_intervals_say_which_rows_they_rest_on(rows: int, words: str, tmp_path: Path) -> None:
    model = TailRegressor(epochs=1, random_state=0).fit(*table(rows))
    said = model.explain_intervals()
    assert said.startswith("Split-conformal") if not words else words in said.splitlines()[0]
    model.save(tmp_path / "m")
    assert TailRegressor.load(tmp_path / "m").explain_intervals() == said


def test_constant_labels_and_columns() -> None:
    x, _ = table(100)
    model = TailRegressor(**FAST).fit(np.c_[x, np.ones(100), np.full(100, np.nan)], np.full(100, 3.0))
    np.testing.assert_allclose(model.predict(np.c_[x, np.ones(100), np.full(100, np.nan)]), 3.0, atol=1.0)


def test_settings_are_checked() -> None:
    x, y = table(60)
    for options, message in (
        ({"method": "vri"}, "did you mean 'vir'"),
        ({"method_options": {"regulariser": 1}}, "did you mean 'regularizer'"),
        ({"conformal": "regions"}, "did you mean 'region'"),
        ({"validation_fraction": 0.0}, "validation_fraction"),
        ({"monitor": "balanced_maee"}, "did you mean 'balanced_mae'"),
        ({"backbone": "mpl"}, "did you mean 'mlp'"),
        ({"backbone": None}, "'backbone' parameter of TailRegressor must be"),
        ({"epochs": 1.5}, "'epochs' parameter of TailRegressor must be an int"),
        ({"batch_size": "big"}, "'batch_size' parameter"),
        ({"bins": 1.5}, "'bins' parameter"),
        ({"patience": 0}, "'patience' parameter"),
        ({"calibrate": "yes"}, "'calibrate' parameter"),
        ({"feature_dim": 3}, "'auto' brings one: leave it out"),
        ({"few": 200}, "few=200 must not exceed many=100"),
    ):
        with pytest.raises(ValueError, match=message):
            TailRegressor(**{"epochs": 1, **options}).fit(x, y)
    with pytest.raises(TypeError, match="backbone gives int"):
        TailRegressor(epochs=1, backbone=lambda: 5, feature_dim=2).fit(x, y)
    model = TailRegressor(**FAST).fit(x, y)
    with pytest.raises(ValueError, match="between 0 and 1"):
        model.predict_quantiles(x, [0.5, 1.0])
    for levels in ([], [np.nan]):
        with pytest.raises(ValueError, match="between 0 and 1"):
            model.predict_quantiles(x, levels)


def test_bins_given() -> None:
    x, y = table(200)
    assert len(TailRegressor(bins=7, **FAST).fit(x, y).bins_) == 7
    bins = TailRegressor(bins=[0.0, 1.0, 5.0, 50.0], **FAST).fit(x, y).bins_
    assert isinstance(bins, LabelBins) and bins.edges.tolist() == [0.0, 1.0, 5.0, 50.0]


@pytest.mark.parametrize("method", ["ensemble", "infer-noise", "vanilla", "lds-fds-der"])
def test_other_methods(method: str) -> None:
    x, y = table(200)
    model = TailRegressor(method=method, **FAST).fit(x, y)
    out = model.predict_frame(x)
    assert (out["std"] > 0).all() and (out["lower"] < out["upper"]).all()
    assert isinstance(model.predict_distribution(x), Mixture) == (method in ("ensemble", "infer-noise"))


@pytest.mark.parametrize("method", ["smoter", "smogn"])
def test_methods_that_resample_do_so(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """They train on other rows than vanilla, made of training rows that were merged taken apart again."""
    from tailwise.data.tables import checks as rows

    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 3))
    X[:, 2] = X[:, 2] > 0
    y = np.exp(X[:, 0]) + 0.01 * rng.normal(size=300)
    X, y = np.r_[X, X[:50]], np.r_[y, y[:50]]
    seen = []
    resample = rows.resample

    def watched(name: str, table: Any, labels: Any, **options: Any) -> Any:
        seen.append((name, table, labels, options["categorical"]))
        return resample(name, table, labels, **options)

    monkeypatch.setattr(rows, "resample", watched)
    model = TailRegressor(method=method, epochs=3, random_state=0).fit(X, y, eval_set=(X[:100], y[:100]))
    ((name, table, labels, flags),) = seen
    assert name == method and flags == [2]
    assert table.shape == (350, 3) and sorted(labels) == sorted(y)
    plain = TailRegressor(method="vanilla", epochs=3, random_state=0).fit(X, y, eval_set=(X[:100], y[:100]))
    assert not np.allclose(model.predict(X), plain.predict(X))
    assert model.bins_.counts.sum() == len(y), "regions are those of the rows that were there"


def test_what_cannot_be_resampled_is_said() -> None:
    X, y = np.random.default_rng(0).normal(size=(60, 2)), np.arange(60.0)
    with pytest.raises(ValueError, match="makes new rows between those of a table, for one target"):
        TailRegressor(method="smogn", epochs=1).fit(X, np.c_[y, y])
    with pytest.raises(ValueError, match="makes new rows between those of a table"):
        TailRegressor(method="smogn", epochs=1, backbone=nn.Linear(2, 4), feature_dim=4).fit(X, y)
    with pytest.raises(ValueError, match="cannot be resampled by fractions"):
        TailRegressor(method="smoter", epochs=1).fit(X, y, sample_weight=np.linspace(0.5, 1.3, 60))


@pytest.mark.parametrize("method", ["vir", "vanilla", "ensemble"])
def test_members_that_share_a_backbone(method: str) -> None:
    """TabM, in a whole fit: calibrated mixtures, or points with one spread, that intervals take."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 3))
    y = np.exp(X[:, 0]) + 0.1 * rng.normal(size=300)
    model = TailRegressor(method=method, backbone="tabm", epochs=8, random_state=0)
    if method == "ensemble":
        model.set_params(method_options={"members": 2})
    model.fit(X, y)
    frame = model.predict_frame(X)
    assert np.isfinite(frame.drop(columns="region").to_numpy()).all()
    assert (frame["lower"] <= frame["prediction"]).all() and (frame["prediction"] <= frame["upper"]).all()
    assert (frame["epistemic_std"] > 0).all() == (method != "vanilla")
    both = TailRegressor(method=method, backbone="tabm", epochs=1, random_state=0).fit(X, np.c_[y, -y])
    assert both.predict_interval(X[:7]).shape == (7, 2, 2)


@pytest.mark.parametrize("own", [{}, {"backbone": nn.Linear(3, 4), "feature_dim": 4}], ids=["table", "own"])
@pytest.mark.parametrize("wrap", [lambda d: d, DataLoader], ids=["Dataset", "DataLoader"])
def test_a_torch_data_set_is_told_where_to_go(own: dict[str, Any], wrap: Any) -> None:
    X, y = table(60)
    inputs = torch.tensor(X, dtype=torch.float32)
    given = wrap(TensorDataset(inputs, torch.tensor(y)))
    model = TailRegressor(epochs=1, **own)
    says = rf"X is a {type(given).__name__}: .*arrays, tensors .* goes to tailwise.learning.loop.fit"
    with pytest.raises(TypeError, match=says):
        model.fit(given, y)
    model.fit(inputs, y)
    with pytest.raises(TypeError, match=says):
        model.predict(given)


# -- a GPU ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("device", "cuda", "expected"),
    [
        ("auto", True, "cuda"),
        ("auto", False, "cpu"),
        ("cuda", False, "cpu"),
        ("gpu", True, "cuda"),
        ("cpu", True, "cpu"),
    ],
)
def test_an_own_backbone_predicts_where_it_would_train(
    device: str, cuda: bool, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: cuda)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    assert predicting_device(TailRegressor(device=device)) == torch.device(expected)


@pytest.mark.gpu
@pytest.mark.parametrize("own", [{}, {"backbone": nn.Linear(3, 4), "feature_dim": 4}], ids=["table", "own"])
@pytest.mark.parametrize("method", ["vir", "ensemble", "rrt"])
def test_a_model_trained_on_a_gpu_goes_anywhere(own: dict[str, Any], method: str, tmp_path: Path) -> None:
    X, y = table(200)
    model = TailRegressor(method=method, epochs=3, random_state=0, **own).fit(X, y)
    assert model.model_.device.type == ("cuda" if own else "cpu")
    expected = model.predict_frame(X)
    file = model.save(tmp_path / "model.tailwise")
    again = TailRegressor.load(file, backbone=own.get("backbone"))
    pd.testing.assert_frame_equal(again.predict_frame(X), expected, check_exact=True)
    pd.testing.assert_frame_equal(
        pickle.loads(pickle.dumps(model)).predict_frame(X), expected, check_exact=True
    )
    assert model.model_.device.type == ("cuda" if own else "cpu")  # pickling leaves it where it is
    (tmp_path / "model.pkl").write_bytes(pickle.dumps(model))
    np.save(tmp_path / "x.npy", X)
    code = (
        "import pickle, numpy as np; model = pickle.load(open('model.pkl', 'rb')); "
        "model.predict_frame(np.load('x.npy')).to_pickle('frame.pkl')"
    )
    source = Path(tailwise.__file__).parents[1]
    hidden = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "PYTHONPATH": str(source)}
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=hidden, check=True)
    elsewhere = pd.read_pickle(tmp_path / "frame.pkl")
    pd.testing.assert_frame_equal(elsewhere, expected, check_exact=not own, rtol=1e-3, atol=1e-3)
