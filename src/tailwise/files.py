"""Files that are either whole or not there."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from pathlib import Path

Write = Callable[[Path], object]


def write_atomically(path: Path, write: Write) -> None:
    """Write a file beside its place and move it there, so that no reader ever sees half of it."""
    write_together({path: write})


def write_together(writes: Mapping[Path, Write]) -> None:
    """Write several files, all of them or none: they are moved to their places once each is whole."""
    parts = {path: path.with_name(f".{path.name}.{uuid.uuid4().hex}") for path in writes}
    try:
        for path, write in writes.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            write(parts[path])
        for path, part in parts.items():
            part.replace(path)
    finally:
        for part in parts.values():
            part.unlink(missing_ok=True)
