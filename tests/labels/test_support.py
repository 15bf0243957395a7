"""Values that labels can have."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tailwise.labels.support import LabelSupport
from tests.prediction_samples import doubles


@pytest.mark.parametrize("step", [1.0, 0.5, 0.1, 5.0, 0.0025, 7.3e-12, 1e16])
def test_labels_on_a_grid_stay_exactly_what_they_are(step: float) -> None:
    values = np.array([float(f"{k * step:.15g}") for k in range(-7, 40)])
    found = LabelSupport.from_labels(np.repeat(values, 3))
    at = torch.from_numpy(values)
    low, high = found.between(at, at)
    assert torch.equal(low, at) and torch.equal(high, at)
    assert torch.equal(found.nearest(at + 0.4 * step), at)


def test_snapped_intervals_contain_the_same_labels_and_are_narrower() -> None:
    rng = np.random.default_rng(0)
    lower = torch.from_numpy(rng.normal(3, 2, 4000))
    upper = lower + torch.from_numpy(rng.gamma(2.0, size=4000))
    labels = torch.arange(-20.0, 40.0, dtype=torch.float64)[:, None]
    low, high = LabelSupport.from_labels(rng.integers(0, 8, 500) + 0.0).between(lower, upper)
    before, after = ((labels >= a) & (labels <= b) for a, b in ((lower, upper), (low, high)))
    some = before.any(0)
    assert some.any() and not some.all()
    assert torch.equal(before[:, some], after[:, some])
    assert (after.sum(0) >= 1).all()
    assert ((high - low)[some] <= (upper - lower)[some]).all()


def test_an_end_beside_an_atom_moves_to_it() -> None:
    y = np.r_[np.zeros(50), 2 + np.random.default_rng(0).random(40), np.full(10, 9.0)]
    found = LabelSupport.from_labels(y)
    assert [atom for atom, _, _ in found.atoms] == [0.0, 9.0]
    low, high = found.between(doubles(-1.0, 0.5, 2.1, 5.0), doubles(1.0, 1.0, 99.0, 9.5))
    assert low.tolist() == [0.0, 0.5, 2.1, 9.0] and high.tolist() == [0.0, 1.0, 9.0, 9.0]
    assert found.nearest(doubles(-3.0, 0.4, 1.9, 8.0, 50.0)).tolist() == [0.0, 0.0, 1.9, 9.0, 9.0]


@pytest.mark.parametrize(
    "y",
    [
        np.random.default_rng(0).normal(size=300),
        np.arange(20.0) % 4,  # too few
        np.full(100, 3.0),
        np.repeat([*np.arange(12.0), 1e6], 4),  # a million steps
        np.repeat(np.r_[np.arange(12.0), np.pi], 3),  # no common step
        np.arange(300.0),  # no value repeats
    ],
)
def test_continuous_labels_have_no_support(y: np.ndarray) -> None:
    assert LabelSupport.from_labels(y) == LabelSupport()
    ends = doubles(0.4, 1.2), doubles(3.9, 1.4)
    assert LabelSupport().between(*ends) == ends and LabelSupport().nearest(ends[0]) is ends[0]


def test_a_value_that_no_label_has_is_a_point_of_the_grid() -> None:
    values = np.array([0.0, 0.2, 0.5, 0.7])
    found = LabelSupport.from_labels(np.repeat(values, 10))
    assert found.grid == (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7)
    assert [float(end) for end in found.between(doubles(0.3), doubles(0.3))] == [0.3, 0.3]
    low, high = found.between(doubles(-0.25), doubles(0.95))
    torch.testing.assert_close(torch.cat([low, high]), doubles(-0.2, 0.9))
