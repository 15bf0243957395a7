"""Losses that are compiled, or whose activations are computed again in the backward pass."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils.checkpoint import checkpoint

from tailwise.networks.network import Network
from tests.training.small_models import X, Y, vir


def steps(model: Network, loss: Any, count: int) -> None:
    for step in range(count):
        rows = torch.arange(step, step + 16) % len(Y)
        loss(X[rows], Y[rows])[0].backward()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::UserWarning")  # of the compiler
def test_a_compiled_loss_is_not_compiled_for_every_step() -> None:
    model, graphs = vir().train(), list[int]()

    def backend(module: Any, _: Any) -> Any:
        graphs.append(1)
        return module.forward

    compiled = torch.compile(model.loss, backend=backend)
    steps(model, compiled, 9)  # an epoch of 90 rows and some of the next one
    few = len(graphs)
    steps(model, compiled, 20)  # torch compiles a function anew at most 8 times
    assert 0 < len(graphs) == few


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpointing_does_not_count_rows_twice(*, reentrant: bool) -> None:
    model, twin = vir().train(), vir().train()

    def loss(x: torch.Tensor, y: torch.Tensor) -> Any:
        return checkpoint(model.loss, x.requires_grad_(), y, use_reentrant=reentrant)

    steps(model, loss, 2)
    steps(twin, twin.loss, 2)
    assert model.get_extra_state().tolist() == twin.get_extra_state().tolist()
    for tail, other in zip(model.tails, twin.tails, strict=True):
        torch.testing.assert_close(tail.smoother.sums[:, 0], other.smoother.sums[:, 0])
        assert tail.smoother.sums[:, 0].sum() == 32
