"""The recipe that all methods of a comparison share: network, optimiser, early stopping, tuning budget."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, asdict, dataclass, field, fields, replace
from functools import cached_property, partial
from typing import Any, Literal

import torch
from torch import nn

from tailwise.lookup import check_name
from tailwise.methods import get_method
from tailwise.metrics.regions import get_metric
from tailwise.networks.backbones import BACKBONES, Backbone, make_backbone
from tailwise.options import Positive, checked_options
from tailwise.training.batches import Transform
from tailwise.training.config import AtLeastOne
from tailwise.training.loop import TrainConfig
from tailwise_bench.problem import DataSet, Problem
from tailwise_bench.spaces import Range, Space

SQINV: Mapping[str, Any] = {"kernel": "gaussian", "bandwidth": 2.0, "radius": 2, "power": 0.5, "clip": None}
"""Options of `tailwise.networks.parts.density_weights` for the paper's weights."""
BALANCED_OTHERWISE = (
    *("inv", "sqinv", "dense", "rrt", "bmse-gai", "bmse-bmc", "bmse-bni", "balanced-nll", "vir-dial"),
)
"""Methods that are defined by their weights, or balance labels in another way."""
RECORDED = (
    *(
        "epochs",
        "patience",
        "batch_size",
        "optimizer",
        "lr",
        "weight_decay",
        "schedule",
        "milestones",
        "decay",
    ),
    *("warmup", "clip_norm", "precision", "monitor"),
)
"""Settings of training in a results line; milestones and decay only of the schedule in steps."""


def _table_network(problem: Problem, *, name: str, **options: Any) -> Backbone:
    rows = torch.from_numpy(problem.x_train)
    return make_backbone(name, rows.shape[1], rows=rows, **options)


def _row_decoder(problem: Problem, latent_dim: int) -> nn.Module:
    return nn.Linear(latent_dim, problem.x_train.shape[1])


@dataclass(frozen=True)
class DataKind:
    """Data sets of one kind, and what can be trained on them, by the names that a suite's file uses."""

    data: Mapping[str, DataSet]
    networks: Mapping[str, Callable[..., Backbone]]
    """Each is called with a problem and its options."""
    decoder: Callable[[Problem, int], nn.Module]
    """Builds what reconstructs the input from a latent (VIR:recon)."""
    augmentations: Mapping[str, Transform] = field(default_factory=dict)
    train: TrainConfig = field(default_factory=TrainConfig)
    """How networks are trained unless a file says otherwise."""
    search: Space = field(default_factory=dict)
    """Fields of `train` that are tuned for every network unless a file sets them."""


TABLES = DataKind(
    {},
    {name: partial(_table_network, name=name) for name in BACKBONES},
    _row_decoder,
    train=TrainConfig(epochs=60, patience=10, accelerator="cpu"),
    search={"lr": Range(1e-4, 1e-2, default=1e-3), "weight_decay": Range(1e-6, 1e-1, default=1e-4)},
)


