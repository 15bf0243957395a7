"""What a fit costs: every chosen configuration once more, one after the other on one thread.

Runs of a comparison may come from several machines and share their cores. Here all contenders, networks
and trees alike, are refitted with the first seed in one process, and processor time is taken.
"""

from __future__ import annotations

import math
import os
import platform
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch

from tailwise._version import __version__
from tailwise.benchmark.data.problems import Problem
from tailwise.benchmark.run.contenders import Contender, Recipe
from tailwise.benchmark.run.display import make_progress
from tailwise.benchmark.run.results import Record, ResultsFile, finished_runs
from tailwise.benchmark.run.runs import Summary
from tailwise.benchmark.run.workers import Workers

_CPUINFO = Path("/proc/cpuinfo")


def machine() -> str:
    """The processor and the torch that times depend on."""
    lines = _CPUINFO.read_text().splitlines() if _CPUINFO.is_file() else []
    model = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
    return f"{model or platform.machine()}, {os.cpu_count()} cores, torch {torch.__version__}"


def _as_before(line: Record | None, run: Record) -> bool:
    """Whether a time is that of the configuration a run chose, on the same rows."""
    return line is not None and all(line[key] == run[key] for key in ("options", "digest", "recipe"))


def _fit(job: tuple[Contender, Record], *, folder: Path, recipe: Recipe, warm: set[str]) -> Record:
    contender, run = job
    problem = Problem.load(folder, run["data"], run["seed"])
    if problem.digest != run["digest"]:
        raise ValueError(f"{folder} holds other rows of {run['data']} than {contender.name} was run on")
    if contender.name not in warm:
        contender.fit(problem, run["options"], recipe)  # with it come imports and caches, which are no cost
        warm.add(contender.name)
    outcome = contender.fit(problem, run["options"], recipe)
    kept = {key: run[key] for key in ("data", "method", "seed", "options", "digest", "recipe")}
    seconds = {"fit": round(outcome.fit_seconds, 3), "predict": round(outcome.predict_seconds, 3)}
    return {**kept, "epochs": outcome.epochs, "seconds": seconds}


def missing_times(runs: Iterable[Record], contenders: Sequence[Contender], out: Path) -> list[Record]:
    """The first seed's run of every contender and data set of which `out` holds no time yet.

    A time of another configuration or of other rows does not count. Data set by data set: should
    the machine slow down, it does so for all contenders.
    """
    places = {contender.name: place for place, contender in enumerate(contenders)}
    first: dict[tuple[str, str], Record] = {}
    for run in sorted(runs, key=lambda run: int(run["seed"])):
        if run["method"] in places:
            first.setdefault((run["data"], run["method"]), run)
    known = finished_runs(ResultsFile(out).records)
    order = sorted(first.values(), key=lambda run: (run["data"], places[run["method"]]))
    return [run for run in order if not _as_before(known.get((run["data"], run["method"], run["seed"])), run)]


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
    """Refit what every contender chose on every data set, with the first seed of its runs.

    Training is as in the run: early stopping, not a number of epochs, ends it. A contender's first fit
    is done twice, and the second is timed. Times that `out` holds are kept; adding to those of another
    machine is an error, since only times of one machine compare.
    """
    left, by_name = missing_times(runs, contenders, out), {c.name: c for c in contenders}
    here, lines = machine(), ResultsFile(out)
    for line in lines.records if left else ():
        if line["machine"] != here:
            raise ValueError(f"{out} holds times of {line['machine']}, this is {here}: name another file")
    summary = Summary(left=len(left))
    display = make_progress(progress, len(left), sum(by_name[run["method"]].cost for run in left))
    work = partial(_fit, folder=prepared.absolute(), recipe=recipe, warm=set())
    with Workers(work, 1, time_limit) as crew, display:
        for run in left:
            if not crew.in_time:
                break
            crew.submit((by_name[run["method"]], run))
            for (contender, _), line in crew.finished():
                lines.append({**line, "machine": here, "version": __version__})
                summary.done, summary.left = summary.done + 1, summary.left - 1
                text = f"{line['data']} {contender.name}: {line['seconds']['fit']:.1f} s"
                display.update(contender.cost, text)
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
        """Read what `take_times` wrote."""
        lines = list(finished_runs(ResultsFile(path).records).values())
        if not lines:
            raise ValueError(f"{path} holds no times: `python -m tailwise.benchmark time` takes them")
        fit = {(line["data"], line["method"]): float(line["seconds"]["fit"]) for line in lines}
        return cls(lines[0]["machine"], lines[0]["seed"], fit)

    def ratio(self, method: str, base: str, data: Sequence[str]) -> float:
        """Geometric mean over data sets of a contender's time over the base's; NaN if one is missing."""
        pairs = [(self.fit.get((name, method)), self.fit.get((name, base))) for name in data]
        logs = [math.log(ours / theirs) if ours and theirs else math.nan for ours, theirs in pairs]
        return math.exp(np.mean(logs)) if logs else math.nan
