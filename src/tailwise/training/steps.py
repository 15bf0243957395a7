"""One step of training, run as it is or recorded once as a CUDA graph and replayed, and its optimisers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from tailwise.networks.network import Network
from tailwise.networks.ranks import rank_and_ranks, sum_over_ranks
from tailwise.training.batches import Batch, tensors_of
from tailwise.training.config import TrainConfig

_MOMENTUM = 0.9  # of sgd
_ADAM = {"beta1": 0.9, "beta2": 0.999, "eps": 1e-8, "amsgrad": False}
Shards = Sequence[tuple[int, Batch]]
"""Numbers of shards of a step, each with its rows."""
Seed = Callable[[int], object]
"""Is called with the number of each shard before its random numbers are drawn."""
WARM = 3
"""Steps of a batch shape that run as they are before one is recorded: libraries choose kernels in them."""
MOST_GRAPHS = 4
"""Number of batch shapes that are recorded; each holds the memory of one step."""


class Optimizer:
    """Adam, AdamW or SGD with momentum, for the trainable parameters of a module.

    It calls the fused kernels that `torch.optim` calls too. Theirs import the compiler of torch, which takes
    seconds and is not used here, and spend most of a small step in Python.
    """

    def __init__(self, model: nn.Module, config: TrainConfig, device: torch.device) -> None:
        self.parameters = [p for p in model.parameters() if p.requires_grad]
        self.kind, self.weight_decay = config.optimizer, config.weight_decay
        # A recorded step reads the learning rate on the device, where it can change.
        recorded = device.type == "cuda" and config.graphs
        self.lr: float | Tensor = torch.tensor(config.lr, device=device) if recorded else config.lr
        self.state: dict[int, list[Tensor]] = {}
        """Of each parameter that has had a gradient, by its number: steps and moments, or the momentum."""

    def set_lr(self, lr: float) -> None:
        """Set the learning rate."""
        self.lr = self.lr.fill_(lr) if isinstance(self.lr, Tensor) else lr

    def zero_grad(self) -> None:
        """Let go of all gradients."""
        for parameter in self.parameters:
            parameter.grad = None

    @torch.no_grad()
    def step(self, failed: Tensor | None = None) -> None:
        """Change the parameters that have a gradient; none if the flag `failed`, on a GPU, is set."""
        alike: dict[Any, list[int]] = {}
        for number, p in enumerate(self.parameters):
            if p.grad is not None:
                alike.setdefault((number in self.state, p.dtype, p.device), []).append(number)
        for (started, *_), numbers in alike.items():
            parameters: list[Tensor] = [self.parameters[number] for number in numbers]
            grads: Any = [p.grad for p in parameters]
            if not started:
                self.state.update((number, self._start(self.parameters[number])) for number in numbers)
            first, *moments = map(list, zip(*(self.state[number] for number in numbers), strict=True))
            options: Any = {"lr": self.lr, "weight_decay": self.weight_decay, "maximize": False}
            options["found_inf"] = None if failed is None else failed.float()
            if self.kind == "sgd":
                options |= {"momentum": _MOMENTUM, "dampening": 0.0, "nesterov": False}
                torch._fused_sgd_(parameters, grads, first, **options, is_first_step=not started)
                continue
            torch._foreach_add_(first, 1)
            fused: Any = torch._fused_adam_ if self.kind == "adam" else torch._fused_adamw_
            fused(parameters, grads, *moments, [], first, **options, **_ADAM)
            if failed is not None:
                torch._foreach_sub_(first, [options["found_inf"]] * len(first))

    def _start(self, parameter: Tensor) -> list[Tensor]:
        if self.kind == "sgd":
            return [torch.zeros_like(parameter)]
        steps = torch.zeros((), dtype=torch.float32, device=parameter.device)
        return [steps, torch.zeros_like(parameter), torch.zeros_like(parameter)]

    def load_state(self, state: Mapping[int, Sequence[Tensor]]) -> None:
        """Continue from the `state` of another optimiser."""
        self.state = {
            number: [tensor.to(self.parameters[number].device) for tensor in tensors]
            for number, tensors in state.items()
        }


@contextmanager
def fast_kernels(config: TrainConfig, device: torch.device) -> Iterator[None]:
    """On a GPU, use TF32 for matrices in float32 with bf16, and the fastest kernels for fixed batch shapes.

    TF32 keeps more digits than the bf16 of the layers around it.
    """
    precision, benchmark = torch.get_float32_matmul_precision(), torch.backends.cudnn.benchmark
    if device.type == "cuda":
        torch.set_float32_matmul_precision("high" if config.precision == "bf16" else precision)
        torch.backends.cudnn.benchmark = benchmark or config.graphs
    try:
        yield
    finally:
        if device.type == "cuda":
            torch.set_float32_matmul_precision(precision)
            torch.backends.cudnn.benchmark = benchmark


def autocast(config: TrainConfig, device: torch.device) -> torch.autocast:
    """Return the context of the configured precision."""
    return torch.autocast(device.type, torch.bfloat16, enabled=config.precision == "bf16")


class TrainingStep:
    """Loss, gradients, clipping and the optimiser's step, without waiting for a GPU.

    A batch comes in shards, which one or several ranks work on. Gradients are added up over the shards and
    all ranks, each row with the same weight, so the step does not depend on who works on which shard.
    `failed` is set once a loss or gradient was not finite. From then on the weights do not change.
    """

    def __init__(
        self, model: Network, optimizer: Optimizer, config: TrainConfig, device: torch.device, shards: int = 1
    ) -> None:
        self.model, self.optimizer, self.config, self.device = model, optimizer, config, device
        self.shared = shards > 1
        self.failed = torch.zeros((), dtype=torch.bool, device=device)
        self.sums: dict[str, Tensor] = {}
        """The loss and its parts, added up over this rank's rows since `begin`."""

    def begin(self, *, changed: bool = False) -> None:
        """Begin an epoch; `changed` says that the parts of the model are others than before."""
        for total in self.sums.values():
            total.zero_()

    def __call__(self, shards: Shards, seed: Seed = lambda shard: None) -> bool:
        """Train on this rank's shards, and return whether any rank had rows.

        A rank may have no rows in a step. If no rank has any, there is no step.
        """
        loss, rows = self._gradients(shards, seed, counted=True)
        if not shards and not rows:  # a GPU is only waited for by a rank without rows
            return False
        if self.model.sharpness is not None:
            with self.model.sharpness.perturbed(self.model):
                self._gradients(shards, seed)
        self._take(loss)
        return True

    def _gradients(self, shards: Shards, seed: Seed, *, counted: bool = False) -> tuple[Tensor, Tensor | int]:
        """Compute gradients over all shards and ranks; return the loss and the rows of all, added up."""
        self.optimizer.zero_grad()
        total, rows = torch.zeros((), device=self.device), 0
        for shard, batch in shards:
            if self.shared:
                seed(shard)
            with autocast(self.config, self.device):
                loss, parts = self.model.loss(batch.x, batch.y, batch.sample_weight, batch.offset)
            here = len(batch.y)
            (loss * here if self.shared else loss).backward()
            total, rows = total + loss.detach() * here, rows + here
            figures = {"loss": loss.detach(), **{f"loss/{name}": part for name, part in parts.items()}}
            for name, value in figures.items() if counted else ():
                if name not in self.sums:
                    self.sums[name] = torch.zeros_like(value)
                self.sums[name].add_(value * here)
        return self._reduced(total, rows) if self.shared else (total, rows)

    @torch.no_grad()
    def _reduced(self, total: Tensor, here: int) -> tuple[Tensor, Tensor]:
        """Add gradients, losses and rows over all ranks, in one call, and divide gradients by the rows."""
        weights, rows = self.optimizer.parameters, torch.full_like(total, here)
        # A weight without a gradient on any rank must stay without one: optimisers decay those that have one.
        has_grad = [p.grad is not None for p in weights]
        if rank_and_ranks()[1] > 1:
            grads = [torch.zeros_like(p) if p.grad is None else p.grad for p in weights]
            has = torch.tensor(has_grad, dtype=total.dtype, device=self.device)
            flat = torch.cat([*(g.reshape(-1) for g in grads), has, total[None], rows[None]])
            sizes = [*(p.numel() for p in weights), len(weights), 1, 1]
            *summed, has, total, rows = sum_over_ranks(flat).split(sizes)
            total, rows = total[0], rows[0]
            if not here:  # ranks with rows have the same gradients
                has_grad = has.tolist()
            for p, value, seen in zip(weights, summed, has_grad, strict=True):
                p.grad = value.view_as(p).to(p.dtype) if seen else None
        for p in weights:
            if p.grad is not None:
                p.grad /= rows
        return total, rows

    def _take(self, loss: Tensor) -> None:
        """Let the optimiser step by the gradients, unless one of them or the loss is not finite."""
        grads = [p.grad for p in self.optimizer.parameters if p.grad is not None]
        norms = [norm.to(self.device, torch.float32) for norm in torch._foreach_norm(grads)]
        norm = torch.linalg.vector_norm(torch.stack(norms))
        if self.config.clip_norm is not None:
            torch._foreach_mul_(grads, (self.config.clip_norm / (norm + 1e-6)).clamp(max=1.0))
        self.failed.logical_or_(~(torch.isfinite(loss) & torch.isfinite(norm)))
        if self.device.type == "cuda":
            self.optimizer.step(self.failed)
        elif not self.failed:
            self.optimizer.step()


