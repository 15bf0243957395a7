"""Pictures with labels: listings and their layouts, files decoded once into a cache, and augmentation.

- `listing`: names, labels and parts of pictures, from a table
- `layouts`: listings from the raw files of AgeDB, IMDB-WIKI and UTKFace
- `pictures`: files in a folder or a zip archive, decoded by Pillow
- `cache`: all pictures of a listing in one memory-mapped file of bytes
- `augmentation`: random changes of training pictures, on the device
"""

from tailwise.images.augmentation import Augmentation, make_augmentation
from tailwise.images.cache import Pictures, decode_pictures
from tailwise.images.layouts import agedb_listing, imdb_wiki_listing, utkface_listing
from tailwise.images.listing import ImageListing, read_listing
from tailwise.images.pictures import ImageError

__all__ = [
    "Augmentation",
    "ImageError",
    "ImageListing",
    "Pictures",
    "agedb_listing",
    "decode_pictures",
    "imdb_wiki_listing",
    "make_augmentation",
    "read_listing",
    "utkface_listing",
]
