"""Whether bounds of the label should be on by default, and by which rule.

    python benchmarks/rare_coverage.py fit --seeds 2
    python benchmarks/default_bounds.py --write

Bounds act on the predicted distribution, so the stored predictions of `rare_coverage.py` are enough: nothing
is trained again. Intervals are fitted anew. The emphasis is chosen anew as well: the one with the smallest
error of the rarest held-out labels whose error over all held-out rows is no higher than without bounds. A
first comparison kept the emphasis as it was: CRPS fell by 3% to 7%, and the error of the rarest labels rose
by 5% to 18%, so that no rule won there either.

Rules, each for the training labels of a run:

- `proposed`: the bounds that `tailwise.diagnose` proposes. 0 if labels are never negative and a symmetric
  distribution of their mean and spread would put more than 1 in 100 below 0; 0 and 1 or 100 for shares and
  percentages;
- `spike`: the smallest label if at least 5% of the labels have it, and the largest likewise;
- `observed`: the smallest and the largest label.

**The rule of choice**, written before the comparison. Over the tables on which a rule gives bounds, and
compared with no bounds,

1. CRPS is lower by at least 0.5% in the geometric mean, and on no table higher by more than 1%;
2. 90% intervals are no wider in the geometric mean;
3. coverage of all labels and of the 15% rarest falls by at most 0.01 in the mean, and of the rarest by at
   most 0.02 on every table;
4. the mean absolute error is not higher by more than 0.5% in the geometric mean, for all labels and for the
   rarest.

Of the rules that satisfy this, the one with the lowest CRPS becomes the default. If none does, the default
stays None.
"""

from __future__ import annotations

import argparse
import pickle
import sys
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from tailwise.core.distributions import Distribution
from tailwise.core.label_prior import emphasis, rarest
from tailwise.core.scores import crps
from tailwise.core.tilt import Tilted
from tailwise.core.truncation import Bounds, bounds_of
from tailwise.report.diagnosis import propose_bounds
from tailwise.uncertainty.calibrator import EMPHASES, Calibrator, Predicted

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs" / "results"
COVERAGE, SPIKE = 0.9, 0.05
METRICS = ("crps", "mae", "mae rarest", "width", "width rarest", "coverage", "coverage rarest")


def spiked(y: np.ndarray) -> Bounds | None:
    """Return the smallest or largest label as a bound if many labels have it."""
    ends = [float(end) if (y == end).mean() >= SPIKE else None for end in (y.min(), y.max())]
    return bounds_of(ends, y)


RULES: dict[str, Callable[[np.ndarray], Bounds | None]] = {
    "none": lambda y: None,
    "proposed": lambda y: bounds_of(propose_bounds(y), y),
    "spike": spiked,
    "observed": lambda y: bounds_of("observed", y),
}


def chosen_emphasis(calibrator: Calibrator, bounds: Bounds | None) -> float:
    """Return the best emphasis for rare labels with bounds whose error over all rows does not rise."""
    density, held = calibrator.density, calibrator.held
    assert density is not None and held is not None
    if bounds is None:
        return calibrator.emphasis
    y, rare = held.labels, rarest(held.labels, density)

    def errors(t: float, within: Distribution) -> np.ndarray:
        return np.asarray(np.abs(emphasis(density, t).apply(within).point.numpy() - y))

    allowed = errors(calibrator.emphasis, held.prediction).mean()
    within = bounds.apply(held.prediction)
    found = {t: errors(t, within) for t in EMPHASES[::2]}
    able = [t for t, error in found.items() if error.mean() <= allowed]
    return min(able, key=lambda t: found[t][rare].mean()) if able else 0.0


def bounded(found: Predicted, bounds: Bounds | None) -> Predicted:
    """Return the same predictions between the bounds, with intervals that fit them."""
    calibrator = found.calibrator
    assert calibrator.density is not None
    t = chosen_emphasis(calibrator, bounds)
    moved = replace(calibrator, bounds=bounds)._tilted(emphasis(calibrator.density, t), t)

    def between(distribution: Distribution) -> Distribution:
        return moved.possible(distribution.base if isinstance(distribution, Tilted) else distribution)

    networks = tuple(between(network) for network in found.networks)
    return Predicted(between(found.distribution), moved, networks, found.groups)


