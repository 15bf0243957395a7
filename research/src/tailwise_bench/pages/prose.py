"""Sentences of the pages: what was run and what it shows, all computed from the results."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from tailwise.methods import get_method
from tailwise.networks.backbones import BACKBONES
from tailwise_bench.data.problems import Source
from tailwise_bench.data.recipe import BALANCED_OTHERWISE
from tailwise_bench.data.suites import SUITES
from tailwise_bench.pages.markup import number
from tailwise_bench.pages.origin import describe_origin
from tailwise_bench.pages.statistics import (
    HEADLINES,
    RATIOS,
    Comparison,
    Figure,
    Results,
    compare,
    tests_of,
)
from tailwise_bench.run.times import Times


def verdict(results: Results, reference: str = "vir") -> str:
    """Say where the reference is better or worse than others, from ranks and tests, as points."""
    lines = [_headline(results, figure, reference) for figure in HEADLINES]
    places = [_few_shot_places(results, data, reference) for data in results.data]
    title = results.titles[reference]
    lines.append(f"- Rank of {title} for few-shot labels by data set: {'; '.join(filter(None, places))}.")
    return "\n".join(lines) + "\n"


def _headline(results: Results, figure: Figure, reference: str) -> str:
    ranks, title = results.average_ranks(figure), results.titles[reference]
    known = {method: rank for method, rank in ranks.items() if not math.isnan(rank)}
    name = f"{'calibrated ' if figure.calibrated else ''}{figure.name}"
    if reference not in known:
        text = f"- **{name}**: {title} has no rank."
    else:
        best, own = min(known, key=lambda m: known[m]), known[reference]
        place = "the best" if own == known[best] else "the worst" if own == max(known.values()) else ""
        text = f"- **{name}**: {title} has average rank {number(own)} of {len(ranks)}"
        text += f", {place}." if place else "."
        if own > known[best]:
            text += f" The best is {results.titles[best]} with {number(known[best])}."
    for over in tests_of(results):
        found = compare(results, figure, reference, over=over)
        beaten, beating, undecided = (
            [c for c in found if c.verdict() == word] for word in ("worse", "better", "open")
        )
        units = "data sets" if over == "data" else "seeds"
        text += f" Test over {units}: better than {len(beaten)} others, worse than {len(beating)}"
        if beating:
            text += f" ({_with_gains(beating, results, figure)})"
        text += f", undecided against {len(undecided)}."
    return text


def _few_shot_places(results: Results, data: str, reference: str) -> str:
    """Rank of the reference by MAE and by calibrated NLL of few-shot labels, and who is best."""
    words = []
    for figure in (Figure("mae", "few"), Figure("nll", "few", calibrated=True)):
        means = {m: results.mean_std(figure, data, m)[0] for m in results.methods}
        known = {m: value for m, value in means.items() if not math.isnan(value)}
        if reference in known:
            place = sum(value < known[reference] for value in known.values()) + 1
            best = min(known, key=lambda m: known[m])
            who = "" if best == reference else f", best {results.titles[best]}"
            words.append(f"{figure.name.removesuffix(' few')} {place} of {len(known)}{who}")
    return f"{data} ({', '.join(words)})" if words else ""


def _with_gains(found: Sequence[Comparison], results: Results, figure: Figure) -> str:
    """Name contenders with how much better they are, the largest gain first."""

    def gain(c: Comparison) -> str:
        return f"{100 * (1 - math.exp(c.change)):.1f}%" if figure.metric in RATIOS else f"{-c.change:.3f}"

    ordered = sorted(found, key=lambda c: c.change)
    return ", ".join(f"{results.titles[c.method]} by {gain(c)}" for c in ordered)


def describe_runs(results: Results, reference: str | None = None) -> str:
    """Describe what was run and how it was measured, as points."""
    recipe = results.records[0]["recipe"]
    many, few = results.records[0].get("shots", (100, 20))
    seeds = sorted({r["seed"] for r in results.records})
    which = f"seed {seeds[0]}" if len(seeds) == 1 else f"seeds {seeds[0]} to {seeds[-1]}"
    expected = len(results.methods) * len(results.data) * len(seeds)
    shown = ", ".join(f"{name} {value}" for name, value in recipe.items() if name != "trials")
    return _points(
        f"{len(results.methods)} contenders on {data_sets(results)} with {which}: {len(results.records)} of "
        f"{expected} runs.",
        f"All networks have the same recipe: {shown}.",
        *_describe_weights(recipe),
        f"{_describe_split(results)} Encodings, bins and weights come from the training part, calibration "
        "from the validation part.",
        "A point prediction counts as a Gaussian of constant variance, which is calibrated like all others.",
        f"Many-shot labels are in bins with more than {many} training rows, few-shot labels in bins with "
        f"fewer than {few}.",
        _describe_tests(results),
        *describe_origin(results.records, reference),
    )


def _describe_weights(recipe: Mapping[str, Any]) -> list[str]:
    """Say that all methods have the same label weights, if they do."""
    if recipe.get("weights") != "sqinv":
        return []
    others = ", ".join(get_method(name).title for name in BALANCED_OTHERWISE)
    return [
        "Every method weights its rows by SQINV, the inverse square root of the smoothed label density, as "
        f"in the paper's experiments. These keep their own: {others}. Models of other packages are not "
        "weighted."
    ]


def data_sets(results: Results) -> str:
    """Return the number of data sets in words."""
    return "1 data set" if len(results.data) == 1 else f"{len(results.data)} data sets"


def _describe_split(results: Results) -> str:
    first = results.records[0]
    suite = SUITES.get(first.get("suite", ""))
    if suite is None:  # of a file: its network shows what it was trained on
        tables = first["recipe"].get("backbone") in BACKBONES
    else:
        tables = all(isinstance(source, Source) for source in suite.sources)
    if not tables:
        return "The data set comes with its own training, validation and test parts."
    return "Validation and test parts are balanced over label bins; the training part has a maximum size."


def _points(*sentences: str) -> str:
    return "".join(f"- {sentence}\n" for sentence in sentences)


def describe_tuning(results: Results) -> str:
    """Describe how configurations were chosen, as a point."""
    recipe = results.records[0]["recipe"]
    if recipe["trials"] == 1:
        criterion = recipe["criterion"].replace("_", " ")
        return _points(f"Early stopping uses the {criterion} of the validation part. Nothing is tuned.")
    return _points(
        f"Early stopping and the choice among {recipe['trials']} configurations per contender and data set "
        f"use the {recipe['criterion'].replace('_', ' ')} of the validation part. Only the first seed is "
        "tuned; the other seeds use its configuration."
    )


def describe_times(times: Times) -> str:
    """Describe how times were measured, as a point."""
    return _points(
        f"Times were measured on {times.machine}: each chosen configuration was fitted once more with seed "
        f"{times.seed}, one after the other in one process on one thread, with early stopping as in the run. "
        "They are processor times without tuning."
    )


def _describe_tests(results: Results) -> str:
    """Say what the paired tests ask and assume."""
    text = (
        "Tests are paired t-tests with Holm's correction. The test over seeds asks whether other seeds would "
        "show the same on these data sets, with the same pools of test rows and the same configurations. It "
        "assumes that seeds are then independent."
    )
    if len(results.data) > 1:
        text += (
            f" The test over the {len(results.data)} data sets, each a mean over seeds, asks whether other "
            "data sets like these would show the same. It assumes that data sets are independent, and "
            "nothing about seeds, which share rows. Both assume that mean changes are about normal. With so "
            "few data sets much stays undecided."
        )
    return text
