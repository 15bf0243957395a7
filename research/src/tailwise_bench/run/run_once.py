"""One run of a contender on a problem: tune or take options, fit, calibrate, and score the test part once."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from tailwise._version import __version__
from tailwise.calibration.scaling import balanced_weights, fit_scaling
from tailwise.metrics.regions import get_metric
from tailwise_bench.data.nyu import packed_maps
from tailwise_bench.data.problems import Problem
from tailwise_bench.data.recipe import Recipe, default_options
from tailwise_bench.run.contenders import Contender, Outcome
from tailwise_bench.run.region_scores import (
    OF_THE_MEAN,
    OF_THE_SPREAD,
    errors_along_label,
    region_rows,
    score_limits,
    scores_by_region,
)
from tailwise_bench.run.results import Record
from tailwise_bench.run.search import Study, describe_space
from tailwise_bench.run.trace import machine


def _tune(
    contender: Contender, problem: Problem, recipe: Recipe
) -> tuple[Outcome, dict[str, Any], list[Record]]:
    """Return the outcome and the options with the best validation criterion, and all trials."""
    study = Study(contender.space(recipe), recipe.trials)
    best: tuple[float, Outcome, dict[str, Any]] | None = None
    trials: list[Record] = []
    while (options := study.ask()) is not None:
        loss, outcome, line = _tried(contender, problem, recipe, options)
        study.tell(loss)
        trials.append(line)
        if outcome is not None and loss is not None and (best is None or loss < best[0]):
            best = loss, outcome, options
    if best is None:
        raise RuntimeError(f"every configuration failed; the first with: {trials[0]['error']}")
    return best[1], best[2], trials


def _tried(
    contender: Contender, problem: Problem, recipe: Recipe, options: dict[str, Any]
) -> tuple[float | None, Outcome | None, Record]:
    """Fit a configuration; return its loss on the validation part, its outcome and what is recorded."""
    criterion = get_metric(recipe.criterion)
    try:
        outcome = contender.fit(problem, options, recipe)
        score = criterion(outcome.valid, problem.labels("valid"), problem.bins)
        if not math.isfinite(score):
            raise RuntimeError(f"its {recipe.criterion} on the validation part is {score}")
    except RuntimeError as error:  # not finite or not invertible: only this configuration fails
        return None, None, {"options": options, "score": None, "error": str(error)[:200]}
    seconds = round(outcome.fit_seconds, 3)
    return (
        criterion.loss(score),
        outcome,
        {"options": options, "score": float(f"{score:.6g}"), "seconds": seconds},
    )


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
    contender: Contender,
    problem: Problem,
    recipe: Recipe,
    options: Mapping[str, Any] | None = None,
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
    if trials:
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
