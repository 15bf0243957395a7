"""The runner: every contender on every data set and seed that a results file lacks, one JSON line a run.

Each contender is tuned once per data set, with the first seed and its validation part; the other seeds use
the options chosen there. Only this process writes, one line at a time and flushed to the disk, so that a kill
loses only the runs in progress.
"""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from joblib import Parallel, delayed, parallel_config
from threadpoolctl import threadpool_limits

from tailwise._version import __version__
from tailwise.methods.plugins import load_plugin, loaded_plugins
from tailwise.report.contest import own_processes
from tailwise.report.results import Record, append_record, finished_runs, machine, read_records, read_results
from tailwise.writing import claimed
from tailwise_bench.contenders import Contender
from tailwise_bench.estimators import Estimator
from tailwise_bench.measure import measure, measure_estimator, natural_recipe
from tailwise_bench.problem import Problem
from tailwise_bench.suites import Suite, prepare
from tailwise_bench.tables import NaturalSplit, Table
from tailwise_bench.trace import changed_parts, describe_changes, unchanged

Report = Callable[[str], None]


@dataclass(frozen=True)
class Job:
    """A run to do; `options` None means that it tunes."""

    contender: Contender | Estimator
    data: str
    seed: int
    options: Mapping[str, Any] | None = None
    repeat: bool = False
    """Fit twice and keep the second: imports and caches are then not part of the time."""


@dataclass
class Summary:
    """Counts of finished and remaining runs, and those that failed."""

    done: int = 0
    left: int = 0
    failed: list[str] = field(default_factory=list)


def run_suite(
    suite: Suite,
    contenders: Sequence[Contender | Estimator],
    *,
    out: Path,
    work: Path,
    seeds: Sequence[int] | None = None,
    data: Sequence[str] | None = None,
    workers: int = 1,
    ray: str | None = None,
    time_limit: float | None = None,
    report: Report = lambda line: None,
) -> Summary:
    """Run what `out` lacks; prepared data goes to `work`. Failed runs are tried again by the next call.

    Runs of a method that has changed since are done again. No run starts after `time_limit` seconds.
    """
    seeds = list(range(suite.seeds) if seeds is None else seeds)
    names = [source.name for source in suite.sources]
    for name in data or ():
        if name not in names:
            raise ValueError(f"{suite.name} has no data set {name!r}; it has {', '.join(names)}")
    done = read_results(out) if out.is_file() else []
    _check_comparable(done, suite, contenders, out)
    for line in _outdated(done):
        report(line)
    finished = finished_runs(unchanged(done))
    wanted = [
        Job(contender, name, seed)
        for name in data or names
        for contender in contenders
        for seed in seeds
        if (name, contender.name, seed) not in finished
    ]
    if not wanted:
        return Summary()
    folder = work / suite.name
    if suite.split == "balanced":
        prepare(suite, folder, seeds, report=report)
    _check_same_rows(wanted, done, suite, folder, out)
    return _run_all(_plan(wanted, suite, done), suite, folder, out, workers, ray, time_limit, report)


def _plan(wanted: Sequence[Job], suite: Suite, done: Iterable[Record]) -> list[list[Job]]:
    """Return the jobs that can start, the longest first, and those that wait for their options."""
    tuned = {(r["data"], r["method"]): r["options"] for r in done if "trials" in r}
    first: dict[tuple[str, str], Job] = {}
    waiting: list[Job] = []
    ready: list[Job] = []
    for job in wanted:
        contender = job.contender
        key = (job.data, contender.name)
        if isinstance(contender, Estimator) or suite.recipe.trials == 1 or not contender.space(suite.recipe):
            ready.append(Job(contender, job.data, job.seed, {}))
        elif key in tuned:
            ready.append(Job(contender, job.data, job.seed, tuned[key]))
        elif key in first:
            waiting.append(job)
        else:
            first[key] = job

    def cost(job: Job) -> float:
        return -getattr(job.contender, "cost", 1.0)

    return [[*sorted(first.values(), key=cost), *sorted(ready, key=cost)], waiting]


