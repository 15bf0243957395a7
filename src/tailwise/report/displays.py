"""Charts of a fitted model, the same in a notebook and on a page.

In a notebook each is one call, as in scikit-learn: ``RegionDisplay.from_estimator(model, X, y)``. `plot`
draws on the given Axes, or on new ones of pyplot, and leaves them in ``ax_`` and ``figure_``. On a page a
display becomes an SVG that takes the page's colours, with a heading, a text and a description for screen
readers. The words stand in the template ``displays.txt``.
"""

from __future__ import annotations

import io
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self
from xml.etree import ElementTree

import numpy as np
import pandas as pd
from matplotlib import rc_context
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter, ScalarFormatter

from tailwise.calibration.interval_scores import wilson_interval
from tailwise.explanations import importance, partial_dependence
from tailwise.labels.bins import LabelBins
from tailwise.lookup import check_name
from tailwise.metrics.regions import REGIONS
from tailwise.report.scores import (
    BOOSTER,
    CONSTANT,
    FIGURES,
    LEVELS,
    MIN_DIAL_ROWS,
    MIN_POINT_ROWS,
    OTHER,
    Dial,
    Lineup,
    Scores,
    Seen,
)
from tailwise.report.verdict import untested
from tailwise.report.wording import RARE, level, sentences

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import SubFigure

    from tailwise.estimator import TailRegressor

__all__ = [
    "DependenceDisplay", "DialDisplay", "HistogramDisplay", "ImportanceDisplay", "LabelErrorDisplay",
    "PredictionDisplay", "RegionDisplay", "ReliabilityDisplay", "SparsificationDisplay",
]  # fmt: skip
# Okabe and Ito's palette: readers with any colour vision can tell these colours apart.
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
MARKERS = ("o", "s", "^", "D", "v", "P")
RARE_COLOR = "#E69F00"
# A page replaces these two by its own colours, so that a chart follows it from light to dark.
INK, PAPER = "#1c1c1e", "#fefefe"
MIN_CURVE_ROWS = 10
"""A region with fewer test rows has no curve in the reliability diagram."""
_REGION_BARS = {"many": ("#0072B2", ""), "medium": ("#56B4E9", "///"), "few": (RARE_COLOR, "xx")}
_WIDE = 10_000
_WIDTH = 4.8  # inches: text stays legible when the chart shrinks to the width of a phone
_STYLE: Any = {
    "svg.fonttype": "none",  # text stays text: small, sharp, and found by a search
    "font.family": ["sans-serif"],
    "font.size": 9.5,
    "legend.fontsize": 8.5,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "savefig.facecolor": "none",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "hatch.linewidth": 0.6,
    **dict.fromkeys(("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color"), INK),
}


class Words(NamedTuple):
    """What a page says of a chart: a heading, what to look for, and the chart for those who cannot see it."""

    title: str
    text: str
    alt: str


class Display(ABC):
    """Something that is drawn on Axes."""

    size: tuple[float, float] = (7.0, 3.4)
    height: float = 2.9
    """Height on a page, in inches."""
    name: ClassVar[str]
    """The name of its words in the template."""
    id: str
    """What it is called on a page, where no other has this name."""
    ax_: Axes
    figure_: Figure | SubFigure

    def __init_subclass__(cls) -> None:
        cls.name = cls.id = cls.__name__.removesuffix("Display").lower()

    def plot(self, ax: Axes | None = None) -> Self:
        """Draw on the given Axes, or on a new figure of pyplot, and return self."""
        if ax is None:
            import matplotlib.pyplot as plt

            _, ax = plt.subplots(figsize=self.size, layout="constrained")
        self._draw(ax)
        self.ax_, self.figure_ = ax, ax.figure
        return self

    @abstractmethod
    def _draw(self, ax: Axes) -> object: ...

    @cached_property
    def words(self) -> Words:
        """What a page says of the chart."""
        return Words(*sentences("displays", type(self).name, self))

    @cached_property
    def svg(self) -> str:
        """The chart for a page, with ids of its own and the page's colours."""
        with rc_context({**_STYLE, "svg.hashsalt": self.id}):
            ax = Figure(figsize=(_WIDTH, self.height), layout="constrained").subplots()
            self._draw(ax)
            return svg_element(ax, self.id, self.words.alt)


# -- charts of predictions of test rows ----------------------------------------------------------


