"""Spreads of predictions."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tailwise.calibration.scaling import standard_deviation
from tailwise.distributions.members import NIG, Mixture
from tailwise.distributions.truncation import Bounds
from tailwise.labels.bins import LabelBins
from tailwise.labels.prior import LabelDensity, emphasis

BINS = LabelBins.from_labels(np.repeat([0, 1, 2], [300, 50, 5]))  # many, medium, few


def beliefs(alpha: list[float]) -> NIG:
    return NIG(torch.tensor([1.0, 2.0, 9.0], dtype=torch.float64), 3.0, torch.tensor(alpha).double(), 2.0)


@pytest.mark.parametrize("kind", ["alone", "mixture", "tilted", "bounded"])
def test_standard_deviation_is_exact_unless_a_tail_is_very_heavy(kind):
    def predictions(alpha):
        own = beliefs(alpha)
        if kind == "mixture":
            own = Mixture([own, beliefs([4.0, 4.0, 4.0])], torch.tensor([0.3, 0.7]))
        if kind == "bounded":
            return Bounds(0.0).apply(own)
        return emphasis(LabelDensity.from_bins(BINS), 1.0).apply(own) if kind == "tilted" else own

    usual = predictions([1.25, 1.5, 4.0])
    np.testing.assert_array_equal(standard_deviation(usual), usual.std)
    heavy = predictions([1.0001, 0.9, 4.0])
    found = standard_deviation(heavy)
    assert heavy.std[0] > 20 * found[0] and heavy.std[1].isinf()
    np.testing.assert_allclose(found[2], heavy.std[2])
    low, high = heavy.interval(0.9)
    assert (((high - low) / found)[:2] > 0.9).all() and (((high - low) / found)[:2] < 3.5).all()
    torch.testing.assert_close(standard_deviation(heavy[:1]), found[:1])
