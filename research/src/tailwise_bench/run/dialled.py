"""Contenders with a dial: one fit also gives rows under other label priors, chosen on the validation part."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from tailwise.labels.prior import LabelDensity, emphasis
from tailwise.metrics.regions import evaluate, get_metric
from tailwise_bench.data.problems import Problem
from tailwise_bench.data.recipe import Recipe
from tailwise_bench.run.contenders import Contender, Fit, Outcome

STEPS = tuple(sorted((round(0.1 * step, 1) for step in range(-3, 16)), key=abs))
"""Emphases that are tried; 0, the first, leaves predictions as they are."""
FEW = "few/mae"


def _inside(name: str, words: str) -> str:
    """Return the name of a variant of a contender, which may be a variant itself.

    >>> _inside("vir", "dial"), _inside("vir[exponent=0.25]", "dial")
    ('vir[dial]', 'vir[exponent=0.25 and dial]')
    """
    return f"{name[:-1]} and {words}]" if name.endswith("]") else f"{name}[{words}]"


def with_dial(contender: Contender) -> Contender:
    """Return a contender whose fits also give two rows with a dial (VIR:dial).

    For the first, the emphasis of rare labels has the best criterion on the validation part, for the second
    the lowest error of few-shot labels there.
    """
    rows = ("dial", "dial for few shots")
    variants = {_inside(contender.name, row): f"{contender.title}, {row}" for row in rows}
    fit = partial(fit_with_dial, fit=contender.fit, names=tuple(variants))
    return replace(contender, fit=fit, variants={**contender.variants, **variants})


def fit_with_dial(
    problem: Problem, options: Mapping[str, Any], recipe: Recipe, *, fit: Fit, names: tuple[str, ...]
) -> Outcome:
    """Fit, then choose two emphases on the validation part."""
    outcome = fit(problem, options, recipe)
    density = LabelDensity.from_bins(problem.bins)
    valid = {t: emphasis(density, t).apply(outcome.valid) for t in STEPS}
    metrics = (recipe.criterion, FEW)
    many, few = problem.shots
    scores = {
        t: evaluate(of, problem.labels("valid"), problem.bins, metrics, many=many, few=few)
        for t, of in valid.items()
    }
    rows = {}
    for name, metric in zip(names, metrics, strict=True):
        # NaN, where the validation part has no such labels, is never lower.
        best = STEPS[0]
        for t in STEPS[1:]:
            loss = get_metric(metric).loss
            if loss(scores[t][metric]) < loss(scores[best][metric]):
                best = t
        test = emphasis(density, best).apply(outcome.test)
        rows[name] = replace(outcome, valid=valid[best], test=test, emphasis=best, shown=None, variants={})
    return replace(outcome, variants={**outcome.variants, **rows})


def dialled(contenders: Iterable[Contender]) -> dict[str, Contender]:
    """Return contenders with a dial by the names of the rows that they add; others predict no density."""
    able = (with_dial(c) for c in contenders if c.uncertainty != "none" and not c.variants)
    return {name: c for c in able for name in c.variants}
