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
    """Write several files, all of them or none: they are moved to their places once each is whole.

    A symbolic link stays one: the file that it points to is written.
    """
    places = {(path.resolve() if path.is_symlink() else path): write for path, write in writes.items()}
    parts = {place: place.with_name(f".{place.name}.{uuid.uuid4().hex}") for place in places}
    try:
        for place, write in places.items():
            place.parent.mkdir(parents=True, exist_ok=True)
            try:
                write(parts[place])
            except OSError as error:  # speak of the file that was asked for, not of the part beside it
                if error.errno is None:
                    raise
                raise OSError(error.errno, error.strerror, str(place)) from error
        for place, part in parts.items():
            part.replace(place)
    finally:
        for part in parts.values():
            part.unlink(missing_ok=True)
