"""Contenders by name: methods and groups of them, variants with other options, the dial, peers.

A name such as ``vir[weights.power=0.25]`` is a method with an option; several are joined by " and ".
"""

from __future__ import annotations

import ast
import difflib
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from tailwise.labels.prior import LabelDensity, emphasis
from tailwise.methods import available_methods, get_method
from tailwise.metrics.regions import evaluate, get_metric
from tailwise_bench.contenders import Contender, Fit, Outcome, from_registry
from tailwise_bench.peers import peer_contenders
from tailwise_bench.problem import Problem
from tailwise_bench.recipe import Recipe, check_options

VARIANTS = Path(__file__).parent / "variants.toml"
STEPS = tuple(sorted((round(0.1 * step, 1) for step in range(-3, 16)), key=abs))
"""Emphases that a dial tries; 0, the first, leaves predictions as they are."""
_LDS = {"power": 0.5, "form": "reference", "bandwidth": 2.0, "radius": 2, "clip": None}
_FDS = {"form": "reference", "boundary": "reflect", "bandwidth": 2.0, "radius": 2, "momentum": 0.9}
PUBLISHED: Mapping[str, Mapping[str, Any]] = {
    "inv": {"weights": {"power": 1.0, "clip": None}},
    "sqinv": {"weights": {"power": 0.5, "clip": None}},
    "lds-fds": {"weights": _LDS, "smoothing": {**_FDS, "clip": (0.1, 10.0)}},
}
"""Weights and smoothing of a method's publication, by method."""


def split_methods(text: str) -> list[str]:
    """Split at commas outside brackets.

    >>> split_methods("lds, vir[weights.clip=(1, 20)]")
    ['lds', 'vir[weights.clip=(1, 20)]']
    """
    return [name.strip() for name in re.split(r",(?![^\[]*\])", text) if name.strip()]


def groups() -> dict[str, dict[str, Contender]]:
    """Return groups of contenders by name: `variants.toml`, and those that the registry and peers make."""
    made = {
        group: [_variant(name, options) for name, options in rows.items()]
        for group, rows in tomllib.loads(VARIANTS.read_text(encoding="utf-8")).items()
    }
    made["published"] = []
    for method, fixed in PUBLISHED.items():
        title = f"{get_method(method).title}, as published"
        made["published"].append(
            replace(from_registry(method, **fixed), name=f"{method}-published", title=title)
        )
    made |= {"peers": peer_contenders(), "all": [from_registry(name) for name in available_methods()]}
    for contender in made["all"]:
        if group := get_method(contender.name).group:
            made.setdefault(group, []).append(contender)
    return {name: {contender.name: contender for contender in group} for name, group in made.items()}


def _variant(name: str, options: Mapping[str, Any], *, tuned: bool = False) -> Contender:
    method, _, words = name.removesuffix("]").partition("[")
    title = get_method(method).title + ("" if words == "fixed" else f", {words.replace('=', ' ')}")
    fixed = {key: _value(of) for key, of in options.items()}
    return replace(from_registry(method, **fixed), name=name, title=title, tuned=tuned)


def _value(value: Any) -> Any:
    """Return a value as written in Python; "none" turns a part off, and other words are texts."""
    try:
        return ast.literal_eval(value) if isinstance(value, str) else value
    except (ValueError, SyntaxError):
        return None if value == "none" else value


def choose_contenders(
    names: Iterable[str], options: Mapping[str, Mapping[str, Any]] | None = None
) -> list[Contender]:
    """Return contenders by name; ``all``, ``peers``, ``published`` and ``ablation-...`` are groups.

    ``vir[dial]`` is a method with rows under other label priors. `options` by name replace defaults of
    methods and of their variants.

    >>> [c.name for c in choose_contenders(["lds", "ablation-encoder"])]
    ['lds', 'vir[fixed]', 'vir-encoder[fixed]', 'lds-vir-encoder[fixed]', 'vanilla[fixed]', 'lds[fixed]']
    >>> choose_contenders(["vir[weights.power=0.25]"])[0].fixed
    {'weights.power': 0.25}
    """
    known, chosen = groups(), dict[str, Contender]()
    for name in names:
        for contender in known[name].values() if name in known else [_named(name, known)]:
            # A variant's own options have precedence.
            fixed = {**(options or {}).get(contender.method or "", {}), **contender.fixed}
            chosen[contender.name] = replace(contender, fixed=fixed)
    return list(chosen.values())


def _named(name: str, groups: Mapping[str, Mapping[str, Contender]]) -> Contender:
    known = {key: contender for group in groups.values() for key, contender in group.items()}
    if name in known:
        return known[name]
    method, bracket, inside = name.removesuffix("]").partition("[")
    words = inside.split(" and ")
    if words[-1] == "dial":
        return with_dial(_named(f"{method}[{' and '.join(words[:-1])}]" if words[:-1] else method, groups))
    if bracket and method in available_methods() and all("=" in word for word in words):
        contender = _variant(name, dict(word.split("=", 1) for word in words), tuned=True)
        check_options(method, contender.fixed)  # a misspelt option is an error now
        return contender
    close = difflib.get_close_matches(name, [*groups, *known], n=1)
    hint = f"did you mean {close[0]!r}?" if close else "name a method, a group, or vir[weights.power=0.25]"
    raise ValueError(f"unknown contender {name!r}; {hint}")


# -- the dial ------------------------------------------------------------------------------------


def with_dial(contender: Contender) -> Contender:
    """Return a contender whose fits also give two rows with a dial (VIR:dial).

    For the first, the emphasis of rare labels has the best criterion on the validation part, for the second
    the lowest error of few-shot labels there.
    """
    if contender.uncertainty == "none":
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
    labels, (many, few) = problem.labels("valid"), problem.shots
    rows = {}
    for name, metric in zip(names, (recipe.criterion, "few/mae"), strict=True):
        # NaN, where the validation part has no such labels, is never lower.
        best, least = STEPS[0], float("inf")
        for t, prediction in valid.items():
            score = evaluate(prediction, labels, problem.bins, (metric,), many=many, few=few)[metric]
            if get_metric(metric).loss(score) < least:
                best, least = t, get_metric(metric).loss(score)
        test = emphasis(density, best).apply(outcome.test)
        rows[name] = replace(outcome, valid=valid[best], test=test, emphasis=best, variants={})
    return replace(outcome, variants=rows)
