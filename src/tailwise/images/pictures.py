"""Pictures in a folder or a zip archive, read by name and decoded once by Pillow."""

from __future__ import annotations

import hashlib
import importlib.util
import io
import os
import re
import shutil
import threading
import zipfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.lib.format import open_memmap
from numpy.typing import NDArray

from tailwise.lookup import check_name
from tailwise.writing import write_atomically

Bytes = NDArray[np.uint8]
_ARCHIVE = re.compile(r"\.zip/", re.IGNORECASE)


class ImageError(ValueError):
    """Pictures that cannot be read or used; the message names them and says what to do."""


class PictureFiles:
    """Files by name in a folder or a zip archive; without a root, names are paths. Threads may share it.

    A path may lead into an archive: ``faces.zip/images/1.jpg``.
    """

    def __init__(self, root: str | os.PathLike[str] | None = None) -> None:
        self.root = None if root is None else Path(root)
        self._own = threading.local()
        if self.root is None or self.root.is_dir():
            return
        if not self.root.exists():
            raise ImageError(
                f"{self.root} does not exist: name the folder or the zip archive of the pictures"
            )
        if not zipfile.is_zipfile(self.root):
            raise ImageError(
                f"{self.root} is neither a folder nor a zip archive: unpack it, or name a folder"
            )

    def path(self, name: str) -> str:
        """Return the path of a file, which may lead into an archive."""
        return name if self.root is None else f"{self.root.as_posix()}/{name}"

    def _archive(self, path: str) -> zipfile.ZipFile | None:
        """Return this thread's own handle: one that threads share would let only one read at a time."""
        handles: dict[str, zipfile.ZipFile | None] = self._own.__dict__
        if path not in handles:
            handles[path] = zipfile.ZipFile(path) if zipfile.is_zipfile(path) else None
        return handles[path]

    def _located(self, name: str) -> tuple[zipfile.ZipFile | None, str]:
        """Return None and the path of a file, or an archive and the name in it."""
        path = self.path(name)
        for end in _ARCHIVE.finditer(path):
            if (archive := self._archive(path[: end.end() - 1])) is not None:
                return archive, path[end.end() :]
        return None, path

    def names(self, endings: Sequence[str]) -> list[str]:
        """Return the sorted names of all files with these endings, with forward slashes."""
        top = self.root or Path()
        if (archive := None if top.is_dir() else self._archive(top.as_posix())) is not None:
            paths = archive.namelist()
        else:
            paths = [path.relative_to(top).as_posix() for path in top.rglob("*") if path.is_file()]
        return sorted(name for name in paths if name.lower().endswith(tuple(endings)))

    def stamp(self, name: str) -> str:
        """Return what changes when the file does: size and time, or the checksum in an archive.

        For a missing file it is ``-``.
        """
        archive, path = self._located(name)
        try:
            if archive is not None:
                entry = archive.getinfo(path)
                return f"{entry.file_size} {entry.CRC:08x}"
            status = Path(path).stat()
            return f"{status.st_size} {status.st_mtime_ns}"
        except (OSError, KeyError):
            return "-"

    def read(self, name: str) -> bytes:
        """Return the content of a file; FileNotFoundError if it is missing."""
        archive, path = self._located(name)
        try:
            return Path(path).read_bytes() if archive is None else archive.read(path)
        except KeyError:
            raise FileNotFoundError(name) from None


def decode(content: bytes, size: tuple[int, int]) -> Bytes:
    """Return a picture as bytes (height, width, 3), turned upright and resized to (height, width).

    It is resized as a whole, which changes its aspect ratio if that differs. A content that is no picture
    is an `ImageError`.
    """
    from PIL import Image, ImageOps

    height, width = size
    try:
        with Image.open(io.BytesIO(content)) as picture:
            picture.draft("RGB", (width, height))  # lets JPEG decode at a half, a quarter or an eighth
            upright = ImageOps.exif_transpose(picture).convert("RGB")
            if upright.size != (width, height):
                upright = upright.resize((width, height), Image.Resampling.BILINEAR)
            return np.asarray(upright)
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise ImageError(f"it is not a picture that Pillow can decode ({error})") from None


# -- decoded once, into a file --------------------------------------------------------------------
# Its name has a digest of the listing: names, sizes and times, or checksums, of the pictures. A second file
# says which rows are done, so that decoding continues after a kill.


OnBroken = Literal["refuse", "skip"]
CHUNK = 128
"""Pictures that a thread decodes at a time."""
_OPEN, _DONE, _MISSING, _BROKEN = range(4)
_REASONS = {_MISSING: "does not exist", _BROKEN: "is not a picture that Pillow can decode"}
_SHOWN = 5


@dataclass(frozen=True, eq=False)
class Pictures:
    """Decoded pictures in the order of their names; rows that are not `usable` are black."""

    pixels: Bytes  # (N, height, width, 3), mapped from a file
    usable: NDArray[np.bool_]  # (N,)
    problems: tuple[str, ...] = ()
    """Which pictures are not usable, and why."""

    def part(self, start: int, stop: int) -> Bytes:
        """Return some consecutive pictures, mapped on their own, so that their place in the file is known."""
        whole: Any = self.pixels
        offset = whole.offset + start * whole[0].nbytes
        return np.memmap(whole.filename, np.uint8, "c", offset, (stop - start, *whole.shape[1:]))


