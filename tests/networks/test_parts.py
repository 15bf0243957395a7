"""Methods as rows of parts: presets, options and their errors."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from tailwise.core.distributions import NIG, Normal
from tailwise.core.labels import LabelBins
from tailwise.methods import get_method
from tailwise.networks.parts import PRESETS, Method, WeightConfig
from tailwise.networks.smoothing import SmoothingConfig
from tailwise.networks.vir import VIR
from tests.networks.small_models import build, data, npy


def test_presets_have_the_values_of_the_specification() -> None:
    paper, reference = PRESETS["paper"], PRESETS["reference"]
    for preset in (paper, reference):
        assert preset.reweight == "pseudo-count" and preset.weights.power == 0.5
        assert preset.latent == "gaussian" and preset.head == "pseudo-count" and preset.objective == "nll"
        assert preset.head_options["sharpness"] == 0.1
        assert preset.smoothing is not None
        smoothing = preset.smoothing
        assert (smoothing.kernel, smoothing.bandwidth, smoothing.radius) == ("gaussian", 2.0, 2)
        assert smoothing.momentum == 0.9 and smoothing.clip == (0.1, 10.0) and not smoothing.cov_variance
    assert paper.weights.form == "paper" and reference.weights.form == "reference"
    assert paper.smoothing is not None and reference.smoothing is not None
    assert (paper.smoothing.form, paper.smoothing.boundary) == ("paper", "truncate")
    assert (reference.smoothing.form, reference.smoothing.boundary) == ("reference", "reflect")
    assert (paper.regularizer, paper.regularizer_form) == (0.1, "paper")
    assert (reference.regularizer, reference.regularizer_form) == (0.01, "reference")
    assert paper.kl == 1.0 and reference.kl == 0.0
    assert paper.reconstruct and reference.reconstruct and paper.elbo == reference.elbo == "mean"
    assert (paper.recon, reference.recon / 2) == (1.0, 0.7)  # VIR:recon is half the squared error
    assert (paper.inference, paper.recolor) == ("self", True)  # "uses the stored statistics"
    assert (reference.inference, reference.recolor) == ("plain", False)
    assert paper.head_options["prior"][2] >= 1.5
    assert reference.head_options["prior"] == (0.0, 0.0, 0.3, 0.0)
    assert (reference.inference, reference.recolor, reference.latent_samples) == ("plain", False, 0)


def test_the_reference_head_gives_gamma_psi_and_beta_phi() -> None:
    _, y = data()
    model = VIR(nn.Linear(3, 5), 5, LabelBins.from_labels(y), preset="reference").double()
    z = torch.randn(9, 5, dtype=torch.float64)
    belief = model.head(z, torch.full((9,), 2.0))
    _, psi, raw_phi = model.head.linear(z).unbind(-1)
    torch.testing.assert_close(belief.gamma, psi)
    torch.testing.assert_close(belief.beta, torch.log1p(torch.exp(0.1 * raw_phi)) / 0.1, rtol=1e-5, atol=1e-5)
    want = dict.fromkeys(range(12), 0.0)
    window = np.array([0.1863, 0.2052, 0.2170, 0.2052, 0.1863])
    counts = model.bins.counts
    for b in want:
        want[b] = 1 / sum(window[d + 2] * math.sqrt(counts[b + d]) for d in range(-2, 3) if 0 <= b + d < 12)
    weights = np.array(list(want.values()))
    weights *= counts.sum() / (counts @ weights)
    np.testing.assert_allclose(npy(model.w), weights, rtol=1e-3)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"preset": "papers"}, r"'papers'; did you mean 'paper'\?"),
        ({"regulariser": 0.1}, r"'regulariser'; did you mean 'regularizer'\?"),
        ({"reweight": "pseudo_count"}, r"'pseudo_count'; did you mean 'pseudo-count'\?"),
        ({"inference": "marginals"}, r"'marginals'; did you mean 'marginal'\?"),
        ({"latent": "gauss"}, r"'gauss'; did you mean 'gaussian'\?"),
        ({"objective": "square"}, r"'square'; did you mean 'squared'\?"),
        ({"regularizer_form": "referance"}, r"did you mean 'reference'\?"),
        ({"smoothing": {"momentun": 0.5}}, r"'momentun' of smoothing; did you mean 'momentum'\?"),
        ({"weights": {"pwer": 1.0}}, r"'pwer' of weights; did you mean 'power'\?"),
        ({"head_options": {"priors": None}}, r"'priors'; did you mean 'prior'\?"),
        ({"head": "pseudocount"}, r"did you mean 'pseudo-count'\?"),
        ({"kl": -1.0}, "kl must not be negative"),
        ({"recon": math.nan}, "recon must not be negative, got nan"),
        (
            {"perturbation": "dropout", "perturbation_scale": 1.0},
            "must be below 1, got 1.0",
        ),
        ({"latent_dim": 0}, "latent_dim must be at least 1, or None"),
        ({"retrain_from": 1.0}, r"retrain_from is a share of the epochs and must lie in \[0, 1\), got 1.0"),
        ({"retrain_from": math.nan}, "retrain_from is a share of the epochs"),
        ({"weights": None}, "weights takes a mapping of its options, not None"),
        ({"smoothing": "gaussian"}, "smoothing takes a mapping of its options, not 'gaussian'"),
        ({"members": 5}, r'VIR is one network: use tailwise.build_model\("vir", ...\)'),
    ],
)
def test_wrong_options_are_named_with_what_is_right(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        VIR(nn.Linear(3, 5), 5, LabelBins.from_labels([1, 2, 3]), **options)


def test_options_override_a_preset_and_leave_the_rest() -> None:
    method = PRESETS["paper"].with_options(
        weights={"power": 1.0}, smoothing={"radius": 4}, head_options={"min_count": 3.0}, kl=0.5
    )
    assert method.weights == WeightConfig(power=1.0)
    assert method.smoothing == SmoothingConfig(radius=4)
    assert method.head_options == {**PRESETS["paper"].head_options, "min_count": 3.0}
    assert method.kl == 0.5 and PRESETS["paper"].kl == 1.0
    assert PRESETS["paper"].with_options(smoothing=None).smoothing is None
    assert Method().with_options(smoothing={"radius": 1}).smoothing == SmoothingConfig(radius=1)
    _, y = data()
    with pytest.raises(ValueError, match=r"'selfs'; did you mean 'self'\?"):
        build(y)(torch.zeros(1, 3).double(), "selfs")


@pytest.mark.parametrize("head", ["evidential", "gaussian"])
def test_a_preset_takes_another_head(head: str) -> None:
    """Ablations swap the head alone; the options of the old head must not stand in the way."""
    x, y = data()
    model = VIR(nn.Linear(3, 5), 5, LabelBins.from_labels(y), head=head).double()
    model.loss(x, y)[0].backward()
    assert isinstance(model.eval()(x), Normal if head == "gaussian" else NIG)


def test_parts_of_options_are_named_with_a_dot_or_nested() -> None:
    nested = {"weights": {"power": 1.0, "clip": (0.5, 5.0)}, "head_options": {"sharpness": 2.0}}
    dotted = {"weights.power": 1.0, "weights.clip": (0.5, 5.0), "head_options.sharpness": 2.0}
    parts = get_method("vir").parts
    assert parts.with_options(**dotted) == parts.with_options(**nested) != parts
    for wrong, message in (
        ({"weights": {}, "weights.power": 1.0}, "give weights or weights.power, not both"),
        ({"weights.powr": 1.0}, "unknown option 'powr' of weights"),
        ({"wieghts.power": 1.0}, "unknown option 'wieghts'; did you mean 'weights'"),
    ):
        with pytest.raises(ValueError, match=message):
            parts.with_options(**wrong)
