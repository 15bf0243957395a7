"""Pictures in a folder or a zip archive, read by name and decoded by Pillow."""

from __future__ import annotations

import io
import os
import re
import threading
import zipfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]
ENDINGS = (".jpg", ".jpeg", ".png", ".bmp", ".gif", ".webp", ".tif", ".tiff")
"""Endings of file names that count as pictures."""
_ARCHIVE = re.compile(r"\.zip/", re.IGNORECASE)


class ImageError(ValueError):
    """Pictures that cannot be read or used; the message names them and says what to do."""


def require_pillow() -> None:
    """Raise an error that says how to install Pillow, unless it is there."""
    try:
        import PIL.Image  # noqa: F401
    except ImportError:
        raise ImportError("pictures need Pillow: pip install 'tailwise[images]'") from None


class PictureFiles:
    """Files by name in a folder or a zip archive; without a root, names are paths. Threads may share it.

    A path may lead into an archive: ``faces.zip/images/1.jpg``.
    """

    def __init__(self, root: str | os.PathLike[str] | None = None) -> None:
        self.root = None if root is None else Path(root)
        self._own = threading.local()
        self._archives: dict[str, dict[str, zipfile.ZipInfo] | None] = {}
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

    def _located(self, name: str) -> tuple[str, str | None]:
        """Return the path of a file and None, or of an archive and the name in it."""
        path = self.path(name)
        for end in _ARCHIVE.finditer(path):
            archive = path[: end.end() - 1]
            if self._entries(archive) is not None:
                return archive, path[end.end() :]
        return path, None

    def _entries(self, archive: str) -> dict[str, zipfile.ZipInfo] | None:
        """Return the files of an archive; None if there is no such archive."""
        if archive not in self._archives:
            entries = None
            if zipfile.is_zipfile(archive):
                entries = {e.filename: e for e in self._opened(archive).infolist() if not e.is_dir()}
            self._archives[archive] = entries
        return self._archives[archive]

    def _opened(self, archive: str) -> zipfile.ZipFile:
        """Return this thread's own handle: one that threads share would let only one read at a time."""
        handles: dict[str, zipfile.ZipFile] = self._own.__dict__.setdefault("handles", {})
        if archive not in handles:
            handles[archive] = zipfile.ZipFile(archive)
        return handles[archive]

    def names(self, endings: Sequence[str] = ENDINGS) -> list[str]:
        """Return the sorted names of all files with these endings, with forward slashes."""
        top = self.root or Path()
        if top.is_dir():
            paths = [path.relative_to(top).as_posix() for path in top.rglob("*") if path.is_file()]
        else:
            paths = list(self._entries(top.as_posix()) or {})
        return sorted(name for name in paths if name.lower().endswith(tuple(endings)))

    def stamp(self, name: str) -> str:
        """Return what changes when the file does: size and time, or the checksum in an archive.

        For a missing file it is ``-``.
        """
        path, inner = self._located(name)
        if inner is not None:
            entry = (self._entries(path) or {}).get(inner)
            return "-" if entry is None else f"{entry.file_size} {entry.CRC:08x}"
        try:
            status = Path(path).stat()
            return f"{status.st_size} {status.st_mtime_ns}"
        except OSError:
            return "-"

    def read(self, name: str) -> bytes:
        """Return the content of a file; FileNotFoundError if it is missing."""
        path, inner = self._located(name)
        if inner is None:
            return Path(path).read_bytes()
        entry = (self._entries(path) or {}).get(inner)
        if entry is None:
            raise FileNotFoundError(name)
        return self._opened(path).read(entry)


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
