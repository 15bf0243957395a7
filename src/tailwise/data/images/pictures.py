"""Pictures in a folder or a zip archive, read by name and decoded by Pillow."""

from __future__ import annotations

import io
import os
import threading
import zipfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]
ENDINGS = (".jpg", ".jpeg", ".png", ".bmp", ".gif", ".webp", ".tif", ".tiff")
"""Endings of file names that count as pictures."""


class ImageError(ValueError):
    """Pictures that cannot be read or used; the message names them and says what to do."""


def require_pillow() -> None:
    """Raise an error that says how to install Pillow, unless it is there."""
    try:
        import PIL.Image  # noqa: F401
    except ImportError:
        raise ImportError("pictures need Pillow: pip install 'tailwise[images]'") from None


class PictureFiles:
    """Files by name in a folder or a zip archive; without a root, names are paths. Threads may share it."""

    def __init__(self, root: str | os.PathLike[str] | None) -> None:
        self.root = None if root is None else Path(root)
        self._own = threading.local()
        self._entries: dict[str, zipfile.ZipInfo] | None = None
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
        self._entries = {entry.filename: entry for entry in self._archive().infolist() if not entry.is_dir()}

    def _archive(self) -> zipfile.ZipFile:
        """Return this thread's own handle: one that threads share would let only one read at a time."""
        if not hasattr(self._own, "archive"):
            assert self.root is not None
            self._own.archive = zipfile.ZipFile(self.root)
        archive: zipfile.ZipFile = self._own.archive
        return archive

    def _path(self, name: str) -> Path:
        return Path(name) if self.root is None else self.root / name

    def names(self, endings: Sequence[str] = ENDINGS) -> list[str]:
        """Return the sorted names of all files with these endings, with forward slashes."""
        if self._entries is not None:
            found = list(self._entries)
        else:
            top = self.root or Path()
            found = [path.relative_to(top).as_posix() for path in top.rglob("*") if path.is_file()]
        return sorted(name for name in found if name.lower().endswith(tuple(endings)))

    def stamp(self, name: str) -> str:
        """Return what changes when the file does: its size, in an archive its checksum; ``-`` if missing."""
        if self._entries is not None:
            entry = self._entries.get(name)
            return "-" if entry is None else f"{entry.file_size} {entry.CRC:08x}"
        try:
            return str(self._path(name).stat().st_size)
        except OSError:
            return "-"

    def read(self, name: str) -> bytes:
        """Return the content of a file; FileNotFoundError if it is missing."""
        if self._entries is None:
            return self._path(name).read_bytes()
        if name not in self._entries:
            raise FileNotFoundError(name)
        return self._archive().read(self._entries[name])


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
