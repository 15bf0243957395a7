"""Contenders of a comparison: methods of the registry, variants of them, and models of other packages.

Every contender gets a `Problem` and a `Recipe` and returns an `Outcome`: predictive distributions for the
validation and test inputs. No contender sees a test label.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import torch

from tailwise.distributions.members import Distribution
from tailwise.labels.bins import LabelBins
from tailwise.methods import available_methods, build_model, get_method
from tailwise.networks.network import Network
from tailwise.training.loop import TensorData, fit, predict
from tailwise_bench.networks.sentence_pairs import BatchesByLength
from tailwise_bench.problem import Array, Problem
from tailwise_bench.recipe import Recipe, SortedOptions
from tailwise_bench.spaces import Space, search_space
from tailwise_bench.trace import ESTIMATOR, trace_of


@dataclass(frozen=True)
class Outcome:
    """Predictions of a contender for the validation and test parts, and their cost."""

    valid: Distribution
    test: Distribution
    fit_seconds: float
    """Processor time, which other work on the machine does not lengthen."""
    predict_seconds: float
    epochs: int
    """Epoch, or number of trees, of the model that was kept."""
    parameters: int = 0
    gradients: int = 0
    """Gradients of a batch that training took, of every member."""
    limits: tuple[Array, Array] | None = None
    """Ends of 90% intervals of the test rows, (N,) each, of a contender that calibrates itself."""
    emphasis: float | None = None
    """Emphasis of rare labels (VIR:dial) that the validation part chose, if the contender has a dial."""
    variants: Mapping[str, Outcome] = field(default_factory=dict)
    """Further predictions of the same fit, by the name of their row in results."""


Fit = Callable[[Problem, Mapping[str, Any], Recipe], Outcome]


@dataclass(frozen=True)
class Contender:
    """A model that can be fitted and compared; `fit` must be picklable, so that workers can run it."""

    name: str
    title: str
    fit: Fit = field(repr=False)
    search: Space = field(default_factory=dict)
    tunes_optimizer: bool = False
    """Whether the options of `Recipe.search` are tuned too."""
    fixed: Mapping[str, Any] = field(default_factory=dict)
    """Options that `fit` always has; they are recorded and never tuned."""
    uncertainty: str = "none"
    cost: float = 1.0
    """Rough cost of a fit, where one network is 1: the longest runs start first."""
    base: str | None = None
    """Registered method that this is with the options `fixed`, or `ESTIMATOR`; None for other packages."""
    variants: Mapping[str, str] = field(default_factory=dict)
    """Titles of the further rows that each fit gives, by name; see `Outcome.variants`."""

    @property
    def variance(self) -> str:
        """The variance that the authors of its method report, ``total`` or ``epistemic``."""
        return "total" if self.base in (None, ESTIMATOR) else get_method(str(self.base)).variance

    @property
    def names(self) -> list[str]:
        """The names of all rows that a fit gives."""
        return [self.name, *self.variants]

    def trace(self, recipe: Recipe) -> dict[str, Any]:
        """Return what a results line says about its origin; see `tailwise_bench.trace`."""
        if self.base in (None, ESTIMATOR):
            return trace_of(self.base, self.fixed)
        options = {**self._weights(recipe), **self.fixed}
        return trace_of(self.base, options, accelerator=recipe.train.accelerator)

    def _weights(self, recipe: Recipe) -> dict[str, Any]:
        """Return the options that the recipe's weights add to a registered method."""
        if self.base is None or self.base == ESTIMATOR:
            return {}
        return recipe.weight_options(self.base, self.fixed)

    def space(self, recipe: Recipe) -> Space:
        """Return all options that are tuned under a recipe, without those that are fixed."""
        whole = {**self.search, **(recipe.search if self.tunes_optimizer else {})}
        inner = {f"{part}.{key}" for part, of in self.fixed.items() if isinstance(of, Mapping) for key in of}
        taken = {*self.fixed, *inner, *self._weights(recipe)}
        return {name: of for name, of in whole.items() if name not in taken}


# -- methods of the registry ---------------------------------------------------------------------


