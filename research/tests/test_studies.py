"""The scripts of research/studies: they can be imported, and their small parts do what they say."""

import importlib
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from research.studies import coverage_simulation as simulation

FOLDER = Path(__file__).parents[1] / "studies"


class Wrapper:
    """Stands for a base class of ScoringBench, which cannot be installed."""

    def _set_train_range(self, y: Any) -> None:
        self._y_train_range = float(np.min(y)), float(np.max(y))


@pytest.fixture(autouse=True)
def scoringbench(monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in: Any = ModuleType("scoringbench.univariate.wrappers.base")
    stand_in.ProbabilisticWrapper = Wrapper
    stand_in.DistributionPrediction = SimpleNamespace(from_multi_quantile=lambda *a, **k: a)
    monkeypatch.setitem(sys.modules, stand_in.__name__, stand_in)


@pytest.mark.parametrize("name", sorted(path.stem for path in FOLDER.glob("*.py")))
def test_a_script_is_imported(name: str) -> None:
    assert (importlib.import_module(f"research.studies.{name}").__doc__ or "").strip()


def test_the_entry_of_scoringbench_gives_ascending_quantiles() -> None:
    module = importlib.import_module("research.studies.scoringbench_entry")
    x = np.random.default_rng(0).normal(size=(80, 2))
    quantiles, levels = (
        module.TailwiseWrapper(base=None, folds=1, epochs=1).fit(x, x[:, :1]).predict_distribution(x)
    )
    assert quantiles.shape == (80, 400) and (np.diff(quantiles, axis=1) >= 0).all() and levels[0] == 1 / 800


def test_intervals_hold_and_stay_in_bounds_where_the_truth_is_known() -> None:
    for n, floor in ((300, False), (100, True)):
        scores = simulation.simulate((n,), 12 if n == 300 else 3, floor)
        sums = scores[scores["part"] == "all"].groupby("method")[["hits", "rows", "outside", "width"]].sum()
        ours = sums.loc["TailRegressor's rule"]
        assert 0.85 < ours["hits"] / ours["rows"] < 0.97 and ours["width"] < sums.loc["constant", "width"]
        assert not floor or ours["outside"] == 0 < 1000 < sums.loc["split conformal", "outside"]
        assert f"| {n} | all | TailRegressor's rule | " in simulation.table_of(scores)


def test_drawn_labels_have_the_stated_moments() -> None:
    y, predictions = simulation.draw(100_000, np.random.default_rng(0), floor=True)
    mean, variance = simulation.moments(simulation.LEVEL, simulation.TOTAL, floor=True)
    assert (y.mean(), y.std()) == pytest.approx((float(mean), float(variance) ** 0.5), rel=0.05)
    assert (y == 0).mean() == pytest.approx(0.3, abs=0.01) and len(predictions) == 5