def _run_all(
    phases: list[list[Job]],
    suite: Suite,
    folder: Path,
    out: Path,
    workers: int,
    ray: str | None,
    time_limit: float | None,
    report: Report,
) -> Summary:
    """Run phase after phase; a job of a later phase has the options that tuning has found by then."""
    summary, began = Summary(left=sum(map(len, phases))), time.monotonic()
    total, chosen = summary.left, dict[tuple[str, str], Any]()
    with claimed(out), _machines(ray):
        for jobs in phases:
            jobs = [
                Job(j.contender, j.data, j.seed, chosen.get((j.data, j.contender.name), j.options), j.repeat)
                for j in jobs
                if j.options is not None or jobs is phases[0] or (j.data, j.contender.name) in chosen
            ]
            for records in _finished(jobs, suite, folder, workers, began, time_limit):
                for record in records:  # the contender's own is the last: once it is there, all are
                    append_record(out, record)
                summary.left -= 1
                text = f"{record['data']} {record['method']} seed {record['seed']}"
                if "error" in record:
                    summary.failed.append(f"{text}: {record['error']}")
                    text += f" FAILED: {record['error'][:120]}"
                else:
                    summary.done += 1
                    chosen[record["data"], record["method"]] = record.get("options", {})
                    mae = record["metrics"]["raw"]["all"]["mae"]
                    text += (
                        f": MAE {mae:.4g}, {sum(v for k, v in record['seconds'].items() if k != 'all'):.1f} s"
                    )
                minutes = (time.monotonic() - began) / 60
                report(f"{total - summary.left}/{total} after {minutes:.1f} min: {text}")
    return summary


def _machines(ray: str | None) -> Any:
    """Return a context in which joblib uses processes here or of a Ray cluster; all see the same folder."""
    if ray is None:
        return own_processes()
    from ray import init
    from ray.util.joblib import register_ray

    init(address=ray)
    register_ray()
    return parallel_config(backend="ray")


def _finished(
    jobs: Sequence[Job], suite: Suite, folder: Path, workers: int, began: float, time_limit: float | None
) -> Iterator[list[Record]]:
    """Yield the lines of each job, in the order in which they end."""
    deadline = None if time_limit is None else began + time_limit

    def in_time() -> Iterator[Job]:
        for job in jobs:
            if deadline is not None and time.monotonic() >= deadline:
                return
            yield job

    plugins = loaded_plugins()
    work = (delayed(run_job)(job, suite, folder.absolute(), plugins) for job in in_time())
    yield from Parallel(workers, return_as="generator_unordered", batch_size=1, pre_dispatch=workers)(work)


def run_job(job: Job, suite: Suite, folder: Path, plugins: Sequence[str] = ()) -> list[Record]:
    """Do a run on one thread; a failure becomes a line, so that a broken method does not stop the others."""
    for file in plugins:
        load_plugin(file)
    torch.set_num_threads(1)
    try:
        with threadpool_limits(1):
            rows = _rows(suite, folder, job.data, job.seed)
            if isinstance(job.contender, Estimator):
                assert isinstance(rows, NaturalSplit)
                return measure_estimator(job.contender, rows, suite.max_rows)
            assert isinstance(rows, Problem)
            if job.repeat:
                measure(job.contender, rows, suite.recipe, job.options)
            return measure(job.contender, rows, suite.recipe, job.options)
    except Exception as error:
        kept = {"data": job.data, "method": job.contender.name, "seed": job.seed, "version": __version__}
        shown = f"{type(error).__name__}: {error}"
        return [{**kept, "error": shown, "traceback": traceback.format_exc()[-2000:]}]


