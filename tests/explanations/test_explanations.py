"""Explanations: tables mixed before or after encoding give the same, and figures equal their definitions."""

import itertools
import math
import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray
from sklearn.linear_model import LinearRegression

from tailwise import TailRegressor
from tailwise.explanations import (
    Attributions,
    ColumnwiseModel,
    importance,
    partial_dependence,
    shapley,
)
from tailwise.labels.prior import rarest
from tailwise.model import base as bases
from tailwise.model.base import Base
from tailwise.model.inputs import TensorInputs

Array = NDArray[np.float64]
Rows = tuple[pd.DataFrame, Array]


def make_rows(count: int, seed: int) -> Rows:
    """Labels that depend on size, kind and words of the text, and not on dates or on junk."""
    rng = np.random.default_rng(seed)
    things = rng.choice(["oak chair", "steel lamp", "pine desk", "brass bed"], count)
    table = pd.DataFrame(
        {
            "size": rng.normal(size=count),
            "kind": rng.choice(["a", "b", "c"], count),
            "when": pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 900, count), "D"),
            "text": [f"{thing} number {rng.integers(99)}" for thing in things],
            "junk": rng.integers(0, 9, count),
        }
    )
    oak = table["text"].str.contains("oak").to_numpy()
    y = 3 * np.exp(table["size"]) + 4 * (table["kind"] == "a") + 3 * oak
    return table, (y + 0.1 * rng.normal(size=count)).to_numpy()


@pytest.fixture(scope="session")
def rows() -> Rows:
    """Test rows, inputs and labels."""
    return make_rows(120, seed=1)


@pytest.fixture(scope="session", autouse=True)
def few_trees() -> Iterator[None]:
    """Boosted trees that are fitted quickly."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bases, "TREES", 40)
        yield


@pytest.fixture(scope="session")
def model() -> TailRegressor:
    """Trees and one network, with the dial turned up."""
    training = {"folds": 1, "epochs": 4, "batch_size": 128, "lr": 3e-3}
    return TailRegressor(emphasis=0.5, random_state=0, **training).fit(*make_rows(400, seed=0))


def linear(x: Any, y: Any) -> TailRegressor:
    """A model that predicts what least squares does, for its network is not trained."""
    return TailRegressor(
        base=LinearRegression(), folds=1, epochs=1, lr=1e-12, emphasis=0.0, random_state=0
    ).fit(x, y)


@pytest.fixture(scope="session")
def twins() -> tuple[TailRegressor, np.ndarray]:
    """A linear model of an array with two targets, and its rows."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(80, 3))
    y = pd.DataFrame({"first": x[:, 0] + 0.1 * x[:, 2], "second": x[:, 1]})
    return linear(x, y + 0.01 * rng.normal(size=y.shape)), x


# -- whole columns ---------------------------------------------------------------------------------


def test_columns_exchanged_after_encoding_are_those_exchanged_before(
    model: TailRegressor, rows: Rows
) -> None:
    table = rows[0]
    columns = ColumnwiseModel(model)
    matrix = columns.encode(table)
    assert list(columns.places) == list(table.columns)
    assert len(columns.places["when"]) > 1 and len(columns.places["text"]) > 1
    assert sorted(itertools.chain(*columns.places.values())) == list(range(matrix.shape[1]))
    order = np.random.default_rng(0).permutation(len(table))
    for name, places in columns.places.items():
        raw, encoded = table.copy(), matrix.copy()
        raw[name] = table[name].to_numpy()[order]
        encoded[:, places] = matrix[np.ix_(order, places)]
        np.testing.assert_array_equal(columns.figure(encoded), model.predict(raw))


def test_figures_are_those_of_the_estimator(model: TailRegressor, rows: Rows) -> None:
    table = rows[0]
    columns = ColumnwiseModel(model, emphasis=0.2, coverage=0.8)
    matrix = columns.encode(table)
    point, std = model.predict(table, return_std=True, emphasis=0.2)
    ends = model.predict_interval(table, 0.8, emphasis=0.2)
    np.testing.assert_array_equal(columns.figure(matrix, "prediction"), point)
    np.testing.assert_array_equal(columns.figure(matrix, "std"), std)
    np.testing.assert_array_equal(columns.figure(matrix, "width"), ends[:, 1] - ends[:, 0])
    with pytest.raises(ValueError, match="unknown figure 'widht'; did you mean 'width'"):
        columns.figure(matrix, "widht")  # type: ignore[arg-type]


