"""The page of a suite: tables in Markdown and CSV and a verdict in words, from results files."""

from __future__ import annotations

import csv
import io
import itertools
import math
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tailwise.lookup import nearest
from tailwise.metrics.regions import REGIONS
from tailwise_bench.pages.markup import Table, best_cells, number, p_value, with_spread, write_text
from tailwise_bench.pages.prose import data_sets, describe_runs, describe_times, describe_tuning, verdict
from tailwise_bench.pages.statistics import (
    HEADLINES,
    OTHERS,
    RATIOS,
    Comparison,
    Figure,
    Over,
    Results,
    compare,
    tests_of,
)
from tailwise_bench.run.region_scores import OF_THE_MEAN, OF_THE_SPREAD
from tailwise_bench.run.results import read_results
from tailwise_bench.run.times import Times

CALIBRATED_ROWS = ("vir", "der", "lds-fds-der", "ensemble", "infer-noise")
"""Methods shown before and after calibration, as in the paper."""

# -- the tables ----------------------------------------------------------------------------------


def rank_table(results: Results, order: Sequence[str]) -> Table:
    """Return average ranks over data sets for every headline figure."""
    ranks = [results.average_ranks(figure) for figure in HEADLINES]
    columns = [[column[method] for method in order] for column in ranks]
    rows = [
        [results.titles[method], *(number(column[r]) for column in columns)] for r, method in enumerate(order)
    ]
    head = ["method", *(figure.name for figure in HEADLINES)]
    return Table(
        f"Average rank of {len(order)} contenders over {data_sets(results)}; 1 is best",
        head, rows, best_cells(columns),
    )  # fmt: skip


def relative_table(results: Results, order: Sequence[str], base: str, times: Times | None = None) -> Table:
    """Return errors as shares of a base method's, NLL as differences, coverage, and times if known."""
    errors = [Figure("mae", region) for region in REGIONS]
    likelihoods = [Figure("nll", region, calibrated=True) for region in REGIONS]
    coverages = [Figure("coverage", region, calibrated=True) for region in ("many", "few")]
    columns = [[results.relative(f, m, base) for m in order] for f in (*errors, *likelihoods)]
    rows = []
    for r, method in enumerate(order):
        cells = [f"{column[r]:.3f}" if not math.isnan(column[r]) else "-" for column in columns[:4]]
        cells += [f"{column[r]:+.3f}" if not math.isnan(column[r]) else "-" for column in columns[4:]]
        for figure in coverages:
            means = [results.mean_std(figure, data, method)[0] for data in results.data]
            cells.append("-" if np.isnan(means).all() else f"{np.nanmean(means):.3f}")
        if times is not None:
            cells.append(number(times.ratio(method, base, results.data), 2))
        rows.append([results.titles[method], *cells])
    head = ["method", *(f.name for f in errors), *(f.name for f in likelihoods)]
    head += [f"90% coverage {f.region}" for f in coverages] + (["time"] if times is not None else [])
    title = results.titles[base]
    caption = (
        f"MAE as a share of {title}'s (geometric mean over data sets), calibrated NLL minus {title}'s, "
        "coverage of calibrated 90% intervals"
    )
    if times is not None:
        caption += f", time of a fit as a multiple of {title}'s (geometric mean)"
    return Table(caption, head, rows, best_cells(columns))


def time_table(results: Results, order: Sequence[str], times: Times) -> Table:
    """Return the seconds of a fit on every data set."""
    rows = []
    for method in order:
        seconds = [times.fit.get((data, method), math.nan) for data in results.data]
        rows.append([results.titles[method], *(number(value, 2) for value in seconds)])
    return Table("Processor seconds of one fit, without tuning", ["method", *results.data], rows)


def paired_table(results: Results, figure: Figure, reference: str) -> Table:
    """Return every contender compared with the reference by one figure, tested over seeds and data sets."""
    tests = {
        over: {c.method: c for c in compare(results, figure, reference, over=over)}
        for over in tests_of(results)
    }
    shown: Over = "data" if "data" in tests else "seeds"
    found = sorted((c for c in tests[shown].values() if c.units), key=lambda c: c.change)
    rows = []
    for c in found:
        cells = [results.titles[c.method], _changed(c, figure), f"{c.better}/{c.units}"]
        for by_method in tests.values():
            test = by_method[c.method]
            cells += [p_value(test.p), p_value(test.adjusted), test.verdict()]
        rows.append(cells)
    title, units = results.titles[reference], "data sets" if shown == "data" else "seeds"
    head = ["method", f"change against {title}", f"{units} it wins"]
    for over in tests:
        head += [f"{OTHERS[over]}: p", "Holm p", f"than {title}"]
    kind = "calibrated " if figure.calibrated else ""
    caption = f"{kind}{figure.name}: others against {title}; mean change ± standard error over {units}"
    return Table(caption, head, rows)


