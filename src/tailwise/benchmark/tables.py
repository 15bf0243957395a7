"""Tables of a benchmark in Markdown, CSV and LaTeX, with a verdict in words, from its results lines."""

from __future__ import annotations

import csv
import io
import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tailwise.benchmark.comparison import RATIOS, Comparison, Figure, Results, compare
from tailwise.benchmark.runs import OF_THE_MEAN, OF_THE_SPREAD, read_results
from tailwise.choices import nearest
from tailwise.files import write_atomically
from tailwise.metrics import REGIONS

HEADLINES = (
    Figure("mae"),
    Figure("mae", "many"),
    Figure("mae", "medium"),
    Figure("mae", "few"),
    Figure("nll", "all", calibrated=True),
    Figure("nll", "few", calibrated=True),
    Figure("crps", "all", calibrated=True),
)
"""What contenders are ranked and tested by; uncertainty is compared after calibration."""
CALIBRATED_ROWS = ("vir", "der", "lds-fds-der", "ensemble", "infer-noise")
"""Methods whose uncertainty is shown before and after calibration, as in the paper."""


@dataclass(frozen=True)
class Table:
    """Cells of text under a head; `best` marks cells to print in bold."""

    caption: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    best: frozenset[tuple[int, int]] = frozenset()

    def markdown(self) -> str:
        """A pipe table under its caption."""
        lines = [
            f"**{self.caption}**",
            "",
            _piped(self.head),
            _piped(["---"] + ["--:"] * (len(self.head) - 1)),
        ]
        for r, row in enumerate(self.rows):
            lines.append(_piped([f"**{c}**" if (r, i) in self.best else c for i, c in enumerate(row)]))
        return "\n".join(lines) + "\n"

    def latex(self) -> str:
        """A booktabs table."""
        lines = [
            r"\begin{table}", r"\centering", rf"\caption{{{_tex(self.caption)}}}",
            rf"\begin{{tabular}}{{l{'r' * (len(self.head) - 1)}}}", r"\toprule",
            " & ".join(map(_tex, self.head)) + r" \\", r"\midrule",
        ]  # fmt: skip
        for r, row in enumerate(self.rows):
            cells = [rf"\textbf{{{_tex(c)}}}" if (r, i) in self.best else _tex(c) for i, c in enumerate(row)]
            lines.append(" & ".join(cells) + r" \\")
        return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", r"\end{table}", ""])


