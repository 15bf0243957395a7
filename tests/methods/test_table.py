"""Methods of the table: what sets single rows apart."""

from __future__ import annotations

import torch
from torch import Tensor

from tailwise.labels.bins import LabelBins
from tailwise.methods import build_model
from tailwise.networks.backbones import MLP
from tailwise.training.loop import TrainConfig, fit
from tests.methods.trained_methods import table


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
