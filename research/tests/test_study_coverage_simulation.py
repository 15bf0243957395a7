"""Intervals where the truth is known (research/studies/coverage_simulation.py)."""

from __future__ import annotations

import numpy as np
import pytest

from research.studies import coverage_simulation


def test_intervals_hold_where_the_truth_is_known() -> None:
    results = coverage_simulation.simulate((300,), draws=12)
    sums = results.groupby(["method", "part"])[["hits", "rows"]].sum()
    covered = sums["hits"] / sums["rows"]
    ours, plain = covered["TailRegressor's rule"], covered["split conformal"]
    assert 0.87 < ours["all"] < 0.96 and 0.85 < plain["all"] < 0.96
    width = results.groupby(["method", "part"])["width"].mean()
    assert width["TailRegressor's rule"]["all"] < width["constant"]["all"]
    table = coverage_simulation.table_of(results)
    assert "| 300 | all | TailRegressor's rule | " in table


def test_no_interval_leaves_the_bounds() -> None:
    results = coverage_simulation.simulate((100,), draws=2, floor=True)
    sums = results[results["part"] == "all"].groupby("method")[["hits", "rows", "outside"]].sum()
    assert sums.loc["TailRegressor's rule", "outside"] == 0 < 1000 < sums.loc["split conformal", "outside"]
    assert 0.85 < sums.loc["TailRegressor's rule", "hits"] / 2000 < 0.98
    rng = np.random.default_rng(0)
    y, predictions = coverage_simulation.draw(100_000, rng, floor=True)
    mean, variance = coverage_simulation.moments(
        coverage_simulation.LEVEL, coverage_simulation.TOTAL, floor=True
    )
    assert y.mean() == pytest.approx(float(mean), rel=0.02) and (y == 0).mean() == pytest.approx(
        0.3, abs=0.01
    )
    assert y.std() == pytest.approx(float(variance) ** 0.5, rel=0.05) and len(predictions) == 5


def test_the_same_seed_gives_the_same_draw() -> None:
    assert coverage_simulation.one_draw(100, 3, 50) == coverage_simulation.one_draw(100, 3, 50)
