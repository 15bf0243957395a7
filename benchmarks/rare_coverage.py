"""Why 90% intervals cover the rarest labels more often than asked, and which rule for them is narrowest.

    python benchmarks/rare_coverage.py fit --seeds 2
    python benchmarks/rare_coverage.py fit --seeds 1 --rows 4000 --data credit,flights,incomes,wages
    python benchmarks/rare_coverage.py write

`fit` trains TailRegressor as it comes on the development tables of `tailwise bench` (`pip install
'tailwise[development]'`), with random splits (20% test rows) and at most 1,500 training rows and 3,000 test
rows (4,000 in four runs), and stores the predictions. `write` makes the intervals of
each variant from the same predictions, so nothing is trained again. `rarest` are the 15% of the test labels
with the lowest density of training labels; `few-shot` are labels in bins with fewer than 20 training rows.
Widths are in standard deviations of the training labels.

**The rule of choice.** A variant can win if the 90% intervals cover

1. the rarest labels: at least 90% in the mean of the tables, and 87% to 95% on every table with 50 or more
   such test rows;
2. few-shot labels: at least 85% in the mean of the tables with 20 or more such test rows;
3. all labels: at least 90% in the mean of the tables, and 88% on every table.

Of these variants the one with the smallest width over all rows wins (geometric mean of the ratio to the
former rule's); within 1% of it, the one with fewer parts. If none can win, nothing changes. A table's
figures are the means of its runs. The rule was written after five of the runs had been looked at to find
the cause, and before the variants were compared.

**The cause.** Neither the vote over the networks nor the mean of the networks matters: in the five runs
looked at, the intervals of single networks cover the rarest labels as often, within 0.01. The corrections
for small samples matter little (`no correction`). What matters is the group of few-shot labels. Where they
are few and far from their predictions, as in `wages`, the factor that covers 85% of them covers more than
95% of the rarest 15%, and widens all intervals.

**Variants.** Every variant makes limits by predicted region, then widens them by one factor below and one
above until groups of held-out rows are covered.

- `rare and few-shot`, the former rule: the rarest 15% of the held-out labels are covered like all labels,
  and few-shot labels are missed at most 1.5 times as often;
- `no correction`: the same without the correction of the groups for their number of rows;
- `five splits`: the share of the misses that lie below is one of 0.1, 0.25, 0.5, 0.75 and 0.9, not only one
  of the middle three;
- `few-shot missed twice`: few-shot labels may be missed twice as often;
- `rare only`: there is no group of few-shot labels;
- `rare at most 95%`, `94%`, `93%`: few-shot labels may be missed more often, in steps of 0.25 from 1.5
  times on, until at most so many of the rarest held-out labels are covered.

The last three were added after the others had been compared on twelve of the runs; the rule stayed as it
was. `rare at most 93%` was ahead while two of the runs were missing, because condition 2 is just met by the
winner. Also tried on some runs, without a gain: a search for the narrowest pair of factors, factors for each
predicted region, and spreads at emphasis 1."""

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

from tailwise.uncertainty.calibrator import Predicted
from tailwise.uncertainty.conformal import ConformalIntervals
from tailwise.uncertainty.widening import Group

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs" / "results"
COVERAGE, TEST_ROWS = 0.9, 3000
PARTS = ("all", "rarest", "few-shot")
THREE, FIVE = (0.25, 0.5, 0.75), (0.1, 0.25, 0.5, 0.75, 0.9)


def fit_one(name: str, seed: int, rows: int, path: Path) -> None:
    """Train TailRegressor on one split and store what it predicts for the test rows."""
    from tailwise import TailRegressor
    from tailwise.benchmark import get_suite
    from tailwise.benchmark.data.natural_splits import natural_split

    source = next(s for s in get_suite("development").sources if s.name == name)
    split = natural_split(source, seed, max_rows=rows)  # type: ignore[arg-type]
    kept = np.sort(np.random.default_rng(seed).permutation(len(split.y_test))[:TEST_ROWS])
    model = TailRegressor(random_state=seed, device="cpu").fit(split.x_train, split.y_train)
    (found,) = model.predictions(split.x_test.iloc[kept].reset_index(drop=True))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(pickle.dumps({"found": found, "y": split.y_test[kept], "rare": split.rare[kept]}))
    print(path.name, flush=True)


# -- variants ----------------------------------------------------------------------------------------


