"""Processes that work through jobs of one thread each, until all are done or the time is up."""

from __future__ import annotations

import math
import multiprocessing
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

import torch

from tailwise.benchmark.run.plugins import load_plugins, loaded_plugins

J = TypeVar("J")
R = TypeVar("R")


def _start(plugins: tuple[str, ...]) -> None:
    torch.set_num_threads(1)
    load_plugins(plugins)


@contextmanager
def _interrupts_held_back() -> Iterator[None]:
    """Start a process that never hears Ctrl-C: at a terminal the parent does, and ends its workers."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class _Here(Executor):
    """Runs in this process, one after the other, with one thread as the workers have."""

    def submit(self, function: Any, /, *args: Any, **options: Any) -> Future[Any]:
        """Run now; the future is done when this returns."""
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        done: Future[Any] = Future()
        try:
            done.set_result(function(*args, **options))
        finally:
            torch.set_num_threads(threads)
        return done


class Workers(Generic[J, R]):
    """Runs ``function(job)`` in processes; after `time_limit` seconds jobs in flight are given up.

    A context manager. Submit while `free`, then take what is `finished`.
    """

    def __init__(self, function: Callable[[J], R], count: int = 1, time_limit: float | None = None) -> None:
        if count < 1:
            raise ValueError(f"workers must be at least 1, got {count!r}")
        self.function, self.count = function, count
        self.began = time.perf_counter()
        self.deadline = math.inf if time_limit is None else self.began + time_limit
        self.flying: dict[Future[R], J] = {}
        self._before = set(multiprocessing.active_children())
        # Spawned, not forked: a fork of a process that has used torch's threads can hang.
        context = multiprocessing.get_context("spawn")
        self._pool: Executor = (
            ProcessPoolExecutor(count, mp_context=context, initializer=_start, initargs=(loaded_plugins(),))
            if count > 1
            else _Here()
        )

    @property
    def in_time(self) -> bool:
        """Whether the time is not up."""
        return time.perf_counter() < self.deadline

    @property
    def elapsed(self) -> float:
        """Seconds since the start."""
        return time.perf_counter() - self.began

    @property
    def free(self) -> bool:
        """Whether a job submitted now would start at once."""
        return len(self.flying) < self.count and self.in_time

    def submit(self, job: J) -> None:
        """Start a job."""
        with _interrupts_held_back():
            self.flying[self._pool.submit(self.function, job)] = job

    def finished(self) -> Iterator[tuple[J, R]]:
        """Wait for a job to end and give those that have; nothing when the time is up."""
        left = None if math.isinf(self.deadline) else max(self.deadline - time.perf_counter(), 0)
        done, _ = wait(self.flying, left, FIRST_COMPLETED)
        for future in done:
            yield self.flying.pop(future), future.result()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the processes: ours alone, other children of this process were there before."""
        self._pool.shutdown(wait=not self.flying, cancel_futures=True)
        if self.flying:
            for child in set(multiprocessing.active_children()) - self._before:
                child.terminate()
                child.join()
