"""Run contenders on problems: one results line per finished run, resumable at any point.

Each contender is tuned once per data set, with the first seed and its validation part; the other seeds use
the options chosen there. Only the parent process writes, one line at a time and flushed to the disk, so that
a kill loses only the runs in progress.
"""

from __future__ import annotations

import math
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from tailwise._version import __version__
from tailwise.benchmark.data.nyu import packed_maps
from tailwise.benchmark.data.problems import Problem
from tailwise.benchmark.data.recipe import Recipe, default_options
from tailwise.benchmark.data.suites import get_suite, prepare, prepared_data, suite_name
from tailwise.benchmark.run.contenders import Contender, Outcome
from tailwise.benchmark.run.region_scores import (
    OF_THE_MEAN,
    OF_THE_SPREAD,
    errors_along_label,
    region_rows,
    score_limits,
    scores_by_region,
)
from tailwise.benchmark.run.results import (
    Record,
    ResultsFile,
    check_comparable,
    finished_runs,
    read_results,
)  # fmt: skip
from tailwise.benchmark.run.run_display import show_runs
from tailwise.benchmark.run.search import Study, describe_space, require_optuna
from tailwise.benchmark.run.trace import changed_parts, describe_changes, machine, unchanged
from tailwise.benchmark.run.workers import Workers
from tailwise.core.metrics import get_metric
from tailwise.learning.config import check_accelerator
from tailwise.uncertainty.scaling import balanced_weights, fit_scaling

# -- one run -------------------------------------------------------------------------------------


def _tune(
    contender: Contender, problem: Problem, recipe: Recipe
) -> tuple[Outcome, dict[str, Any], list[Record]]:
    """Return the outcome and the options with the best validation criterion, and all trials."""
    study, criterion = Study(contender.space(recipe), recipe.trials), get_metric(recipe.criterion)
    best: tuple[float, Outcome, dict[str, Any]] | None = None
    trials: list[Record] = []
    while (options := study.ask()) is not None:
        try:
            outcome = contender.fit(problem, options, recipe)
            score = criterion(outcome.valid, problem.labels("valid"), problem.bins)
            if not math.isfinite(score):
                raise RuntimeError(f"its {recipe.criterion} on the validation part is {score}")
        except RuntimeError as error:  # not finite or not invertible: only this configuration fails
            study.tell(None)
            trials.append({"options": options, "score": None, "error": str(error)[:200]})
            continue
        loss = criterion.loss(score)
        study.tell(loss)
        seconds = round(outcome.fit_seconds, 3)
        trials.append({"options": options, "score": float(f"{score:.6g}"), "seconds": seconds})
        if best is None or loss < best[0]:
            best = loss, outcome, options
    if best is None:
        raise RuntimeError(f"every configuration failed; the first with: {trials[0]['error']}")
    return best[1], best[2], trials


def run_one(
    contender: Contender, problem: Problem, recipe: Recipe, options: Mapping[str, Any] | None = None
) -> Record:
    """Fit, calibrate on the validation part, and score the test part once; return a results line.

    A contender that gives intervals of its own is not calibrated again. Without `options` they are tuned
    first: of ``recipe.trials`` configurations the one with the best criterion on the validation part is kept,
    and one whose training fails is never kept. With `options`, those that are missing have their defaults.
    """
    return run_variants(contender, problem, recipe, options)[-1]


def run_variants(
    contender: Contender, problem: Problem, recipe: Recipe, options: Mapping[str, Any] | None = None
) -> list[Record]:
    """Do what `run_one` does; return a line for each variant of the contender, and its own as the last."""
    began = time.perf_counter()
    trace = contender.trace(recipe)
    trials: list[Record] = []
    if options is None:
        best, chosen, trials = _tune(contender, problem, recipe)
    else:
        chosen = {**default_options(contender.space(recipe)), **options}
        best = contender.fit(problem, chosen, recipe)
    records = [
        _record(contender, name, title, best.variants[name], problem, recipe, chosen, trace)
        for name, title in contender.variants.items()
    ]
    records.append(_record(contender, contender.name, contender.title, best, problem, recipe, chosen, trace))
    if options is None:
        records[-1] |= {"search": describe_space(contender.space(recipe)), "trials": trials}
    seconds = round(time.perf_counter() - began, 3)
    for record in records:
        record["seconds"] = {**record["seconds"], "all": seconds}
    return records