def _piped(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", r"\|") for cell in cells) + " |"


def _tex(text: str) -> str:
    for sign in "&%_#$":
        text = text.replace(sign, f"\\{sign}")
    return text.replace("±", r"$\pm$").replace("<", "$<$").replace("≤", r"$\leq$")


def _number(value: float, digits: int = 3) -> str:
    """Significant digits without an exponent for what tables show."""
    if math.isnan(value):
        return "-"
    places = max(0, digits - 1 - math.floor(math.log10(abs(value)))) if value else digits - 1
    return f"{value:.{min(places, 4)}f}"


def _with_spread(mean: float, std: float) -> str:
    if math.isnan(mean):
        return "-"
    places = len(_number(mean).partition(".")[2])
    return f"{mean:.{places}f}" + ("" if math.isnan(std) else f" ± {std:.{places}f}")


def _best(columns: Iterable[Sequence[float]], first: int = 1) -> frozenset[tuple[int, int]]:
    """Cells with the lowest number of their column; columns are numbers where less is better."""
    found = set()
    for c, values in enumerate(columns, start=first):
        if not np.isnan(values).all():
            low = np.nanmin(values)
            found |= {(r, c) for r, value in enumerate(values) if value == low}
    return frozenset(found)


# -- the tables ----------------------------------------------------------------------------------


def rank_table(results: Results, order: Sequence[str]) -> Table:
    """Average ranks over data sets by every headline."""
    ranks = [results.average_ranks(figure) for figure in HEADLINES]
    columns = [[column[method] for method in order] for column in ranks]
    rows = [
        [results.titles[method], *(_number(column[r]) for column in columns)]
        for r, method in enumerate(order)
    ]
    head = ["method", *(figure.name for figure in HEADLINES)]
    return Table(
        f"Average rank of {len(order)} contenders over {len(results.data)} data sets; 1 is best",
        head, rows, _best(columns),
    )  # fmt: skip


def relative_table(results: Results, order: Sequence[str], base: str) -> Table:
    """Error as a share of a base method's, likelihood as a difference, coverage, and cost."""
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
        rows.append([results.titles[method], *cells, f"{results.seconds(method):.1f}"])
    head = ["method", *(f.name for f in errors), *(f"{f.name}" for f in likelihoods)]
    head += [f"90% coverage {f.region}" for f in coverages] + ["fit s"]
    return Table(
        f"MAE as a share of {results.titles[base]}'s (geometric mean over data sets), calibrated NLL less "
        f"{results.titles[base]}'s, coverage of calibrated 90% intervals, seconds per fit on one core",
        head, rows, _best(columns),
    )  # fmt: skip


def paired_table(results: Results, figure: Figure, reference: str) -> Table:
    """Every contender against the reference by one figure."""
    paired = [c for c in compare(results, figure, reference) if c.pairs]
    found = sorted(paired, key=lambda c: c.change)
    rows = []
    for c in found:
        change = f"{100 * (math.exp(c.change) - 1):+.1f}%" if figure.metric in RATIOS else f"{c.change:+.3f}"
        p, q = (f"{v:.3f}" if v >= 0.001 else "<0.001" if v < 0.001 else "-" for v in (c.p, c.adjusted))
        rows.append([results.titles[c.method], change, f"{c.better}/{c.pairs}", p, q, c.verdict()])
    title = results.titles[reference]
    head = ["method", f"change against {title}", "pairs it wins", "p", "Holm p", f"than {title}"]
    kind = "calibrated " if figure.calibrated else ""
    return Table(f"{kind}{figure.name}: others against {title}, Wilcoxon signed-rank", head, rows)


def data_table(results: Results, data: str, order: Sequence[str]) -> Table:
    """Mean and standard deviation over seeds on one data set."""
    figures = [Figure("mae", region) for region in REGIONS] + [
        Figure("nll", "all", calibrated=True),
        Figure("nll", "few", calibrated=True),
        Figure("ause", "all", calibrated=True),
        Figure("coverage", "few", calibrated=True),
    ]
    order = [method for method in order if results.runs(data, method)]
    cells = [[results.mean_std(figure, data, method) for method in order] for figure in figures]
    rows = [
        [results.titles[method], *(_with_spread(*column[r]) for column in cells)]
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
    return Table(caption, ["method", *(f.name for f in figures)], rows, _best(losses))


def calibration_table(results: Results) -> Table:
    """What calibration changes, averaged over data sets, for the methods of the paper's table."""
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
    """What was tuned, and what was chosen most often."""
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
    """Values, the default first, or the default and the range around it."""
    if isinstance(of, dict):
        scale = " (log)" if of["log"] else ""
        return f"{of['default']:g} in {of['low']:g} to {of['high']:g}{scale}"
    return ", ".join(f"{v:g}" if isinstance(v, float) else str(v) for v in of)


# -- words ---------------------------------------------------------------------------------------


def verdict(results: Results, reference: str = "vir") -> str:
    """Say where the reference wins and loses, and to whom; drawn from the tests, nothing else."""
    title = results.titles[reference]
    lines = []
    for figure in HEADLINES:
        found = compare(results, figure, reference)
        rank = results.average_ranks(figure)
        groups = {word: [c for c in found if c.verdict() == word] for word in ("better", "worse", "open")}
        leader = min((m for m in rank if not math.isnan(rank[m])), key=lambda m: rank[m], default=reference)
        kind = "calibrated " if figure.calibrated else ""
        text = (
            f"- **{kind}{figure.name}**: average rank {_number(rank[reference])} of {len(rank)} (best: "
            f"{results.titles[leader]}, {_number(rank[leader])}); better than {len(groups['worse'])}, "
            f"undecided with {len(groups['open'])}, worse than {len(groups['better'])}"
        )
        if groups["better"]:
            text += f": {_named(groups['better'], results, figure)}"
        lines.append(text + ".")
    best = []
    for data in results.data:
        for figure in (Figure("mae", "few"), Figure("nll", "few", calibrated=True)):
            means = {m: results.mean_std(figure, data, m)[0] for m in results.methods}
            known = {m: value for m, value in means.items() if not math.isnan(value)}
            if reference not in known:
                continue
            place = sum(value < known[reference] for value in known.values()) + 1
            first = min(known, key=lambda m: known[m])
            who = "" if first == reference else f", first {results.titles[first]}"
            best.append(f"{data} {figure.name} {place} of {len(known)}{who}")
    lines.append(f"- Place of {title} in the few-shot region of each data set: {'; '.join(best)}.")
    return "\n".join(lines) + "\n"


def _named(found: Sequence[Comparison], results: Results, figure: Figure) -> str:
    """Names with by how much, the largest gain first."""

    def gain(c: Comparison) -> str:
        return f"{100 * (1 - math.exp(c.change)):.1f}%" if figure.metric in RATIOS else f"{-c.change:.3f}"

    ordered = sorted(found, key=lambda c: c.change)
    return ", ".join(f"{results.titles[c.method]} (by {gain(c)})" for c in ordered)


def _recipe_words(results: Results) -> str:
    recipe = results.records[0]["recipe"]
    seeds = sorted({r["seed"] for r in results.records})
    machines = sorted({r["machine"] for r in results.records})
    expected = len(results.methods) * len(results.data) * len(seeds)
    shown = ", ".join(f"{name} {value}" for name, value in recipe.items())
    points = (
        f"{len(results.methods)} contenders on {len(results.data)} data sets with seeds {seeds[0]} to "
        f"{seeds[-1]}: {len(results.records)} runs of {expected}.",
        f"One recipe for all networks: {shown}.",
        f"Early stopping and the choice among {recipe['trials']} configurations per contender and data set "
        f"go by the validation part's {recipe['criterion'].replace('_', ' ')}. Tuning happens on the first "
        "seed; the other seeds take what was chosen.",
        "Validation and test parts are balanced over label bins, training rows capped evenly. Encodings, "
        "bins and weights come from the training part, calibration from the validation part.",
        "A point prediction counts as a Gaussian of constant variance, calibrated like every other one.",
        "Regions go by the training count of a label's bin: many above 100, few below 20.",
        "Paired tests take data set x seed as pairs. Seeds of one data set share rows, so read small "
        "p-values with care.",
        f"Measured on: {'; '.join(machines)}.",
    )
    return "".join(f"- {point}\n" for point in points)


# -- files ---------------------------------------------------------------------------------------


def summary_csv(results: Results) -> str:
    """Mean and standard deviation of every metric; a row per data set, contender, kind and region."""
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
    name: str = "tabular",
    reference: str | None = None,
    title: str = "Benchmark",
) -> list[Path]:
    """Write ``name.md``, ``name.csv`` and ``name.tex`` from one or more results files.

    Contenders are tested against `reference`, by default VIR.
    """
    results = Results(read_results(*([sources] if isinstance(sources, Path) else sources)))
    known = [m for m in ("vir", "vir[fixed]", results.methods[0]) if m in results.methods]
    reference = reference or known[0]
    if reference not in results.methods:
        raise ValueError(f"no run of {reference!r} to compare with{nearest(reference, results.methods)}")
    ranks = results.average_ranks(HEADLINES[0])
    order = sorted(results.methods, key=lambda m: (math.isnan(ranks[m]), ranks[m]))
    base = next((m for m in ("vanilla", "vanilla[fixed]") if m in results.methods), reference)
    overview = [rank_table(results, order), relative_table(results, order, base)]
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
    ]
    text = f"# {title}\n\nGenerated by `python -m tailwise.benchmark tables`; do not edit.\n\n"
    text += f"{_recipe_words(results)}\n"
    text += f"## What it shows\n\n{verdict(results, reference)}\n"
    latex = ""
    for heading, tables in sections:
        kept = [table for table in tables if table.rows]
        if kept:
            text += f"## {heading}\n\n" + "\n".join(table.markdown() for table in kept) + "\n"
            latex += "\n".join(table.latex() for table in kept) + "\n"
    outputs: list[tuple[str, str]] = [("md", text), ("csv", summary_csv(results)), ("tex", latex)]
    written = []
    for ending, content in outputs:
        path = folder / f"{name}.{ending}"
        write_atomically(path, _writer(content))
        written.append(path)
    return written


def _writer(content: str) -> Callable[[Path], object]:
    return lambda path: path.write_text(content, encoding="utf-8")
