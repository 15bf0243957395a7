"""The page of a suite of faces: every metric by region, what the dial gives, and a verdict on VIR."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from tailwise.metrics.regions import REGIONS
from tailwise_bench.data.suites import SUITES
from tailwise_bench.pages.markup import Table, best_cells, with_spread, write_text
from tailwise_bench.pages.origin import describe_origin
from tailwise_bench.pages.statistics import Figure, Results
from tailwise_bench.run.ablations import is_ablation
from tailwise_bench.run.results import read_results

METRICS = {
    "mae": "MAE in years",
    "gm": "Geometric mean of the errors in years",
    "nll": "NLL",
    "ause": "AUSE",
    "crps": "CRPS in years",
    "coverage": "Coverage of 90% intervals",
    "width": "Width of 90% intervals in years",
}
"""Metrics of the page; those of the spread are calibrated on the validation part."""
_BETTER = {"coverage": "nearest to 0.9 is best"}
BASE, VIR = "vanilla", "vir"


def _ordered(results: Results) -> list[str]:
    """Return contenders in the order of the suite, each followed by its rows with a dial."""
    suite = SUITES.get(results.records[0]["suite"])
    known = suite.methods.split(",") if suite else []

    def place(method: str) -> tuple[int, int, int]:
        listed = [i for i, name in enumerate(known) if name == method or method.startswith(name[:-1] + " ")]
        return (int(is_ablation(method)), min(listed, default=len(known)), len(method))

    return sorted(results.methods, key=place)


def region_table(
    results: Results, metric: str, methods: Sequence[str], caption: str | None = None, calibrated: bool = True
) -> Table:
    """Return one metric by region; mean and standard deviation over seeds."""
    (data,) = results.data
    figures = [Figure(metric, region, calibrated) for region in REGIONS]
    cells = [[results.mean_std(figure, data, method) for method in methods] for figure in figures]
    rows = [
        [results.titles[method], *(with_spread(*column[r]) for column in cells)]
        for r, method in enumerate(methods)
    ]
    losses = [[f.loss(mean) for mean, _ in column] for f, column in zip(figures, cells, strict=True)]
    text = caption or f"{METRICS[metric]}, {_BETTER.get(metric, 'lower is better')}"
    return Table(text, ["method", *REGIONS], rows, best_cells(losses))


def dial_table(results: Results) -> Table | None:
    """Return the emphasis that the validation part chose, and errors with it; None without a dial."""
    (data,) = results.data
    rows = []
    for method in _ordered(results):
        chosen = [r["emphasis"] for r in results.records if r["method"] == method and "emphasis" in r]
        if chosen:
            figures = [*(Figure("mae", region) for region in REGIONS), Figure("crps", "few", True)]
            cells = (with_spread(*results.mean_std(figure, data, method)) for figure in figures)
            rows.append([results.titles[method], ", ".join(f"{t:g}" for t in chosen), *cells])
    if not rows:
        return None
    head = ["method", "emphasis by seed", *(f"MAE {region}" for region in REGIONS), "CRPS few"]
    return Table("With a dial: emphasis of rare labels, chosen on the validation part", head, rows)


def _place(results: Results, figure: Figure, method: str, among: Sequence[str]) -> int:
    (data,) = results.data
    own = figure.loss(results.mean_std(figure, data, method)[0])
    return 1 + sum(figure.loss(results.mean_std(figure, data, other)[0]) < own for other in among)


def verdict(results: Results) -> list[str]:
    """Say where every VIR row beats Vanilla and which place it has, and name the lowest few-shot error."""
    (data,) = results.data
    plain = [method for method in results.methods if not is_ablation(method)]
    lines = []
    for method in _ordered(results):
        dialled = any("emphasis" in r for r in results.records if r["method"] == method)
        if not method.startswith(VIR) or dialled or BASE not in plain:
            continue
        better = [
            region
            for region in REGIONS
            if results.mean_std(Figure("mae", region), data, method)[0]
            < results.mean_std(Figure("mae", region), data, BASE)[0]
        ]
        among = [other for other in plain if other != method]
        places = ", ".join(
            f"{figure.name.removesuffix(' all')} {_place(results, figure, method, among)}"
            for figure in (Figure("mae"), Figure("nll", calibrated=True), Figure("crps", calibrated=True))
        )
        where = f" ({', '.join(better)})" if better else ""
        lines.append(
            f"- **{results.titles[method]}**: lower MAE than Vanilla in {len(better)} of {len(REGIONS)} "
            f"regions{where}; place among {len(among) + 1} methods over all rows: {places}."
        )
    few = {method: results.mean_std(Figure("mae", "few"), data, method) for method in results.methods}
    known = [method for method in few if not math.isnan(few[method][0])]
    if known:
        best = min(known, key=lambda method: few[method][0])
        lines.append(f"- Lowest few-shot MAE: {results.titles[best]}, {with_spread(*few[best])} years.")
    return lines


def _fewer(results: Results) -> str:
    """Name the methods that lack a seed, with the number that they have."""
    runs = {m: sum(r["method"] == m for r in results.records) for m in results.methods}
    fewer = [f"{results.titles[m]} {count}" for m, count in runs.items() if count < max(runs.values())]
    return f" (fewer: {', '.join(fewer)})" if fewer else ""


def section(path: Path) -> str:
    """Return the section of one results file."""
    results = Results(read_results(path))
    if len(results.data) != 1:
        raise ValueError(
            f"{path} has runs on {', '.join(results.data)}: name the results of one suite of faces"
        )
    record = results.records[0]
    rows, shots = record["rows"], record["test_rows"]
    seeds = ", ".join(map(str, sorted({r["seed"] for r in results.records})))
    recipe = ", ".join(f"{key} {value}" for key, value in record["recipe"].items() if value is not None)
    about = [
        f"{rows['train']:,} training, {rows['valid']:,} validation and {rows['test']:,} test faces (many "
        f"{shots['many']:,}, medium {shots['medium']:,}, few {shots['few']:,}); seeds {seeds}"
        f"{_fewer(results)}. Recipe of every method: {recipe}.",
        *describe_origin(results.records, VIR),
    ]
    lines = [f"## {record['suite']}", "", " ".join(about), "", *verdict(results), ""]
    methods = _ordered(results)
    lines += [region_table(results, metric, methods).markdown() for metric in METRICS]
    dial = dial_table(results)
    return "\n".join([*lines, *([] if dial is None else [dial.markdown()])])


INTRODUCTION = """\
# Faces: ages with few examples of the young and the old

Generated by `tailwise-bench faces {files} --out {out}`; do not edit. The runs were made by
`tailwise-bench suite NAME --out research/results/NAME`.

Validation and test parts have about the same number of faces of every age. The recipe, the kept epoch, the
emphasis of a dial and the calibration were chosen on the validation part; each test label is read once, for
these tables. Means and standard deviations are over seeds, which affect initial weights and batches.
Many-shot ages have more than 100 training faces, few-shot ages fewer than 20. Metrics of the spread are
calibrated on the validation part; a method that predicts no spread has a Gaussian of constant variance.
"""


def write_page(paths: Sequence[Path], out: Path) -> Path:
    """Write a Markdown page with a section for each results file."""
    start = INTRODUCTION.format(files=" ".join(map(str, paths)), out=out)
    text = "\n".join([start, *(section(path) for path in paths)])
    return write_text(out, text)
