"""Label bins, checked from the specification.

The oracles are plain loops over labels and numbers a reader can derive by hand (VIR:bins); none of them
reads the implementation.
"""

from __future__ import annotations

import math
import re

import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from numpy.typing import NDArray

from tailwise.labels.bins import LabelBins
from tailwise.labels.kernels import label_weights
from tests.label_samples import label_lists, labels_with_counts, law, skewed


def off_the_edges(y: NDArray[np.float64], bins: LabelBins) -> NDArray[np.bool_]:
    """Labels further from every inner edge than the allowance for float32 rounding (at most 1% of a bin)."""
    distance = np.abs(y[:, None] - bins.edges[None, 1:-1]).min(axis=1)
    return np.asarray(distance > 0.02 * np.diff(bins.edges).min())


def test_integers_get_unit_bins_centred_on_the_integers() -> None:
    bins = LabelBins.from_labels([3, 3, 4, 7])
    np.testing.assert_array_equal(bins.edges, [2.5, 3.5, 4.5, 5.5, 6.5, 7.5])
    np.testing.assert_array_equal(bins.centers, [3, 4, 5, 6, 7])
    np.testing.assert_array_equal(bins.counts, [2, 1, 0, 0, 1])


def test_lists_tensors_and_series_give_the_same_bins() -> None:
    values = [1.0, 2.0, 2.0, 5.0, 8.0, 9.0]
    expected = LabelBins.from_labels(np.array(values))
    tensors = [torch.tensor(values, dtype=dtype) for dtype in (torch.float64, torch.bfloat16, torch.int64)]
    for other in (values, np.array(values)[:, None], torch.tensor(values, requires_grad=True), *tensors):
        bins = LabelBins.from_labels(other)
        np.testing.assert_array_equal(bins.edges, expected.edges)
        np.testing.assert_array_equal(bins.counts, expected.counts)


@pytest.mark.parametrize("step", [0.5, 0.25, 0.1, 0.2, 0.05])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_fine_lattice_gets_one_bin_per_point(step: float, dtype: type) -> None:
    steps = np.array([0, 1, 2, 2, 3, 4, 6, 7, 7, 7, 20])
    bins = LabelBins.from_labels((steps * step).astype(dtype))
    assert len(bins) == 21
    np.testing.assert_allclose(bins.centers, np.arange(21) * step, atol=1e-5 * step)
    np.testing.assert_array_equal(bins.counts, np.bincount(steps))


@pytest.mark.parametrize(("size", "seed"), [(300, 0), (1000, 1), (5000, 2)])
def test_continuous_labels_follow_freedman_diaconis(size: int, seed: int) -> None:
    y = np.random.default_rng(seed).normal(size=size)
    lower, upper = np.quantile(y, [0.25, 0.75])
    expected = (y.max() - y.min()) / (2 * (upper - lower) * size ** (-1 / 3))
    bins = LabelBins.from_labels(y)
    assert 10 < expected < 100
    assert abs(len(bins) - expected) <= 1
    np.testing.assert_allclose(
        bins.edges, np.linspace(y.min(), y.max(), len(bins) + 1), rtol=1e-9, atol=1e-12
    )


@pytest.mark.parametrize("value", [0.0, 5.0, -3.25, 1e-9, -1e9, 0.1, 1e17, 1e-300, 1e300])
def test_single_label_value_gets_one_bin_that_contains_it(value: float) -> None:
    bins = LabelBins.from_labels(np.full(4, value))
    assert len(bins) == 1
    np.testing.assert_array_equal(bins.counts, [4])
    assert bins.edges[0] <= value <= bins.edges[1] and bins.edges[0] < bins.edges[1]
    assert np.all(np.isfinite(bins.edges)) and np.all(np.isfinite(bins.centers))
    np.testing.assert_array_equal(bins.index(np.array([value, value - 100, value + 100])), [0, 0, 0])
    np.testing.assert_allclose(label_weights(bins), [1.0])


def test_width_that_divides_the_range_adds_no_bin() -> None:
    bins = LabelBins.from_labels(np.arange(51) / 10, width=0.1)  # the layout of STS-B-DIR
    assert len(bins) == 50
    np.testing.assert_allclose(bins.edges, np.arange(51) / 10, atol=1e-12)
    np.testing.assert_array_equal(bins.counts, [1] * 49 + [2])
    assert 0.1 * 3 / 0.1 > 3  # rounding must not ask for a fourth bin
    assert len(LabelBins.from_labels([0.0, 0.1 * 3], width=0.1)) == 3


