"""What a user sees while a suite runs."""

import sys

import pytest

from tailwise.benchmark.run.display import Bar, Lines, Progress, make_progress


def test_lines_count_runs_and_guess_the_time_left(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = iter([0.0, 60.0, 180.0])
    monkeypatch.setattr("time.perf_counter", lambda: next(clock))
    with make_progress(None, runs=2, cost=3.0) as lines:
        assert isinstance(lines, Lines)
        lines.update(1.0, "first")  # a third of the cost took a minute: two are left
        lines.update(2.0, "second")
    assert capsys.readouterr().err.splitlines() == [
        "1/2 first; 2.0 min left",
        "2/2 second; 0.0 min left",
    ]


def test_bar_moves_by_cost_and_says_what_ended() -> None:
    with make_progress(True, runs=2, cost=3.0) as bar:
        assert isinstance(bar, Bar)
        bar.update(2.0, "first")
        task = bar.bar.tasks[0]
        assert (task.completed, task.total, task.description) == (2.0, 3.0, "first")


def test_silence_and_a_machine_without_rich(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with make_progress(False, runs=1, cost=1.0) as silent:
        silent.update(1.0, "nothing")
    assert type(silent) is Progress and capsys.readouterr().err == ""
    monkeypatch.setitem(sys.modules, "rich.console", None)
    assert isinstance(make_progress(None, runs=1, cost=1.0), Lines)
