"""Pictures that users bring, as bytes of one size, and how networks are trained on them."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tailwise.lookup import check_name
from tailwise.training.batches import Transform

Bytes = NDArray[np.uint8]
Size = tuple[int, int]
IN_MEMORY = 2**28
"""Files whose decoded pictures take at most this many bytes are decoded in memory, others to the cache."""


def as_pictures(X: Any, size: Size, *, like: bool = False) -> Bytes:
    """Return X as bytes (N, height, width, 3).

    X has pictures as such an array or tensor, or the paths of files: a list, an array, a column or a table
    with one column. Files are decoded at `size` (height, width); with `like`, arrays must have it too. A path
    may lead into a zip archive, as ``faces.zip/1.jpg``.
    """
    if hasattr(X, "columns"):
        if len(X.columns) != 1:
            raise ValueError(
                f"X has {len(X.columns)} columns: a backbone for pictures takes one, the paths of the files"
            )
        X = X[X.columns[0]]
    if isinstance(X, Tensor):
        X = X.detach().cpu()
    pictures = X if isinstance(X, np.ndarray) else np.asarray(X)
    if len(pictures) == 0:
        raise ValueError("X has no pictures")
    if pictures.ndim == 1 and pictures.dtype.kind in "OUT":
        return _decoded(pictures, size)
    if pictures.dtype != np.uint8 or pictures.ndim != 4 or pictures.shape[-1] != 3:
        raise ValueError(
            "a backbone for pictures takes paths, or bytes (uint8) of shape (pictures, height, width, 3), "
            f"not {pictures.dtype} of shape {pictures.shape}"
        )
    if like and pictures.shape[1:3] != size:
        raise ValueError(
            f"the pictures have {pictures.shape[1]} x {pictures.shape[2]} pixels, but the model "
            f"was fitted on {size[0]} x {size[1]}: resize them"
        )
    return pictures


def _decoded(files: NDArray[Any], size: Size) -> Bytes:
    import tempfile
    from pathlib import Path

    from tailwise.images import decode_pictures

    for row, file in enumerate(files):
        if not isinstance(file, (str, os.PathLike)):
            raise ValueError(f"row {row} of X is {file!r}, not the path of a picture")
    paths = [os.fspath(file) for file in files]
    if len(paths) * size[0] * size[1] * 3 > IN_MEMORY:
        return decode_pictures(paths, size=size).pixels
    with tempfile.TemporaryDirectory() as folder:
        return np.array(decode_pictures(paths, size=size, cache=Path(folder)).pixels)


def picture_tensor(pictures: Bytes) -> Tensor:
    """Return pictures as a tensor, without a copy where their memory may be written to."""
    writable = pictures.flags.writeable and pictures.flags.c_contiguous
    return torch.from_numpy(pictures if writable else np.array(pictures))


def augmentation(name: str | None) -> Transform | None:
    """Return the named augmentation of training pictures; an unknown name is an error."""
    if name is None:
        return None
    from tailwise.images.augmentation import AUGMENTATIONS

    check_name("augment", name, AUGMENTATIONS)
    return AUGMENTATIONS[name]


def picture_config(rows: int, cuda: bool) -> dict[str, Any]:
    """Return how to train a network on that many pictures, as arguments of `TrainConfig`."""
    return {
        "epochs": int(np.clip(600_000 / max(rows, 1), 15, 60)),
        "batch_size": int(np.clip(2 ** np.round(np.log2(max(rows, 1) / 50)), 16, 128)),
        "lr": 1e-3,
        "schedule": "cosine",
        "warmup": 1.0,
        "precision": "bf16" if cuda else "fp32",
    }
