"""Small pictures whose brightness shows their label."""

from __future__ import annotations

import zipfile
from pathlib import Path
from types import ModuleType

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image


def pictures(labels: NDArray[np.float64], size: int = 16, seed: int = 0) -> NDArray[np.uint8]:
    """Return noise around a grey that grows with the label. (N, size, size, 3)"""
    rng = np.random.default_rng(seed)
    grey = np.interp(labels, (labels.min(), labels.max()), (40, 200))
    noise = rng.normal(0, 20, (len(labels), size, size, 3))
    return np.clip(grey[:, None, None, None] + noise, 0, 255).astype(np.uint8)


def write_pictures(folder: Path, names: list[str], content: NDArray[np.uint8]) -> None:
    """Write pictures as PNG files."""
    for name, picture in zip(names, content, strict=True):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(picture).save(path, format="PNG")


def zipped(folder: Path, archive: Path) -> Path:
    """Pack all files of a folder into a zip archive."""
    with zipfile.ZipFile(archive, "w") as file:
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                file.write(path, path.relative_to(folder).as_posix())
    return archive


def registered_torchvision() -> ModuleType:
    """Return torchvision. Its networks do not need its compiled functions, which fail beside a CPU torch."""
    try:
        import torchvision
    except RuntimeError:
        missing = torch.library.Library("torchvision", "DEF")
        for name in ("nms", "qnms"):
            missing.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        import torchvision
    return torchvision