@pytest.mark.parametrize("column", ["kind", 1])
def test_intervals_by_a_column_follow_it(column: str | int, rows: Rows) -> None:
    table, y = make_rows(150, seed=0)
    table = table[["size", "kind"]] if column == "kind" else table[["size", "junk"]].to_numpy()
    settings = {"base": None, "folds": 1, "epochs": 2, "random_state": 0}
    fitted = TailRegressor(conformal_by=column, **settings).fit(
        table, y + 9 * y * (make_rows(150, 0)[0]["kind"] == "b")
    )
    columns = ColumnwiseModel(fitted)
    ends = fitted.predict_interval(table)
    matrix = columns.encode(table)
    np.testing.assert_array_equal(columns.figure(matrix, "width"), ends[:, 1] - ends[:, 0])
    assert list(columns.places.values())[1][-1] == matrix.shape[1] - 1
    found = shapley(fitted, table[:4], table, of="width", background_rows=10)
    assert found.gap < 1e-9 * np.ptp(y)


def test_models_without_columns_of_their_own_are_refused(model: TailRegressor) -> None:
    given, own = TailRegressor(), TailRegressor()
    given.model_ = replace(model.model_, base=Base(given=1))
    with pytest.raises(ValueError, match="fitted with base_prediction"):
        ColumnwiseModel(given)
    own.model_ = replace(model.model_, inputs=TensorInputs())
    with pytest.raises(ValueError, match="takes no tables"):
        ColumnwiseModel(own).encode(None)


# -- importance ------------------------------------------------------------------------------------


def test_columns_that_matter_come_first() -> None:
    rng = np.random.default_rng(0)
    table = pd.DataFrame(rng.normal(size=(200, 3)), columns=["little", "nothing", "much"])
    y = (4 * table["much"] + table["little"] + 0.1 * rng.normal(size=200)).to_numpy()
    found = importance(linear(table, y), table, y, repeats=3, measures=["error", "crps"])
    assert list(found.columns) == [
        "measure",
        "labels",
        "column",
        "importance",
        "spread",
        "reference",
        "rows",
    ]
    for measure in ("error", "crps"):
        much, little, nothing = found[(found["measure"] == measure) & (found["labels"] == "all")].itertuples()
        assert (much.column, little.column, nothing.column) == ("much", "little", "nothing")
        assert much.importance > 2 * little.importance > 10 * nothing.importance
        assert much.importance > 5 * much.spread > 0


def test_figures_are_those_of_shuffled_tables(model: TailRegressor, rows: Rows) -> None:
    table = importance(model, *rows, repeats=2).set_index(["measure", "labels", "column"])
    assert len(table) == 2 * 2 * 5
    rare = rarest(rows[1], model.calibrators_[0].labels.density)
    assert rare.sum() == 18

    def figures(X: pd.DataFrame) -> tuple[Array, Array]:
        lower, upper = model.predict_interval(X).T
        return np.abs(model.predict(X) - rows[1]), upper - lower

    rng = np.random.default_rng(0)
    orders = [rng.permutation(len(rare)) for _ in range(2)]
    error, width = figures(rows[0])
    shuffled = [figures(rows[0].assign(size=rows[0]["size"].to_numpy()[order])) for order in orders]
    for labels, chosen in (("all", rare | True), ("rare", rare)):
        for measure, before, changes in (
            ("error", error, [after - error for after, _ in shuffled]),
            ("width", width, [np.abs(after - width) for _, after in shuffled]),
        ):
            means = [change[chosen].mean() for change in changes]
            found = table.loc[(measure, labels, "size")]
            assert found["importance"] == pytest.approx(np.mean(means))
            assert found["spread"] == pytest.approx(np.std(means, ddof=1))
            assert found["reference"] == pytest.approx(before[chosen].mean())
            assert found["rows"] == chosen.sum()