class ScoresDisplay(Display):
    """A display of a model's predictions of test rows, beside those of its baselines if there are any."""

    shown: ClassVar[Sequence[str]] = (OTHER, BOOSTER)
    """The baselines that are drawn beside the model."""

    def __init__(self, scores: Scores | Lineup, label: str = "label") -> None:
        self.lineup = scores if isinstance(scores, Lineup) else Lineup(scores)
        self.scores, self.label = self.lineup.ours, label.replace("\n", " ")
        self.regions, self.level = self.scores.regions, level(self.scores.coverage)

    @classmethod
    def from_estimator(
        cls,
        estimator: TailRegressor,
        X: Any,
        y: Any,
        *,
        ax: Axes | None = None,
        coverage: float = 0.9,
        target: int | None = None,
        emphasis: float | None = None,
        label_prior: Any = None,
        **options: Any,
    ) -> Self:
        """Predict rows that the model was not trained on, draw the display and return it.

        `coverage` is that of the intervals. `target` is the number of the target, for a model with several; y
        has its labels. `emphasis` and `label_prior` are those of `TailRegressor.predict`. Other options are
        those of the display.
        """
        dial = {"emphasis": emphasis, "label_prior": label_prior}
        return cls(Seen(estimator, X).scores(y, coverage, target, **dial), **options).plot(ax)

    @property
    def models(self) -> dict[str, Scores]:
        """The models that are drawn, by title."""
        rivals = [s for name, s in self.lineup.baselines.items() if name in self.shown]
        return {scores.title: scores for scores in (self.scores, *rivals)}


class RegionDisplay(ScoresDisplay):
    """Bars for many-, medium- and few-shot labels.

    `metric` is ``"mae"``, ``"rmse"``, ``"nll"``, ``"bias"``, or of the intervals ``"coverage"``, with its 95%
    range, or ``"width"``.
    """

    metrics: ClassVar = ("mae", "rmse", "nll", "crps", "bias", "coverage", "width", "interval_score")
    shown = (OTHER, BOOSTER, CONSTANT)

    def __init__(self, scores: Scores | Lineup, metric: str = "mae", label: str = "label") -> None:
        check_name("metric", metric, self.metrics)
        super().__init__(scores, label)
        self.metric, self.figure, self.id = metric, FIGURES[metric], f"region_{metric}"

    def _draw(self, ax: Axes) -> None:
        bars, promised = {}, self.metric == "coverage"
        for title, scores in self.models.items():
            table = scores.by_region.loc[self.regions]
            bars[title] = pd.DataFrame({"value": table[self.metric], "n": table["n"]})
            if promised:
                hits = (table["n"] * table["coverage"]).round()
                ends = [wilson_interval(int(k), int(n)) for k, n in zip(hits, table["n"], strict=True)]
                bars[title][["low", "high"]] = ends
        names = {
            "coverage": f"share of {self.level} intervals\nthat contain the label",
            "width": f"mean width of {self.level} intervals",
        }
        name = names.get(self.metric, self.metric.replace("_", " "))
        draw_bars(ax, bars, name, self.scores.coverage if promised else None)
        if promised:
            ax.set(ylim=(0, 1.25), yticks=np.linspace(0, 1, 6))


class LabelErrorDisplay(ScoresDisplay):
    """The mean absolute error along the label; ranges of few-shot labels are shaded."""

    def __init__(self, scores: Scores | Lineup, label: str = "label") -> None:
        super().__init__(scores, label)
        self.curves = {title: scores.along_label() for title, scores in self.models.items()}
        curve = self.curves[self.scores.title]
        self.worst = curve.iloc[int(curve["mae"].to_numpy().argmax())]
        self.enough = bool((curve["n"] >= MIN_POINT_ROWS).all())
        self.untested = untested(self.scores)

    def _draw(self, ax: Axes) -> None:
        draw_errors(ax, self.curves, self.label)
        shade_regions(ax, self.scores.bins, self.scores.labels.many, self.scores.labels.few)
        ax.legend(frameon=False)


