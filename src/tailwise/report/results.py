"""Runs of methods over several seeds: files of a JSON line per run, their figures, and the page of all."""

from __future__ import annotations

import json
import math
import os
import platform
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from matplotlib.figure import Figure as Picture
from matplotlib.layout_engine import ConstrainedLayoutEngine

from tailwise.labels.bins import LabelBins
from tailwise.metrics.regions import REGIONS
from tailwise.report import displays
from tailwise.report.verdict import Difference, mean_difference
from tailwise.report.wording import number, render, say
from tailwise.writing import append_line

Record = dict[str, Any]
Run = tuple[str, str, int]
"""What a line is found by: data, method and seed."""
TAIL, TAIL_BALANCED = "tail", "tail-balanced"
"""TailRegressor in results lines: at the emphasis that it chose, and at emphasis 1."""
BASELINES = (("plain", "vanilla"), ("catboost",), ("constant",))
"""Methods that the others are compared with in words: the first of each that is among them."""
_ABBREVIATIONS = ("mae", "rmse", "nll", "ause", "crps", "ence", "gm")
_LINE = ("data", "method", "seed", "recipe", "digest", "metrics")
"""Keys that the line of a finished run has."""


def machine() -> str:
    """Describe the processor and the version of torch, which times depend on."""
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.is_file() else []
    model = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
    return f"{model or platform.machine()}, {os.cpu_count()} cores, torch {torch.__version__}"


# -- files ---------------------------------------------------------------------------------------


def append_record(path: Path, record: Record) -> None:
    """Append a line and wait until it is on the disk."""
    path.parent.mkdir(parents=True, exist_ok=True)
    append_line(path, json.dumps(record, allow_nan=False).encode())


def read_records(path: Path) -> list[Record]:
    """Return the lines of a file, none if it does not exist.

    An unfinished last line, as a kill leaves it, is dropped; a broken line elsewhere is an error.
    """
    content = path.read_bytes() if path.exists() else b""
    records = []
    for place, line in enumerate(content[: content.rfind(b"\n") + 1].splitlines(), start=1):
        try:
            records.append(json.loads(line))
        except ValueError:
            raise ValueError(
                f"{path}, line {place} is not JSON: delete that line, or name another file"
            ) from None
    return records


def finished_runs(records: Iterable[Record]) -> dict[Run, Record]:
    """Return the last line without an error of each (data, method, seed)."""
    return {(r["data"], r["method"], r["seed"]): r for r in records if "error" not in r}


def read_results(*paths: Path) -> list[Record]:
    """Return all finished runs of some files; of a run that occurs twice, the last line counts."""
    records = []
    for path in paths:
        if not path.exists():
            raise FileNotFoundError(f"{path} does not exist")
        for place, record in enumerate(read_records(path), start=1):
            lacking = [key for key in _LINE if not isinstance(record, dict) or key not in record]
            if lacking and not (isinstance(record, dict) and "error" in record):
                raise ValueError(
                    f"{path} is not a results file of `tailwise compare`: a line lacks {lacking[0]!r} "
                    f"(line {place})"
                )
            records.append(record)
    return list(finished_runs(records).values())


# -- figures over seeds --------------------------------------------------------------------------


@dataclass(frozen=True)
class Figure:
    """A metric in a region, of raw or calibrated predictions."""

    metric: str
    region: str = "all"
    calibrated: bool = False

    @property
    def name(self) -> str:
        """Name for the head of a table."""
        text = self.metric.replace("_", " ").replace("mae", "MAE")
        text = text.upper() if self.metric in _ABBREVIATIONS else text
        return f"{text} {self.region}"

    def of(self, record: Record) -> float:
        """Return its value in a results line; NaN where the region has too few rows, or the line lacks it.

        What calibration does not change, such as the MAE, stands among the raw figures alone.
        """
        for kind in ("calibrated", "raw") if self.calibrated else ("raw",):
            figures = record["metrics"][kind][self.region]
            if self.metric in figures:
                value = figures[self.metric]
                return math.nan if value is None else float(value)
        return math.nan