def _rows(suite: Suite, folder: Path, data: str, seed: int) -> Problem | NaturalSplit:
    """Return prepared arrays, or a natural split of the raw table."""
    if suite.split == "balanced":
        path = folder / f"{data}-{seed}.npz"
        return _loaded(folder, data, seed, path.stat().st_mtime_ns if path.is_file() else 0)
    source = next(source for source in suite.sources if source.name == data)
    assert isinstance(source, Table)
    return _drawn(source, seed, suite.max_rows, suite.label)


@lru_cache(maxsize=8)
def _loaded(folder: Path, name: str, seed: int, written: int) -> Problem:
    return Problem.load(folder, name, seed)


@lru_cache(maxsize=2)
def _drawn(source: Table, seed: int, max_rows: int, suite: str) -> NaturalSplit:
    return source.natural_split(seed, max_rows=max_rows, suite=suite)


# -- which runs may share a file -----------------------------------------------------------------


def _check_comparable(
    records: Iterable[Record], suite: Suite, contenders: Sequence[Contender | Estimator], path: Path
) -> None:
    """Raise an error if a file has runs of another suite or recipe, or of a contender with other options."""
    natural = suite.split == "natural"
    ours = natural_recipe(suite.max_rows) if natural else suite.recipe.describe()
    fixed = {c.name: dict(c.fixed) for c in contenders if isinstance(c, Contender)}
    for record in records:
        pairs: dict[str, tuple[Any, Any]] = {"suite": (record.get("suite"), suite.label)}
        for key in {*record["recipe"], *(key for key in ("weights", "budget") if key in ours)}:
            pairs[key] = record["recipe"].get(key), ours.get(key)
        if record["method"] in fixed:
            pairs[f"options of {record['method']}"] = record.get("fixed", {}), fixed[record["method"]]
        for key, (before, now) in pairs.items():
            if _plain(before) != _plain(now):
                raise ValueError(f"{path} has runs with {key} = {before}, not {now}: name another file")


def _plain(value: Any) -> Any:
    """Return a value as JSON would give it back."""
    if isinstance(value, Mapping):
        return {key: _plain(of) for key, of in value.items()}
    return [_plain(of) for of in value] if isinstance(value, list | tuple) else value


def _check_same_rows(
    jobs: Iterable[Job], records: Iterable[Record], suite: Suite, folder: Path, path: Path
) -> None:
    """Raise an error, before anything is run, if the file has results on other rows."""
    before = {(record["data"], record["seed"]): record["digest"] for record in records}
    for data, seed in sorted({(job.data, job.seed) for job in jobs} & before.keys()):
        if _rows(suite, folder, data, seed).digest != before[data, seed]:
            raise ValueError(f"{path} was made with other rows of {data}, seed {seed}: name another file")


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


# -- times ---------------------------------------------------------------------------------------


def take_times(
    suite: Suite, contenders: Sequence[Contender], runs: Path, *, out: Path, work: Path, report: Report
) -> Summary:
    """Fit each chosen configuration once more with the first seed, one after the other, to time it.

    Runs may come from several machines and share their cores, so their times do not compare; these do.
    """
    by_name = {contender.name: contender for contender in contenders}
    known = finished_runs(unchanged(read_records(out)))
    for line in known.values():
        if line["machine"] != machine():
            raise ValueError(f"{out} has times of {line['machine']}, but this is {machine()}: name another")
    first: dict[tuple[str, str], Record] = {}
    for record in sorted(read_results(runs), key=lambda record: int(record["seed"])):
        if record["method"] in by_name:
            first.setdefault((record["data"], record["method"]), record)
    jobs, warm = [], set[str]()
    for (data, method), run in sorted(first.items()):
        timed = known.get((data, method, run["seed"]))
        if timed is None or any(timed[key] != run[key] for key in ("options", "digest", "recipe")):
            jobs.append(Job(by_name[method], data, run["seed"], run["options"], method not in warm))
            warm.add(method)
    if not jobs:
        return Summary()
    folder = prepare(suite, work / suite.name, sorted({job.seed for job in jobs}), report=report)
    return _run_all([jobs], suite, folder, out, 1, None, None, report)
