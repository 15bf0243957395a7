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
from optuna.trial import TrialState

from tailwise._version import __version__
from tailwise.calibration.scaling import balanced_weights, fit_scaling
from tailwise.distributions.members import Distribution, Normal
from tailwise.methods import get_method
from tailwise.metrics.regions import REGIONS, by_bin, evaluate, get_metric
from tailwise.metrics.scores import winkler
from tailwise.report.results import Record, machine
from tailwise_bench.contenders import Contender, Outcome
from tailwise_bench.estimators import COVERAGE, LEVELS, RARE, Estimator, Prediction, fit_gaussian
from tailwise_bench.problem import HOLE, Problem
from tailwise_bench.recipe import Recipe
from tailwise_bench.spaces import default_options, describe_space, new_study, suggest
from tailwise_bench.tables import RARE_SHARE, TEST_SHARE, NaturalSplit
from tailwise_bench.trace import ESTIMATOR, trace_of

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


def measure(
    contender: Contender, problem: Problem, recipe: Recipe, options: Mapping[str, Any] | None = None
) -> list[Record]:
    """Fit, calibrate on the validation part, and score the test part once; return results lines.

    Without `options` they are tuned first: of ``recipe.trials`` configurations, or as many as fit
    ``recipe.budget``, the one with the best criterion on the validation part is kept. With `options`, those
    that are missing have their defaults. Each variant of the contender has a line; its own is the last.
    """
    began = time.perf_counter()
    trace, space = contender.trace(recipe), contender.space(recipe)
    trials: list[Record] = []
    if options is None:
        best, chosen, trials = _tune(contender, problem, recipe)
    else:
        chosen = {**default_options(space), **options}
        best = contender.fit(problem, {**contender.fixed, **chosen}, recipe)
    rows = [(name, title, best.variants[name]) for name, title in contender.variants.items()]
    lines = []
    for name, title, outcome in [*rows, (contender.name, contender.title, best)]:
        line: Record = {
            "data": problem.name,
            "method": name,
            "title": title,
            "uncertainty": contender.uncertainty,
            "seed": problem.seed,
            "version": __version__,
            "machine": machine(),
            "trace": trace,
            "recipe": recipe.describe(),
            "options": chosen,
            **({"fixed": dict(contender.fixed)} if contender.fixed else {}),
            **problem.describe(),
            **_scores(contender, outcome, problem, recipe),
        }
        lines.append(line)
    if trials:
        lines[-1] |= {"search": describe_space(space), "trials": trials}
    spent = [trial["spent"] for trial in trials] or [_spent(best)]
    for line in lines:
        line["seconds"]["all"] = round(time.perf_counter() - began, 3)
        line["spent"] = {unit: round(sum(of[unit] for of in spent), 3) for unit in ("seconds", "gradients")}
    return lines


def _tune(
    contender: Contender, problem: Problem, recipe: Recipe
) -> tuple[Outcome, dict[str, Any], list[Record]]:
    """Return the outcome and the options with the best validation criterion, and all trials."""
    space, criterion = contender.space(recipe), get_metric(recipe.criterion)
    study = new_study(space, recipe.trials)
    best: tuple[float, Outcome, dict[str, Any]] | None = None
    trials: list[Record] = []
    for _ in range(recipe.trials if space else 1):
        trial, began = study.ask(), time.process_time()
        options = suggest(trial, space)
        try:
            outcome = contender.fit(problem, {**contender.fixed, **options}, recipe)
            score = criterion(outcome.valid, problem.labels("valid"), problem.bins)
            if not math.isfinite(score):
                raise RuntimeError(f"its {recipe.criterion} on the validation part is {score}")
        except RuntimeError as error:  # not finite or not invertible: only this configuration fails
            spent = {"seconds": round(time.process_time() - began, 3), "gradients": 0}
            trials.append({"options": options, "score": None, "error": str(error)[:200], "spent": spent})
            study.tell(trial, state=TrialState.FAIL)
        else:
            loss = criterion.loss(score)
            trials.append({"options": options, "score": float(f"{score:.6g}"), "spent": _spent(outcome)})
            study.tell(trial, loss)
            if best is None or loss < best[0]:
                best = loss, outcome, options
        if not recipe.allows_another([trial["spent"] for trial in trials]):
            break
    if best is None:
        raise RuntimeError(f"every configuration failed; the first with: {trials[0]['error']}")
    return best[1], best[2], trials


def _spent(outcome: Outcome) -> dict[str, float]:
    return {"seconds": round(outcome.fit_seconds, 3), "gradients": outcome.gradients}


