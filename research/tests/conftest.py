"""Small problems, a contender that costs nothing, and fixtures that the package's tests have too."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tailwise.distributions.members import Normal
from tailwise_bench.contenders import Contender, Outcome
from tailwise_bench.problem import Problem
from tailwise_bench.recipe import Recipe
from tailwise_bench.spaces import Range
from tailwise_bench.suites import Suite
from tests.conftest import data_root, torchvision  # noqa: F401


def small_problem(name: str = "small", seed: int = 0, rows: int = 160) -> Problem:
    """Skewed labels, four inputs of which one is a flag."""
    rng = np.random.default_rng(seed)

    def part(n: int) -> tuple[np.ndarray, np.ndarray]:
        x = rng.normal(size=(n, 4)).astype(np.float32)
        x[:, 3] = x[:, 3] > 0
        y = np.exp(0.5 * x[:, 0] + 0.3 * x[:, 1]) + 0.2 * rng.normal(size=n)
        return x, y

    parts = [array for n in (rows, 60, 60) for array in part(n)]
    return Problem(name, seed, *parts, total=rows + 120)


@dataclass(frozen=True)
class Small:
    """A data set of small problems."""

    name: str

    def problem(self, seed: int, max_rows: int = 0) -> Problem:
        return small_problem(self.name, seed)


class Offset:
    """Predicts the labels it may see, shifted by an option: cheap, and its error is the option."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, int, dict[str, Any]]] = []
        self.fails: Callable[[Problem, Mapping[str, Any]], bool] = lambda problem, options: False

    def fit(self, problem: Problem, options: Mapping[str, Any], recipe: Recipe) -> Outcome:
        self.calls.append((problem.name, problem.seed, dict(options)))
        if self.fails(problem, options):
            raise RuntimeError("it broke")
        shift = float(options.get("offset", 0.5))
        valid = torch.from_numpy(problem.y_valid) + shift
        test = torch.full((len(problem.x_test),), float(problem.y_train.mean()) - shift)
        return Outcome(Normal(valid, 1.0), Normal(test.double(), 1.0), 0.01, 0.001, 1, 3)

    def contender(self, name: str = "offset", **search: Range) -> Contender:
        return Contender(name=name, title=name.title(), fit=self.fit, search=search)


@pytest.fixture
def problem() -> Problem:
    """One small problem."""
    return small_problem()


@pytest.fixture
def recipe() -> Recipe:
    """A recipe of two epochs and two trials."""
    return Recipe(train={"epochs": 2}, backbone_options={"hidden": (8,)}, trials=2)


@pytest.fixture
def suite(recipe: Recipe) -> Suite:
    """Two data sets, two seeds."""
    return Suite("test", (Small("one"), Small("two")), "test", recipe, methods=("vanilla",), seeds=2)


@pytest.fixture
def offset() -> Offset:
    """A contender that remembers what it was asked."""
    return Offset()


@pytest.fixture
def untuned(suite: Suite) -> Suite:
    """The same suite with one trial."""
    return replace(suite, recipe=replace(suite.recipe, trials=1))


RESULTS = Path(__file__).parents[1] / "results"
