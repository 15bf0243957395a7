"""Arrays from npz files, without running anything that a file contains."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tailwise.tables.read import TableError


def read_arrays(path: Path, names: Sequence[str]) -> dict[str, NDArray[np.generic]]:
    """Return the named arrays of an npz file, read without pickle."""
    if not path.is_file():
        raise TableError(f"{path} does not exist or is a folder: name an npz file")
    if not zipfile.is_zipfile(path):
        raise TableError(f"{path} is not an npz file: write it with numpy.savez")
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as stored:
            missing = [name for name in names if name not in stored]
            if missing:
                there = ", ".join(stored) or "nothing"
                raise TableError(
                    f"{path} has no array {missing[0]!r}: it holds {there}, but needs {', '.join(names)}"
                )
            return {name: _array(stored, name, path) for name in names}
    except TableError:
        raise
    except Exception as error:  # a damaged archive fails in many ways
        raise TableError(f"{path} is a damaged npz file ({error}): copy or write it again") from None


def _array(stored: Mapping[str, NDArray[np.generic]], name: str, path: Path) -> NDArray[np.generic]:
    try:
        return stored[name]
    except ValueError as error:
        if "Object arrays" not in str(error):
            raise
        raise TableError(
            f"{path}: the array {name!r} holds Python objects, which could run code and are not loaded: "
            "store numbers, or texts by astype(str)"
        ) from None
