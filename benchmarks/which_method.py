"""Which method when: the decision tables and pictures of docs/which-method.md, from stored results.

    python benchmarks/which_method.py --write

Nothing is run: estimator.jsonl and results.jsonl of research/results are read, and the results.jsonl of
stsb-modern, stsb-paper and utkface there.
"""

from __future__ import annotations

import argparse
import io
import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas
from matplotlib.transforms import Bbox

from tailwise.benchmark import read_results
from tailwise.benchmark.pages.estimator_page import time_ratio
from tailwise.benchmark.pages.markup import Table, number, with_spread
from tailwise.benchmark.pages.statistics import RATIOS, Figure, Results, changes, compare
from tailwise.benchmark.run.ablations import is_ablation
from tailwise.methods import available_methods
from tailwise.report.plots import COLORS

DOCS = Path(__file__).parents[1] / "docs"
BOOSTERS = ("catboost", "lightgbm", "ngboost")
ENOUGH_SEEDS = 3
"""A method takes part in a decision if it has this many seeds with all data sets."""
COVERED = 0.85
"""Intervals of 90% hold for rare labels if they contain this share of them on every table."""
STYLE = {
    "svg.fonttype": "none",
    "svg.hashsalt": "which-method",
    "font.family": ["sans-serif"],
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
}


@dataclass(frozen=True)
class Suite:
    """Results of one comparison, the method that others are divided by, and the two errors of its picture."""

    results: Results
    reference: str
    common: Figure
    rare: Figure
    overall: Figure
    paired: bool = False
    """Whether a seed is divided by the same seed of the reference, as its page does, and not by its mean."""

    @property
    def methods(self) -> list[str]:
        """Methods with enough seeds to be chosen."""
        counts = {m: self.by_seed(self.rare, m).size for m in self.results.methods}
        return [method for method, count in counts.items() if count >= ENOUGH_SEEDS]

    def by_seed(self, figure: Figure, method: str) -> np.ndarray:
        """Return a figure divided by the reference's for every seed that has all data sets; (S,)."""
        if not self.paired:
            return self.results.relative_by_seed(figure, method, self.reference)
        found = changes(self.results, figure, method, self.reference, "seeds")
        return np.asarray(np.exp(found) if figure.metric in RATIOS else found)

    def ratio(self, figure: Figure, method: str) -> float:
        """Return a figure of a method divided by the reference's; for NLL, the difference."""
        if self.paired and (found := self.by_seed(figure, method)).size:
            return float(found.mean())
        return self.results.relative(figure, method, self.reference)

    def text(self, figure: Figure, method: str) -> str:
        """Return the same with its standard deviation over seeds."""
        spread = self.by_seed(figure, method)
        std = float(spread.std(ddof=1)) if spread.size > 1 and method != self.reference else math.nan
        return with_spread(self.ratio(figure, method), std)

    def level_with(self, figure: Figure, best: str, methods: Sequence[str]) -> list[str]:
        """Return the methods that the test over seeds does not tell apart from the best."""
        chosen = Results(r for r in self.results.records if r["method"] in methods)
        found = compare(chosen, figure, best, over="seeds")
        return [c.method for c in sorted(found, key=lambda c: c.change) if c.verdict() == "open"]


def read_suite(path: Path, metric: str, reference: str = "vanilla") -> Suite:
    """Read a comparison with many-, medium- and few-shot labels, without its ablations."""
    lines = [r for r in read_results(path) if not is_ablation(r["method"]) and "[" not in r["method"]]
    return Suite(Results(lines), reference, Figure(metric, "many"), Figure(metric, "few"), Figure(metric))


def is_booster(method: str) -> bool:
    """Tell whether a method is a booster of another package."""
    return method.startswith(BOOSTERS)


def in_code(method: str) -> str:
    """Say how to use a method."""
    ours = {"tail": "", "tail-balanced": "emphasis=1", "tail-none": "base=None"}
    ours |= {"tail-lightgbm": 'base="lightgbm"', "tail-hist": 'base="hist-gradient-boosting"'}
    if method in ours:
        return f"`TailRegressor({ours[method]})`"
    if method in available_methods():
        return f'`method="{method}"`'
    if is_booster(method):
        weighted = method.partition("+")[0].endswith(("-weighted", "-lds"))
        text = "the package itself" + (", `sample_weight` from `tailwise.label_weights`" if weighted else "")
        return text + (", and crepes" if "+conformal" in method else "")
    return "`tailwise bench`"


# -- decisions -----------------------------------------------------------------------------------


