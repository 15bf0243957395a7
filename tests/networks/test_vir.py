"""VIR as a class of its own: bins are checked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import tailwise
from tailwise.labels.bins import LabelBins
from tailwise.networks.vir import VIR
from tests.networks.small_models import data


@pytest.mark.parametrize("several", [list, tuple])
def test_vir_has_one_target_and_says_what_takes_more(several: Callable[..., Any]) -> None:
    _, y = data()
    bins = LabelBins.from_labels(y)
    with pytest.raises(TypeError, match=r'one target.* a list of them to tailwise.build_model\("vir", ...\)'):
        VIR(nn.Linear(3, 5), 5, several([bins, bins]))
    model = tailwise.build_model("vir", nn.Linear(3, 5), 5, [bins, bins])
    assert model(torch.zeros(4, 3)).shape == (4, 2), "what the message tells to do works"


def test_labels_in_place_of_bins_are_told_how_to_become_some() -> None:
    _, y = data()
    with pytest.raises(TypeError, match=r"not Tensor: make them with LabelBins.from_labels\(y\)"):
        VIR(nn.Linear(3, 5), 5, y)  # type: ignore[arg-type]
