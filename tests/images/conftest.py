"""A folder of small pictures, and a cache of its own for every test."""

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.picture_samples import pictures, write_pictures

NAMES = [f"faces/{i}.png" for i in range(6)]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Set the folder of caches."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("TAILWISE_CACHE", str(folder))
    return folder


@pytest.fixture
def faces(tmp_path: Path) -> tuple[Path, NDArray[np.uint8]]:
    """Return a folder of six pictures, and their pixels."""
    folder, content = tmp_path / "pictures", pictures(np.arange(6.0))
    write_pictures(folder, NAMES, content)
    return folder, content
