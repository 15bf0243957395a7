"""Depth maps: NYUD2-DIR in small, scored pixels, and pictures and maps that change together."""

from __future__ import annotations

import csv
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from tailwise.images import ImageError
from tailwise_bench.networks.depth import DEPTH_AUGMENTATIONS, DepthAugmentation
from tailwise_bench.problem import Problem
from tailwise_bench.sources.depth_maps import (
    CROP,
    DATA,
    DEPTH_MAPS,
    EDGES,
    FIRST_BIN,
    balanced_pixels,
    half_size,
    metres,
    read_pairs,
    scenes_held_out,
    split_rows,
)
from tests.networks.waiting import NothingWaits


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
    problem = DATA["nyud2"].problem(0, max_rows=0, suite="")
    assert problem.x_train.shape == (4, 240, 320, 3) and problem.y_train.shape == (4, 120, 160)
    for x, y in ((problem.x_valid, problem.y_valid), (problem.x_test, problem.y_test)):
        assert x.shape == (2, *CROP, 3) and y.shape == (2, CROP[0] // 2, CROP[1] // 2)
    # Depth grows to the right by 8 m over the whole width, in both ways of storing it.
    for depth in (problem.y_train, problem.y_test):
        assert np.diff(depth[0, 5]).mean() == pytest.approx(8 / 160, rel=0.05)
    assert isinstance(problem.y_train, np.memmap)


def test_a_problem_from_preparation_to_a_batch(nyud2: Path, tmp_path: Path, torchvision: ModuleType) -> None:
    problem = Problem.load(DATA["nyud2"].problem(0, max_rows=0, suite="").save(tmp_path).parent, "nyud2", 0)
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
        scenes_held_out(pairs[:2])


def test_listings_and_files_that_cannot_be_read_are_named(nyud2: Path) -> None:
    listing = nyud2 / "nyu2_train.csv"
    text = listing.read_text()
    listing.write_text(text + "only-one\n")
    with pytest.raises(ValueError, match=r"nyu2_train\.csv, line 7: expected a picture and its depth file"):
        read_pairs(listing)
    listing.write_text(text)
    frame = nyud2 / "nyu2_train" / "room_0_out" / "1.png"
    for content in (b"no picture", frame.with_suffix(".jpg").read_bytes()):
        frame.write_bytes(content)
        with pytest.raises(ImageError, match=r"room_0_out/1\.png in .* cannot be used: (it|a depth)"):
            DATA["nyud2"].problem(0, max_rows=0, suite="")


def test_stored_depth_in_metres() -> None:
    assert metres(np.array([0, 255, 51], np.uint8)).tolist() == pytest.approx([np.nan, 10, 2], nan_ok=True)
    assert metres(np.array([2000, 65535], np.uint16)).tolist() == pytest.approx([2, 65.535])
    with pytest.raises(ValueError, match="8-bit or 16-bit whole numbers, got float64"):
        metres(np.zeros(1))
    assert half_size(np.arange(16, dtype=np.float32).reshape(1, 4, 4)).tolist() == [[[0, 2], [8, 10]]]


def test_the_split_leaves_nothing_out() -> None:
    parts = split_rows(101)
    assert sorted(np.concatenate(parts)) == list(range(101)) and [len(part) for part in parts] == [76, 10, 15]


def test_every_bin_gives_as_many_pixels_as_the_rarest() -> None:
    depth = np.array([[0.75] * 5 + [0.85] * 2 + [5.0] * 3, [0.05, 0.0, np.nan, 0.65, 9.99, 12.0, 5, 5, 5, 5]])
    chosen = balanced_pixels(depth)
    index = np.clip(np.searchsorted(EDGES, depth.reshape(-1)[chosen], side="right") - 1, 0, 99)
    assert index.min() >= FIRST_BIN
    assert np.unique(index, return_counts=True)[1].tolist() == [2, 2, 2, 2]  # 0.7, 0.8, 5 m and the last bin
    most = balanced_pixels(depth, per_bin=3).tolist()
    assert len(most) == 3 + 2 + 3 + 2 and {5, 6} < set(most)
    with pytest.raises(ValueError, match=r"no pixel is at least 0\.7 m deep"):
        balanced_pixels(np.zeros(4))


# -- augmentation --------------------------------------------------------------------------------


def scene(rows: int = 6, height: int = 12, width: int = 16) -> tuple[Tensor, Tensor]:
    """Pictures in which a pixel's red is ten times its depth, at twice the map's size."""
    generator = torch.Generator().manual_seed(0)
    depth = torch.randint(1, 20, (rows, height // 2, width // 2), generator=generator).float()
    large = depth.repeat_interleave(2, 1).repeat_interleave(2, 2)
    return (10 * large).to(torch.uint8).unsqueeze(3).expand(-1, -1, -1, 3).contiguous(), depth


def test_maps_are_mirrored_with_their_pictures() -> None:
    torch.manual_seed(0)
    x, y = scene(20)
    changed, depth = DepthAugmentation(color=0.0)(x, y)
    same = (depth == y).flatten(1).all(1)
    mirrored = (depth == y.flip(2)).flatten(1).all(1)
    assert (same | mirrored).all() and same.any() and mirrored.any()
    assert torch.equal(changed[:, ::2, ::2, 0], (10 * depth).to(torch.uint8))


def test_maps_turn_with_their_pictures() -> None:
    """A bright and near right half stays in one place in both."""
    torch.manual_seed(0)
    y = torch.cat([torch.full((8, 32, 24), 2.0), torch.full((8, 32, 24), 8.0)], 2)
    x = (25 * y).repeat_interleave(2, 1).repeat_interleave(2, 2).unsqueeze(3).expand(-1, -1, -1, 3)
    changed, depth = DepthAugmentation(rotation=30.0, color=0.0)(x.to(torch.uint8), y)
    small = changed[:, ::2, ::2, 0].float() / 25
    assert not torch.equal(depth, y)
    assert ((small - depth).abs() < 3).float().mean() > 0.99
    assert set(depth.unique().tolist()) == {2.0, 8.0}  # no depth in between is made up


@pytest.mark.parametrize("name", DEPTH_AUGMENTATIONS)
def test_colours_change_and_depths_do_not(name: str) -> None:
    torch.manual_seed(0)
    x, y = scene()
    with NothingWaits():
        changed, depth = DEPTH_AUGMENTATIONS[name](x, y)
    assert changed.dtype == torch.uint8 and changed.shape == x.shape
    assert sorted(depth.unique().tolist()) <= sorted(y.unique().tolist())
    assert (changed.float().mean((1, 2, 3)) - x.float().mean((1, 2, 3))).abs().min() > 0.1
