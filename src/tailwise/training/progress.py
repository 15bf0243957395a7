"""Progress of training: a bar on a terminal, lines in a log elsewhere."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Protocol

from tailwise.training.config import TrainConfig

logger = logging.getLogger(__name__)
_SECONDS_BETWEEN = 1.0


@contextmanager
def visible() -> Iterator[None]:
    """Print the lines of training to standard error, at most one per second, unless logging is set up.

    Notebooks and log files have no terminal for a bar, and most users have no logging.
    """
    ours = logging.getLogger("tailwise")
    if ours.hasHandlers() and ours.isEnabledFor(logging.INFO):
        yield
        return
    handler, level, passed = logging.StreamHandler(), ours.level, -math.inf

    def due(record: logging.LogRecord) -> bool:
        nonlocal passed
        if record.levelno > logging.INFO or record.created - passed >= _SECONDS_BETWEEN:
            passed = record.created
            return True
        return False

    handler.setFormatter(logging.Formatter("%(message)s"))
    handler.addFilter(due)
    ours.addHandler(handler)
    ours.setLevel(logging.INFO)
    try:
        yield
    finally:
        ours.removeHandler(handler)
        ours.setLevel(level)


class Progress(Protocol):
    """Displays the progress of training."""

    def update(self, row: dict[str, float], best_epoch: int) -> None:
        """Show the figures of a finished epoch."""


class _LogProgress:
    """A line after the first epoch and after each tenth of the epochs."""

    def __init__(self, config: TrainConfig) -> None:
        self.config = config

    def update(self, row: dict[str, float], best_epoch: int) -> None:
        epoch, epochs = int(row["epoch"]), self.config.epochs
        if epoch == 1 or 10 * epoch // epochs > 10 * (epoch - 1) // epochs:
            logger.info("%s", _progress_line(row, best_epoch, self.config))


class _BarProgress:
    def __init__(self, config: TrainConfig, bar: Any) -> None:
        self.config, self.bar = config, bar
        self.task = bar.add_task("training", total=config.epochs)

    def update(self, row: dict[str, float], best_epoch: int) -> None:
        text = _progress_line(row, best_epoch, self.config)
        self.bar.update(self.task, completed=row["epoch"], description=text)


def _progress_line(row: dict[str, float], best_epoch: int, config: TrainConfig) -> str:
    text = f"epoch {int(row['epoch'])}/{config.epochs}  loss {row['loss']:.4g}"
    if config.monitor in row:
        text += f"  {config.monitor.replace('_', ' ')} {row[config.monitor]:.4g} (best: {best_epoch})"
    return text


def progress_display(show: bool | None, config: TrainConfig) -> tuple[AbstractContextManager[Any], Progress]:
    """Return a bar on a terminal, or log lines elsewhere and without rich; `show` forces one or the other."""
    try:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
    except ImportError:
        return nullcontext(), _LogProgress(config)
    console = Console(stderr=True)
    if not (console.is_terminal if show is None else show):
        return nullcontext(), _LogProgress(config)
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TimeRemainingColumn(),
        console=console,
        transient=True,
    )
    return bar, _BarProgress(config, bar)
