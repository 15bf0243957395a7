"""The page on VIR's weights: writes the table of `research/results/vir-weights.md` from the lines beside it.

    python research/studies/vir_weights.py

A candidate that the code still has runs again by, for example,
``tailwise-bench run development --trials 1 --methods "vanilla,vir,vir[weights.clip=(50.0,1e9)]"``.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parents[1] / "results"
START = "## Measured"
Line = dict[str, Any]


def share(pairs: Iterable[tuple[Line, Line]], figure: Callable[[Line], float | None]) -> float:
    """Return the geometric mean of the ratios of a figure."""
    ratios = [math.log(a / b) for a, b in ((figure(x), figure(y)) for x, y in pairs) if a and b]
    return math.exp(sum(ratios) / len(ratios))


def table(lines: list[Line], candidates: list[str]) -> str:
    """Return a table of shares of Vanilla's figures, on the problems that all candidates have."""
    by_run = {(r["candidate"], r["data"], r["seed"]): r for r in lines}
    problems = {(r["data"], r["seed"]) for r in lines}
    problems = {p for p in problems if all((c, *p) in by_run for c in candidates)}
    rows = [
        f"{len(problems)} problems.\n",
        "| candidate | MAE all | many | medium | few | CRPS |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for candidate in candidates:
        pairs = [(by_run[candidate, *p], by_run["vanilla", *p]) for p in problems]
        regions = [share(pairs, lambda r, s=s: r["mae"][s]) for s in ("all", "many", "medium", "few")]
        crps = share(pairs, lambda r: r["crps"])
        rows.append(f"| {candidate} | " + " | ".join(f"{x:.3f}" for x in (*regions, crps)) + " |")
    return "\n".join(rows) + "\n"


def main() -> int:
    """Write the page."""
    lines = [json.loads(line) for line in (RESULTS / "vir-weights.jsonl").read_text().splitlines()]
    study = [r for r in lines if r["max_rows"] == 2000]
    names = list(dict.fromkeys(r["candidate"] for r in study))
    floors = [
        n
        for n in names
        if n in ("vanilla", "vir", "lds-fds-der") or n.startswith(("floor", "lds-fds-der, floor"))
    ]
    shares = ["vanilla", "vir", *(n for n in names if n.startswith("share"))]
    rivals = ["vanilla", *(n for n in names if n not in floors and n not in shares and "share" not in n)]
    parts = [f"\n{table(study, floors)}", f"\nFloors relative to the average row:\n\n{table(study, shares)}"]
    parts.append(f"\nThe same floor under the weights of the other methods:\n\n{table(study, rivals)}")
    for rows in (300, 20_000):
        part = [r for r in lines if r["max_rows"] == rows]
        candidates = list(dict.fromkeys(r["candidate"] for r in part))
        parts.append(f"\nWith at most {rows} training rows:\n\n{table(part, candidates)}")
    page = RESULTS / "vir-weights.md"
    text = page.read_text(encoding="utf-8").partition(START)[0]
    page.write_text(f"{text.rstrip()}\n\n{START}\n{''.join(parts)}", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
