"""Budgets and holes: equal cost for every contender, and labels that training lacks."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from research.tests.conftest import Offset, small_problem
from tailwise.methods import available_methods, get_method
from tailwise.report.results import read_results
from tailwise_bench.choose import choose_contenders
from tailwise_bench.contenders import Outcome
from tailwise_bench.holes import HOLES, Holed
from tailwise_bench.measure import measure
from tailwise_bench.pages import write_page
from tailwise_bench.problem import HOLE, Problem
from tailwise_bench.recipe import Recipe
from tailwise_bench.runs import run_suite
from tailwise_bench.spaces import Range, search_space
from tailwise_bench.suites import Suite, get_suite


@pytest.mark.parametrize(("amount", "trials"), [(0.001, 1), (0.02, 2), (0.0401, 4), (1.0, 5)])
def test_as_many_trials_as_fit_a_budget_but_at_least_one(
    amount: float, trials: int, problem: Problem, recipe: Recipe, offset: Offset
) -> None:
    contender = offset.contender(offset=Range(0.1, 0.5, default=0.5))
    budget = replace(recipe, trials=5, budget={"seconds": amount})
    record = measure(contender, problem, budget)[-1]  # each fit says that it took 0.01 seconds
    assert len(record["trials"]) == len(offset.calls) == trials
    assert record["spent"]["seconds"] == pytest.approx(0.01 * trials)
    assert record["recipe"]["budget"] == f"{amount:g} seconds"
    (again,) = measure(contender, problem, budget, record["options"])
    assert again["spent"]["seconds"] == 0.01 and "trials" not in again


@pytest.mark.parametrize(("name", "each"), [("vanilla", 1), ("bsam", 2), ("ensemble", 5)])
def test_gradients_are_counted_for_every_member_and_perturbation(
    name: str, each: int, problem: Problem, recipe: Recipe
) -> None:
    steps = 2 * -(-len(problem.y_train) // recipe.config.batch_size)
    (contender,) = choose_contenders([name])
    outcome = contender.fit(problem, {}, recipe)
    assert isinstance(outcome, Outcome) and outcome.gradients == each * steps


def test_every_method_of_the_group_searches_something_from_its_own_values() -> None:
    group = [name for name in available_methods() if get_method(name).group == "since-vir"]
    assert [c.name for c in choose_contenders(["since-vir"])] == group
    for name in group:
        assert any(isinstance(of, Range) for of in search_space(name).values()), name


def test_the_page_states_cost_beside_error(suite: Suite, tmp_path: Path) -> None:
    dear = replace(suite, recipe=replace(suite.recipe, budget={"gradients": 100}), seeds=1)
    contenders = choose_contenders(["vanilla", "lds"])
    lines = tmp_path / "test.jsonl"
    holed = replace(dear, sources=tuple(Holed(source, "bimodal") for source in dear.sources))
    assert not run_suite(holed, contenders, lines).failed
    text = write_page(holed, lines, tmp_path / "test.md").read_text()
    assert "may spend 100 gradients" in text and "| gradients, with tuning |" in text
    assert "MAE hole" in text
    record = json.loads(lines.read_text().splitlines()[0])
    assert record["metrics"]["raw"]["hole"]["mae"] > 0 and record["test_rows"]["hole"] > 0
    with pytest.raises(ValueError, match="has runs with budget = 100 gradients, not None"):
        run_suite(replace(holed, recipe=suite.recipe), contenders, lines, seeds=[1])
    assert len(read_results(lines)) == 4


@pytest.mark.parametrize("hole", HOLES)
def test_a_hole_has_no_training_or_validation_label_and_keeps_the_test(hole: str) -> None:
    class Source:
        name = "small"

        def problem(self, seed: int, max_rows: int = 4000) -> Problem:
            return small_problem(seed=seed, rows=2000)

    whole = small_problem(rows=2000)
    low, high = np.quantile(whole.y_train, HOLES[hole].levels, method="higher")
    holed = Holed(Source(), hole).problem(0)
    for y, before in ((holed.y_train, whole.y_train), (holed.y_valid, whole.y_valid)):
        inside = (y >= low) & (y <= high)
        assert inside.all() if HOLES[hole].outside else not inside.any()
        assert 0 < len(y) < len(before) or (hole == "blind-spot" and len(y) <= len(before))
    assert len(holed.x_train) == len(holed.y_train)
    inside = (whole.y_test >= low) & (whole.y_test <= high)
    np.testing.assert_array_equal(holed.extra[HOLE], ~inside if HOLES[hole].outside else inside)
    np.testing.assert_array_equal(holed.y_test, whole.y_test)
    np.testing.assert_array_equal(holed.bins.edges, whole.bins.edges)


def test_an_extrapolation_leaves_out_ends_that_many_rows_have() -> None:
    labels = np.repeat([0.0, 1.0, 2.0, 3.0], [60, 20, 15, 5])
    assert HOLES["extrapolation"].ends(labels) == (1.0, 2.0)
    assert HOLES["bimodal"].ends(labels) == (0.0, 2.0)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("holes = ['blindspot']", "unknown hole 'blindspot'; did you mean 'blind-spot'"),
        ("[recipe]\nbudget = { second = 3 }", "has no option 'second'; did you mean 'seconds'"),
        ("[recipe]\nbudget = { seconds = 3, gradients = 4 }", "a budget is one number"),
    ],
)
def test_mistakes_are_named(line: str, words: str, tmp_path: Path) -> None:
    (tmp_path / "own.toml").write_text(f"like = 'quick'\nmethods = ['vanilla']\n{line}\n")
    with pytest.raises(ValueError, match=words):
        get_suite(str(tmp_path / "own.toml"))
