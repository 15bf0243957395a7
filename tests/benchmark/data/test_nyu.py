"""Depth maps as problems of a suite, from preparation to a results line."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from tailwise.benchmark.data.nyu import DATA, DEPTH_MAPS, METRICS, packed_maps, unpacked_map
from tailwise.benchmark.data.problems import Problem
from tailwise.benchmark.data.recipe import Recipe
from tailwise.benchmark.run.contenders import from_registry
from tailwise.benchmark.run.run_once import run_one
from tailwise.distributions.members import Normal
from tailwise.training.config import TrainConfig


@pytest.fixture
def nyuv2(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """NYUv2 in small: pictures whose brightness is their depth, in the same layout."""
    rng = np.random.default_rng(0)
    coarse = (18 + 230 * rng.beta(2, 5, (60, 3, 4))).astype(np.uint8)
    depth = coarse.repeat(8, 1).repeat(8, 2)  # (60, 24, 32)
    folder = tmp_path / "data" / "nyuv2"
    folder.mkdir(parents=True)
    np.savez(folder / "nyuv2_96x72.npz", rgb=depth[..., None].repeat(3, 3), depth_u8=depth)
    monkeypatch.setenv("TAILWISE_DATA", str(tmp_path / "data"))
    return folder


def recipe(problem: Problem) -> Recipe:
    return Recipe(
        train=TrainConfig(epochs=1, batch_size=16, accelerator="cpu"),
        backbone="depth-plain",
        network=lambda problem: DEPTH_MAPS.networks["depth-plain"](problem, width=4),
        decoder=DEPTH_MAPS.decoder,
        augmentation=DEPTH_MAPS.augmentations["mirror-color"],
        search={},
        trials=1,
        criterion="balanced_mse",
    )


def test_a_problem_scores_balanced_pixels(nyuv2: Path, tmp_path: Path) -> None:
    problem = DATA["nyuv2-small"].problem(0)
    assert problem.x_train.shape == (45, 24, 32, 3) and problem.y_train.shape == (45, 12, 16)
    assert problem.describe()["rows"] == {"train": 45, "valid": 6, "test": 9, "table": 60}
    again = Problem.load(problem.save(tmp_path).parent, "nyuv2", 0)
    assert again.digest == problem.digest and again.metrics == METRICS
    labels = again.labels("test")
    assert labels.ndim == 1 and np.array_equal(
        labels, problem.y_test.reshape(-1)[problem.extra["test_pixels"]]
    )
    whole = Normal(torch.from_numpy(problem.y_test), 1.0)
    assert torch.equal(again.scored("test", whole).mean, torch.from_numpy(labels))
    # The seed changes weights and batches, not pictures; only the first keeps maps to look at.
    other = DATA["nyuv2-small"].problem(1)
    assert np.array_equal(other.x_test, problem.x_test)
    assert len(problem.extra["shown"]) == 4 and "shown" not in other.extra


def test_a_run_has_metrics_of_depth_and_maps_to_look_at(nyuv2: Path) -> None:
    problem = DATA["nyuv2-small"].problem(0)
    contender = from_registry("vir", tuned=False)
    record = run_one(contender, problem, recipe(problem), {})
    for region in ("all", "few"):
        scores = record["metrics"]["raw"][region]
        assert {*METRICS, "rmse", "nll", "ause"} <= scores.keys()
    assert sum(record["test_rows"].values()) == len(problem.extra["test_pixels"])
    mean, std = (unpacked_map(record["maps"][name]) for name in ("mean", "std"))
    assert mean.shape == std.shape == (4, 12, 16) and (std >= 0).all() and std.max() > 0


def test_maps_survive_as_text() -> None:
    mean = torch.linspace(0, 10, 24, dtype=torch.float64).reshape(2, 3, 4)
    packed = packed_maps(Normal(mean, (0.1 * mean) ** 2))
    assert np.abs(unpacked_map(packed["mean"]) - mean.numpy()).max() < 10 / 255
    assert np.abs(unpacked_map(packed["std"]) - 0.1 * mean.numpy()).max() < 1 / 255


def test_data_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TAILWISE_DATA", raising=False)
    with pytest.raises(ValueError, match="read from TAILWISE_DATA/nyuv2: set the environment variable"):
        DATA["nyuv2-small"].problem(0)


def test_options_of_a_network() -> None:
    assert DEPTH_MAPS.network_options("depth-resnet18") == {"weights": str, "width": int}
