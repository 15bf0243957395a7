"""VIR as a class of its own: presets train in a plain loop, and bins are checked."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import tailwise
from tailwise.labels.bins import LabelBins
from tailwise.networks.vir import PRESETS, VIR
from tests.networks.small_models import data, npy, tail


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


def test_presets_have_the_values_of_the_specification() -> None:
    paper, reference = (PRESETS[name].as_options() for name in ("paper", "reference"))
    for preset in (paper, reference):
        assert preset["weights.on"] == "count" and preset["weights.power"] == 0.5
        assert (preset["latent"], preset["head"], preset["losses"][0]) == ("gaussian", "pseudo-count", "nll")
        assert preset["head.sharpness"] == 0.1 and preset["reconstruction.mean"]
        window = [preset[f"smoothing.{name}"] for name in ("kernel", "bandwidth", "radius")]
        assert window == ["gaussian", 2.0, 2]
        assert preset["smoothing.momentum"] == 0.9 and preset["smoothing.clip"] == (0.1, 10.0)
    assert (paper["weights.form"], reference["weights.form"]) == ("paper", "reference")
    assert (paper["smoothing.form"], paper["smoothing.boundary"]) == ("paper", "truncate")
    assert (reference["smoothing.form"], reference["smoothing.boundary"]) == ("reference", "reflect")
    assert (paper["evidence.weight"], paper["evidence.form"]) == (0.1, "paper")
    assert (reference["evidence.weight"], reference["evidence.form"]) == (0.01, "reference")
    assert paper["kl.weight"] == 1.0 and paper["kl.mean"] and "kl" not in reference["losses"]
    # VIR:recon is half the squared error
    assert (paper["reconstruction.weight"], reference["reconstruction.weight"] / 2) == (1.0, 0.7)
    assert (paper["inference"], paper["smoothing.at_inference"]) == ("self", True)  # "stored statistics"
    assert (reference["inference"], reference["smoothing.at_inference"]) == ("plain", False)
    assert paper["head.prior"][2] >= 1.5 and reference["head.prior"] == (0.0, 0.0, 0.3, 0.0)


def test_the_reference_head_gives_gamma_psi_and_beta_phi() -> None:
    _, y = data()
    own = tail(VIR(nn.Linear(3, 5), 5, LabelBins.from_labels(y), preset="reference").double())
    z = torch.randn(9, 5, dtype=torch.float64)
    belief = own.head(z, torch.full((9,), 2.0))
    _, psi, raw_phi = own.head.linear(z).unbind(-1)
    torch.testing.assert_close(belief.gamma, psi)
    torch.testing.assert_close(belief.beta, torch.log1p(torch.exp(0.1 * raw_phi)) / 0.1, rtol=1e-5, atol=1e-5)
    window, counts = np.array([0.1863, 0.2052, 0.2170, 0.2052, 0.1863]), own.bins.counts
    weights = np.array(
        [
            1 / sum(window[d + 2] * math.sqrt(counts[b + d]) for d in range(-2, 3) if 0 <= b + d < 12)
            for b in range(12)
        ]
    )
    weights *= counts.sum() / (counts @ weights)
    np.testing.assert_allclose(npy(own.w), weights, rtol=1e-3)
