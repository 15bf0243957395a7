"""What ranks share. Two ranks are tested with the training loop; here are the rules for one."""

from __future__ import annotations

import numpy as np
import pytest

from tailwise.labels.bins import LabelBins
from tailwise.networks import ranks
from tailwise.networks.ranks import shared_bins


def test_many_labels_choose_bins_by_their_order_statistics(monkeypatch: pytest.MonkeyPatch) -> None:
    labels = np.random.default_rng(0).gamma(2.0, size=5_000)
    exact = shared_bins(labels)
    expected = LabelBins.from_labels(labels)
    np.testing.assert_array_equal(exact.edges, expected.edges)
    monkeypatch.setattr(ranks, "MOST_LABELS", 500)
    sampled = shared_bins(labels)
    assert sampled.counts.sum() == 5_000
    np.testing.assert_allclose(sampled.edges[[0, -1]], expected.edges[[0, -1]])
    again = LabelBins.from_labels(labels, edges=sampled.edges)
    np.testing.assert_array_equal(sampled.counts, again.counts)
