"""One run of a contender on a problem: tune or take options, fit, calibrate, and score the test part once."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from itertools import pairwise
from typing import Any

import numpy as np
import torch

from tailwise._version import __version__
from tailwise.calibration.scaling import balanced_weights, fit_scaling
from tailwise.distributions.members import Distribution, Normal
from tailwise.labels.bins import LabelBins
from tailwise.metrics.regions import REGIONS, by_bin, evaluate, get_metric
from tailwise.metrics.scores import winkler
from tailwise.report.results import Record, machine
from tailwise_bench.contenders import Contender, Outcome
from tailwise_bench.estimators import COVERAGE, LEVELS, RARE, Estimator, Prediction, fit_gaussian
from tailwise_bench.problem import HOLE, Problem
from tailwise_bench.recipe import Recipe
from tailwise_bench.spaces import Study, default_options, describe_space
from tailwise_bench.tables import RARE_SHARE, TEST_SHARE, NaturalSplit
from tailwise_bench.trace import ESTIMATOR, trace_of

Shots = tuple[int, int]
"""Many-shot bins have more training rows than the first, few-shot bins fewer than the second."""
OF_THE_MEAN = ("mae", "mse", "rmse", "gm", "pearson", "spearman", "balanced_mae")
"""Metrics that calibration does not change; calibrated results do not repeat them."""
OF_THE_SPREAD = (
    *("nll", "balanced_nll", "gaussian_nll", "gaussian_nll_reference", "ause", "ause_reference"),
    *("crps", "coverage", "width", "interval_score", "ence"),
)
IN_HOLES = ("mae", "rmse", "nll", "crps", "coverage")
OF_THE_VARIANCE = ("gaussian_nll", "ause")
"""Metrics of the variance that a method reports; NLL, CRPS and intervals are those of its distribution."""
UNIT_ROWS, UNIT_TREES, WARM_ROWS = 2000, 300, 200
_warm: set[str] = set()


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
        if recipe.budget is not None and not recipe.budget.allows_another([t["spent"] for t in trials]):
            break
    if best is None:
        raise RuntimeError(f"every configuration failed; the first with: {trials[0]['error']}")
    return best[1], best[2], trials


def _tried(
    contender: Contender, problem: Problem, recipe: Recipe, options: dict[str, Any]
) -> tuple[float | None, Outcome | None, Record]:
    """Fit a configuration; return its loss on the validation part, its outcome and what is recorded."""
    criterion, began = get_metric(recipe.criterion), time.process_time()
    try:
        outcome = contender.fit(problem, options, recipe)
        score = criterion(outcome.valid, problem.labels("valid"), problem.bins)
        if not math.isfinite(score):
            raise RuntimeError(f"its {recipe.criterion} on the validation part is {score}")
    except RuntimeError as error:  # not finite or not invertible: only this configuration fails
        spent = {"seconds": round(time.process_time() - began, 3), "gradients": 0}
        return None, None, {"options": options, "score": None, "error": str(error)[:200], "spent": spent}
    seconds = round(outcome.fit_seconds, 3)
    line = {"options": options, "score": float(f"{score:.6g}"), "seconds": seconds, "spent": _spent(outcome)}
    return criterion.loss(score), outcome, line


def _spent(outcome: Outcome) -> dict[str, float]:
    return {"seconds": round(outcome.fit_seconds, 3), "gradients": outcome.gradients}


def measure(
    contender: Contender, problem: Problem, recipe: Recipe, options: Mapping[str, Any] | None = None
) -> list[Record]:
    """Fit, calibrate on the validation part, and score the test part once; return results lines.

    A contender that gives intervals of its own is not calibrated again. Without `options` they are tuned
    first: of ``recipe.trials`` configurations, or as many as fit ``recipe.budget``, the one with the best
    criterion on the validation part is kept, and one whose training fails is never kept. With `options`,
    those that are missing have their defaults. There is a line for each variant of the contender, and its own
    is the last.
    """
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
        record["spent"] = {
            unit: round(sum(t["spent"][unit] for t in trials), 3) if trials else of
            for unit, of in _spent(best).items()
        }
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
    scaling, calibrated = {}, best.test
    if best.limits is None:
        weights = balanced_weights(problem.labels("valid"), problem.bins)
        fitted = fit_scaling(best.valid, problem.labels("valid"), weights=weights)
        scaling, calibrated = asdict(fitted), fitted.apply(best.test)
    y, bins, shots = problem.labels("test"), problem.bins, problem.shots
    valid = get_metric(recipe.criterion)(best.valid, problem.labels("valid"), problem.bins)
    metrics = {
        "raw": scores_by_region(best.test, y, bins, shots, OF_THE_MEAN + problem.metrics + OF_THE_SPREAD),
        "calibrated": scores_by_region(calibrated, y, bins, shots, OF_THE_SPREAD),
    }
    if contender.variance == "epistemic":  # s-hat of the paper
        for kind, of in (("raw", best.test), ("calibrated", calibrated)):
            scores = scores_by_region(Normal(of.mean, of.epistemic), y, bins, shots, OF_THE_VARIANCE)
            for region, reported in scores.items():
                metrics[kind][region].update(reported)
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
        "test_rows": region_rows(y, bins, shots),
        "valid": {recipe.criterion: float(f"{valid:.6g}") if math.isfinite(valid) else None},
        "epochs": best.epochs,
        "parameters": best.parameters,
        "scaling": {name: float(f"{w:.6g}") for name, w in scaling.items()},
        "metrics": metrics,
    }
    if HOLE in problem.extra:
        rows, metrics = problem.extra[HOLE], record["metrics"]
        for kind, scored in (("raw", best.test), ("calibrated", calibrated)):
            metrics[kind]["hole"] = dict.fromkeys(IN_HOLES)
            if rows.any():
                inside = scored[torch.from_numpy(rows)]
                metrics[kind]["hole"] = scores_by_region(inside, y[rows], bins, shots, IN_HOLES)["all"]
        record["test_rows"]["hole"] = int(rows.sum())
    if best.emphasis is not None:
        record["emphasis"] = best.emphasis
    if best.limits is not None:
        for region, limits in score_limits(*best.limits, y, bins, shots).items():
            record["metrics"]["calibrated"][region].update(limits)
    record["along_label"] = errors_along_label(best.test, y, bins)
    record["seconds"] = {"fit": round(best.fit_seconds, 3), "predict": round(best.predict_seconds, 3)}
    return record


def scores_by_region(
    prediction: Distribution, y: np.ndarray, bins: LabelBins, shots: Shots, metrics: Sequence[str]
) -> dict[str, Any]:
    """Return rounded metrics by region; None where a region has too few rows."""
    names = [f"{region}/{metric}" for region in REGIONS for metric in metrics]
    values = evaluate(prediction, y, bins, names, many=shots[0], few=shots[1])
    table: dict[str, Any] = {region: {} for region in REGIONS}
    for name, value in values.items():
        region, metric = name.split("/")
        table[region][metric] = float(f"{value:.6g}") if math.isfinite(value) else None
    return table


def score_limits(
    lower: np.ndarray, upper: np.ndarray, y: np.ndarray, bins: LabelBins, shots: Shots
) -> dict[str, Any]:
    """Return coverage, width and interval score of 90% intervals by region, rounded."""
    region = bins.regions(*shots)[bins.index(y)]
    low, high, labels = (torch.from_numpy(np.asarray(values, np.float64)) for values in (lower, upper, y))
    values = {
        "coverage": (lower <= y) & (y <= upper),
        "width": upper - lower,
        "interval_score": winkler(low, high, labels).numpy(),
    }
    table: dict[str, Any] = {}
    for name in REGIONS:
        rows = np.ones(len(region), bool) if name == "all" else region == name
        table[name] = {
            metric: float(f"{value[rows].mean():.6g}") if rows.any() else None
            for metric, value in values.items()
        }
    return table


def errors_along_label(prediction: Distribution, y: np.ndarray, bins: LabelBins) -> dict[str, list[float]]:
    """Return center, number of rows and mean absolute error of each label bin, rounded."""
    table = by_bin(prediction, y, bins, ("mae",))
    return {name: [float(f"{value:.5g}") for value in table[name]] for name in ("center", "n", "mae")}


def region_rows(y: np.ndarray, bins: LabelBins, shots: Shots) -> dict[str, int]:
    """Return the number of rows of each region."""
    regions = bins.regions(*shots)[bins.index(y)]
    return {region: int((regions == region).sum()) for region in REGIONS[1:]}


# -- natural splits ------------------------------------------------------------------------------


def natural_recipe(max_rows: int) -> dict[str, Any]:
    """Return the settings of a results line; runs with other settings must not be compared."""
    return {"test": TEST_SHARE, "rare": RARE_SHARE, "max_rows": max_rows, "coverage": COVERAGE}


def measure_estimator(estimator: Estimator, split: NaturalSplit, max_rows: int) -> list[Record]:
    """Fit on the training rows, predict the test rows and score all and the rarest; return a results line.

    Times are processor seconds. ``unit`` is the time of a small CatBoost fit on the same table in the same
    process just before; it makes times of busy or different machines comparable.
    """
    trace = trace_of(None if estimator.parameters is None else ESTIMATOR, estimator.parameters)
    if estimator.name not in _warm:  # imports and caches are not part of the time
        with suppress(Exception):  # an error comes again below
            estimator.fit(split.x_train[:WARM_ROWS], split.y_train[:WARM_ROWS], split.seed)
        _warm.add(estimator.name)
    times = [time.process_time()]
    fit_gaussian(split.x_train[:UNIT_ROWS], split.y_train[:UNIT_ROWS], 0, trees=UNIT_TREES)
    times.append(time.process_time())
    predict = estimator.fit(split.x_train, split.y_train, split.seed)
    times.append(time.process_time())
    prediction = predict(split.x_test)
    times.append(time.process_time())
    unit, fitted, predicted = (round(end - start, 3) for start, end in pairwise(times))
    rows = {"all": np.ones(len(split.y_test), bool), "rare": split.rare}
    sizes = {"table": split.total, "train": len(split.y_train), "test": len(split.y_test)}
    record: Record = {
        "suite": split.suite,
        "data": split.name,
        "method": estimator.name,
        "title": estimator.title,
        "seed": split.seed,
        "version": __version__,
        "machine": machine(),
        "trace": trace,
        "recipe": natural_recipe(max_rows),
        "rows": {**sizes, "rare": int(split.rare.sum())},
        "digest": split.digest,
        "metrics": {
            "raw": {region: _natural_scores(prediction, split.y_test, of) for region, of in rows.items()}
        },
        "seconds": {"fit": fitted, "predict": predicted, "unit": unit},
    }
    if prediction.held_mae is not None:
        record["valid"] = {"mae": float(f"{prediction.held_mae:.6g}")}
    if prediction.quantiles is not None and prediction.quantiles.shape[1] == len(LEVELS):
        record["curve"] = _curve(prediction.quantiles, split.y_test, split.rare)
    if prediction.with_rare is None:
        return [record]
    ends = prediction.with_rare()
    scores = {
        region: record["metrics"]["raw"][region] | _interval_scores(*ends, split.y_test, of)
        for region, of in rows.items()
    }
    named = {"method": estimator.name + RARE, "title": f"{estimator.title}, rare={COVERAGE}"}
    return [{**record, **named, "metrics": {"raw": scores}}, record]


def _natural_scores(prediction: Prediction, y: Any, rows: Any) -> dict[str, float]:
    """Return errors, CRPS, and coverage, width and score of the 90% intervals, of some rows."""
    errors = prediction.mean - y
    values = {
        "mae": np.abs(errors)[rows].mean(),
        "rmse": np.sqrt((errors[rows] ** 2).mean()),
        "crps": prediction.crps(y, rows),
    }
    return _rounded(values) | _interval_scores(prediction.lower, prediction.upper, y, rows)


def _interval_scores(lower: Any, upper: Any, y: Any, rows: Any) -> dict[str, float]:
    low, high, labels = (torch.from_numpy(np.ascontiguousarray(of)) for of in (lower, upper, y))
    return _rounded(
        {
            "interval_score": winkler(low, high, labels).numpy()[rows].mean(),
            "coverage": ((lower <= y) & (y <= upper))[rows].mean(),
            "width": (upper - lower)[rows].mean(),
        }
    )


def _rounded(values: Mapping[str, float]) -> dict[str, float]:
    for name, value in values.items():
        if not math.isfinite(value):
            raise RuntimeError(f"its {name} is {value}")
    return {name: float(f"{value:.6g}") for name, value in values.items()}


def _curve(quantiles: Any, y: Any, rare: Any) -> list[list[float]]:
    """Return coverage of the rarest labels and mean width of central intervals at 51% to 99%."""
    found = []
    for k in reversed(range(25)):
        lower, upper = quantiles[:, k], quantiles[:, -1 - k]
        covered = ((lower <= y) & (y <= upper))[rare].mean()
        found.append([round(float(covered), 4), float(f"{(upper - lower).mean():.5g}")])
    return found
