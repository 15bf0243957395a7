"""Kernels over label bins, the smoothed label density and the importance weights it gives.

Everything here is plain NumPy in float64 and runs once per data set.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import numpy as np
from scipy import ndimage

from tailwise.core.labels import Array, LabelBins
from tailwise.core.lookup import nearest

KernelForm = Literal["paper", "reference"]
WeightForm = Literal["paper", "reference", "dense"]
Boundary = Literal["truncate", "reflect"]

_INV_COUNT_CLIP = (5.0, 1000.0)


def _gaussian(distance: Array, bandwidth: float, radius: int) -> Array:
    return np.asarray(np.exp(-(distance**2) / (2 * bandwidth**2)))


def _laplacian(distance: Array, bandwidth: float, radius: int) -> Array:
    return np.asarray(np.exp(-distance / bandwidth))


def _triangular(distance: Array, bandwidth: float, radius: int) -> Array:
    return np.maximum(0.0, 1 - distance / (radius + 1))


KERNELS: dict[str, Callable[[Array, float, int], Array]] = {
    "gaussian": _gaussian,
    "laplacian": _laplacian,
    "triangular": _triangular,
}


def kernel_window(
    kernel: str = "gaussian", bandwidth: float = 2.0, radius: int = 2, form: KernelForm = "paper"
) -> Array:
    """Return the kernel at distances -radius..radius, summing to 1 (VIR:kernel). (2 radius + 1,)

    ``form="reference"`` is the preview code's Gaussian: a unit impulse of the window's length run
    through a Gaussian filter with reflecting ends, which is almost flat.

    >>> kernel_window("triangular", radius=1)
    array([0.25, 0.5 , 0.25])
    """
    if kernel not in KERNELS:
        raise ValueError(f"unknown kernel {kernel!r}{nearest(kernel, KERNELS)}")
    if radius != int(radius) or radius < 0:
        raise ValueError(f"radius must be a whole number of at least 0, got {radius!r}")
    if not bandwidth > 0:
        raise ValueError(f"bandwidth must be positive, got {bandwidth!r}")
    distance = np.abs(np.arange(-radius, radius + 1, dtype=np.float64))
    if form == "reference" and kernel == "gaussian":
        window = ndimage.gaussian_filter1d((distance == 0).astype(np.float64), sigma=bandwidth)
    elif form in ("paper", "reference"):
        window = KERNELS[kernel](distance, bandwidth, radius)
    else:
        raise ValueError(f"unknown form {form!r}{nearest(form, ('paper', 'reference'))}")
    return np.asarray(window / window.sum())


def kernel_matrix(
    num_bins: int,
    *,
    kernel: str | None = "gaussian",
    bandwidth: float = 2.0,
    radius: int = 2,
    form: KernelForm = "paper",
    boundary: Boundary = "truncate",
) -> Array:
    """Return k(b, b') for all pairs of bins. (B, B)

    At the ends of the label range ``truncate`` sums over the bins that exist (the paper) and
    ``reflect`` mirrors the range about its first and last bin (the preview code). ``kernel=None``
    is the identity: no smoothing.
    """
    if kernel is None:
        return np.eye(num_bins)
    window = kernel_window(kernel, bandwidth, radius, form)
    radius = window.size // 2  # a whole number, whatever came: files may have 2.0
    rows = np.repeat(np.arange(num_bins), window.size)
    columns = rows + np.tile(np.arange(-radius, radius + 1), num_bins)
    values = np.tile(window, num_bins)
    if boundary == "reflect":
        period = max(2 * (num_bins - 1), 1)
        columns = np.abs(columns) % period
        columns = np.minimum(columns, period - columns) if num_bins > 1 else columns * 0
    elif boundary != "truncate":
        raise ValueError(f"unknown boundary {boundary!r}{nearest(boundary, ('truncate', 'reflect'))}")
    inside = (columns >= 0) & (columns < num_bins)
    matrix = np.zeros((num_bins, num_bins))
    np.add.at(matrix, (rows[inside], columns[inside]), values[inside])
    return matrix


def smoothed_density(bins: LabelBins, **kernel: Any) -> Array:
    """Return the smoothed label density of each bin, p~_b = sum_b' k(b, b') p_b' (VIR:density). (B,)

    Keyword arguments are those of `kernel_matrix`.
    """
    return np.asarray(kernel_matrix(len(bins), **kernel) @ (bins.counts / bins.counts.sum()))


def label_weights(
    bins: LabelBins,
    *,
    kernel: str | None = "gaussian",
    bandwidth: float = 2.0,
    radius: int = 2,
    power: float = 0.5,
    form: WeightForm = "paper",
    clip: tuple[float, float] | None = None,
) -> Array:
    """Return one importance weight per bin, averaging 1 over the training labels (VIR:weight). (B,)

    The paper's form is ``w_b = p~_b^(-power)``: ``power=0.5`` is SQINV, ``power=1`` INV and
    ``kernel=None`` leaves the density unsmoothed. ``form="reference"`` follows the preview code:
    square root of the counts (``power`` in general), then smoothing, then the inverse. `clip`
    bounds the counts a bin may stand for; INV (``power >= 1``) clips to 5..1000 unless told.
    ``form="dense"`` is DenseWeight's ``max(1 - power p'(y), 1e-6)`` with p' the label density,
    smoothed by Silverman's bandwidth and mapped to 0..1 (`kernel` and `clip` do not apply).
    A bin with no label near it has the largest weight of all.

    >>> label_weights(LabelBins.from_labels([0, 0, 0, 0, 1]), kernel=None)
    array([0.83333333, 1.66666667])
    """
    if form not in ("paper", "reference", "dense"):
        raise ValueError(f"unknown form {form!r}{nearest(form, ('paper', 'reference', 'dense'))}")
    if not 0 <= power < np.inf:
        raise ValueError(f"power must not be negative, got {power!r}")
    if clip is None and power >= 1:
        clip = _INV_COUNT_CLIP
    low, high = clip if clip is not None else (0.0, np.inf)
    if not 0 <= low <= high or high == 0:
        raise ValueError(f"clip must be two counts, low and high, got {clip!r}")
    total = bins.counts.sum()
    if form == "dense":
        return _dense_weights(bins, power)
    smoothing = {"kernel": kernel, "bandwidth": bandwidth, "radius": radius, "form": form}
    if form == "reference":
        # Zero-padded at the ends of the range, unlike the same code's statistics.
        counted = np.clip(bins.counts, low, high) ** power
        density = kernel_matrix(len(bins), **smoothing) @ counted  # type: ignore[arg-type]
    else:
        effective = smoothed_density(bins, **smoothing) * total
        density = np.where(effective > 0, np.clip(effective, low, high), 0.0) ** power
    seen = density > 0
    weights = np.full(len(bins), np.nan)
    weights[seen] = 1 / density[seen]
    weights[~seen] = weights[seen].max()
    return np.asarray(weights * total / (bins.counts @ weights))


def _dense_weights(bins: LabelBins, alpha: float) -> Array:
    spread = bins.scale / float(np.diff(bins.edges).mean())  # in bins
    bandwidth = max(1.06 * spread * bins.counts.sum() ** (-1 / 5), 0.5)
    radius = min(int(np.ceil(4 * bandwidth)), len(bins))
    density = smoothed_density(bins, bandwidth=bandwidth, radius=radius)
    reach = float(np.ptp(density))
    relative = (density - density.min()) / reach if reach > 0 else np.zeros_like(density)
    weights = np.maximum(1 - alpha * relative, 1e-6)
    return np.asarray(weights * bins.counts.sum() / (bins.counts @ weights))