def _record(
    contender: Contender,
    name: str,
    title: str,
    best: Outcome,
    problem: Problem,
    recipe: Recipe,
    chosen: Mapping[str, Any],
    trace: Mapping[str, Any],
) -> Record:
    """Calibrate an outcome on the validation part, unless it has its own intervals, and score it."""
    scaling, calibrated, shown = {}, best.test, best.shown
    if best.limits is None:
        weights = balanced_weights(problem.labels("valid"), problem.bins)
        fitted = fit_scaling(best.valid, problem.labels("valid"), weights=weights)
        scaling, calibrated = asdict(fitted), fitted.apply(best.test)
        shown = None if shown is None else fitted.apply(shown)
    valid = get_metric(recipe.criterion)(best.valid, problem.labels("valid"), problem.bins)
    record: Record = {
        "suite": problem.suite,
        "data": problem.name,
        "method": name,
        "title": title,
        "uncertainty": contender.uncertainty,
        "seed": problem.seed,
        "version": __version__,
        "machine": machine(),
        "trace": trace,
        "recipe": recipe.describe(),
        "options": dict(chosen),
        **({"fixed": dict(contender.fixed)} if contender.fixed else {}),
        **problem.describe(),
        "test_rows": region_rows(problem),
        "valid": {recipe.criterion: float(f"{valid:.6g}") if math.isfinite(valid) else None},
        "epochs": best.epochs,
        "parameters": best.parameters,
        "scaling": {name: float(f"{w:.6g}") for name, w in scaling.items()},
        "metrics": {
            "raw": scores_by_region(best.test, problem, OF_THE_MEAN + problem.metrics + OF_THE_SPREAD),
            "calibrated": scores_by_region(calibrated, problem, OF_THE_SPREAD),
        },
    }
    if best.emphasis is not None:
        record["emphasis"] = best.emphasis
    if best.limits is not None:
        score_limits(record["metrics"]["calibrated"], best.limits, problem)
    if shown is not None:
        record["maps"] = packed_maps(shown)
    record["along_label"] = errors_along_label(best.test, problem)
    record["seconds"] = {"fit": round(best.fit_seconds, 3), "predict": round(best.predict_seconds, 3)}
    return record


# -- many runs -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Job:
    """A run to do; `options` None means that it tunes."""

    contender: Contender
    data: str
    seed: int
    options: Mapping[str, Any] | None
    cost: float


@dataclass
class Summary:
    """Counts of finished, remaining and failed runs, and the time they took."""

    done: int = 0
    left: int = 0
    failed: list[str] = field(default_factory=list)
    seconds: float = 0.0


@lru_cache(maxsize=8)
def _cached(folder: Path, name: str, seed: int, written: int) -> Problem:
    return Problem.load(folder, name, seed)


def _loaded(folder: Path, name: str, seed: int) -> Problem:
    """Return a prepared problem; its file is read again only after it has changed."""
    path = folder / f"{name}-{seed}.npz"
    return _cached(folder, name, seed, path.stat().st_mtime_ns if path.is_file() else 0)


def _work(job: Job, *, folder: Path, recipe: Recipe) -> list[Record]:
    """Do a run in a worker; a failure becomes a record, so that a broken method does not stop the others."""
    try:
        return run_variants(job.contender, _loaded(folder, job.data, job.seed), recipe, job.options)
    except Exception as error:
        return [error_record(job.data, job.contender.name, job.seed, error)]


def error_record(data: str, method: str, seed: int, error: Exception) -> Record:
    """Return the results line of a failed run, inside the handler of its error."""
    return {
        "data": data,
        "method": method,
        "seed": seed,
        "version": __version__,
        "error": f"{type(error).__name__}: {error}",
        "traceback": traceback.format_exc()[-2000:],
    }


def _check_same_data(jobs: Iterable[Job], records: Iterable[Record], folder: Path, path: Path) -> None:
    """Raise an error, before anything is run, if the file has results on other arrays."""
    before = {(record["data"], record["seed"]): record["digest"] for record in records}
    for data, seed in sorted({(job.data, job.seed) for job in jobs} & before.keys()):
        if _loaded(folder, data, seed).digest != before[data, seed]:
            raise ValueError(
                f"{path} was made with other rows of {data}, seed {seed}, than {folder} has: prepare the "
                "same ones or name another file"
            )


class _Plan:
    """The remaining runs, and which of them may start: other seeds wait for the tuning."""

    def __init__(
        self,
        contenders: Sequence[Contender],
        data: Sequence[str],
        seeds: Sequence[int],
        recipe: Recipe,
        records: Sequence[Record],
    ) -> None:
        done = finished_runs(records)
        tuned = {(r["data"], r["method"]): r["options"] for r in records if "trials" in r}
        self.ready: list[Job] = []
        self.waiting: dict[tuple[str, str], list[Job]] = {}
        for contender in contenders:
            trials = recipe.trials if contender.space(recipe) else 1
            for name in data:
                key = (name, contender.name)
                missing = [s for s in seeds if (name, contender.name, s) not in done]
                options = tuned.get(key) if trials > 1 else {}
                first = missing[:1] if options is None else []
                for seed in missing:
                    cost = contender.cost * (trials if seed in first else 1)
                    job = Job(contender, name, seed, options, cost)
                    if options is not None or seed in first:
                        self.ready.append(job)
                    else:
                        self.waiting.setdefault(key, []).append(job)
        if self.waiting or any(job.options is None for job in self.ready):
            require_optuna()  # fail now, not in every worker
        # The longest first, so that no long run is left at the end.
        self.ready.sort(key=lambda job: -job.cost)
        self.queue = deque(self.ready)

    def jobs(self) -> list[Job]:
        """Return all runs that have not started."""
        return [*self.queue, *(job for jobs in self.waiting.values() for job in jobs)]

    def cost_left(self) -> float:
        """Return the cost of all runs that have not started."""
        return sum(job.cost for job in self.jobs())

    def count_left(self) -> int:
        """Return the number of runs that have not started."""
        return len(self.jobs())

    def release(self, job: Job, record: Record) -> None:
        """Let the other seeds of a tuned contender start."""
        for other in self.waiting.pop((job.data, job.contender.name), []):
            if "options" in record:
                self.queue.append(Job(other.contender, other.data, other.seed, record["options"], other.cost))


