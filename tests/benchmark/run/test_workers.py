"""Workers: results, errors, time limits and a process that dies, in this process and in others."""

import multiprocessing
import os
import time

import pytest
import torch

from tailwise.benchmark.run.workers import Workers


def square(number: int) -> int:
    return number * number


def wait_or_die(seconds: float) -> float:
    if seconds < 0:
        os._exit(1)
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
    with Workers(wait_or_die, 2) as workers:
        workers.submit(0.0)
        workers.submit(600.0)
        assert not workers.free
        assert list(workers.finished()) == [(0.0, 0.0)]
        workers.deadline = time.perf_counter() + 1  # not before: a busy machine starts processes slowly
        assert workers.free and list(workers.finished()) == []
        assert not workers.in_time
    assert set(multiprocessing.active_children()) == before


@pytest.mark.slow
def test_a_process_that_dies_is_an_error_that_says_so() -> None:
    with (
        pytest.raises(RuntimeError, match="a worker process died while 1 runs were in progress"),
        Workers(wait_or_die, 2) as workers,
    ):
        workers.submit(-1.0)
        list(workers.finished())
