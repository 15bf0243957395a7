"""Files that are written whole or not at all, and files to which one process at a time may append."""

from __future__ import annotations

import glob
import os
import re
import socket
import uuid
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows: files are not held there
    fcntl = None  # type: ignore[assignment]

Write = Callable[[Path], object]

_HOST = f"{zlib.crc32(socket.gethostname().encode()):08x}"
_PART = re.compile(r"\.(?P<host>[0-9a-f]{8})-(?P<process>\d+)-[0-9a-f]{8}$")


def write_atomically(path: Path, write: Write) -> None:
    """Write a file so that no reader ever sees a part of it: beside its place, then moved there."""
    write_together({path: write})


def write_together(writes: Mapping[Path, Write]) -> None:
    """Write several files, all of them or none. They are moved to their places once all are complete.

    A symbolic link stays a link: the file that it points to is replaced. Parts that a killed process left
    beside these places are removed.
    """
    places = {(path.resolve() if path.is_symlink() else path): write for path, write in writes.items()}
    writer = f"{_HOST}-{os.getpid()}-{uuid.uuid4().hex[:8]}"  # which process of which machine
    parts = {place: place.with_name(f".{place.name}.{writer}") for place in places}
    try:
        for place, write in places.items():
            place.parent.mkdir(parents=True, exist_ok=True)
            remove_leftovers(place)
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


def remove_leftovers(path: Path) -> None:
    """Remove the parts of a file, and of files whose names begin like its name, that dead processes left."""
    for part in path.parent.glob(f"*.{glob.escape(path.name)}.*"):
        found = _PART.search(part.name)
        if found and found["host"] == _HOST and not _runs(int(found["process"])):
            with suppress(OSError):
                part.unlink()


def _runs(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):  # it belongs to somebody else, or cannot be told
        return True
    return True


@contextmanager
def claimed(path: Path) -> Iterator[None]:
    """Hold a file to which lines are appended. If another process holds it, that is an error.

    The system releases the hold when the process ends, however it ends.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as file:
        if fcntl is not None:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise ValueError(
                    f"{path} is being written by another run: wait for it, or name another file"
                ) from None
            except OSError:  # a file system without locks
                pass
        try:
            yield
        finally:
            if os.fstat(file.fileno()).st_size == 0:
                with suppress(OSError):
                    path.unlink()


def append_line(path: Path, line: bytes) -> None:
    """Append a line to a file, whole or not at all, and wait until it is on the disk.

    A last line without an end, which a killed process left, is removed.
    """
    # Without a buffer: after an error nothing is left that closing the file would write.
    with path.open("a+b", buffering=0) as file:
        file.seek(0)
        end = file.readall().rfind(b"\n") + 1
        file.truncate(end)
        left = line + b"\n"
        try:
            while left:
                left = left[file.write(left) :]
            os.fsync(file.fileno())
        except BaseException as error:
            # A whole line stays if the user stops the program while the disk is waited for.
            if left or isinstance(error, OSError):
                with suppress(OSError):
                    file.truncate(end)
            raise
