"""The choice of every method's defaults on data sets that no comparison uses (suite ``development``).

Every method gets the same number of configurations of its own space (`search` and `explore` of the registry).
`Study` proposes them, the present default first, and all run with the first seed. The best one is then
compared with the present default on the other seeds, and replaces it only if it is better there by more than
one standard error over the data sets and by more than `LEAST`. The score is `SCORE` on the validation parts.
Test parts are never read, and the optimiser's options are always the recipe's.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections import deque
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from tailwise._version import __version__
from tailwise.calibration.scaling import balanced_weights, fit_scaling
from tailwise.methods import available_methods
from tailwise.metrics.regions import get_metric
from tailwise.writing import claimed
from tailwise_bench.data.problems import Problem
from tailwise_bench.data.recipe import Recipe
from tailwise_bench.data.spaces import Space, search_space
from tailwise_bench.data.suites import prepared_data
from tailwise_bench.run.contenders import from_registry
from tailwise_bench.run.results import Record, ResultsFile, check_comparable
from tailwise_bench.run.run_display import show_runs
from tailwise_bench.run.runs import Summary
from tailwise_bench.run.search import Study
from tailwise_bench.run.trace import changed_parts, describe_changes, machine, trace_of
from tailwise_bench.run.workers import Workers

SCORE = "balanced_crps"
"""Metric of calibrated predictions. It measures accuracy and uncertainty of every method in the same way; a
point prediction counts as a Gaussian of constant variance."""
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
Options = dict[str, Any]
Scores = Mapping[str, float | None]


def own_space(method: str) -> Space:
    """Return the space that a method's defaults are chosen from; empty for presets, which are only scored."""
    whole = {} if method in PRESETS else search_space(method, explore=True)
    return {name: of for name, of in whole.items() if name not in DEFINING.get(method, ())}


def mean_log(scores: Scores) -> float:
    """Return the mean logarithm over data sets; infinite if the configuration failed on one."""
    known = [score for score in scores.values() if score is not None]
    return float(np.mean(np.log(known))) if len(known) == len(scores) else math.inf


# -- one fit -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Fit:
    """A configuration to fit on one data set."""

    method: str
    seed: int
    options: Options
    data: str


@lru_cache(maxsize=32)
def _loaded(folder: Path, name: str, seed: int) -> Problem:
    return Problem.load(folder, name, seed)


def score_of(fit: Fit, *, folder: Path, recipe: Recipe) -> tuple[float | None, float]:
    """Return the score on the validation part (None if training failed) and the seconds of the fit."""
    problem = _loaded(folder, fit.data, fit.seed)
    try:
        outcome = from_registry(fit.method, tuned=False).fit(problem, fit.options, recipe)
        weights = balanced_weights(problem.y_valid, problem.bins)
        calibrated = fit_scaling(outcome.valid, problem.y_valid, weights=weights).apply(outcome.valid)
        score = get_metric(SCORE)(calibrated, problem.y_valid, problem.bins)
    except RuntimeError:  # not finite or not invertible: only this configuration fails
        return None, 0.0
    return (float(f"{score:.6g}") if math.isfinite(score) else None), outcome.fit_seconds


# -- all of them ---------------------------------------------------------------------------------

Question = tuple[int, Options]
Dialogue = Generator[list[Question], list[Scores], None]


class Proposals(Protocol):
    """A search: `ask` returns configurations, the default first, and `tell` takes their losses."""

    def ask(self) -> Options | None:
        """Return the next configuration; None when there is no other to try."""

    def tell(self, loss: float) -> None:
        """Take the loss of the last configuration."""


def own_study(method: str, trials: int) -> Proposals:
    """Return the search of all options of a method."""
    return Study(own_space(method), trials)


def questions(study: Proposals, seeds: Sequence[int]) -> Dialogue:
    """Yield lists of (seed, configuration) and receive their scores, which decide what is yielded next."""
    tried: list[tuple[float, Options]] = []
    while (options := study.ask()) is not None:
        (scores,) = yield [(seeds[0], options)]
        loss = mean_log(scores)
        study.tell(loss)
        tried.append((loss, options))
    best = min(tried, key=lambda pair: pair[0])[1]
    if best != tried[0][1]:
        yield [(seed, options) for seed in seeds[1:] for options in (tried[0][1], best)]


def _key(method: str, question: Question) -> tuple[str, int, str]:
    return method, question[0], json.dumps(question[1])


