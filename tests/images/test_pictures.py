"""Pictures read from folders and archives, and decoded."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from tailwise.images.pictures import ImageError, PictureFiles, decode
from tests.images.conftest import NAMES
from tests.picture_samples import zipped


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
