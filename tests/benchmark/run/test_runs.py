"""Many runs: the order, resuming, sharing a results file, and what is refused."""

import itertools
import multiprocessing
import os
import signal
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tailwise.benchmark import (
    Contender,
    Problem,
    Recipe,
    Summary,
    choose_contenders,
    from_registry,
    run_suite,
)
from tailwise.benchmark.run.claims import FileClaims
from tailwise.benchmark.run.results import ResultsFile, finished_runs, read_results
from tests.benchmark.conftest import Offset, without_times


def run(prepared: Path, out: Path, recipe: Recipe, *contenders: Contender, **options: Any) -> Summary:
    return run_suite(prepared, contenders, out=out, seeds=(0, 1), recipe=recipe, progress=False, **options)


def test_every_seed_uses_what_the_first_one_chose(
    prepared: Path, tmp_path: Path, recipe: Recipe, offset: Offset
) -> None:
    out = tmp_path / "r.jsonl"
    summary = run(prepared, out, recipe, offset.contender(offset=(1.0, 0.2)))
    assert summary.done == 4 and summary.left == 0 and not summary.failed
    for name in ("one", "two"):
        calls = [(seed, options["offset"]) for data, seed, options in offset.calls if data == name]
        assert calls == [(0, 1.0), (0, 0.2), (1, 0.2)]
    records = read_results(out)
    assert {(r["data"], r["seed"]) for r in records} == {(d, s) for d in ("one", "two") for s in (0, 1)}
    assert [("trials" in r, r.get("search")) for r in records if r["seed"] == 0] == [
        (True, {"offset": [1.0, 0.2]})
    ] * 2


def test_resumes_after_a_kill_at_any_byte(
    prepared: Path, tmp_path: Path, recipe: Recipe, offset: Offset
) -> None:
    whole, cut = tmp_path / "whole.jsonl", tmp_path / "cut.jsonl"
    contender = offset.contender(offset=(1.0, 0.2))
    run(prepared, whole, recipe, contender)
    expected = {k: without_times(r) for k, r in finished_runs(read_results(whole)).items()}
    content = whole.read_bytes()
    for end in np.linspace(0, len(content), 12).astype(int):
        cut.write_bytes(content[:end])
        run(prepared, cut, recipe, contender)
        assert len(cut.read_text().splitlines()) == 4
        assert {k: without_times(r) for k, r in finished_runs(read_results(cut)).items()} == expected
    offset.calls.clear()
    assert run(prepared, whole, recipe, contender).done == 0
    assert not offset.calls


def test_a_broken_method_stops_no_other_and_is_tried_again(
    prepared: Path, tmp_path: Path, recipe: Recipe, offset: Offset
) -> None:
    out = tmp_path / "r.jsonl"
    broken = Offset()
    broken.fails = lambda problem, options: problem.name == "two"
    both = offset.contender("fine"), broken.contender("broken")
    summary = run(prepared, out, recipe, *both)
    assert summary.done == 6 and len(summary.failed) == 2
    assert "two broken 0: RuntimeError: it broke" in summary.failed
    broken.fails = lambda problem, options: False
    summary = run(prepared, out, recipe, *both)
    assert summary.done == 2 and not summary.failed
    assert len(read_results(out)) == 8


def test_seeds_wait_for_a_tuning_that_failed_without_blocking(
    prepared: Path, tmp_path: Path, recipe: Recipe, offset: Offset
) -> None:
    offset.fails = lambda problem, options: problem.name == "one"
    summary = run(prepared, tmp_path / "r.jsonl", recipe, offset.contender(offset=(1.0, 0.2)))
    assert summary.done == 2 and len(summary.failed) == 1 and summary.left == 0


def test_time_limit_leaves_the_rest(prepared: Path, tmp_path: Path, recipe: Recipe, offset: Offset) -> None:
    out = tmp_path / "r.jsonl"
    summary = run(prepared, out, recipe, offset.contender(), time_limit=0.0)
    assert (summary.done, summary.left) == (0, 4)
    assert run(prepared, out, recipe, offset.contender(), data=["two"]).done == 2


