"""Fields of pages about one data set with its own split: sentence pairs, faces, depth maps."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from tailwise.metrics.regions import REGIONS, get_metric
from tailwise_bench.measure import OF_THE_SPREAD
from tailwise_bench.pivot import as_markdown, mean_column, pivot, spread_column, text_column, with_spread
from tailwise_bench.statistics import MARK, Figure, Results
from tailwise_bench.suites import Suite

FOLDER = Path(__file__).parent
PRESETS = ("vir", "vir-paper", "vir-reference")


def _ordered(suite: Suite, results: Results, *, variants: bool | None = None) -> list[str]:
    """Return the contenders, or only variants, in the order of the suite; others follow."""
    chosen = [m for m in results.methods if variants is None or m.endswith("]") == variants]
    return sorted(chosen, key=lambda m: suite.methods.index(m) if m in suite.methods else len(suite.methods))


def _by_region(results: Results, figure: Figure, caption: str, methods: Sequence[str]) -> str:
    columns = [mean_column(results, replace(figure, region=r), results.data[0], r) for r in REGIONS]
    better = {"coverage": "90% is promised", "width": "narrower is better at equal coverage"}
    direction = f"{get_metric(figure.metric).direction} is better"
    return pivot(f"{caption}, {better.get(figure.metric, direction)}", columns, methods, results.titles)


def _word(figure: Figure) -> str:
    """Return a figure's name as the paper writes it."""
    words = {"mse": "MSE", "pearson": "Pearson", "spearman": "Spearman"}
    return f"{words[figure.metric]} {figure.region}" if figure.metric in words else figure.name


@cache
def published() -> dict[str, dict[str, list[float]]]:
    """Return the paper's tables on STS-B-DIR: metric, method, and means of all, many, medium, few."""
    tables: dict[str, dict[str, list[float]]] = tomllib.loads(
        (FOLDER / "paper.toml").read_text(encoding="utf-8")
    )
    return tables


def pairs_page(suite: Suite, results: Results, times: Any) -> dict[str, Any]:
    """Our results on STS-B-DIR beside the published ones."""
    data, paper = results.data[0], published()
    presets = [method for method in PRESETS if method in results.methods]

    def value(figure: Figure, method: str) -> str:
        return with_spread(*results.mean_std(figure, data, method))

    def reached(figure: Figure, method: str) -> bool:
        target = paper[figure.metric]["vir"][REGIONS.index(figure.region)]
        return figure.loss(results.mean_std(figure, data, method)[0]) <= figure.loss(target)

    def cells(calibrated: bool) -> list[Figure]:
        return [Figure(metric, region, calibrated) for metric in paper for region in REGIONS]

    target_rows = [
        [
            _word(f),
            f"{paper[f.metric]['vir'][REGIONS.index(f.region)]:.3f}",
            *(
                value(replace(f, calibrated=c), m)
                + (" yes" if reached(replace(f, calibrated=c), m) else " no")
                for m in presets
                for c in (False, True)
            ),
        ]
        for f in cells(False)
    ]
    head = [
        f"{results.titles[m]}, {'calibrated' if c else 'as trained'}" for m in presets for c in (False, True)
    ]
    tables = []
    for metric, calibrated in (
        *((m, False) for m in ("mse", "mae", "pearson", "spearman")),
        *((m, c) for m in ("nll", "ause") for c in (False, True)),
        ("ause_reference", False),
        ("gaussian_nll_reference", False),
    ):
        methods = _ordered(suite, results, variants=False)
        if metric in OF_THE_SPREAD and not calibrated:  # methods that predict none have a constant one
            uncertain = {r["method"] for r in results.records if r["uncertainty"] != "none"}
            methods = [method for method in methods if method in uncertain]
        caption = _word(Figure(metric, "")).strip() + (
            " after calibration on the dev part" if calibrated else ""
        )
        tables.append(_by_region(results, Figure(metric, "all", calibrated), caption, methods))
        theirs = {} if calibrated else paper.get(metric, {})
        shown = [
            [results.titles[m].removesuffix(MARK), *(f"{v:.3f}" for v in theirs[m])]
            for m in methods
            if m in theirs
        ]
        if shown:
            tables.append(as_markdown(f"{caption} in the paper", ["method", *REGIONS], shown))
    variants = [*presets[:1], *_ordered(suite, results, variants=True)]
    figures = [
        *(Figure("mse", r) for r in REGIONS),
        Figure("pearson"),
        Figure("nll", "all", True),
        Figure("ause", "all", True),
    ]
    columns = [spread_column(results, f, data, _word(f)) for f in figures]
    return {
        "verdict": [
            {
                "title": results.titles[m],
                "name": m,
                "of": len(cells(True)),
                "calibrated": sum(reached(f, m) for f in cells(True)),
                "raw": sum(reached(f, m) for f in cells(False)),
            }
            for m in presets
        ],
        "targets": as_markdown(
            "The paper's VIR row, cell by cell: reached or not", ["cell", "paper", *head], target_rows
        ),
        "tables": tables,
        "variants": pivot("VIR with parts removed or added", columns, variants, results.titles, "variant"),
    }


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


def regions_page(suite: Suite, results: Results, times: Any) -> dict[str, Any]:
    """Every metric by region, who is best for all and for rare labels, and what a dial gives."""
    (data,) = results.data
    metrics, methods = (DEPTH if suite.page == "depth" else FACES), _ordered(suite, results)
    figures = {metric: Figure(metric, "all", metric in OF_THE_SPREAD) for metric in metrics}
    emphases = {
        m: [r["emphasis"] for r in results.records if r["method"] == m and "emphasis" in r] for m in methods
    }
    dials = [m for m in methods if emphases[m]]
    columns = [text_column("emphasis by seed", lambda m: ", ".join(f"{t:g}" for t in emphases[m]))]
    columns += [
        spread_column(results, f, data)
        for f in (*(Figure("mae", r) for r in REGIONS), Figure("crps", "few", True))
    ]

    def best(region: str) -> list[str]:
        found = []
        for metric in metrics:
            figure = replace(figures[metric], region=region)
            losses = {m: figure.loss(results.mean_std(figure, data, m)[0]) for m in methods}
            known = {m: loss for m, loss in losses.items() if not math.isnan(loss)}
            if known and metric not in ("coverage", "width"):
                first = min(known, key=lambda m: known[m])
                found.append(
                    f"{metric} {results.titles[first]} "
                    f"({with_spread(*results.mean_std(figure, data, first))})"
                )
        return found

    return {
        "best": {region: best(region) for region in ("all", "few")},
        "tables": [_by_region(results, figures[m], caption, methods) for m, caption in metrics.items()],
        "dial": pivot(
            "With a dial: emphasis of rare labels, chosen on the validation part",
            columns,
            dials,
            results.titles,
        )
        if dials
        else "",
    }
