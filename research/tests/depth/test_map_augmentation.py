"""Pictures and depth maps that change together."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from tailwise_bench.depth import DEPTH_AUGMENTATIONS, DepthAugmentation
from tests.networks.waiting import NothingWaits


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


def test_lighting_moves_all_pixels_by_one_colour() -> None:
    torch.manual_seed(0)
    x = torch.full((3, 4, 4, 3), 128, dtype=torch.uint8)
    changed, _ = DepthAugmentation(color=0.0, lighting=0.5)(x, torch.ones(3, 2, 2))
    assert (changed == changed[:, :1, :1]).all() and (changed != x).any()
    assert (changed[..., 0] != changed[..., 2]).any()
