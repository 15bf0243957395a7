"""What takes part in a comparison: methods of the registry, variants of them, and outside peers.

All of them get the same `Problem` and `Recipe` and give back an `Outcome`: predictive
distributions for the validation and test inputs. Nothing else is asked, so that the runner knows
nothing about any of them, and none of them ever sees a test label.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import nn

from tailwise.benchmark.data.problems import Problem
from tailwise.benchmark.run.search import default_options
from tailwise.core.distributions import Distribution
from tailwise.core.labels import LabelBins
from tailwise.core.lookup import nearest
from tailwise.core.metrics import get_metric
from tailwise.learning.loop import TrainConfig, fit, predict
from tailwise.methods import Range, Space, available_methods, build_model, get_method
from tailwise.networks.backbones import Backbone, make_backbone

Network = Callable[[Problem], Backbone]
Decoder = Callable[[Problem, int], nn.Module]


def _train_config() -> TrainConfig:
    return TrainConfig(epochs=60, patience=10, accelerator="cpu")


def _optimizer_search() -> Space:
    return {"lr": Range(1e-4, 1e-2, default=1e-3), "weight_decay": Range(1e-6, 1e-1, default=1e-4)}


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """What all contenders share: network, optimiser, early stopping, tuning budget and criterion."""

    train: TrainConfig = field(default_factory=_train_config)
    backbone: str = "mlp"
    backbone_options: Mapping[str, Any] = field(default_factory=dict)
    network: Network | None = field(default=None, repr=False)
    """Builds the backbone for a problem that is no table; `backbone` then only names it in results."""
    decoder: Decoder | None = field(default=None, repr=False)
    """Builds what reconstructs the input from a latent (VIR:recon) for contenders that ask for it with the
    option `decoder`; for a table it is a layer."""
    search: Space = field(default_factory=_optimizer_search)
    """What is tuned for every network besides what its method lists: fields of `train`."""
    trials: int = 8
    """Configurations tried per contender and data set, the default one first."""
    criterion: str = "balanced_mae"
    """Validation metric that chooses among them; early stopping goes by the same one."""

    def __post_init__(self) -> None:
        if self.trials < 1:
            raise ValueError(f"trials must be at least 1, got {self.trials!r}")
        get_metric(self.criterion)
        for name, value in default_options(self.search).items():
            if value != getattr(self.train, name):
                raise ValueError(
                    f"the search starts at {name} = {value}, training at {getattr(self.train, name)}: "
                    "the default is tried first, so they must agree"
                )

    def within(self, *, epochs: int | None = None, trials: int | None = None) -> Recipe:
        """Return a copy with another budget where one is given."""
        train = self.train if epochs is None else replace(self.train, epochs=epochs)
        return replace(self, train=train, trials=self.trials if trials is None else trials)

    def describe(self) -> dict[str, Any]:
        """Settings for a results line; two runs with other ones are not comparable.

        What is tuned is no setting, and stands with the options of a run.
        """
        train = asdict(replace(self.train, monitor=self.criterion))
        steps = ("milestones", "decay") if self.train.schedule == "step" else ()
        kept = ("epochs", "patience", "batch_size", "optimizer", "lr", "weight_decay", "schedule", *steps)
        kept += ("warmup", "clip_norm", "precision", "monitor")
        settings = {
            "backbone": self.backbone,
            **dict(self.backbone_options),
            **{name: train[name] for name in kept if name not in self.search},
            "trials": self.trials,
            "criterion": self.criterion,
        }
        return {name: list(of) if isinstance(of, tuple) else of for name, of in settings.items()}

    def build(self, problem: Problem) -> Backbone:
        """Make the network all methods share, fresh."""
        if self.network is not None:
            return self.network(problem)
        x = torch.from_numpy(problem.x_train)
        if x.ndim != 2:
            raise ValueError(
                f"{problem.name} has inputs of shape {tuple(x.shape)}, no table: its recipe needs a `network`"
            )
        return make_backbone(self.backbone, x.shape[1], rows=x, **dict(self.backbone_options))

    def build_decoder(self, problem: Problem, latent_dim: int) -> nn.Module:
        """Make what reconstructs the input of a problem from a latent."""
        if self.decoder is not None:
            return self.decoder(problem, latent_dim)
        return nn.Linear(latent_dim, problem.x_train.shape[1])


@dataclass(frozen=True)
class Outcome:
    """What a contender gives back: predictions for both held-out parts, and what they cost."""

    valid: Distribution
    test: Distribution
    fit_seconds: float
    """Processor time: other work on the machine does not lengthen it."""
    predict_seconds: float
    epochs: int
    """Passes over the data, or trees, of the state that was kept."""
    parameters: int = 0


Fit = Callable[[Problem, Mapping[str, Any], Recipe], Outcome]


@dataclass(frozen=True)
class Contender:
    """Something that can be fitted and compared; `fit` is a function that processes can share."""

    name: str
    title: str
    fit: Fit = field(repr=False)
    search: Space = field(default_factory=dict)
    tunes_optimizer: bool = False
    """Whether the options that all networks share are tuned with its own."""
    fixed: Mapping[str, Any] = field(default_factory=dict)
    """Options that `fit` has been given already, for the record."""
    uncertainty: str = "none"
    cost: float = 1.0
    """Rough cost of a fit in networks, to start the longest first and to guess the time left."""

    def space(self, recipe: Recipe) -> Space:
        """Everything that is tuned under a recipe: what is fixed is not, or its default would be taken."""
        whole = {**self.search, **(recipe.search if self.tunes_optimizer else {})}
        inner = {f"{part}.{key}" for part, of in self.fixed.items() if isinstance(of, Mapping) for key in of}
        return {name: of for name, of in whole.items() if name not in self.fixed and name not in inner}


# -- methods of the registry ---------------------------------------------------------------------


@dataclass(frozen=True)
class _Options:
    """Options of a contender: fields of training, what the benchmark itself knows, and the method's own."""

    train: dict[str, Any]
    bins: int | None
    decoder: bool
    own: dict[str, Any]

    @classmethod
    def sort(cls, options: Mapping[str, Any]) -> _Options:
        rest = dict(options)
        train = {f.name: rest.pop(f.name) for f in fields(TrainConfig) if f.name in rest}
        return cls(train, rest.pop("bins", None), bool(rest.pop("decoder", False)), rest)


