"""The scripts of research/studies: they can be imported, and their small parts do what they say."""

import importlib
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from research.studies import coverage_simulation as simulation
from research.studies import scoringbench_tables as tables

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


def test_scores_of_quantiles_are_integrals_over_thresholds() -> None:
    quantiles = np.sort(np.random.default_rng(0).gamma(2, size=(4, 400)), axis=1)
    y = np.array([quantiles[0, 0] - 1, 1.0, 2.5, quantiles[3, -1] + 1])
    t, found = np.linspace(-2, 20, 400_001), tables.scores(quantiles, y)
    below = np.stack([np.interp(t, row, tables.LEVELS, left=0, right=1) for row in quantiles])
    right = np.where(t >= y[:, None], below, 1 - below)
    assert found["CRPS"] == pytest.approx(np.trapezoid((1 - right) ** 2, t).mean(), rel=1e-3)
    assert found["CRLS"] == pytest.approx(-np.trapezoid(np.log(right.clip(tables.TINY)), t).mean(), rel=1e-3)
    assert found["left"] + 2 * found["center"] + found["right"] == pytest.approx(found["CRPS"], rel=1e-2)
    lower, upper = np.quantile(quantiles, (0.05, 0.95), axis=1, method="hazen")
    outside = np.array([lower[0] - y[0], 0, 0, y[3] - upper[3]])
    assert found["interval score"] == pytest.approx((upper - lower + 20 * outside).mean(), rel=1e-5)
    assert found["inside"] == 0.5


def test_the_tables_of_scoringbench_are_run_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "TABLES", tables.TABLES[:1])
    monkeypatch.setattr(tables, "MODELS", dict.fromkeys(tables.MODELS, tables.MODELS["a constant"]))
    monkeypatch.setattr(sys, "argv", ["", "--out", str(tmp_path)])
    for _ in range(2):
        tables.main()
    assert len((tmp_path / "scoringbench.jsonl").read_text().splitlines()) == 5 * 4
    assert "| TailRegressor | 1.000 (0/1) |" in (tmp_path / "scoringbench.md").read_text()
    parts = list(tables.folds(4177))
    assert [(len(train), len(set(train) & set(test)), len(test)) for train, test in parts] == [
        (2400, 0, 600)
    ] * 5
    assert len(set(np.concatenate([test for _, test in parts]))) == 3000


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
