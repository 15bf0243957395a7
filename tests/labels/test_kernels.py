"""Kernels, smoothed density and importance weights, checked against the formulas.

The oracles are plain loops over labels and numbers a reader can derive by hand (VIR:kernel, VIR:density,
VIR:weight); none of them reads the implementation.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from scipy.ndimage import gaussian_filter1d

from tailwise.labels.bins import LabelBins
from tailwise.labels.kernels import (
    kernel_matrix,
    kernel_window,
    label_weights,
    smoothed_density,
)
from tests.label_samples import label_lists, labels_with_counts, law

KERNELS = ("gaussian", "laplacian", "triangular")


def test_paper_gaussian_window_by_hand() -> None:
    near, far = math.exp(-1 / 8), math.exp(-4 / 8)
    total = 1 + 2 * near + 2 * far
    np.testing.assert_allclose(
        kernel_window("gaussian", 2.0, 2), np.array([far, near, 1, near, far]) / total, rtol=1e-12
    )


def test_reference_gaussian_window_is_almost_flat() -> None:
    window = kernel_window("gaussian", 2.0, 2, form="reference")
    np.testing.assert_allclose(window, [0.1863, 0.2052, 0.2170, 0.2052, 0.1863], atol=5e-5)


def test_laplacian_and_triangular_windows_by_hand() -> None:
    decay = np.exp(-np.array([2, 1, 0, 1, 2]) / 3.0)
    np.testing.assert_allclose(kernel_window("laplacian", 3.0, 2), decay / decay.sum(), rtol=1e-12)
    np.testing.assert_allclose(kernel_window("triangular", 3.0, 2), np.array([1, 2, 3, 2, 1]) / 9, rtol=1e-12)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda bins: kernel_window("gaussian", 0.0, 2), "bandwidth"),
        (lambda bins: kernel_window("gaussian", 2.0, -1), "radius"),
        (lambda bins: kernel_matrix(5, boundary="reflekt"), "reflect"),
        (lambda bins: label_weights(bins, form="papre"), "paper"),
        (lambda bins: label_weights(bins, power=-0.5), "power"),
        (lambda bins: label_weights(bins, clip=(10, 1)), "clip"),
        (lambda bins: bins.regions(many=10, few=20), "few"),
    ],
)
def test_impossible_settings_are_errors(call: Callable[[LabelBins], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call(LabelBins.from_labels([0, 1, 2]))


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("form", ["paper", "reference"])
def test_smoothed_density_equals_a_loop(kernel: str, form: str) -> None:
    y = np.random.default_rng(5).poisson(6, 300)
    bins = LabelBins.from_labels(y)
    window = kernel_window(kernel, 2.0, 3, form=form)
    expected = [
        sum(
            window[3 + k] * np.mean(y == center + k) for k in range(-3, 4) if y.min() <= center + k <= y.max()
        )
        for center in bins.centers
    ]
    density = smoothed_density(bins, kernel=kernel, bandwidth=2.0, radius=3, form=form)
    np.testing.assert_allclose(density, expected, rtol=1e-12)


def test_sqinv_weights_by_hand() -> None:
    bins = LabelBins.from_labels(labels_with_counts([16, 4, 1, 4, 16]))
    raw = np.array([0.25, 0.5, 1, 0.5, 0.25])
    mean = (16 * 0.25 * 2 + 4 * 0.5 * 2 + 1) / 41  # 13 / 41
    for form in ("paper", "reference"):
        np.testing.assert_allclose(label_weights(bins, kernel=None, form=form), raw / mean, rtol=1e-12)


def test_inv_weights_are_clipped() -> None:
    bins = LabelBins.from_labels(labels_with_counts([10, 2000, 1, 20]))
    raw = np.array([1 / 10, 1 / 1000, 1 / 5, 1 / 20])
    mean = (10 / 10 + 2000 / 1000 + 1 / 5 + 20 / 20) / 2031
    for form in ("paper", "reference"):
        np.testing.assert_allclose(
            label_weights(bins, kernel=None, power=1.0, form=form), raw / mean, rtol=1e-12
        )


def test_dense_weights_by_hand() -> None:
    y, edges = labels_with_counts([90, 5, 5]), [-0.5, 0.5, 1.5, 5.5]
    bins = LabelBins.from_labels(y, edges=edges)
    share, centers = np.array([0.9, 0.05, 0.05]), np.array([0, 1, 3.5])
    bandwidth = 1.06 * np.sqrt(share @ centers**2 - (share @ centers) ** 2) * 100**-0.2

    def density(at: float) -> float:
        """A kernel on labels that fill their bins evenly, by numerical integration."""
        fine = (np.linspace(a, b, 20001) for a, b in pairwise(edges))
        return float(
            sum(p * stats.norm.pdf(at, t, bandwidth).mean() for p, t in zip(share, fine, strict=True))
        )

    relative = np.array([density(c) for c in centers]) / density(0)
    raw = np.maximum(1 - 0.7 * relative, 1e-6)
    np.testing.assert_allclose(label_weights(bins, form="dense", power=0.7), raw / (raw @ share), rtol=1e-4)
    floored = label_weights(bins, form="dense", power=5.0)
    assert floored.min() > 0 and floored[0] == floored.min()


@pytest.mark.parametrize("kernel", [None, *KERNELS])
def test_power_zero_is_no_weighting(kernel: str | None) -> None:
    bins = LabelBins.from_labels(np.random.default_rng(0).poisson(4, 200))
    np.testing.assert_allclose(label_weights(bins, kernel=kernel, power=0.0), 1.0, rtol=1e-12)


@law
@given(
    values=label_lists,
    kernel=st.sampled_from([None, *KERNELS]),
    power=st.sampled_from([0.0, 0.25, 0.5, 0.9, 1.0, 1.5]),
    form=st.sampled_from(["paper", "reference"]),
    bandwidth=st.floats(0.1, 10),
    radius=st.integers(0, 6),
)
def test_weights_average_one_over_the_training_labels(
    values: list[float], kernel: str | None, power: float, form: str, bandwidth: float, radius: int
) -> None:
    y = np.array(values)
    bins = LabelBins.from_labels(y)
    weights = label_weights(bins, kernel=kernel, power=power, form=form, bandwidth=bandwidth, radius=radius)
    assert np.all(np.isfinite(weights)) and np.all(weights > 0)
    assert np.mean(weights[bins.index(y)]) == pytest.approx(1.0, rel=1e-9)


@pytest.mark.parametrize("form", ["paper", "reference"])
def test_weights_as_printed_are_powers_of_shares_of_rows(form: str) -> None:
    """Not scaled to a mean of 1: p^(-1/2) of shares .8 and .2."""
    bins = LabelBins.from_labels([0, 0, 0, 0, 1])
    weights = label_weights(bins, kernel=None, form=form, scale="density")
    np.testing.assert_allclose(weights, [0.8**-0.5, 0.2**-0.5])


def weights_by_hand(ages: list[int], power: float, form: str) -> dict[int, float]:
    """VIR:weight in plain Python: paper smooths, then takes the power; reference the other way round."""
    count = Counter(ages)
    if form == "paper":
        shape = {k: math.exp(-(k**2) / 8) for k in range(-2, 3)}
    else:
        shape = dict(zip(range(-2, 3), gaussian_filter1d(np.array([0, 0, 1.0, 0, 0]), 2.0), strict=True))
    total = sum(shape.values())
    span = range(min(ages), max(ages) + 1)
    raw = {}
    for age in span:
        smooth = 0.0
        for k, height in shape.items():
            number = float(count[age + k])  # 0 beyond both ends
            if form == "reference":
                number = math.sqrt(number) if power == 0.5 else min(max(number, 5.0), 1000.0)
            smooth += height / total * number
        if form == "reference":
            raw[age] = 1 / smooth
        else:
            raw[age] = (smooth if power == 0.5 else min(max(smooth, 5.0), 1000.0)) ** -power
    mean = sum(raw[age] for age in ages) / len(ages)
    return {age: value / mean for age, value in raw.items()}


@pytest.mark.parametrize("power", [0.5, 1.0])
@pytest.mark.parametrize("form", ["paper", "reference"])
def test_smoothed_weights_equal_a_loop(form: str, power: float) -> None:
    """Ages with a gap, a long tail, and counts on both sides of the clip of INV."""
    counts = {1: 2, 2: 1, 3: 40, 4: 800, 5: 2500, 6: 1200, 7: 90, 10: 7, 11: 3, 12: 1}
    ages = [age for age, count in counts.items() for _ in range(count)]
    bins = LabelBins.from_labels(ages)
    expected = weights_by_hand(ages, power, form)
    np.testing.assert_array_equal(bins.centers, list(expected))
    np.testing.assert_allclose(
        label_weights(bins, power=power, form=form), list(expected.values()), rtol=1e-9
    )
    plain = label_weights(bins, power=power, kernel=None)
    assert not np.allclose(plain, list(expected.values()), rtol=0.05)  # smoothing matters here
