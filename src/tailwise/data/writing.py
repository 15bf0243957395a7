"""Files that are written whole or not at all."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from pathlib import Path

Write = Callable[[Path], object]


def write_atomically(path: Path, write: Write) -> None:
    """Write a file so that no reader ever sees a part of it: beside its place, then moved there."""
    write_together({path: write})


def write_together(writes: Mapping[Path, Write]) -> None:
    """Write several files, all of them or none. They are moved to their places once all are complete.

    A symbolic link stays a link: the file that it points to is replaced.
    """
    places = {(path.resolve() if path.is_symlink() else path): write for path, write in writes.items()}
    parts = {place: place.with_name(f".{place.name}.{uuid.uuid4().hex}") for place in places}
    try:
        for place, write in places.items():
            place.parent.mkdir(parents=True, exist_ok=True)
            try:
                write(parts[place])
            except OSError as error:  # name the file that was asked for, not the part beside it
                if error.errno is None:
                    raise
                raise OSError(error.errno, error.strerror, str(place)) from error
        for place, part in parts.items():
            part.replace(place)
    finally:
        for part in parts.values():
            part.unlink(missing_ok=True)
