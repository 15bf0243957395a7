"""Stopping a command: signals, exit codes, and checkpoints to resume from."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

INTERRUPTED = 128 + signal.SIGINT
CHECKPOINT = ".checkpoint"
"""Ending of the file that a stopped command leaves beside its output."""


class Stopped(KeyboardInterrupt):
    """A signal asked the command to end. Everything that handles Ctrl-C handles this too."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number


def exit_code(stop: KeyboardInterrupt) -> int:
    """Return the exit code that shells use for the signal."""
    return 128 + stop.number if isinstance(stop, Stopped) else INTERRUPTED


def _stop(number: int, _: FrameType | None) -> None:
    raise Stopped(number)


def handle_signals() -> None:
    """Turn SIGTERM and SIGHUP into `Stopped`."""
    for name in ("SIGTERM", "SIGHUP"):  # Windows has only the first
        number = getattr(signal, name, None)
        if number is not None and signal.getsignal(number) is signal.SIG_DFL:  # nohup ignores SIGHUP
            signal.signal(number, _stop)


def discard_output() -> None:
    """Drop what standard output could not take; otherwise Python reports the error again at exit."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def checkpoint_path(out: Path, suffix: str = "") -> Path:
    """Return the file that keeps unfinished work for the output `out`."""
    return out.with_name(out.name + suffix + CHECKPOINT)


@contextmanager
def resumable(kept: Path | None) -> Iterator[None]:
    """Add to an interruption whether the same command can resume, and from which file."""
    try:
        yield
    except KeyboardInterrupt as stop:
        if kept is None:
            stop.args = ("nothing was kept; with --out the same command could resume",)
        elif kept.exists():
            stop.args = (f"no output was written; the same command resumes from {kept}",)
        else:
            stop.args = ("nothing was written",)
        raise
