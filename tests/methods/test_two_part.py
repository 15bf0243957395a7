"""The two-part model: a value that many labels have, and the others."""

from __future__ import annotations

import numpy as np
import torch

from tailwise.distributions.members import NIG, Mixture
from tailwise.labels.bins import LabelBins
from tailwise.methods.two_part import WIDTH, TwoPartHead
from tests.estimator.small_tables import Array, quick


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