class Uncorrected(Group):
    """A group without the correction for its number of rows."""

    def factors(self, limits: Any, coverage: float) -> Any:
        return Group.factors(replace(self, effective=1e9), limits, coverage)


def narrowest(fitted: ConformalIntervals, splits: tuple[float, ...]) -> ConformalIntervals:
    """Return the intervals with the narrowest of the splits."""
    return min((replace(fitted, split=s) for s in splits), key=ConformalIntervals._mean_width)


def with_slack(fitted: ConformalIntervals, slack: float) -> ConformalIntervals:
    """Return intervals whose few-shot group may be missed so many times as often."""
    groups = (replace(g, slack=slack) if g.name == "few" else g for g in fitted.groups)
    return replace(fitted, groups=tuple(groups))


def without_few(fitted: ConformalIntervals) -> ConformalIntervals:
    """Return intervals without the few-shot group."""
    return replace(fitted, groups=tuple(g for g in fitted.groups if g.name != "few"))


def uncorrected(fitted: ConformalIntervals) -> ConformalIntervals:
    """Return intervals whose groups have no correction for their number of rows."""
    groups = (
        Uncorrected(g.name, g.scores, g.regions, g.weights, g.effective, g.slack) for g in fitted.groups
    )
    return replace(fitted, groups=tuple(groups))


def capped(fitted: ConformalIntervals, most: float) -> ConformalIntervals:
    """Return intervals with the least few-shot slack that covers at most this share of the rarest labels."""
    found = fitted
    for slack in np.arange(1.5, 10.01, 0.25):
        found = narrowest(with_slack(fitted, float(slack)), THREE)
        rare = next(group for group in found.groups if group.name == "rare")
        inside = np.abs(rare._ratio(found._widened(COVERAGE))) <= 1
        if rare.weights[inside].sum() <= most * rare.weights.sum():
            break
    return found


VARIANTS: dict[str, Callable[[ConformalIntervals], ConformalIntervals]] = {
    "rare and few-shot": lambda c: narrowest(with_slack(c, 1.5), THREE),
    "rare and few-shot, no correction": lambda c: narrowest(uncorrected(with_slack(c, 1.5)), THREE),
    "few-shot missed twice": lambda c: narrowest(with_slack(c, 2.0), THREE),
    "rare only": lambda c: narrowest(without_few(c), THREE),
    "rare and few-shot, five splits": lambda c: narrowest(with_slack(c, 1.5), FIVE),
    "rare at most 95%": lambda c: capped(c, 0.95),
    "rare at most 94%": lambda c: capped(c, 0.94),
    "rare at most 93%": lambda c: capped(c, 0.93),
}
FORMER = next(iter(VARIANTS))


def score(run: dict[str, Any], name: str) -> dict[str, Any]:
    """Coverage and width of one variant on the test rows of one run."""
    found: Predicted = run["found"]
    calibrator, y = found.calibrator, run["y"]
    assert calibrator.conformal is not None
    changed = replace(calibrator, conformal=VARIANTS[name](calibrator.conformal))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        lower, upper = (end.numpy() for end in found._replace(calibrator=changed).interval(COVERAGE))
    inside, width = (y >= lower) & (y <= upper), (upper - lower) / calibrator.bins.scale
    few = calibrator.bins.regions()[calibrator.bins.index(y)] == "few"
    line: dict[str, Any] = {"variant": name}
    for part, rows in zip(PARTS, (np.ones(y.size, bool), run["rare"], few), strict=True):
        line[f"{part}/n"] = int(rows.sum())
        line[f"{part}/coverage"] = float(inside[rows].mean()) if rows.any() else np.nan
        line[f"{part}/width"] = float(width[rows].mean()) if rows.any() else np.nan
    return line


def score_all(folder: Path) -> pd.DataFrame:
    """Score every variant on every stored run."""
    lines = []
    for path in sorted(folder.glob("*.pkl")):
        table, seed, rows = path.stem.split("-")
        run = pickle.loads(path.read_bytes())
        for name in VARIANTS:
            lines.append({"table": table, "seed": int(seed), "rows": int(rows), **score(run, name)})
    return pd.DataFrame(lines)


# -- the rule and the page ---------------------------------------------------------------------------