def names(suite: Suite, methods: Sequence[str], most: int = 4) -> str:
    """List titles; many are counted."""
    titles = [suite.results.titles[method] for method in methods]
    if not titles:
        return "none"
    return "; ".join(titles[:most]) + (f" and {len(titles) - most} more" if len(titles) > most else "")


def choice(suite: Suite, method: str) -> str:
    """Return the title of a method and how to use it."""
    code = in_code(method)
    return code if "TailRegressor" in code else f"{suite.results.titles[method]}<br>{code}"


def decision_row(
    suite: Suite, question: str, figure: Figure, candidates: Sequence[str], shown: Sequence[Figure]
) -> tuple[list[str], str]:
    """Return the row of a question, and the method that answers it."""
    best = min(candidates, key=lambda method: suite.ratio(figure, method))
    level = suite.level_with(figure, best, candidates)
    cells = [f"**{suite.text(f, best)}**" if f == figure else suite.text(f, best) for f in shown]
    return [question, choice(suite, best), *cells, names(suite, level)], best


def estimator_table(suite: Suite) -> Table:
    """Return the decisions for somebody with a table, among estimators with their default settings."""
    results, methods = suite.results, suite.methods
    shown = (suite.overall, suite.rare, Figure("crps"), Figure("crps", "rare"))
    width = Figure("width", "rare")
    cheap = [m for m in methods if suite.ratio(suite.overall, m) <= 1]
    holding = [m for m in methods if coverage(results, m)[0] >= COVERED]
    questions = (
        ("the error over all labels", shown[0], methods),
        ("the error for rare labels", shown[1], methods),
        ("the error for rare labels, at no cost overall", shown[1], cheap),
        ("the predicted distribution of all labels", shown[2], methods),
        ("the predicted distribution of rare labels", shown[3], methods),
        ("90% intervals that contain rare labels, as narrow as possible", width, holding),
    )
    answers = [decision_row(suite, *question, shown) for question in questions]
    fastest = min(methods, key=lambda m: time_ratio(results, "fit", m))
    figures = [suite.text(f, fastest) for f in shown]
    answers.append((["the time of a fit", choice(suite, fastest), *figures, "not tested"], fastest))
    rows = []
    for place, (row, best) in enumerate(answers):
        low, high = coverage(results, best)
        intervals = f"{low:.0%} to {high:.0%}<br>{number(suite.ratio(width, best))}"
        time = number(time_ratio(results, "fit", best), 2)
        intervals = f"**{intervals}**" if place == len(questions) - 1 else intervals
        rows.append([*row[:-1], intervals, f"**{time}**" if best == fastest else time, row[-1]])
    head = ["what matters most", "choose", *map(head_of, shown)]
    head += ["rare in 90% intervals<br>and their width", "fit time", "within chance of it"]
    caption = f"Estimators with default settings on {len(results.data)} tables"
    return Table(f"{caption}; errors, widths and times divided by CatBoost's", head, rows)


def coverage(results: Results, method: str) -> tuple[float, float]:
    """Return the smallest and largest share, over tables, of rare labels inside 90% intervals."""
    found = [results.mean_std(Figure("coverage", "rare"), data, method)[0] for data in results.data]
    return min(found), max(found)


def head_of(figure: Figure) -> str:
    """Return the head of a column, in the words of the page."""
    words = {"many": "common", "few": "rare"}
    return f"{figure.metric.upper()} {words.get(figure.region, figure.region)}"


def left_aligned(table: Table) -> str:
    """Return a table whose columns of words are aligned to the left: the first two and the last."""
    lines = table.markdown().splitlines()
    count = len(table.head)
    lines[3] = "| " + " | ".join("---" if i < 2 or i == count - 1 else "--:" for i in range(count)) + " |"
    return "\n".join(lines)


def suite_table(suite: Suite, what: str) -> Table:
    """Return the decisions of a suite with regions: among all its methods, and among its networks."""
    every = suite.methods
    networks = [m for m in every if not is_booster(m)]
    groups = [("", every), (", networks only", networks)] if len(networks) < len(every) else [("", every)]
    shown = (suite.common, suite.rare, suite.overall, Figure("nll", "few", calibrated=True))
    questions = (
        ("the error for common labels", suite.common),
        ("the error for rare labels", suite.rare),
        ("the error over all labels, rare and common alike", suite.overall),
        ("the likelihood of rare labels", shown[3]),
    )
    rows, former = [], ""
    for question, figure in questions:
        for note, candidates in groups:
            row, best = decision_row(suite, question + note, figure, candidates, shown)
            if not (note and best == former):
                rows.append(row)
            former = best
    heads = map(head_of, shown)
    return Table(
        f"{what}; errors divided by those of the plain network, and differences of NLL",
        ["what matters most", "choose", *heads, "within chance of it"],
        rows,
    )


