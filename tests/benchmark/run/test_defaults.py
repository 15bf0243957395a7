"""The choice of defaults: the same budget for all, the rule, resuming, and no look at test parts."""

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tailwise.benchmark import Problem, Recipe
from tailwise.benchmark.data.recipe import default_options
from tailwise.benchmark.data.spaces import Range
from tailwise.benchmark.run.defaults import (
    PRESETS,
    Decision,
    choose_defaults,
    decisions,
    own_space,
    questions,
)
from tailwise.benchmark.run.results import ResultsFile
from tailwise.benchmark.run.search import Study
from tailwise.methods import available_methods

SEEDS = (0, 1)


def line(options: dict[str, Any], seed: int, *scores: float | None, method: str = "lds") -> dict[str, Any]:
    """A line of the results."""
    named = dict(zip(("one", "two", "three"), scores, strict=True))
    return {"method": method, "seed": seed, "options": options, "scores": named}


def test_every_method_with_options_of_its_own_takes_part() -> None:
    without = [name for name in available_methods() if not own_space(name)]
    assert set(PRESETS) < set(without)
    assert set(without) - set(PRESETS) == {
        *("vanilla", "gaussian", "ensemble", "smoter", "smogn", "two-part"),
    }


CHOSEN = decisions(ResultsFile(Path(__file__).parents[3] / "research" / "results" / "defaults.jsonl").records)


def test_the_choice_was_made_for_every_method() -> None:
    chosen = [decision.method for decision in CHOSEN]
    # A method without options of its own, and added later, has nothing to choose.
    assert chosen == [name for name in available_methods() if own_space(name) or name in chosen]


@pytest.mark.parametrize("decision", CHOSEN, ids=lambda decision: decision.method)
def test_the_registry_has_what_was_chosen(decision: Decision) -> None:
    registered = default_options(own_space(decision.method))
    assert json.loads(json.dumps(registered)) == decision.chosen


def test_what_a_name_says_is_not_up_for_choice() -> None:
    assert set(own_space("sqinv")) == set(own_space("inv")) == {"weights.clip"}
    assert "weights.power" in own_space("lds")


def test_what_is_asked() -> None:
    dialogue = questions(Study({"a": Range(0.0, 1.0, log=False, default=0.5)}, 4), (0, 1, 2))
    asked = [next(dialogue)]
    for loss in (1.0, 3.0, 0.5, 2.0):
        asked.append(dialogue.send([{"one": math.exp(loss), "two": math.exp(loss)}]))
    assert asked[0] == [(0, {"a": 0.5})]
    assert [len(batch) for batch in asked] == [1, 1, 1, 1, 4]
    best = asked[2][0][1]
    assert asked[4] == [(1, {"a": 0.5}), (1, best), (2, {"a": 0.5}), (2, best)]


def test_a_default_that_is_best_needs_no_check() -> None:
    dialogue = questions(Study({"a": (1, 2)}, 4), (0, 1))
    next(dialogue)
    dialogue.send([{"one": 1.0}])
    with pytest.raises(StopIteration):
        dialogue.send([{"one": 2.0}])


old, new = {"weights.power": 0.5}, {"weights.power": 1.0}


@pytest.mark.parametrize(
    ("check", "adopted"),
    [
        ((0.9, 0.9, 0.9), True),
        ((0.9, 0.8, 1.15), False),  # better on average, but by less than a standard error
        ((1.2, 1.2, 1.2), False),  # found by chance
        ((0.998, 0.998, 0.998), False),  # not worth a change
        ((0.9, None, 0.9), False),
    ],
)
def test_the_rule_goes_by_the_seeds_of_the_check(check: tuple[float | None, ...], adopted: bool) -> None:
    lines = [line(old, 0, 1.0, 1.0, 1.0), line(new, 0, 0.5, 0.5, 0.5)]
    lines += [line(old, 1, 1.0, 1.0, 1.0), line(new, 1, *check)]
    (decision,) = decisions(lines)
    assert decision.adopted == adopted and decision.chosen == (new if adopted else old)
    assert decision.found == pytest.approx(math.log(0.5)) and decision.trials == 2
    if None not in check:
        changes = np.log(np.array(check, float))
        assert decision.change == pytest.approx(changes.mean())
        assert decision.error == pytest.approx(changes.std(ddof=1) / math.sqrt(3))


def test_a_search_without_its_check_decides_nothing() -> None:
    (decision,) = decisions([line(old, 0, 1.0, 1.0, 1.0), line(new, 0, 0.5, 0.5, 0.5)])
    assert decision.chosen == old


def test_a_configuration_that_fails_somewhere_cannot_win() -> None:
    (decision,) = decisions([line(old, 0, 1.0, 1.0, 1.0), line(new, 0, 0.1, None, 0.1)])
    assert decision.best == old


def run(prepared: Path, out: Path, recipe: Recipe, **options: Any) -> Any:
    """Two methods, without a display."""
    return choose_defaults(
        prepared, out=out, seeds=SEEDS, recipe=recipe, methods=["lds", "vanilla", "focal-r"], progress=False,
        **options,
    )  # fmt: skip


def without_times(path: Path) -> list[str]:
    """Lines without what differs between equal runs, sorted."""
    kept = ({k: v for k, v in r.items() if k != "seconds"} for r in ResultsFile(path).records)
    return sorted(json.dumps(r) for r in kept)


def test_resumes_where_it_was_stopped(prepared: Path, tmp_path: Path, recipe: Recipe) -> None:
    recipe = replace(recipe, trials=4)
    whole, cut = tmp_path / "whole.jsonl", tmp_path / "cut.jsonl"
    summary = run(prepared, whole, recipe)
    assert summary.left == 0 and summary.done == len(ResultsFile(whole).records)
    assert [r["options"] for r in ResultsFile(whole).records if r["method"] == "vanilla"] == [{}]
    for method in ("lds", "focal-r"):
        lines = [r for r in ResultsFile(whole).records if r["method"] == method]
        assert sum(r["seed"] == 0 for r in lines) == 4
        assert len(lines) in (4, 6) and set(lines[0]["scores"]) == {"one", "two"}
    content = whole.read_bytes()
    for end in (0, len(content) // 3, len(content) - 5):
        cut.write_bytes(content[:end])
        run(prepared, cut, recipe)
        assert without_times(cut) == without_times(whole)
    assert run(prepared, whole, recipe).done == 0
    changed = tmp_path / "changed.jsonl"
    changed.write_bytes(content.replace(b'"weights.power": 0.84', b'"weights.power": 0.5'))
    with pytest.raises(ValueError, match="began with another default of lds: name another file"):
        run(prepared, changed, recipe)
    stopped = run(prepared, tmp_path / "none.jsonl", recipe, time_limit=0.0)
    assert stopped.done == 0 and stopped.left > 0


def test_test_parts_are_never_read(prepared: Path, tmp_path: Path, recipe: Recipe) -> None:
    run(prepared, tmp_path / "a.jsonl", recipe)
    for path in prepared.glob("*.npz"):
        name, _, seed = path.stem.rpartition("-")
        problem = Problem.load(prepared, name, int(seed))
        replace(problem, x_test=problem.x_test + 9, y_test=problem.y_test + 9).save(prepared)
    run(prepared, tmp_path / "b.jsonl", recipe)
    scores = [[r["scores"] for r in ResultsFile(tmp_path / f"{x}.jsonl").records] for x in "ab"]
    assert scores[0] == scores[1]
    with pytest.raises(ValueError, match="made with other data"):
        run(prepared, tmp_path / "a.jsonl", recipe)