def judged(results: pd.DataFrame) -> pd.DataFrame:
    """Return a row for each variant: means of the tables, extremes, widths against the former rule's."""
    by_table = results.groupby(["variant", "table"], sort=False).mean(numeric_only=True)
    counts = results.groupby(["variant", "table"], sort=False)[["rarest/n", "few-shot/n"]].min()
    former = by_table.loc[FORMER]
    lines = {}
    for name in VARIANTS:
        own, n = by_table.loc[name], counts.loc[name]
        rare, few, every = (own[f"{part}/coverage"] for part in ("rarest", "few-shot", "all"))
        rare_judged, few_judged = rare[n["rarest/n"] >= 50], few[n["few-shot/n"] >= 20]
        met = (
            rare.mean() >= 0.9 and rare_judged.between(0.87, 0.95).all(),
            few_judged.mean() >= 0.85,
            every.mean() >= 0.9 and every.min() >= 0.88,
        )
        lines[name] = {
            "rarest": rare.mean(), "rarest, least": rare_judged.min(), "rarest, most": rare_judged.max(),
            "few-shot": few_judged.mean(), "all": every.mean(), "all, least": every.min(),
            "all width": _geometric(own["all/width"] / former["all/width"]),
            "rarest width": _geometric(own["rarest/width"] / former["rarest/width"]),
            "fails": ", ".join(str(k) for k, fine in enumerate(met, 1) if not fine) or "-",
        }  # fmt: skip
    return pd.DataFrame(lines).T


def _geometric(ratios: pd.Series) -> float:
    return float(np.exp(np.log(ratios).mean()))


def finding(table: pd.DataFrame) -> str:
    """Say which variant wins."""
    able = table[table["fails"] == "-"]
    if able.empty:
        return "No variant satisfies all conditions, so nothing changes."
    best = str(able["all width"].astype(float).idxmin())
    return (
        f"`{best}` wins: {len(able)} of {len(table)} variants satisfy all conditions, and its intervals are "
        f"{table.loc[best, 'all width']:.2f} times as wide as those of `{FORMER}`."
    )


def markdown(results: pd.DataFrame) -> str:
    """Return the tables of the page."""
    table = judged(results)
    digits = {"all width": 2, "rarest width": 2}
    head = ["variant", *table.columns]
    head[-1] = "conditions that fail"
    lines = [f"| {' | '.join(head)} |", "|---|" + "--:|" * (len(head) - 1)]
    for name, row in table.iterrows():
        cells = [v if isinstance(v, str) else f"{v:.{digits.get(k, 3)}f}" for k, v in row.items()]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    each = [
        "| table | runs | variant | all | rarest | few-shot | width | rarest width |",
        "|---|--:|---|" + "--:|" * 5,
    ]
    for (name, variant), own in results.groupby(["table", "variant"], sort=False):
        mean = own.mean(numeric_only=True)
        cells = [f"{mean[f'{part}/coverage']:.3f}" for part in PARTS]
        cells += [f"{mean[f'{part}/width']:.2f}" for part in PARTS[:2]]
        each.append(f"| {name} | {len(own)} | {variant} | {' | '.join(cells)} |".replace("nan", "-"))
    return "\n".join([finding(table), "", *lines, "", "## Each table", "", *each])


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("step", choices=("fit", "write"))
    parser.add_argument("--data", type=lambda text: text.split(","), help="tables; all by default")
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--rows", type=int, default=1500)
    parser.add_argument("--folder", type=Path, default=ROOT / "build" / "rare_coverage")
    parser.add_argument("--out", type=Path, default=DOCS)
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.step == "fit":
        from tailwise.benchmark import get_suite

        names = options.data or [source.name for source in get_suite("development").sources]
        for name in names:
            for seed in range(options.seeds):
                path = options.folder / f"{name}-{seed}-{options.rows}.pkl"
                if not path.exists():
                    fit_one(name, seed, options.rows, path)
        return 0
    results = score_all(options.folder)
    if results.empty:
        print(f"no runs in {options.folder}: run `fit` first", file=sys.stderr)
        return 1
    text = markdown(results)
    print(text)
    about = (__doc__ or "").strip().splitlines()
    body = "\n".join(about[6:])
    runs = results[["table", "seed", "rows"]].drop_duplicates()
    (options.out / "rare_coverage.md").write_text(
        f"# {about[0].rstrip('.')}\n\nWritten by `python benchmarks/rare_coverage.py write` from {len(runs)} "
        f"runs on {runs['table'].nunique()} tables; do not edit.\n\n{body}\n\n## What was found\n\n{text}\n",
        encoding="utf-8",
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
