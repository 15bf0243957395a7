"""One run: its record, its tuning, and what may never leak."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest

import tailwise
from tailwise.benchmark import Problem, Recipe, from_registry, run_one
from tailwise.benchmark.run.region_scores import OF_THE_MEAN, OF_THE_SPREAD
from tailwise.calibration.scaling import balanced_weights
from tailwise.metrics import REGIONS, evaluate
from tests.benchmark.conftest import Offset, without_times


def test_record_says_how_it_came_about(problem: Problem, recipe: Recipe) -> None:
    record = run_one(from_registry("vir"), problem, recipe)
    assert record["version"] == tailwise.__version__
    assert (record["data"], record["method"], record["seed"]) == ("small", "vir", 0)
    assert record["recipe"]["epochs"] == 2 and record["recipe"]["criterion"] == "balanced_mae"
    assert len(record["trials"]) == 2 and record["options"] in [t["options"] for t in record["trials"]]
    assert record["rows"] == {"train": 160, "valid": 60, "test": 60, "table": 280}
    assert sum(record["test_rows"].values()) == 60
    assert record["seconds"]["fit"] > 0 and record["parameters"] > 0
    for region in REGIONS:
        assert set(record["metrics"]["raw"][region]) == set(OF_THE_MEAN + OF_THE_SPREAD)
        assert set(record["metrics"]["calibrated"][region]) == set(OF_THE_SPREAD)
    json.dumps(record, allow_nan=False)


def test_metrics_are_those_of_the_test_part(problem: Problem, recipe: Recipe, offset: Offset) -> None:
    record = run_one(offset.contender(), problem, recipe, {"offset": 0.25})
    outcome = offset.fit(problem, {"offset": 0.25}, recipe)
    names = ["mae", "balanced_mae", "nll", "coverage"]
    expected = evaluate(outcome.test, problem.y_test, problem.bins, names)
    for name in names:
        assert record["metrics"]["raw"]["all"][name] == pytest.approx(expected[name], rel=1e-5)


def test_calibration_comes_from_the_balanced_validation_part(
    problem: Problem, recipe: Recipe, offset: Offset
) -> None:
    record = run_one(offset.contender(), problem, recipe, {"offset": 0.25})
    # All validation errors are 0.25 with variance 1: the factor that fits is 0.25^2 by hand.
    assert balanced_weights(problem.y_valid, problem.bins).mean() == pytest.approx(1)
    assert record["scaling"] == {"w": pytest.approx(0.0625)}
    assert record["valid"] == {recipe.criterion: pytest.approx(0.25)}


@pytest.mark.parametrize("name", ["vir", "smogn", "ensemble", "infer-noise"])
def test_same_seed_same_numbers(problem: Problem, recipe: Recipe, name: str) -> None:
    first, second = (run_one(from_registry(name), problem, recipe) for _ in range(2))
    assert without_times(first) == without_times(second)


def test_another_seed_other_numbers(problem: Problem, recipe: Recipe) -> None:
    vanilla = from_registry("vanilla", tuned=False)
    first, second = (run_one(vanilla, replace(problem, seed=s), recipe) for s in (0, 1))
    assert first["metrics"] != second["metrics"]


# -- nothing leaks -------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["vir", "lds-fds-der", "smoter", "bmse-gai", "vanilla"])
def test_test_labels_influence_nothing(problem: Problem, recipe: Recipe, name: str) -> None:
    shuffled = replace(problem, y_test=np.random.default_rng(1).permutation(problem.y_test) + 7)
    contender = from_registry(name)
    first, second = (run_one(contender, p, recipe) for p in (problem, shuffled))
    assert first["metrics"] != second["metrics"]
    for key in ("options", "scaling", "epochs", "bins"):
        assert first[key] == second[key], key
    assert without_times(first)["trials"] == without_times(second)["trials"]
    a, b = (contender.fit(p, first["options"], recipe).test for p in (problem, shuffled))
    assert a.mean.equal(b.mean) and a.variance.equal(b.variance)


def test_tuning_goes_by_the_validation_part(problem: Problem, recipe: Recipe, offset: Offset) -> None:
    # On the validation part 0.1 is best, on the test part -5 would be, by far.
    far = replace(problem, y_test=np.full_like(problem.y_test, problem.y_train.mean() + 5))
    contender = offset.contender(offset=(2.0, 0.1, -5.0))
    record = run_one(contender, far, replace(recipe, trials=3))
    assert record["options"] == {"offset": 0.1}
    scores = {t["options"]["offset"]: t["score"] for t in record["trials"]}
    assert scores == {2.0: pytest.approx(2.0), 0.1: pytest.approx(0.1), -5.0: pytest.approx(5.0)}


def test_a_configuration_that_fails_has_lost(problem: Problem, recipe: Recipe, offset: Offset) -> None:
    offset.fails = lambda problem, options: options["offset"] == 0.1
    record = run_one(offset.contender(offset=(0.1, 1.0)), problem, recipe)
    assert record["options"] == {"offset": 1.0}
    assert [t["score"] for t in record["trials"]] == [None, 1.0]
    record = run_one(offset.contender(offset=(math.nan, 1.0)), problem, recipe)
    assert record["options"] == {"offset": 1.0}
    assert record["trials"][0]["error"] == "its balanced_mae on the validation part is nan"
    offset.fails = lambda problem, options: True
    with pytest.raises(RuntimeError, match="every configuration failed; the first with: it broke"):
        run_one(offset.contender(offset=(0.1, 1.0)), problem, recipe)
    with pytest.raises(RuntimeError, match="it broke"):
        run_one(offset.contender(), problem, recipe, {"offset": 1.0})
