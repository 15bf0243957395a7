"""Kernels over label bins, the smoothed label density and importance weights.

Everything here is plain NumPy in float64 and runs once per data set.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal, TypedDict

import numpy as np
from scipy import ndimage, special

from tailwise.labels.bins import Array, LabelBins
from tailwise.lookup import check_name

KernelForm = Literal["paper", "reference"]
Boundary = Literal["truncate", "reflect"]
Scale = Literal["mean", "density"]
Clip = tuple[float, float]

_INV_COUNT_CLIP = (5.0, 1000.0)


class Window(TypedDict):
    """A kernel over label bins, as `kernel_matrix` takes it."""

    kernel: str | None
    bandwidth: float
    radius: int


KERNELS: dict[str, Callable[[Array, float, int], Array]] = {
    "gaussian": lambda distance, bandwidth, _: np.exp(-(distance**2) / (2 * bandwidth**2)),
    "laplacian": lambda distance, bandwidth, _: np.exp(-distance / bandwidth),
    "triangular": lambda distance, _, radius: np.maximum(0.0, 1 - distance / (radius + 1)),
}
"""Kernels by name: functions of the distances, the bandwidth and the radius, all in bins."""


def kernel_window(
    kernel: str = "gaussian", bandwidth: float = 2.0, radius: int = 2, form: KernelForm = "paper"
) -> Array:
    """Return the kernel at distances -radius..radius, summing to 1 (VIR:kernel). (2 radius + 1,)

    ``form="reference"`` is the preview code's Gaussian, which is almost flat: a unit impulse of the
    window's length, passed through a Gaussian filter with reflecting ends.

    >>> kernel_window("triangular", radius=1)
    array([0.25, 0.5 , 0.25])
    """
    check_name("kernel", kernel, KERNELS)
    check_name("form", form, ("paper", "reference"))
    if radius != int(radius) or radius < 0:
        raise ValueError(f"radius must be a whole number of at least 0, got {radius!r}")
    if not bandwidth > 0:
        raise ValueError(f"bandwidth must be positive, got {bandwidth!r}")
    distance = np.abs(np.arange(-radius, radius + 1, dtype=np.float64))
    if form == "reference" and kernel == "gaussian":
        window = ndimage.gaussian_filter1d((distance == 0).astype(np.float64), sigma=bandwidth)
    else:
        window = KERNELS[kernel](distance, bandwidth, radius)
    return np.asarray(window / window.sum())


def kernel_matrix(
    num_bins: int,
    *,
    kernel: str | None = "gaussian",
    bandwidth: float = 2.0,
    radius: int = 2,
    form: KernelForm = "paper",
    boundary: Boundary = "truncate",
    squared: bool = False,
) -> Array:
    """Return k(b, b') for all pairs of bins. (B, B)

    At the ends of the label range ``truncate`` sums over the bins that exist (the paper) and
    ``reflect`` mirrors the range about its first and last bin (the preview code). ``kernel=None``
    is the identity: no smoothing. ``squared=True`` squares the window first: a bin that is reached twice,
    itself and by reflection, then counts k1^2 + k2^2 as in the preview code, not (k1 + k2)^2.
    """
    check_name("boundary", boundary, ("truncate", "reflect"))
    if kernel is None:
        return np.eye(num_bins)
    window = kernel_window(kernel, bandwidth, radius, form)
    mode = {"truncate": "constant", "reflect": "mirror"}[boundary]
    return np.asarray(
        ndimage.correlate1d(np.eye(num_bins), window**2 if squared else window, axis=0, mode=mode)
    )


def smoothed_density(bins: LabelBins, **kernel: Any) -> Array:
    """Return the smoothed label density of each bin, p~_b = sum_b' k(b, b') p_b' (VIR:density). (B,)

    Keyword arguments are those of `kernel_matrix`.
    """
    return np.asarray(kernel_matrix(len(bins), **kernel) @ (bins.counts / bins.counts.sum()))


def _paper_weights(bins: LabelBins, power: float, clip: Clip, kernel: Mapping[str, Any]) -> Array:
    """Smooth the density, then take ``p~_b^(-power)``."""
    counts = smoothed_density(bins, **kernel) * bins.counts.sum()
    return np.asarray(1 / np.where(counts > 0, np.clip(counts, *clip), 0.0) ** power)


def _reference_weights(bins: LabelBins, power: float, clip: Clip, kernel: Mapping[str, Any]) -> Array:
    """Take the root of the counts, then smooth, then invert, as the preview code does."""
    # Empty bins beyond both ends of the range: a clip gives them a count. Statistics are reflected instead.
    reach = int(kernel["radius"])
    counts = np.clip(np.pad(bins.counts, reach), *clip) ** power
    smoothed = kernel_matrix(counts.size, form="reference", **kernel) @ counts
    return np.asarray(1 / smoothed[reach : reach + len(bins)])


def _dense_weights(bins: LabelBins, power: float, clip: Clip, kernel: Mapping[str, Any]) -> Array:
    """DenseWeight: ``max(1 - power p', 1e-6)``, p' the density by Silverman's rule over its maximum.

    Labels count as spread evenly within their bin, so that bins of unequal width are no denser for it.
    """
    bandwidth = 1.06 * bins.scale * bins.counts.sum() ** (-1 / 5)
    below = special.ndtr((bins.centers[:, None] - bins.edges) / bandwidth)  # (B, B + 1)
    density = -np.diff(below, axis=1) @ (bins.counts / np.diff(bins.edges))
    return np.asarray(np.maximum(1 - power * density / density.max(), 1e-6))


WEIGHT_FORMS: dict[str, Callable[[LabelBins, float, Clip, Mapping[str, Any]], Array]] = {
    "paper": _paper_weights,
    "reference": _reference_weights,
    "dense": _dense_weights,
}
"""Forms of label weights by name.

Each is a function of the bins, the power, the clip on counts and the options of `kernel_matrix`.
It returns one weight per bin, on any scale, and infinity for bins without a label near them.
"""


def label_weights(
    bins: LabelBins,
    *,
    kernel: str | None = "gaussian",
    bandwidth: float = 2.0,
    radius: int = 2,
    power: float = 0.5,
    form: str = "paper",
    clip: Clip | None = None,
    scale: Scale = "mean",
) -> Array:
    """Return one importance weight per bin, averaging 1 over the training labels (VIR:weight). (B,)

    The paper's form is ``w_b = p~_b^(-power)``: ``power=0.5`` is SQINV, ``power=1`` is INV, and
    ``kernel=None`` does not smooth the density. ``form="reference"`` follows the preview code: it
    raises the counts to `power`, then smooths, then inverts. ``form="dense"`` is DenseWeight, to which
    `kernel` and `clip` do not apply. `clip` is the lowest and highest count that a bin may stand for; INV
    (``power >= 1``) clips to 5..1000 by default. A bin without a label near it gets the largest weight of
    all bins. ``scale="density"`` leaves weights as the paper prints them, for a density that sums to 1.

    >>> bins = LabelBins.from_labels([0, 0, 0, 0, 1])
    >>> label_weights(bins, kernel=None), label_weights(bins, kernel=None, scale="density")
    (array([0.83333333, 1.66666667]), array([1.11803399, 2.23606798]))
    """
    check_name("scale", scale, ("mean", "density"))
    check_name("form", form, WEIGHT_FORMS)
    if not 0 <= power < np.inf:
        raise ValueError(f"power must not be negative, got {power!r}")
    if clip is None and power >= 1:
        clip = _INV_COUNT_CLIP
    low, high = clip if clip is not None else (0.0, np.inf)
    if not 0 <= low <= high or high == 0:
        raise ValueError(f"clip must be two counts, low and high, got {clip!r}")
    smoothing = {"kernel": kernel, "bandwidth": bandwidth, "radius": radius}
    with np.errstate(divide="ignore"):
        weights = WEIGHT_FORMS[form](bins, power, (low, high), smoothing)
    weights = np.where(np.isinf(weights), weights[np.isfinite(weights)].max(), weights)
    rows = bins.counts.sum()
    if scale == "density":  # the forms count rows, the paper shares of them
        return np.asarray(weights * rows**power)
    return np.asarray(weights * rows / (bins.counts @ weights))
