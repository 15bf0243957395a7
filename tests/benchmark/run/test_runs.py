"""Many runs: the order, resuming, and what is refused."""

import itertools
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
from tailwise.benchmark.run.results import finished_runs, read_results
from tailwise.writing import claimed
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


def test_a_second_process_with_the_same_file_is_refused(
    prepared: Path, tmp_path: Path, recipe: Recipe, offset: Offset
) -> None:
    out = tmp_path / "results.jsonl"
    with claimed(out), pytest.raises(ValueError, match=r"results.jsonl is being written by another run"):
        run(prepared, out, recipe, offset.contender())
    assert not offset.calls
