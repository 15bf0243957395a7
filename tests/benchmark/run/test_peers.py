"""Models of other packages as contenders."""

import numpy as np
import pytest

from tailwise.benchmark import Recipe, run_one
from tailwise.benchmark.data.recipe import default_options
from tailwise.benchmark.run.peers import missing_peers, peer_contenders
from tests.benchmark.conftest import make_small_problem


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("catboost", marks=pytest.mark.slow),
        "lightgbm",
        pytest.param("ngboost", marks=pytest.mark.slow),
    ],
)
@pytest.mark.filterwarnings("ignore")  # what peers warn about is theirs
def test_peers_with_and_without_weights(name: str, recipe: Recipe) -> None:
    problem = make_small_problem(rows=300)
    plain, weighted = (c for c in peer_contenders() if c.name.partition("-")[0] == name)
    assert weighted.title.endswith("+ LDS") and "weights.power" in weighted.search
    records = [run_one(c, problem, recipe) for c in (plain, weighted)]
    spread = float(np.abs(problem.y_test - problem.y_train.mean()).mean())
    for record in records:
        assert record["epochs"] % 10 == 0 and len(record["trials"]) == 2
        assert record["metrics"]["raw"]["all"]["mae"] < spread
    assert records[0]["metrics"] != records[1]["metrics"]
    outcome = plain.fit(problem, default_options(plain.search), recipe)
    assert outcome.test.variance.min() > 0 and len(outcome.test) == 60


def test_missing_peers_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    import importlib.util

    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert missing_peers() == ["catboost", "lightgbm", "ngboost"]
    assert peer_contenders() == []
