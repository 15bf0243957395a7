"""The runner: every contender on every data set and seed that a results file lacks, one JSON line a run.

Each contender is tuned once per data set, with the first seed and its validation part; the other seeds use
the options chosen there. Only this process writes, one line at a time and flushed to the disk, so that a kill
loses only the runs in progress.
"""

from __future__ import annotations

import json
import math
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
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
from tailwise_bench.problem import DataSet, Problem
from tailwise_bench.suites import Suite
from tailwise_bench.tables import NaturalSplit, Table
from tailwise_bench.trace import changed_parts

Report = Callable[[str], None]
Options = Mapping[str, Any]


@dataclass(frozen=True)
class Job:
    """A run to do; `options` None means that it tunes."""

    contender: Contender | Estimator
    source: DataSet
    seed: int
    options: Options | None = None
    repeat: bool = False
    """Fit twice and keep the second: imports and caches are then not part of the time."""

    @property
    def key(self) -> tuple[str, str]:
        """Names of data set and contender, which share their options."""
        return self.source.name, self.contender.name


@dataclass
class Summary:
    """Counts of finished and remaining runs, and those that failed."""

    done: int = 0
    left: int = 0
    failed: list[str] = field(default_factory=list)


def run_suite(
    suite: Suite,
    contenders: Sequence[Contender | Estimator],
    out: Path,
    *,
    seeds: Sequence[int] | None = None,
    data: Sequence[str] | None = None,
    workers: int = 1,
    ray: str | None = None,
    time_limit: float = math.inf,
    report: Report = lambda line: None,
) -> Summary:
    """Run what `out` lacks. Failed runs are tried again by the next call.

    Runs of a method that has changed since are done again. No run starts after `time_limit` seconds.
    """
    sources = {source.name: source for source in suite.sources}
    for name in data or ():
        if name not in sources:
            raise ValueError(f"{suite.name} has no data set {name!r}; it has {', '.join(sources)}")
    lines = read_results(out) if out.is_file() else []
    _check_comparable(lines, suite, contenders, out)
    current = [line for line in lines if not changed_parts(line)]
    outdated = Counter(line["method"] for line in lines) - Counter(line["method"] for line in current)
    for method, count in outdated.items():
        report(f"{method}: {count} runs are repeated because it has changed")
    finished = finished_runs(current)
    jobs = [
        Job(contender, sources[name], seed)
        for name in data or sources
        for contender in contenders
        for seed in (range(suite.seeds) if seeds is None else seeds)
        if (name, contender.name, seed) not in finished
    ]
    _check_same_rows(jobs, lines, suite, out)
    tuned, ready, waiting = _tuned(current), dict[tuple[str, str], list[Job]](), list[Job]()
    for job in jobs:
        options = tuned.get(job.key) if _tunes(job, suite) else {}
        if options is None and job.key in ready:
            waiting.append(job)
        else:
            ready.setdefault(job.key, []).append(replace(job, options=options))
    first = sorted(
        (job for several in ready.values() for job in several),
        key=lambda job: (job.options is not None, -getattr(job.contender, "cost", 1.0)),
    )
    summary, deadline = Summary(left=len(jobs)), time.monotonic() + time_limit
    with claimed(out), own_processes() if ray is None else _cluster(ray):
        _finish(first, summary, suite, out, workers, deadline, report)
        tuned = _tuned(read_results(out))
        second = [replace(job, options=tuned[job.key]) for job in waiting if job.key in tuned]
        _finish(second, summary, suite, out, workers, deadline, report)
    return summary


def _tuned(lines: Iterable[Record]) -> dict[tuple[str, str], Options]:
    """Return the options that tuning has chosen, by data set and contender."""
    return {(line["data"], line["method"]): line["options"] for line in lines if "trials" in line}


def _tunes(job: Job, suite: Suite) -> bool:
    contender, recipe = job.contender, suite.recipe
    return isinstance(contender, Contender) and recipe.trials > 1 and bool(contender.space(recipe))


def _cluster(address: str) -> Any:
    """Return a context in which joblib uses the processes of a Ray cluster."""
    from ray import init
    from ray.util.joblib import register_ray

    init(address=address)
    register_ray()
    return parallel_config(backend="ray")


def _finish(
    jobs: Sequence[Job],
    summary: Summary,
    suite: Suite,
    out: Path,
    workers: int,
    deadline: float,
    report: Report,
) -> None:
    """Do jobs that start in time, and append their lines in the order in which they end."""
    plugins, total = loaded_plugins(), summary.done + summary.left + len(summary.failed)
    work = (delayed(run_job)(job, suite, plugins) for job in jobs if time.monotonic() < deadline)
    runs = Parallel(workers, return_as="generator_unordered", batch_size=1, pre_dispatch=workers)
    for lines in runs(work):
        for line in lines:  # the contender's own is the last: once it is there, all are
            append_record(out, {"suite": suite.label, **line})
        summary.left -= 1
        text = f"{line['data']} {line['method']} seed {line['seed']}"
        if "error" in line:
            summary.failed.append(f"{text}: {line['error']}")
            text += f" FAILED: {line['error'][:120]}"
        else:
            summary.done += 1
            text += f": MAE {line['metrics']['raw']['all']['mae']:.4g}, {line['seconds']['fit']:.1f} s"
        report(f"{total - summary.left}/{total}: {text}")