class Results:
    """Finished runs by method and data set, all on the same rows."""

    def __init__(self, records: Iterable[Record]) -> None:
        self.records = [record for record in records if "error" not in record]
        if not self.records:
            raise ValueError("there is no finished run to compare")
        first: dict[tuple[str, int], Record] = {}
        for record in self.records:
            data, seed = record["data"], record["seed"]
            other = first.setdefault((data, seed), record)
            if other["digest"] != record["digest"]:
                raise ValueError(
                    f"{other['method']} and {record['method']} had different data in {data}, seed {seed}: "
                    "run both on the same rows"
                )

    @cached_property
    def _runs(self) -> dict[tuple[str, str], dict[int, Record]]:
        runs: dict[tuple[str, str], dict[int, Record]] = {}
        for record in self.records:
            runs.setdefault((record["data"], record["method"]), {})[record["seed"]] = record
        return runs

    @cached_property
    def methods(self) -> list[str]:
        """Names of the methods in order of their first runs."""
        return list(dict.fromkeys(record["method"] for record in self.records))

    @cached_property
    def data(self) -> list[str]:
        """Names of the data sets."""
        return sorted({record["data"] for record in self.records})

    @cached_property
    def titles(self) -> dict[str, str]:
        """Titles of the methods; trees may learn labels with one seed and logarithms with another."""
        pairs = dict.fromkeys((record["method"], record["title"]) for record in self.records)
        return {m: " or ".join(title for method, title in pairs if method == m) for m in self.methods}

    def runs(self, data: str, method: str) -> Mapping[int, Record]:
        """Return the runs of a method on a data set, by seed."""
        return self._runs.get((data, method), {})

    def mean_std(self, figure: Figure, data: str, method: str) -> tuple[float, float]:
        """Return mean and standard deviation over seeds; NaN where there are too few runs for them."""
        values = np.array([figure.of(record) for record in self.runs(data, method).values()])
        values = values[~np.isnan(values)]
        if values.size == 0:
            return math.nan, math.nan
        return float(values.mean()), float(values.std(ddof=1)) if values.size > 1 else math.nan

    def ranking(self, figure: Figure, data: str) -> pd.DataFrame:
        """Return mean and std over seeds of each method that has the figure, the lowest mean first."""
        rows = {m: self.mean_std(figure, data, m) for m in self.methods}
        table = pd.DataFrame.from_dict(rows, orient="index", columns=["mean", "std"]).dropna(subset="mean")
        return table.sort_values("mean", kind="stable")

    def difference(self, figure: Figure, data: str, method: str, other: str) -> Difference:
        """Return the difference of two methods, paired by seed."""
        ours, theirs = self.runs(data, method), self.runs(data, other)
        seeds = [seed for seed in ours if seed in theirs]
        a, b = (np.array([figure.of(runs[seed]) for seed in seeds], np.float64) for runs in (ours, theirs))
        known = ~np.isnan(a - b)
        return mean_difference(a[known], b[known], confidence=0.95)

    def along_label(self, data: str) -> dict[str, pd.DataFrame]:
        """Return for each method a table of ``center`` and ``mae`` along the label; empty for older runs.

        Each seed has its own label bins. A bin is averaged with the bin of the first seed whose center is
        nearest.
        """
        curves = {}
        for method in self.methods:
            runs = [run["along_label"] for run in self.runs(data, method).values() if "along_label" in run]
            if runs:
                bins = pd.concat([pd.DataFrame(run) for run in runs], ignore_index=True)
                centers = np.asarray(runs[0]["center"])
                nearest = np.abs(bins["center"].to_numpy()[:, None] - centers).argmin(axis=1)
                bins["mae"] *= bins["n"]
                sums = bins.groupby(nearest)[["mae", "n"]].sum()
                means = {"center": centers[sums.index], "mae": sums["mae"] / sums["n"]}
                curves[self.titles[method]] = pd.DataFrame(means)
        return curves


# -- tables, words and pages ---------------------------------------------------------------------

