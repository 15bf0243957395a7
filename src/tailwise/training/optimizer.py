"""The optimisers, on the fused kernels that those of `torch.optim` call too.

Theirs import the compiler of torch, which takes seconds and is not used here, and spend most of a small step
in Python.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from tailwise.training.config import TrainConfig

_MOMENTUM = 0.9  # of sgd
_ADAM = {"beta1": 0.9, "beta2": 0.999, "eps": 1e-8, "amsgrad": False}


class Optimizer:
    """Adam, AdamW or SGD with momentum, for the trainable parameters of a module."""

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

    def state_dict(self) -> dict[int, list[Tensor]]:
        """Return what to continue from."""
        return dict(self.state)

    def load_state_dict(self, state: Mapping[int, list[Tensor]]) -> None:
        """Continue from a state."""
        self.state = {
            number: [tensor.to(self.parameters[number].device) for tensor in tensors]
            for number, tensors in state.items()
        }
