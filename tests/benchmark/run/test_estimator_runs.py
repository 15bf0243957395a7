"""Runs of the suite `estimator`: scores, times, resuming, failures and files that cannot be continued."""

from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from tailwise.benchmark import Source, read_results
from tailwise.benchmark.data.natural_splits import natural_split
from tailwise.benchmark.data.suites import generated
from tailwise.benchmark.run import estimator_runs
from tailwise.benchmark.run.estimator_runs import estimator_recipe, run_estimator, run_estimators, score
from tailwise.benchmark.run.estimators import Estimator, Predict, Prediction
from tailwise.distributions.members import Normal

SOURCES = [Source(name, "y", partial(generated, rows=300, seed=seed)) for seed, name in enumerate("ab")]


def fit_constant(x: pd.DataFrame, y: np.ndarray, seed: int, *, shift: float = 0.0) -> Predict:
    """Predicts the mean label plus a shift, with the spread of the labels."""
    center, spread = float(y.mean()) + shift, float(y.std())

    def predict(x: pd.DataFrame) -> Prediction:
        mean = np.full(len(x), center)
        normal = Normal(torch.from_numpy(mean), spread**2)
        return Prediction(mean, mean - 1.645 * spread, mean + 1.645 * spread, normal)

    return predict


def fit_broken(x: pd.DataFrame, y: np.ndarray, seed: int) -> Predict:
    raise RuntimeError("it broke")


CONSTANT, SHIFTED = (
    Estimator(name, name.title(), partial(fit_constant, shift=shift))
    for name, shift in (("constant", 0.0), ("shifted", 9.0))
)


@pytest.fixture(autouse=True)
def _no_unit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(estimator_runs, "_unit_seconds", lambda split: 0.5)


def test_scores_by_hand() -> None:
    y = np.array([0.0, 1.0, 5.0, -9.0])
    normal = Normal(torch.zeros(4, dtype=torch.float64), 1.0)
    prediction = Prediction(np.zeros(4), np.full(4, -2.0), np.full(4, 1.0), normal)
    found = score(prediction, y, np.array([True, True, True, False]))
    assert found == {
        "mae": 2.0,
        "crps": found["crps"],
        "coverage": pytest.approx(2 / 3, rel=1e-5),
        "width": 3.0,
    }
    assert 0 < found["crps"] < found["mae"]
    lost = Prediction(np.full(4, np.nan), np.zeros(4), np.ones(4), normal)
    with pytest.raises(RuntimeError, match="its mae is nan"):
        score(lost, y, np.ones(4, bool))


def test_a_line_says_how_it_came_about() -> None:
    split = natural_split(SOURCES[0], 3, max_rows=100)
    line = run_estimator(CONSTANT, split, suite="tiny", max_rows=100)
    assert (line["suite"], line["data"], line["method"], line["seed"]) == ("tiny", "a", "constant", 3)
    assert line["rows"] == {"table": 300, "train": 100, "test": 60, "rare": 9}
    assert line["recipe"] == estimator_recipe(100) and line["digest"] == split.digest
    raw = line["metrics"]["raw"]
    assert raw["rare"]["mae"] > raw["all"]["mae"] and 0.8 < raw["all"]["coverage"] <= 1
    assert set(line["seconds"]) == {"fit", "predict", "unit"} and line["seconds"]["unit"] == 0.5


def test_finished_runs_are_skipped_and_failed_ones_tried_again(tmp_path: Path) -> None:
    out = tmp_path / "estimator.jsonl"
    run = partial(run_estimators, SOURCES, out=out, suite="tiny", seeds=(0, 1), progress=False)
    assert run([CONSTANT], time_limit=0.0).left == 4
    first = run([CONSTANT, Estimator("broken", "Broken", fit_broken)])
    assert first.done == 4 and len(first.failed) == 4 and first.left == 0
    assert first.failed[0] == "a broken seed 0: RuntimeError: it broke"
    # One seed after the other, so that a stopped suite has whole seeds.
    assert [record["seed"] for record in read_results(out)] == [0, 0, 1, 1]
    again = run([CONSTANT, SHIFTED, Estimator("broken", "Broken", partial(fit_constant, shift=1.0))])
    assert again.done == 8 and not again.failed
    assert run([CONSTANT, SHIFTED]).done == 0


def test_a_file_with_other_settings_is_not_continued(tmp_path: Path) -> None:
    out = tmp_path / "estimator.jsonl"
    run_estimators(SOURCES[:1], [CONSTANT], out=out, suite="tiny", seeds=(0,), progress=False)
    with pytest.raises(ValueError, match="has runs with max_rows = 20000, not 50: name another file"):
        run_estimators(SOURCES, [CONSTANT], out=out, suite="tiny", seeds=(0,), max_rows=50, progress=False)
    with pytest.raises(ValueError, match="has runs with suite = tiny, not other"):
        run_estimators(SOURCES, [CONSTANT], out=out, suite="other", seeds=(0,), progress=False)


def test_the_unit_of_time_is_a_small_fit_of_catboost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    monkeypatch.setattr(estimator_runs, "UNIT_TREES", 3)
    unit = estimator_runs._unit_seconds(natural_split(SOURCES[0], 0))
    assert unit is not None and unit > 0
    monkeypatch.setitem(__import__("sys").modules, "catboost", None)
    assert estimator_runs._unit_seconds(natural_split(SOURCES[0], 0)) is None
