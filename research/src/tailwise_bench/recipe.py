"""The recipe that all methods of a comparison share: network, optimiser, early stopping, tuning budget."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, Literal

import torch
from torch import nn

from tailwise.methods import get_method
from tailwise.metrics.regions import get_metric
from tailwise.networks.backbones import Backbone, make_backbone
from tailwise.training.batches import Transform
from tailwise.training.loop import TrainConfig
from tailwise_bench.problem import DataSet, Problem
from tailwise_bench.spaces import Range, Space

Network = Callable[[Problem], Backbone]
Decoder = Callable[[Problem, int], nn.Module]
Augment = Callable[[Problem], Transform]


SQINV: Mapping[str, Any] = {"kernel": "gaussian", "bandwidth": 2.0, "radius": 2, "power": 0.5, "clip": None}
"""Options of `tailwise.networks.parts.density_weights` for the paper's weights."""
BALANCED_OTHERWISE = (
    *("inv", "sqinv", "dense", "rrt", "bmse-gai", "bmse-bmc", "bmse-bni", "balanced-nll", "vir-dial"),
)
"""Methods that are defined by their weights, or balance labels in another way."""


@dataclass(frozen=True)
class Budget:
    """What a contender may spend on a problem, tuning included: as many trials as fit, at least one."""

    unit: Literal["seconds", "gradients"]
    """Processor seconds, or gradients of a batch: a step of BSAM takes two, a step of five members five."""
    amount: float

    def allows_another(self, spent: Sequence[Mapping[str, float]]) -> bool:
        """Whether one more trial fits, if it costs what those so far cost on average."""
        total = sum(of[self.unit] for of in spent)
        return total + total / len(spent) <= self.amount


def _train_config() -> TrainConfig:
    return TrainConfig(epochs=60, patience=10, accelerator="cpu")


def _optimizer_search() -> Space:
    return {"lr": Range(1e-4, 1e-2, default=1e-3), "weight_decay": Range(1e-6, 1e-1, default=1e-4)}


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """Settings that every contender is trained with: network, optimiser, early stopping, tuning."""

    train: TrainConfig = field(default_factory=_train_config)
    backbone: str = "mlp"
    backbone_options: Mapping[str, Any] = field(default_factory=dict)
    network: Network | None = field(default=None, repr=False)
    """Builds the backbone for inputs that are not a table; `backbone` is then only its name in results."""
    decoder: Decoder | None = field(default=None, repr=False)
    """Builds the decoder that reconstructs the input from a latent, for methods with the loss
    `reconstruction` of the input (VIR:recon). By default it is one linear layer, which suits tables."""
    augment: str | None = None
    """Name in results of how training rows are changed at random; None leaves them as they are."""
    augmentation: Augment | None = field(default=None, repr=False)
    """Builds what changes batches of training rows."""
    search: Space = field(default_factory=_optimizer_search)
    """Fields of `train` that are tuned for every network, besides the options that its method lists."""
    trials: int = 8
    """Number of configurations tried per contender and data set; the default is the first."""
    budget: Budget | None = None
    """The same cost for every contender; `trials` is then the most that it may try."""
    weights: Literal["own", "sqinv"] = "own"
    """``sqinv`` gives every method of the registry the weights of VIR:weight with power 1/2, as in the
    paper's experiments, except methods of `BALANCED_OTHERWISE`."""
    criterion: str = "balanced_mae"
    """Validation metric that chooses among configurations; early stopping uses the same one."""

    def __post_init__(self) -> None:
        get_metric(self.criterion)

    def within(
        self, *, epochs: int | None = None, trials: int | None = None, seconds: float | None = None
    ) -> Recipe:
        """Return a copy with other maximum epochs or trials, or a budget of processor seconds."""
        train = self.train if epochs is None else replace(self.train, epochs=epochs)
        budget = self.budget if seconds is None else Budget("seconds", seconds)
        return replace(self, train=train, trials=self.trials if trials is None else trials, budget=budget)

    def weight_options(self, method: str, fixed: Mapping[str, Any]) -> dict[str, Any]:
        """Return the options that `weights` gives a registered method, without those that are `fixed`."""
        if self.weights == "own" or method in BALANCED_OTHERWISE:
            return {}
        options: dict[str, Any] = {f"weights.{name}": value for name, value in SQINV.items()}
        return {
            name: of
            for name, of in options.items()
            if name not in fixed and not (name.startswith("weights.") and "weights" in fixed)
        }

    def describe(self) -> dict[str, Any]:
        """Return the settings for a results line; runs with different settings must not be compared.

        Tuned options are left out: each run records its own.
        """
        train = asdict(replace(self.train, monitor=self.criterion))
        steps = ("milestones", "decay") if self.train.schedule == "step" else ()
        kept = ("epochs", "patience", "batch_size", "optimizer", "lr", "weight_decay", "schedule", *steps)
        kept += ("warmup", "clip_norm", "precision", "monitor")
        settings = {
            "backbone": self.backbone,
            **dict(self.backbone_options),
            **({} if self.augment is None else {"augment": self.augment}),
            **({} if self.weights == "own" else {"weights": self.weights}),
            **{name: train[name] for name in kept if name not in self.search},
            "trials": self.trials,
            **({} if self.budget is None else {"budget": f"{self.budget.amount:g} {self.budget.unit}"}),
            "criterion": self.criterion,
        }
        return {name: list(of) if isinstance(of, tuple) else of for name, of in settings.items()}

    def build(self, problem: Problem) -> Backbone:
        """Build a new network for a problem."""
        if self.network is not None:
            return self.network(problem)
        x = torch.from_numpy(problem.x_train)
        if x.ndim != 2:
            shape = tuple(x.shape)
            raise ValueError(
                f"{problem.name} is not a table: inputs of shape {shape} need `network` in the recipe"
            )
        return make_backbone(self.backbone, x.shape[1], rows=x, **dict(self.backbone_options))

    def build_decoder(self, problem: Problem, latent_dim: int) -> nn.Module:
        """Build a new decoder that reconstructs the input of a problem from a latent."""
        if self.decoder is not None:
            return self.decoder(problem, latent_dim)
        return nn.Linear(latent_dim, problem.x_train.shape[1])


@dataclass(frozen=True)
class SortedOptions:
    """Options of a contender by owner: training, the benchmark (`bins`), the method."""

    train: dict[str, Any]
    bins: int | None
    own: dict[str, Any]

    @classmethod
    def sort(cls, options: Mapping[str, Any]) -> SortedOptions:
        """Assign every option to its owner."""
        rest = dict(options)
        train = {f.name: rest.pop(f.name) for f in fields(TrainConfig) if f.name in rest}
        return cls(train, rest.pop("bins", None), rest)


def check_options(method: str, options: Mapping[str, Any], recipe: Recipe) -> None:
    """Raise an error for options that neither the method nor training has."""
    given = SortedOptions.sort(options)
    replace(recipe.train, **given.train)
    get_method(method).parts.with_options(**given.own)


@dataclass(frozen=True)
class DataKind:
    """Data sets of one kind, and what can be trained on them, by the names that a suite's file uses."""

    data: Mapping[str, DataSet]
    networks: Mapping[str, Callable[..., Backbone]]
    """Each is called with a problem and its options."""
    decoder: Decoder | None = None
    augmentations: Mapping[str, Augment] = field(default_factory=dict)
    base: Recipe = field(default_factory=lambda: Recipe(train=TrainConfig(), search={}))
    """What holds unless a file says otherwise. A field of `search` that a file sets is not tuned."""