def _line(job: Job, record: Record) -> str:
    text = f"{job.data} {job.contender.name} seed {job.seed}"
    if "error" in record:
        return f"{text} FAILED: {record['error'][:120]}"
    mae = record["metrics"]["raw"]["all"]["balanced_mae"]
    return f"{text}: balanced MAE {mae:.4g} in {record['seconds']['all']:.1f} s"


def run_suite(
    prepared: Path,
    contenders: Sequence[Contender],
    *,
    out: Path,
    seeds: Sequence[int] = range(5),
    data: Sequence[str] | None = None,
    recipe: Recipe | None = None,
    workers: int = 1,
    time_limit: float | None = None,
    progress: bool | None = None,
) -> Summary:
    """Run every contender on every data set and seed of a prepared folder; skip the runs that `out` has.

    Runs of a method that has changed since are done again. After `time_limit` seconds running jobs are
    abandoned and the rest is left for the next call. Failed runs are recorded with their error and tried
    again by the next call.
    """
    recipe = recipe or Recipe()
    seeds = list(seeds)
    there = prepared_data(prepared, seeds)
    unknown = [name for name in data or () if name not in there]
    if unknown:
        raise ValueError(f"{prepared} has no data set {unknown[0]!r}; it has {', '.join(there)}")
    results = ResultsFile(out)
    done, folder = read_results(out) if out.is_file() else [], prepared.absolute()
    if done:
        suite = _loaded(folder, there[0], seeds[0]).suite
        check_comparable(done, recipe, out, contenders, suite)
    plan = _Plan(contenders, data or there, seeds, recipe, unchanged(results.records))
    if plan.jobs():
        try:
            check_accelerator(recipe.train.accelerator)
        except ValueError as error:
            where = "`accelerator` in [recipe.train] of a copy of the suite's TOML file"
            raise ValueError(f"{error} ({where})") from None
    _check_same_data(plan.jobs(), done, folder, out)
    summary = Summary()
    display = show_runs(progress, plan.count_left(), plan.cost_left())
    work = partial(_work, folder=folder, recipe=recipe)
    with Workers(work, workers, time_limit) as crew, display as update:
        while (plan.queue or crew.running) and crew.in_time:
            while plan.queue and crew.free:
                crew.submit(plan.queue.popleft())
            for job, records in crew.finished():
                for record in records:  # the contender's own is the last: once it is there, all are
                    results.append(record)
                plan.release(job, record)
                if "error" in record:
                    summary.failed.append(f"{job.data} {job.contender.name} {job.seed}: {record['error']}")
                else:
                    summary.done += 1
                update(job.cost, _line(job, record))
        summary.left = len(crew.running) + plan.count_left()
    summary.seconds = crew.elapsed
    return summary


def _outdated(records: Iterable[Record]) -> list[str]:
    """Say, for each method that has changed since its runs, how many will be done again, and why."""
    found: dict[tuple[str, str], int] = {}
    for record in records:
        if changes := changed_parts(record):
            key = record["method"], describe_changes(changes)
            found[key] = found.get(key, 0) + 1
    return [
        f"{method}: {count} runs are repeated because it has changed ({changes})"
        for (method, changes), count in found.items()
    ]


def run_missing(
    suite: str,
    contenders: Sequence[Contender],
    *,
    out: Path,
    work: Path,
    seeds: Sequence[int],
    recipe: Recipe,
    workers: int = 1,
    time_limit: float | None = None,
    progress: bool | None = None,
    report: Callable[[str], None] = lambda line: None,
) -> Summary:
    """Run what `out` lacks of a suite; if anything is missing, the data is prepared in a folder of `work`."""
    done = read_results(out) if out.is_file() else []
    check_comparable(done, recipe, out, contenders, suite_name(suite))
    names = [source.name for source in get_suite(suite).sources]
    wanted = {(name, c.name, seed) for name in names for c in contenders for seed in seeds}
    for line in _outdated(done):
        report(line)
    if wanted <= finished_runs(unchanged(done)).keys():
        return Summary()
    folder = work / suite_name(suite)
    prepare(suite, folder, seeds, report=report)
    summary = run_suite(
        folder, contenders, out=out, seeds=seeds, recipe=recipe, workers=workers,
        time_limit=time_limit, progress=progress,
    )  # fmt: skip
    for line in summary.failed:
        report(f"failed: {line}")
    return summary
