"""NYUD2-DIR in small: its listings and files in the same layout."""

from __future__ import annotations

import csv
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch
from PIL import Image

from tailwise.images import ImageError
from tailwise_bench.depth import DEPTH_AUGMENTATIONS
from tailwise_bench.depth.nyud2 import CROP, load_nyud2, read_depth, read_pairs, scenes_held_out
from tailwise_bench.problem import Problem
from tailwise_bench.sources.depth_maps import DATA, DEPTH_MAPS


@pytest.fixture
def nyud2(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Three scenes of two frames to train on and two frames to test; the depth grows to the right."""
    folder, rng = tmp_path / "data" / "nyud2", np.random.default_rng(0)
    columns = np.linspace(1, 9, 64)
    depth = np.broadcast_to(columns, (48, 64))
    for part, names in (
        ("train", [f"room_{scene}_out/{frame}" for scene in range(3) for frame in (1, 2)]),
        ("test", ["00000", "00001"]),
    ):
        rows = []
        for name in names:
            picture = folder / f"nyu2_{part}" / f"{name}.{'jpg' if part == 'train' else 'png'}"
            stored = picture.with_name(picture.stem + ("_depth.png" if part == "test" else ".png"))
            picture.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(rng.integers(0, 256, (48, 64, 3)).astype(np.uint8)).save(picture)
            if part == "train":
                Image.fromarray(np.rint(depth / 10 * 255).astype(np.uint8)).save(stored)
            else:
                Image.fromarray(np.rint(depth * 1000).astype(np.uint16)).save(stored)
            rows.append([f"data/{p.relative_to(folder).as_posix()}" for p in (picture, stored)])
        with (folder / f"nyu2_{part}.csv").open("w", newline="") as file:
            csv.writer(file).writerows(rows)
    monkeypatch.setenv("TAILWISE_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("TAILWISE_CACHE", str(tmp_path / "cache"))
    return folder


def test_the_three_parts(nyud2: Path) -> None:
    train, valid, test = load_nyud2(nyud2)
    assert (len(train), len(valid), len(test)) == (4, 2, 2)
    assert train.rgb.shape == (4, 240, 320, 3) and train.depth.shape == (4, 120, 160)
    for part in (valid, test):
        assert part.rgb.shape == (2, *CROP, 3) and part.depth.shape == (2, CROP[0] // 2, CROP[1] // 2)
    # Depth grows to the right by 8 m over the whole width, in both ways of storing it.
    for part, step in ((train, 8 / 160), (test, 8 / 160)):
        assert np.diff(part.depth[0, 5]).mean() == pytest.approx(step, rel=0.05)
    assert isinstance(train.depth, np.memmap)
    again = load_nyud2(nyud2)[0]
    assert np.array_equal(again.depth, train.depth)


def test_a_problem_from_preparation_to_a_batch(nyud2: Path, tmp_path: Path, torchvision: ModuleType) -> None:
    problem = Problem.load(DATA["nyud2"].problem(0).save(tmp_path).parent, "nyud2", 0)
    assert len(problem.bins) == 100 and problem.bins.counts.sum() == problem.y_train.size
    assert problem.labels("test").min() >= 0.7
    x, y = DEPTH_AUGMENTATIONS["nyud2"](torch.from_numpy(problem.x_train), torch.from_numpy(problem.y_train))
    assert x.shape == (4, *CROP, 3) and y.shape == (4, 114, 152)
    with pytest.raises(FileNotFoundError, match=r"nyud2.*resnet50\.pth do not exist"):
        DEPTH_MAPS.networks["depth-resnet50"](problem, weights="resnet50.pth")


def test_frames_of_one_scene_stay_together(nyud2: Path) -> None:
    pairs = read_pairs(nyud2 / "nyu2_train.csv")
    held = scenes_held_out(pairs)
    assert held.sum() == 2 and held.reshape(3, 2).all(1).sum() == 1
    with pytest.raises(ValueError, match="all pictures are of one scene"):
        scenes_held_out(pairs.take([0, 1]))


def test_listings_and_files_that_cannot_be_read_are_named(nyud2: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"none\.csv is missing: set TAILWISE_DATA"):
        read_pairs(nyud2 / "none.csv")
    listing = nyud2 / "nyu2_train.csv"
    text = listing.read_text()
    listing.write_text(text + "only-one\n")
    with pytest.raises(ValueError, match=r"nyu2_train\.csv, line 7: expected a picture and its depth file"):
        load_nyud2(nyud2)
    listing.write_text("")
    with pytest.raises(ValueError, match=r"nyu2_train\.csv is empty"):
        load_nyud2(nyud2)
    listing.write_text(text)
    frame = nyud2 / "nyu2_train" / "room_0_out" / "1.png"
    frame.write_bytes(b"no picture")
    with pytest.raises(ImageError, match=r"room_0_out/1\.png in .* cannot be used: it is not a picture"):
        load_nyud2(nyud2)
    frame.unlink()
    with pytest.raises(FileNotFoundError, match=r"room_0_out/1\.png in .* does not exist"):
        load_nyud2(nyud2)


def test_a_depth_file_has_one_channel(nyud2: Path) -> None:
    with pytest.raises(ImageError, match="a depth file has one channel"):
        read_depth((nyud2 / "nyu2_test" / "00000.png").read_bytes(), (4, 4))