def test_refuses_what_cannot_be_compared(
    prepared: Path, tmp_path: Path, recipe: Recipe, offset: Offset
) -> None:
    out = tmp_path / "r.jsonl"
    run(prepared, out, recipe, offset.contender())
    with pytest.raises(ValueError, match="has runs with trials = 2, not 3"):
        run(prepared, out, replace(recipe, trials=3), offset.contender())
    held = replace(offset.contender("held"), fixed={"power": (1, 2)})
    run(prepared, out, recipe, held)
    assert run(prepared, out, recipe, held).done == 0
    assert run(prepared, out, recipe, offset.contender("other")).done == 4  # it asks nothing of `held`
    with pytest.raises(ValueError, match=r"has runs of held with {'power': \[1, 2\]}, not {'power': 3}"):
        run(prepared, out, recipe, replace(held, fixed={"power": 3}))
    bare = replace(held, fixed={})
    with pytest.raises(ValueError, match=r"has runs of held with {'power': \[1, 2\]}, not {}"):
        run(prepared, out, recipe, bare)
    with pytest.raises(ValueError, match=r"has runs of offset with {}, not {'power': 3}"):
        run(prepared, out, recipe, replace(offset.contender(), fixed={"power": 3}))
    with pytest.raises(ValueError, match="has no data set 'three'; it has one, two"):
        run(prepared, out, recipe, offset.contender(), data=["three"])
    with pytest.raises(FileNotFoundError, match=r"not \[2\]: prepare more seeds"):
        run_suite(prepared, [offset.contender()], out=out, seeds=(0, 2), recipe=recipe)
    with pytest.raises(FileNotFoundError, match="has no prepared data"):
        run_suite(tmp_path, [offset.contender()], out=out, recipe=recipe)
    with pytest.raises(FileNotFoundError, match="does not exist"):
        read_results(tmp_path / "nowhere.jsonl")


def test_a_place_that_cannot_be_written_is_told_before_anything_is_run(
    prepared: Path, tmp_path: Path, recipe: Recipe, offset: Offset
) -> None:
    (tmp_path / "file").write_text("mine")
    for out, message in (
        (tmp_path, "is a folder"),
        (tmp_path / "file" / "r.jsonl", "file is a file, so r.jsonl cannot be in it"),
    ):
        with pytest.raises(ValueError, match=message):
            run(prepared, out, recipe, offset.contender())
    assert not offset.calls


def test_without_workers_nothing_would_ever_be_done(
    prepared: Path, tmp_path: Path, recipe: Recipe, offset: Offset
) -> None:
    with pytest.raises(ValueError, match="workers must be at least 1, got 0"):
        run(prepared, tmp_path / "r.jsonl", recipe, offset.contender(), workers=0)


def test_refuses_runs_of_another_suite_or_on_other_rows(
    prepared: Path, tmp_path: Path, recipe: Recipe, offset: Offset
) -> None:
    out = tmp_path / "r.jsonl"
    run(prepared, out, recipe, offset.contender())
    before = out.read_bytes()
    moved = replace(Problem.load(prepared, "two", 1), x_train=Problem.load(prepared, "two", 1).x_train + 1)
    moved.save(prepared)
    assert run(prepared, out, recipe, offset.contender()).done == 0  # nothing to run, nothing to mix
    with pytest.raises(ValueError, match=r"r.jsonl was made with other rows of two, seed 1, than .*prepared"):
        run(prepared, out, recipe, offset.contender("other"))
    for name, seed in itertools.product(("one", "two"), (0, 1)):
        replace(Problem.load(prepared, name, seed), suite="elsewhere").save(prepared)
    with pytest.raises(ValueError, match="has runs of the suite 'test', not 'elsewhere'"):
        run(prepared, out, recipe, offset.contender("other"))
    assert out.read_bytes() == before


@pytest.mark.slow
def test_processes_give_the_numbers_of_one(prepared: Path, tmp_path: Path, recipe: Recipe) -> None:
    contenders = choose_contenders("vanilla,vir")
    alone, many = tmp_path / "alone.jsonl", tmp_path / "many.jsonl"
    run(prepared, alone, recipe, *contenders)
    run(prepared, many, recipe, *contenders, workers=2)
    first, second = (finished_runs(read_results(path)) for path in (alone, many))
    assert first.keys() == second.keys() and len(first) == 8
    for key, record in first.items():
        assert without_times(record) == without_times(second[key])


