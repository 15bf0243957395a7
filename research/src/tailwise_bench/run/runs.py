"""Run contenders on problems: one results line per finished run, resumable at any point.

Each contender is tuned once per data set, with the first seed and its validation part; the other seeds use
the options chosen there. Only the parent process writes, one line at a time and flushed to the disk, so that
a kill loses only the runs in progress.
"""

from __future__ import annotations

import traceback
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from tailwise._version import __version__
from tailwise.training.config import training_device
from tailwise.writing import claimed
from tailwise_bench.data.problems import Problem
from tailwise_bench.data.recipe import Recipe
from tailwise_bench.data.suites import get_suite, prepare, prepared_data, suite_name
from tailwise_bench.run.contenders import Contender
from tailwise_bench.run.results import (
    Record,
    ResultsFile,
    check_comparable,
    finished_runs,
    read_results,
)  # fmt: skip
from tailwise_bench.run.run_display import show_runs
from tailwise_bench.run.run_once import run_variants
from tailwise_bench.run.search import require_optuna
from tailwise_bench.run.trace import changed_parts, describe_changes, unchanged
from tailwise_bench.run.workers import Workers


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
        problem = _loaded(folder, job.data, job.seed)
        return run_variants(job.contender, problem, recipe, job.options)
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
        ready: list[Job] = []
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
                        ready.append(job)
                    else:
                        self.waiting.setdefault(key, []).append(job)
        if self.waiting or any(job.options is None for job in ready):
            require_optuna()  # fail now, not in every worker
        # The longest first, so that no long run is left at the end.
        self.queue = deque(sorted(ready, key=lambda job: -job.cost))

    def jobs(self) -> list[Job]:
        """Return all runs that have not started."""
        return [*self.queue, *(job for jobs in self.waiting.values() for job in jobs)]

    def cost_left(self) -> float:
        """Return the cost of all runs that have not started."""
        return sum(job.cost for job in self.jobs())

    def count_left(self) -> int:
        """Return the number of runs that have not started."""
        return len(self.jobs())

    def release(self, record: Record) -> None:
        """Let the other seeds of a tuned contender start."""
        for other in self.waiting.pop((record["data"], record["method"]), []):
            if "options" in record:
                self.queue.append(replace(other, options=record["options"]))


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
    kept = unchanged(results.records)
    plan = _Plan(contenders, data or there, seeds, recipe, kept)
    if plan.jobs():
        try:
            training_device(recipe.train.accelerator)
        except ValueError as error:
            where = "`accelerator` in [recipe.train] of a copy of the suite's TOML file"
            raise ValueError(f"{error} ({where})") from None
    _check_same_data(plan.jobs(), done, folder, out)
    summary = Summary()
    display = show_runs(progress, plan.count_left(), plan.cost_left())
    work = partial(_work, folder=folder, recipe=recipe)
    with claimed(out), Workers(work, workers, time_limit) as crew, display as update:
        while (plan.queue or crew.running) and crew.in_time:
            while plan.queue and crew.free:
                crew.submit(plan.queue.popleft())
            for job, records in crew.finished():
                for record in records:  # the contender's own is the last: once it is there, all are
                    results.append(record)
                plan.release(record)
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
        folder, contenders, out=out, seeds=seeds, data=names, recipe=recipe, workers=workers,
        time_limit=time_limit, progress=progress,
    )  # fmt: skip
    for line in summary.failed:
        report(f"failed: {line}")
    return summary