def every_table(suite: Suite) -> Table:
    """Return the errors of every method, in the order of its error for rare labels."""
    order = sorted(suite.results.methods, key=lambda m: suite.ratio(suite.rare, m))
    figures = (suite.common, suite.rare, suite.overall)
    figures = tuple(dict.fromkeys(figures))
    rows = [
        [
            suite.results.titles[m] + (" (booster)" if is_booster(m) else ""),
            *(suite.text(f, m) for f in figures),
        ]
        for m in order
    ]
    title = suite.results.titles[suite.reference]
    return Table(f"Every method, divided by {title}", ["method", *map(head_of, figures)], rows)


# -- pictures ------------------------------------------------------------------------------------


def draw(suite: Suite, common: str, rare: str) -> Canvas:
    """Draw the error for common labels against that for rare ones, a point for every method."""
    canvas = Canvas(figsize=(8.4, 6.2), layout="constrained")
    ax = canvas.subplots()
    methods = suite.results.methods
    x, y = ([suite.ratio(figure, m) for m in methods] for figure in (suite.common, suite.rare))
    kinds = {"booster": "s", "TailRegressor": "D", "network": "o"}
    for place, (kind, marker) in enumerate(kinds.items()):
        mine = [i for i, m in enumerate(methods) if kind_of(m) == kind]
        if mine:
            color = COLORS[(1, 2, 0)[place]]
            ax.scatter(
                [x[i] for i in mine], [y[i] for i in mine], s=46, marker=marker, color=color, label=kind
            )
    ax.axvline(1, color="#bbbbbb", linewidth=0.8, zorder=0)
    ax.axhline(1, color="#bbbbbb", linewidth=0.8, zorder=0)
    ax.margins(0.09)
    ax.set(xlabel=common, ylabel=rare)
    ax.legend(frameon=False, loc="lower left", bbox_to_anchor=(0, 1), ncols=3)
    label_points(ax, x, y, [suite.results.titles[m] for m in methods])
    return canvas


def kind_of(method: str) -> str:
    """Return the kind of a method, which its marker shows."""
    return "booster" if is_booster(method) else "TailRegressor" if method.startswith("tail") else "network"


def label_points(ax: Axes, x: Sequence[float], y: Sequence[float], titles: Sequence[str]) -> None:
    """Write the title of each point where it hides no other; a line leads to it if it is far away."""
    canvas = ax.figure
    canvas.draw_without_rendering()
    canvas.set_layout_engine("none")
    points = ax.transData.transform(np.column_stack([x, y]))
    taken = [Bbox.from_bounds(px - 6, py - 6, 12, 12) for px, py in points]
    frame = ax.get_window_extent()
    to_data = ax.transData.inverted().transform
    for i in np.argsort([-near(points, point) for point in points], kind="stable"):
        text = ax.text(0, 0, titles[i], fontsize=8)
        size = text.get_window_extent()
        width, height = size.width * 1.04, size.height
        place, far = free_place(points[i], width, height, taken, frame)
        taken.append(Bbox.from_bounds(*place, width, height))
        text.set_position(to_data(place))
        text.set_verticalalignment("bottom")
        if far:
            middle = (place[0] + width / 2, place[1] + height / 2)
            edge = (float(np.clip(points[i][0], place[0], place[0] + width)), middle[1])
            ends = to_data([points[i], edge])
            ax.plot(*ends.T, color="#999999", linewidth=0.5, zorder=1)


def near(points: np.ndarray, point: np.ndarray, reach: float = 80.0) -> int:
    """Count the points within reach."""
    return int((np.hypot(*(points - point).T) < reach).sum())


def free_place(
    point: np.ndarray, width: float, height: float, taken: Sequence[Bbox], frame: Bbox
) -> tuple[tuple[float, float], bool]:
    """Return the lower left corner of a free rectangle close to a point, and whether it is far away."""
    for distance in (8, 16, 26, 38, 52, 68, 86, 106, 128):
        for angle in np.deg2rad([0, 180, 90, 270, 30, 150, 330, 210, 60, 120, 300, 240]):
            dx, dy = np.cos(angle), np.sin(angle)
            left = point[0] + dx * distance + (0 if dx > 0.3 else -width if dx < -0.3 else -width / 2)
            bottom = point[1] + dy * distance - height / 2
            box = Bbox.from_bounds(left, bottom, width, height)
            inside = frame.x0 < box.x0 and box.x1 < frame.x1 and frame.y0 < box.y0 and box.y1 < frame.y1
            if inside and not any(box.overlaps(other) for other in taken):
                return (float(left), float(bottom)), distance > 16
    return (float(point[0] + 8), float(point[1])), False