def cache_folder() -> Path:
    """Return the folder of caches: TAILWISE_CACHE, or ``tailwise`` in the user's folder of caches."""
    named = os.environ.get("TAILWISE_CACHE")
    if named:
        return Path(named)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tailwise"


def decode_pictures(
    names: Sequence[str],
    root: str | os.PathLike[str] | None = None,
    *,
    size: int | tuple[int, int],
    cache: Path | None = None,
    on_broken: OnBroken = "refuse",
    threads: int | None = None,
    progress: bool | None = None,
) -> Pictures:
    """Return pictures of a folder or a zip archive as bytes of one size; decode only what the cache lacks.

    With ``on_broken="refuse"``, missing and broken pictures are an error that names them. With ``"skip"``
    they are listed in `Pictures.problems`. `progress` shows a bar, by default on a terminal.
    """
    if importlib.util.find_spec("PIL") is None:
        raise ImportError("pictures need Pillow: pip install 'tailwise[images]'")
    check_name("way to treat broken pictures", on_broken, ("refuse", "skip"))
    if not names:
        raise ImageError("no pictures: the listing is empty")
    height, width = (size, size) if isinstance(size, int) else size
    if min(height, width) < 1:
        raise ImageError(f"the size of pictures must be positive, got {size!r}")
    files = PictureFiles(root)
    stem = f"{_digest(names, files)}-{height}x{width}"
    folder = cache_folder() if cache is None else cache
    pixels, state = _open(folder, stem, (len(names), height, width, 3))
    todo = np.flatnonzero(np.asarray(state) == _OPEN)
    if todo.size:
        _decode_rows(names, files, todo, pixels, state, threads or os.cpu_count() or 1, progress)
        pixels.flush()
        state.flush()
    states = np.array(state)
    problems = tuple(
        f"{names[int(row)]} {_REASONS[int(states[row])]}" for row in np.flatnonzero(states != _DONE)
    )
    if problems and on_broken == "refuse":
        more = f" and {len(problems) - _SHOWN} more" if len(problems) > _SHOWN else ""
        where = "" if root is None else f" in {root}"
        raise ImageError(
            f"{len(problems)} of {len(names)} pictures{where} cannot be used: {'; '.join(problems[:_SHOWN])}"
            f"{more}; copy them again, remove their rows, or skip them"
        )
    if len(problems) == len(names):
        raise ImageError(f"none of the {len(names)} pictures can be used; the first: {problems[0]}")
    return Pictures(_mapped(folder / f"{stem}.npy", "c"), states == _DONE, problems)


def _digest(names: Sequence[str], files: PictureFiles) -> str:
    whole = hashlib.blake2b(digest_size=8)
    for name in names:
        whole.update(f"{name}\t{files.stamp(name)}\n".encode())
    return whole.hexdigest()


def _mapped(path: Path, mode: Literal["c", "r+"]) -> Any:
    """Map a file of an array; in mode "c" it can be changed in memory only, as tensors require."""
    return np.load(path, mmap_mode=mode, allow_pickle=False)


def _open(folder: Path, stem: str, shape: tuple[int, ...]) -> tuple[Any, Any]:
    """Open both files for writing; create them if one of them is missing or does not fit."""
    pixels, state = folder / f"{stem}.npy", folder / f"{stem}.state"
    with suppress(OSError, ValueError, EOFError):
        arrays = _mapped(pixels, "r+"), _mapped(state, "r+")
        if arrays[0].shape == shape and arrays[1].shape == shape[:1]:
            return arrays
    folder.mkdir(parents=True, exist_ok=True)
    need, free = int(np.prod(shape)), shutil.disk_usage(folder).free
    if need > free:
        raise ImageError(
            f"{folder} has {free / 1e9:.1f} GB left, but the decoded pictures take {need / 1e9:.1f} GB: "
            "set TAILWISE_CACHE to another folder, or choose a smaller size"
        )
    state.unlink(missing_ok=True)  # which pictures are done is said of no other pixels
    write_atomically(pixels, lambda to: open_memmap(to, "w+", np.uint8, shape))
    write_atomically(state, lambda to: open_memmap(to, "w+", np.uint8, shape[:1]))
    return _mapped(pixels, "r+"), _mapped(state, "r+")


def _decode_rows(
    names: Sequence[str],
    files: PictureFiles,
    rows: NDArray[np.intp],
    pixels: Any,
    state: Any,
    threads: int,
    progress: bool | None,
) -> None:
    """Decode rows in threads, which works in parallel because Pillow releases Python's lock."""
    from rich.console import Console
    from rich.progress import track

    size = (int(pixels.shape[1]), int(pixels.shape[2]))

    def decode_chunk(chunk: NDArray[np.intp]) -> None:
        for row in chunk.tolist():
            try:
                pixels[row] = decode(files.read(names[row]), size)
                state[row] = _DONE
            except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
                state[row] = _MISSING
            except ImageError:
                state[row] = _BROKEN

    chunks = np.array_split(rows, -(-len(rows) // CHUNK))
    console = Console(stderr=True)
    hidden = not (console.is_terminal if progress is None else progress)
    with ThreadPoolExecutor(threads, "pictures") as pool:
        done = pool.map(decode_chunk, chunks)
        try:
            for _ in track(
                done, "decoding pictures", len(chunks), console=console, transient=True, disable=hidden
            ):
                pass
        except BaseException:  # so that Ctrl-C ends soon
            pool.shutdown(cancel_futures=True)
            raise