def run_job(job: Job, suite: Suite, plugins: Sequence[str] = ()) -> list[Record]:
    """Do a run on one thread; a failure becomes a line, so that a broken method does not stop the others."""
    for file in plugins:
        load_plugin(file)
    torch.set_num_threads(1)
    try:
        with threadpool_limits(1):
            rows = _rows(job.source, job.seed, suite.max_rows, suite.split)
            if isinstance(job.contender, Estimator):
                assert isinstance(rows, NaturalSplit)
                return measure_estimator(job.contender, rows, suite.max_rows)
            assert isinstance(rows, Problem)
            if job.repeat:
                measure(job.contender, rows, suite.recipe, job.options)
            return measure(job.contender, rows, suite.recipe, job.options)
    except Exception as error:
        kept = {
            "data": job.source.name,
            "method": job.contender.name,
            "seed": job.seed,
            "version": __version__,
        }
        shown = f"{type(error).__name__}: {error}"
        return [{**kept, "error": shown, "traceback": traceback.format_exc()[-2000:]}]


@lru_cache(maxsize=8)
def _rows(source: DataSet, seed: int, max_rows: int, split: str) -> Problem | NaturalSplit:
    """Return encoded arrays, or a natural split of the raw table."""
    if split == "balanced":
        return source.problem(seed, max_rows)
    assert isinstance(source, Table)
    return source.natural_split(seed, max_rows)


# -- which runs may share a file -----------------------------------------------------------------


def _check_comparable(
    lines: Iterable[Record], suite: Suite, contenders: Sequence[Contender | Estimator], path: Path
) -> None:
    """Raise an error if a file has runs of another suite or recipe, or of a contender with other options."""
    recipe = natural_recipe(suite.max_rows) if suite.split == "natural" else suite.recipe.describe()
    ours = json.loads(json.dumps({"suite": suite.label, **recipe}))
    fixed = {c.name: json.loads(json.dumps(dict(c.fixed))) for c in contenders if isinstance(c, Contender)}
    for line in lines:
        before = {"suite": line.get("suite"), **line["recipe"]}
        # Lines of older suites lack settings that have come since.
        pairs = {key: (of, ours.get(key)) for key, of in before.items()}
        pairs |= {key: (before.get(key), ours[key]) for key in ("weights", "budget") if key in ours}
        if line["method"] in fixed:
            pairs[f"options of {line['method']}"] = line.get("fixed", {}), fixed[line["method"]]
        for key, (stored, now) in pairs.items():
            if stored != now:
                raise ValueError(f"{path} has runs with {key} = {stored}, not {now}: name another file")


def _check_same_rows(jobs: Iterable[Job], lines: Iterable[Record], suite: Suite, path: Path) -> None:
    """Raise an error, before anything is run, if data is missing or the file has results on other rows."""
    before = {(line["data"], line["seed"]): line["digest"] for line in lines}
    for source, seed in dict.fromkeys((job.source, job.seed) for job in jobs):
        digest = _rows(source, seed, suite.max_rows, suite.split).digest
        if before.get((source.name, seed), digest) != digest:
            raise ValueError(
                f"{path} was made with other rows of {source.name}, seed {seed}: name another file"
            )


# -- times ---------------------------------------------------------------------------------------


def take_times(
    suite: Suite, contenders: Sequence[Contender], runs: Path, out: Path, report: Report = lambda line: None
) -> Summary:
    """Fit each chosen configuration once more with the first seed, one after the other, to time it.

    Runs may come from several machines and share their cores, so their times do not compare; these do.
    """
    by_name = {contender.name: contender for contender in contenders}
    sources = {source.name: source for source in suite.sources}
    known = finished_runs(line for line in read_records(out) if not changed_parts(line))
    for line in known.values():
        if line["machine"] != machine():
            raise ValueError(f"{out} has times of {line['machine']}, but this is {machine()}: name another")
    first: dict[tuple[str, str], Record] = {}
    for run in sorted(read_results(runs), key=lambda run: int(run["seed"])):
        if run["method"] in by_name:
            first.setdefault((run["data"], run["method"]), run)
    jobs, warm = [], set[str]()
    for (data, method), run in sorted(first.items()):
        timed = known.get((data, method, run["seed"]))
        if timed is None or any(timed[key] != run[key] for key in ("options", "digest", "recipe")):
            jobs.append(Job(by_name[method], sources[data], run["seed"], run["options"], method not in warm))
            warm.add(method)
    summary = Summary(left=len(jobs))
    with claimed(out):
        _finish(jobs, summary, suite, out, 1, math.inf, report)
    return summary
