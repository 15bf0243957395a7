"""Faces of a benchmark: parts that refer to one cache, and what a suite's file can name."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from tailwise.benchmark.data.faces import DATA, FACES, Faces
from tailwise.benchmark.data.problems import Problem
from tailwise.benchmark.data.suites import SUITES
from tailwise.benchmark.run.contenders import choose_contenders
from tailwise.benchmark.run.run_once import run_variants
from tailwise.images import ImageListing
from tests.picture_samples import pictures, write_pictures, zipped


@pytest.fixture
def faces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Faces:
    """Return small faces in a folder of data, of which half are trained on."""
    monkeypatch.setenv("TAILWISE_DATA", str(tmp_path))
    monkeypatch.setenv("TAILWISE_CACHE", str(tmp_path / "cache"))
    ages = np.repeat([20.0, 30.0, 40.0], [18, 12, 9])
    names = [f"images/{i}.png" for i in range(len(ages))]
    write_pictures(tmp_path / "small", names, pictures(ages, 32))
    listing = ImageListing(tuple(names), ages).balanced()
    listing.frame().to_csv(tmp_path / "small" / "faces.csv", index=False)
    return Faces("small", "small", "faces.csv", 32, "faces.zip")


def test_parts_are_mapped_from_the_cache_and_saved_by_their_place(faces: Faces, tmp_path: Path) -> None:
    problem = faces.problem(1, suite="faces")
    assert [len(part) for part in (problem.y_train, problem.y_valid, problem.y_test)] == [13, 13, 13]
    path = problem.save(tmp_path)
    assert path.stat().st_size < problem.x_train.nbytes / 4
    again = Problem.load(tmp_path, "small", 1)
    for part in ("x_train", "y_train", "x_valid", "y_valid", "x_test", "y_test"):
        assert np.array_equal(getattr(again, part), getattr(problem, part)), part
    assert again.digest == problem.digest == faces.problem(2).digest
    # The brightness of a picture shows its age.
    assert np.corrcoef(again.x_test.mean((1, 2, 3)), again.y_test)[0, 1] > 0.99
    zipped(tmp_path / "small", tmp_path / "small" / "faces.zip")
    assert np.array_equal(faces.problem(1).x_test, problem.x_test)
    (Path(problem.x_train.filename)).unlink()  # type: ignore[attr-defined]
    with pytest.raises(FileNotFoundError, match=r"is missing: delete .*small-1\.npz"):
        Problem.load(tmp_path, "small", 1)


def test_missing_data_is_explained(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TAILWISE_DATA", str(tmp_path))
    with pytest.raises(FileNotFoundError, match=r"utkface96\.zip is missing"):
        DATA["utkface"].problem(0, max_rows=1, per_bin=1, suite="")
    monkeypatch.delenv("TAILWISE_DATA")
    with pytest.raises(ValueError, match="set the environment variable TAILWISE_DATA"):
        DATA["agedb"].problem(0, max_rows=1, per_bin=1, suite="")


@pytest.mark.parametrize("name", ["utkface", "agedb-paper", "imdb-wiki-paper"])
def test_suites_name_contenders_networks_and_augmentations_that_exist(name: str) -> None:
    suite = SUITES[name]
    chosen = {c.name for c in choose_contenders(suite.methods, suite.options)}
    assert {"vanilla", "lds-fds-der", "ensemble", "vir"} <= chosen
    assert suite.recipe.describe()["augment"] == "crop-flip"
    assert set(FACES.network_options("resnet18")) == {"weights", "mean", "std"}


@pytest.mark.slow
def test_a_method_trains_on_faces_with_augmentation_decoder_and_dial(
    faces: Faces, torchvision: ModuleType
) -> None:
    suite = SUITES["utkface"]
    recipe = suite.recipe.within(epochs=1)
    (contender,) = choose_contenders("vir[dial]", {"vir": {"decoder": True, "batch_size": 8}})
    *dialled, own = run_variants(contender, faces.problem(0, suite="utkface"), recipe, {})
    assert own["method"] == "vir" and own["fixed"]["decoder"] is True and "emphasis" not in own
    assert [r["method"] for r in dialled] == ["vir[dial]", "vir[dial for few shots]"]
    assert own["recipe"]["augment"] == "crop-flip"
    assert dialled[1]["metrics"]["raw"]["few"]["mae"] > 0 and "emphasis" in dialled[1]