class _Choices:
    """For all methods: the scores that are known, and the fits that come next."""

    def __init__(
        self, dialogues: Mapping[str, Dialogue], data: Sequence[str], known: Iterable[Record]
    ) -> None:
        self.data, self.queue, self.dialogues = data, deque[Fit](), dialogues
        self.known = {_key(r["method"], (r["seed"], r["options"])): r["scores"] for r in known}
        self.asked: dict[str, list[Question]] = {}
        self.partial: dict[tuple[str, int, str], Record] = {}
        for method, dialogue in dialogues.items():
            self.asked[method] = next(dialogue)
            self._go_on(method)

    def _go_on(self, method: str) -> None:
        """Send known scores to the method's dialogue; queue the fits of unknown ones."""
        while all(_key(method, q) in self.known for q in self.asked[method]):
            answers = [self.known[_key(method, q)] for q in self.asked[method]]
            try:
                self.asked[method] = self.dialogues[method].send(answers)
            except StopIteration:
                return
        for question in self.asked[method]:
            if _key(method, question) not in self.known:
                seed, options = question
                self.queue.extend(Fit(method, seed, options, name) for name in self.data)
                self.partial[_key(method, question)] = {
                    "method": method, "seed": seed, "options": options, "scores": {}, "seconds": 0.0,
                }  # fmt: skip

    def take(self, fit: Fit, score: float | None, seconds: float) -> Record | None:
        """Store a score; return the line of a configuration after its last score."""
        key = _key(fit.method, (fit.seed, fit.options))
        line = self.partial[key]
        line["scores"][fit.data] = score
        line["seconds"] = round(line["seconds"] + seconds, 3)
        if len(line["scores"]) < len(self.data):
            return None
        line["scores"] = {name: line["scores"][name] for name in self.data}
        self.known[key] = self.partial.pop(key)["scores"]
        if all(_key(fit.method, q) in self.known for q in self.asked[fit.method]):
            self._go_on(fit.method)
        return line


def choose_defaults(
    prepared: Path,
    *,
    out: Path,
    seeds: Sequence[int],
    recipe: Recipe,
    methods: Sequence[str] | None = None,
    study: Callable[[str, int], Proposals] = own_study,
    workers: int = 1,
    time_limit: float | None = None,
    progress: bool | None = None,
) -> Summary:
    """Search the defaults of every method; `out` gets one line per configuration and seed.

    `study` returns the search of a method with a number of trials. Lines that `out` already has are not run
    again. `decisions` reads the result from the lines. After `time_limit` seconds the rest is left for the
    next call.
    """
    data = prepared_data(prepared, seeds)
    chosen = list(methods or available_methods())
    results = ResultsFile(out)
    check_comparable(results.records, recipe, out)
    digests = {seed: _digest(prepared, data, seed) for seed in seeds}
    for record in results.records:
        if record["digest"] != digests.get(record["seed"], record["digest"]):
            raise ValueError(f"{out} was made with other data than {prepared}: name another file")
    for record in results.records:
        if changes := changed_parts(record):
            raise ValueError(
                f"{out} has lines of {record['method']} before it changed ({describe_changes(changes)}): "
                "delete them or name another file"
            )
    for method, first in first_lines(results.records).items():
        if method not in chosen:
            continue
        present = json.loads(json.dumps(study(method, recipe.trials).ask()))
        if first["options"] != present:
            raise ValueError(
                f"{out} has a search that began with another default of {method}: name another file"
            )
    dialogues = {name: questions(study(name, recipe.trials), seeds) for name in chosen}
    plan = _Choices(dialogues, data, results.records)
    summary = Summary()
    searched = sum(study is not own_study or bool(own_space(name)) for name in chosen)
    expected = len(chosen) + searched * (recipe.trials - 1 + 2 * (len(seeds) - 1)) - len(results.records)
    display = show_runs(progress, expected, float(expected))
    work = partial(score_of, folder=prepared.absolute(), recipe=recipe)
    with claimed(out), Workers(work, workers, time_limit) as crew, display as update:
        while (plan.queue or crew.running) and crew.in_time:
            while plan.queue and crew.free:
                crew.submit(plan.queue.popleft())
            for fit, (score, seconds) in crew.finished():
                line = plan.take(fit, score, seconds)
                if line is not None:
                    about = {"digest": digests[fit.seed], "recipe": recipe.describe(), "version": __version__}
                    about |= {"machine": machine(), "trace": _trace(line, recipe)}
                    results.append({**line, **about})
                    summary.done += 1
                    text = f"{fit.method} seed {fit.seed}: {mean_log(line['scores']):.4f}"
                    update(1.0, f"{text} in {line['seconds']:.1f} s")
        # The exact number is only known at the end: a default that is best needs no check.
        summary.left = max(expected - summary.done, 1) if plan.partial else 0
    summary.seconds = crew.elapsed
    return summary


def _trace(line: Record, recipe: Recipe) -> dict[str, Any]:
    return trace_of(line["method"], line["options"], accelerator=recipe.train.accelerator)


def first_lines(records: Iterable[Record]) -> dict[str, Record]:
    """Return the first line of every method, which belongs to its default at the time."""
    found: dict[str, Record] = {}
    for record in records:
        found.setdefault(record["method"], record)
    return found


def _digest(prepared: Path, data: Sequence[str], seed: int) -> str:
    whole = "".join(Problem.load(prepared, name, seed).digest for name in data)
    return hashlib.sha256(whole.encode()).hexdigest()[:12]


# -- decisions -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Decision:
    """The best configuration of a method's search compared with its default at the time."""

    method: str
    trials: int
    default: Options
    best: Options
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

    @property
    def chosen(self) -> Options:
        """The new default."""
        return self.best if self.adopted else self.default


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
