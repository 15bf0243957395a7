"""Pictures of a page: small, inside the page, and empty where there is none."""

import base64
import io
from pathlib import Path

import numpy as np
from PIL import Image

from tailwise.report.thumbnails import thumbnail
from tests.picture_samples import pictures, write_pictures


def test_a_picture_becomes_a_small_data_uri(tmp_path: Path) -> None:
    content = pictures(np.array([1.0, 2.0]), 200)
    write_pictures(tmp_path, ["a.png", "b.png"], content)
    kind, _, data = thumbnail(str(tmp_path / "b.png")).partition(",")
    assert kind == "data:image/jpeg;base64"
    with Image.open(io.BytesIO(base64.b64decode(data))) as picture:
        assert picture.size == (96, 96)
        assert abs(np.asarray(picture).mean() - content[1].mean()) < 3
    (tmp_path / "c.png").write_text("no picture")
    assert thumbnail(str(tmp_path / "c.png")) == thumbnail(str(tmp_path / "d.png")) == ""
