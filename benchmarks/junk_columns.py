"""Errors with columns of noise added, as a ratio to none: TailRegressor and CatBoost on development tables.

    python benchmarks/junk_columns.py --workers 2 --write

Columns are added in turn: a date, a flag, an integer and a normal number, all independent of the label. A
ratio of 1 means that noise does no harm. Tables are split at random as in `tailwise bench estimator`, with at
most `--rows` training rows; the rarest labels are the 15% of test labels with the lowest density of training
labels. Finished runs are kept in docs/results/junk_columns.jsonl and not repeated. Needs the extras
`development` and `peers`.
"""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd

from script_options import BESIDE, script_parser, show
from tailwise.benchmark import Source, get_suite, read_results
from tailwise.benchmark.pages.markup import Table
from tailwise.benchmark.pages.origin import describe_origin
from tailwise.benchmark.pages.statistics import Figure, Results
from tailwise.benchmark.run.estimator_runs import run_estimators
from tailwise.benchmark.run.estimators import choose_estimators

DOCS = Path(__file__).parents[1] / "docs" / "results"
ESTIMATORS = ("tail", "catboost")
COUNTS = (0, 3, 10, 30)
FIGURES = (Figure("mae"), Figure("mae", "rare"), Figure("crps", "rare"))


def noise_column(place: int, rows: int) -> pd.Series:
    """Return a date, a flag, an integer or a normal number per row, by place; the place is also the seed."""
    rng = np.random.default_rng(place)
    kind = place % 4
    if kind == 0:
        return pd.Series(pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 1000, rows), unit="D"))
    if kind == 1:
        return pd.Series(rng.integers(0, 2, rows))
    return pd.Series(rng.integers(0, 1000, rows) if kind == 2 else rng.normal(size=rows))


def with_noise(source: Source, count: int) -> pd.DataFrame:
    """Load a table and add columns of noise."""
    table = source.load()
    columns = {f"noise_{i}": noise_column(i, len(table)).to_numpy() for i in range(count)}
    return table.assign(**columns)


def noisy(source: Source, count: int) -> Source:
    """Return a source that adds columns of noise to a table."""
    return Source(f"{source.name}+{count}", source.target, partial(with_noise, source, count), source.leaks)


def ratios_by_seed(results: Results, figure: Figure, method: str, count: int) -> np.ndarray:
    """Return the geometric mean over tables of a figure divided by that without noise, for each seed. (S,)"""
    found: dict[int, list[float]] = {}
    for data in results.data:
        name, _, own = data.rpartition("+")
        if int(own) == count:
            plain = results.runs(f"{name}+0", method)
            for seed, run in results.runs(data, method).items():
                if seed in plain:
                    found.setdefault(seed, []).append(figure.change(figure.of(run), figure.of(plain[seed])))
    return np.exp([np.mean(logs) for logs in found.values()])


def summary(results: Results) -> Table:
    """Return one row per number of columns, with both estimators side by side."""
    rows = []
    for count in COUNTS[1:]:
        cells = [str(count)]
        for figure in FIGURES:
            for method in ESTIMATORS:
                values = ratios_by_seed(results, figure, method, count)
                spread = f" ± {values.std(ddof=1):.3f}" if values.size > 1 else ""
                cells.append(f"{values.mean():.3f}{spread}" if values.size else "-")
        rows.append(cells)
    head = ["columns", *(f"{f.name}: {results.titles[m]}" for f in FIGURES for m in ESTIMATORS)]
    caption = "Divided by the figure without noise (geometric mean over tables; mean ± deviation over seeds)"
    return Table(caption, head, rows)


def by_table(results: Results) -> Table:
    """Return the ratio of the MAE for every table, mean over seeds."""
    names = list(dict.fromkeys(data.rpartition("+")[0] for data in results.data))
    rows = []
    for name in names:
        cells = [name]
        for count in COUNTS[1:]:
            for method in ESTIMATORS:
                noisy_mae, plain = (
                    results.mean_std(FIGURES[0], f"{name}+{c}", method)[0] for c in (count, 0)
                )
                cells.append(f"{noisy_mae / plain:.3f}")
        rows.append(cells)
    head = ["table", *(f"{count}: {results.titles[m]}" for count in COUNTS[1:] for m in ESTIMATORS)]
    return Table("MAE of all labels divided by that without noise, by number of columns", head, rows)


def page(results: Results) -> str:
    """Return the page of these results."""
    title, _, _, _, *about = (__doc__ or "").strip().splitlines()
    words = "\n".join(about)
    tables = list(dict.fromkeys(record["data"].rpartition("+")[0] for record in results.records))
    every = [source.name for source in get_suite("development").sources]
    chosen = "" if set(tables) == set(every) else f"--data {','.join(tables)} "
    seeds, rows = len({r["seed"] for r in results.records}), results.records[0]["recipe"]["max_rows"]
    return (
        f"# {title.rstrip('.')}\n\nWritten by `python benchmarks/junk_columns.py --seeds {seeds} "
        f"--rows {rows} {chosen}--write`; do not edit.\n\n{words}\n\n"
        f"{' '.join(describe_origin(results.records, ESTIMATORS[0]))}\n\n"
        f"{summary(results).markdown()}\n{by_table(results).markdown()}"
    )


def main() -> int:
    """Run what is missing, print the tables and write the page if asked to."""
    parser = script_parser(
        __doc__, seeds=3, rows=2000, tables=True, workers=1, results=DOCS / "junk_columns.jsonl", write=BESIDE
    )
    parser.add_argument("--time-limit", type=float, default=None, help="seconds")
    options = parser.parse_args()
    known = {s.name: s for s in get_suite("development").sources if isinstance(s, Source)}
    tables = [known[name] for name in options.data.split(",")] if options.data else list(known.values())
    done = run_estimators(
        [noisy(source, count) for source in tables for count in COUNTS],
        choose_estimators(ESTIMATORS),
        out=options.results, suite="junk-columns", seeds=range(options.seeds), max_rows=options.rows,
        workers=options.workers, time_limit=options.time_limit,
    )  # fmt: skip
    for line in done.failed:
        print(f"failed: {line}", file=sys.stderr)
    if done.left or done.failed:
        return 3 if done.left else 1
    text = page(Results(read_results(options.results)))
    show(text, options)
    return 0


if __name__ == "__main__":
    sys.exit(main())
