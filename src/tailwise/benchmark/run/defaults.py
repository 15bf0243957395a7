"""Defaults of every method, chosen alike on data sets that no comparison uses (suite ``development``).

Each method has the same number of configurations of its own space (`search` and `explore` of the
registry), proposed by `Study`, the present default first, all with the first seed. The best one is then
held against the present default with the other seeds, and replaces it only if it is better there
by more than one standard error over the data sets, and by `LEAST`. Everything goes by `SCORE` of the
validation parts; test parts are never read, and the optimiser is the recipe's own throughout.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections import deque
from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from tailwise._version import __version__
from tailwise.benchmark.data.problems import Problem
from tailwise.benchmark.data.suites import prepared_data
from tailwise.benchmark.pages.markup import Table
from tailwise.benchmark.run.contenders import Recipe, from_registry
from tailwise.benchmark.run.display import make_progress
from tailwise.benchmark.run.results import Record, ResultsFile, check_comparable
from tailwise.benchmark.run.runs import Summary
from tailwise.benchmark.run.search import Study, default_options
from tailwise.benchmark.run.workers import Workers
from tailwise.core.metrics import get_metric
from tailwise.data.writing import write_atomically
from tailwise.methods import Space, available_methods, get_method
from tailwise.uncertainty.scaling import balanced_weights, fit_scaling

SCORE = "balanced_crps"
"""Of calibrated predictions: it asks for accuracy and for honest uncertainty, of every method alike,
a point prediction counting as a Gaussian of constant variance."""
PRESETS = ("vir-paper", "vir-reference")
"""Methods whose settings are others' and stay as published."""
DEFINING = {"inv": ("weights.power",), "sqinv": ("weights.power",)}
"""Options that make a method what its name says; they may be tuned, but its default is given."""
LEAST = 0.005
"""Share of the score that a new default must gain at least."""
Options = dict[str, Any]
Scores = Mapping[str, float | None]


def own_space(method: str) -> Space:
    """All that a method's defaults are chosen among; nothing for presets, which are only scored."""
    found = get_method(method)
    whole = {} if method in PRESETS else {**found.search, **found.explore}
    return {name: of for name, of in whole.items() if name not in DEFINING.get(method, ())}


def mean_log(scores: Scores) -> float:
    """Mean over data sets of the logarithm; infinite if a configuration failed on any."""
    known = [score for score in scores.values() if score is not None]
    return float(np.mean(np.log(known))) if len(known) == len(scores) else math.inf


# -- one fit -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Fit:
    """A configuration to be fitted to one data set."""

    method: str
    seed: int
    options: Options
    data: str


@lru_cache(maxsize=32)
def _loaded(folder: Path, name: str, seed: int) -> Problem:
    return Problem.load(folder, name, seed)


def _work(fit: Fit, *, folder: Path, recipe: Recipe) -> tuple[float | None, float]:
    """Score on the validation part, None if training failed, and the seconds it took."""
    problem = _loaded(folder, fit.data, fit.seed)
    try:
        outcome = from_registry(fit.method, tuned=False).fit(problem, fit.options, recipe)
        weights = balanced_weights(problem.y_valid, problem.bins)
        calibrated = fit_scaling(outcome.valid, problem.y_valid, weights=weights).apply(outcome.valid)
        score = get_metric(SCORE)(calibrated, problem.y_valid, problem.bins)
    except RuntimeError:  # not finite, or not invertible: this configuration only
        return None, 0.0
    return (float(f"{score:.6g}") if math.isfinite(score) else None), outcome.fit_seconds


# -- all of them ---------------------------------------------------------------------------------

Question = tuple[int, Options]
Dialogue = Generator[list[Question], list[Scores], None]


def questions(space: Space, trials: int, seeds: Sequence[int]) -> Dialogue:
    """Ask for the scores of configurations with a seed; what is asked next depends on the answers."""
    study, tried = Study(space, trials), []
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
    """What is known and what has to be fitted next, for all methods."""

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
        """Answer what is known; put what is not into the queue."""
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
        """Note a score; the whole line when it was the last one of its configuration."""
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
    workers: int = 1,
    time_limit: float | None = None,
    progress: bool | None = None,
) -> Summary:
    """Run the search of every method; skip what `out` holds, one line per configuration and seed.

    `decisions` says what comes of it. After `time_limit` seconds the rest is left for the next call.
    """
    data = prepared_data(prepared, seeds)
    chosen = list(methods or available_methods())
    results = ResultsFile(out)
    check_comparable(results.records, recipe, out)
    digests = {seed: _digest(prepared, data, seed) for seed in seeds}
    for record in results.records:
        if record["digest"] != digests.get(record["seed"], record["digest"]):
            raise ValueError(f"{out} was made with other data than {prepared}: name another file")
    for method, first in _first_lines(results.records).items():
        present = json.loads(json.dumps(default_options(own_space(method))))
        if method in chosen and first["options"] != present:
            raise ValueError(
                f"{out} holds a choice that began with another default of {method}: name another file"
            )
    dialogues = {name: questions(own_space(name), recipe.trials, seeds) for name in chosen}
    plan = _Choices(dialogues, data, results.records)
    summary = Summary()
    searched = sum(bool(own_space(name)) for name in chosen)
    expected = len(chosen) + searched * (recipe.trials - 1 + 2 * (len(seeds) - 1)) - len(results.records)
    display = make_progress(progress, expected, float(expected))
    work = partial(_work, folder=prepared.absolute(), recipe=recipe)
    with Workers(work, workers, time_limit) as crew, display:
        while (plan.queue or crew.flying) and crew.in_time:
            while plan.queue and crew.free:
                crew.submit(plan.queue.popleft())
            for fit, (score, seconds) in crew.finished():
                line = plan.take(fit, score, seconds)
                if line is not None:
                    about = {"digest": digests[fit.seed], "recipe": recipe.describe(), "version": __version__}
                    results.append({**line, **about})
                    summary.done += 1
                    text = f"{fit.method} seed {fit.seed}: {mean_log(line['scores']):.4f}"
                    display.update(1.0, f"{text} in {line['seconds']:.1f} s")
        # How many is not known before the search has ended: a default that is best needs no check.
        summary.left = max(expected - summary.done, 1) if plan.partial else 0
    summary.seconds = crew.elapsed
    return summary


