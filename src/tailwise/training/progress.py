"""The lines of training, shown to those who have set up no log."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator
from contextlib import contextmanager

_SECONDS_BETWEEN = 1.0


@contextmanager
def visible() -> Iterator[None]:
    """Print the lines of training to standard error, at most one per second, unless logging is set up.

    Most users have set up no log.
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
