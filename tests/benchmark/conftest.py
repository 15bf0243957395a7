"""Small problems and contenders that cost nothing, for what the runner does with them."""

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tailwise.benchmark import Contender, Outcome, Problem, Recipe
from tailwise.distributions.members import Normal
from tailwise.training.loop import TrainConfig
from tests.command_line import invoke


def make_small_problem(name: str = "small", seed: int = 0, rows: int = 160) -> Problem:
    """Skewed labels, four inputs of which one is a flag."""
    rng = np.random.default_rng(seed)

    def part(n: int) -> tuple[np.ndarray, np.ndarray]:
        x = rng.normal(size=(n, 4)).astype(np.float32)
        x[:, 3] = x[:, 3] > 0
        y = np.exp(0.5 * x[:, 0] + 0.3 * x[:, 1]) + 0.2 * rng.normal(size=n)
        return x, y

    (xa, ya), (xb, yb), (xc, yc) = part(rows), part(60), part(60)
    return Problem(name, seed, xa, ya, xb, yb, xc, yc, total=rows + 120, suite="test")


@pytest.fixture
def problem() -> Problem:
    """One small problem."""
    return make_small_problem()


def prepare_small_problems(folder: Path) -> Path:
    """Write two data sets with two seeds to a folder."""
    folder.mkdir()
    for name in ("one", "two"):
        for seed in (0, 1):
            make_small_problem(name, seed).save(folder)
    return folder


@pytest.fixture
def prepared(tmp_path: Path) -> Path:
    """A folder with two data sets and two seeds."""
    return prepare_small_problems(tmp_path / "prepared")


@pytest.fixture
def recipe() -> Recipe:
    """A recipe of two epochs and two trials."""
    return Recipe(train=TrainConfig(epochs=2, accelerator="cpu"), backbone_options={"hidden": (8,)}, trials=2)


def without_times(record: dict[str, Any]) -> dict[str, Any]:
    """What two equal runs must agree in."""
    kept = {key: value for key, value in record.items() if key != "seconds"}
    if "trials" in kept:
        kept["trials"] = [{k: v for k, v in t.items() if k != "seconds"} for t in record["trials"]]
    return kept


class Offset:
    """Predicts the labels it may see, shifted by an option: cheap, and its error is the option."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, int, dict[str, Any]]] = []
        self.fails: Callable[[Problem, Mapping[str, Any]], bool] = lambda problem, options: False

    def fit(self, problem: Problem, options: Mapping[str, Any], recipe: Recipe) -> Outcome:
        """Validation is off by `offset`; the test part by the reverse of it."""
        self.calls.append((problem.name, problem.seed, dict(options)))
        if self.fails(problem, options):
            raise RuntimeError("it broke")
        shift = float(options.get("offset", 0.5))
        valid = torch.from_numpy(problem.y_valid) + shift
        test = torch.full((len(problem.x_test),), float(problem.y_train.mean()) - shift)
        return Outcome(Normal(valid, 1.0), Normal(test.double(), 1.0), 0.01, 0.001, 1, 3)

    def contender(self, name: str = "offset", **search: tuple[Any, ...]) -> Contender:
        """Wrap as a contender with a search space."""
        return Contender(name=name, title=name.title(), fit=self.fit, search=search)


@pytest.fixture
def offset() -> Offset:
    """A contender that remembers what it was asked."""
    return Offset()


def run_bench(arguments: Sequence[object]) -> int:
    """Run ``tailwise bench`` in this process and return its exit code; its output goes where ours goes."""
    result = invoke("bench", *arguments)
    sys.stdout.write(result.stdout)
    sys.stderr.write(result.stderr)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code