def fit_method(
    problem: Problem, options: Mapping[str, Any], recipe: Recipe, *, method: str, fixed: Mapping[str, Any]
) -> Outcome:
    """Train a method of the registry and predict both held-out parts."""
    given = SortedOptions.sort({**recipe.weight_options(method, fixed), **fixed, **options})
    bins = problem.bins if given.bins is None else LabelBins.from_labels(problem.y_train, count=given.bins)
    config = replace(recipe.train, **given.train, seed=problem.seed, monitor=recipe.criterion)
    x, y = problem.x_train, problem.y_train
    began = time.process_time()
    torch.manual_seed(problem.seed)
    backbone = recipe.build(problem)
    dim = int(backbone.feature_dim)
    parts = get_method(method).parts.with_options(**given.own)
    reconstruction, decoder = parts.loss("reconstruction"), None
    if reconstruction is not None and not reconstruction.options["features"]:
        decoder = recipe.build_decoder(problem, parts.latent.options.get("dim") or dim)
    model = build_model(method, backbone, dim, bins, decoder=decoder, **given.own)
    if model.method.resampling is not None:
        from tailwise.resampling.smogn import RESAMPLERS

        if x.ndim != 2:
            raise ValueError(
                f"{method} interpolates between rows of a table, but {problem.name} is not a table"
            )
        # Columns of two values are encoded categories: a synthetic row copies them from a real row.
        flags = [i for i in range(x.shape[1]) if np.unique(x[:, i]).size <= 2]
        x, y = RESAMPLERS[model.method.resampling](x, y, seed=problem.seed, categorical=flags)
    transform = None if recipe.augmentation is None else recipe.augmentation(problem)
    inputs, labels = (torch.from_numpy(np.ascontiguousarray(array)) for array in (x, y))
    lengths = getattr(backbone, "row_lengths", None)
    if lengths is None:
        train: Any = TensorData(inputs, labels, transform=transform)
    else:
        train = BatchesByLength(inputs, labels, lengths(inputs))
    valid = torch.from_numpy(problem.x_valid), torch.from_numpy(problem.y_valid)
    result = fit(model, train, valid, config)
    fitted = time.process_time()
    on_valid = predict(model, valid[0])
    on_test = predict(model, torch.from_numpy(problem.x_test))
    return Outcome(
        valid=problem.scored("valid", on_valid),
        test=problem.scored("test", on_test),
        fit_seconds=fitted - began,
        predict_seconds=time.process_time() - fitted,
        epochs=result.best_epoch,
        gradients=len(result.history) * -(-len(y) // config.batch_size) * _per_step(model),
        parameters=sum(p.numel() for p in model.parameters()),
    )


def _per_step(model: Network) -> int:
    return len(model.backbones) * (1 if model.sharpness is None else 2)


def from_registry(
    name: str, *, label: str | None = None, title: str | None = None, tuned: bool = True, **fixed: Any
) -> Contender:
    """Return a registered method as a contender, or under another label a variant with other options."""
    method = get_method(name)
    members = int(fixed.get("members", method.parts.members))
    return Contender(
        name=label or name,
        title=title or method.title,
        fit=partial(fit_method, method=name, fixed=fixed),
        search=search_space(name) if tuned else {},
        fixed=fixed,
        tunes_optimizer=tuned,
        uncertainty=method.uncertainty,
        cost=float(members),
        base=name,
    )


_LDS = {"power": 0.5, "form": "reference", "bandwidth": 2.0, "radius": 2, "clip": None}
_FDS = {"form": "reference", "boundary": "reflect", "bandwidth": 2.0, "radius": 2, "momentum": 0.9}


def published() -> list[Contender]:
    """Return methods with the weights and smoothing of their publication; only the optimiser is tuned."""
    options: dict[str, dict[str, Any]] = {
        "inv": {"weights": {"power": 1.0, "clip": None}},
        "sqinv": {"weights": {"power": 0.5, "clip": None}},
        "lds-fds": {"weights": _LDS, "smoothing": {**_FDS, "clip": (0.1, 10.0)}},
    }
    return [
        from_registry(
            name, label=f"{name}-published", title=f"{get_method(name).title}, as published", **fixed
        )
        for name, fixed in options.items()
    ]


def registry_contenders() -> list[Contender]:
    """Return every method of the registry in its order."""
    return [from_registry(name) for name in available_methods()]
