"""Files that are either whole or not there."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from pathlib import Path


def write_atomically(path: Path, write: Callable[[Path], object]) -> None:
    """Write a file beside its place and move it there, so that no reader ever sees half of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        write(part)
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
