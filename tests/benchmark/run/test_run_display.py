"""What a user sees while a suite runs."""

import pytest

from tailwise.benchmark.run.run_display import show_runs


def test_lines_count_runs_and_estimate_the_time_left(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = iter([0.0, 60.0, 180.0])
    monkeypatch.setattr("tailwise.benchmark.run.run_display.time.perf_counter", lambda: next(clock))
    with show_runs(None, runs=2, cost=3.0) as update:
        update(1.0, "first")  # a third of the cost took a minute: two are left
        update(2.0, "second")
    assert capsys.readouterr().err.splitlines() == ["1/2 first; 2.0 min left", "2/2 second; 0.0 min left"]


def test_a_bar_shows_the_share_of_the_cost_and_the_last_run(capsys: pytest.CaptureFixture[str]) -> None:
    with show_runs(True, runs=2, cost=3.0) as update:
        update(3.0, "first")
    shown = capsys.readouterr().err
    assert "━" in shown and "first" in shown and "1/2" not in shown


def test_silence(capsys: pytest.CaptureFixture[str]) -> None:
    with show_runs(False, runs=1, cost=1.0) as update:
        update(1.0, "nothing")
    assert capsys.readouterr().err == ""
