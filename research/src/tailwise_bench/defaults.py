"""The choice of a method's defaults on data sets that no comparison uses (suite ``development``).

`Study` proposes configurations of a method's space, the present default first; all run with the first seed.
The best one is compared with the present default on the other seeds. It replaces the default only if it is
better there by more than one standard error over the data sets and by more than `LEAST`. The score is `SCORE`
on the validation parts; test parts are never read.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from joblib import Parallel, delayed

from tailwise._version import __version__
from tailwise.calibration.scaling import balanced_weights, fit_scaling
from tailwise.methods import available_methods
from tailwise.methods.plugins import load_plugin, loaded_plugins
from tailwise.metrics.regions import get_metric
from tailwise.report.results import Record, append_record, machine, read_records
from tailwise.writing import claimed
from tailwise_bench.contenders import from_registry
from tailwise_bench.problem import Problem
from tailwise_bench.search import Study
from tailwise_bench.spaces import Space, search_space
from tailwise_bench.suites import Suite, prepare
from tailwise_bench.trace import trace_of

SCORE = "balanced_crps"
"""Metric of calibrated predictions; a point prediction counts as a Gaussian of constant variance."""
PRESETS = ("vir-dial", "vir-paper", "vir-reference")
"""Methods whose settings are given: as published, or as the estimator has them."""
DEFINING = {
    "inv": ("weights.power",),
    "sqinv": ("weights.power",),
    "balanced-nll": ("balanced-nll.t",),
}
"""Options that define a method; they may be tuned, but their defaults are given."""
LEAST = 0.005
"""A new default must lower the score by at least this share."""
Scores = Mapping[str, float | None]


def own_space(method: str) -> Space:
    """Return the space that a method's defaults are chosen from; empty for presets, which are only scored."""
    whole = {} if method in PRESETS else search_space(method, explore=True)
    return {name: of for name, of in whole.items() if name not in DEFINING.get(method, ())}


def mean_log(scores: Scores) -> float:
    """Return the mean logarithm over data sets; infinite if the configuration failed on one."""
    known = [score for score in scores.values() if score is not None]
    return float(np.mean(np.log(known))) if len(known) == len(scores) else math.inf


def choose_defaults(
    suite: Suite,
    methods: Sequence[str],
    *,
    out: Path,
    work: Path,
    workers: int = 1,
    report: Callable[[str], None] = lambda line: None,
) -> None:
    """Search the defaults of methods; `out` gets one line per configuration and seed.

    Lines that `out` has are not run again. A method's search runs in one process, and its lines are written
    when it ends.
    """
    seeds = list(range(suite.seeds))
    folder = prepare(suite, work / suite.name, seeds, report=report).absolute()
    known = read_records(out)
    jobs = (delayed(_search)(suite, name, seeds, folder, known, loaded_plugins()) for name in methods)
    with claimed(out):
        for lines in Parallel(workers, return_as="generator_unordered", batch_size=1)(jobs):
            for line in lines:
                append_record(out, line)
                report(f"{line['method']} seed {line['seed']}: {mean_log(line['scores']):.4f}")


