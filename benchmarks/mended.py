"""Baselines before and after they were matched with published code: a table of docs/deviations.md.

Each method is fitted with the same options in both states on the tables of the suite `development`. The score
is that of the choice of defaults: balanced CRPS of calibrated predictions on the validation part. The lines
of the state before are those of the choice of defaults at the time.

    tailwise bench prepare --suite development --seeds 2 --out FOLDER
    python benchmarks/mended.py --prepared FOLDER [--seeds 2] [--write]

Lines in docs/results/mended.jsonl are not run again. If docs/results/defaults.jsonl has a search of a method
that was run after the change, the table also shows the options that it chose. `--write` replaces the table
and the words below it in docs/deviations.md.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from script_options import script_parser
from tailwise.benchmark.data.suites import get_suite, prepared_data
from tailwise.benchmark.pages.defaults_page import percent
from tailwise.benchmark.run.defaults import Fit, decisions, log_ratio, mean_and_error, score_of
from tailwise.benchmark.run.results import Record, ResultsFile
from tailwise.benchmark.run.trace import machine, trace_of
from tailwise.methods import get_method

DOCS = Path(__file__).parents[1] / "docs"
OPTIONS = {
    "vanilla": {},
    "ranksim": {"penalty_weight": 0.14},
    "focal-r": {"objective_options.b": 0.41, "objective_options.g": 2.3},
    "fds": {
        "smoothing.bandwidth": 2.0,
        "smoothing.radius": 2,
        "smoothing.momentum": 0.9,
        "smoothing.clip": [0.1, 10.0],
    },
}
STATES = ("before", "after")
PLACE = re.compile(r"^\| method, same options \|.*\n(?:\|.*\n)+\n(?:\S.*\n)+", re.M)
"""The table and the paragraph behind it."""


def run(method: str, seed: int, prepared: Path) -> Record:
    """Fit a method on every table and return a results line with its validation scores."""
    options, recipe = OPTIONS[method], get_suite("development").recipe
    trace = trace_of(method, options)
    scores = {}
    for name in prepared_data(prepared, [seed]):
        scores[name], _ = score_of(Fit(method, seed, options, name), folder=prepared, recipe=recipe)
    about = {"machine": machine(), "trace": trace}
    return {"state": "after", "method": method, "seed": seed, "options": options, "scores": scores, **about}


def change(lines: Sequence[Record], method: str, state: str) -> tuple[float, float]:
    """Return the mean change against Vanilla and its standard error over tables, as logarithms."""
    plain = {r["seed"]: r["scores"] for r in lines if r["method"] == "vanilla"}
    mine = [r for r in lines if (r["method"], r["state"]) == (method, state)]
    ratios = [[log_ratio(r["scores"][d], plain[r["seed"]][d]) for d in plain[0]] for r in mine]
    return mean_and_error(np.mean(ratios, axis=0))


def chosen_anew(method: str, defaults: Sequence[Record]) -> str:
    """Return the change with the options that a search after the change chose; empty if there is none.

    Searches of before have no trace.
    """
    own = [r for r in defaults if r["method"] == method and "trace" in r]
    if not own:
        return ""
    (found,) = decisions(own)
    line = next(r for r in own if r["options"] == found.chosen)
    plain = next(r for r in defaults if r["method"] == "vanilla" and r["digest"] == line["digest"])
    ratios = [log_ratio(line["scores"][d], plain["scores"][d]) for d in plain["scores"]]
    options = ", ".join(f"{name.rpartition('.')[2]} {value}" for name, value in found.chosen.items())
    return f"{percent(*mean_and_error(ratios))} ({options})"


def table(lines: Sequence[Record], defaults: Sequence[Record] = ()) -> str:
    """Return the change against Vanilla in percent, mean and standard error over tables."""
    methods = [method for method in OPTIONS if method != "vanilla"]
    anew = {method: chosen_anew(method, defaults) for method in methods}
    head, rows = ["method, same options", *STATES], []
    if any(anew.values()):
        head.append("after, options chosen anew")
    for method in methods:
        cells = [percent(*change(lines, method, state)) for state in STATES]
        if any(anew.values()):
            cells.append(anew[method] or "-")
        rows.append(f"| {' | '.join([get_method(method).title, *cells])} |\n")
    return f"| {' | '.join(head)} |\n|{'---|' * len(head)}\n" + "".join(rows)


def standing(mean: float, error: float) -> str:
    """Say where a method is, beside Vanilla."""
    return "level with" if abs(mean) <= error else "ahead of" if mean < 0 else "behind"


def words(lines: Sequence[Record], defaults: Sequence[Record] = ()) -> str:
    """Return the paragraph behind the table."""
    found = []
    for method in OPTIONS:
        if method != "vanilla":
            before, after = (standing(*change(lines, method, state)) for state in STATES)
            both = (
                f"{before} it in both states" if before == after else f"{before} it before, {after} it after"
            )
            found.append(f"{get_method(method).title} is {both}")
    text = (
        f"By more than one standard error against Vanilla: {'; '.join(found)}. These options were chosen "
        "before the change, by the rule in [results/defaults.md](results/defaults.md)."
    )
    if any(chosen_anew(method, defaults) for method in OPTIONS):
        text += " The last column has those chosen by the same rule after it, with the seed of the search."
    return textwrap.fill(text, 125, break_on_hyphens=False, break_long_words=False) + "\n"


def main() -> None:
    """Run what is missing and print the table."""
    parser = script_parser(__doc__, seeds=2, write="replace table and words in docs/deviations.md")
    parser.add_argument("--prepared", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    file = ResultsFile(DOCS / "results" / "mended.jsonl")
    done = {(r["method"], r["seed"]) for r in file.records if r["state"] == "after"}
    for method in OPTIONS:
        for seed in range(options.seeds if options.prepared else 0):
            if (method, seed) not in done:
                file.append(run(method, seed, options.prepared))
    defaults = ResultsFile(DOCS / "results" / "defaults.jsonl").records
    found = f"{table(file.records, defaults)}\n{words(file.records, defaults)}"
    print(found, end="")
    if options.write:
        page = DOCS / "deviations.md"
        page.write_text(PLACE.sub(lambda _: found, page.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
