"""New labelled rows for a fitted model: recalibration, and coverage by a column."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tailwise import TailRegressor
from tests.estimator.small_tables import Array, quick, table


def noisy(rows: int, seed: int, noise: float) -> tuple[Array, Array]:
    x, y = table(rows, seed)
    return x, y + noise * np.random.default_rng(seed).normal(size=rows)


@pytest.fixture
def model() -> TailRegressor:
    return quick(method="vir", emphasis=0.0, epochs=3).fit(*noisy(400, 0, 0.1))


def test_recalibration_restores_coverage_without_training(model: TailRegressor, tmp_path: Path) -> None:
    x, y = noisy(2400, 2, 3.0)  # much noisier than in training

    def coverage() -> float:
        lower, upper = model.predict_interval(x, 0.8).T
        return float(((y >= lower) & (y <= upper)).mean())

    before, means = coverage(), model.predict(x)
    assert model.recalibrate(*noisy(2400, 1, 3.0)) is model
    assert before < 0.6 and 0.77 < coverage() < 0.9
    np.testing.assert_array_equal(model.predict(x), means)
    again = TailRegressor.load(model.save(tmp_path / "m.tailwise"))
    np.testing.assert_array_equal(again.predict_interval(x), model.predict_interval(x))
    assert again.model_.record.recalibrated == 2400 and again.model_.record.unseen
    assert "recalibrated on 2400 rows" in again.explain_intervals()


def test_recalibration_of_several_networks_and_targets() -> None:
    x, y = table(100)
    model = quick(folds=2, bounds=(-50, 300)).fit(x, np.c_[y, 2 * y])
    ends = model.recalibrate(x, np.c_[y, 2 * y]).predict_interval(x)
    assert np.isfinite(ends).all() and ends.min() >= -50
    with pytest.raises(ValueError, match="y is 400 in row 0, above the bound 300"):
        model.recalibrate(x, np.full((100, 2), 400.0))
    with pytest.raises(ValueError, match="recalibrate needs at least 20 rows, not 19"):
        model.recalibrate(x[:19], np.c_[y, y][:19])


def test_coverage_by_a_column(model: TailRegressor) -> None:
    x, y = noisy(300, 3, 0.1)
    kind = np.where(x[:, 1] > 0, "up", "down")
    y = np.where(kind == "up", 1e6, y)
    found = model.coverage_by(x, y, kind).set_index("value")
    assert list(found.index) == ["down", "up", "all"]
    assert found.loc["up", "coverage"] == 0 and found.loc["down", "coverage"] > 0.7
    assert found.loc["all", "rows"] == 300 == found.loc[["down", "up"], "rows"].sum()
    assert (found["coverage_low"] <= found["coverage"]).all()
    assert (found["coverage"] <= found["coverage_high"]).all() and (found["width"] > 0).all()
    pd.testing.assert_frame_equal(
        model.coverage_by(x, y, 0, bins=3), model.coverage_by(x, y, x[:, 0], bins=3)
    )
    with pytest.raises(ValueError, match="column has 2 values for 300 rows"):
        model.coverage_by(x, y, ["a", "b"])


def sites(rows: int, seed: int) -> tuple[pd.DataFrame, Array, Array]:
    """Labels of site b have twice the noise of those of site a; the last is a base for both."""
    rng = np.random.default_rng(seed)
    data = pd.DataFrame({"x": rng.normal(size=rows), "site": rng.choice(["a", "b"], rows)})
    base = 20 * data["x"].to_numpy()
    return data, base + np.where(data["site"] == "b", 2, 1) * rng.normal(size=rows), base


def shares(model: TailRegressor, **dial: float) -> Array:
    x, y, base = sites(2000, 1)
    return model.coverage_by(x, y, "site", base_prediction=base, **dial)["coverage"].to_numpy()[:2]


def within(found: Array) -> bool:
    return bool(((found > 0.85) & (found < 0.95)).all())


def test_intervals_by_a_column_cover_each_of_its_groups(tmp_path: Path) -> None:
    """The network predicts one spread for all rows; only intervals by site know that b is noisier."""
    params = {"method": "vanilla", "backbone": "mlp", "emphasis": 0.0, "validation_fraction": 0.5}
    x, y, base = sites(2000, 0)
    assert not within(shares(quick(**params).fit(x, y, base_prediction=base)))
    model = quick(**params, conformal_by="site").fit(x, y, base_prediction=base)
    assert within(shares(model)) and within(shares(model, emphasis=0.2))
    again = TailRegressor.load(model.save(tmp_path / "m.tailwise"))
    new, around = pd.DataFrame({"x": 0.0, "site": ["a", "b", "c", None]}), np.zeros(4)
    for dial in ({"emphasis": 0.2}, {}):
        ends = [m.predict_interval(new, base_prediction=around, **dial) for m in (again, model)]
        np.testing.assert_array_equal(*ends)
    width = np.diff(ends[0])[:, 0]
    assert width[0] < width[2] < width[1]  # c has the overall limits
    assert width[3] == pytest.approx(width[2], rel=0.1)  # and so have missing values
    x, y, base = sites(1500, 4)
    assert within(shares(again.recalibrate(x, y, base_prediction=base)))
    assert "By the column site" in again.explain_intervals()