def test_mistakes_of_importance_are_named(model: TailRegressor, rows: Rows) -> None:
    with pytest.raises(ValueError, match="unknown measure 'eror'; did you mean 'error'"):
        importance(model, *rows, measures=["eror"])
    with pytest.raises(ValueError, match="repeats must be at least 2"):
        importance(model, *rows, repeats=1)
    with pytest.raises(ValueError, match="X has 120 rows and y has 5"):
        importance(model, rows[0], rows[1][:5])


# -- shapley ---------------------------------------------------------------------------------------


def by_definition(model: TailRegressor, row: pd.DataFrame, background: pd.DataFrame) -> dict[str, float]:
    """Shapley values as a sum over all sets of columns, each the mean prediction of raw mixed tables."""
    names = list(row.columns)
    sets = [s for size in range(len(names) + 1) for s in itertools.combinations(names, size)]
    mixed = pd.concat([background.assign(**{name: row[name].iloc[0] for name in s}) for s in sets])
    means = model.predict(mixed).reshape(len(sets), len(background)).mean(axis=1)
    value = {frozenset(s): mean for s, mean in zip(sets, means, strict=True)}
    d, found = len(names), {}
    for name in names:
        total = 0.0
        for chosen, before in value.items():
            if name not in chosen:
                weight = math.factorial(len(chosen)) * math.factorial(d - len(chosen) - 1) / math.factorial(d)
                total += weight * (value[chosen | {name}] - before)
        found[name] = total
    return found


@pytest.mark.parametrize("of", ["prediction", "std", "width"])
def test_values_and_base_sum_to_the_prediction(model: TailRegressor, rows: Rows, of: str) -> None:
    background = make_rows(20, seed=3)[0]
    found = shapley(model, rows[0][:6], background, of=of)  # type: ignore[arg-type]
    assert found.gap < 1e-9 * np.ptp(rows[1])
    assert list(found.values.columns) == list(rows[0].columns) and found.values.shape == (6, 5)
    point, std = model.predict(rows[0][:6], return_std=True)
    if of != "width":
        np.testing.assert_allclose(found.explained, point if of == "prediction" else std)
    if of == "prediction":
        assert found.base == pytest.approx(model.predict(background).mean())


def test_values_are_those_of_the_definition(model: TailRegressor, rows: Rows) -> None:
    row, background = rows[0][7:8], make_rows(4, seed=3)[0]
    found = shapley(model, row, background, rounds=60)
    exact = by_definition(model, row, background)
    spread = np.ptp(rows[1])
    for name, value in exact.items():
        assert found.values[name].iloc[0] == pytest.approx(value, abs=0.01 * spread)
    once = shapley(model, row, background)
    assert once.gap < 1e-9 * spread  # additive with any number of orders
    assert (once.error.to_numpy() >= 0).all() and once.error["size"].iloc[0] > 0


def test_reasons_are_the_largest_values() -> None:
    values = pd.DataFrame([[1.0, -3.0, 0.0, 2.0], [0.0, 0.0, 0.0, 0.5]], columns=list("abcd"))
    found = Attributions(values, 1.0, np.array([1.0, 1.75]), values)
    assert found.reasons(2) == [[("b", -3.0), ("d", 2.0)], [("d", 0.5)]]
    assert found.gap == 0.25


def test_targets_arrays_and_the_rows_themselves_as_background(
    twins: tuple[TailRegressor, np.ndarray],
) -> None:
    model, x = twins
    found = shapley(model, x[:10], target=0, background_rows=8)
    assert found.values.abs().mean().idxmax() == "0" and list(found.values.columns) == ["0", "1", "2"]
    one = shapley(model, x[:2], x[5:6], target=0)
    assert one.gap < 1e-12 and (one.error == 0).all(axis=None)
    with pytest.raises(ValueError, match="a single row"):
        shapley(model, x[:1], target=0)
    with pytest.raises(ValueError, match="rounds and background_rows"):
        shapley(model, x, target=0, rounds=0)


def test_shap_is_asked_for_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "shap", None)
    values = pd.DataFrame([[1.0]], columns=["a"])
    with pytest.raises(ImportError, match=r"pip install 'tailwise\[explain\]'"):
        Attributions(values, 0.0, np.ones(1), values).to_shap()


