"""The page of STS-B-DIR: our results beside the published ones, cell by cell."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tailwise.methods import get_method
from tailwise.metrics.regions import REGIONS, get_metric
from tailwise_bench.data.suites import SUITES
from tailwise_bench.pages.markup import Table, best_cells, with_spread, write_text
from tailwise_bench.pages.origin import describe_origin
from tailwise_bench.pages.statistics import Figure, Results
from tailwise_bench.run.ablations import is_ablation
from tailwise_bench.run.region_scores import OF_THE_SPREAD
from tailwise_bench.run.results import read_results

Row = tuple[float, float, float, float]
PAPER: Mapping[str, Mapping[str, Row]] = {
    "mse": {
        "vanilla": (0.974, 0.851, 1.520, 0.984),
        "inv": (1.005, 0.894, 1.482, 1.046),
        "lds": (0.914, 0.819, 1.319, 0.955),
        "fds": (0.927, 0.851, 1.225, 1.012),
        "lds-fds": (0.907, 0.802, 1.363, 0.942),
        "ranksim": (0.903, 0.908, 0.911, 0.804),
        "der": (1.001, 0.912, 1.368, 1.055),
        "lds-fds-der": (1.007, 0.880, 1.535, 1.086),
        "ensemble": (0.972, 0.846, 1.496, 1.032),
        "vir": (0.892, 0.795, 0.899, 0.781),
    },
    "mae": {
        "vanilla": (0.794, 0.740, 1.043, 0.771),
        "inv": (0.805, 0.761, 1.016, 0.780),
        "lds": (0.773, 0.729, 0.970, 0.772),
        "fds": (0.771, 0.740, 0.914, 0.756),
        "lds-fds": (0.766, 0.718, 0.986, 0.755),
        "ranksim": (0.761, 0.759, 0.786, 0.712),
        "der": (0.812, 0.772, 0.989, 0.809),
        "lds-fds-der": (0.812, 0.757, 1.046, 0.842),
        "ensemble": (0.791, 0.723, 1.096, 0.792),
        "vir": (0.740, 0.706, 0.779, 0.708),
    },
    "pearson": {
        "vanilla": (0.742, 0.720, 0.627, 0.752),
        "inv": (0.728, 0.703, 0.625, 0.732),
        "lds": (0.756, 0.734, 0.638, 0.762),
        "fds": (0.750, 0.724, 0.667, 0.742),
        "lds-fds": (0.760, 0.740, 0.652, 0.766),
        "ranksim": (0.758, 0.706, 0.690, 0.827),
        "der": (0.732, 0.711, 0.646, 0.742),
        "lds-fds-der": (0.729, 0.714, 0.635, 0.731),
        "ensemble": (0.746, 0.723, 0.619, 0.750),
        "vir": (0.776, 0.752, 0.696, 0.845),
    },
    "spearman": {
        "vanilla": (0.744, 0.688, 0.505, 0.750),
        "inv": (0.731, 0.672, 0.541, 0.714),
        "lds": (0.761, 0.704, 0.556, 0.743),
        "fds": (0.752, 0.692, 0.552, 0.748),
        "lds-fds": (0.764, 0.707, 0.549, 0.749),
        "ranksim": (0.758, 0.673, 0.493, 0.849),
        "der": (0.731, 0.672, 0.519, 0.739),
        "lds-fds-der": (0.730, 0.680, 0.526, 0.699),
        "ensemble": (0.741, 0.689, 0.501, 0.746),
        "vir": (0.775, 0.716, 0.586, 0.861),
    },
    "nll": {
        "ensemble": (3.913, 3.911, 4.223, 4.106),
        "der": (2.667, 2.601, 3.013, 2.401),
        "lds-fds-der": (2.561, 2.514, 2.880, 2.358),
        "vir": (1.996, 1.810, 2.754, 2.152),
    },
    "ause": {
        "ensemble": (0.709, 0.621, 0.676, 0.663),
        "der": (0.682, 0.583, 0.613, 0.624),
        "lds-fds-der": (0.672, 0.581, 0.609, 0.615),
        "vir": (0.591, 0.575, 0.602, 0.510),
    },
}
"""Means in the paper's tables on STS-B-DIR: all, many, medium, few."""
_NAMES = {
    "mse": "MSE",
    "mae": "MAE",
    "pearson": "Pearson",
    "spearman": "Spearman",
    "nll": "NLL",
    "ause": "AUSE",
    "ause_reference": "AUSE as in the preview code",
    "gaussian_nll_reference": "NLL as in the preview code (Gaussian, epistemic variance)",
}
_DATA = "stsb"
STEPS = "steps.txt"
"""File with the output of `benchmarks/sentence_steps.py`, beside the results of a suite."""


PRESETS = ("vir", "vir-paper", "vir-reference")
"""VIR by default, as in the paper's text, and as in the preview code."""