def _search(
    suite: Suite,
    method: str,
    seeds: Sequence[int],
    folder: Path,
    known: Iterable[Record],
    plugins: Sequence[str],
) -> list[Record]:
    """Return the new lines of a method's search and of the check of its best configuration."""
    for file in plugins:
        load_plugin(file)
    torch.set_num_threads(1)
    stored: dict[tuple[int, str], Scores] = {
        (r["seed"], json.dumps(r["options"])): r["scores"] for r in known if r["method"] == method
    }
    lines: list[Record] = []

    def scores_of(seed: int, options: dict[str, Any]) -> Scores:
        key = seed, json.dumps(options)
        if key not in stored:
            found = {s.name: score(suite, folder, s.name, method, seed, options) for s in suite.sources}
            stored[key] = {name: score for name, (score, _) in found.items()}
            lines.append(
                {
                    "method": method,
                    "seed": seed,
                    "options": options,
                    "scores": stored[key],
                    "seconds": round(sum(seconds for _, seconds in found.values()), 3),
                    "recipe": suite.recipe.describe(),
                    "version": __version__,
                    "machine": machine(),
                    "trace": trace_of(method, options, accelerator=suite.recipe.train.accelerator),
                }
            )
        return stored[key]

    study, tried = Study(own_space(method), suite.recipe.trials), list[tuple[float, dict[str, Any]]]()
    while (options := study.ask()) is not None:
        loss = mean_log(scores_of(seeds[0], options))
        study.tell(loss)
        tried.append((loss, options))
    best = min(tried, key=lambda pair: pair[0])[1]
    if best != tried[0][1]:
        for seed in seeds[1:]:
            for options in (tried[0][1], best):
                scores_of(seed, options)
    return lines


def score(
    suite: Suite, folder: Path, data: str, method: str, seed: int, options: dict[str, Any]
) -> tuple[float | None, float]:
    """Return the score on the validation part (None if training failed) and the seconds of the fit."""
    problem = Problem.load(folder, data, seed)
    try:
        outcome = from_registry(method, tuned=False).fit(problem, options, suite.recipe)
        weights = balanced_weights(problem.y_valid, problem.bins)
        calibrated = fit_scaling(outcome.valid, problem.y_valid, weights=weights).apply(outcome.valid)
        value = get_metric(SCORE)(calibrated, problem.y_valid, problem.bins)
    except RuntimeError:  # not finite or not invertible: only this configuration fails
        return None, 0.0
    return (float(f"{value:.6g}") if math.isfinite(value) else None), outcome.fit_seconds


# -- decisions -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Decision:
    """The best configuration of a method's search compared with its default at the time."""

    method: str
    trials: int
    default: dict[str, Any]
    best: dict[str, Any]
    found: float
    """Mean over data sets of the logarithm of best over default score, with the seed of the search."""
    change: float = math.nan
    """The same with the other seeds, which decides; NaN if nothing was checked."""
    error: float = math.nan
    """Standard error of `change` over data sets."""

    @property
    def adopted(self) -> bool:
        """Whether the best configuration becomes the default."""
        return self.change < -max(self.error, LEAST)


def decisions(records: Iterable[Record]) -> list[Decision]:
    """Return a decision for every method with lines, in the order of the registry."""
    by_method: dict[str, list[Record]] = {}
    for record in records:
        by_method.setdefault(record["method"], []).append(record)
    return [_decide(name, by_method[name]) for name in available_methods() if name in by_method]


def _decide(method: str, lines: Sequence[Record]) -> Decision:
    first = lines[0]["seed"]
    search = [line for line in lines if line["seed"] == first]
    default, best = search[0], min(search, key=lambda line: mean_log(line["scores"]))
    found = mean_log(best["scores"]) - mean_log(default["scores"])
    decision = partial(Decision, method, len(search), default["options"], best["options"], found)
    old, new = (
        {line["seed"]: line["scores"] for line in lines if line["options"] == of["options"]}
        for of in (default, best)
    )
    seeds = sorted(old.keys() & new.keys() - {first})
    if best is default or not seeds:
        return decision()
    changes = [[log_ratio(new[seed][name], old[seed][name]) for name in old[seed]] for seed in seeds]
    return decision(*mean_and_error(np.mean(changes, axis=0)))


def log_ratio(new: float | None, old: float | None) -> float:
    """Return the logarithm of new over old; NaN if one is missing."""
    return math.nan if new is None or old is None else math.log(new / old)


def mean_and_error(by_data: Sequence[float] | np.ndarray) -> tuple[float, float]:
    """Return the mean over data sets and its standard error."""
    return float(np.mean(by_data)), float(np.std(by_data, ddof=1) / math.sqrt(len(by_data)))
