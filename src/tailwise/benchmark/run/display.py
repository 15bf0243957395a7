"""How far a suite is: a bar with the time left on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import Any, Self


class Progress:
    """Silent; the base of the others. Cost is what runs are expected to take, in any unit."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop showing."""

    def update(self, cost: float, text: str) -> None:
        """Take a run that ended."""


class Lines(Progress):
    """One plain line per run on the standard error, with a guess of the time left."""

    def __init__(self, runs: int, cost: float) -> None:
        self.runs, self.cost, self.began = runs, cost, time.perf_counter()
        self.done, self.spent = 0, 0.0

    def update(self, cost: float, text: str) -> None:
        """Write a line."""
        self.done, self.spent = self.done + 1, self.spent + cost
        left = (time.perf_counter() - self.began) * max(self.cost / self.spent - 1, 0)
        sys.stderr.write(f"{self.done}/{self.runs} {text}; {left / 60:.1f} min left\n")
        sys.stderr.flush()


class Bar(Progress):
    """A bar on a terminal."""

    def __init__(self, cost: float, console: Any) -> None:
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

        text = TextColumn("{task.description}")
        self.bar = Progress(BarColumn(), TimeRemainingColumn(), text, console=console)
        self.task = self.bar.add_task("starting", total=cost)

    def __enter__(self) -> Self:
        self.bar.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Leave the terminal as it was."""
        self.bar.__exit__(kind, error, trace)

    def update(self, cost: float, text: str) -> None:
        """Move the bar."""
        self.bar.update(self.task, advance=cost, description=text)


def make_progress(show: bool | None, runs: int, cost: float) -> Progress:
    """A bar on a terminal, lines elsewhere or without rich; `show` False is silent, True a bar."""
    if show is False:
        return Progress()
    try:
        from rich.console import Console
    except ImportError:
        return Lines(runs, cost)
    console = Console(stderr=True)
    return Bar(cost, console) if show or console.is_terminal else Lines(runs, cost)