def check_options(method: str, options: Mapping[str, Any], recipe: Recipe) -> None:
    """Refuse, before anything is run, options that neither the method nor training knows."""
    given = _Options.sort(options)
    replace(recipe.train, **given.train)
    get_method(method).parts.with_options(**given.own)


def fit_method(
    problem: Problem, options: Mapping[str, Any], recipe: Recipe, *, method: str, fixed: Mapping[str, Any]
) -> Outcome:
    """Train a method of the registry."""
    given = _Options.sort({**fixed, **options})
    bins = problem.bins if given.bins is None else LabelBins.from_labels(problem.y_train, count=given.bins)
    config = replace(recipe.train, **given.train, seed=problem.seed, monitor=recipe.criterion)
    x, y = problem.x_train, problem.y_train
    began = time.process_time()
    torch.manual_seed(problem.seed)
    backbone = recipe.build(problem)
    dim = int(backbone.feature_dim)
    latent = get_method(method).parts.with_options(**given.own).latent_dim or dim
    decoder = recipe.build_decoder(problem, latent) if given.decoder else None
    model = build_model(method, backbone, dim, bins, decoder=decoder, **given.own)
    if model.method.resampling is not None:
        from tailwise.resampling.smogn import resample

        if x.ndim != 2:
            raise ValueError(f"{method} makes up rows between rows: {problem.name} is no table of features")
        # Encoded categories stay what they are: a synthetic row takes them from a real one.
        flags = [i for i in range(x.shape[1]) if np.unique(x[:, i]).size <= 2]
        x, y = resample(model.method.resampling, x, y, seed=problem.seed, categorical=flags)
    train = torch.from_numpy(np.ascontiguousarray(x)), torch.from_numpy(np.ascontiguousarray(y))
    valid = torch.from_numpy(problem.x_valid), torch.from_numpy(problem.y_valid)
    result = fit(model, train, valid, config, progress=False)
    fitted = time.process_time()
    on_valid = predict(model, valid[0])
    on_test = predict(model, torch.from_numpy(problem.x_test))
    return Outcome(
        valid=on_valid,
        test=on_test,
        fit_seconds=fitted - began,
        predict_seconds=time.process_time() - fitted,
        epochs=result.best_epoch,
        parameters=sum(p.numel() for p in model.parameters()),
    )


def from_registry(
    name: str, *, label: str | None = None, title: str | None = None, tuned: bool = True, **fixed: Any
) -> Contender:
    """Make a contender of a registered method, or of a variant with other options under its own label."""
    method = get_method(name)
    members = int(fixed.get("members", method.parts.members))
    return Contender(
        name=label or name,
        title=title or method.title,
        fit=partial(fit_method, method=name, fixed=fixed),
        search=method.search if tuned else {},
        fixed=fixed,
        tunes_optimizer=tuned,
        uncertainty=method.uncertainty,
        cost=float(members),
    )


def registry_contenders(options: Mapping[str, Mapping[str, Any]] | None = None) -> list[Contender]:
    """Every method of the registry, in its order, with options of their own for some."""
    return [from_registry(name, **(options or {}).get(name, {})) for name in available_methods()]


def choose_contenders(
    names: str | Iterable[str], options: Mapping[str, Mapping[str, Any]] | None = None
) -> list[Contender]:
    """Find contenders by names with commas between; ``all``, ``peers`` and ``ablation-...`` are groups.

    `options` by method's name replace its defaults.

    >>> [c.name for c in choose_contenders("lds,ablation-encoder")]
    ['lds', 'vir[fixed]', 'vir-encoder[fixed]', 'lds-vir-encoder[fixed]', 'vanilla[fixed]', 'lds[fixed]']
    """
    from tailwise.benchmark.run.ablations import ablations
    from tailwise.benchmark.run.peers import peer_contenders

    groups = {"all": registry_contenders(options), "peers": peer_contenders(), **ablations()}
    known = {c.name: c for group in groups.values() for c in group}
    chosen: dict[str, Contender] = {}
    for name in map(str.strip, names.split(",")) if isinstance(names, str) else names:
        if name not in groups and name not in known:
            raise ValueError(f"unknown contender {name!r}{nearest(name, [*groups, *known])}")
        for contender in groups[name] if name in groups else [known[name]]:
            chosen[contender.name] = contender
    return list(chosen.values())
