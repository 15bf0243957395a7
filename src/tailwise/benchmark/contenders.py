"""What takes part in a comparison: methods of the registry, variants of them, and outside peers.

All of them get the same `Problem` and `Recipe` and give back an `Outcome`: predictive
distributions for the validation and test inputs. Nothing else is asked, so that the runner knows
nothing about any of them, and none of them ever sees a test label.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import torch

from tailwise.backbones import make_backbone
from tailwise.benchmark.suites import Problem
from tailwise.choices import nearest
from tailwise.distributions import Distribution
from tailwise.labels import LabelBins
from tailwise.methods import available_methods, build_model, get_method
from tailwise.training import TrainConfig, fit, predict

COMMON_SEARCH: dict[str, tuple[Any, ...]] = {
    "lr": (1e-3, 3e-3, 1e-2, 3e-4),
    "weight_decay": (1e-4, 1e-2),
}
"""What is tuned for every network, besides what its method lists."""


def _train_config() -> TrainConfig:
    return TrainConfig(epochs=60, patience=10, accelerator="cpu")


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """What all contenders share: network, optimiser, early stopping, tuning budget and criterion."""

    train: TrainConfig = field(default_factory=_train_config)
    backbone: str = "mlp"
    backbone_options: Mapping[str, Any] = field(default_factory=dict)
    trials: int = 8
    """Configurations tried per contender and data set, the default one first."""
    criterion: str = "balanced_mae"
    """Validation metric that chooses among them; early stopping goes by the same one."""

    def __post_init__(self) -> None:
        if self.trials < 1:
            raise ValueError(f"trials must be at least 1, got {self.trials!r}")

    def within(self, *, epochs: int | None = None, trials: int | None = None) -> Recipe:
        """Return a copy with another budget where one is given."""
        train = self.train if epochs is None else replace(self.train, epochs=epochs)
        return replace(self, train=train, trials=self.trials if trials is None else trials)

    def describe(self) -> dict[str, Any]:
        """Settings for a results line; two runs with other ones are not comparable."""
        train = asdict(replace(self.train, monitor=self.criterion))
        kept = ("epochs", "patience", "batch_size", "optimizer", "schedule", "monitor")
        return {
            "backbone": self.backbone,
            **dict(self.backbone_options),
            **{name: train[name] for name in kept},
            "trials": self.trials,
            "criterion": self.criterion,
        }


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
    search: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    uncertainty: str = "none"
    cost: float = 1.0
    """Rough cost of a fit in networks, to start the longest first and to guess the time left."""


# -- tuning budget -------------------------------------------------------------------------------


def trial_options(search: Mapping[str, tuple[Any, ...]], trials: int) -> list[dict[str, Any]]:
    """Choose which configurations of a grid are tried: the default, then ones that differ most.

    Every further one is, of the grid in a fixed random order, the first that brings the most
    values not tried before, so that a few trials cover each option's values evenly.

    >>> [sorted(t.items()) for t in trial_options({"a": (1, 2), "b": (5, 6)}, 3)]
    [[('a', 1), ('b', 5)], [('a', 2), ('b', 6)], [('a', 1), ('b', 6)]]
    """
    names = list(search)
    default, *grid = itertools.product(*search.values())
    order = np.random.default_rng(0).permutation(len(grid))
    rest, chosen = [grid[i] for i in order], [default]
    while rest and len(chosen) < trials:
        tried = [set(values) for values in zip(*chosen, strict=True)]
        best = max(rest, key=lambda c: sum(v not in seen for v, seen in zip(c, tried, strict=True)))
        rest.remove(best)
        chosen.append(best)
    return [dict(zip(names, values, strict=True)) for values in chosen]


# -- methods of the registry ---------------------------------------------------------------------


def nested(options: Mapping[str, Any]) -> dict[str, Any]:
    """Turn ``{"weights.power": 1.0}`` into ``{"weights": {"power": 1.0}}``."""
    deep: dict[str, Any] = {}
    for name, value in options.items():
        part, _, key = name.partition(".")
        if key:
            deep.setdefault(part, {})[key] = value
        else:
            deep[part] = value
    return deep


def fit_method(
    problem: Problem, options: Mapping[str, Any], recipe: Recipe, *, method: str, fixed: Mapping[str, Any]
) -> Outcome:
    """Train a method of the registry; of the options, `bins` and the common ones are not its own."""
    chosen = {**fixed, **options}
    common = {name: chosen.pop(name) for name in COMMON_SEARCH if name in chosen}
    count = chosen.pop("bins", None)
    bins = problem.bins if count is None else LabelBins.from_labels(problem.y_train, count=count)
    config = replace(recipe.train, **common, seed=problem.seed, monitor=recipe.criterion)
    x, y = problem.x_train, problem.y_train
    began = time.process_time()
    torch.manual_seed(problem.seed)
    backbone = make_backbone(
        recipe.backbone, x.shape[1], rows=torch.from_numpy(x), **dict(recipe.backbone_options)
    )
    model = build_model(method, backbone, int(backbone.feature_dim), bins, **nested(chosen))
    if model.method.resampling is not None:
        from tailwise.resampling import resample

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
        search={**method.search, **COMMON_SEARCH} if tuned else {},
        uncertainty=method.uncertainty,
        cost=float(members),
    )


def registry_contenders() -> list[Contender]:
    """Every method of the registry, in its order."""
    return [from_registry(name) for name in available_methods()]


def choose_contenders(names: str | Iterable[str]) -> list[Contender]:
    """Find contenders by names with commas between; ``all``, ``peers`` and ``ablation-...`` are groups.

    >>> [c.name for c in choose_contenders("lds,ablation-encoder")]
    ['lds', 'vir[fixed]', 'vir-encoder[fixed]', 'lds-vir-encoder[fixed]', 'vanilla[fixed]', 'lds[fixed]']
    """
    from tailwise.benchmark.ablations import ablations
    from tailwise.benchmark.peers import peer_contenders

    groups = {"all": registry_contenders(), "peers": peer_contenders(), **ablations()}
    known = {c.name: c for group in groups.values() for c in group}
    chosen: dict[str, Contender] = {}
    for name in names.split(",") if isinstance(names, str) else names:
        if name not in groups and name not in known:
            raise ValueError(f"unknown contender {name!r}{nearest(name, [*groups, *known])}")
        for contender in groups[name] if name in groups else [known[name]]:
            chosen[contender.name] = contender
    return list(chosen.values())