def _changed(c: Comparison, figure: Figure) -> str:
    """Format a change with its error, in percent for metrics in label units."""
    if figure.metric in RATIOS:
        change, error, places, unit = 100 * math.expm1(c.change), 100 * c.error, 1, "%"
    else:
        change, error, places, unit = c.change, c.error, 3, ""
    return f"{change:+.{places}f}{unit}" + ("" if math.isnan(error) else f" ± {error:.{places}f}")


def data_table(results: Results, data: str, order: Sequence[str]) -> Table:
    """Return means and standard deviations over seeds on one data set."""
    figures = [Figure("mae", region) for region in REGIONS] + [
        Figure("nll", "all", calibrated=True),
        Figure("nll", "few", calibrated=True),
        Figure("ause", "all", calibrated=True),
        Figure("coverage", "few", calibrated=True),
    ]
    order = [method for method in order if results.runs(data, method)]
    cells = [[results.mean_std(figure, data, method) for method in order] for figure in figures]
    rows = [
        [results.titles[method], *(with_spread(*column[r]) for column in cells)]
        for r, method in enumerate(order)
    ]
    losses = [[f.loss(mean) for mean, _ in column] for f, column in zip(figures, cells, strict=True)]
    record = next(r for r in results.records if r["data"] == data)
    size, regions = record["rows"], record["test_rows"]
    seeds = len({r["seed"] for r in results.records if r["data"] == data})
    caption = (
        f"{data}: {size['train']} training rows of {size['table']}, {record['features']} features, "
        f"{record['bins']} bins; test rows many {regions['many']}, medium {regions['medium']}, few "
        f"{regions['few']}; mean ± standard deviation over {seeds} seeds; NLL, AUSE and coverage calibrated"
    )
    return Table(caption, ["method", *(f.name for f in figures)], rows, best_cells(losses))


def calibration_table(results: Results) -> Table:
    """Return figures before and after calibration, averaged over data sets."""
    rows = []
    for method in (m for m in CALIBRATED_ROWS if m in results.methods):
        for calibrated in (False, True):
            cells = []
            for metric, region in (
                ("nll", "all"), ("nll", "many"), ("nll", "few"), ("coverage", "all"), ("coverage", "many"),
                ("coverage", "few"), ("ence", "all"),
            ):  # fmt: skip
                figure = Figure(metric, region, calibrated)
                means = [results.mean_std(figure, data, method)[0] for data in results.data]
                cells.append("-" if np.isnan(means).all() else f"{np.nanmean(means):.3f}")
            rows.append([results.titles[method] + (", calibrated" if calibrated else ""), *cells])
    head = ["method", "NLL all", "NLL many", "NLL few"]
    head += ["90% coverage all", "90% coverage many", "90% coverage few", "ENCE"]
    return Table("Before and after calibration on the validation part, mean over data sets", head, rows)


def search_table(results: Results) -> Table:
    """Return the search space of every method and how often its default was chosen."""
    rows = []
    for method in results.methods:
        tuned = [r for r in results.records if r["method"] == method and "search" in r]
        if not tuned:
            continue
        space = tuned[0]["search"]
        words = "; ".join(f"{name} {_searched(of)}" for name, of in space.items())
        defaults = {k: of["default"] if isinstance(of, dict) else of[0] for k, of in space.items()}
        kept = sum(all(r["options"][k] == v for k, v in defaults.items()) for r in tuned)
        rows.append([results.titles[method], str(len(tuned[0]["trials"])), words, f"{kept}/{len(tuned)}"])
    head = ["method", "trials", "search space, default first", "default kept"]
    return Table("Tuning: the same number of configurations for every contender", head, rows)


def _searched(of: dict[str, Any] | list[Any]) -> str:
    """Format values with the default first, or a default with its range."""
    if isinstance(of, dict):
        scale = " (log)" if of["log"] else ""
        return f"{of['default']:g} in {of['low']:g} to {of['high']:g}{scale}"
    return ", ".join(f"{v:g}" if isinstance(v, float) else str(v) for v in of)


# -- files ---------------------------------------------------------------------------------------


