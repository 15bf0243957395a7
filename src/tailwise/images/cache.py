"""Pictures decoded once into a memory-mapped file of bytes, which all processes share.

The file's name has a digest of the listing: names, sizes and times, or checksums, of the pictures. A second
file says which rows are done, so that decoding continues after a kill.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from tailwise.images.pictures import Bytes, ImageError, PictureFiles, decode, require_pillow
from tailwise.lookup import check_name
from tailwise.writing import write_atomically

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
    require_pillow()
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
    """Map a file of pixels; in mode "c" it can be changed in memory only, as tensors require."""
    return np.load(path, mmap_mode=mode, allow_pickle=False)


def _open(folder: Path, stem: str, shape: tuple[int, ...]) -> tuple[Any, Any]:
    """Open both files for writing; create those that are missing or do not fit."""
    pixels, state = folder / f"{stem}.npy", folder / f"{stem}.state"
    if not (
        pixels.is_file() and state.is_file() and state.stat().st_size == shape[0] and _fits(pixels, shape)
    ):
        folder.mkdir(parents=True, exist_ok=True)
        need, free = int(np.prod(shape)), shutil.disk_usage(folder).free
        if need > free:
            raise ImageError(
                f"{folder} has {free / 1e9:.1f} GB left, but the decoded pictures take {need / 1e9:.1f} GB: "
                "set TAILWISE_CACHE to another folder, or choose a smaller size"
            )
        state.unlink(missing_ok=True)
        write_atomically(pixels, lambda to: _create(to, shape))
        write_atomically(state, lambda to: to.write_bytes(bytes(shape[0])))
    return _mapped(pixels, "r+"), np.memmap(state, np.uint8, "r+")


def _fits(path: Path, shape: tuple[int, ...]) -> bool:
    try:
        pixels = _mapped(path, "c")
    except (OSError, ValueError):
        return False
    return bool(pixels.shape == shape and pixels.dtype == np.uint8)


def _create(path: Path, shape: tuple[int, ...]) -> None:
    with path.open("wb") as file:
        np.lib.format.write_array_header_2_0(file, {"descr": "|u1", "fortran_order": False, "shape": shape})
        file.truncate(file.tell() + int(np.prod(shape)))


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
    size = (int(pixels.shape[1]), int(pixels.shape[2]))

    def decode_chunk(chunk: NDArray[np.intp]) -> int:
        for row in chunk.tolist():
            try:
                pixels[row] = decode(files.read(names[row]), size)
                state[row] = _DONE
            except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
                state[row] = _MISSING
            except ImageError:
                state[row] = _BROKEN
        return len(chunk)

    chunks = np.array_split(rows, -(-len(rows) // CHUNK))
    with _bar(progress, len(rows)) as advance, ThreadPoolExecutor(threads, "pictures") as pool:
        try:
            for count in pool.map(decode_chunk, chunks):
                advance(count)
        except BaseException:  # so that Ctrl-C ends soon
            pool.shutdown(cancel_futures=True)
            raise


@contextmanager
def _bar(show: bool | None, total: int) -> Iterator[Any]:
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    if not (console.is_terminal if show is None else show):
        yield lambda count: None
        return
    with Progress(console=console, transient=True) as bar:
        task = bar.add_task("decoding pictures", total=total)
        yield lambda count: bar.advance(task, count)