def _first_lines(records: Iterable[Record]) -> dict[str, Record]:
    """The first line of every method, which is that of its default at the time."""
    found: dict[str, Record] = {}
    for record in records:
        found.setdefault(record["method"], record)
    return found


def _digest(prepared: Path, data: Sequence[str], seed: int) -> str:
    whole = "".join(Problem.load(prepared, name, seed).digest for name in data)
    return hashlib.sha256(whole.encode()).hexdigest()[:12]


# -- what comes of it ----------------------------------------------------------------------------


@dataclass(frozen=True)
class Decision:
    """The best configuration of a method's search against its default at that time."""

    method: str
    trials: int
    default: Options
    best: Options
    found: float
    """Logarithm of the best one's score over the default's in the search, mean over data sets."""
    change: float = math.nan
    """The same with the other seeds, which is what counts; NaN if there was nothing to check."""
    error: float = math.nan
    """Standard error of `change` over data sets."""

    @property
    def adopted(self) -> bool:
        """Whether the best one becomes the default."""
        return self.change < -max(self.error, LEAST)

    @property
    def chosen(self) -> Options:
        """The default from now on."""
        return self.best if self.adopted else self.default


def decisions(records: Iterable[Record]) -> list[Decision]:
    """Decide for every method whose search is in these lines, in the order of the registry."""
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
    changes = [[_change(new[seed][name], old[seed][name]) for name in old[seed]] for seed in seeds]
    return decision(*_mean_and_error(np.mean(changes, axis=0)))


def _change(new: float | None, old: float | None) -> float:
    return math.nan if new is None or old is None else math.log(new / old)


def _mean_and_error(by_data: Sequence[float] | np.ndarray) -> tuple[float, float]:
    return float(np.mean(by_data)), float(np.std(by_data, ddof=1) / math.sqrt(len(by_data)))


def write_defaults(path: Path, to: Path) -> Path:
    """Write what was searched and decided as a Markdown page."""
    records = ResultsFile(path).records
    if all(record["method"] != "vanilla" for record in records):
        raise ValueError(f"{path} holds no line of vanilla to compare with")
    recipe, data = records[0]["recipe"], list(records[0]["scores"])
    seeds = sorted({record["seed"] for record in records})
    defaults: dict[str, Scores] = {m: line["scores"] for m, line in _first_lines(records).items()}
    points = (
        f"Data: {', '.join(data)} (suite `development`), which no comparison uses; seed {seeds[0]} for the "
        f"search, {', '.join(map(str, seeds[1:])) or 'none yet'} for the check.",
        f"One budget: {recipe['trials']} configurations per method, or all it has: the present default, then "
        "half of them at random, the rest by TPE; the optimiser's options are the recipe's throughout.",
        f"One criterion: {SCORE.replace('_', ' ')} of calibrated predictions on the validation part, mean "
        "logarithm over data sets. A point prediction counts as a Gaussian of constant variance.",
        "One rule, set before the sweep: the best one replaces the default only if, with other seeds than "
        f"the search's, it is better by more than one standard error over the data sets, and by {LEAST:.1%}.",
        f"Settings of {' and '.join(PRESETS)} are others' and stay as they are, and so does the exponent "
        "that gives INV and SQINV their names.",
    )
    rows = []
    for d in decisions(records):
        changed = {k: v for k, v in d.best.items() if v != d.default[k]}
        words = ", ".join(f"{k} {d.default[k]} -> {v}" for k, v in changed.items()) or "-"
        base = [_change(defaults[d.method][name], defaults["vanilla"][name]) for name in data]
        cells = [_percent(*_mean_and_error(base)), str(d.trials), _percent(d.found) if changed else "-"]
        verdict = "adopted" if d.adopted else "kept" if own_space(d.method) else "fixed"
        rows.append([get_method(d.method).title, *cells, _percent(d.change, d.error), verdict, words])
    head = ["method", "default against Vanilla", "trials", "best against default: search", "check"]
    caption = "Change of the score in percent, ± a standard error over data sets; below 0 is better"
    table = Table(caption, [*head, "decision", "what the best changes"], rows)
    text = "# How the defaults were chosen\n\nGenerated by `tailwise bench choose-defaults`; do not edit.\n\n"
    text += "".join(f"- {point}\n" for point in points) + f"\n{table.markdown()}"
    write_atomically(to, lambda part: part.write_text(text, encoding="utf-8"))
    return to


def _percent(change: float, error: float = math.nan) -> str:
    if math.isnan(change):
        return "-"
    return f"{100 * math.expm1(change):+.1f}" + ("" if math.isnan(error) else f" ± {100 * error:.1f}")
