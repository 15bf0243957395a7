"""Progress of training: a bar on a terminal, lines in a log elsewhere."""

from __future__ import annotations

import logging
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol

from tailwise.learning.config import TrainConfig

logger = logging.getLogger(__name__)


class Progress(Protocol):
    """Displays the progress of training."""

    def update(self, row: dict[str, float], best_epoch: int) -> None:
        """Show the figures of a finished epoch."""


class _LogProgress:
    def __init__(self, config: TrainConfig) -> None:
        self.config = config

    def update(self, row: dict[str, float], best_epoch: int) -> None:
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