def summary_csv(results: Results) -> str:
    """Return means and deviations of all metrics, one row per data set, contender, kind and region."""
    to = io.StringIO()
    writer = csv.writer(to, lineterminator="\n")
    metrics = OF_THE_MEAN + OF_THE_SPREAD
    columns = [f"{metric}_{kind}" for metric in metrics for kind in ("mean", "std")]
    writer.writerow(["data", "method", "calibrated", "region", "seeds", *columns])
    for data, method, calibrated in itertools.product(results.data, results.methods, (False, True)):
        runs = len(results.runs(data, method))
        for region in REGIONS if runs else ():
            cells: list[str] = []
            for metric in metrics:
                figures = results.mean_std(Figure(metric, region, calibrated), data, method)
                cells += ["" if math.isnan(value) else f"{value:.5g}" for value in figures]
            writer.writerow([data, method, int(calibrated), region, runs, *cells])
    return to.getvalue()


def write_tables(
    sources: Path | Sequence[Path],
    folder: Path,
    *,
    name: str | None = None,
    reference: str | None = None,
    title: str | None = None,
    times: Path | None = None,
) -> list[Path]:
    """Write ``name.md`` and ``name.csv`` from one or more results files of one recipe.

    By default the name is the suite's, and contenders are tested against VIR. `times` is a file that
    `take_times` wrote; with it the page shows times.
    """
    paths = [sources] if isinstance(sources, Path) else list(sources)
    results = Results(read_results(*paths))
    _check_one_recipe(results)
    name = name or results.records[0].get("suite") or "tabular"
    asked = {"--out": folder, "--name": name, "--title": title, "--times": times, "--reference": reference}
    options = [f"{option} {shlex.quote(str(of))}" for option, of in asked.items() if of is not None]
    files = [shlex.quote(str(path)) for path in paths]
    command = " ".join(["tailwise-bench tables", *files, *options])
    known = [m for m in ("vir", "vir[fixed]", results.methods[0]) if m in results.methods]
    reference = reference or known[0]
    if reference not in results.methods:
        raise ValueError(f"there is no run of {reference!r}{nearest(reference, results.methods)}")
    ranks = results.average_ranks(HEADLINES[0])
    order = sorted(results.methods, key=lambda m: (math.isnan(ranks[m]), ranks[m]))
    base = next((m for m in ("vanilla", "vanilla[fixed]") if m in results.methods), reference)
    cost = None if times is None else Times.read(times)
    overview = [rank_table(results, order), relative_table(results, order, base, cost)]
    tests = [paired_table(results, figure, reference) for figure in HEADLINES]
    details = [data_table(results, data, order) for data in results.data]
    calibration = [calibration_table(results)]
    search = [search_table(results)]
    sections: list[tuple[str, list[Table]]] = [
        ("Overview", overview),
        (f"Against {results.titles[reference]}", tests),
        ("Calibration", calibration),
        ("Data sets", details),
        ("Tuning", search),
        ("Times", [] if cost is None else [time_table(results, order, cost)]),
    ]
    text = f"# {title or f'Benchmark: {name}'}\n\nGenerated by `{command}`; do not edit.\n\n"
    text += (
        describe_runs(results, reference)
        + describe_tuning(results)
        + (describe_times(cost) if cost else "")
        + "\n"
    )
    text += f"## What it shows\n\n{verdict(results, reference)}\n"
    for heading, tables in sections:
        kept = [table for table in tables if table.rows]
        if kept:
            text += f"## {heading}\n\n" + "\n".join(table.markdown() for table in kept) + "\n"
    outputs = {"md": text, "csv": summary_csv(results)}
    return [write_text(folder / f"{name}.{ending}", content) for ending, content in outputs.items()]


def _check_one_recipe(results: Results) -> None:
    """Raise an error for runs of several suites or recipes, whose figures do not compare."""
    first = results.records[0]
    for record in results.records:
        settings = {name: (of, first["recipe"].get(name, of)) for name, of in record["recipe"].items()}
        differing = [(name, *both) for name, both in settings.items() if both[0] != both[1]]
        weights = [r["recipe"].get("weights", "own") for r in (record, first)]
        if weights[0] != weights[1]:
            differing = [("weights", *weights)]
        if record.get("suite") != first.get("suite"):
            differing = [("suite", record.get("suite"), first.get("suite"))]
        if differing:
            name, this, that = differing[0]
            raise ValueError(
                f"{first['method']} ran with {name} = {that}, {record['method']} with {name} = {this}: "
                "write a page for each"
            )
