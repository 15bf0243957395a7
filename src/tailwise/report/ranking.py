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
from tailwise.report.contrasts import Difference, paired_difference
from tailwise.report.displays import Display, MethodErrorDisplay, RankingDisplay
from tailwise.report.results import TAIL, TAIL_BALANCED, Figure, Results
from tailwise.report.wording import number, render, say

COLUMNS = tuple(
    Figure(metric, region, calibrated=True)
    for metric, regions in (
        ("mae", ("all", "many", "medium", "few")),
        ("rmse", ("all", "few")),
        ("nll", ("all", "few")),
        ("coverage", ("all", "few")),
        ("width", ("all", "few")),
        ("interval_score", ("all", "few")),
        ("crps", ("all", "few")),
    )
    for region in regions
)
"""Columns of the table of methods."""
RANKED = {
    "Mean absolute error, few-shot labels": Figure("mae", "few"),
    "Mean absolute error, all test rows": Figure("mae", "all"),
    "Interval score, all test rows": Figure("interval_score", "all", calibrated=True),
}
"""Heading of each chart, and the figure that ranks the methods in it."""
BASELINES = (("plain", "vanilla"), ("catboost",), ("constant",))
"""Methods that the others are compared with in words: the first of each that is among them."""


def comparison_page(results: Results, *, title: str, command: str) -> str:
    """Return the HTML page that ranks methods for each data set, with error bars over seeds."""
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
        firsts=[line for data in results.data for line in firsts(results, data)],
        gains=[line for data in results.data for line in gains(results, data)],
        recipe=results.records[0]["recipe"],
        tested=results.records[0]["recipe"].get("rows"),
    )


def _charts(results: Results, data: str) -> list[Display]:
    charts: list[Display] = []
    for heading, figure in RANKED.items():
        table = _ranking(results, figure, data).rename(index=results.titles)
        if not table.empty:
            charts.append(RankingDisplay(table, data, heading, f"{figure.metric}-{figure.region}"))
    curves = errors_along_label(results, data)
    return [*charts, *([MethodErrorDisplay(curves, data)] if curves else [])]


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
    return [line for data in results.data for line in (*firsts(results, data), *gains(results, data))]


def firsts(results: Results, data: str) -> list[str]:
    """Say which methods have the lowest error for rare labels and over all rows, and which is next."""
    lines = []
    for region in ("few", "all"):
        figure = Figure("mae", region)
        ranked = _ranking(results, figure, data)["mean"].head(2)
        leaders = [(results.titles[str(method)], value) for method, value in ranked.items()]
        difference = _difference(results, figure, data, *ranked.index) if len(leaders) > 1 else None
        lines.append(say("comparison", "first", data, region, leaders, difference))
    return lines


def gains(results: Results, data: str) -> list[str]:
    """Compare every other method with each baseline that is among them, and TailRegressor at emphasis 1
    with its own emphasis."""
    present = [next((m for m in names if m in results.methods), None) for names in BASELINES]
    baselines = [method for method in present if method is not None]
    others = [m for m in results.methods if m not in baselines]
    pairs = [(m, baseline) for baseline in baselines for m in others]
    if {TAIL, TAIL_BALANCED} <= set(results.methods):  # what the dial costs
        pairs.append((TAIL_BALANCED, TAIL))
    return [line for compared in pairs if (line := _gain(results, data, *compared))]


def _gain(results: Results, data: str, method: str, baseline: str) -> str:
    """Say what a method gains and costs on rare, medium and common labels; nothing without common seeds."""

    def difference(metric: str, region: str) -> Difference:
        return _difference(results, Figure(metric, region, calibrated=True), data, method, baseline)

    errors = {r: (difference("mae", r), difference("rmse", r)) for r in ("few", "medium", "many")}
    errors = {region: both for region, both in errors.items() if both[0].n}
    if not errors:
        return ""
    coverage = results.mean_std(Figure("coverage", "few", calibrated=True), data, method)[0]
    titles = results.titles[method], results.titles[baseline]
    intervals = coverage, difference("width", "few"), difference("interval_score", "all")
    return say("comparison", "gain", data, *titles, errors, *intervals)


def _difference(results: Results, figure: Figure, data: str, method: str, other: str) -> Difference:
    """Return the difference of two methods, paired by seed."""
    ours, theirs = results.runs(data, method), results.runs(data, other)
    seeds = [seed for seed in ours if seed in theirs]
    a, b = (np.array([figure.of(runs[seed]) for seed in seeds], np.float64) for runs in (ours, theirs))
    return paired_difference(a, b, ~np.isnan(a - b))