def score(run: dict[str, Any], rule: str) -> dict[str, Any] | None:
    """Return the figures of a rule on the test rows of a run, or None where it gives no bounds."""
    held = run["found"].calibrator.held.labels  # all training labels: every row calibrates
    bounds = RULES[rule](held)
    if bounds is None and rule != "none":
        return None
    found, y, rare = bounded(run["found"], bounds), run["y"], run["rare"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        lower, upper = (end.numpy() for end in found.interval(COVERAGE))
    inside, width = (y >= lower) & (y <= upper), upper - lower
    error = np.abs(found.distribution.point.numpy() - y)
    values = (
        float(np.mean(crps(found.distribution, torch.from_numpy(y)))), error.mean(), error[rare].mean(),
        width.mean(), width[rare].mean(), inside.mean(), inside[rare].mean(),
    )  # fmt: skip
    return {"rule": rule, **dict(zip(METRICS, map(float, values), strict=True))}


def score_all(folder: Path) -> pd.DataFrame:
    """Score every rule on every stored run."""
    lines = []
    for path in sorted(folder.glob("*-1500.pkl")):
        table, seed, _ = path.stem.split("-")
        run = pickle.loads(path.read_bytes())
        for rule in RULES:
            if (line := score(run, rule)) is not None:
                lines.append({"table": table, "seed": int(seed), **line})
    return pd.DataFrame(lines)


def compared(results: pd.DataFrame) -> pd.DataFrame:
    """Return each rule's figures against no bounds: ratios, and differences of coverages. (rule, table)"""
    by = results.groupby(["rule", "table"], sort=False)[list(METRICS)].mean()
    lines = []
    for (rule, table), own in by.iterrows():
        plain = by.loc[("none", table)]
        line = {m: own[m] - plain[m] if "coverage" in m else own[m] / plain[m] for m in METRICS}
        lines.append({"rule": rule, "table": table, **line})
    return pd.DataFrame(lines)


def judged(table: pd.DataFrame) -> pd.DataFrame:
    """Return a row for each rule: means over its tables, and the conditions that fail."""
    lines = {}
    for rule in list(RULES)[1:]:
        own = table[table["rule"] == rule]
        mean = {m: float(np.exp(np.log(own[m]).mean())) for m in METRICS[:5]}
        mean |= {m: float(own[m].mean()) for m in METRICS[5:7]}
        met = (
            mean["crps"] <= 0.995 and own["crps"].max() <= 1.01,
            mean["width"] <= 1.0,
            mean["coverage"] >= -0.01 and mean["coverage rarest"] >= -0.01
            and own["coverage rarest"].min() >= -0.02,
            mean["mae"] <= 1.005 and mean["mae rarest"] <= 1.005,
        )  # fmt: skip
        fails = ", ".join(str(k) for k, fine in enumerate(met, 1) if not fine) or "-"
        lines[rule] = {"tables": len(own), **mean, "conditions that fail": fails}
    return pd.DataFrame(lines).T


def markdown(results: pd.DataFrame) -> str:
    """Return what was found, as text and tables."""
    table = compared(results)
    rules = judged(table)
    able = rules[rules["conditions that fail"] == "-"]
    best = "" if able.empty else str(able["crps"].astype(float).idxmin())
    found = (
        f"`{best}` becomes the default."
        if best
        else "No rule satisfies all conditions: the default stays None."
    )
    lines = [found, "", f"| rule | {' | '.join(rules.columns)} |", "|---|" + "--:|" * len(rules.columns)]
    for rule, row in rules.iterrows():
        lines.append(f"| {rule} | {' | '.join(v if isinstance(v, str) else f'{v:.3g}' for v in row)} |")
    lines += ["", "Ratios to no bounds; differences for coverages.", ""]
    lines += [f"| table | rule | {' | '.join(METRICS)} |", "|---|---|" + "--:|" * len(METRICS)]
    for _, row in table[table["rule"] != "none"].sort_values("table", kind="stable").iterrows():
        cells = [f"{row[m]:+.3f}" if "coverage" in m else f"{row[m]:.3f}" for m in METRICS]
        lines.append(f"| {row['table']} | {row['rule']} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--folder", type=Path, default=ROOT / "build" / "rare_coverage")
    parser.add_argument("--write", action="store_true", help="write docs/results/default_bounds.md")
    options = parser.parse_args()
    torch.set_num_threads(1)
    results = score_all(options.folder)
    if results.empty:
        print(f"no runs in {options.folder}: run `rare_coverage.py fit` first", file=sys.stderr)
        return 1
    text = markdown(results)
    print(text)
    if options.write:
        about = (__doc__ or "").strip().splitlines()
        body, runs = "\n".join(about[5:]), len(results[["table", "seed"]].drop_duplicates())
        made = f"Written by `python benchmarks/default_bounds.py --write` from {runs} runs; do not edit."
        (DOCS / "default_bounds.md").write_text(
            f"# {about[0].rstrip('.')}\n\n{made}\n\n{body}\n\n## What was found\n\n{text}\n",
            encoding="utf-8",
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
