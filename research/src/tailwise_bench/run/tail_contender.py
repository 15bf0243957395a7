"""`TailRegressor` as a contender: one fit gives a row at its own emphasis and one at emphasis 1."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import numpy as np

from tailwise.distributions.members import Distribution
from tailwise.estimator import TailRegressor
from tailwise_bench.data.problems import Problem
from tailwise_bench.data.recipe import Recipe
from tailwise_bench.run.contenders import Contender, Outcome
from tailwise_bench.run.trace import ESTIMATOR

TAIL, TAIL_BALANCED = "tail", "tail-balanced"


def fit_tail_regressor(problem: Problem, options: Mapping[str, Any], recipe: Recipe) -> Outcome:
    """Fit the estimator with its defaults on the training part; it holds out rows of this part itself.

    Of the recipe it has the maximum number of epochs. `options` are parameters of the estimator.
    """
    if problem.x_train.ndim != 2:
        raise ValueError(f"TailRegressor takes tables, but {problem.name} is not a table")
    many, few = problem.shots
    began = time.process_time()
    model = TailRegressor(
        bins=problem.edges,
        epochs=recipe.train.epochs,
        many=many,
        few=few,
        device="cpu",
        random_state=problem.seed,
        **options,
    ).fit(problem.x_train, problem.y_train)
    seconds = time.process_time() - began
    balanced = _outcome(model, problem, seconds, emphasis=1.0)
    return _outcome(model, problem, seconds, variants={TAIL_BALANCED: balanced})


def _outcome(
    model: TailRegressor,
    problem: Problem,
    fit_seconds: float,
    *,
    emphasis: float | None = None,
    variants: Mapping[str, Outcome] | None = None,
) -> Outcome:
    def predicted(x: Any) -> Distribution:
        found = model.predict_distribution(x, emphasis=emphasis)
        assert isinstance(found, Distribution)  # one target
        return found

    began = time.process_time()
    valid, test = predicted(problem.x_valid), predicted(problem.x_test)
    seconds = time.process_time() - began
    lower, upper = np.asarray(model.predict_interval(problem.x_test, emphasis=emphasis), np.float64).T
    return Outcome(
        valid=valid,
        test=test,
        fit_seconds=fit_seconds,
        predict_seconds=seconds,
        epochs=max(history.best_epoch for history in model.histories_),
        parameters=sum(p.numel() for network in model.networks_ for p in network.parameters()),
        limits=(lower, upper),
        variants=variants or {},
    )


def tail_contender() -> Contender:
    """Return the estimator as a contender. It is not tuned."""
    return Contender(
        name=TAIL,
        title="TailRegressor",
        fit=fit_tail_regressor,
        uncertainty="aleatoric and epistemic",
        cost=15.0,
        base=ESTIMATOR,
        variants={TAIL_BALANCED: "TailRegressor, emphasis 1"},
    )
