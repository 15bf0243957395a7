"""Search for the prior of VIR's head: a grid, then TPE, on Optuna (extra ``search``).

The study lives in a file that several processes share, so the search can be spread over cores or
machines with a common disk, stopped and resumed.
"""

from __future__ import annotations

import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import torch

from tailwise.benchmark.data.problems import Problem
from tailwise.benchmark.run.contenders import Recipe, from_registry
from tailwise.benchmark.run.search import require_optuna
from tailwise.core.metrics import get_metric

GRID: dict[str, tuple[float, ...]] = {"nu": (0.1, 1.0), "alpha": (1.5, 2.5), "beta": (0.01, 1.0)}
"""Tried first, whatever TPE thinks."""
RANGES: dict[str, tuple[float, float]] = {"nu": (1e-3, 10.0), "alpha": (1.05, 5.0), "beta": (1e-4, 10.0)}
"""Where TPE looks after that: nu and beta on a log scale. gamma0 is 0, the mean label."""


@dataclass(frozen=True)
class FoundPrior:
    """The best prior (gamma, nu, alpha, beta) on the standardised scale, and how it was found."""

    prior: tuple[float, float, float, float]
    score: float
    trials: int


def _study(storage: Path, name: str, seed: int) -> Any:
    optuna = require_optuna()
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend

    storage.parent.mkdir(parents=True, exist_ok=True)
    return optuna.create_study(
        study_name=name,
        storage=JournalStorage(JournalFileBackend(str(storage))),
        sampler=optuna.samplers.TPESampler(seed=seed, n_startup_trials=0),
        load_if_exists=True,
    )


def _search(
    folder: Path, data: str, storage: Path, trials: int, criterion: str, recipe: Recipe, worker: int
) -> None:
    """Take trials from the shared study until it has enough of them."""
    from optuna.study import MaxTrialsCallback
    from optuna.trial import TrialState

    torch.set_num_threads(1)
    problem = Problem.load(folder, data, 0)
    vir, metric = from_registry("vir", tuned=False), get_metric(criterion)

    def objective(trial: Any) -> float:
        nu, alpha, beta = (
            trial.suggest_float(name, *RANGES[name], log=name != "alpha") for name in ("nu", "alpha", "beta")
        )
        outcome = vir.fit(problem, {"head_options.prior": (0.0, nu, alpha, beta)}, recipe)
        return metric.loss(metric(outcome.valid, problem.y_valid, problem.bins))

    enough = MaxTrialsCallback(trials, states=(TrialState.COMPLETE,))
    study = _study(storage, data, worker)
    if sum(t.state == TrialState.COMPLETE for t in study.trials) < trials:
        study.optimize(objective, callbacks=[enough], catch=(RuntimeError,))


def search_prior(
    prepared: Path,
    data: str,
    *,
    storage: Path,
    trials: int = 40,
    workers: int = 1,
    criterion: str = "balanced_nll",
    recipe: Recipe | None = None,
) -> FoundPrior:
    """Search VIR's prior on one data set by a validation metric: the grid first, then TPE.

    The test part is never read. With the same `storage` a second call, or a second process, goes on.
    """
    recipe = recipe or Recipe()
    study = _study(storage, data, 0)
    for values in product(*GRID.values()):
        study.enqueue_trial(dict(zip(GRID, values, strict=True)), skip_if_exists=True)
    job = (prepared, data, storage, trials, criterion, recipe)
    if workers == 1:
        _search(*job, 0)
    else:
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(workers, mp_context=context) as pool:
            for future in [pool.submit(_search, *job, worker) for worker in range(workers)]:
                future.result()
    best = _study(storage, data, 0).best_trial
    prior = (0.0, best.params["nu"], best.params["alpha"], best.params["beta"])
    finished = [t for t in study.trials if t.value is not None]
    return FoundPrior(prior, float(best.value), len(finished))
