"""Depth maps: pictures with a depth for every pixel, their augmentation, and the pixels that are scored."""

from tailwise_bench.depth.map_augmentation import DEPTH_AUGMENTATIONS, DepthAugmentation
from tailwise_bench.depth.maps import (
    DEPTH,
    EDGES,
    FIRST_BIN,
    SHARES,
    DepthMaps,
    balanced_pixels,
    half_size,
    load_depth_maps,
    metres,
    split_maps,
)

__all__ = [
    "DEPTH",
    "DEPTH_AUGMENTATIONS",
    "EDGES",
    "FIRST_BIN",
    "SHARES",
    "DepthAugmentation",
    "DepthMaps",
    "balanced_pixels",
    "half_size",
    "load_depth_maps",
    "metres",
    "split_maps",
]
