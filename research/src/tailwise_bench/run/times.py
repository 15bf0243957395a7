"""Times of a fit: every chosen configuration is fitted once more, one after the other on one thread.

Runs of a comparison may come from several machines and share their cores, so their times do not compare.
Here all contenders are fitted with the first seed in one process, and processor time is measured.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from tailwise._version import __version__
from tailwise.writing import claimed
from tailwise_bench.data.problems import Problem
from tailwise_bench.data.recipe import Recipe
from tailwise_bench.run.contenders import Contender
from tailwise_bench.run.results import Record, ResultsFile, finished_runs
from tailwise_bench.run.run_display import show_runs
from tailwise_bench.run.runs import Summary
from tailwise_bench.run.trace import machine, unchanged
from tailwise_bench.run.workers import Workers


def _belongs(line: Record | None, run: Record) -> bool:
    """Return whether a time was measured with the configuration and the rows of a run."""
    return line is not None and all(line[key] == run[key] for key in ("options", "digest", "recipe"))


def _fit(job: tuple[Contender, Record], *, folder: Path, recipe: Recipe, warm: set[str]) -> Record:
    contender, run = job
    problem = Problem.load(folder, run["data"], run["seed"])
    if problem.digest != run["digest"]:
        raise ValueError(f"{folder} has other rows of {run['data']} than the run of {contender.name} had")
    if contender.name not in warm:
        contender.fit(problem, run["options"], recipe)  # imports and caches are not part of the time
        warm.add(contender.name)
    outcome = contender.fit(problem, run["options"], recipe)
    kept = {key: run[key] for key in ("data", "method", "seed", "options", "digest", "recipe")}
    seconds = {"fit": round(outcome.fit_seconds, 3), "predict": round(outcome.predict_seconds, 3)}
    return {**kept, "epochs": outcome.epochs, "seconds": seconds}


def missing_times(runs: Iterable[Record], contenders: Sequence[Contender], out: Path) -> list[Record]:
    """Return the first seed's run of every contender and data set that `out` has no time for.

    A time of another configuration, of other rows, or of a method that has changed since does not count. The
    order is by data set, so that a machine that slows down does so for all contenders.
    """
    places = {contender.name: place for place, contender in enumerate(contenders)}
    first: dict[tuple[str, str], Record] = {}
    for run in sorted(runs, key=lambda run: int(run["seed"])):
        if run["method"] in places:
            first.setdefault((run["data"], run["method"]), run)
    known = finished_runs(unchanged(ResultsFile(out).records))
    order = sorted(first.values(), key=lambda run: (run["data"], places[run["method"]]))
    return [run for run in order if not _belongs(known.get((run["data"], run["method"], run["seed"])), run)]


def take_times(
    prepared: Path,
    runs: Iterable[Record],
    contenders: Sequence[Contender],
    *,
    out: Path,
    recipe: Recipe,
    time_limit: float | None = None,
    progress: bool | None = None,
) -> Summary:
    """Fit the chosen configuration of every contender on every data set with the first seed of its runs.

    Training ends by early stopping, as in the run. The first fit of a contender is done twice, and the second
    is timed. Times in `out` are kept. Times of two machines do not compare, so adding to those of another
    machine is an error.
    """
    left, by_name = missing_times(runs, contenders, out), {c.name: c for c in contenders}
    here, lines = machine(), ResultsFile(out)
    traces = {c.name: c.trace(recipe) for c in contenders}
    for line in lines.records if left else ():
        if line["machine"] != here:
            raise ValueError(f"{out} has times of {line['machine']}, but this is {here}: name another file")
    summary = Summary(left=len(left))
    display = show_runs(progress, len(left), sum(by_name[run["method"]].cost for run in left))
    work = partial(_fit, folder=prepared.absolute(), recipe=recipe, warm=set())
    with claimed(out), Workers(work, 1, time_limit) as crew, display as update:
        for run in left:
            if not crew.in_time:
                break
            crew.submit((by_name[run["method"]], run))
            for (contender, _), line in crew.finished():
                about = {"machine": here, "version": __version__, "trace": traces[contender.name]}
                lines.append({**line, **about})
                summary.done, summary.left = summary.done + 1, summary.left - 1
                text = f"{line['data']} {contender.name}: {line['seconds']['fit']:.1f} s"
                update(contender.cost, text)
    summary.seconds = crew.elapsed
    return summary


@dataclass(frozen=True)
class Times:
    """Seconds of a fit by data set and contender, all on one machine."""

    machine: str
    seed: int
    fit: Mapping[tuple[str, str], float]

    @classmethod
    def read(cls, path: Path) -> Times:
        """Read the file that `take_times` writes."""
        lines = list(finished_runs(ResultsFile(path).records).values())
        if not lines:
            raise ValueError(f"{path} has no times: run `tailwise-bench time`")
        fit = {(line["data"], line["method"]): float(line["seconds"]["fit"]) for line in lines}
        return cls(lines[0]["machine"], lines[0]["seed"], fit)

    def ratio(self, method: str, base: str, data: Sequence[str]) -> float:
        """Geometric mean over data sets of a contender's time over the base's; NaN if one is missing."""
        pairs = [(self.fit.get((name, method)), self.fit.get((name, base))) for name in data]
        logs = [math.log(ours / theirs) if ours and theirs else math.nan for ours, theirs in pairs]
        return math.exp(np.mean(logs)) if logs else math.nan
