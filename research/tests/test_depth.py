"""Depth maps: NYUD2-DIR in small, scored pixels, augmentation, and methods on pixels."""

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
from tailwise.labels.bins import LabelBins
from tailwise.methods import build_model
from tailwise.training.loop import TrainConfig, fit, predict
from tailwise_bench.sources.depth import (
    CROP,
    DEPTH_AUGMENTATIONS,
    DEPTH_MAPS,
    EDGES,
    FIRST_BIN,
    DepthAugmentation,
    DepthNet,
    PixelDecoder,
    balanced_pixels,
)
from tests.networks.waiting import NothingWaits


@pytest.fixture
def nyud2(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Three scenes of two frames to train on and two frames to test; the depth grows to the right."""
    folder, rng = tmp_path / "data" / "nyud2", np.random.default_rng(0)
    depth = np.broadcast_to(np.linspace(1, 9, 64), (48, 64))
    train = [f"nyu2_train/room_{scene}_out/{frame}" for scene in range(3) for frame in (1, 2)]
    for part, names, picture, stored in (
        ("train", train, ".jpg", np.rint(depth / 10 * 255).astype(np.uint8)),
        ("test", ["nyu2_test/0", "nyu2_test/1"], "_colors.png", np.rint(depth * 1000).astype(np.uint16)),
    ):
        for name in names:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(rng.integers(0, 256, (48, 64, 3)).astype(np.uint8)).save(
                folder / (name + picture)
            )
            Image.fromarray(stored).save(folder / f"{name}.png")
        with (folder / f"nyu2_{part}.csv").open("w", newline="") as file:
            csv.writer(file).writerows([f"data/{name}{picture}", f"data/{name}.png"] for name in names)
    monkeypatch.setenv("TAILWISE_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("TAILWISE_CACHE", str(tmp_path / "cache"))
    return folder


def test_nyud2_from_its_files_to_a_batch(nyud2: Path, torchvision: ModuleType) -> None:
    problem = DEPTH_MAPS.data["nyud2"].problem(0)
    assert problem.x_train.shape == (4, 240, 320, 3) and problem.y_train.shape == (4, 120, 160)
    for x, y in ((problem.x_valid, problem.y_valid), (problem.x_test, problem.y_test)):
        assert x.shape == (2, *CROP, 3) and y.shape == (2, CROP[0] // 2, CROP[1] // 2)
    # Depth grows to the right by 8 m over the whole width, in both ways of storing it.
    for depth in (problem.y_train, problem.y_test):
        assert np.diff(depth[0, 5]).mean() == pytest.approx(8 / 160, rel=0.05)
    assert len(problem.bins) == 100 and problem.bins.counts.sum() == problem.y_train.size
    assert (
        problem.labels("test").min() >= 0.7 and problem.digest == DEPTH_MAPS.data["nyud2"].problem(1).digest
    )
    x, y = DEPTH_AUGMENTATIONS["nyud2"](torch.from_numpy(problem.x_train), torch.from_numpy(problem.y_train))
    assert x.shape == (4, *CROP, 3) and y.shape == (4, 114, 152)
    with pytest.raises(FileNotFoundError, match=r"nyud2.*resnet50\.pth do not exist"):
        DEPTH_MAPS.networks["depth-resnet50"](problem, weights="resnet50.pth")


def test_listings_and_files_that_cannot_be_read_are_named(nyud2: Path) -> None:
    listing, frame = nyud2 / "nyu2_train.csv", nyud2 / "nyu2_train" / "room_0_out" / "1.png"
    text = listing.read_text()
    for content, words in (
        (text + "only-one\n", r"nyu2_train\.csv, line 7: expected a picture and its depth file"),
        ("".join(text.splitlines(True)[:2]), "all pictures are of one scene"),
    ):
        listing.write_text(content)
        with pytest.raises(ValueError, match=words):
            DEPTH_MAPS.data["nyud2"].problem(0)
    listing.write_text(text)
    for picture in (b"no picture", frame.with_suffix(".jpg").read_bytes()):
        frame.write_bytes(picture)
        with pytest.raises(ImageError, match=r"room_0_out/1\.png in .* cannot be used: (cannot|a depth)"):
            DEPTH_MAPS.data["nyud2"].problem(0)


def test_every_bin_gives_as_many_pixels_as_the_rarest() -> None:
    depth = np.array([[0.75] * 5 + [0.85] * 2 + [5.0] * 3, [0.05, 0.0, np.nan, 0.65, 9.99, 12.0, 5, 5, 5, 5]])
    chosen = balanced_pixels(depth)
    index = np.clip(np.searchsorted(EDGES, depth.reshape(-1)[chosen], side="right") - 1, 0, 99)
    assert index.min() >= FIRST_BIN
    assert np.unique(index, return_counts=True)[1].tolist() == [2, 2, 2, 2]  # 0.7, 0.8, 5 m and the last bin
    most = balanced_pixels(depth, per_bin=3).tolist()
    assert len(most) == 3 + 2 + 3 + 2 and {5, 6} < set(most)


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


# -- methods on pixels ---------------------------------------------------------------------------


@pytest.fixture
def net(torchvision: ModuleType) -> DepthNet:
    torch.manual_seed(0)
    return DepthNet("resnet18", width=4)


def test_features_are_half_the_picture(net: DepthNet) -> None:
    features = net(torch.zeros(2, 36, 48, 3, dtype=torch.uint8))
    assert features.shape == (2, 18, 24, net.feature_dim)
    assert features.reshape(-1, features.shape[-1]).data_ptr() == features.data_ptr()  # rows are no copy


def test_methods_train_on_pixels_and_reconstruct_their_colours(net: DepthNet) -> None:
    x, y = scene(4, 36, 48)
    decoder = PixelDecoder(net.feature_dim)
    torch.nn.init.zeros_(decoder.linear.weight)
    torch.nn.init.zeros_(decoder.linear.bias)
    mean, std = 255 * torch.tensor((0.485, 0.456, 0.406)), 255 * torch.tensor((0.229, 0.224, 0.225))
    expected = 0.5 * (((x[:, ::2, ::2].float() - mean) / std) ** 2).mean(-1).reshape(-1)
    torch.testing.assert_close(decoder.nll(torch.zeros(y.numel(), net.feature_dim), x), expected)
    bins = LabelBins.from_labels(y, edges=np.linspace(0, 20, 101))
    options = {"reconstruction.weight": 1.0}
    model = build_model("vir", net, net.feature_dim, bins, decoder=decoder, **options)
    assert "reconstruction" in model.loss(x, y)[1]
    config = TrainConfig(epochs=1, batch_size=2, accelerator="cpu", monitor="balanced_mse")
    assert np.isfinite(fit(model, (x, y), (x, y), config).best_score)
    prediction = predict(model, x)
    assert prediction.shape == y.shape and (prediction.variance > 0).all()


def test_pixels_without_a_label_do_not_count(net: DepthNet) -> None:
    """Losses and statistics are those of the other pixels, whatever NaN hides."""
    x, y = scene(6, 36, 48)
    hidden = y.clone()
    hidden[:, :5] = torch.nan
    bins = LabelBins.from_labels(y, edges=np.linspace(0, 20, 101))
    model = build_model("vir", net, net.feature_dim, bins).eval()
    losses, whole = model.row_losses(x, hidden), model.row_losses(x, y)
    known = hidden.isfinite().reshape(-1)
    for name, value in whole.items():
        torch.testing.assert_close(losses[name], torch.where(known, value, 0.0))
    model.train().row_losses(x, hidden)
    model.end_epoch()
    count = torch.bincount(bins.index(y.reshape(-1))[known], minlength=len(bins))
    assert torch.equal(model.tails[0].smoother.stats.count, count)  # type: ignore[union-attr]
