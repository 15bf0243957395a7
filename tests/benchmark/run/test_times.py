"""Times: what was chosen is fitted once more, once, on one machine."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tailwise.benchmark import Contender, Problem, Recipe, read_results, run_suite
from tailwise.benchmark.run import trace
from tailwise.benchmark.run.results import ResultsFile
from tailwise.benchmark.run.times import Times, missing_times, take_times
from tailwise.benchmark.run.trace import machine
from tests.benchmark.conftest import Offset


@pytest.fixture
def contenders(offset: Offset) -> list[Contender]:
    """One that chooses 0.2 of two options, and one that chooses nothing."""
    return [offset.contender("tuned", offset=(1.0, 0.2)), offset.contender("plain")]


@pytest.fixture
def runs(
    prepared: Path, tmp_path: Path, recipe: Recipe, contenders: list[Contender], offset: Offset
) -> list[dict[str, Any]]:
    """Both on two data sets with two seeds; what they were asked is forgotten."""
    out = tmp_path / "runs.jsonl"
    run_suite(prepared, contenders, out=out, seeds=(0, 1), recipe=recipe, progress=False)
    offset.calls.clear()
    return read_results(out)


def take(prepared: Path, out: Path, *given: Any, **options: Any) -> Any:
    """Take times without a display."""
    runs, contenders, recipe = given
    return take_times(prepared, runs, contenders, out=out, recipe=recipe, progress=False, **options)


def test_what_was_chosen_is_fitted_once_with_the_first_seed(
    prepared: Path, tmp_path: Path, recipe: Recipe, offset: Offset, contenders: list[Contender], runs: Any
) -> None:
    out = tmp_path / "times.jsonl"
    summary = take(prepared, out, runs, contenders, recipe)
    assert (summary.done, summary.left) == (4, 0)
    # Data set by data set, so that a slower hour is shared by all contenders; the first to warm up.
    asked = [("one", 0, {"offset": 0.2})] * 2 + [("one", 0, {})] * 2
    assert offset.calls == [*asked, ("two", 0, {"offset": 0.2}), ("two", 0, {})]
    lines = ResultsFile(out).records
    assert [line["seconds"] for line in lines] == [{"fit": 0.01, "predict": 0.001}] * 4
    assert {line["machine"] for line in lines} == {machine()}


def test_resumes_and_takes_again_what_changed(
    prepared: Path, tmp_path: Path, recipe: Recipe, offset: Offset, contenders: list[Contender], runs: Any
) -> None:
    out = tmp_path / "times.jsonl"
    assert take(prepared, out, runs, contenders, recipe, time_limit=0.0).left == 4
    assert take(prepared, out, runs, contenders[:1], recipe).done == 2
    assert take(prepared, out, runs, contenders, recipe).done == 2
    offset.calls.clear()
    assert take(prepared, out, runs, contenders, recipe).done == 0 and not offset.calls
    chosen, changed = {"offset": 1.0}, ("two", "tuned")
    other = [{**run, "options": chosen} if (run["data"], run["method"]) == changed else run for run in runs]
    assert [run["options"] for run in missing_times(other, contenders, out)] == [chosen]
    assert take(prepared, out, other, contenders, recipe).done == 1
    assert offset.calls == [("two", 0, chosen)] * 2


def test_refuses_another_machine_and_other_rows(
    prepared: Path,
    tmp_path: Path,
    recipe: Recipe,
    contenders: list[Contender],
    runs: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    out = tmp_path / "times.jsonl"
    take(prepared, out, runs, contenders[:1], recipe)
    with monkeypatch.context() as patch:
        patch.setattr(trace, "_CPUINFO", tmp_path / "none")
        patch.setattr(trace.os, "cpu_count", lambda: 1000)
        assert take(prepared, out, runs, contenders[:1], recipe).done == 0  # nothing to add
        with pytest.raises(ValueError, match=r"has times of .*, but this is .*1000 cores"):
            take(prepared, out, runs, contenders, recipe)
    problem = Problem.load(prepared, "one", 0)
    replace(problem, y_train=problem.y_train + 1).save(prepared)
    with pytest.raises(ValueError, match="has other rows of one than the run of plain had"):
        take(prepared, out, runs, contenders, recipe)


def test_ratios_are_geometric_means_over_data_sets(tmp_path: Path) -> None:
    path = tmp_path / "times.jsonl"
    with pytest.raises(ValueError, match="has no times"):
        Times.read(path)
    file = ResultsFile(path)
    for data, method, seconds in (("x", "a", 1.0), ("x", "b", 4.0), ("y", "a", 10.0), ("y", "b", 10.0)):
        line = {"data": data, "method": method, "seed": 0, "seconds": {"fit": seconds}, "machine": "m"}
        file.append(line)
    taken = Times.read(path)
    assert (taken.machine, taken.seed) == ("m", 0)
    assert taken.ratio("b", "a", ["x", "y"]) == pytest.approx(2.0)
    assert taken.ratio("a", "a", ["x", "y"]) == 1.0
    assert math.isnan(taken.ratio("c", "a", ["x"])) and math.isnan(taken.ratio("a", "c", ["x"]))
