"""Tuning: what is asked, in which order, and that it can be repeated."""

import math
import sys
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailwise.benchmark.data.recipe import default_options
from tailwise.benchmark.data.spaces import Range, Space
from tailwise.benchmark.run.search import Study, describe_space

SPACE: Space = {
    "rate": Range(0.001, 10.0, default=0.1),
    "share": Range(0.0, 1.0, log=False, default=0.5),
    "kind": ("a", None),
}


def run(space: Space, trials: int, loss: Any) -> list[dict[str, Any]]:
    """Ask and tell until the trials are used up."""
    study, asked = Study(space, trials), []
    while (options := study.ask()) is not None:
        asked.append(options)
        study.tell(loss(options))
    return asked


def distance(options: dict[str, Any]) -> float:
    """Least at rate 3, share 0.8 and kind None."""
    near = abs(math.log(options["rate"] / 3)) + abs(options["share"] - 0.8)
    return near + (options["kind"] is not None)


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 9))
def test_the_default_comes_first_and_all_lie_in_the_space(trials: int) -> None:
    asked = run(SPACE, trials, distance)
    assert asked[0] == default_options(SPACE) == {"rate": 0.1, "share": 0.5, "kind": "a"}
    assert len(asked) == trials
    for options in asked:
        assert (
            0.001 <= options["rate"] <= 10 and 0 <= options["share"] <= 1 and options["kind"] in ("a", None)
        )
        assert float(f"{options['rate']:.2g}") == options["rate"]


def test_the_same_losses_lead_to_the_same_questions() -> None:
    assert run(SPACE, 12, distance) == run(SPACE, 12, distance)
    assert run(SPACE, 12, distance) != run(SPACE, 12, lambda options: -distance(options))


def test_it_learns_from_what_it_is_told() -> None:
    towards, away = (run(SPACE, 60, lambda o, s=sign: s * distance(o))[30:] for sign in (1, -1))
    means = [sum(map(distance, asked)) / 30 for asked in (towards, away)]
    assert means[0] < 0.5 * means[1]


def test_failures_are_survived() -> None:
    asked = run(SPACE, 8, lambda options: None if options["kind"] == "a" else math.nan)
    assert len(asked) == 8


def test_none_is_asked_twice_and_a_small_space_is_exhausted() -> None:
    asked = run({"a": (1, 2), "b": (5, 6, 7)}, 9, lambda options: float(options["a"] == 2))
    assert sorted((o["a"], o["b"]) for o in asked) == [(a, b) for a in (1, 2) for b in (5, 6, 7)]


def test_values_of_any_kind_can_be_choices() -> None:
    asked = run({"clip": ((0.1, 10.0), (0.5, 2.0), None)}, 3, lambda o: float(o["clip"] is not None))
    assert {o["clip"] for o in asked} == {(0.1, 10.0), (0.5, 2.0), None}


def test_one_trial_or_no_space_needs_no_optuna(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    assert run({}, 5, lambda options: 1.0) == [{}]
    assert run(SPACE, 1, distance) == [default_options(SPACE)]
    with pytest.raises(ImportError, match=r"pip install 'tailwise\[search\]'"):
        Study(SPACE, 2)


def test_a_space_can_be_written_down() -> None:
    assert describe_space(SPACE) == {
        "rate": {"default": 0.1, "low": 0.001, "high": 10.0, "log": True},
        "share": {"default": 0.5, "low": 0.0, "high": 1.0, "log": False},
        "kind": ["a", None],
    }


@pytest.mark.parametrize("wrong", [(0.1, 1.0, True, 2.0), (0.0, 1.0), (2.0, 1.0)])
def test_a_range_holds_its_default(wrong: tuple[float, ...]) -> None:
    with pytest.raises(ValueError, match="low <= default <= high"):
        Range(*wrong)  # type: ignore[arg-type]
