"""Contenders by name: methods and groups of them, variants with options, the dial, TailRegressor, peers.

A name such as ``vir[weights.power=0.25]`` is a method with an option; several are joined by " and ".
"""

from __future__ import annotations

import ast
import difflib
import re
import time
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from tailwise.distributions.members import Distribution
from tailwise.estimator import TailRegressor
from tailwise.labels.prior import LabelDensity, emphasis
from tailwise.methods import available_methods, get_method
from tailwise.metrics.regions import evaluate, get_metric
from tailwise.report.results import TAIL, TAIL_BALANCED
from tailwise_bench.contenders import (
    Contender,
    Fit,
    Outcome,
    fit_method,
    from_registry,
    published,
    registry_contenders,
)
from tailwise_bench.peers import peer_contenders
from tailwise_bench.problem import Problem
from tailwise_bench.recipe import Recipe, check_options
from tailwise_bench.trace import ESTIMATOR
from tailwise_bench.variants import ablations, picture_variants

STEPS = tuple(sorted((round(0.1 * step, 1) for step in range(-3, 16)), key=abs))
"""Emphases that a dial tries; 0, the first, leaves predictions as they are."""
_VARIANT = re.compile(r"([^\[]+)\[(.+)\]")
_COMMAS = re.compile(r",(?![^\[]*\])")


def split_methods(text: str) -> list[str]:
    """Split at commas outside brackets.

    >>> split_methods("lds, vir[weights.clip=(1, 20)]")
    ['lds', 'vir[weights.clip=(1, 20)]']
    """
    return [name.strip() for name in _COMMAS.split(text) if name.strip()]


def choose_contenders(
    names: Iterable[str], options: Mapping[str, Mapping[str, Any]] | None = None
) -> list[Contender]:
    """Return contenders by name; ``all``, ``peers``, ``published``, ``since-vir`` and
    ``ablation-...`` are groups.

    ``tail`` is TailRegressor, ``vir[dial]`` a method with rows under other label priors. `options` by name
    replace defaults of methods and of their variants.

    >>> [c.name for c in choose_contenders(["lds", "ablation-encoder"])]
    ['lds', 'vir[fixed]', 'vir-encoder[fixed]', 'lds-vir-encoder[fixed]', 'vanilla[fixed]', 'lds[fixed]']
    >>> choose_contenders(["vir[weights.power=0.25]"])[0].fixed
    {'weights.power': 0.25}
    """
    groups = {
        "all": registry_contenders(),
        "peers": peer_contenders(),
        "published": published(),
        **ablations(),
    }
    for name in available_methods():
        if group := get_method(name).group:
            groups.setdefault(group, []).append(from_registry(name))
    known = {c.name: c for group in groups.values() for c in group}
    known |= {c.name: c for c in (*picture_variants(), tail_contender())}
    chosen: dict[str, Contender] = {}
    for name in names:
        members = groups[name] if name in groups else [_named(name, known, [*groups, *known])]
        for contender in members:
            chosen[contender.name] = _with_options(contender, options or {})
    return list(chosen.values())


def _named(name: str, known: Mapping[str, Contender], choices: list[str]) -> Contender:
    if name in known:
        return known[name]
    variant = _VARIANT.fullmatch(name)
    if variant is not None:
        method, words = variant[1], variant[2].split(" and ")
        if words[-1] == "dial":
            inner = f"{method}[{' and '.join(words[:-1])}]" if words[:-1] else method
            return with_dial(_named(inner, known, choices))
        if method in available_methods() and all("=" in word for word in words):
            fixed = {key: _value(text) for key, _, text in (word.partition("=") for word in words)}
            check_options(method, fixed, Recipe())  # a misspelt option is an error now
            title = f"{get_method(method).title}, {', '.join(words)}"
            return from_registry(method, label=name, title=title, **fixed)
    close = difflib.get_close_matches(name, choices, n=1)
    hint = (
        f"did you mean {close[0]!r}?"
        if close
        else "name one of `tailwise methods`, a group (all, peers, ablation-...), tail, or a method with "
        "options such as vir[weights.power=0.25]"
    )
    raise ValueError(f"unknown contender {name!r}; {hint}")


