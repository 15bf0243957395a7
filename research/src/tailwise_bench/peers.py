"""Gradient boosting of other packages on the same splits.

Each model predicts a Gaussian per row and is calibrated like every other contender. The number of trees is
chosen by the criterion on the validation part, as early stopping does for networks. A second variant of each
weights its training rows by LDS, which shows the effect of weights alone.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from tailwise.distributions.members import Normal
from tailwise.labels.kernels import label_weights
from tailwise.metrics.regions import get_metric
from tailwise_bench.contenders import Contender, Outcome
from tailwise_bench.problem import Problem
from tailwise_bench.recipe import Recipe
from tailwise_bench.spaces import Range, Space

Array = NDArray[np.float64]
STEP = 10
"""The number of trees is chosen among multiples of this."""


class Boosted(Protocol):
    """Fitted trees, `trees` of them, that can predict with the first few."""

    trees: int

    def predict(self, x: NDArray[Any], trees: int) -> tuple[Array, Array]:
        """Return means and variances (N,) predicted by the first `trees` trees."""


class _CatBoost:
    trees = 400

    def __init__(self, problem: Problem, w: Array | None, options: Mapping[str, Any]) -> None:
        from catboost import CatBoostRegressor

        self.model = CatBoostRegressor(
            loss_function="RMSEWithUncertainty", iterations=self.trees, random_seed=problem.seed,
            thread_count=1, verbose=False, allow_writing_files=False, **options,
        )  # fmt: skip
        self.model.fit(problem.x_train, problem.y_train, sample_weight=w)

    def predict(self, x: NDArray[Any], trees: int) -> tuple[Array, Array]:
        pairs = self.model.predict(x, prediction_type="RMSEWithUncertainty", ntree_end=trees, thread_count=1)
        return pairs[:, 0], pairs[:, 1]


class _LightGBM:
    trees = 400

    def __init__(self, problem: Problem, w: Array | None, options: Mapping[str, Any]) -> None:
        import lightgbm

        settings = {"objective": "regression", "num_threads": 1, "verbosity": -1, **options}
        rows = lightgbm.Dataset(problem.x_train, problem.y_train, weight=w)
        self.model = lightgbm.train({**settings, "seed": problem.seed}, rows, num_boost_round=self.trees)
        self.variance = problem.bins.scale**2  # of a point prediction; calibration scales it

    def predict(self, x: NDArray[Any], trees: int) -> tuple[Array, Array]:
        means = np.asarray(self.model.predict(x, num_iteration=trees), np.float64)
        return means, np.full_like(means, self.variance)


class _NGBoost:
    trees = 200

    def __init__(self, problem: Problem, w: Array | None, options: Mapping[str, Any]) -> None:
        from ngboost import NGBRegressor
        from sklearn.tree import DecisionTreeRegressor

        chosen = dict(options)
        base = DecisionTreeRegressor(max_depth=chosen.pop("max_depth"), random_state=problem.seed)
        self.model = NGBRegressor(
            Base=base, n_estimators=self.trees, random_state=problem.seed, verbose=False, **chosen
        )
        self.model.fit(problem.x_train.astype(np.float64), problem.y_train, sample_weight=w)

    def predict(self, x: NDArray[Any], trees: int) -> tuple[Array, Array]:
        found = self.model.pred_dist(x.astype(np.float64), max_iter=trees)
        return found.loc, found.scale**2


_PEERS: dict[str, tuple[str, Callable[..., Boosted], Space]] = {
    "catboost": (
        "CatBoost",
        _CatBoost,
        {
            "learning_rate": Range(0.02, 0.2, default=0.05),
            "depth": (6, 4, 8),
            "l2_leaf_reg": Range(0.3, 30.0, default=3.0),
        },
    ),
    "lightgbm": (
        "LightGBM",
        _LightGBM,
        {
            "learning_rate": Range(0.02, 0.2, default=0.05),
            "num_leaves": (31, 7, 15, 63),
            "min_data_in_leaf": (20, 5, 10),
        },
    ),
    "ngboost": (
        "NGBoost",
        _NGBoost,
        {
            "learning_rate": Range(0.02, 0.2, default=0.1),
            "max_depth": (3, 4, 5),
            "minibatch_frac": (1.0, 0.5),
        },
    ),
}


def fit_peer(
    problem: Problem, options: Mapping[str, Any], recipe: Recipe, *, peer: str, weighted: bool
) -> Outcome:
    """Fit trees, choose their number by the criterion on the validation part, and predict."""
    chosen, w = dict(options), None
    if weighted:
        per_bin = label_weights(problem.bins, power=chosen.pop("weights.power"))
        w = per_bin[problem.bins.index(problem.y_train)]
    criterion = get_metric(recipe.criterion)

    def normal(pair: tuple[Array, Array]) -> Normal:
        mean, variance = (torch.from_numpy(np.ascontiguousarray(part, np.float64)) for part in pair)
        return Normal(mean, variance)

    began = time.process_time()
    model = _PEERS[peer][1](problem, w, chosen)
    losses = []
    for trees in range(STEP, model.trees + 1, STEP):
        tried = normal(model.predict(problem.x_valid, trees))
        losses.append((criterion.loss(criterion(tried, problem.y_valid, problem.bins)), trees))
    best = min(losses, key=lambda pair: (not math.isfinite(pair[0]), pair))[1]
    fitted = time.process_time()
    valid, test = (normal(model.predict(x, best)) for x in (problem.x_valid, problem.x_test))
    return Outcome(valid, test, fitted - began, time.process_time() - fitted, best)


def peer_contenders() -> list[Contender]:
    """Return the peers, each with and without LDS weights."""
    found = []
    for name, (title, _, search) in _PEERS.items():
        for weighted in (False, True):
            knobs: Space = {"weights.power": Range(0.0, 1.0, log=False, default=0.5)} if weighted else {}
            found.append(
                Contender(
                    name=f"{name}-lds" if weighted else name,
                    title=f"{title} + LDS" if weighted else title,
                    fit=partial(fit_peer, peer=name, weighted=weighted),
                    search={**knobs, **search},
                    uncertainty="none" if name == "lightgbm" else "aleatoric",
                    cost=4.0 if name == "ngboost" else 1.0,
                )
            )
    return found
