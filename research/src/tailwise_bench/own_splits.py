"""Fields of pages about one data set with its own split: sentence pairs, faces, depth maps."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from tailwise.metrics.regions import REGIONS, get_metric
from tailwise_bench.measure import OF_THE_SPREAD
from tailwise_bench.pivot import as_markdown, means, pivot, with_spread
from tailwise_bench.statistics import MARK, Figure, Results
from tailwise_bench.suites import Suite

PAPER = Path(__file__).parent / "paper.toml"
"""The paper's tables on STS-B-DIR: metric, method, and means of all, many, medium, few."""
PRESETS = ("vir", "vir-paper", "vir-reference")
WORDS = {"mse": "MSE", "pearson": "Pearson", "spearman": "Spearman"}
"""Metrics as the paper writes them, where `Figure.name` does not."""
FACES = {
    "mae": "MAE in years",
    "gm": "Geometric mean of the errors in years",
    "nll": "NLL",
    "ause": "AUSE",
    "crps": "CRPS in years",
    "coverage": "Coverage of 90% intervals",
    "width": "Width of 90% intervals in years",
}
DEPTH = {
    "rmse": "RMSE in metres",
    "log10": "Mean absolute error of log10",
    "delta1": "Share of pixels within a factor of 1.25",
    "delta2": "Share of pixels within a factor of 1.25^2",
    "delta3": "Share of pixels within a factor of 1.25^3",
    "nll": "NLL, calibrated",
    "ause": "AUSE, calibrated",
}
NEITHER = {"coverage": "90% is promised", "width": "narrower is better at equal coverage"}
"""What to say of metrics of which neither more nor less is better."""


def _rows(suite: Suite, results: Results, *, variants: bool | None = None) -> dict[str, str]:
    """Return titles of the contenders, or only of variants, in the order of the suite; others follow."""
    places = {method: place for place, method in enumerate(suite.methods)}
    chosen = [m for m in results.methods if variants is None or m.endswith("]") == variants]
    return {m: results.titles[m] for m in sorted(chosen, key=lambda m: places.get(m, len(places)))}


def _by_region(results: Results, figure: Figure, caption: str, rows: dict[str, str]) -> str:
    figures = {region: (replace(figure, region=region), results.data[0]) for region in REGIONS}
    direction = NEITHER.get(figure.metric, f"{get_metric(figure.metric).direction} is better")
    return pivot(f"{caption}, {direction}", means(results, figures), rows)


def _word(figure: Figure) -> str:
    return f"{WORDS[figure.metric]} {figure.region}" if figure.metric in WORDS else figure.name


def pairs_page(suite: Suite, results: Results, times: Any) -> dict[str, Any]:
    """Our results on STS-B-DIR beside the published ones."""
    data, titles = results.data[0], results.titles
    paper: dict[str, dict[str, list[float]]] = tomllib.loads(PAPER.read_text(encoding="utf-8"))
    presets = [method for method in PRESETS if method in results.methods]
    cells = [Figure(metric, region) for metric in paper for region in REGIONS]

    def target(figure: Figure) -> float:
        return paper[figure.metric]["vir"][REGIONS.index(figure.region)]

    def reached(figure: Figure, method: str) -> bool:
        return figure.loss(results.mean_std(figure, data, method)[0]) <= figure.loss(target(figure))

    kinds = [(method, calibrated) for method in presets for calibrated in (False, True)]
    target_rows = []
    for figure in cells:
        line = [_word(figure), f"{target(figure):.3f}"]
        for method, calibrated in kinds:
            ours = replace(figure, calibrated=calibrated)
            answer = "yes" if reached(ours, method) else "no"
            line.append(f"{with_spread(*results.mean_std(ours, data, method))} {answer}")
        target_rows.append(line)
    heads = [f"{titles[m]}, {'calibrated' if calibrated else 'as trained'}" for m, calibrated in kinds]
    uncertain = {r["method"] for r in results.records if r["uncertainty"] != "none"}
    tables = []
    for metric, calibrated in (
        *((m, False) for m in ("mse", "mae", "pearson", "spearman")),
        *((m, c) for m in ("nll", "ause") for c in (False, True)),
        ("ause_reference", False),
        ("gaussian_nll_reference", False),
    ):
        rows = _rows(suite, results, variants=False)
        if metric in OF_THE_SPREAD and not calibrated:  # methods that predict none have a constant one
            rows = {method: title for method, title in rows.items() if method in uncertain}
        caption = _word(Figure(metric, "")).strip()
        caption += " after calibration on the dev part" if calibrated else ""
        tables.append(_by_region(results, Figure(metric, "all", calibrated), caption, rows))
        theirs = {} if calibrated else paper.get(metric, {})
        shown = [
            [title.removesuffix(MARK), *(f"{v:.3f}" for v in theirs[method])]
            for method, title in rows.items()
            if method in theirs
        ]
        if shown:
            tables.append(as_markdown(f"{caption} in the paper", ["method", *REGIONS], shown))
    figures = [*(Figure("mse", r) for r in REGIONS), Figure("pearson")]
    figures += [Figure("nll", "all", True), Figure("ause", "all", True)]
    variants = {**{m: titles[m] for m in presets[:1]}, **_rows(suite, results, variants=True)}
    columns = means(results, {_word(f): (f, data) for f in figures}, bold=False)
    return {
        "verdict": [
            {
                "title": titles[method],
                "name": method,
                "of": len(cells),
                "calibrated": sum(reached(replace(f, calibrated=True), method) for f in cells),
                "raw": sum(reached(f, method) for f in cells),
            }
            for method in presets
        ],
        "targets": as_markdown(
            "The paper's VIR row, cell by cell: reached or not", ["cell", "paper", *heads], target_rows
        ),
        "tables": tables,
        "variants": pivot("VIR with parts removed or added", columns, variants, "variant"),
    }


def regions_page(suite: Suite, results: Results, times: Any) -> dict[str, Any]:
    """Every metric by region, who is best for all and for rare labels, and what a dial gives."""
    (data,) = results.data
    metrics, rows = (DEPTH if suite.page == "depth" else FACES), _rows(suite, results)
    figures = {metric: Figure(metric, "all", metric in OF_THE_SPREAD) for metric in metrics}
    emphases: dict[str, list[float]] = {}
    for record in results.records:
        if "emphasis" in record:
            emphases.setdefault(record["method"], []).append(record["emphasis"])
    shown = [*(Figure("mae", r) for r in REGIONS), Figure("crps", "few", True)]
    dial = {
        "emphasis by seed": lambda m: ", ".join(f"{t:g}" for t in emphases[m]),
        **means(results, {f.name: (f, data) for f in shown}, bold=False),
    }

    def best(figures: Iterable[Figure]) -> list[str]:
        lines = []
        for figure in figures:
            losses = {m: figure.loss(results.mean_std(figure, data, m)[0]) for m in rows}
            known = {m: loss for m, loss in losses.items() if not math.isnan(loss)}
            if known and figure.metric not in NEITHER:
                first = min(known, key=lambda m: known[m])
                value = with_spread(*results.mean_std(figure, data, first))
                lines.append(f"{figure.metric} {rows[first]} ({value})")
        return lines

    return {
        "best": {r: best(replace(f, region=r) for f in figures.values()) for r in ("all", "few")},
        "tables": [_by_region(results, figures[m], caption, rows) for m, caption in metrics.items()],
        "dial": pivot(
            "With a dial: emphasis of rare labels, chosen on the validation part",
            dial,
            {method: title for method, title in rows.items() if method in emphases},
        ),
    }