def test_a_device_that_is_not_there_is_told_once_and_leaves_no_lines(
    prepared: Path, recipe: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    on_gpu = replace(recipe, train=replace(recipe.train, accelerator="cuda"))
    out = tmp_path / "results.jsonl"
    with pytest.raises(ValueError, match=r"no 'cuda' .*`accelerator` in \[recipe.train\]"):
        run_suite(prepared, [from_registry("vanilla")], out=out, seeds=[0], recipe=on_gpu)
    assert not out.exists()


# -- many processes ------------------------------------------------------------------------------


def test_processes_with_one_results_file_share_the_runs(
    prepared: Path, tmp_path: Path, recipe: Recipe, offset: Offset, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, alone = tmp_path / "results.jsonl", tmp_path / "alone.jsonl"
    contender = offset.contender(offset=(0.3, 0.1))
    assert run(prepared, alone, recipe, contender).done == 4
    theirs = [line for line in ResultsFile(alone).records if line["data"] == "one"]
    other = FileClaims(out)
    assert other.take(repr(("one", "offset", 0)))  # another process tunes it

    def other_process(seconds: float) -> None:
        """Go on while this process waits."""
        for line in theirs:
            ResultsFile(out).append(line)
        other.release(repr(("one", "offset", 0)))

    monkeypatch.setattr("time.sleep", other_process)
    before = len(offset.calls)
    summary = run(prepared, out, recipe, contender)
    lines = [(line["data"], line["seed"]) for line in ResultsFile(out).records]
    assert lines == [("two", 0), ("two", 1), ("one", 0), ("one", 1)]
    assert (summary.done, summary.others, summary.left, summary.failed) == (2, 2, 0, [])
    assert [name for name, *_ in offset.calls[before:]] == 3 * ["two"]  # two trials, and the other seed
    assert not list(tmp_path.glob(".*"))


def test_a_failure_of_another_process_is_told_and_not_repeated(
    prepared: Path, tmp_path: Path, recipe: Recipe, offset: Offset, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "results.jsonl"
    failed = {"data": "one", "method": "offset", "seed": 0, "error": "RuntimeError: it broke"}
    other = FileClaims(out)
    assert other.take(repr(("one", "offset", 0)))
    monkeypatch.setattr(
        "time.sleep",
        lambda seconds: (ResultsFile(out).append(failed), other.release(repr(("one", "offset", 0)))),
    )
    summary = run(prepared, out, recipe, offset.contender(offset=(0.3, 0.1)), data=["one"])
    assert summary.failed == ["one offset 0: RuntimeError: it broke"] and not offset.calls


def test_a_tuning_in_a_database_is_shared_and_resumed(
    prepared: Path, tmp_path: Path, recipe: Recipe, offset: Offset
) -> None:
    out, storage = tmp_path / "results.jsonl", f"sqlite:///{tmp_path / 'search.db'}"
    contender, asked = offset.contender(offset=(0.3, 0.1, 0.2)), replace(recipe, trials=3)
    offset.fails = lambda problem, options: len(offset.calls) == 2 and _stop()

    def _stop() -> bool:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(prepared, out, asked, contender, data=["one"], storage=storage)
    offset.fails = lambda problem, options: False
    summary = run(prepared, out, asked, contender, data=["one"], storage=storage)
    # The first trial is not repeated, and what was chosen is fitted once more for each seed.
    tried = [options["offset"] for _, _, options in offset.calls]
    assert tried[0] == 0.3 and tried[1] == tried[2] and sorted(tried[2:]) == [0.1, 0.1, 0.1, 0.2]
    lines = ResultsFile(out).records
    assert summary.done == 2 and [len(line.get("trials", ())) for line in lines] == [3, 0]
    assert {line["options"]["offset"] for line in lines} == {0.1}
    offset.fails = lambda problem, options: True
    summary = run(prepared, tmp_path / "other.jsonl", asked, contender, data=["two"], storage=storage)
    assert len(summary.failed) == 1 and "every configuration failed" in summary.failed[0]


def work_beside_others(prepared: Path, out: Path, recipe: Recipe, dies_at: int) -> None:
    """Run a suite in a process of its own, which may be killed in one of its runs."""
    offset = Offset()

    def fails(problem: Problem, options: Mapping[str, Any]) -> bool:
        time.sleep(0.02)
        if len(offset.calls) == dies_at:
            os.kill(os.getpid(), signal.SIGKILL)
        return False

    offset.fails = fails
    contenders = [offset.contender(name, offset=(0.3, 0.1)) for name in "abcdef"]
    assert run(prepared, out, recipe, *contenders).left == 0


@pytest.mark.slow
def test_no_run_is_lost_or_done_twice_when_one_of_three_processes_is_killed(
    prepared: Path, tmp_path: Path, recipe: Recipe
) -> None:
    context, out = multiprocessing.get_context("fork"), tmp_path / "results.jsonl"
    processes = [
        context.Process(target=work_beside_others, args=(prepared, out, recipe, dies_at))
        for dies_at in (0, 0, 4)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join(120)
    assert [process.exitcode for process in processes] == [0, 0, -signal.SIGKILL]
    runs = [(line["data"], line["method"], line["seed"]) for line in ResultsFile(out).records]
    assert len(runs) == len(set(runs)) == 2 * 6 * 2
    assert not list(tmp_path.glob(".*"))
