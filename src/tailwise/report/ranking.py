"""The page that ranks methods by their runs over several seeds, and its verdict in words."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Picture
from matplotlib.layout_engine import ConstrainedLayoutEngine

from tailwise.labels.bins import LabelBins
from tailwise.metrics.regions import REGIONS
from tailwise.report import plots
from tailwise.report.formatting import number, pair, percent
from tailwise.report.html import render
from tailwise.report.results import TAIL, TAIL_BALANCED, Figure, Results
from tailwise.report.scoring import paired_difference
from tailwise.report.svg import Chart, make_chart, new_figure, page_style

COLUMNS = tuple(
    Figure(metric, region, calibrated=True)
    for metric, regions in (
        ("mae", ("all", "many", "medium", "few")),
        ("rmse", ("all", "few")),
        ("nll", ("all", "few")),
        ("coverage", ("all", "few")),
        ("width", ("all", "few")),
    )
    for region in regions
)
"""Columns of the table of methods."""
RANKED = {
    "Mean absolute error, few-shot labels": Figure("mae", "few"),
    "Mean absolute error, all test rows": Figure("mae", "all"),
    "Negative log-likelihood, few-shot labels, calibrated": Figure("nll", "few", calibrated=True),
}
"""Heading of each chart, and the figure that ranks the methods in it."""
BASELINES = (("plain", "vanilla"), ("catboost",))
"""Methods that the others are compared with in words: the first of each that is among them."""


def comparison_page(results: Results, *, title: str, command: str) -> str:
    """Return the HTML page that ranks methods for each data set, with error bars over seeds."""
    with page_style():
        sections = [
            {"data": data, "charts": _charts(results, data), "rows": method_cells(results, data)}
            for data in results.data
        ]
    return render(
        "comparison.html",
        title=title,
        command=command,
        sections=sections,
        columns=[figure.name for figure in COLUMNS],
        methods=[results.titles[m] for m in results.methods],
        seeds=sorted({record["seed"] for record in results.records}),
        firsts=[line for data in results.data for line in _firsts(results, data)],
        gains=[line for data in results.data for line in _gains(results, data)],
        recipe=results.records[0]["recipe"],
        tested=results.records[0]["recipe"].get("rows"),
    )


def _charts(results: Results, data: str) -> list[Chart]:
    charts = []
    for heading, figure in RANKED.items():
        table = _ranking(results, figure, data).rename(index=results.titles)
        if table.empty:
            continue
        best = f"{table.index[0]} is first with {number(float(table['mean'].iloc[0]))}"
        charts.append(
            make_chart(
                f"{_slug(data)}-{figure.metric}-{figure.region}",
                plots.method_ranking(table, metric=heading.split(",")[0].lower()),
                heading,
                f"{best}. Bars are standard deviations over seeds.",
                f"Methods by {heading.lower()} on {data}, best at the top. {best}.",
            )
        )
    curves = errors_along_label(results, data)
    if curves:
        text = "Mean over seeds of the test rows in each label bin."
        charts.append(
            make_chart(
                f"{_slug(data)}-along-label",
                plots.error_by_label(curves, new_figure()),
                "Mean absolute error along the label",
                text,
                f"Mean absolute error of each method along the label on {data}. {text}",
            )
        )
    return charts


def errors_along_label(results: Results, data: str) -> dict[str, pd.DataFrame]:
    """Return for each method a table of ``center`` and ``mae`` along the label; empty for older runs.

    Each seed has its own label bins. A bin is averaged with the bin of the first seed whose center is
    nearest.
    """
    curves = {}
    for method in results.methods:
        runs = [run["along_label"] for run in results.runs(data, method).values() if "along_label" in run]
        if runs:
            bins = pd.concat([pd.DataFrame(run) for run in runs], ignore_index=True)
            centers = np.asarray(runs[0]["center"])
            nearest = np.abs(bins["center"].to_numpy()[:, None] - centers).argmin(axis=1)
            bins["mae"] *= bins["n"]
            sums = bins.groupby(nearest)[["mae", "n"]].sum()
            curves[results.titles[method]] = pd.DataFrame(
                {"center": centers[sums.index], "mae": sums["mae"] / sums["n"]}
            )
    return curves


def comparison_picture(results: Results, bins: LabelBins, *, label: str) -> Picture:
    """Draw the labels, the error along them, and error and coverage by region, for the first data set."""
    data = results.data[0]
    picture = Picture(figsize=(11, 6.4), layout=ConstrainedLayoutEngine(hspace=0.06))
    (labels, along), (error, coverage) = picture.subplots(2, 2)
    plots.label_histogram(bins, labels, label=label)
    labels.set_title("Few training rows at the ends of the label range")
    plots.error_by_label(errors_along_label(results, data), along, label=label)
    along.set_title("Error along the label")
    _region_bars(results, data, "mae", error)
    error.set(title="Error by region", ylabel="mean absolute error")
    _region_bars(results, data, "coverage", coverage, target=0.9)
    coverage.set(title="Share of 90% intervals that contain the label", ylabel="coverage")
    handles, names = error.get_legend_handles_labels()
    for ax in (along, error, coverage):  # one legend for all: methods have the same colour everywhere
        legend = ax.get_legend()
        if legend is not None:
            legend.remove()
    picture.legend(handles, names, loc="outside lower center", ncols=len(names), frameon=False)
    return picture


def _region_bars(results: Results, data: str, metric: str, ax: Axes, target: float | None = None) -> None:
    """Draw means over seeds by region, with standard deviations if there are several seeds."""
    regions = list(REGIONS[1:])
    tables, spread = {}, {}
    for method in results.methods:
        title, runs = results.titles[method], results.runs(data, method)
        figures = [results.mean_std(Figure(metric, r, calibrated=True), data, method) for r in regions]
        rows = [np.mean([run["test_rows"][r] for run in runs.values()]) for r in regions]
        tables[title] = pd.DataFrame({metric: [mean for mean, _ in figures], "n": rows}, index=regions)
        spread[title] = np.nan_to_num([std for _, std in figures])
    plots.by_region_bars(tables, metric, ax, target=target, spread=spread)


def _ranking(results: Results, figure: Figure, data: str) -> pd.DataFrame:
    """Return mean and standard deviation over seeds of each method that has the figure, best first."""
    rows = {m: results.mean_std(figure, data, m) for m in results.methods if results.runs(data, m)}
    table = pd.DataFrame.from_dict(rows, orient="index", columns=["mean", "half"]).dropna(subset="mean")
    return table.sort_values("mean", kind="stable")


def method_cells(results: Results, data: str) -> dict[str, list[str]]:
    """Return the cells of each method, by its title: mean and standard deviation of each of `COLUMNS`."""

    def cell(figure: Figure, method: str) -> str:
        mean, std = results.mean_std(figure, data, method)
        if math.isnan(mean):
            return "–"
        if figure.metric == "coverage":
            return f"{100 * mean:.0f}%" + ("" if math.isnan(std) else f" ± {round(100 * std, 1):g}")
        return number(mean) + ("" if math.isnan(std) else f" ± {std:.2g}")

    return {
        results.titles[method]: [cell(figure, method) for figure in COLUMNS]
        for method in results.methods
        if results.runs(data, method)
    }


def comparison_verdict(results: Results) -> list[str]:
    """Say for each data set which method is first, and what each gains and costs against the baselines."""
    return [line for data in results.data for line in (*_firsts(results, data), *_gains(results, data))]


def _firsts(results: Results, data: str) -> list[str]:
    """Say which method has the lowest error for rare labels and over all rows."""
    lines = []
    for region, words in (("few", "for few-shot labels"), ("all", "over all test rows")):
        ranked = _ranking(results, Figure("mae", region), data)["mean"]
        if ranked.empty:
            lines.append(f"{data}: no test row has a few-shot label, so the tail cannot be judged.")
            continue
        first, *others = ranked.index
        line = f"{data}: {results.titles[first]} has the lowest error {words}"
        if others:
            shown = pair(ranked[first], ranked[others[0]])
            line += f" ({shown[0]}), {results.titles[others[0]]} is next ({shown[1]})"
            line += _undecided(results, Figure("mae", region), data, first, others[0])
        else:
            line += f" ({number(ranked[first])})"
        lines.append(f"{line}.")
    return lines


def _gains(results: Results, data: str) -> list[str]:
    """Compare every other method with each baseline that is among them, and TailRegressor at emphasis 1
    with its own emphasis."""
    found = [next((m for m in names if m in results.methods), None) for names in BASELINES]
    baselines = [method for method in found if method is not None]
    others = [m for m in results.methods if m not in baselines]
    pairs = [(m, baseline) for baseline in baselines for m in others]
    if {TAIL, TAIL_BALANCED} <= set(results.methods):  # what the dial costs
        pairs.append((TAIL_BALANCED, TAIL))
    each = [_gains_and_costs(results, data, *compared) for compared in pairs]
    return [line for line in each if line]


def _undecided(results: Results, figure: Figure, data: str, method: str, other: str) -> str:
    """Return "; undecided ..." if the difference of two methods, paired by seed, is within its error."""
    ours, theirs = results.runs(data, method), results.runs(data, other)
    seeds = [seed for seed in ours if seed in theirs]
    a, b = (np.array([figure.of(runs[seed]) for seed in seeds], np.float64) for runs in (ours, theirs))
    found = paired_difference(a, b, ~np.isnan(a - b))
    if not found.undecided:
        return ""
    if found.n < 2:
        return "; undecided, because one seed cannot tell it from chance"
    return f"; undecided, because the difference is within its error over {found.n} seeds"


def _gains_and_costs(results: Results, data: str, method: str, baseline: str) -> str:
    """Compare a method with a baseline on rare, medium and common labels, with coverage and width."""
    parts = []
    for region in ("few", "medium", "many"):
        figure = Figure("mae", region)
        ours, theirs = (results.mean_std(figure, data, m)[0] for m in (method, baseline))
        if math.isnan(ours) or math.isnan(theirs):
            continue
        figures = " against ".join(pair(ours, theirs))
        change = f"{number(abs(ours - theirs))} {'lower' if ours < theirs else 'higher'} ({figures})"
        open_ = ", undecided" if _undecided(results, figure, data, method, baseline) else ""
        parts.append(
            f"{change} for {region}-shot labels{open_}{_other_way(results, data, method, baseline, region)}"
        )
    if not parts:
        return ""
    title, other = results.titles[method], results.titles[baseline]
    line = f"{data}: compared with {other}, the error of {title} is {', '.join(parts[:-1])}"
    line += f"{', and ' if parts[1:] else ''}{parts[-1]}"
    covered = results.mean_std(Figure("coverage", "few", calibrated=True), data, method)[0]
    wide = [results.mean_std(Figure("width", "few", calibrated=True), data, m)[0] for m in (method, baseline)]
    if not math.isnan(covered):
        widths = " against ".join(map(number, wide))
        line += f". {percent(covered)} of its 90% intervals contain the label for few-shot labels"
        line += f" (width {widths})"
    return line + "."


def _other_way(results: Results, data: str, method: str, baseline: str, region: str) -> str:
    """Return a note if the root mean square error moves in the other direction."""
    mae, rmse = (
        results.mean_std(figure, data, method)[0] - results.mean_std(figure, data, baseline)[0]
        for figure in (Figure("mae", region), Figure("rmse", region))
    )
    return f", with a {'higher' if rmse > 0 else 'lower'} RMSE" if mae * rmse < 0 else ""


def _slug(text: str) -> str:
    return "".join(c if c.isalnum() else "-" for c in text) or "data"
