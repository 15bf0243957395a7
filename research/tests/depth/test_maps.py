"""Depth maps: reading, splitting, and the pixels that are scored."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tailwise_bench.depth import (
    EDGES,
    FIRST_BIN,
    DepthMaps,
    balanced_pixels,
    half_size,
    load_depth_maps,
    metres,
    split_maps,
)


def test_stored_depth_in_metres() -> None:
    assert metres(np.array([0, 255, 51], np.uint8)).tolist() == pytest.approx([np.nan, 10, 2], nan_ok=True)
    assert metres(np.array([2000, 65535], np.uint16)).tolist() == pytest.approx([2, 65.535])
    with pytest.raises(ValueError, match="8-bit or 16-bit whole numbers, got float64"):
        metres(np.zeros(1))


def test_maps_of_a_file(tmp_path: Path) -> None:
    rgb = np.arange(2 * 4 * 6 * 3, dtype=np.uint8).reshape(2, 4, 6, 3)
    depth = np.arange(2 * 4 * 6, dtype=np.uint8).reshape(2, 4, 6)
    np.savez(tmp_path / "maps.npz", rgb=rgb, depth_u8=depth)
    maps = load_depth_maps(tmp_path / "maps.npz")
    assert len(maps) == 2 and np.array_equal(maps.rgb, rgb)
    np.testing.assert_allclose(maps.depth[1], depth[1, ::2, ::2] / 25.5, rtol=1e-6)
    assert np.isnan(maps.depth[0, 0, 0])  # a stored 0 is no depth
    assert np.array_equal(maps[[1]].rgb, rgb[1:])
    np.savez(tmp_path / "other.npz", rgb=rgb)
    with pytest.raises(ValueError, match=r"other\.npz has no array 'depth_u8'; it has rgb"):
        load_depth_maps(tmp_path / "other.npz")
    with pytest.raises(FileNotFoundError, match=r"none\.npz is missing: set TAILWISE_DATA"):
        load_depth_maps(tmp_path / "none.npz")


def test_arrays_that_do_not_belong_together_are_refused() -> None:
    rgb, depth = np.zeros((2, 4, 4, 3), np.uint8), np.ones((2, 2, 2), np.float32)
    with pytest.raises(ValueError, match=r"bytes \(N, H, W, 3\), got float64"):
        DepthMaps(rgb.astype(float), depth)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="2 pictures, but depths of shape"):
        DepthMaps(rgb, depth[:1])


def test_half_size_keeps_every_second_pixel() -> None:
    assert half_size(np.arange(16, dtype=np.float32).reshape(1, 4, 4)).tolist() == [[[0, 2], [8, 10]]]


def test_the_split_is_fixed_by_its_seed_and_leaves_nothing_out() -> None:
    parts = split_maps(101, seed=3)
    assert sorted(np.concatenate(parts)) == list(range(101))
    assert [len(part) for part in parts] == [76, 10, 15]
    assert all(np.array_equal(a, b) for a, b in zip(parts, split_maps(101, seed=3), strict=True))
    assert not np.array_equal(parts[2], split_maps(101, seed=4)[2])


def test_every_bin_gives_as_many_pixels_as_the_rarest() -> None:
    depth = np.array([[0.75] * 5 + [0.85] * 2 + [5.0] * 3, [0.05, 0.0, np.nan, 0.65, 9.99, 12.0, 5, 5, 5, 5]])
    chosen = balanced_pixels(depth)
    index = np.clip(np.searchsorted(EDGES, depth.reshape(-1)[chosen], side="right") - 1, 0, 99)
    assert index.min() >= FIRST_BIN
    assert np.unique(index, return_counts=True)[1].tolist() == [2, 2, 2, 2]  # 0.7, 0.8, 5 m and the last bin
    assert len(set(chosen.tolist())) == len(chosen)
    assert not np.array_equal(chosen, balanced_pixels(depth, seed=1))
    most = balanced_pixels(depth, per_bin=3).tolist()
    assert len(most) == 3 + 2 + 3 + 2 and {5, 6} < set(most)
    with pytest.raises(ValueError, match=r"no pixel is at least 0\.7 m deep"):
        balanced_pixels(np.zeros(4))
