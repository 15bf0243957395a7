"""Runs of the suite `estimator`: fit on a natural split, predict the test rows, score all and the rarest.

Each finished run is one results line, so the suite can be stopped and continued. No option is tuned.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from tailwise._version import __version__
from tailwise.writing import claimed
from tailwise_bench.data.natural_splits import (
    MAX_ROWS,
    RARE_SHARE,
    TEST_SHARE,
    NaturalSplit,
    natural_split,
)
from tailwise_bench.data.problems import Source
from tailwise_bench.run.estimators import COVERAGE, Estimator, Prediction, fit_catboost
from tailwise_bench.run.results import Record, ResultsFile, finished_runs, read_results
from tailwise_bench.run.run_display import show_runs
from tailwise_bench.run.runs import Summary, error_record
from tailwise_bench.run.trace import ESTIMATOR, machine, trace_of, unchanged
from tailwise_bench.run.workers import Workers

UNIT_ROWS, UNIT_TREES = 2000, 300
WARM_ROWS = 200
_warm: set[str] = set()


def estimator_recipe(max_rows: int = MAX_ROWS) -> dict[str, Any]:
    """Return the settings of a results line; runs with other settings must not be compared."""
    return {"test": TEST_SHARE, "rare": RARE_SHARE, "max_rows": max_rows, "coverage": COVERAGE}


def score(prediction: Prediction, y: NDArray[np.float64], rows: NDArray[np.bool_]) -> dict[str, float]:
    """Return MAE, CRPS, and coverage and mean width of the 90% intervals, of some rows."""
    inside = (prediction.lower <= y) & (y <= prediction.upper)
    values = {
        "mae": np.abs(prediction.mean - y)[rows].mean(),
        "crps": prediction.crps(y, rows),
        "coverage": inside[rows].mean(),
        "width": (prediction.upper - prediction.lower)[rows].mean(),
    }
    for name, value in values.items():
        if not math.isfinite(value):
            raise RuntimeError(f"its {name} is {value}")
    return {name: float(f"{value:.6g}") for name, value in values.items()}


def run_estimator(
    estimator: Estimator, split: NaturalSplit, *, suite: str = "", max_rows: int = MAX_ROWS
) -> Record:
    """Fit on the training rows, predict the test rows and score them; return a results line.

    Times are processor seconds on one thread. ``unit`` is the time of a small CatBoost fit on the same table
    in the same process just before; it makes times of busy or different machines comparable.
    """
    trace = trace_of(None if estimator.parameters is None else ESTIMATOR, estimator.parameters)
    with threadpool_limits(1):
        if estimator.name not in _warm:  # imports and caches are not part of the time
            with suppress(Exception):  # an error comes again below
                estimator.fit(split.x_train[:WARM_ROWS], split.y_train[:WARM_ROWS], split.seed)
            _warm.add(estimator.name)
        unit = _unit_seconds(split)
        began = time.process_time()
        predict = estimator.fit(split.x_train, split.y_train, split.seed)
        fitted = time.process_time()
        prediction = predict(split.x_test)
        predicted = time.process_time()
    everything = np.ones(len(split.y_test), bool)
    return {
        "suite": suite,
        "data": split.name,
        "method": estimator.name,
        "title": estimator.title,
        "seed": split.seed,
        "version": __version__,
        "machine": machine(),
        "trace": trace,
        "recipe": estimator_recipe(max_rows),
        "rows": {
            "table": split.total, "train": len(split.y_train), "test": len(split.y_test),
            "rare": int(split.rare.sum()),
        },
        "digest": split.digest,
        "metrics": {
            "raw": {
                "all": score(prediction, split.y_test, everything),
                "rare": score(prediction, split.y_test, split.rare),
            }
        },
        "seconds": {
            "fit": round(fitted - began, 3), "predict": round(predicted - fitted, 3),
            "unit": None if unit is None else round(unit, 3),
        },
    }  # fmt: skip


def _unit_seconds(split: NaturalSplit) -> float | None:
    try:
        import catboost  # noqa: F401
    except ImportError:
        return None
    began = time.process_time()
    fit_catboost(split.x_train[:UNIT_ROWS], split.y_train[:UNIT_ROWS], 0, trees=UNIT_TREES)
    return time.process_time() - began


@dataclass(frozen=True)
class EstimatorJob:
    """A run to do."""

    estimator: Estimator
    source: Source
    seed: int


@lru_cache(maxsize=2)
def _split(source: Source, seed: int, max_rows: int) -> NaturalSplit:
    return natural_split(source, seed, max_rows=max_rows)


def _work(job: EstimatorJob, *, suite: str, max_rows: int) -> Record:
    """Do a run in a worker; a failure becomes a record, so that a broken model does not stop the others."""
    try:
        split = _split(job.source, job.seed, max_rows)
        return run_estimator(job.estimator, split, suite=suite, max_rows=max_rows)
    except Exception as error:
        return error_record(job.source.name, job.estimator.name, job.seed, error)


def run_estimators(
    sources: Sequence[Source],
    estimators: Sequence[Estimator],
    *,
    out: Path,
    suite: str = "",
    seeds: Sequence[int] = range(5),
    max_rows: int = MAX_ROWS,
    workers: int = 1,
    time_limit: float | None = None,
    progress: bool | None = None,
) -> Summary:
    """Run every estimator on every table and seed; skip the runs that `out` has.

    Runs of a TailRegressor whose parameters have changed since are done again. One seed follows the other, so
    that a stopped suite has whole seeds. After `time_limit` seconds running jobs are abandoned and the rest
    is left for the next call. Failed runs are tried again by the next call.
    """
    results = ResultsFile(out)
    done = read_results(out) if out.is_file() else []
    ours = {"suite": suite, **estimator_recipe(max_rows)}
    for record in done:
        for name, value in {"suite": record.get("suite"), **record["recipe"]}.items():
            if value != ours.get(name):
                raise ValueError(
                    f"{out} has runs with {name} = {value}, not {ours.get(name)}: name another file"
                )
    finished = finished_runs(unchanged(done))
    jobs = deque(
        EstimatorJob(estimator, source, seed)
        for seed in seeds
        for source in sources
        for estimator in estimators
        if (source.name, estimator.name, seed) not in finished
    )
    summary = Summary()
    work = partial(_work, suite=suite, max_rows=max_rows)
    display = show_runs(progress, len(jobs), float(len(jobs)))
    with claimed(out), Workers(work, workers, time_limit) as crew, display as update:
        while (jobs or crew.running) and crew.in_time:
            while jobs and crew.free:
                crew.submit(jobs.popleft())
            for job, record in crew.finished():
                results.append(record)
                text = f"{job.source.name} {job.estimator.name} seed {job.seed}"
                if "error" in record:
                    summary.failed.append(f"{text}: {record['error']}")
                    update(1.0, f"{text} FAILED: {record['error'][:120]}")
                else:
                    summary.done += 1
                    mae, seconds = record["metrics"]["raw"]["all"]["mae"], record["seconds"]["fit"]
                    update(1.0, f"{text}: MAE {mae:.4g} in {seconds:.1f} s")
        summary.left = len(crew.running) + len(jobs)
    summary.seconds = crew.elapsed
    return summary
