"""The training configuration: checks, learning rates, optimisers, devices."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch.optim.optimizer import register_optimizer_step_pre_hook

from tailwise.training.config import TrainConfig, learning_rate
from tailwise.training.loop import fit
from tests.training.small_models import (
    ROWS,
    X,
    Y,
    point,
    settings,
    vir,
)


@pytest.mark.parametrize(
    ("wrong", "right"), [("balancedmae", "balanced_mae"), ("few/nnl", "nll"), ("fwe/mae", "few")]
)
def test_an_unknown_monitor_names_the_nearest(wrong: str, right: str) -> None:
    with pytest.raises(ValueError, match=f"unknown .*did you mean '{right}'"):
        TrainConfig(monitor=wrong)


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
        (
            {"schedule": "cosine"},
            [2, 1 + math.cos(math.pi / 6), 1.5, 1, 0.5, 1 + math.cos(math.pi * 5 / 6)],
        ),
        ({"schedule": "step", "milestones": (1, 2.5), "decay": 0.5}, [2, 2, 1, 1, 1, 0.5]),
        ({"warmup": 2.0}, [0, 0.5, 1, 1.5, 2, 2]),
        ({"warmup": 1.0, "schedule": "step", "milestones": (2,)}, [0, 1, 2, 2, 0.2, 0.2]),
    ],
)  # epochs 0, 1/2, 1, ... of three
def test_schedules_by_hand_and_in_the_optimizer(options: dict[str, Any], expected: list[float]) -> None:
    config = settings(lr=2.0, batch_size=45, optimizer="sgd", **options)
    assert [learning_rate(e / 2, config) for e in range(6)] == pytest.approx(expected, abs=1e-8)
    used: list[float] = []
    handle = register_optimizer_step_pre_hook(lambda o, *_: used.append(o.param_groups[0]["lr"]))
    try:
        fit(point(), (X, Y), None, config)
    finally:
        handle.remove()
    assert used == pytest.approx(expected, abs=1e-8)


@pytest.mark.parametrize("optimizer", ["adam", "adamw", "sgd"])
def test_a_step_of_each_optimizer_is_torch_s_own(optimizer: str) -> None:
    """One step on the whole table, against the textbook."""
    model, twin = point(), point()
    fit(
        model,
        (X, Y),
        None,
        settings(epochs=1, batch_size=ROWS, optimizer=optimizer, clip_norm=None),
    )
    twin.loss(X, Y)[0].backward()
    for (name, after), before in zip(model.named_parameters(), twin.parameters(), strict=True):
        assert before.grad is not None
        if optimizer == "sgd":
            expected = before - 0.01 * (before.grad + 1e-4 * before)
            torch.testing.assert_close(after, expected)
        else:
            moved = (after - before).abs()  # Adam's first step has the size of the learning rate
            sure = before.grad.abs() > 1e-3
            torch.testing.assert_close(
                moved[sure], torch.full_like(moved[sure], 0.01), rtol=1e-2, atol=1e-5, msg=name
            )


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("cuda", "finds no 'cuda' on this machine: use 'auto'"),
        ("cdua", "unknown device 'cdua'; did you mean 'cuda'"),
    ],
)
def test_a_device_that_is_not_there_is_named(
    name: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = vir()
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ValueError, match=message):
        fit(model, (X, Y), None, settings(accelerator=name))
