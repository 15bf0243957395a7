"""Single rows of the table, and the losses of Focal-R (which tests/parity compares, too) and beta-NLL."""

from __future__ import annotations

import pytest
import torch
from scipy import stats
from torch import Tensor

from tailwise.distributions.members import Normal
from tailwise.labels.bins import LabelBins
from tailwise.methods import build_model
from tailwise.networks.backbones import MLP
from tailwise.training.loop import TrainConfig, fit
from tests.methods.trained_methods import skewed_bins, table
from tests.networks.small_models import batch, loss_of


def test_rrt_freezes_the_encoder_and_restarts_the_head() -> None:
    x, y = table()
    model = build_model("rrt", MLP(4, (16, 8)), 8, LabelBins.from_labels(y))
    snapshots: list[dict[str, Tensor]] = []
    begin = model.begin_epoch

    def watched(progress: float) -> bool:
        changed = begin(progress)
        snapshots.append({k: v.clone() for k, v in model.state_dict().items()})
        return changed

    model.begin_epoch = watched  # type: ignore[method-assign]
    result = fit(model, (x, y), (x, y), TrainConfig(epochs=6, accelerator="cpu"))
    encoder, head = "backbones.0.layers.0.weight", "tails.0.head.linear.weight"
    assert not torch.equal(snapshots[1][encoder], snapshots[2][encoder])
    for later in snapshots[4:]:
        assert torch.equal(later[encoder], snapshots[3][encoder])
    assert not torch.equal(snapshots[5][head], snapshots[4][head])
    assert result.best_epoch >= 4, "the weights kept must be those of the second stage"


def test_beta_nll_by_hand() -> None:
    variance = torch.tensor([4.0], requires_grad=True)
    loss = loss_of("beta-nll", skewed_bins())(
        batch(Normal(torch.tensor([1.0]), variance), torch.tensor([3.0]))
    )
    assert loss.item() == pytest.approx(2 * -stats.norm.logpdf(3, 1, 2))
    loss.backward()
    # d/dv of (log v + 4/v)/2 at 4, times the fixed factor 2.
    assert variance.grad.item() == pytest.approx(2 * 0.5 * (1 / 4 - 4 / 16))


@pytest.mark.parametrize("g", [0.3, 1.0, 3.0])
def test_focal_r_of_an_exact_prediction_has_a_gradient(g: float) -> None:
    mean = torch.tensor([1.0, 2.0], requires_grad=True)
    loss = loss_of("focal-r", skewed_bins(), g=g)(batch(Normal(mean, 1.0), torch.tensor([1.0, 3.0])))
    loss.sum().backward()
    assert loss[0] == 0 and mean.grad is not None
    assert mean.grad[0] == 0 and mean.grad[1] < 0
