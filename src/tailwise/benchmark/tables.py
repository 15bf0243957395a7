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
from tailwise.benchmark.times import Times
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


def with_spread(mean: float, std: float) -> str:
    """A mean with its standard deviation, both to the places that the mean deserves."""
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


def relative_table(results: Results, order: Sequence[str], base: str, times: Times | None = None) -> Table:
    """Error as a share of a base method's, likelihood as a difference, coverage, and cost if it is known."""
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
            cells.append(_number(times.ratio(method, base, results.data), 2))
        rows.append([results.titles[method], *cells])
    head = ["method", *(f.name for f in errors), *(f"{f.name}" for f in likelihoods)]
    head += [f"90% coverage {f.region}" for f in coverages] + (["time"] if times is not None else [])
    title = results.titles[base]
    caption = (
        f"MAE as a share of {title}'s (geometric mean over data sets), calibrated NLL less {title}'s, "
        "coverage of calibrated 90% intervals"
    )
    if times is not None:
        caption += f", time of a fit as a multiple of {title}'s (geometric mean)"
    return Table(caption, head, rows, _best(columns))


def time_table(results: Results, order: Sequence[str], times: Times) -> Table:
    """Seconds of a fit on every data set."""
    rows = []
    for method in order:
        seconds = [times.fit.get((data, method), math.nan) for data in results.data]
        rows.append([results.titles[method], *(_number(value, 2) for value in seconds)])
    return Table("Processor seconds of one fit, tuning not counted", ["method", *results.data], rows)


def paired_table(results: Results, figure: Figure, reference: str) -> Table:
    """Every contender against the reference by one figure."""
    found = sorted((c for c in compare(results, figure, reference) if c.units), key=lambda c: c.change)
    rows = []
    for c in found:
        p, q = (f"{v:.3f}" if v >= 0.001 else "<0.001" if v < 0.001 else "-" for v in (c.p, c.adjusted))
        wins = f"{c.better}/{c.units}"
        rows.append([results.titles[c.method], _changed(c, figure), wins, p, q, c.verdict()])
    title, units = results.titles[reference], _units(results)
    head = ["method", f"change against {title}", f"{units} it wins", "p", "Holm p", f"than {title}"]
    kind = "calibrated " if figure.calibrated else ""
    caption = (
        f"{kind}{figure.name}: others against {title}, mean change ± standard error over {units}, t-test"
    )
    return Table(caption, head, rows)


def _units(results: Results) -> str:
    """What paired tests take as their pairs."""
    return "data sets" if len(results.data) > 1 else "seeds"


def _changed(c: Comparison, figure: Figure) -> str:
    """Change with its error: in percent for metrics in label units."""
    if figure.metric in RATIOS:
        change, error, places, unit = 100 * math.expm1(c.change), 100 * c.error, 1, "%"
    else:
        change, error, places, unit = c.change, c.error, 3, ""
    return f"{change:+.{places}f}{unit}" + ("" if math.isnan(error) else f" ± {error:.{places}f}")


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


def describe_runs(results: Results) -> str:
    """What was run, and what everything that is said about it rests on, as points."""
    recipe = results.records[0]["recipe"]
    many, few = results.records[0].get("shots", (100, 20))
    seeds = sorted({r["seed"] for r in results.records})
    machines = sorted({r["machine"] for r in results.records})
    expected = len(results.methods) * len(results.data) * len(seeds)
    shown = ", ".join(f"{name} {value}" for name, value in recipe.items() if name != "trials")
    return _points(
        f"{len(results.methods)} contenders on {len(results.data)} data sets with seeds {seeds[0]} to "
        f"{seeds[-1]}: {len(results.records)} runs of {expected}.",
        f"One recipe for all networks: {shown}.",
        "Validation and test parts are balanced over label bins, training rows capped evenly. Encodings, "
        "bins and weights come from the training part, calibration from the validation part.",
        "A point prediction counts as a Gaussian of constant variance, calibrated like every other one.",
        f"Regions go by the training count of a label's bin: many above {many}, few below {few}.",
        _test_words(results),
        f"Run on: {'; '.join(machines)}.",
    )


def _points(*sentences: str) -> str:
    return "".join(f"- {sentence}\n" for sentence in sentences)


def _tuning_words(results: Results) -> str:
    recipe = results.records[0]["recipe"]
    return _points(
        f"Early stopping and the choice among {recipe['trials']} configurations per contender and data set "
        f"go by the validation part's {recipe['criterion'].replace('_', ' ')}. Tuning happens on the first "
        "seed; the other seeds take what was chosen."
    )


def _time_words(times: Times) -> str:
    return _points(
        f"Times: {times.machine}; every chosen configuration fitted once more with seed {times.seed}, one "
        "after the other in one process on one thread, stopped early as in the run. Processor time, tuning "
        "not counted."
    )


def _test_words(results: Results) -> str:
    """What the paired tests assume."""
    if len(results.data) == 1:
        return (
            "Paired tests go over seeds (t-test, Holm's correction). There is one data set, so they say "
            "whether training again would show the same on these rows, and nothing about others."
        )
    return (
        f"Paired tests go over the {len(results.data)} data sets (t-test, Holm's correction). Seeds of one "
        "data set share test rows of the tail, training rows and the tuned configuration, so they are "
        "averaged first and count as one. Assumed: data sets are independent, and changes of their means "
        "about normal. So few data sets leave much undecided."
    )


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
    times: Path | None = None,
) -> list[Path]:
    """Write ``name.md``, ``name.csv`` and ``name.tex`` from one or more results files.

    Contenders are tested against `reference`, by default VIR. What they cost is told if `times` names
    what `take_times` wrote.
    """
    results = Results(read_results(*([sources] if isinstance(sources, Path) else sources)))
    known = [m for m in ("vir", "vir[fixed]", results.methods[0]) if m in results.methods]
    reference = reference or known[0]
    if reference not in results.methods:
        raise ValueError(f"no run of {reference!r} to compare with{nearest(reference, results.methods)}")
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
    text = f"# {title}\n\nGenerated by `python -m tailwise.benchmark tables`; do not edit.\n\n"
    text += describe_runs(results) + _tuning_words(results) + (_time_words(cost) if cost else "") + "\n"
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
