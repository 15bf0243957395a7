"""One step of training: run as it is, or recorded once as a CUDA graph and replayed."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor

from tailwise.learning.batches import Batch, apply_to, tensors_of
from tailwise.learning.config import TrainConfig
from tailwise.networks.trainable import Trainable

Losses = tuple[Tensor, dict[str, Tensor]]
WARM = 3
"""Steps of a batch shape that run as they are before one is recorded: libraries choose kernels in them."""
MOST_GRAPHS = 4
"""Number of batch shapes that are recorded; each holds the memory of one step."""


@contextmanager
def fast_kernels(config: TrainConfig, device: torch.device) -> Iterator[None]:
    """On a GPU, use TF32 for matrices in float32 with bf16, and the fastest kernels for fixed batch shapes.

    TF32 keeps more digits than the bf16 of the layers around it.
    """
    if device.type != "cuda":
        yield
        return
    precision, benchmark = torch.get_float32_matmul_precision(), torch.backends.cudnn.benchmark
    if config.precision == "bf16":
        torch.set_float32_matmul_precision("high")
    torch.backends.cudnn.benchmark = benchmark or config.graphs
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(precision)
        torch.backends.cudnn.benchmark = benchmark


def autocast(config: TrainConfig, device: torch.device) -> torch.autocast:
    """Return the context of the configured precision."""
    # Fabric's plugin for bf16 would also round the labels, and applies to `forward` only.
    return torch.autocast(device.type, torch.bfloat16, enabled=config.precision == "bf16")


class TrainingStep:
    """Loss, gradients, clipping and the optimiser's step, without waiting for a GPU.

    `failed` is set once a loss or gradient was not finite. From then on the weights do not change.
    """

    def __init__(
        self,
        model: Trainable,
        optimizer: torch.optim.Optimizer,
        config: TrainConfig,
        device: torch.device,
        *,
        loss: Callable[..., Losses] | None = None,
        backward: Callable[[Tensor], Any] = Tensor.backward,
        take: Callable[[], Any] | None = None,
    ) -> None:
        self.model, self.optimizer, self.config, self.device = model, optimizer, config, device
        self.loss, self.backward, self.take = loss or model.loss, backward, take or optimizer.step
        self.failed = torch.zeros((), dtype=torch.bool, device=device)

    def __call__(self, batch: Batch) -> Losses:
        """Train on a batch and return its loss and the parts of it, detached."""
        with autocast(self.config, self.device):
            loss, parts = self.loss(batch.x, batch.y, batch.sample_weight, batch.offset)
        self.optimizer.zero_grad()
        self.backward(loss)
        grads = [p for p in self.model.parameters() if p.grad is not None]
        norm = torch.nn.utils.clip_grad_norm_(grads, self.config.clip_norm or math.inf, foreach=True)
        self.failed.logical_or_(~(torch.isfinite(loss) & torch.isfinite(norm)))
        if self.device.type == "cuda":
            # Fused optimisers skip the step on the device if this flag is set, as for AMP.
            cast("Any", self.optimizer).found_inf = self.failed.float()
            cast("Any", self.optimizer).grad_scale = None
            self.take()
        elif not self.failed:
            self.take()
        return loss.detach(), parts


@dataclass(frozen=True)
class _Recorded:
    graph: torch.cuda.CUDAGraph
    batch: Batch
    losses: Losses

    def replay(self, batch: Batch) -> Losses:
        for to, given in zip(_tensors(self.batch), _tensors(batch), strict=True):
            to.copy_(given, non_blocking=True)
        self.graph.replay()
        return self.losses


class GraphedStep:
    """A training step that is recorded as a CUDA graph for each batch shape, and replayed.

    A replay costs the host one call instead of thousands, which limit small batches on a fast GPU. The
    returned losses are overwritten by the next step.
    """

    def __init__(self, step: TrainingStep) -> None:
        self.step = step
        self.failed = step.failed
        self.graphs: dict[Hashable, _Recorded] = {}
        self.seen: Counter[Hashable] = Counter()
        self.stream = torch.cuda.Stream(step.device)
        self.pool: Any = torch.cuda.graph_pool_handle()

    def forget(self) -> None:
        """Drop what was recorded, because the model has changed, and record again."""
        self.graphs.clear()
        self.seen.clear()

    def __call__(self, batch: Batch) -> Losses:
        """Train on a batch and return its loss and the parts of it, detached."""
        shape = tuple((tuple(t.shape), t.dtype) for t in _tensors(batch))
        if shape not in self.graphs:
            self.seen[shape] += 1
            if self.seen[shape] <= WARM or len(self.graphs) == MOST_GRAPHS:
                return self._aside(batch)
            self.graphs[shape] = self._record(batch)
        return self.graphs[shape].replay(batch)

    def _aside(self, batch: Batch) -> Losses:
        """Run the step on a stream of its own, as recording needs it."""
        current = torch.cuda.current_stream(self.step.device)
        self.stream.wait_stream(current)
        with torch.cuda.stream(self.stream):
            losses = self.step(batch)
        current.wait_stream(self.stream)
        return losses

    def _record(self, batch: Batch) -> _Recorded:
        static = Batch(
            x=apply_to(batch.x, torch.clone),
            y=batch.y.clone(),
            sample_weight=None if batch.sample_weight is None else batch.sample_weight.clone(),
            offset=None if batch.offset is None else batch.offset.clone(),
        )
        self.step.optimizer.zero_grad()  # gradients then lie in the graph's own memory
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self.pool, stream=self.stream, capture_error_mode="thread_local"):
            loss, parts = self.step(static)
        return _Recorded(graph, static, (loss, parts))


def _tensors(batch: Batch) -> list[Tensor]:
    others = (batch.y, batch.sample_weight, batch.offset)
    return [*tensors_of(batch.x), *(t for t in others if t is not None)]
