"""CatBoost's forms: intervals from residuals, CV+, and the choice of the best form. Networks of pytabkit."""

from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import numpy as np
import pandas as pd
import pytest

from tailwise_bench import estimators
from tailwise_bench.estimators import FORMS, Prediction, choose_estimators
from tailwise_bench.pages import best_forms, equal_width
from tailwise_bench.statistics import Results

Array = np.ndarray


def line(x: pd.DataFrame, y: Array, seed: int, loss: str, **_: Any) -> Callable[[pd.DataFrame], Array]:
    """Fit a line; of several quantiles, lines with equal distances."""
    slope, start = np.polyfit(x["x"], y, 1)
    shifts = np.arange(-2, 3) if loss.startswith("Multi") else np.zeros(1)
    return lambda new: np.squeeze(start + slope * new["x"].to_numpy()[:, None] + shifts)


def fitted(name: str, monkeypatch: pytest.MonkeyPatch, y: Array | None = None) -> tuple[Any, ...]:
    monkeypatch.setattr(estimators, "_catboost", line)
    rng = np.random.default_rng(0)
    x = pd.DataFrame({"x": rng.normal(size=99)})
    labels = np.exp(2 * x["x"].to_numpy() + rng.normal(size=99)) if y is None else y
    new = pd.DataFrame({"x": [-1.0, 0.0, 2.0]})
    (estimator,) = choose_estimators([name])
    return x, labels, estimator.fit(x, labels, 3)(new), new


def test_the_log_form_has_split_conformal_ends_in_label_units(monkeypatch: pytest.MonkeyPatch) -> None:
    x, y, found, new = fitted("catboost-log", monkeypatch)
    kept, held = estimators._parts(99, 3)
    residuals = np.sort(np.log(y[held]) - line(x.iloc[kept], np.log(y[kept]), 3, "")(x.iloc[held]))
    point = line(x, np.log(y), 3, "")(new)
    assert len(held) == 19  # of 19 residuals the first and the last hold 90% of new ones
    np.testing.assert_allclose(found.lower, np.exp(point + residuals[0]))
    np.testing.assert_allclose(found.upper, np.exp(point + residuals[-1]))
    np.testing.assert_allclose(found.mean, np.exp(point))
    part = line(x.iloc[kept], np.log(y[kept]), 3, "")(x.iloc[held])
    assert found.held_mae == pytest.approx(np.abs(np.exp(part) - y[held]).mean())


def test_cross_validated_ends_are_those_of_its_definition(monkeypatch: pytest.MonkeyPatch) -> None:
    x, y, found, new = fitted("catboost-cv", monkeypatch)
    fold = np.random.default_rng(3).permutation(99) % 5
    log = np.log(y)
    for row in range(3):
        around = []
        for i in range(99):
            part = line(x[fold != fold[i]], log[fold != fold[i]], 3, "")
            around.append(part(new.iloc[[row]]) + log[i] - part(x.iloc[[i]]))
        ordered = np.sort(np.array(around, float).ravel())  # n + 1 = 100: ranks 5 and 95
        np.testing.assert_allclose([found.lower[row], found.upper[row]], np.exp(ordered[[4, 94]]))


def test_quantiles_are_widened_until_nine_tenths_of_held_out_rows_are_inside(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    y = np.random.default_rng(1).normal(size=99) * 30
    x, y, found, new = fitted("catboost-quantiles", monkeypatch, y)
    kept, held = estimators._parts(99, 3)
    part = line(x.iloc[kept], y[kept], 3, "Multi")(x.iloc[held])
    wider = (line(x, y, 3, "Multi")(new)[:, 0] - found.lower)[0]
    inside = np.abs(part[:, 2] - y[held]) <= 2 + wider + 1e-9
    assert inside.mean() == pytest.approx(0.95, abs=0.051) and wider > 0
    np.testing.assert_allclose(found.upper - found.lower, 4 + 2 * wider)


def test_a_constant_has_the_distribution_of_the_labels() -> None:
    (estimator,) = choose_estimators(["constant"])
    found: Prediction = estimator.fit(pd.DataFrame({"x": [0.0] * 99}), np.arange(99.0), 0)(
        pd.DataFrame({"x": [1.0]})
    )
    assert (found.mean[0], found.lower[0], found.upper[0]) == (49, 4, 94)


@pytest.mark.slow
@pytest.mark.skipif(find_spec("pytabkit") is None, reason="the extra peers is not installed")
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ["realmlp", "tabm"])
def test_networks_of_pytabkit_take_gaps_and_new_categories(name: str) -> None:
    rng = np.random.default_rng(0)
    x = pd.DataFrame({"x": rng.normal(size=60), "kind": rng.choice(["a", "b"], 60)})
    y = 3 * x["x"].to_numpy() + rng.normal(size=60)
    x.loc[::7, "x"] = np.nan
    new = pd.DataFrame({"x": [np.nan, 0.0, 2.0], "kind": ["a", None, "c"]})
    (estimator,) = choose_estimators([name])
    first, again = (estimator.fit(x, y, 3)(new) for _ in range(2))
    np.testing.assert_array_equal(first.mean, again.mean)
    assert np.isfinite(first.mean).all() and (first.lower < first.upper).all()
    assert first.quantiles is not None and (np.diff(first.quantiles) >= 0).all()


def test_the_best_form_has_the_lowest_held_out_error_and_the_time_of_all() -> None:
    def record(method: str, mae: float, data: str = "t") -> dict[str, Any]:
        return {"data": data, "seed": 0, "method": method, "title": method, "seconds": {"fit": 1.0},
                "valid": {"mae": mae}}  # fmt: skip

    lines = [record(name, mae) for name, mae in zip(FORMS, (3, 1, 2, 4), strict=True)]
    (best,) = best_forms([*lines, record(FORMS[0], 1, "unfinished")])
    assert (best["form"], best["seconds"]["fit"]) == (FORMS[1], 4.0)


def test_widths_are_compared_where_as_many_rare_labels_are_inside() -> None:
    def record(method: str, covered: float, width: float, **more: Any) -> dict[str, Any]:
        metrics = {"raw": {"all": {"width": width}, "rare": {"coverage": covered}}}
        return {"data": "t", "seed": 0, "method": method, "title": method, "digest": "", "recipe": {},
                "metrics": metrics, **more}  # fmt: skip

    curve = [[0.5, 1.0], [0.8, 2.0], [0.9, 4.0]]
    lines = [
        record("catboost-cv", 0.8, 2.0, curve=curve),
        record("tail", 0.85, 1.5),
        record("wide", 1.0, 3.0),
    ]
    found = Results(lines)
    assert equal_width(found, "t", "tail") == pytest.approx(1.5 / 3)
    assert equal_width(found, "t", "wide") == pytest.approx(3 / 4)  # beyond the last point
