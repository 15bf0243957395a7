"""The page of the suite `estimator`: TailRegressor and boosted trees on natural splits, against CatBoost."""

from __future__ import annotations

import math
import shlex
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from tailwise_bench.pages.markup import Table, best_cells, number, with_spread, write_text
from tailwise_bench.pages.origin import describe_origin
from tailwise_bench.pages.statistics import Figure, Results, changes
from tailwise_bench.run.estimators import (
    CALIBRATION_SHARE,
    CATBOOST_TREES,
    CONFORMAL,
    LIGHTGBM_TREES,
    NGBOOST_TREES,
    QUANTILES,
    REFERENCE,
    all_estimators,
)
from tailwise_bench.run.results import read_results

RATIOS = (Figure("mae"), Figure("mae", "rare"), Figure("crps"), Figure("crps", "rare"))
COUNTED = (RATIOS[0], RATIOS[1], RATIOS[3])
COVERED = Figure("coverage", "rare")
GOOD_COVERAGE = (0.85, 0.95)
NO_CHOICE = (
    "**No choice is made on these results.** All settings were fixed in advance. Earlier choices used other "
    "splits of these tables: TailRegressor's network ([backbones.md](backbones.md)) and the score of its "
    "intervals ([coverage.md](coverage.md))."
)
DEVELOPMENT = "**Choices may be made on these tables**, so these results cannot judge such choices."


def ordered_methods(results: Results) -> list[str]:
    """Return the estimators in the order of `all_estimators`; unknown ones follow."""
    known = [estimator.name for estimator in all_estimators()]
    return sorted(results.methods, key=lambda m: known.index(m) if m in known else len(known))


def ratio_by_seed(results: Results, figure: Figure, method: str) -> np.ndarray:
    """Return the geometric mean over tables of a figure divided by the reference's, for each seed. (S,)"""
    if method == REFERENCE:
        return np.ones(1)
    return np.asarray(np.exp(changes(results, figure, method, REFERENCE, "seeds")))


def tables_ahead(results: Results, figure: Figure, method: str) -> tuple[int, int]:
    """Return the number of tables where a method is better than the reference, and of all tables."""
    by_table = changes(results, figure, method, REFERENCE, "data")
    return int((by_table < 0).sum()), by_table.size


def time_ratio(results: Results, kind: str, method: str) -> float:
    """Return the geometric mean over tables and seeds of a time divided by the reference's.

    Each is first divided by the unit of time of its own process, if both have one.
    """
    logs = []
    for data in results.data:
        ours, theirs = results.runs(data, method), results.runs(data, REFERENCE)
        for seed in ours.keys() & theirs.keys():
            pair = [ours[seed]["seconds"], theirs[seed]["seconds"]]
            units = [of["unit"] for of in pair] if all(of["unit"] for of in pair) else [1.0, 1.0]
            times = [max(of[kind], 1e-3) / unit for of, unit in zip(pair, units, strict=True)]
            logs.append(math.log(times[0] / times[1]))
    return math.exp(np.mean(logs)) if logs else math.nan


# -- tables --------------------------------------------------------------------------------------


def overview_table(results: Results, methods: Sequence[str]) -> Table:
    """Return ratios against the reference with spreads over seeds, tables won, and times."""
    columns = [[float(np.mean(ratio_by_seed(results, f, m))) for m in methods] for f in RATIOS]
    rows = []
    for r, method in enumerate(methods):
        cells = [results.titles[method]]
        for figure, column in zip(RATIOS, columns, strict=True):
            by_seed = ratio_by_seed(results, figure, method)
            spread = f" ± {by_seed.std(ddof=1):.3f}" if by_seed.size > 1 else ""
            cells.append(f"{column[r]:.3f}{spread}")
        for figure in COUNTED:
            won, of = tables_ahead(results, figure, method)
            cells.append("-" if method == REFERENCE else f"{won}/{of}")
        cells += [number(time_ratio(results, kind, method), 2) for kind in ("fit", "predict")]
        cells.append(str(sum(record["method"] == method for record in results.records)))
        rows.append(cells)
    head = ["estimator", *(f.name for f in RATIOS), *(f"{f.name}: tables ahead" for f in COUNTED)]
    caption = (
        f"Divided by {results.titles[REFERENCE]}'s (geometric mean over tables; mean ± standard deviation "
        "over seeds); below 1 is better"
    )
    return Table(caption, [*head, "fit time", "predict time", "runs"], rows, best_cells(columns))


