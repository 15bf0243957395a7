"""Contenders of a comparison: methods of the registry, and models of other packages.

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
from tailwise.methods import build_model, get_method
from tailwise.resampling.smogn import RESAMPLERS
from tailwise.training.loop import TensorData, fit, predict
from tailwise_bench.problem import Problem
from tailwise_bench.recipe import Recipe, sorted_options
from tailwise_bench.sources.sentence_pairs import BatchesByLength
from tailwise_bench.spaces import Space, search_space
from tailwise_bench.trace import trace_of


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
    fixed: Mapping[str, Any] = field(default_factory=dict)
    """Options that `fit` always gets; they are recorded and never tuned."""
    uncertainty: str = "none"
    cost: float = 1.0
    """Rough cost of a fit, where one network is 1: the longest runs start first."""
    method: str | None = None
    """Registered method that this is with the options `fixed`; None for other packages."""
    tuned: bool = True
    """Whether the options of its search, and for methods those of `Recipe.search`, are tuned."""
    variants: Mapping[str, str] = field(default_factory=dict)
    """Titles of the further rows that each fit gives, by name; see `Outcome.variants`."""

    def trace(self, recipe: Recipe) -> dict[str, Any]:
        """Return what a results line says about its origin; see `tailwise_bench.trace`."""
        if self.method is None:
            return trace_of(None)
        options = {**recipe.weight_options(self.method, self.fixed), **self.fixed}
        return trace_of(self.method, options, accelerator=recipe.config.accelerator)

    def space(self, recipe: Recipe) -> Space:
        """Return all options that are tuned under a recipe, without those that are fixed."""
        if not self.tuned:
            return {}
        if self.method is None:
            return self.search
        taken = {*self.fixed, *recipe.weight_options(self.method, self.fixed)}
        for part, of in self.fixed.items():
            if isinstance(of, Mapping):
                taken |= {f"{part}.{key}" for key in of}
        return {name: of for name, of in {**self.search, **recipe.search}.items() if name not in taken}


def from_registry(method: str, **fixed: Any) -> Contender:
    """Return a registered method as a contender, with some options fixed."""
    registered = get_method(method)
    return Contender(
        name=method,
        title=registered.title,
        fit=partial(fit_method, method=method),
        search=search_space(method),
        fixed=fixed,
        uncertainty=registered.uncertainty,
        cost=float(fixed.get("members", registered.parts.members)),
        method=method,
    )


def fit_method(problem: Problem, options: Mapping[str, Any], recipe: Recipe, *, method: str) -> Outcome:
    """Train a method of the registry and predict both held-out parts."""
    train, count, own = sorted_options({**recipe.weight_options(method, options), **options})
    bins = problem.bins if count is None else LabelBins.from_labels(problem.y_train, count=count)
    config = replace(recipe.config, **train, seed=problem.seed)
    x, y = problem.x_train, problem.y_train
    began = time.process_time()
    torch.manual_seed(problem.seed)
    backbone = recipe.build(problem)
    dim = int(backbone.feature_dim)
    parts = get_method(method).parts.with_options(**own)
    reconstruction, decoder = parts.loss("reconstruction"), None
    if reconstruction is not None and not reconstruction.options["features"]:
        decoder = recipe.kind.decoder(problem, parts.latent.options.get("dim") or dim)
    model = build_model(method, backbone, dim, bins, decoder=decoder, **own)
    if model.method.resampling is not None:
        if x.ndim != 2:
            raise ValueError(
                f"{method} interpolates between rows of a table, but {problem.name} is not a table"
            )
        # Columns of two values are encoded categories: a synthetic row copies them from a real row.
        flags = [i for i in range(x.shape[1]) if np.unique(x[:, i]).size <= 2]
        x, y = RESAMPLERS[model.method.resampling](x, y, seed=problem.seed, categorical=flags)
    transform = None if recipe.augment is None else recipe.kind.augmentations[recipe.augment]
    inputs, labels = (torch.from_numpy(np.ascontiguousarray(array)) for array in (x, y))
    rows: Any = TensorData(inputs, labels, transform=transform)
    lengths = getattr(backbone, "row_lengths", None)
    if lengths is not None:
        rows = BatchesByLength(inputs, labels, lengths(inputs))
    valid = torch.from_numpy(problem.x_valid), torch.from_numpy(problem.y_valid)
    result = fit(model, rows, valid, config)
    fitted = time.process_time()
    on_valid, on_test = predict(model, valid[0]), predict(model, torch.from_numpy(problem.x_test))
    steps = len(result.history) * -(-len(y) // config.batch_size)
    return Outcome(
        valid=problem.scored("valid", on_valid),
        test=problem.scored("test", on_test),
        fit_seconds=fitted - began,
        predict_seconds=time.process_time() - fitted,
        epochs=result.best_epoch,
        gradients=steps * len(model.backbones) * (1 if model.sharpness is None else 2),
        parameters=sum(p.numel() for p in model.parameters()),
    )
