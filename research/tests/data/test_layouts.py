"""Ages from file names and from MATLAB metadata; AgeDB-DIR as it was published."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from scipy.io import savemat

from tailwise.images import ImageError, decode_pictures
from tailwise.labels.bins import LabelBins
from tailwise.labels.kernels import label_weights
from tailwise_bench.sources.layouts import agedb_listing, imdb_wiki_listing, utkface_listing
from tailwise_bench.sources.listing import ImageListing, read_listing
from tests.picture_samples import pictures, write_pictures

BIRTH = 719529  # 1970-01-01 as MATLAB counts days
AUTUMN = BIRTH + 300


def test_ages_are_read_from_file_names() -> None:
    assert agedb_listing(["a/11_Ann_de_B_31_f.jpg", "12_C_4_m.jpg"]).labels.tolist() == [31, 4]
    assert utkface_listing(["u/26_0_1_2017.jpg.chip.jpg", "61_1_2017.jpg"]).labels.tolist() == [26, 61]
    with pytest.raises(ImageError, match=r"portrait\.jpg is not a file of AgeDB"):
        agedb_listing(["portrait.jpg"])
    with pytest.raises(ImageError, match=r"no pictures: expected files named UTKFace"):
        utkface_listing([])


def _metadata(path: Path, key: str, **changes: object) -> Path:
    table = {
        "dob": np.array([BIRTH, AUTUMN, BIRTH, BIRTH, BIRTH, BIRTH]),
        "photo_taken": np.array([2000, 2000, 2000, 2000, 1960, 2300]),
        "full_path": np.array([f"{i:02}/{i}.jpg" for i in range(6)], dtype=object),
        "face_score": np.array([2.0, 1.0, 0.9, 5.0, 5.0, 5.0]),
        "second_face_score": np.array([np.nan, np.nan, np.nan, 3.0, np.nan, np.nan]),
    }
    savemat(path, {key: {name: changes.get(name, value) for name, value in table.items()}})
    return path


def test_imdb_wiki_keeps_single_clear_faces_of_possible_ages(tmp_path: Path) -> None:
    both = (_metadata(tmp_path / f"{key}.mat", key) for key in ("imdb", "wiki"))
    listing = imdb_wiki_listing(*both)
    assert listing.names[:2] == ("imdb_crop/00/0.jpg", "imdb_crop/01/1.jpg")
    assert listing.names[2:] == ("wiki_crop/00/0.jpg", "wiki_crop/01/1.jpg")
    assert listing.labels.tolist() == [30, 29, 30, 29]


def test_other_files_than_metadata_are_explained(tmp_path: Path) -> None:
    with pytest.raises(ImageError, match=r"nothing\.mat does not exist"):
        imdb_wiki_listing(tmp_path / "nothing.mat")
    (tmp_path / "text.mat").write_text("no MATLAB file, and long enough for its header" * 10)
    with pytest.raises(ImageError, match=r"text\.mat is not a MATLAB file"):
        imdb_wiki_listing(tmp_path / "text.mat")
    with pytest.raises(ImageError, match="neither 'imdb' nor 'wiki'"):
        imdb_wiki_listing(_metadata(tmp_path / "other.mat", "faces"))
    savemat(tmp_path / "short.mat", {"wiki": {"dob": np.arange(3)}})
    with pytest.raises(ImageError, match="has no field 'full_path'"):
        imdb_wiki_listing(tmp_path / "short.mat")
    with pytest.raises(ImageError, match="no picture of the metadata passes"):
        imdb_wiki_listing(_metadata(tmp_path / "low.mat", "imdb", face_score=np.zeros(6)))


@pytest.fixture(scope="module")
def published() -> ImageListing:
    if "TAILWISE_DATA" not in os.environ:
        pytest.skip("TAILWISE_DATA is not set")
    data_root = Path(os.environ["TAILWISE_DATA"])
    path = data_root / "agedb" / "agedb.csv"
    if not path.is_file():
        pytest.skip(f"{path} is not there")
    return read_listing(path)


def test_agedb_dir_has_its_published_parts_shots_and_weights(published: ImageListing, tmp_path: Path) -> None:
    own = agedb_listing(published.names)
    assert np.array_equal(own.labels, published.labels)
    made = own.balanced()
    assert made.parts is not None and published.parts is not None
    assert np.array_equal(made.parts, published.parts)
    assert [len(made.rows(part)) for part in ("train", "val", "test")] == [12_208, 2_140, 2_140]
    train = made.labels[made.rows("train")]
    bins = LabelBins.from_labels(train, edges=np.arange(-0.5, 102.5))
    shots = bins.regions()[bins.counts > 0]
    assert [int((shots == region).sum()) for region in ("many", "medium", "few")] == [51, 16, 33]
    # DIR's square-root weights: 1 / sqrt(count of the age), scaled to a mean of 1 over the training rows.
    counts = np.bincount(train.astype(int), minlength=102)
    inverse = np.divide(1, np.sqrt(counts), out=np.zeros(102), where=counts > 0)
    expected = inverse / inverse[train.astype(int)].mean()
    weights = label_weights(bins, kernel=None)
    np.testing.assert_allclose(weights[counts > 0], expected[counts > 0], rtol=1e-9)
    # Generated pictures in its layout are found by the published names.
    rows = np.arange(0, len(own), 1600)
    names = [own.names[row] for row in rows]
    content = pictures(own.labels[rows])
    write_pictures(tmp_path, names, content)
    assert np.array_equal(decode_pictures(names, tmp_path, size=16).pixels, content)
