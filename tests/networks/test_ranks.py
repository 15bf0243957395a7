"""What ranks share. Two ranks are tested with the training loop; here are the rules for one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from tailwise.distributions.members import Normal
from tailwise.labels.bins import LabelBins
from tailwise.networks import ranks
from tailwise.networks.ranks import (
    all_predictions,
    average_batch_statistics,
    from_first,
    gathered,
    rank_and_ranks,
    share_weights,
    shared_bins,
    sum_over_ranks,
)


@pytest.mark.parametrize("group", [False, True])
def test_one_rank_shares_with_nobody(group: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if group:
        monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
        meet = f"file://{tmp_path}/meet"
        torch.distributed.init_process_group("gloo", init_method=meet, rank=0, world_size=1)
    try:
        norm, value = nn.BatchNorm1d(2), torch.ones(2)
        share_weights(norm)
        average_batch_statistics(norm)
        assert rank_and_ranks() == (0, 1)
        assert torch.equal(sum_over_ranks(value), value)
        assert (gathered("a"), from_first("b")) == (["a"], "b")
        mean, y = all_predictions(Normal(value, 1.0), value)
        assert torch.equal(mean.mean, y)
    finally:
        if group:
            torch.distributed.destroy_process_group()


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