def coverage_table(results: Results, methods: Sequence[str]) -> Table:
    """Return the coverage of the rarest labels on every table, and how many tables are within limits."""
    low, high = GOOD_COVERAGE
    rows = []
    for method in methods:
        means = [results.mean_std(COVERED, data, method)[0] for data in results.data]
        known = [mean for mean in means if not math.isnan(mean)]
        good = sum(low <= mean <= high for mean in known)
        everywhere = np.nanmean([results.mean_std(Figure("coverage"), d, method)[0] for d in results.data])
        widths = [f"{_width_ratio(results, method, labels):.3f}" for labels in ("rare", "all")]
        cells = ["-" if math.isnan(mean) else f"{mean:.3f}" for mean in means]
        rows.append([results.titles[method], *cells, f"{good}/{len(known)}", f"{everywhere:.3f}", *widths])
    caption = (
        f"Coverage of 90% intervals for the rarest labels by table (mean over seeds), tables with {low:g} to "
        f"{high:g}, coverage of all labels, widths for the rarest and for all labels divided by CatBoost's"
    )
    head = ["estimator", *results.data, f"{low:g} to {high:g}", "all labels", "width rare", "width all"]
    return Table(caption, head, rows)


def _width_ratio(results: Results, method: str, labels: str) -> float:
    if method == REFERENCE:
        return 1.0
    by_table = changes(results, Figure("width", labels), method, REFERENCE, "data")
    return math.exp(by_table.mean()) if by_table.size else math.nan


def figure_table(results: Results, figure: Figure, methods: Sequence[str]) -> Table:
    """Return one figure on every table, mean and standard deviation over seeds."""
    cells = [[results.mean_std(figure, data, method) for method in methods] for data in results.data]
    rows = [
        [results.titles[method], *(with_spread(*column[r]) for column in cells)]
        for r, method in enumerate(methods)
    ]
    best = best_cells([[mean for mean, _ in column] for column in cells])
    return Table(
        f"{figure.name}, mean ± standard deviation over seeds", ["estimator", *results.data], rows, best
    )


def time_table(results: Results, methods: Sequence[str]) -> Table:
    """Return the mean processor seconds of a fit on every table."""
    rows = []
    for method in methods:
        runs = [results.runs(data, method).values() for data in results.data]
        seconds = [np.mean([r["seconds"]["fit"] for r in of]) if of else math.nan for of in runs]
        rows.append([results.titles[method], *(number(float(value), 2) for value in seconds)])
    return Table("Processor seconds of a fit on one thread", ["estimator", *results.data], rows)


# -- words ---------------------------------------------------------------------------------------


