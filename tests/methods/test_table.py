"""Single rows of the table, the losses of Focal-R and beta-NLL, and the two-part model."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor

from tailwise.distributions.members import NIG, Mixture, Normal
from tailwise.labels.bins import LabelBins
from tailwise.methods import build_model
from tailwise.methods.two_part import WIDTH, TwoPartHead
from tailwise.networks.backbones import MLP
from tailwise.training.loop import TrainConfig, fit
from tests.estimator.small_tables import Array, quick
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


def rain(rows: int) -> tuple[Array, Array]:
    """Dry where the first column is negative; otherwise an amount by the second."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(rows, 2))
    return x, np.where(x[:, 0] < 0, 0.0, 10 + 2 * x[:, 1] + 0.3 * rng.normal(size=rows))


def head(logit: float) -> TwoPartHead:
    bins = LabelBins.from_labels(np.r_[np.zeros(50), np.full(50, 4.0)])
    made = TwoPartHead(1, bins)
    with torch.no_grad():
        made.linear.weight.zero_()
        made.linear.bias.copy_(torch.tensor([logit, 1.0, 0.0, 0.0, 0.0]))
    return made


def test_mean_quantiles_and_nll_by_hand() -> None:
    prediction = head(0.0)(torch.zeros(1, 1)).map(lambda p: p.detach().double())
    assert isinstance(prediction, Mixture) and isinstance(prediction.components, NIG)
    # Labels 0 and 4 have the mean 2 and the standard deviation 2, so 0 is at -1.
    torch.testing.assert_close(prediction.mean, torch.zeros(1, dtype=torch.float64), atol=1e-6, rtol=0)
    for q in (0.1, 0.25, 0.4):
        assert abs(float(prediction.quantile(q)) + 1) < 10 * WIDTH
    others = prediction.components[1]
    below = float(others.cdf(-1.0))
    torch.testing.assert_close(
        prediction.cdf(-1 + 10 * WIDTH)[0], torch.tensor(0.5 + below / 2).double(), atol=1e-3, rtol=0
    )
    width = WIDTH * np.sqrt(2 * np.pi)
    assert abs(float(prediction.nll(-1.0)) - np.log(2 * width)) < 0.01
    assert abs(float(prediction.nll(3.0) - others.nll(3.0)) - np.log(2)) < 1e-6


def test_a_base_moves_the_others_only() -> None:
    made = head(0.0)
    moved = made.moved(made(torch.zeros(1, 1)), torch.tensor([5.0]))
    assert isinstance(moved, Mixture)
    torch.testing.assert_close(moved.components.mean[:, 0], torch.tensor([-1.0, 6.0]))


def test_quantiles_and_ends_are_moved_to_the_value_exactly() -> None:
    x, y = rain(400)
    model = quick(method="two-part", epochs=20, batch_size=64, lr=1e-2, emphasis=0.0).fit(x, y)
    dry, wet = np.c_[np.full(50, -3.0), x[:50, 1]], np.c_[np.full(50, 3.0), x[:50, 1]]
    for new, zero in ((dry, True), (wet, False)):
        assert ((model.predict_quantiles(new, 0.3) == 0).mean() > 0.5) == zero
        assert ((model.predict_interval(new)[:, 0] == 0).mean() > 0.5) == zero
