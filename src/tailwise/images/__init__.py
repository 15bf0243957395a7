"""Pictures: files decoded once into a cache, and augmentation.

- `pictures`: files in a folder or a zip archive, decoded by Pillow into one memory-mapped file of bytes
- `augmentation`: random changes of training pictures, on the device
"""

from tailwise.images.augmentation import Augmentation, make_augmentation
from tailwise.images.pictures import ImageError, Pictures, decode_pictures

__all__ = ["Augmentation", "ImageError", "Pictures", "decode_pictures", "make_augmentation"]