class GraphedStep(TrainingStep):
    """A step of one shard that is recorded as a CUDA graph for each batch shape, and replayed.

    A replay costs the host one call instead of thousands, which limit small batches on a fast GPU.
    """

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.graphs: dict[Hashable, tuple[torch.cuda.CUDAGraph, list[Tensor]]] = {}
        """Of each batch shape the recorded step, and the tensors that it reads a batch from."""
        self.seen: Counter[Hashable] = Counter()
        self.stream = torch.cuda.Stream(self.device)
        self.pool: Any = torch.cuda.graph_pool_handle()

    def begin(self, *, changed: bool = False) -> None:
        """Begin an epoch; if the model has changed, drop what was recorded."""
        super().begin()
        if changed:
            self.graphs.clear()
            self.seen.clear()

    def __call__(self, shards: Shards, seed: Seed = lambda shard: None) -> bool:
        """Train on the one shard of a batch."""
        ((_, batch),) = shards
        tensors = _tensors(batch)
        shape = tuple((tuple(t.shape), t.dtype) for t in tensors)
        if shape not in self.graphs:
            self.seen[shape] += 1
            if self.seen[shape] <= WARM or len(self.graphs) == MOST_GRAPHS:
                return self._aside(shards)
            self.graphs[shape] = self._record(batch)
        graph, inputs = self.graphs[shape]
        for to, tensor in zip(inputs, tensors, strict=True):
            to.copy_(tensor, non_blocking=True)
        graph.replay()
        return True

    def _aside(self, shards: Shards) -> bool:
        """Run the step on a stream of its own, as recording needs it."""
        current = torch.cuda.current_stream(self.device)
        self.stream.wait_stream(current)
        with torch.cuda.stream(self.stream):
            super().__call__(shards)
        current.wait_stream(self.stream)
        return True

    def _record(self, batch: Batch) -> tuple[torch.cuda.CUDAGraph, list[Tensor]]:
        static = replace(batch, rows=None).map(torch.clone)
        self.optimizer.zero_grad()  # gradients then lie in the graph's own memory
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self.pool, stream=self.stream, capture_error_mode="thread_local"):
            super().__call__([(0, static)])
        return graph, _tensors(static)


def _tensors(batch: Batch) -> list[Tensor]:
    others = (batch.y, batch.sample_weight, batch.offset)
    return [*tensors_of(batch.x), *(t for t in others if t is not None)]
