"""Relevance of labels, checked from the papers: numbers by hand, SciPy's splines and laws."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.interpolate import CubicHermiteSpline

from tailwise.resampling.smogn import RelevanceFunction
from tests.label_samples import law


def test_relevance_at_points_derived_by_hand() -> None:
    # 3 t^2 - 2 t^3 at a quarter, a half, three quarters: 10/64, 1/2, 54/64.
    relevance = RelevanceFunction(np.array([[-4, 1], [0, 0], [8, 1]]))
    y = [-99, -4, -3, -2, -1, 0, 2, 4, 6, 8, 99]
    expected = [1, 1, 54 / 64, 0.5, 10 / 64, 0, 10 / 64, 0.5, 54 / 64, 1, 1]
    np.testing.assert_allclose(relevance(y), expected, atol=1e-15)
    assert relevance(np.zeros((2, 3))).shape == (2, 3)


def test_box_plot_points_of_normal_labels() -> None:
    # 0..8 have quartiles 2, 4, 6: without 100 on top no label lies beyond 6 + 1.5 * 4 = 12.
    assert RelevanceFunction.from_labels(range(9)).points.tolist() == [[4, 0]]
    # 0..8 with -50, 13 and 100: quartiles 1.5, 4.5, 7.5, fences -7.5 and 16.5, so the adjacent values are
    # 0 and 13.
    y = [*range(9), -50, 13, 100]
    assert RelevanceFunction.from_labels(y).points.tolist() == [[0, 1], [4.5, 0], [13, 1]]


@pytest.mark.parametrize("sign", [1, -1])
def test_zero_inflated_labels(sign: int) -> None:
    # 80 zeros and 1..20: the quartiles are all 0; the third quartile of 1..20 is 15.25.
    y = sign * np.concatenate([np.zeros(80), np.arange(1, 21)])
    relevance = RelevanceFunction.from_labels(y)
    assert sorted(map(tuple, np.abs(relevance.points))) == [(0, 0), (15.25, 1)]
    assert relevance(0) == 0
    assert relevance(sign * 20) == 1


def test_a_quartile_that_equals_the_median() -> None:
    # Quartiles 0, 1, 1 and IQR 1: the upper adjacent value is 2.5, above the median.
    y = [0, 0, 0, 1, 1, 1, 1, 1, 10]
    assert RelevanceFunction.from_labels(y).points.tolist() == [[1, 0], [2.5, 1]]


def test_equal_labels_have_no_relevance() -> None:
    assert RelevanceFunction.from_labels([3.0] * 5)([1, 3, 9]).tolist() == [0, 0, 0]


def test_the_cubic_is_that_of_scipy() -> None:
    x, r = np.array([0.0, 1.0, 3.0, 7.0]), np.array([0.0, 0.2, 0.9, 1.0])
    at = np.linspace(0, 7, 200)
    relevance = RelevanceFunction(np.column_stack([x, r]))
    np.testing.assert_allclose(relevance(at), CubicHermiteSpline(x, r, np.zeros(4))(at), atol=1e-12)


@law
@given(
    st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=6, unique=True),
    st.lists(st.floats(0, 1), min_size=6, max_size=6),
)
def test_relevance_is_monotone_between_control_points(labels: list[float], rest: list[float]) -> None:
    points = list(zip(sorted(labels), rest, strict=False))
    relevance = RelevanceFunction(np.array(points))
    for (a, ra), (b, rb) in pairwise(points):
        values = relevance(np.linspace(a, b, 50))
        assert ((values >= 0) & (values <= 1)).all()
        assert (np.diff(values) * np.sign(rb - ra) >= -1e-9).all()
        np.testing.assert_allclose(relevance([a, b]), [ra, rb], atol=1e-9)
