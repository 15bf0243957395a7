"""Every script of research/studies can be imported: names that moved are found without a run of hours."""

import importlib
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

FOLDER = Path(__file__).parents[1] / "studies"


class Wrapper:
    """Stands for a base class of ScoringBench, which cannot be installed."""

    def _set_train_range(self, y: Any) -> None:
        self._y_train_range = float(np.min(y)), float(np.max(y))


@pytest.fixture(autouse=True)
def scoringbench(monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in: Any = ModuleType("scoringbench.univariate.wrappers.base")
    stand_in.ProbabilisticWrapper = Wrapper
    stand_in.DistributionPrediction = SimpleNamespace(from_multi_quantile=lambda *a, **k: (*a, k))
    monkeypatch.setitem(sys.modules, stand_in.__name__, stand_in)
    for name in ("scoringbench", "scoringbench.univariate", "scoringbench.univariate.wrappers"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))


@pytest.mark.parametrize("name", sorted(path.stem for path in FOLDER.glob("*.py")))
def test_a_script_is_imported(name: str) -> None:
    assert (importlib.import_module(f"research.studies.{name}").__doc__ or "").strip()


def test_the_entry_of_scoringbench_gives_ascending_quantiles_around_the_mean() -> None:
    module = importlib.import_module("research.studies.scoringbench_entry")
    x = np.random.default_rng(0).normal(size=(80, 2))
    entry = module.TailwiseWrapper(base=None, folds=1, epochs=1).fit(x, x[:, :1])
    quantiles, levels, others = entry.predict_distribution(x)
    assert quantiles.shape == (80, 400) and (np.diff(quantiles, axis=1) >= 0).all()
    assert np.abs(quantiles.mean(axis=1) - others["mean"]).max() < 0.05 and levels[0] == 1 / 800
    assert others["train_range"] == (x[:, 0].min(), x[:, 0].max())
