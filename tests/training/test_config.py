"""The training configuration: checks, learning rates, optimisers, devices."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import pytest
import torch
from torch import nn

from tailwise.training.config import TrainConfig, learning_rate
from tailwise.training.loop import fit
from tailwise.training.steps import Optimizer
from tests.training.small_models import X, Y, point, settings


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("optimizer", "adamm", "unknown optimizer 'adamm'; did you mean 'adam"),
        ("schedule", "cosin", "unknown schedule 'cosin'; did you mean 'cosine'"),
        ("precision", "bf-16", "unknown precision 'bf-16'; did you mean 'bf16'"),
        *((name, 0, f"{name} must be a") for name in ("epochs", "batch_size", "patience", "shards")),
        *((name, 0, f"{name} must be a number above 0") for name in ("lr", "clip_norm")),
        ("epochs", 2.5, "epochs must be a whole number, got 2.5"),
        ("lr", math.nan, "lr must be a number, got nan"),
        *((n, -1, f"{n} must be a number of at least 0") for n in ("weight_decay", "warmup", "decay")),
        ("seed", -1, "seed must be a whole number of at least 0"),
    ],
)
def test_wrong_settings_are_errors(field: str, value: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        TrainConfig(**{field: value})
    with pytest.raises(ValueError, match="a CUDA graph holds the step of one shard: set shards=1"):
        TrainConfig(graphs=True, shards=2)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, [2, 2, 2, 2, 2, 2]),
        ({"schedule": "cosine"}, [2, 1 + math.cos(math.pi / 6), 1.5, 1, 0.5, 1 + math.cos(math.pi * 5 / 6)]),
        ({"schedule": "step", "milestones": (1, 2.5), "decay": 0.5}, [2, 2, 1, 1, 1, 0.5]),
        ({"warmup": 2.0}, [0, 0.5, 1, 1.5, 2, 2]),
        ({"warmup": 1.0, "schedule": "step", "milestones": (2,)}, [0, 1, 2, 2, 0.2, 0.2]),
    ],
)  # epochs 0, 1/2, 1, ... of three
def test_schedules_by_hand_and_in_training(
    options: dict[str, Any], expected: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    config = settings(lr=2.0, batch_size=45, optimizer="sgd", **options)
    assert [learning_rate(e / 2, config) for e in range(6)] == pytest.approx(expected, abs=1e-8)
    used: list[float] = []
    monkeypatch.setattr(Optimizer, "set_lr", lambda self, lr: used.append(lr))
    fit(point(), (X, Y), None, config)
    assert used == pytest.approx(expected, abs=1e-8)


OPTIMIZERS = {
    "adam": torch.optim.Adam,
    "adamw": torch.optim.AdamW,
    "sgd": partial(torch.optim.SGD, momentum=0.9),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_steps_of_each_optimizer_are_torch_s_own(name: str) -> None:
    """Also if a parameter gets its first gradient later, the rate changes, and training is resumed."""
    model, twin = nn.Linear(3, 2).double(), nn.Linear(3, 2).double()
    twin.load_state_dict(model.state_dict())
    optimizer = Optimizer(model, settings(optimizer=name, lr=0.1, weight_decay=0.05), torch.device("cpu"))
    theirs = OPTIMIZERS[name](twin.parameters(), lr=0.1, weight_decay=0.05)
    rows = torch.randn(5, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    for step in range(6):
        for module in (model, twin):
            module.bias.requires_grad_(step > 1)
            (module(rows) ** 2).mean().backward()
        lr = 0.1 / (1 + step)
        optimizer.set_lr(lr)
        theirs.param_groups[0]["lr"] = lr
        optimizer.step()
        theirs.step()
        optimizer.zero_grad()
        theirs.zero_grad()
        if step == 3:
            resumed = Optimizer(model, settings(optimizer=name, weight_decay=0.05), torch.device("cpu"))
            resumed.load_state(optimizer.state)
            optimizer = resumed
    for mine, its in zip(model.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(mine, its, rtol=1e-9, atol=1e-12)
