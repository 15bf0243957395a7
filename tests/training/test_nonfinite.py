"""A loss that is not finite: which rows, which step, and the weights from before it."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tailwise.networks.network import Network
from tailwise.training.loop import NonFiniteLossError, TensorData, fit
from tests.training.small_models import INPUTS, ROWS, X, Y, assert_same, point, settings, vir, weights


def clean_and_bad(kind: str, row: int) -> tuple[Any, Tensor, Tensor | None]:
    """The table with one value that is not finite."""
    x, y, weight = X.clone(), Y.clone(), torch.ones(ROWS)
    if kind == "labels":
        y[row] = math.nan
    elif kind == "inputs":
        x[row, 3] = math.inf
    else:
        weight[row] = math.nan
    return x, y, weight


@pytest.mark.parametrize("kind", ["labels", "inputs", "sample_weight"])
def test_a_bad_value_is_named(kind: str) -> None:
    data = TensorData(*clean_and_bad(kind, row=17))
    with pytest.raises(NonFiniteLossError, match=rf"training rows 17: their {kind} (are|is) not") as error:
        fit(vir(), data, None, settings())
    assert error.value.rows == [17]
    assert error.value.epoch == 1
    assert f"epoch 1, step {error.value.step}" in str(error.value)


def test_a_bad_offset_is_named() -> None:
    offset = torch.where(torch.arange(ROWS) == 17, math.inf, Y)
    with pytest.raises(NonFiniteLossError, match="training rows 17: their offset, the base prediction"):
        fit(vir(offset=True), TensorData(X, Y, offset=offset), None, settings())


@pytest.mark.parametrize("build", [vir, point])
def test_the_weights_are_those_before_the_bad_step(build: Callable[[], Network]) -> None:
    x, y, _ = clean_and_bad("inputs", row=70)
    batches = [(x[start : start + 30], y[start : start + 30]) for start in (0, 30, 60)]
    model, good = build(), build()
    start = weights(model)
    with pytest.raises(NonFiniteLossError, match="rows of the batch 10: ") as error:
        fit(model, batches, None, settings(epochs=1))
    assert (error.value.epoch, error.value.step, error.value.rows) == (1, 3, [10])
    fit(good, batches[:2], None, settings(epochs=1))
    trained = {name for name, _ in model.named_parameters()}
    now, expected = weights(model), weights(good)
    assert_same({k: now[k] for k in trained}, {k: expected[k] for k in trained})
    assert_same({k: now[k] for k in now.keys() - trained}, {k: start[k] for k in now.keys() - trained})


def test_a_learning_rate_that_explodes_is_named_with_its_remedy() -> None:
    model = point()
    config = settings(epochs=9, lr=1e30, optimizer="sgd", clip_norm=None)
    with pytest.raises(NonFiniteLossError, match="inputs and labels are finite; lower the learning rate"):
        fit(model, (X, Y), None, config)
    assert all(p.isfinite().all() for p in model.parameters())


class Kink(nn.Module):
    """Finite itself, with a gradient that is not: the square root at zero."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(INPUTS, 8))

    def forward(self, x: Tensor) -> Tensor:
        return (x @ self.weight * 0).sqrt()


def test_a_gradient_that_is_not_finite_is_caught_too() -> None:
    model = point(Kink)
    with pytest.raises(NonFiniteLossError, match="each loss is finite but a gradient is not") as error:
        fit(model, (X, Y), None, settings())
    assert error.value.rows == []
    assert torch.equal(model.backbone.weight, torch.ones(INPUTS, 8))


@pytest.mark.gpu
@pytest.mark.parametrize("optimizer", ["adam", "adamw", "sgd"])
def test_a_gpu_takes_no_step_from_the_bad_one_on(optimizer: str) -> None:
    labels = Y.clone()
    labels[12] = math.nan
    starts = range(0, ROWS, 5)
    batches = [(X[start : start + 5], labels[start : start + 5]) for start in starts]
    model, good = vir(), vir()
    changes = {"accelerator": "cuda", "optimizer": optimizer}
    with pytest.raises(NonFiniteLossError, match=r"epoch 1, step 3 .*rows of the batch 2: their"):
        fit(model, batches, None, settings(**changes))
    fit(good, batches[:2], None, settings(epochs=1, **changes))
    for (name, a), b in zip(model.named_parameters(), good.parameters(), strict=True):
        torch.testing.assert_close(a, b, msg=name)