def as_svg(canvas: Canvas) -> str:
    """Return a picture as text that is the same in every run."""
    out = io.StringIO()
    canvas.savefig(out, format="svg", metadata={"Date": None, "Creator": None})
    return out.getvalue()


# -- page ----------------------------------------------------------------------------------------


def page(folder: Path) -> tuple[str, dict[str, str]]:
    """Return the page and its pictures by name, from a folder of results."""
    records = read_results(folder / "estimator.jsonl")
    estimators = Suite(
        Results(records), "catboost", Figure("mae"), Figure("mae", "rare"), Figure("mae"), paired=True
    )
    tables = read_suite(folder / "results.jsonl", "mae")
    few = sorted(set(estimators.results.methods) - set(estimators.methods))
    left_out = f" Too few runs to be chosen: {names(estimators, few, 9)}." if few else ""
    parts = [
        "# Which method when",
        "Find the line of what matters most to you. A bold figure decided its line. *Within chance of it* "
        "are methods that a paired t-test over seeds, with Holm's correction, does not tell apart from the "
        "choice. That test speaks for other seeds on these data, not for other data. The choice and its "
        "figure come from the same runs, so expect a little less on your data. A "
        "difference of a few percent is no reason to change a method that works.",
        "## A table, and an estimator that works as it is",
        "Natural splits: test labels are as rare as training labels. Rare labels are the 15% with the lowest "
        f"training density ([all figures](../research/results/estimator.md)).{left_out}",
        left_aligned(estimator_table(estimators)),
        "![Error over all labels against error for rare labels by estimator](img/which-estimator.svg)",
        "*MAE divided by CatBoost's. Left is better overall, down is better for rare labels. Squares are "
        "boosters.*",
        "## A table, and a choice of method for the network",
        "Balanced splits: every label is equally frequent in the test part, so the overall error counts rare "
        "labels as much as common ones. Common labels have more than 100 training rows in their bin, rare "
        "ones fewer than 20. Every method was tuned alike ([all figures](../research/results/tabular.md)). "
        "Use one with `TailRegressor(method=...)` or [in your own loop](own-models.md).",
        left_aligned(suite_table(tables, f"Methods on {len(tables.results.data)} tables")),
        "![Error for common labels against error for rare labels by method](img/which-method.svg)",
        "*MAE divided by the plain network's (Vanilla). Left is better for common labels, down is better for "
        "rare ones. Squares are boosters.*",
        every_table(tables).markdown(),
    ]
    others = (
        ("stsb-modern", "mse", "Sentence pairs, vectors of a trained encoder", "STS-B-DIR", "stsb"),
        ("stsb-paper", "mse", "Sentence pairs, a BiLSTM from scratch", "STS-B-DIR", "stsb"),
        ("utkface", "mae", "Pictures", "Faces of UTKFace, a ResNet-18 from random weights", "utkface"),
    )
    for name, metric, title, words, details in others:
        path = folder / name / "results.jsonl"
        if path.is_file():
            suite = read_suite(path, metric)
            seeds = max(
                len(suite.results.runs(data, m)) for data in suite.results.data for m in suite.methods
            )
            table = suite_table(suite, f"{title}, {seeds} seeds")
            parts += [
                f"## {title}",
                f"{words} ([all figures](../research/results/{details}.md)).",
                left_aligned(table),
            ]
    parts.append(
        "Generated by `python benchmarks/which_method.py --write` from the files of "
        "[results](../research/results/README.md); do not edit."
    )
    with rc_context(STYLE):
        pictures = {
            "which-estimator.svg": as_svg(
                draw(estimators, "MAE of all labels / CatBoost's", "MAE of rare labels / CatBoost's")
            ),
            "which-method.svg": as_svg(
                draw(tables, "MAE of common labels / plain network's", "MAE of rare labels / plain network's")
            ),
        }
    return "\n\n".join(part.strip() for part in parts) + "\n", pictures


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the page, or write it with its pictures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--write", action="store_true", help="write docs/which-method.md and its pictures")
    options = parser.parse_args(arguments)
    text, pictures = page(DOCS.parent / "research" / "results")
    if options.write:
        (DOCS / "which-method.md").write_text(text, encoding="utf-8")
        for name, picture in pictures.items():
            (DOCS / "img" / name).write_text(picture, encoding="utf-8")
    else:
        sys.stdout.write(text)


if __name__ == "__main__":
    main()
