"""Listings from the raw files of the face data sets: ages in file names, or in MATLAB metadata."""

from __future__ import annotations

import datetime
import os
from collections.abc import Callable, Iterable
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from tailwise.images.pictures import ImageError
from tailwise_bench.sources.listing import ImageListing

OLDEST = 200
"""Ages of IMDB-WIKI above this are errors of the metadata."""
MIN_FACE_SCORE = 1.0
"""Pictures of IMDB-WIKI whose face was found with a lower score are left out."""
_MATLAB_DAYS = 366  # MATLAB counts days from the year 0, Python from the year 1
_JULY = 7  # pictures are taken to be of the middle of their year


def _from_names(names: Iterable[str], age: Callable[[list[str]], int], layout: str) -> ImageListing:
    found: list[tuple[str, int]] = []
    for name in names:
        try:
            found.append((name, age(PurePosixPath(name).name.split(".")[0].split("_"))))
        except (IndexError, ValueError):
            raise ImageError(f"{name} is not a file of {layout}: rename it, or leave it out") from None
    if not found:
        raise ImageError(f"no pictures: expected files named {layout}")
    return ImageListing(tuple(name for name, _ in found), np.array([a for _, a in found], np.float64))


def agedb_listing(names: Iterable[str]) -> ImageListing:
    """Return a listing of AgeDB by its file names, ``id_name_age_gender.jpg``.

    >>> agedb_listing(["AgeDB/11706_OliviaHussey_31_f.jpg"]).labels
    array([31.])
    """
    return _from_names(names, lambda parts: int(parts[-2]), "AgeDB, id_name_age_gender.jpg")


def utkface_listing(names: Iterable[str]) -> ImageListing:
    """Return a listing of UTKFace by its file names, ``age_gender_race_date.jpg``; some lack a field.

    >>> utkface_listing(["61_1_20170109142408075.jpg.chip.jpg"]).labels
    array([61.])
    """
    return _from_names(names, lambda parts: int(parts[0]), "UTKFace, age_gender_race_date.jpg")


def imdb_wiki_listing(*metadata: str | os.PathLike[str]) -> ImageListing:
    """Return a listing of IMDB-WIKI from ``imdb.mat`` and ``wiki.mat``, filtered as in IMDB-WIKI-DIR.

    Kept are pictures with a face score of at least 1, without a second face, of an age from 0 to 200. The
    age is the year of the picture less the date of birth, at the middle of the year.
    """
    from scipy.io import loadmat

    names: list[str] = []
    labels: list[int] = []
    for given in metadata:
        path = Path(given)
        if not path.is_file():
            raise ImageError(f"{path} does not exist: name imdb.mat or wiki.mat")
        try:
            stored = loadmat(path, squeeze_me=True, struct_as_record=False)
        except Exception as error:  # scipy raises many kinds for other files
            raise ImageError(f"{path} is not a MATLAB file ({error}): name imdb.mat or wiki.mat") from None
        which = next((key for key in ("imdb", "wiki") if key in stored), None)
        if which is None:
            raise ImageError(f"{path} has neither 'imdb' nor 'wiki': name imdb.mat or wiki.mat")
        for name, age in _kept(stored[which], path):
            names.append(f"{which}_crop/{name}")
            labels.append(age)
    if not names:
        raise ImageError("no picture of the metadata passes the filter")
    return ImageListing(tuple(names), np.array(labels, np.float64))


def _kept(table: Any, path: Path) -> Iterable[tuple[str, int]]:
    fields = ("full_path", "dob", "photo_taken", "face_score", "second_face_score")
    for field in fields:
        if not hasattr(table, field):
            raise ImageError(f"{path} has no field {field!r}: name the metadata of IMDB-WIKI")
    columns = (np.atleast_1d(getattr(table, field)) for field in fields)
    for name, born, taken, score, second in zip(*columns, strict=True):
        age = age_in_year(int(born), int(taken))
        if score >= MIN_FACE_SCORE and np.isnan(second) and 0 <= age <= OLDEST:
            yield str(name), age


def age_in_year(matlab_day: int, year: int) -> int:
    """Return the age on the first of July of a year, by the birthday as MATLAB counts days.

    >>> age_in_year(693726, 2000), age_in_year(693726 + 180, 2000)  # born 1899-05-14 and 1899-11-10
    (101, 100)
    """
    born = datetime.date.fromordinal(max(matlab_day - _MATLAB_DAYS, 1))
    return year - born.year - (born.month >= _JULY)