def describe_estimators(results: Results) -> str:
    """Describe data, models and measures, as points."""
    recipe = results.records[0]["recipe"]
    seeds = sorted({record["seed"] for record in results.records})
    expected = len(results.methods) * len(results.data) * len(seeds)
    points = (
        NO_CHOICE if results.records[0]["suite"] == "tabular" else DEVELOPMENT,
        f"{len(results.methods)} estimators on {len(results.data)} tables, {len(seeds)} seeds each: "
        f"{len(results.records)} of {expected} runs. Each seed draws a random split, without stratification: "
        f"{recipe['test']:.0%} of the rows test, the others train, at most {recipe['max_rows']:,} of them. "
        "Every estimator gets the raw table.",
        f"The rarest labels are the {recipe['rare']:.0%} of test labels with the lowest smoothed density of "
        "training labels.",
        f"CatBoost predicts a Gaussian (RMSEWithUncertainty, {CATBOOST_TREES:,} trees, categories and text "
        f"as strings, missing ones as a category). LightGBM has a model of the mean and {len(QUANTILES)} "
        f"quantile models ({LIGHTGBM_TREES} trees of rate 0.05 each), which is fairer to it than a constant "
        f"variance; its time is that of all of them. NGBoost has {NGBOOST_TREES} trees of rate 0.05 on the "
        "table as TailRegressor encodes it. Other options are the packages' defaults. Label weights are the "
        "square root of the inverse density (VIR:weight, SQINV).",
        "CRPS is exact for predicted distributions. For LightGBM it is that of the distribution that gives "
        "each of its quantiles the same probability: twice the mean pinball loss. Conformal intervals "
        "do not change it.",
        "`conformal`: split-conformal intervals by crepes around the predicted mean, scaled by the width of "
        f"the model's own interval. The model is fitted on {1 - CALIBRATION_SHARE:.0%} of the training rows, "
        "and the others calibrate. TailRegressor's own intervals are conformal too.",
        "Times are processor seconds on one thread. Each is divided by the time of a small CatBoost fit in "
        "the same process just before, so that a busy machine does not matter, and then by CatBoost's.",
        *describe_origin(results.records, REFERENCE),
    )
    return "".join(f"- {point}\n" for point in points)


def verdict_of_estimators(results: Results, method: str) -> str:
    """Say how an estimator compares with the reference, as points."""
    title, base = results.titles[method], results.titles[REFERENCE]
    low, high = GOOD_COVERAGE
    ratios = [f"{f.name} {np.mean(ratio_by_seed(results, f, method)):.3f}" for f in RATIOS]
    won, of = tables_ahead(results, Figure("crps", "rare"), method)
    text = f"- {title} divided by {base}: {', '.join(ratios)}. "
    text += f"Its CRPS rare is lower on {won} of {of} tables.\n"
    for name in (method, REFERENCE, REFERENCE + CONFORMAL):
        if name in results.methods:
            means = {data: results.mean_std(COVERED, data, name)[0] for data in results.data}
            known = {data: mean for data, mean in means.items() if not math.isnan(mean)}
            outside = [f"{data} {mean:.3f}" for data, mean in known.items() if not low <= mean <= high]
            text += (
                f"- {results.titles[name]}: 90% intervals cover {min(known.values()):.3f} to "
                f"{max(known.values()):.3f} of the rarest labels"
            )
            text += f"; outside {low:g} to {high:g}: {', '.join(outside)}.\n" if outside else ".\n"
    fit, predict = (time_ratio(results, kind, method) for kind in ("fit", "predict"))
    text += f"- A fit takes {number(fit, 2)} times as long as {base}'s, "
    return text + f"a prediction {number(predict, 2)} times.\n"


def write_estimator_page(source: Path, to: Path) -> Path:
    """Write the Markdown page of a results file."""
    results = Results(read_results(source))
    if REFERENCE not in results.methods:
        raise ValueError(f"{source} has no run of {REFERENCE}, which all others are divided by: run it first")
    methods = ordered_methods(results)
    command = f"tailwise-bench estimator-page {shlex.quote(str(source))} --out {shlex.quote(str(to))}"
    text = f"# Estimators on natural splits\n\nGenerated by `{command}`; do not edit.\n\n"
    text += describe_estimators(results) + "\n"
    if "tail" in methods:
        text += f"## What it shows\n\n{verdict_of_estimators(results, 'tail')}\n"
    sections = {
        "Overview": [overview_table(results, methods)],
        "Intervals of the rarest labels": [coverage_table(results, methods)],
        "Tables": [figure_table(results, figure, methods) for figure in RATIOS],
        "Times": [time_table(results, methods)],
    }
    for heading, tables in sections.items():
        text += f"## {heading}\n\n" + "\n".join(table.markdown() for table in tables) + "\n"
    return write_text(to, text.rstrip("\n") + "\n")
