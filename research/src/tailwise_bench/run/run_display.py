"""Progress of a suite: a bar with the time left on a terminal, one line per run elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

Update = Callable[[float, str], None]


@contextmanager
def show_runs(show: bool | None, runs: int, cost: float) -> Iterator[Update]:
    """Give a function to call with the cost and a description of each finished run.

    `cost` is the cost of all `runs` together, in any unit. `show` True asks for a bar and False for silence;
    None gives a bar on a terminal and lines elsewhere.
    """
    console = Console(stderr=True)
    if show is False:
        yield lambda spent, text: None
    elif show or console.is_terminal:
        columns = BarColumn(), TimeRemainingColumn(), TextColumn("{task.description}")
        with Progress(*columns, console=console) as bar:
            task = bar.add_task("starting", total=cost)
            yield lambda spent, text: bar.update(task, advance=spent, description=text)
    else:
        yield _print_lines(runs, cost)


def _print_lines(runs: int, cost: float) -> Update:
    """Print one line per run on standard error, with an estimate of the time left."""
    began, done, total = time.perf_counter(), 0, 0.0

    def update(spent: float, text: str) -> None:
        nonlocal done, total
        done, total = done + 1, total + spent
        left = (time.perf_counter() - began) * max(cost / total - 1, 0)
        sys.stderr.write(f"{done}/{runs} {text}; {left / 60:.1f} min left\n")
        sys.stderr.flush()

    return update