def test_count_divides_the_range() -> None:
    bins = LabelBins.from_labels([0, 1, 2, 10], count=4)
    np.testing.assert_allclose(bins.edges, [0, 2.5, 5, 7.5, 10])
    np.testing.assert_array_equal(bins.counts, [3, 0, 0, 1])


def test_edges_are_used_as_given() -> None:
    bins = LabelBins.from_labels([0.5, 1.0, 9.0, -4.0, 99.0], edges=[0, 1, 10, 11])
    np.testing.assert_array_equal(bins.edges, [0, 1, 10, 11])
    np.testing.assert_array_equal(bins.centers, [0.5, 5.5, 10.5])
    np.testing.assert_array_equal(bins.counts, [2, 2, 1])  # labels outside are clipped, none is lost


@pytest.mark.parametrize(
    "choice",
    [
        {"width": 0.0},
        {"width": math.nan},
        {"width": 1e-12},
        {"count": 0},
        {"edges": [0, 1, 1, 2]},
        {"edges": [0, math.nan, 2]},
        {"count": 10**9},
        {"edges": [0, 1, 1e6]},
        {"width": 1.0, "count": 3},
        {"count": 2, "edges": [0, 1, 2]},
    ],
)
def test_impossible_choices_are_errors_that_name_the_argument(choice: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=next(iter(choice))):
        LabelBins.from_labels([0.0, 1.0, 2.0], **choice)  # type: ignore[arg-type]


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_non_finite_labels_are_reported_by_row(bad: float) -> None:
    values = [1.0] * 17 + [bad] + [2.0] * 5
    with pytest.raises(ValueError, match=r"\b17\b"):
        LabelBins.from_labels(np.arange(10)).index(np.array([1.0] * 17 + [math.nan]))
    for y in (values, np.array(values), torch.tensor(values)):
        with pytest.raises(ValueError, match=r"\b17\b"):
            LabelBins.from_labels(y)


def test_labels_beyond_the_training_range_go_to_the_end_bins() -> None:
    bins = LabelBins.from_labels([10, 11, 12, 13, 14])
    np.testing.assert_array_equal(bins.index(np.array([-1e9, 9.0, 14.0, 15.0, 1e9])), [0, 0, 4, 4, 4])
    indices = bins.index(torch.tensor([[-1e9, 9.0], [14.0, 15.0]]))
    assert indices.tolist() == [[0, 0], [4, 4]]


@pytest.mark.parametrize("offset", [0.0, 1.0, 20.0])
@pytest.mark.parametrize(("width", "points"), [(0.1, 51), (0.3, 31), (1 / 7, 36), (0.01, 101)])
def test_labels_on_an_edge_go_up_in_either_precision(offset: float, width: float, points: int) -> None:
    y = offset + np.arange(points) * width
    expected = np.minimum(np.arange(points), points - 2)
    for bins in (LabelBins.from_labels(y, width=width), LabelBins.from_labels(y, count=points - 1)):
        assert len(bins) == points - 1
        np.testing.assert_array_equal(bins.index(y), expected)
        np.testing.assert_array_equal(bins.index(y.astype(np.float32)), expected)
        np.testing.assert_array_equal(bins.index(torch.tensor(y)).numpy(), expected)
        np.testing.assert_array_equal(bins.index(torch.tensor(y, dtype=torch.float32)).numpy(), expected)
        np.testing.assert_array_equal(bins.index(y - 0.02 * width)[1:], np.arange(points - 1))


@law
@given(label_lists)
@example([1e9, math.nextafter(1e9, math.inf)])
@example([0.1, math.nextafter(0.1, 1.0), math.nextafter(0.1, 0.0)])
@example([0.0, 0.0, 0.0, 0.0, 5e-324])
@example([0.0, 5e-324, 0.5, 1.0, 2.0])
@example([-1e300, 0.0, 0.0, 0.0, 0.0, 1e300])
def test_every_label_is_counted_once_and_lies_in_its_bin(values: list[float]) -> None:
    y = np.array(values)
    bins = LabelBins.from_labels(y)
    indices = bins.index(y)
    assert bins.counts.sum() == len(y)
    assert np.all(np.isfinite(bins.edges)) and np.all(np.diff(bins.edges) > 0)
    assert indices.min() >= 0 and indices.max() < len(bins)
    assert np.all(np.isfinite(label_weights(bins)))
    np.testing.assert_array_equal(np.bincount(indices, minlength=len(bins)), bins.counts)
    width = np.diff(bins.edges)[indices]
    slack = 0.0101 * width  # a label just below an edge may be one that float32 has rounded
    assert np.all(bins.edges[indices] - slack <= y)
    assert np.all(y <= bins.edges[indices + 1] + slack)