@dataclass(frozen=True)
class Recipe:
    """Settings that every contender is trained with. Those by keyword are keys of ``[recipe]`` in a file."""

    kind: DataKind = field(default=TABLES, repr=False)
    _: KW_ONLY
    backbone: str = "mlp"
    backbone_options: Mapping[str, Any] | None = None
    train: Mapping[str, Any] | None = None
    """Fields of `TrainConfig` that differ from those of the kind of data."""
    augment: str | None = None
    """How training rows are changed at random."""
    criterion: str = "balanced_mae"
    """Validation metric that chooses among configurations; early stopping uses the same one."""
    trials: AtLeastOne = 8
    """Number of configurations tried per contender and data set; the default is the first."""
    budget: Mapping[str, float] | None = None
    """What a contender may spend on a problem, tuning included: ``seconds`` of the processor, or
    ``gradients`` of a batch. As many trials as fit are made, at least one and at most `trials`."""
    weights: Literal["own", "sqinv"] = "own"
    """``sqinv`` gives every method of the registry the weights of VIR:weight with power 1/2, as in the
    paper's experiments, except methods of `BALANCED_OTHERWISE`."""

    def __post_init__(self) -> None:
        check_name("backbone", self.backbone, self.kind.networks)
        if self.augment is not None:
            check_name("augmentation", self.augment, self.kind.augmentations)
        for key in self.train or {}:
            check_name("key of [recipe.train]", key, [field.name for field in fields(TrainConfig)])
        get_metric(self.criterion)
        if self.budget is not None:
            checked_options("the budget", "budget", _budget, self.budget)
            if len(self.budget) != 1:
                raise ValueError("a budget is one number: give `seconds` or `gradients`")

    @cached_property
    def config(self) -> TrainConfig:
        """How networks are trained."""
        chosen: dict[str, Any] = dict(self.train or {}) | {"monitor": self.criterion}
        for key, value in chosen.items():
            chosen[key] = tuple(value) if isinstance(value, list) else value
        return replace(self.kind.train, **chosen)

    @property
    def search(self) -> Space:
        """Fields of `train` that are tuned for every network, besides the options that its method lists."""
        return {name: of for name, of in self.kind.search.items() if name not in (self.train or {})}

    def within(
        self, *, epochs: int | None = None, trials: int | None = None, seconds: float | None = None
    ) -> Recipe:
        """Return a copy with other maximum epochs or trials, or a budget of processor seconds."""
        train = {**(self.train or {}), **({} if epochs is None else {"epochs": epochs})}
        budget = self.budget if seconds is None else {"seconds": seconds}
        return replace(self, train=train, trials=trials or self.trials, budget=budget)

    def allows_another(self, spent: Sequence[Mapping[str, float]]) -> bool:
        """Whether the budget allows one more trial, if it costs what those so far cost on average."""
        if self.budget is None:
            return True
        ((unit, amount),) = self.budget.items()
        total = sum(of[unit] for of in spent)
        return total + total / len(spent) <= amount

    def weight_options(self, method: str, options: Mapping[str, Any]) -> dict[str, Any]:
        """Return the options that `weights` gives a registered method, unless it has weights of its own."""
        if self.weights == "own" or method in BALANCED_OTHERWISE or "weights" in options:
            return {}
        return {f"weights.{name}": value for name, value in SQINV.items() if f"weights.{name}" not in options}

    def describe(self) -> dict[str, Any]:
        """Return the settings for a results line; runs with different settings must not be compared.

        Tuned options are left out: each run records its own.
        """
        train, steps = asdict(self.config), self.config.schedule == "step"
        budget = (
            {} if self.budget is None else {"budget": " ".join(f"{v:g} {k}" for k, v in self.budget.items())}
        )
        settings = {
            "backbone": self.backbone,
            **(self.backbone_options or {}),
            **({} if self.augment is None else {"augment": self.augment}),
            **({} if self.weights == "own" else {"weights": self.weights}),
            **{
                name: train[name]
                for name in RECORDED
                if name not in self.search and (steps or name not in ("milestones", "decay"))
            },
            "trials": self.trials,
            **budget,
            "criterion": self.criterion,
        }
        return {name: list(of) if isinstance(of, tuple) else of for name, of in settings.items()}

    def build(self, problem: Problem) -> Backbone:
        """Build a new network for a problem."""
        return self.kind.networks[self.backbone](problem, **(self.backbone_options or {}))


def _budget(*, seconds: Positive | None = None, gradients: AtLeastOne | None = None) -> None:
    """Keys of a budget."""


def sorted_options(options: Mapping[str, Any]) -> tuple[dict[str, Any], int | None, dict[str, Any]]:
    """Divide options into those of training, the number of label bins, and those of the method."""
    rest = dict(options)
    train = {f.name: rest.pop(f.name) for f in fields(TrainConfig) if f.name in rest}
    return train, rest.pop("bins", None), rest


def check_options(method: str, options: Mapping[str, Any]) -> None:
    """Raise an error for options that neither the method nor training has."""
    train, _, own = sorted_options(options)
    TrainConfig(**train)
    get_method(method).parts.with_options(**own)