@pytest.mark.slow
def test_values_are_those_of_the_shap_package(model: TailRegressor, rows: Rows) -> None:
    shap = pytest.importorskip("shap")
    background, explained = make_rows(6, seed=3)[0], rows[0][:2]
    tables = pd.concat([background, explained], ignore_index=True)

    def predict(codes: np.ndarray) -> np.ndarray:  # shap mixes numbers: each column holds row numbers
        mixed = {name: tables[name].to_numpy()[codes[:, k].astype(int)] for k, name in enumerate(tables)}
        return np.asarray(model.predict(pd.DataFrame(mixed)))

    codes = np.tile(np.arange(len(tables), dtype=np.float64)[:, None], tables.shape[1])
    theirs = shap.explainers.Exact(predict, shap.maskers.Independent(codes[:6]))(codes[6:])
    ours = shapley(model, explained, background, rounds=100)
    np.testing.assert_allclose(ours.values, theirs.values, atol=0.01 * np.ptp(rows[1]))
    assert ours.base == pytest.approx(theirs.base_values[0])
    given = ours.to_shap(explained)
    np.testing.assert_array_equal(given.values, ours.values)
    assert given.feature_names == list(tables.columns) and given.data.shape == (2, 5)
    assert ours.to_shap().data is None


def test_many_rows_are_compared_with_fewer_others(
    model: TailRegressor, rows: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "tailwise.explanations.MOST_PREDICTIONS", 2 * 4 * 30 * 12
    )  # both ways, columns, rows, others
    with pytest.warns(UserWarning, match="7200 predictions are too many: rows are compared with 12 rows"):
        explained = shapley(model, rows[0][:30], rows[0], background_rows=30)
    assert explained.gap < 1e-9


# -- partial_dependence ----------------------------------------------------------------------------


def test_the_means_are_those_of_tables_with_one_value(model: TailRegressor, rows: Rows) -> None:
    for column, value in (("kind", "b"), ("size", 0.5), ("when", pd.Timestamp("2021-02-03"))):
        (found,) = partial_dependence(model, rows[0], column, values=[value]).to_dict("records")
        same = rows[0].assign(**{column: value})
        ends = model.predict_interval(same)
        assert found["value"] == value
        assert found["prediction"] == pytest.approx(model.predict(same).mean())
        assert [found["lower"], found["upper"]] == pytest.approx(ends.mean(axis=0))
        assert found["prediction_low"] <= found["prediction"] <= found["prediction_high"]


def test_values_of_every_kind_of_column(model: TailRegressor, rows: Rows) -> None:
    size = partial_dependence(model, rows[0], "size", points=6, max_rows=30)
    assert len(size) == 6 and size["value"].iloc[[0, -1]].tolist() == [
        rows[0]["size"].min(),
        rows[0]["size"].max(),
    ]
    assert size["prediction"].iloc[-1] > size["prediction"].iloc[0]
    assert ((size["lower"] <= size["prediction"]) & (size["prediction"] <= size["upper"])).all()
    kind = partial_dependence(model, rows[0], "kind", max_rows=30).set_index("value")["prediction"]
    assert set(kind.index) == {"a", "b", "c"} and kind.idxmax() == "a"
    text = partial_dependence(model, rows[0], "text", points=4, max_rows=10)
    assert text["value"].isin(rows[0]["text"]).all() and len(text) == 4
    junk = partial_dependence(model, rows[0], "junk", max_rows=10)
    assert junk["value"].tolist() == list(range(9))
    assert partial_dependence(model, rows[0], "when", points=3, max_rows=5)["value"].is_monotonic_increasing


def test_mistakes_of_dependence_are_named(model: TailRegressor, rows: Rows) -> None:
    with pytest.raises(ValueError, match="unknown column 'sise'; did you mean 'size'"):
        partial_dependence(model, rows[0], "sise")
    with pytest.raises(TypeError, match="pandas DataFrame"):
        partial_dependence(model, np.zeros((3, 5)), "size")
    with pytest.raises(ValueError, match="'size' has no values"):
        partial_dependence(model, rows[0].assign(size=np.nan), "size")