class PredictionDisplay(ScoresDisplay):
    """Predicted against true labels, with intervals.

    At most `most` rows are drawn. Each region may use an equal part of them, plus what rarer regions do not
    use; the rows drawn of a larger region are spread evenly over its labels.
    """

    height = 4.0
    most: ClassVar = 300
    colors: ClassVar = {"many": "#56B4E9", "medium": "#0072B2", "few": "#D55E00"}

    def _draw(self, ax: Axes) -> None:
        s, room, drawn = self.scores, self.most, {}
        for place, region in enumerate(reversed(self.regions)):
            rows = np.flatnonzero(s.mask(region))
            rows = rows[np.argsort(s.y[rows], kind="stable")]
            count = min(rows.size, room // (len(self.regions) - place))
            drawn[region] = rows[np.linspace(0, rows.size - 1, count).astype(np.int64)]
            room -= count
        for place, region in enumerate(REGIONS[1:]):
            if region in drawn:
                rows = drawn[region]
                ends = np.stack([s.mean[rows] - s.lower[rows], s.upper[rows] - s.mean[rows]])
                style: dict[str, Any] = {"fmt": MARKERS[place], "color": self.colors[region], "markersize": 4}
                style |= {"elinewidth": 0.7, "alpha": 0.75, "zorder": 2 + place, "label": f"{region}-shot"}
                ax.errorbar(s.y[rows], s.mean[rows], yerr=np.maximum(ends, 0), **style)
        diagonal = [float(s.y.min()), float(s.y.max())]
        ax.plot(diagonal, diagonal, color=INK, linewidth=1, linestyle="--", label="perfect", zorder=1)
        finish(ax, f"true {self.label}", f"predicted {self.label}")


class ReliabilityDisplay(ScoresDisplay):
    """How many intervals contain the label, against how many should, for all labels and for rarer ones.

    Below the diagonal intervals are too narrow.
    """

    size, height = (5.0, 4.2), 3.8

    def _draw(self, ax: Axes) -> None:
        s = self.scores
        rarer = [r for r in self.regions if r != "many" and s.mask(r).sum() >= MIN_CURVE_ROWS]
        curves = {f"{title}, all": scores.reliability() for title, scores in self.models.items()}
        curves |= {f"{s.title}, {region}-shot": s.reliability(region) for region in rarer}
        ax.plot([0, 1], [0, 1], color=INK, linewidth=1, linestyle=(0, (1, 2)), label="perfect")
        for place, (name, shares) in enumerate(curves.items()):
            ax.plot(LEVELS, shares, label=plain_text(name), **_line(place))
        ax.set(xlim=(0, 1), ylim=(0, 1.02))
        finish(ax, "promised share", "share of intervals that contain the label")


class SparsificationDisplay(ScoresDisplay):
    """The error of the remaining rows as those with the largest predicted uncertainty are removed."""

    shown = (OTHER,)  # a spread that is the same for all rows removes nothing

    @property
    def ends(self) -> tuple[float, float, float]:
        """A share of the rows, a half in large tables, and the errors before and after removing it."""
        curve = self.scores.sparsification()
        share = min(0.5, float(curve.removed[-1]))
        return share, float(curve.error[0]), float(np.interp(share, curve.removed, curve.error))

    def _draw(self, ax: Axes) -> None:
        for place, (title, scores) in enumerate(self.models.items()):
            curve, title = scores.sparsification(), plain_text(title)
            color, dashes = COLORS[place], ("-", "--")[place]
            ax.plot(curve.removed, curve.error, dashes, color=color, label=f"{title}, by its std")
            ax.plot(curve.removed, curve.oracle, ":", color=color, lw=1, label=f"{title}, by its true error")
        _from_zero(ax)
        finish(ax, "share of rows removed, least certain first", "mean absolute error of the rest")


class DialDisplay(ScoresDisplay):
    """The error over all rows against that for rare labels, at every emphasis from 0 to 1 (VIR:dial)."""

    size, height = (5.0, 4.2), 3.4

    def __init__(self, scores: Scores | Lineup, label: str = "label") -> None:
        super().__init__(scores, label)
        if self.scores.dial is None:
            raise ValueError(f"a dial needs a model that has one, and at least {MIN_DIAL_ROWS} test rows")
        self.dial: Dial = self.scores.dial

    @property
    def points(self) -> dict[str, tuple[float, float]]:
        """Error over all and over rare rows of the setting in use and of each baseline."""
        rivals = {s.title: self.dial.point(s) for s in self.lineup.rivals}
        return {f"in use: {self.dial.setting}": self.dial.point(self.scores), **rivals}

    def _draw(self, ax: Axes) -> None:
        x, y = self.dial.curve
        title = plain_text(self.scores.title)
        ax.plot(x, y, label=title, color=COLORS[0], marker="o", markersize=3, linewidth=1.2)
        for place, (name, point) in enumerate(self.points.items(), start=1):
            style = _line(place) | {"linestyle": "none", "markersize": 8}
            ax.plot(point[:1], point[1:], label=plain_text(name), **style)
        for end, name in ((0, "0"), (-1, "1")):
            ax.annotate(name, (x[end], y[end]), xytext=(5, 4), textcoords="offset points", color=INK)
        ax.locator_params(axis="x", nbins=6)  # large errors are wide numbers
        ax.margins(0.12)
        finish(ax, "mean absolute error, all rows", f"error, {RARE}")


class HistogramDisplay(ScoresDisplay):
    """The number of training rows of each label bin."""

    height = 2.7

    def _draw(self, ax: Axes) -> None:
        draw_histogram(ax, self.scores.bins, self.label, self.scores.labels.many, self.scores.labels.few)


# -- charts of columns ---------------------------------------------------------------------------


class ImportanceDisplay(Display):
    """How much each column matters for one measure, over all labels and for rare ones.

    `table` is what `tailwise.explanations.importance` returns.
    """

    changes: ClassVar = {"error": "increase of the mean absolute error", "crps": "increase of the mean CRPS"}

    def __init__(self, table: pd.DataFrame, measure: str = "error", most: int = 10) -> None:
        check_name("measure", measure, list(table["measure"].unique()))
        self.table, self.measure, self.most = table, measure, most
        self.size = (6.0, 1.4 + 0.34 * min(most, table["column"].nunique()))

    @classmethod
    def from_estimator(
        cls,
        estimator: TailRegressor,
        X: Any,
        y: Any,
        *,
        measure: str = "error",
        most: int = 10,
        ax: Axes | None = None,
        **options: Any,
    ) -> Self:
        """Shuffle columns of rows that the model was not trained on, and draw the `most` important ones.

        `options` are those of `tailwise.explanations.importance`.
        """
        return cls(importance(estimator, X, y, measures=[measure], **options), measure, most).plot(ax)

    def _draw(self, ax: Axes) -> None:
        table = self.table[self.table["measure"] == self.measure]
        groups = [name for name in ("all", "rare") if (table["labels"] == name).any()]
        order = table[table["labels"] == groups[-1]]["column"].head(self.most)
        height = 0.8 / len(groups)
        for place, name in enumerate(groups):
            bars = table[table["labels"] == name].set_index("column").loc[order]
            where = np.arange(len(order)) + (place - (len(groups) - 1) / 2) * height
            style = {"xerr": bars["spread"], "label": f"{name} labels", **_bar(place)}
            ax.barh(where, bars["importance"], height, **style)
        ax.axvline(0, color=INK, linewidth=0.8)
        ax.set_yticks(np.arange(len(order)), [plain_text(name) for name in order])
        ax.invert_yaxis()
        change = self.changes.get(self.measure, f"mean absolute change of the {self.measure}")
        finish(ax, f"{change} if shuffled", "")


class DependenceDisplay(Display):
    """The mean prediction and the mean interval along the values of a column."""

    def __init__(self, table: pd.DataFrame, column: str) -> None:
        self.table, self.column = table, column

    @classmethod
    def from_estimator(
        cls, estimator: TailRegressor, X: Any, column: str, *, ax: Axes | None = None, **options: Any
    ) -> Self:
        """Predict the rows with one value of the column after another, and draw the means.

        `options` are those of `tailwise.explanations.partial_dependence`.
        """
        return cls(partial_dependence(estimator, X, column, **options), column).plot(ax)

    def _draw(self, ax: Axes) -> None:
        table, along = self.table, self.table["value"]
        if not (pd.api.types.is_numeric_dtype(along) or pd.api.types.is_datetime64_any_dtype(along)):
            names = [plain_text(str(value)) for value in along]
            along = pd.Series(np.arange(len(along)))
            ax.set_xticks(along, names, rotation=30)
        band: dict[str, Any] = {"color": COLORS[0], "alpha": 0.18, "lw": 0, "label": "interval"}
        ax.fill_between(along, table["lower"], table["upper"], **band)
        ax.plot(along, table["prediction"], label="prediction", **_line(0))
        finish(ax, self.column, "prediction")


# -- charts of several methods -------------------------------------------------------------------


class RankingDisplay(Display):
    """Methods from best to worst, with error bars over seeds. `table` has the columns mean and std."""

    def __init__(self, table: pd.DataFrame, data: str, heading: str, figure: str) -> None:
        self.table, self.data, self.heading = table, data, heading
        self.height, self.id = 1.0 + 0.3 * len(table), f"{_slug(data)}-{figure}"

    def _draw(self, ax: Axes) -> None:
        table = self.table.sort_values("mean", ascending=False, kind="stable")
        where = np.arange(len(table))
        ax.errorbar(table["mean"], where, xerr=table["std"].fillna(0), fmt="o", color=COLORS[0], capsize=3)
        ax.set_yticks(where, [plain_text(str(name)) for name in table.index])
        ax.set_ylim(-0.6, len(table) - 0.4)
        ax.grid(axis="y", color="0.5", alpha=0.25)
        finish(ax, self.heading.split(",")[0].lower(), "")


class MethodErrorDisplay(Display):
    """The mean absolute error of several methods along the label, mean over seeds."""

    def __init__(self, curves: Mapping[str, pd.DataFrame], data: str) -> None:
        self.curves, self.data, self.id = curves, data, f"{_slug(data)}-along-label"

    def _draw(self, ax: Axes) -> None:
        draw_errors(ax, self.curves, "label")


def _slug(text: str) -> str:
    return "".join(c if c.isalnum() else "-" for c in text) or "data"


# -- what several charts draw ----------------------------------------------------------------------


def plain_text(text: str) -> str:
    """Escape dollar signs: matplotlib reads the text between two of them as a formula."""
    return text.replace("$", r"\$")


def _line(place: int) -> dict[str, Any]:
    """Return colour, line style and marker of the n-th line: lines differ without colour too."""
    style = {"color": COLORS, "linestyle": ("-", "--", "-.", ":"), "marker": MARKERS}
    return {name: values[place % len(values)] for name, values in style.items()} | {"markersize": 4}


def _bar(place: int) -> dict[str, Any]:
    """Return colour, hatching and error bars of the n-th group of bars."""
    style = {"color": COLORS[place % len(COLORS)], "hatch": ("", "//", "xx", "..")[place % 4]}
    return {**style, "edgecolor": PAPER, "ecolor": INK, "error_kw": {"elinewidth": 1, "capsize": 2}}


def finish(ax: Axes, x: str, y: str) -> None:
    """Name the axes, write large numbers without powers of ten, and show a legend if something has a name."""
    for axis, ends in ((ax.xaxis, ax.get_xlim()), (ax.yaxis, ax.get_ylim())):
        numbers = isinstance(axis.get_major_formatter(), ScalarFormatter)  # no dates, names or logarithms
        if numbers and max(map(abs, ends)) >= _WIDE:
            axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.7g}"))
            if axis is ax.xaxis:
                ax.locator_params(axis="x", nbins=4)  # keeps them apart
    ax.set(xlabel=plain_text(x), ylabel=plain_text(y))
    if ax.get_legend_handles_labels()[1]:
        ax.legend(frameon=False)


