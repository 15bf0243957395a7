"""Small copies of pictures inside a page."""

from __future__ import annotations

import base64
import io

THUMBNAIL = 96
"""Height of a copy in pixels."""


def thumbnail(path: str) -> str:
    """Return a picture as a data URI, and an empty text if it cannot be read."""
    from tailwise.images.pictures import ImageError, PictureFiles, decode

    try:
        from PIL import Image

        pixels = decode(PictureFiles().read(path), (THUMBNAIL, THUMBNAIL))
    except (ImageError, OSError, ImportError):
        return ""
    out = io.BytesIO()
    Image.fromarray(pixels).save(out, format="JPEG", quality=80)
    return f"data:image/jpeg;base64,{base64.b64encode(out.getvalue()).decode()}"
