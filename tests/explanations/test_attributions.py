"""Shapley values of columns: exactly additive, and equal to the definition where that can be computed."""

import itertools
import math
import sys

import numpy as np
import pandas as pd
import pytest

from tailwise import TailRegressor
from tailwise.explanations import shapley
from tailwise.explanations.attributions import Attributions
from tests.explanations.conftest import Rows, make_rows


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
        "tailwise.explanations.attributions.MOST_PREDICTIONS", 2 * 4 * 30 * 12
    )  # both ways, columns, rows, others
    with pytest.warns(UserWarning, match="7200 predictions are too many: rows are compared with 12 rows"):
        explained = shapley(model, rows[0][:30], rows[0], background_rows=30)
    assert explained.gap < 1e-9