def _figures(metrics: Iterable[str], *, calibrated: bool = False) -> list[Figure]:
    return [Figure(metric, region, calibrated) for metric in metrics for region in REGIONS]


def _ordered(results: Results, *, variants: bool = False) -> list[str]:
    """Return the contenders, or only ablations, in the order of the suite; others follow."""
    suite = SUITES.get(results.records[0]["suite"])
    known = suite.methods.split(",") if suite else []
    chosen = [method for method in results.methods if is_ablation(method) == variants]
    return sorted(chosen, key=lambda name: known.index(name) if name in known else len(known))


def _seeds(results: Results, method: str | None = None) -> str:
    chosen = {r["seed"] for r in results.records if method in (None, r["method"])}
    return ", ".join(map(str, sorted(chosen)))


def _title(results: Results, method: str) -> str:
    """Return the title of a contender, with its seeds if some are missing."""
    own = _seeds(results, method)
    return results.titles[method] + ("" if own == _seeds(results) else f" (seeds {own} only)")


def metric_table(results: Results, metric: str, *, calibrated: bool = False) -> Table:
    """Return one metric by region for every method; rows below show the paper's figures where it has them.

    Metrics of the spread leave out methods that predict none, unless calibrated: then it is constant.
    """
    figures = _figures([metric], calibrated=calibrated)
    methods = _ordered(results)
    if metric in OF_THE_SPREAD and not calibrated:
        uncertain = {r["method"] for r in results.records if r["uncertainty"] != "none"}
        methods = [method for method in methods if method in uncertain]
    published = {} if calibrated else PAPER.get(metric, {})
    rows: list[list[str]] = []
    losses: list[list[float]] = []
    for method in methods:
        cells = [results.mean_std(figure, _DATA, method) for figure in figures]
        rows.append([_title(results, method), *(with_spread(*cell) for cell in cells)])
        losses.append([f.loss(mean) for f, (mean, _) in zip(figures, cells, strict=True)])
    best = best_cells(list(zip(*losses, strict=True)))
    shown: list[list[str]] = []
    marked: set[tuple[int, int]] = set()
    for r, (method, row) in enumerate(zip(methods, rows, strict=True)):
        marked |= {(len(shown), c) for (at, c) in best if at == r}
        shown.append(row)
        if method in published:
            shown.append(["(paper)", *(f"{value:.3f}" for value in published[method])])
    name = _NAMES[metric] + (" after calibration on the dev part" if calibrated else "")
    better = "higher" if get_metric(metric).direction == "higher" else "lower"
    return Table(f"{name}, {better} is better", ["method", *REGIONS], shown, frozenset(marked))


def variant_table(results: Results) -> Table:
    """Return VIR and its ablations: error by region, and metrics of the spread over all rows."""
    spread = (Figure("nll", calibrated=True), Figure("ause", calibrated=True))
    figures = [*_figures(["mse"]), Figure("pearson"), *spread]
    rows = [
        [_title(results, method), *(with_spread(*results.mean_std(f, _DATA, method)) for f in figures)]
        for method in (PRESETS[0], *_ordered(results, variants=True))
    ]
    heads = [f"{_NAMES[f.metric]} {f.region}{', calibrated' if f.calibrated else ''}" for f in figures]
    return Table("VIR with parts removed or added", ["variant", *heads], rows)


def is_reached(results: Results, figure: Figure, method: str) -> bool:
    """Return whether a figure is at least as good as the paper's VIR."""
    mean, _ = results.mean_std(figure, _DATA, method)
    return figure.loss(mean) <= figure.loss(_target(figure))


def _target(figure: Figure) -> float:
    return PAPER[figure.metric]["vir"][REGIONS.index(figure.region)]


def target_table(results: Results) -> Table:
    """Return the paper's VIR row cell by cell, and the figures of each preset."""
    columns = [(name, c) for name in PRESETS if name in results.methods for c in (False, True)]
    rows = []
    for figure in _figures(PAPER):
        row = [f"{_NAMES[figure.metric]} {figure.region}", f"{_target(figure):.3f}"]
        for method, calibrated in columns:
            own = replace(figure, calibrated=calibrated)
            reached = "yes" if is_reached(results, own, method) else "no"
            row.append(f"{with_spread(*results.mean_std(own, _DATA, method))} {reached}")
        rows.append(row)
    head = [f"{_title(results, name)}, {'calibrated' if c else 'as trained'}" for name, c in columns]
    return Table("The paper's VIR row, cell by cell: reached or not", ["cell", "paper", *head], rows)


def count_reached(
    results: Results, method: str = "vir", *, metrics: Iterable[str] = PAPER, calibrated: bool = True
) -> int:
    """Return the number of cells of the paper's VIR row that are reached."""
    return sum(is_reached(results, figure, method) for figure in _figures(metrics, calibrated=calibrated))


