"""Baselines before and after they were matched with published code: a table of docs/deviations.md.

Each method is fitted with the same options in both states on the tables of the suite `development`. The score
is that of the choice of defaults: balanced CRPS of calibrated predictions on the validation part. The lines
of the state before are those of the choice of defaults at the time.

    tailwise bench prepare --suite development --seeds 2 --out FOLDER
    python benchmarks/mended.py --prepared FOLDER [--seeds 2] [--write]

Lines in docs/results/mended.jsonl are not run again. `--write` replaces the table in docs/deviations.md.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from tailwise.benchmark.data.suites import get_suite, prepared_data
from tailwise.benchmark.run.defaults import Fit, log_ratio, mean_and_error, score_of
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
PLACE = re.compile(r"^\| method, same options \|.*\n(?:\|.*\n)+", re.M)


def run(method: str, seed: int, prepared: Path) -> Record:
    """Fit a method on every table and return a results line with its validation scores."""
    options, recipe = OPTIONS[method], get_suite("development").recipe
    trace = trace_of(method, options)
    scores = {}
    for name in prepared_data(prepared, [seed]):
        scores[name], _ = score_of(Fit(method, seed, options, name), folder=prepared, recipe=recipe)
    about = {"machine": machine(), "trace": trace}
    return {"state": "after", "method": method, "seed": seed, "options": options, "scores": scores, **about}


def table(lines: Sequence[Record]) -> str:
    """Return the change against Vanilla in percent, mean and standard error over tables."""
    plain = {r["seed"]: r["scores"] for r in lines if r["method"] == "vanilla"}
    rows = []
    for method in OPTIONS:
        cells = []
        for state in ("before", "after"):
            mine = [r for r in lines if (r["method"], r["state"]) == (method, state)]
            ratios = [[log_ratio(r["scores"][d], plain[r["seed"]][d]) for d in plain[0]] for r in mine]
            mean, error = mean_and_error(np.mean(ratios, axis=0)) if mine else (0.0, 0.0)
            cells.append(f"{100 * mean:+.1f} ± {100 * error:.1f}")
        if method != "vanilla":
            rows.append(f"| {get_method(method).title} | {' | '.join(cells)} |\n")
    return "| method, same options | before | after |\n|---|---|---|\n" + "".join(rows)


def main() -> None:
    """Run what is missing and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--prepared", type=Path)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--write", action="store_true", help="replace the table in docs/deviations.md")
    options = parser.parse_args()
    torch.set_num_threads(1)
    file = ResultsFile(DOCS / "results" / "mended.jsonl")
    done = {(r["method"], r["seed"]) for r in file.records if r["state"] == "after"}
    for method in OPTIONS:
        for seed in range(options.seeds if options.prepared else 0):
            if (method, seed) not in done:
                file.append(run(method, seed, options.prepared))
    found = table(file.records)
    print(found, end="")
    if options.write:
        page = DOCS / "deviations.md"
        page.write_text(PLACE.sub(lambda _: found, page.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
