"""Pictures are found, decoded once into a file that survives kills, and changed at random in training."""

from __future__ import annotations

import io
import os
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image

from tailwise.images import Augmentation, ImageError, decode_pictures
from tailwise.images import pictures as module
from tailwise.images.pictures import PictureFiles, decode
from tests.images.conftest import NAMES
from tests.picture_samples import pictures, write_pictures, zipped


def _encoded(picture: Image.Image, kind: str = "PNG", **options: object) -> bytes:
    out = io.BytesIO()
    picture.save(out, format=kind, **options)
    return out.getvalue()


def test_a_folder_and_an_archive_give_the_same_files(
    faces: tuple[Path, NDArray[np.uint8]], tmp_path: Path
) -> None:
    folder, content = faces
    (folder / "listing.csv").write_text("age,path\n")
    archive = zipped(folder, tmp_path / "faces.zip")
    for root in (folder, archive):
        files = PictureFiles(root)
        assert files.names((".png",)) == NAMES and files.names((".csv",)) == ["listing.csv"]
        assert np.array_equal(decode(files.read(NAMES[2]), (16, 16)), content[2])
        assert files.stamp("other.png") == "-" != files.stamp(NAMES[0])
        with pytest.raises(FileNotFoundError):
            files.read("other.png")
    for path in (folder / NAMES[0], archive / NAMES[0]):  # the second leads into the archive
        assert np.array_equal(decode(PictureFiles().read(str(path)), (16, 16)), content[0])
    assert PictureFiles().stamp(f"{archive}/other.png") == "-"
    assert PictureFiles().stamp(f"{tmp_path}/none.zip/other.png") == "-"


def test_roots_that_hold_no_pictures_are_explained(tmp_path: Path) -> None:
    with pytest.raises(ImageError, match="nowhere does not exist: name the folder or the zip"):
        PictureFiles(tmp_path / "nowhere")
    (tmp_path / "text.rar").write_text("no archive")
    with pytest.raises(ImageError, match="neither a folder nor a zip archive"):
        PictureFiles(tmp_path / "text.rar")


def test_pictures_of_any_mode_become_upright_colours_of_one_size() -> None:
    grey = Image.fromarray(np.full((8, 4), 100, np.uint8))
    assert (decode(_encoded(grey), (6, 6)) == 100).all()
    halves = np.zeros((8, 16, 3), np.uint8)
    halves[:, 8:] = 255  # white on the right; turned by a quarter, it is white at the bottom
    turned = Image.Exif()
    turned[0x0112] = 6
    upright = decode(_encoded(Image.fromarray(halves), exif=turned), (16, 8))
    assert upright.shape == (16, 8, 3)
    assert upright[:6].max() == 0 and upright[10:].min() == 255
    with pytest.raises(ImageError, match="Pillow can decode"):
        decode(b"no picture", (6, 6))


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


LABELS = torch.arange(64.0)


def _marked(rows: int = 64, size: int = 12) -> torch.Tensor:
    """Pictures that are 1, 2, 3, ... along the columns, and 10 more in each row."""
    line = torch.arange(1, size + 1, dtype=torch.uint8)
    picture = line + 10 * torch.arange(size, dtype=torch.uint8).unsqueeze(1)
    return picture.expand(rows, size, size).unsqueeze(3).expand(rows, size, size, 3).contiguous()


def test_crops_are_shifts_of_the_padded_picture_or_its_mirror_image() -> None:
    x = _marked()
    torch.manual_seed(0)
    changed, labels = Augmentation(padding=2 / 12)(x, LABELS)
    assert labels is LABELS and changed.dtype == torch.uint8 and changed.shape == x.shape
    padded = torch.nn.functional.pad(x[0], (0, 0, 2, 2, 2, 2))
    possible = [padded[i : i + 12, j : j + 12] for i in range(5) for j in range(5)]
    possible += [picture.flip(1) for picture in possible]
    seen = [next(k for k, one in enumerate(possible) if torch.equal(one, picture)) for picture in changed]
    assert len(set(seen)) > 20 and min(seen) < 25 <= max(seen)
    torch.manual_seed(0)
    assert torch.equal(Augmentation(padding=2 / 12)(x, LABELS)[0], changed)


def test_a_rotation_by_half_a_turn_reverses_both_axes() -> None:
    x = _marked(64)
    turned = Augmentation(padding=0, mirror=False, rotation=180)
    torch.manual_seed(0)
    angle = (2 * torch.rand(64) - 1) * 180
    torch.manual_seed(0)
    changed = turned(x, LABELS)[0].float()
    near, far = angle.abs().argmin(), angle.abs().argmax()
    assert float((changed[near] - x[near].float())[3:9, 3:9].abs().mean()) < 5
    assert float((changed[far] - x[far].flip(0, 1).float())[3:9, 3:9].abs().mean()) < 5


def test_colours_change_within_their_limits_and_rectangles_are_erased() -> None:
    grey = torch.full((200, 10, 10, 3), 100, dtype=torch.uint8)
    torch.manual_seed(0)
    lit = Augmentation(padding=0, color=0.3)(grey, LABELS)[0].float()
    assert 69 <= float(lit.min()) < 80 and 120 < float(lit.max()) <= 131
    erased = Augmentation(padding=0, erase=0.5)(grey, LABELS)[0]
    share = (erased == 128).all(3).float().mean((1, 2))
    assert 70 < int((share > 0).sum()) < 130 and float(share.max()) < 0.25