def _from_zero(ax: Axes) -> None:
    """Start the scale at zero and end it above the highest marker."""
    top = float(ax.dataLim.ymax)
    ax.set_ylim(0, 1.08 * top if 0 < top < np.inf else 1)


def draw_histogram(ax: Axes, bins: LabelBins, label: str, many: int = 100, few: int = 20) -> None:
    """Draw how many training labels each bin holds, by region, on a log scale."""
    regions, high = bins.regions(many, few), 1.3 * int(bins.counts.max())
    for region, (color, hatch) in _REGION_BARS.items():
        rows = (regions == region) & (bins.counts > 0)
        if rows.any():
            style: dict[str, Any] = {"color": color, "hatch": hatch, "edgecolor": PAPER, "linewidth": 0.5}
            style |= {"width": np.diff(bins.edges)[rows], "label": f"{region}-shot"}
            ax.bar(bins.centers[rows], bins.counts[rows], **style)
    ax.set(yscale="log", ylim=(0.6, high))  # from below 1, so that a bin with one row shows
    ax.yaxis.set_major_locator(LogLocator(subs=(1.0,) if high > 60 else (1.0, 2.0, 5.0)))
    ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))
    ax.yaxis.set_minor_formatter(NullFormatter())
    finish(ax, label, "training rows")