def _scores(contender: Contender, outcome: Outcome, problem: Problem, recipe: Recipe) -> Record:
    """Calibrate an outcome on the validation part and score it on the test part."""
    valid, y, bins = problem.labels("valid"), problem.labels("test"), problem.bins
    scaling = fit_scaling(outcome.valid, valid, weights=balanced_weights(valid, bins))
    predictions = {"raw": outcome.test, "calibrated": scaling.apply(outcome.test)}
    names = {"raw": OF_THE_MEAN + problem.metrics + OF_THE_SPREAD, "calibrated": OF_THE_SPREAD}
    metrics = {kind: _by_region(of, y, problem, names[kind]) for kind, of in predictions.items()}
    method = None if contender.method is None else get_method(contender.method)
    if method is not None and method.variance == "epistemic":  # s-hat of the paper
        for kind, of in predictions.items():
            reported = _by_region(Normal(of.mean, of.epistemic), y, problem, OF_THE_VARIANCE)
            metrics[kind] = {region: {**metrics[kind][region], **of} for region, of in reported.items()}
    regions = bins.regions(*problem.shots)[bins.index(y)]
    test_rows = {region: int((regions == region).sum()) for region in REGIONS[1:]}
    if (hole := problem.extra.get(HOLE)) is not None:
        test_rows["hole"] = int(hole.sum())
        for kind, of in predictions.items():
            inside = _by_region(of[torch.from_numpy(hole)], y[hole], problem, IN_HOLES) if hole.any() else {}
            metrics[kind]["hole"] = inside.get("all", dict.fromkeys(IN_HOLES))
    criterion = get_metric(recipe.criterion)(outcome.valid, valid, bins)
    along = by_bin(outcome.test, y, bins, ("mae",))
    return {
        "test_rows": test_rows,
        "valid": {recipe.criterion: _rounded(criterion)},
        "epochs": outcome.epochs,
        "parameters": outcome.parameters,
        "scaling": {name: _rounded(value) for name, value in asdict(scaling).items()},
        "metrics": metrics,
        **({} if outcome.emphasis is None else {"emphasis": outcome.emphasis}),
        "along_label": {name: [_rounded(v, 5) for v in along[name]] for name in ("center", "n", "mae")},
        "seconds": {"fit": round(outcome.fit_seconds, 3), "predict": round(outcome.predict_seconds, 3)},
    }


def _by_region(
    prediction: Distribution, y: np.ndarray, problem: Problem, metrics: Sequence[str]
) -> dict[str, Any]:
    """Return rounded metrics by region; None where a region has too few rows."""
    names = [f"{region}/{metric}" for region in REGIONS for metric in metrics]
    many, few = problem.shots
    values = evaluate(prediction, y, problem.bins, names, many=many, few=few)
    return {
        region: {metric: _rounded(values[f"{region}/{metric}"]) for metric in metrics} for region in REGIONS
    }


def _rounded(value: float, digits: int = 6) -> float | None:
    return float(f"{value:.{digits}g}") if math.isfinite(value) else None


# -- natural splits ------------------------------------------------------------------------------


def natural_recipe(max_rows: int) -> dict[str, Any]:
    """Return the settings of a results line; runs with other settings must not be compared."""
    return {"test": TEST_SHARE, "rare": RARE_SHARE, "max_rows": max_rows, "coverage": COVERAGE}


def measure_estimator(estimator: Estimator, split: NaturalSplit, max_rows: int) -> list[Record]:
    """Fit on the training rows, predict the test rows and score all and the rarest; return results lines.

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
    limits = prediction.lower, prediction.upper
    scores = {r: _natural_scores(prediction, *limits, split.y_test, of) for r, of in rows.items()}
    record: Record = {
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
        "metrics": {"raw": scores},
        "seconds": {"fit": fitted, "predict": predicted, "unit": unit},
    }
    if prediction.held_mae is not None:
        record["valid"] = {"mae": _rounded(prediction.held_mae)}
    if prediction.quantiles is not None and prediction.quantiles.shape[1] == len(LEVELS):
        record["curve"] = _curve(prediction.quantiles, split.y_test, split.rare)
    if prediction.with_rare is None:
        return [record]
    limits = prediction.with_rare()
    scores = {r: _natural_scores(prediction, *limits, split.y_test, of) for r, of in rows.items()}
    named = {"method": estimator.name + RARE, "title": f"{estimator.title}, rare={COVERAGE}"}
    return [{**record, **named, "metrics": {"raw": scores}}, record]


def _natural_scores(prediction: Prediction, lower: Any, upper: Any, y: Any, rows: Any) -> dict[str, Any]:
    """Return errors, CRPS, and coverage, width and score of the 90% intervals, of some rows."""
    errors = (prediction.mean - y)[rows]
    lower, upper, labels = lower[rows], upper[rows], y[rows]
    low, high, true = (torch.from_numpy(np.ascontiguousarray(of)) for of in (lower, upper, labels))
    values = {
        "mae": np.abs(errors).mean(),
        "rmse": np.sqrt((errors**2).mean()),
        "crps": prediction.crps(y, rows),
        "interval_score": winkler(low, high, true).numpy().mean(),
        "coverage": ((lower <= labels) & (labels <= upper)).mean(),
        "width": (upper - lower).mean(),
    }
    for name, value in values.items():
        if not math.isfinite(value):
            raise RuntimeError(f"its {name} is {value}")
    return {name: _rounded(float(value)) for name, value in values.items()}


def _curve(quantiles: Any, y: Any, rare: Any) -> list[list[float]]:
    """Return coverage of the rarest labels and mean width of central intervals at 51% to 99%."""
    points = []
    for k in reversed(range(25)):
        lower, upper = quantiles[:, k], quantiles[:, -1 - k]
        covered = ((lower <= y) & (y <= upper))[rare].mean()
        points.append([round(float(covered), 4), float(f"{(upper - lower).mean():.5g}")])
    return points