COLUMNS = tuple(
    Figure(metric, region, calibrated=True)
    for metric, regions in (
        ("mae", ("all", "many", "medium", "few")),
        *(
            (metric, ("all", "few"))
            for metric in ("rmse", "nll", "coverage", "width", "interval_score", "crps")
        ),
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
        ranked = results.ranking(figure, data)["mean"].head(2)
        leaders = [(results.titles[str(method)], value) for method, value in ranked.items()]
        difference = results.difference(figure, data, *ranked.index) if len(leaders) > 1 else None
        lines.append(say("comparison", "first", data, region, leaders, difference))
    return lines


def gains(results: Results, data: str) -> list[str]:
    """Compare every other method with each baseline that is among them, and TailRegressor at emphasis 1
    with its own emphasis; pairs without a common seed are left out."""
    present = [next((m for m in names if m in results.methods), None) for names in BASELINES]
    baselines = [method for method in present if method is not None]
    pairs = [(m, baseline) for baseline in baselines for m in results.methods if m not in baselines]
    if {TAIL, TAIL_BALANCED} <= set(results.methods):  # what the dial costs
        pairs.append((TAIL_BALANCED, TAIL))
    lines = []
    for pair in pairs:
        errors = {r: results.difference(Figure("mae", r), data, *pair) for r in ("few", "medium", "many")}
        errors = {region: difference for region, difference in errors.items() if difference.n}
        score = results.difference(Figure("interval_score", "all", calibrated=True), data, *pair)
        if errors:
            titles = [results.titles[method] for method in pair]
            lines.append(say("comparison", "gain", data, *titles, errors, score))
    return lines


def comparison_page(results: Results, *, title: str, command: str) -> str:
    """Return the HTML page that ranks methods for each data set, with error bars over seeds."""
    return render(
        "comparison.html",
        title=title,
        command=command,
        sections=[
            {"data": data, "charts": _charts(results, data), "rows": method_cells(results, data)}
            for data in results.data
        ],
        columns=[figure.name for figure in COLUMNS],
        methods=[results.titles[m] for m in results.methods],
        seeds=sorted({record["seed"] for record in results.records}),
        firsts=[line for data in results.data for line in firsts(results, data)],
        gains=[line for data in results.data for line in gains(results, data)],
        recipe=results.records[0]["recipe"],
    )


def _charts(results: Results, data: str) -> list[displays.Display]:
    charts: list[displays.Display] = []
    for heading, figure in RANKED.items():
        table = results.ranking(figure, data).rename(index=results.titles)
        if not table.empty:
            charts.append(displays.RankingDisplay(table, data, heading, f"{figure.metric}-{figure.region}"))
    curves = results.along_label(data)
    return [*charts, *([displays.MethodErrorDisplay(curves, data)] if curves else [])]


def comparison_picture(results: Results, bins: LabelBins, *, label: str) -> Picture:
    """Draw the labels, the error along them, and error and coverage by region, for the first data set."""
    data = results.data[0]
    picture = Picture(figsize=(11, 6.4), layout=ConstrainedLayoutEngine(hspace=0.06))
    (labels, along), (error, coverage) = picture.subplots(2, 2)
    displays.draw_histogram(labels, bins, label)
    labels.set_title("Few training rows at the ends of the label range")
    displays.draw_errors(along, results.along_label(data), label)
    along.set_title("Error along the label")
    displays.draw_bars(error, _by_region(results, data, "mae"), "mean absolute error")
    error.set_title("Error by region")
    displays.draw_bars(coverage, _by_region(results, data, "coverage"), "coverage", target=0.9)
    coverage.set_title("Share of 90% intervals that contain the label")
    handles, names = error.get_legend_handles_labels()
    for ax in (along, error, coverage):  # one legend for all: methods have the same colour everywhere
        ax.get_legend().remove()
    picture.legend(handles, names, loc="outside lower center", ncols=len(names), frameon=False)
    return picture


def _by_region(results: Results, data: str, metric: str) -> dict[str, pd.DataFrame]:
    """Return means over seeds by region, with standard deviations if there are several seeds, by title."""
    tables = {}
    for method in results.methods:
        runs, rows = results.runs(data, method).values(), {}
        for region in REGIONS[1:]:
            mean, std = results.mean_std(Figure(metric, region, calibrated=True), data, method)
            n = np.mean([run["test_rows"][region] for run in runs])
            rows[region] = {"value": mean, "n": n, "low": mean - std, "high": mean + std}
        tables[results.titles[method]] = pd.DataFrame.from_dict(rows, orient="index")
    return tables