def shade_regions(ax: Axes, bins: LabelBins, many: int, few: int) -> None:
    """Shade the label ranges that have few training rows, behind everything else."""
    rare = np.concatenate([[False], bins.regions(many, few) == "few", [False]])
    starts, ends = np.flatnonzero(rare[1:] & ~rare[:-1]), np.flatnonzero(rare[:-1] & ~rare[1:])
    for place, (start, end) in enumerate(zip(bins.edges[starts], bins.edges[ends], strict=True)):
        name = "few-shot labels" if place == 0 else None
        ax.axvspan(start, end, color=RARE_COLOR, alpha=0.16, lw=0, label=name, zorder=0)


def draw_errors(ax: Axes, curves: Mapping[str, pd.DataFrame], label: str) -> None:
    """Draw the mean absolute error along the label; each table has columns ``center`` and ``mae``."""
    for place, (name, table) in enumerate(curves.items()):
        ax.plot(table["center"], table["mae"], label=plain_text(name), **_line(place))
    _from_zero(ax)
    finish(ax, label, "mean absolute error")


def draw_bars(ax: Axes, tables: Mapping[str, pd.DataFrame], name: str, target: float | None = None) -> None:
    """Draw groups of bars by region, one bar per method, with an optional target line.

    Each table has a row for each region: ``value``, ``n`` test rows and, for error bars, ``low`` and
    ``high``.
    """
    width, first = 0.8 / len(tables), next(iter(tables.values()))
    for place, (title, table) in enumerate(tables.items()):
        where = np.arange(len(table)) + (place - (len(tables) - 1) / 2) * width
        reach = None
        if "low" in table:
            reach = np.nan_to_num([table["value"] - table["low"], table["high"] - table["value"]])
        ax.bar(where, table["value"], width, yerr=reach, label=plain_text(title), **_bar(place))
    if target is not None:
        ax.axhline(target, color=INK, linestyle=":", linewidth=1.2)
        ax.annotate(  # beside the bars, because above the line it would hide those that reach it
            f"{100 * target:.4g}%\npromised",
            (1.01, target),
            xycoords=("axes fraction", "data"),
            ha="left",
            va="center",
            annotation_clip=False,
        )
    names = [f"{region}-shot\n{n:,.0f} rows" for region, n in first["n"].items()]
    ax.set_xticks(np.arange(len(first)), names)
    ax.margins(y=0.2)
    finish(ax, "", name)
    ax.legend(frameon=False, loc="upper center", ncols=len(tables))