def _value(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return None if text == "none" else text


def _with_options(contender: Contender, options: Mapping[str, Mapping[str, Any]]) -> Contender:
    """Return a method, or a variant of it, with other defaults; a variant's own options have precedence."""
    if contender.base is None or contender.base not in options:
        return contender
    fixed = {**options[contender.base], **contender.fixed}
    fit: Fit = partial(fit_method, method=contender.base, fixed=fixed)
    if contender.variants:  # a dial
        fit = partial(fit_with_dial, fit=fit, names=tuple(contender.variants))
    return replace(contender, fixed=fixed, fit=fit)


# -- the dial ------------------------------------------------------------------------------------


def with_dial(contender: Contender) -> Contender:
    """Return a contender whose fits also give two rows with a dial (VIR:dial).

    For the first, the emphasis of rare labels has the best criterion on the validation part, for the second
    the lowest error of few-shot labels there.
    """
    if contender.uncertainty == "none" or contender.variants:
        raise ValueError(f"{contender.name} predicts no density, so it has no dial")
    start = f"{contender.name[:-1]} and " if contender.name.endswith("]") else f"{contender.name}["
    rows = ("dial", "dial for few shots")
    variants = {f"{start}{row}]": f"{contender.title}, {row}" for row in rows}
    fit = partial(fit_with_dial, fit=contender.fit, names=tuple(variants))
    return replace(contender, fit=fit, variants=variants)


def fit_with_dial(
    problem: Problem, options: Mapping[str, Any], recipe: Recipe, *, fit: Fit, names: tuple[str, ...]
) -> Outcome:
    """Fit, then choose two emphases on the validation part."""
    outcome = fit(problem, options, recipe)
    density = LabelDensity.from_bins(problem.bins)
    valid = {t: emphasis(density, t).apply(outcome.valid) for t in STEPS}
    metrics = (recipe.criterion, "few/mae")
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
        rows[name] = replace(outcome, valid=valid[best], test=test, emphasis=best, variants={})
    return replace(outcome, variants=rows)


# -- TailRegressor -------------------------------------------------------------------------------


def tail_contender() -> Contender:
    """Return the estimator as a contender: a row at its own emphasis, and one at emphasis 1."""
    return Contender(
        name=TAIL,
        title="TailRegressor",
        fit=fit_tail_regressor,
        uncertainty="aleatoric and epistemic",
        cost=15.0,
        base=ESTIMATOR,
        variants={TAIL_BALANCED: "TailRegressor, emphasis 1"},
    )


def fit_tail_regressor(problem: Problem, options: Mapping[str, Any], recipe: Recipe) -> Outcome:
    """Fit the estimator with its defaults on the training part; it holds out rows of this part itself.

    Of the recipe it has the maximum number of epochs. `options` are parameters of the estimator.
    """
    if problem.x_train.ndim != 2:
        raise ValueError(f"TailRegressor takes tables, but {problem.name} is not a table")
    many, few = problem.shots
    began = time.process_time()
    model = TailRegressor(
        bins=problem.edges,
        epochs=recipe.train.epochs,
        many=many,
        few=few,
        device="cpu",
        random_state=problem.seed,
        **options,
    ).fit(problem.x_train, problem.y_train)
    seconds = time.process_time() - began
    balanced = _tail_outcome(model, problem, seconds, 1.0)
    return replace(_tail_outcome(model, problem, seconds, None), variants={TAIL_BALANCED: balanced})


def _tail_outcome(model: TailRegressor, problem: Problem, seconds: float, dial: float | None) -> Outcome:
    began = time.process_time()
    valid, test = (model.predict_distribution(x, emphasis=dial) for x in (problem.x_valid, problem.x_test))
    assert isinstance(valid, Distribution) and isinstance(test, Distribution)  # one target
    predicted = time.process_time()
    lower, upper = np.asarray(model.predict_interval(problem.x_test, emphasis=dial), np.float64).T
    return Outcome(
        valid=valid,
        test=test,
        fit_seconds=seconds,
        predict_seconds=predicted - began,
        epochs=max(history.best_epoch for history in model.histories_),
        parameters=sum(p.numel() for network in model.networks_ for p in network.parameters()),
        limits=(lower, upper),
    )
