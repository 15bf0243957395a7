"""What results show and what that rests on, in words drawn from the results alone."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tailwise.benchmark.data.problems import Source
from tailwise.benchmark.data.suites import SUITES
from tailwise.benchmark.pages.markup import number
from tailwise.benchmark.pages.statistics import (
    HEADLINES,
    OTHERS,
    RATIOS,
    Comparison,
    Figure,
    Results,
    compare,
    tests_of,
)
from tailwise.benchmark.run.times import Times


def verdict(results: Results, reference: str = "vir") -> str:
    """Say where the reference wins and loses, and to whom; drawn from the tests, nothing else."""
    title = results.titles[reference]
    lines = []
    for figure in HEADLINES:
        rank = results.average_ranks(figure)
        leader = min((m for m in rank if not math.isnan(rank[m])), key=lambda m: rank[m], default=reference)
        text = (
            f"- **{'calibrated ' if figure.calibrated else ''}{figure.name}**: average rank "
            f"{number(rank[reference])} of {len(rank)} (best: {results.titles[leader]}, "
            f"{number(rank[leader])})"
        )
        for over in tests_of(results):
            found = compare(results, figure, reference, over=over)
            groups = {word: [c for c in found if c.verdict() == word] for word in ("better", "worse", "open")}
            text += (
                f"; to expect of {OTHERS[over]}: better than {len(groups['worse'])}, undecided with "
                f"{len(groups['open'])}, worse than {len(groups['better'])}"
            )
            if groups["better"]:
                text += f" ({_named(groups['better'], results, figure)})"
        lines.append(text + ".")
    best = []
    for data in results.data:
        for figure in (Figure("mae", "few"), Figure("nll", "few", calibrated=True)):
            means = {m: results.mean_std(figure, data, m)[0] for m in results.methods}
            known = {m: value for m, value in means.items() if not math.isnan(value)}
            if reference not in known:
                continue
            place = sum(value < known[reference] for value in known.values()) + 1
            first = min(known, key=lambda m: known[m])
            who = "" if first == reference else f", first {results.titles[first]}"
            best.append(f"{data} {figure.name} {place} of {len(known)}{who}")
    lines.append(f"- Place of {title} in the few-shot region of each data set: {'; '.join(best)}.")
    return "\n".join(lines) + "\n"


def _named(found: Sequence[Comparison], results: Results, figure: Figure) -> str:
    """Names with by how much, the largest gain first."""

    def gain(c: Comparison) -> str:
        return f"{100 * (1 - math.exp(c.change)):.1f}%" if figure.metric in RATIOS else f"{-c.change:.3f}"

    ordered = sorted(found, key=lambda c: c.change)
    return ", ".join(f"{results.titles[c.method]} by {gain(c)}" for c in ordered)


def describe_runs(results: Results) -> str:
    """What was run, and what everything that is said about it rests on, as points."""
    recipe = results.records[0]["recipe"]
    many, few = results.records[0].get("shots", (100, 20))
    seeds = sorted({r["seed"] for r in results.records})
    which = f"seed {seeds[0]}" if len(seeds) == 1 else f"seeds {seeds[0]} to {seeds[-1]}"
    machines = sorted({r["machine"] for r in results.records})
    expected = len(results.methods) * len(results.data) * len(seeds)
    shown = ", ".join(f"{name} {value}" for name, value in recipe.items() if name != "trials")
    return _points(
        f"{len(results.methods)} contenders on {data_sets(results)} with {which}: {len(results.records)} "
        f"runs of {expected}.",
        f"One recipe for all networks: {shown}.",
        f"{_split_words(results)} Encodings, bins and weights come from the training part, calibration from "
        "the validation part.",
        "A point prediction counts as a Gaussian of constant variance, calibrated like every other one.",
        f"Regions go by the training count of a label's bin: many above {many}, few below {few}.",
        _test_words(results),
        f"Run on: {'; '.join(machines)}.",
    )


def data_sets(results: Results) -> str:
    """How many there are."""
    return "1 data set" if len(results.data) == 1 else f"{len(results.data)} data sets"


def _split_words(results: Results) -> str:
    """How rows were divided: tables alike, others as their authors did."""
    suite = SUITES.get(results.records[0].get("suite", ""))
    if suite is None or not all(isinstance(source, Source) for source in suite.sources):
        return "The parts are those of the data set itself."
    return "Validation and test parts are balanced over label bins, training rows capped evenly."


def _points(*sentences: str) -> str:
    return "".join(f"- {sentence}\n" for sentence in sentences)


def describe_tuning(results: Results) -> str:
    """How configurations were chosen, as a point."""
    recipe = results.records[0]["recipe"]
    if recipe["trials"] == 1:
        criterion = recipe["criterion"].replace("_", " ")
        return _points(f"Early stopping goes by the validation part's {criterion}. Nothing is tuned.")
    return _points(
        f"Early stopping and the choice among {recipe['trials']} configurations per contender and data set "
        f"go by the validation part's {recipe['criterion'].replace('_', ' ')}. Tuning happens on the first "
        "seed; the other seeds take what was chosen."
    )


def describe_times(times: Times) -> str:
    """Where times come from, as a point."""
    return _points(
        f"Times: {times.machine}; every chosen configuration fitted once more with seed {times.seed}, one "
        "after the other in one process on one thread, stopped early as in the run. Processor time, tuning "
        "not counted."
    )


def _test_words(results: Results) -> str:
    """What the paired tests assume."""
    text = (
        "Paired t-tests with Holm's correction. Over seeds: would other seeds show the same on these data "
        "sets, their pools of test rows and the chosen configurations? Assumed: given those, seeds are "
        "independent."
    )
    if len(results.data) > 1:
        text += (
            f" Over the {len(results.data)} data sets (a mean over seeds each): would other data sets like "
            "these show it? Assumed: data sets are independent; nothing about seeds, which share rows. Both "
            "take mean changes for about normal. So few data sets leave much undecided."
        )
    return text
