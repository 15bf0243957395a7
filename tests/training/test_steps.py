"""One step of training: as it is, as a CUDA graph, compiled, and with activations computed again."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils.checkpoint import checkpoint

from tailwise.networks.network import Network
from tailwise.training.batches import Batch
from tailwise.training.loop import fit
from tailwise.training.steps import GraphedStep, Optimizer, TrainingStep
from tests.training.small_models import VALID, X, Y, differ, figures, settings, vir, weights

CPU, CUDA = torch.device("cpu"), torch.device("cuda")


def step_of(
    device: torch.device = CPU, shards: int = 1, kind: type[TrainingStep] = TrainingStep, **options: Any
) -> TrainingStep:
    model, config = vir(dropout=0.0).to(device).train(), settings(**options)
    model.begin_epoch(0.0)
    return kind(model, Optimizer(model, config, device), config, device, shards)


def batch(start: int = 0, size: int = 30, device: torch.device = CPU) -> Batch:
    return Batch(X[start : start + size].to(device), Y[start : start + size].to(device))


def alone(rows: Batch) -> list[tuple[int, Batch]]:
    """A batch as its only shard."""
    return [(0, rows)]


def shared_step() -> TrainingStep:
    step = step_of(shards=3)
    step.model.backbone.requires_grad_(False)
    return step


def test_a_shared_step_is_that_of_all_rows_on_all_ranks(request: pytest.FixtureRequest) -> None:
    """A weight without a gradient stays without one; without rows there is no step."""
    single, grouped = shared_step(), shared_step()
    shards = [(0, batch(size=7)), (2, batch(7, 20))]
    steps_of = []
    for step in (single, grouped):
        if step is grouped:
            request.getfixturevalue("group_of_one")
        for taken in (shards, [], shards[:1]):
            assert step(taken, torch.manual_seed) == bool(taken)
        assert all(p.grad is None for p in step.model.backbone.parameters())
        assert not step.failed
        steps_of.append(weights(step.model))
    for name, value in steps_of[0].items():
        torch.testing.assert_close(steps_of[1][name], value, msg=name)
    assert differ(steps_of[0], weights(shared_step().model))


# -- graphs: the bookkeeping with a stand-in for CUDA, the numbers on a GPU ------------------------


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore:The .grad attribute")  # torch's compiler triggers it and hides it
@pytest.mark.filterwarnings("ignore:TensorFloat32 tensor cores")  # advice of torch's compiler
@pytest.mark.parametrize("optimizer", ["adamw", "sgd"])
def test_replayed_steps_train_as_steps_do(optimizer: str) -> None:
    changes = {
        "accelerator": "cuda",
        "optimizer": optimizer,
        "epochs": 6,
        "clip_norm": None,
        "schedule": "cosine",
    }
    plain, fast = (vir(dropout=0.0, **{"kl.weight": 0.01}) for _ in range(2))
    usual = fit(plain, (X, Y), VALID, settings(**changes))
    quick = fit(fast, (X, Y), VALID, settings(**changes, graphs=True))
    assert len(usual.history) == len(quick.history)
    for a, b in zip(figures(usual)["history"], figures(quick)["history"], strict=True):
        assert a == pytest.approx(b, rel=0.05)


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore:Synchronization debug mode is a prototype")
@pytest.mark.parametrize("graphs", [False, True])
def test_nothing_in_a_step_waits_for_a_gpu(graphs: bool) -> None:
    kind = GraphedStep if graphs else TrainingStep
    step = step_of(CUDA, kind=kind, graphs=graphs, precision="bf16")
    there = [alone(batch(start, device=CUDA)) for start in (0, 30, 60)]
    for _ in range(3):
        for one in there:
            step(one)
    try:
        torch.cuda.set_sync_debug_mode("error")
        for one in there:
            step(one)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert step.sums["loss"].isfinite() and not step.failed


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