@law
@given(
    seed=st.integers(0, 10_000),
    exponent=st.floats(-9, 9),
    shift=st.floats(-1000, 1000),
    negative=st.booleans(),
)
def test_binning_follows_shifts_and_scales_of_continuous_labels(
    seed: int, exponent: float, shift: float, negative: bool
) -> None:
    y = skewed(seed)
    scale = 10.0**exponent * (-1 if negative else 1)
    bins = LabelBins.from_labels(y)
    moved = LabelBins.from_labels(y * scale + shift * scale)
    assert len(moved) == len(bins)
    clear = off_the_edges(y, bins)
    assert clear.mean() > 0.9
    expected = len(bins) - 1 - bins.index(y) if negative else bins.index(y)
    np.testing.assert_array_equal(moved.index(y * scale + shift * scale)[clear], expected[clear])
    edges = bins.edges[::-1] if negative else bins.edges
    np.testing.assert_allclose(moved.edges, edges * scale + shift * scale, atol=1e-8 * abs(scale))


@law
@given(
    steps=st.lists(st.integers(0, 150), min_size=6, max_size=40),
    exponent=st.floats(-9, 9),
    shift=st.integers(-500, 500),
)
def test_binning_follows_shifts_and_scales_of_a_lattice(
    steps: list[int], exponent: float, shift: int
) -> None:
    steps = [*steps, 0, 1, 2, 3, 4]  # neighbours, so that the step of the lattice is one
    scale = 10.0**exponent
    bins = LabelBins.from_labels((np.array(steps) + shift) * scale)
    np.testing.assert_array_equal(bins.counts, np.bincount(steps))


def test_regions_by_training_count() -> None:
    counts = [0, 1, 19, 20, 21, 99, 100, 101, 500]
    bins = LabelBins.from_labels(labels_with_counts(counts), edges=np.arange(10) - 0.5)
    np.testing.assert_array_equal(bins.counts, counts)
    expected = ["few", "few", "few", "medium", "medium", "medium", "medium", "many", "many"]
    assert list(bins.regions()) == expected
    assert list(bins.regions(many=20, few=1)) == ["few", "medium", "medium", "medium"] + ["many"] * 5


def test_explain_warns_when_most_labels_share_one_bin() -> None:
    rng = np.random.default_rng(0)
    crowded = LabelBins.from_labels(np.concatenate([np.zeros(900), rng.exponential(1.0, 100)])).explain()
    spread = LabelBins.from_labels(rng.uniform(size=1000)).explain()
    assert re.search(r"9[01]% of the labels share the bin", crowded), crowded
    assert "share the bin" not in spread


def test_labels_count_as_often_as_their_weights_say() -> None:
    y = [0, 0, 0, 1, 2, 4]
    bins = LabelBins.from_labels(y, weight=[2, 3, 0.4, 0.2, 7.6, 1])
    np.testing.assert_array_equal(bins.counts, [5, 1, 8, 0, 1])  # rounded; 1 where the weights are below 1/2
    plain = LabelBins.from_labels(y)
    np.testing.assert_array_equal(bins.edges, plain.edges)
    assert bins.rule == plain.rule
    np.testing.assert_array_equal(LabelBins.from_labels(y, weight=np.ones(6)).counts, plain.counts)
    assert LabelBins.from_labels(y, count=2, weight=[1, 1, 1, 1, 1, 9]).counts.tolist() == [4, 10]


def test_standardized_bins_have_mean_0_and_standard_deviation_1() -> None:
    bins = LabelBins.from_labels(labels_with_counts([5, 3, 1, 1], start=10))
    unit = bins.standardized()
    assert unit.counts @ unit.centers == pytest.approx(0.0, abs=1e-12)
    assert unit.counts @ unit.centers**2 / 10 == pytest.approx(1.0)
    np.testing.assert_allclose(unit.edges * bins.scale + bins.location, bins.edges)
