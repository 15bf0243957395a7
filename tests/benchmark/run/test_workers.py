"""Workers: results, errors, time limits and a process that dies, in this process and in others."""

import multiprocessing
import os
import time
from pathlib import Path

import pytest
import torch

from tailwise.benchmark.run.workers import Workers


def square(number: int) -> int:
    return number * number


def wait(seconds: float) -> float:
    time.sleep(seconds)
    return seconds


def threads(_: int) -> int:
    return torch.get_num_threads()


def test_every_job_gives_its_result_on_one_thread() -> None:
    before = torch.get_num_threads()
    with Workers(square) as workers:
        found = {}
        for job in (2, 3):
            assert workers.free
            workers.submit(job)
            found |= dict(workers.finished())
    assert found == {2: 4, 3: 9} and not workers.running and workers.elapsed > 0
    with Workers(threads) as workers:
        workers.submit(0)
        assert list(workers.finished()) == [(0, 1)]
    assert torch.get_num_threads() == before


def test_an_error_of_a_job_is_raised() -> None:
    with Workers(lambda job: 1 / job) as workers, pytest.raises(ZeroDivisionError):
        workers.submit(0)


def test_no_job_is_free_to_start_when_the_time_is_up() -> None:
    with Workers(square, time_limit=0.0) as workers:
        assert not workers.in_time and not workers.free
    with pytest.raises(ValueError, match="workers must be at least 1, got 0"):
        Workers(square, 0)


@pytest.mark.slow
def test_processes_end_at_the_time_limit_and_leave_no_child() -> None:
    before = set(multiprocessing.active_children())
    with Workers(wait, 2) as workers:
        workers.submit(0.0)
        workers.submit(600.0)
        assert not workers.free
        assert list(workers.finished()) == [(0.0, 0.0)]
        workers.deadline = time.perf_counter() + 1  # not before: a busy machine starts processes slowly
        assert workers.free and list(workers.finished()) == []
        assert not workers.in_time
    assert set(multiprocessing.active_children()) == before


def die_beside_others(job: tuple[Path, int]) -> int:
    """Die the first time, as a process that takes too much memory does."""
    folder, number = job
    if number == 0 and not (folder / "died").exists():
        (folder / "died").touch()
        os._exit(1)
    return number


@pytest.mark.slow
def test_jobs_of_a_process_that_dies_start_again_in_fewer(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with Workers(die_beside_others, 2) as workers:
        for number in (0, 1):
            workers.submit((tmp_path, number))
        found = set()
        while workers.running:
            found |= {result for _, result in workers.finished()}
        assert found == {0, 1} and workers.count == 1
        assert "a worker process died" in caplog.text and "one runs at a time" in caplog.text
        (tmp_path / "died").unlink()
        workers.submit((tmp_path, 0))
        with pytest.raises(RuntimeError, match="died again when it was alone"):
            list(workers.finished())