def _verdict(results: Results, method: str) -> str:
    """Describe a preset: how many cells it reaches, and in how many the default is better."""
    parts, figures = get_method(method).parts.as_options(), _figures(PAPER, calibrated=True)
    by_metric = ", ".join(f"{_NAMES[m]} {count_reached(results, method, metrics=[m])}" for m in PAPER)
    recoloured = "latents recoloured" if parts["smoothing.at_inference"] else "latents not recoloured"
    raw = count_reached(results, method, calibrated=False)
    line = (
        f"- **{_title(results, method)}** (`{method}`; inference `{parts['inference']}`, {recoloured}): "
        f"calibrated on dev, it reaches {count_reached(results, method)} of the {len(figures)} cells of the "
        f"paper's row ({by_metric}, of {len(REGIONS)} each); as trained, {raw}."
    )
    default = PRESETS[0]
    if method != default and default in results.methods:
        better = sum(
            f.loss(results.mean_std(f, _DATA, default)[0]) < f.loss(results.mean_std(f, _DATA, method)[0])
            for f in figures
        )
        line += f" The default is better in {better} of {len(figures)}."
    return line


def _options(given: Mapping[str, Any], part: str = "") -> Iterator[str]:
    """Yield "name value" of each option; that of a part, such as the smoothing, as "part.name value"."""
    for name, value in given.items():
        if isinstance(value, Mapping):
            yield from _options(value, f"{part}{name}.")
        else:
            yield f"{part}{name} {value}"


def _about(record: Mapping[str, Any], results: Results) -> str:
    recipe, rows, shots = record["recipe"], record["rows"], record["test_rows"]
    settings = ", ".join(f"{k} {v}" for k, v in recipe.items() if v is not None)
    # The title of a variant names its options.
    fixed = {r["title"]: r["fixed"] for r in results.records if "fixed" in r and not is_ablation(r["method"])}
    own = "; ".join(f"{who}: {', '.join(_options(of))}" for who, of in fixed.items())
    return (
        f"{rows['train']:,} training, {rows['valid']:,} dev and {rows['test']:,} test pairs (many "
        f"{shots['many']}, medium {shots['medium']}, few {shots['few']}, as in DIR's published lists); seeds "
        f"{_seeds(results)}. Recipe of every method: {settings}{f'. Exceptions: {own}' if own else ''}. "
        + " ".join(describe_origin(results.records, PRESETS[0]))
    )


def section(path: Path) -> str:
    """Return the section of one suite: what was run, the targets, and a table for each metric."""
    results = Results(read_results(path))
    if results.data != [_DATA]:
        raise ValueError(f"{path} has runs on {', '.join(results.data)}, not only on {_DATA}")
    record = results.records[0]
    lines = [f"## {record['suite']}", "", _about(record, results), ""]
    presets = [method for method in PRESETS if method in results.methods]
    if presets:
        lines += [*(_verdict(results, method) for method in presets), ""]
        lines += [target_table(results).markdown()]
    for metric in ("mse", "mae", "pearson", "spearman"):
        lines.append(metric_table(results, metric).markdown())
    for metric in ("nll", "ause"):
        lines += [metric_table(results, metric, calibrated=c).markdown() for c in (False, True)]
    for metric in ("ause_reference", "gaussian_nll_reference"):
        lines.append(metric_table(results, metric).markdown())
    if PRESETS[0] in results.methods and _ordered(results, variants=True):
        lines.append(variant_table(results).markdown())
    steps = path.with_name(STEPS)
    if steps.is_file():
        command = f"python benchmarks/sentence_steps.py PREPARED > {steps}"
        lines += [
            "**A training step**",
            "",
            f"`{command}`:",
            "",
            "```",
            steps.read_text("utf-8").strip(),
            "```",
        ]
    return "\n".join(lines)


INTRODUCTION = """\
# STS-B-DIR: our results beside the paper's

Generated by `tailwise-bench stsb {files} --out {out}`; do not edit. The runs were made by
`tailwise-bench suite NAME --out research/results/NAME`.

Sentence pairs have a similarity from 0 to 5, and the split is DIR's. The recipe, the kept epoch and the
calibration were chosen on the dev part; each test label is read once, for these tables. Means and standard
deviations are over seeds, which affect initial weights and batches. The paper copies its baselines from the
papers it cites, without spreads. The paper's word vectors (GloVe 840B, 300 dimensions) differ from those used
here (GloVe 6B, 50 and 100). NLL is in units of the score. AUSE is the area under the sparsification error,
ranked by the total standard deviation; the preview code ranks by epistemic variance and divides the curve by
its maximum. Methods that predict no spread have NLL and AUSE only after calibration, as a Gaussian of
constant variance.
"""


def write_page(paths: Sequence[Path], out: Path) -> Path:
    """Write a Markdown page with a section for each results file."""
    start = INTRODUCTION.format(files=" ".join(map(str, paths)), out=out)
    text = "\n".join([start, *(section(path) for path in paths)])
    return write_text(out, text)
