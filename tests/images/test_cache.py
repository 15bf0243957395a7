"""Pictures are decoded once, into a file that survives kills and notices changes."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from tailwise.images import ImageError, decode_pictures
from tailwise.images import pictures as module
from tests.images.conftest import NAMES
from tests.picture_samples import pictures, write_pictures, zipped

Faces = tuple[Path, NDArray[np.uint8]]


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Count decoded pictures."""
    count: list[int] = []
    real = module.decode

    def counting(content: bytes, size: tuple[int, int]) -> NDArray[np.uint8]:
        count.append(1)
        return real(content, size)

    monkeypatch.setattr(module, "decode", counting)
    return count


def test_a_second_call_maps_the_file_of_the_first(faces: Faces, decoded: list[int]) -> None:
    folder, content = faces
    for _ in range(2):
        found = decode_pictures(NAMES, folder, size=16)
        assert np.array_equal(found.pixels, content) and found.usable.all() and not found.problems
    assert len(decoded) == 6
    tensor = torch.from_numpy(found.pixels)  # warns, and so fails, if the file is mapped as read-only
    tensor[0] = 0
    assert np.array_equal(decode_pictures(NAMES, folder, size=16).pixels, content)


def test_other_pictures_sizes_and_orders_have_their_own_files(
    faces: Faces, decoded: list[int], cache: Path, tmp_path: Path
) -> None:
    folder, content = faces
    decode_pictures(NAMES, folder, size=16)
    assert decode_pictures(NAMES, folder, size=(8, 4)).pixels.shape == (6, 8, 4, 3)
    assert np.array_equal(decode_pictures(NAMES[::-1], folder, size=16).pixels, content[::-1])
    archive = zipped(folder, tmp_path / "faces.zip")
    assert np.array_equal(decode_pictures(NAMES, archive, size=16).pixels, content)
    write_pictures(folder, NAMES[:1], pictures(np.array([0.0, 1]), size=20)[1:])
    assert not np.array_equal(decode_pictures(NAMES, folder, size=16).pixels[0], content[0])
    assert len(decoded) == 30 and len(list(cache.glob("*.npy"))) == 5


def test_a_killed_run_continues(faces: Faces, decoded: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    folder, content = faces
    real = module.decode

    def killed(data: bytes, size: tuple[int, int]) -> NDArray[np.uint8]:
        if len(decoded) == 4:
            raise KeyboardInterrupt
        return real(data, size)

    with monkeypatch.context() as patch:
        patch.setattr(module, "CHUNK", 1)
        patch.setattr(module, "decode", killed)
        with pytest.raises(KeyboardInterrupt):
            decode_pictures(NAMES, folder, size=16, threads=1)
    assert len(decoded) == 4
    assert np.array_equal(decode_pictures(NAMES, folder, size=16).pixels, content)
    assert len(decoded) == 6


def test_a_damaged_cache_is_made_again(faces: Faces, decoded: list[int], cache: Path) -> None:
    folder, content = faces
    decode_pictures(NAMES, folder, size=16)
    (pixels,) = cache.glob("*.npy")
    os.truncate(pixels, 100)
    assert np.array_equal(decode_pictures(NAMES, folder, size=16).pixels, content)
    assert len(decoded) == 12


def test_missing_and_broken_pictures_are_named(faces: Faces) -> None:
    folder, content = faces
    (folder / NAMES[1]).unlink()
    (folder / NAMES[4]).write_bytes(b"no picture")
    with pytest.raises(
        ImageError, match=r"2 of 6 pictures in .*faces/1\.png does not exist; faces/4\.png is"
    ):
        decode_pictures(NAMES, folder, size=16)
    found = decode_pictures(NAMES, folder, size=16, on_broken="skip")
    assert found.usable.tolist() == [True, False, True, True, False, True]
    assert [problem.split()[0] for problem in found.problems] == [NAMES[1], NAMES[4]]
    assert np.array_equal(found.pixels[found.usable], content[found.usable])
    with pytest.raises(ImageError, match="none of the 2 pictures can be used"):
        decode_pictures([NAMES[1], NAMES[4]], folder, size=16, on_broken="skip")
