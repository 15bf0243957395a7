"""The runner: what it runs, in which order, at which cost, and what it refuses."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from research.tests.conftest import Offset
from tailwise.report.results import read_records, read_results
from tailwise_bench.choose import choose_contenders
from tailwise_bench.contenders import Contender
from tailwise_bench.estimators import Estimator, Prediction
from tailwise_bench.holes import Holed
from tailwise_bench.measure import measure
from tailwise_bench.pages import write_page
from tailwise_bench.problem import Problem
from tailwise_bench.recipe import Recipe
from tailwise_bench.runs import Summary, run_suite, take_times
from tailwise_bench.spaces import Range
from tailwise_bench.suites import Suite, get_suite
from tailwise_bench.tables import TEST_SHARE

OFFSETS = Range(0.1, 0.5, default=0.5)


def ran(suite: Suite, contenders: list[Contender], folder: Path, **options: Any) -> Summary:
    return run_suite(suite, contenders, folder / "r.jsonl", **options)


def test_the_first_seed_is_tuned_and_the_others_take_its_options(
    suite: Suite, offset: Offset, tmp_path: Path
) -> None:
    summary = ran(suite, [offset.contender(offset=OFFSETS)], tmp_path)
    assert (summary.done, summary.left, summary.failed) == (4, 0, [])
    lines = {(r["data"], r["seed"]): r for r in read_results(tmp_path / "r.jsonl")}
    assert [len(lines["one", seed].get("trials", [])) for seed in (0, 1)] == [2, 0]
    options = lines["two", 0]["options"]
    assert options["offset"] < 0.5 and lines["two", 1]["options"] == options
    assert [call[2] for call in offset.calls if call[:2] == ("two", 1)] == [options]


@pytest.mark.parametrize(("amount", "trials"), [(0.001, 1), (0.02, 2), (0.0401, 4), (1.0, 5)])
def test_as_many_trials_as_fit_a_budget_but_at_least_one(
    amount: float, trials: int, problem: Problem, recipe: Recipe, offset: Offset
) -> None:
    contender = offset.contender(offset=OFFSETS)
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
    assert contender.fit(problem, {}, recipe).gradients == each * steps


def test_the_page_states_cost_and_the_error_in_a_hole(suite: Suite, tmp_path: Path) -> None:
    sources = tuple(Holed(source, "bimodal") for source in suite.sources)
    recipe = replace(suite.recipe, budget={"gradients": 100})
    contenders = choose_contenders(["vanilla", "lds"])
    holed, lines = replace(suite, sources=sources, recipe=recipe, seeds=1), tmp_path / "r.jsonl"
    assert not ran(holed, contenders, tmp_path).failed
    text = write_page(holed, lines, tmp_path / "test.md").read_text()
    assert "may spend 100 gradients" in text and "| gradients, with tuning |" in text
    assert "MAE hole" in text
    record = read_results(lines)[0]
    assert record["metrics"]["raw"]["hole"]["mae"] > 0 and record["test_rows"]["hole"] > 0
    with pytest.raises(ValueError, match="has runs with budget = 100 gradients, not None"):
        ran(replace(holed, recipe=suite.recipe), contenders, tmp_path, seeds=[1])


def test_finished_runs_are_not_repeated_and_failed_ones_are(
    untuned: Suite, offset: Offset, tmp_path: Path
) -> None:
    offset.fails = lambda problem, options: problem.name == "two"
    summary = ran(untuned, [offset.contender()], tmp_path)
    assert summary.done == 2 and len(summary.failed) == 2 and "RuntimeError: it broke" in summary.failed[0]
    assert "traceback" in next(r for r in read_records(tmp_path / "r.jsonl") if "error" in r)
    offset.fails, offset.calls = lambda problem, options: False, []
    assert ran(untuned, [offset.contender()], tmp_path).done == 2
    assert {name for name, _, _ in offset.calls} == {"two"}
    assert ran(untuned, [offset.contender()], tmp_path) == Summary()
    assert ran(untuned, [offset.contender("late")], tmp_path, time_limit=0) == Summary(left=4)


def test_runs_that_do_not_compare_need_another_file(untuned: Suite, offset: Offset, tmp_path: Path) -> None:
    contender = offset.contender()
    ran(untuned, [contender], tmp_path)
    longer = replace(untuned, recipe=untuned.recipe.within(epochs=3))
    for suite, other, words in (
        (longer, contender, "has runs with epochs = 2, not 3: name another file"),
        (replace(untuned, label="other"), contender, "has runs with suite = test, not other"),
        (untuned, replace(contender, fixed={"offset": 1}), "options of offset"),
    ):
        with pytest.raises(ValueError, match=words):
            ran(suite, [other], tmp_path)
    with pytest.raises(ValueError, match="has no data set 'three'; it has one, two"):
        ran(untuned, [contender], tmp_path, data=["three"])
    line = json.loads((tmp_path / "r.jsonl").read_text().splitlines()[0])
    (tmp_path / "r.jsonl").write_text(json.dumps({**line, "digest": "x"}) + "\n")
    with pytest.raises(ValueError, match="was made with other rows of one, seed 0"):
        ran(untuned, [offset.contender("more")], tmp_path)


@pytest.mark.slow
def test_methods_run_in_processes_with_equal_results(untuned: Suite, tmp_path: Path) -> None:
    contenders = choose_contenders(["vir[weights.power=0.25]", "vir[dial]"])
    kept = []
    for workers in (1, 2):
        folder = tmp_path / str(workers)
        assert ran(untuned, contenders, folder, data=["one"], seeds=[0], workers=workers).done == 2
        kept.append({r["method"]: r["metrics"] for r in read_results(folder / "r.jsonl")})
    assert set(kept[0]) == {"vir[weights.power=0.25]", "vir", "vir[dial]", "vir[dial for few shots]"}
    assert kept[0] == kept[1]


def test_times_are_those_of_the_chosen_options(untuned: Suite, offset: Offset, tmp_path: Path) -> None:
    contenders = [offset.contender()]
    ran(untuned, contenders, tmp_path)
    offset.calls = []
    assert take_times(untuned, contenders, tmp_path / "r.jsonl", tmp_path / "t.jsonl").done == 2
    assert [name for name, seed, _ in offset.calls] == ["one", "one", "two"]  # the first is fitted twice
    assert take_times(untuned, contenders, tmp_path / "r.jsonl", tmp_path / "t.jsonl") == Summary()


def test_estimators_run_on_natural_splits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tailwise_bench.measure.fit_gaussian", lambda *_, **__: None)

    def fit(x: Any, y: Any, seed: int) -> Any:
        def predict(x: Any) -> Prediction:
            mean = y.mean() + 0 * x.iloc[:, 1].to_numpy(float)
            return Prediction(mean, mean - 5, mean + 5, quantiles=mean[:, None])

        return predict

    suite, out = replace(get_suite("quick-estimator"), seeds=1), tmp_path / "r.jsonl"
    assert run_suite(suite, [Estimator("constant", "Constant", fit)], out, data=["abalone"]).done == 1
    (line,) = read_results(out)
    assert line["rows"]["test"] == round(TEST_SHARE * 4177) and line["rows"]["train"] == suite.max_rows
    scores = line["metrics"]["raw"]
    assert scores["rare"]["mae"] > scores["all"]["mae"]
    assert set(scores["all"]) == {"mae", "rmse", "crps", "coverage", "width", "interval_score"}
