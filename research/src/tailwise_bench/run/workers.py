"""Worker processes of one thread each that work through jobs until all are done or the time is up."""

from __future__ import annotations

import logging
import math
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

import torch

from tailwise.methods.plugins import load_plugin, loaded_plugins

logger = logging.getLogger(__name__)
J = TypeVar("J")
R = TypeVar("R")


def _start(plugins: tuple[str, ...]) -> None:
    threading.Thread(target=_end_with_parent, daemon=True).start()
    torch.set_num_threads(1)
    for file in plugins:
        load_plugin(file)


def _end_with_parent() -> None:
    """End this process when its parent has ended: a parent that is killed cannot end its workers."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


@contextmanager
def _interrupts_blocked() -> Iterator[None]:
    """Block Ctrl-C while a worker starts: only the parent receives it, and ends its workers."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class _SameProcess(Executor):
    """Runs jobs in this process, one after the other, on one thread."""

    def submit(self, function: Any, /, *args: Any, **options: Any) -> Future[Any]:
        """Run the job now; the future is done when this returns."""
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        done: Future[Any] = Future()
        try:
            done.set_result(function(*args, **options))
        finally:
            torch.set_num_threads(threads)
        return done


class Workers(Generic[J, R]):
    """Runs ``function(job)`` in processes; jobs that run when `time_limit` seconds are over are abandoned.

    A context manager. Submit jobs while `free`, then take those that are `finished`. If a process dies, its
    jobs start again in half as many processes. Built on
    `ProcessPoolExecutor`: joblib can neither take jobs that depend on earlier results nor stop at a deadline
    and keep what is finished.
    """

    def __init__(self, function: Callable[[J], R], count: int = 1, time_limit: float | None = None) -> None:
        if count < 1:
            raise ValueError(f"workers must be at least 1, got {count!r}")
        self.function, self.count = function, count
        self.began = time.perf_counter()
        self.deadline = math.inf if time_limit is None else self.began + time_limit
        self.running: dict[Future[R], J] = {}
        self._before = set(multiprocessing.active_children())
        self._pool: Executor = self._processes() if count > 1 else _SameProcess()

    def _processes(self) -> ProcessPoolExecutor:
        # Spawned, not forked: a fork of a process that has used torch's threads can hang.
        context = multiprocessing.get_context("spawn")
        return ProcessPoolExecutor(
            self.count, mp_context=context, initializer=_start, initargs=(loaded_plugins(),)
        )

    @property
    def in_time(self) -> bool:
        """Whether the time limit is not reached yet."""
        return time.perf_counter() < self.deadline

    @property
    def elapsed(self) -> float:
        """Seconds since the start."""
        return time.perf_counter() - self.began

    @property
    def free(self) -> bool:
        """Whether a job submitted now would start at once."""
        return len(self.running) < self.count and self.in_time

    def submit(self, job: J) -> None:
        """Start a job."""
        with _interrupts_blocked():
            self.running[self._pool.submit(self.function, job)] = job

    def finished(self) -> Iterator[tuple[J, R]]:
        """Wait until a job ends, and yield all that have ended; nothing when the time is up."""
        left = self.deadline - time.perf_counter()
        done, _ = wait(self.running, None if math.isinf(left) else max(left, 0), FIRST_COMPLETED)
        for future in done:
            try:
                result = future.result()
            except BrokenProcessPool:
                self._restart()
                return
            yield self.running.pop(future), result

    def _restart(self) -> None:
        """Start the running jobs again in half as many processes, because one has died."""
        if self.count == 1:
            raise RuntimeError(
                "a worker process died, and died again when it was alone, perhaps for lack of memory. "
                "Finished runs are kept."
            ) from None
        self.count //= 2
        logger.warning(
            "a worker process died, perhaps for lack of memory: %d runs start again, and %s",
            len(self.running),
            "one runs at a time" if self.count == 1 else f"{self.count} run at a time",
        )
        self._pool.shutdown(cancel_futures=True)
        self._pool, jobs = self._processes(), list(self.running.values())
        self.running.clear()
        for job in jobs:
            self.submit(job)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the processes that this object started, and no other children."""
        self._pool.shutdown(wait=not self.running, cancel_futures=True)
        if self.running:
            for child in set(multiprocessing.active_children()) - self._before:
                child.terminate()
                child.join()