# -- on a page -------------------------------------------------------------------------------------

_SVG = "http://www.w3.org/2000/svg"
_LINK = "{http://www.w3.org/1999/xlink}href"


def svg_element(ax: Axes, name: str, alt: str) -> str:
    """Return the figure of Axes as an SVG element of a page; `name` must be unique there."""
    figure = ax.figure
    assert isinstance(figure, Figure)
    if ax.get_legend() is not None:
        _move_legend_above(ax, room=0.85 * figure.bbox.width)
    buffer, unnamed = io.BytesIO(), dict.fromkeys(("Date", "Creator", "Format", "Type"))
    figure.savefig(buffer, format="svg", metadata=unnamed)
    ElementTree.register_namespace("", _SVG)
    ElementTree.register_namespace("xlink", "http://www.w3.org/1999/xlink")
    root = ElementTree.fromstring(buffer.getvalue())
    for metadata in root.findall(f"{{{_SVG}}}metadata"):
        root.remove(metadata)
    for element in root.iter():
        for key, value in element.attrib.items():
            # matplotlib gives the parts of every figure the same ids; on one page each needs its own.
            if key == "id":
                value = f"{name}-{value}"
            elif key == _LINK:
                value = value.replace("#", f"#{name}-", 1)
            value = value.replace("url(#", f"url(#{name}-")
            element.set(key, value.replace(INK, "currentColor").replace(PAPER, "var(--paper)"))
    for key in ("width", "height"):
        del root.attrib[key]
    root.attrib |= {"role": "img", "aria-label": alt, "class": "chart"}
    return ElementTree.tostring(root, encoding="unicode")


def _move_legend_above(ax: Axes, room: float) -> None:
    """Put the legend above the chart, where it hides nothing, in as few lines as fit into `room`."""
    handles, labels = ax.get_legend_handles_labels()
    place: dict[str, Any] = {"loc": "lower left", "bbox_to_anchor": (0, 1), "borderaxespad": 0.2}
    for columns in range(len(labels), 0, -1):
        legend = ax.legend(handles, labels, ncols=columns, frameon=False, **place)
        if legend.get_window_extent().width <= room:
            return
