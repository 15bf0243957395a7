"""The page that ranks methods, and what their figures show in words."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd

from tailwise.benchmark.pages.statistics import Figure, Results
from tailwise.report import plots
from tailwise.report.formatting import number
from tailwise.report.html import Chart, chart, render
from tailwise.report.svg import page_style

COLUMNS = tuple(
    Figure(metric, region, calibrated=True)
    for metric, regions in (
        ("mae", ("all", "many", "medium", "few")),
        ("nll", ("all", "few")),
        ("coverage", ("all", "few")),
    )
    for region in regions
)
"""Figures of a table of methods."""
RANKED = {
    "Mean absolute error, few-shot labels": Figure("mae", "few"),
    "Mean absolute error, all test rows": Figure("mae", "all"),
    "Negative log-likelihood, few-shot labels, calibrated": Figure("nll", "few", calibrated=True),
}
"""Figures that methods are ranked by, with the heading of each chart."""


def comparison_page(results: Results, *, title: str, command: str) -> str:
    """Return the page that ranks methods, with error bars over seeds, for each data set."""
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
        verdict=comparison_verdict(results),
        recipe=results.records[0]["recipe"],
    )


def _charts(results: Results, data: str) -> list[Chart]:
    made = []
    for heading, figure in RANKED.items():
        table = _ranking(results, figure, data)
        if table.empty:
            continue
        best = f"{table.index[0]} is first with {number(float(table['mean'].iloc[0]))}"
        made.append(
            chart(
                f"{_slug(data)}-{figure.metric}-{figure.region}",
                plots.method_ranking(table, metric=heading.split(",")[0].lower()),
                heading,
                best + "; bars are standard deviations over seeds.",
                f"Methods by {heading.lower()} on {data}, best at the top. {best}.",
            )
        )
    return made


def _ranking(results: Results, figure: Figure, data: str) -> pd.DataFrame:
    rows = {
        results.titles[m]: results.mean_std(figure, data, m) for m in results.methods if results.runs(data, m)
    }
    table = pd.DataFrame.from_dict(rows, orient="index", columns=["mean", "half"]).dropna(subset="mean")
    return table.sort_values("mean", kind="stable")


def method_cells(results: Results, data: str) -> dict[str, list[str]]:
    """Titles of the methods with a cell for each of `COLUMNS`: mean and standard deviation over seeds."""

    def cell(figure: Figure, method: str) -> str:
        mean, std = results.mean_std(figure, data, method)
        if math.isnan(mean):
            return "–"
        if figure.metric == "coverage":
            return f"{100 * mean:.0f}%" + ("" if math.isnan(std) else f" ± {100 * std:.1g}")
        return number(mean) + ("" if math.isnan(std) else f" ± {std:.2g}")

    return {
        results.titles[method]: [cell(figure, method) for figure in COLUMNS]
        for method in results.methods
        if results.runs(data, method)
    }


def comparison_verdict(results: Results) -> list[str]:
    """Say for each data set who is first in the tail and whether seeds alone would explain it."""
    lines = []
    for data in results.data:
        for region, words in (("few", "for few-shot labels"), ("all", "over all test rows")):
            table = _ranking(results, Figure("mae", region), data)
            if table.empty:
                lines.append(f"{data}: no test row has a {region}-shot label, so the tail cannot be judged.")
                continue
            first = number(float(table["mean"].iloc[0]))
            line = f"{data}: {table.index[0]} has the lowest error {words} ({first})"
            if len(table) > 1:
                gap = float(table["mean"].iloc[1] - table["mean"].iloc[0])
                noise = float(np.nanmax([*table["half"].iloc[:2], 0.0]))
                line += f", {table.index[1]} is next ({number(float(table['mean'].iloc[1]))})"
                if table["half"].isna().any():
                    line += "; one seed cannot tell whether that is more than chance"
                elif gap <= noise:
                    line += "; the gap is within the spread over seeds"
            lines.append(line + ".")
    return lines


def _slug(text: str) -> str:
    return "".join(c if c.isalnum() else "-" for c in text) or "data"
