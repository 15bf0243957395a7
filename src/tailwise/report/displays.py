"""Charts of a fitted model, the same in a notebook and on a page.

In a notebook each is one call, as in scikit-learn: ``RegionDisplay.from_estimator(model, X, y)``. `plot`
draws on the given Axes, or on new ones of pyplot, and leaves them in ``ax_`` and ``figure_``. On a page a
display becomes an SVG that takes the page's colours, with a heading, a text and a description for screen
readers. The words stand in the template ``displays.txt``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
import pandas as pd
from matplotlib import rc_context
from matplotlib.figure import Figure

from tailwise.calibration.interval_scores import wilson_interval
from tailwise.explanations import importance, partial_dependence
from tailwise.lookup import check_name
from tailwise.metrics.regions import REGIONS
from tailwise.report import plots
from tailwise.report.baselines import BOOSTER, CONSTANT, OTHER, Lineup
from tailwise.report.plots import COLORS, INK, MARKERS, name_axes, plain_text, svg_element
from tailwise.report.scores import (
    FIGURES,
    LEVELS,
    MIN_DIAL_ROWS,
    MIN_POINT_ROWS,
    Dial,
    Scores,
    Seen,
    sorted_regions,
)
from tailwise.report.verdict import untested
from tailwise.report.wording import RARE, level, say

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import SubFigure

    from tailwise.estimator import TailRegressor

__all__ = [
    "DependenceDisplay", "DialDisplay", "HistogramDisplay", "ImportanceDisplay", "LabelErrorDisplay",
    "PredictionDisplay", "RegionDisplay", "ReliabilityDisplay", "SparsificationDisplay",
]  # fmt: skip
MIN_CURVE_ROWS = 10
"""A region with fewer test rows has no curve in the reliability diagram."""
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


class Display(ABC):
    """Something that is drawn on Axes."""

    size: tuple[float, float] = (7.0, 3.4)
    height: float = 2.9
    """Height on a page, in inches."""
    ax_: Axes
    figure_: Figure | SubFigure

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

    @property
    def name(self) -> str:
        """The name of the display's words in the template."""
        return type(self).__name__.removesuffix("Display").lower()

    @property
    def id(self) -> str:
        """What the display is called on a page, where no other has this name."""
        return self.name

    @property
    def title(self) -> str:
        """The heading on a page."""
        return say("displays", f"{self.name}_title", self)

    @property
    def text(self) -> str:
        """What to look for."""
        return say("displays", f"{self.name}_text", self)

    @property
    def alt(self) -> str:
        """What the chart shows, for those who cannot see it."""
        return say("displays", f"{self.name}_alt", self)

    @cached_property
    def svg(self) -> str:
        """The chart for a page, with ids of its own and the page's colours."""
        with rc_context({**_STYLE, "svg.hashsalt": self.id}):
            ax = Figure(figsize=(_WIDTH, self.height), layout="constrained").subplots()
            self._draw(ax)
            return svg_element(ax, self.id, self.alt)


# -- charts of predictions of test rows ----------------------------------------------------------


class ScoresDisplay(Display):
    """A display of a model's predictions of test rows, beside those of its baselines if there are any."""

    shown: ClassVar[Sequence[str]] = (OTHER, BOOSTER)
    """The baselines that are drawn beside the model."""

    def __init__(self, scores: Scores | Lineup, label: str = "label") -> None:
        self.lineup = scores if isinstance(scores, Lineup) else Lineup(scores)
        self.scores, self.label = self.lineup.ours, label

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

    @property
    def curve(self) -> pd.DataFrame:
        """The figures of the model along the label."""
        return self.scores.along_label()

    @property
    def regions(self) -> list[str]:
        """The regions that have test rows."""
        return sorted_regions(self.scores.region)

    @property
    def level(self) -> str:
        """The promised coverage."""
        return level(self.scores.coverage)

    @property
    def label_axis(self) -> dict[str, Any]:
        """What charts along the label share."""
        s = self.scores
        return {"bins": s.bins, "label": self.label, "many": s.many, "few": s.few}


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
        self.metric = metric

    @property
    def name(self) -> str:
        """The figure is part of the name."""
        return f"region_{self.metric}"

    @property
    def tables(self) -> dict[str, pd.DataFrame]:
        """Figures by region of each model."""
        return {title: scores.by_region() for title, scores in self.models.items()}

    @property
    def figures(self) -> dict[str, dict[str, str]]:
        """The bars as text, by model and region."""
        text = FIGURES[self.metric].text
        tables = self.tables.items()
        return {title: {r: text(table[self.metric][r]) for r in self.regions} for title, table in tables}

    def _draw(self, ax: Axes) -> None:
        tables, options = self.tables, dict[str, Any](regions=self.regions)
        if self.metric == "coverage":
            spread = {title: _ranges(table.loc[self.regions]) for title, table in tables.items()}
            options |= {"target": self.scores.coverage, "spread": spread}
        plots.by_region_bars(tables, self.metric, ax, **options)
        if self.metric == "coverage":
            ax.set_ylabel(f"share of {self.level} intervals\nthat contain the label")
            ax.set(ylim=(0, 1.25), yticks=np.linspace(0, 1, 6))
        elif self.metric == "width":
            ax.set_ylabel(f"mean width of {self.level} intervals")


def _ranges(table: pd.DataFrame) -> Any:
    """Return how far the 95% range of the coverage reaches below and above it. (2, R)"""
    n, share = table["n"].to_numpy(), table["coverage"].to_numpy(np.float64)
    hits = np.nan_to_num(share * n).round().astype(int)
    ends = np.array([wilson_interval(int(k), int(m)) for k, m in zip(hits, n, strict=True)])
    return np.abs(ends.T - share)


class LabelErrorDisplay(ScoresDisplay):
    """The mean absolute error along the label; ranges of few-shot labels are shaded."""

    @property
    def worst(self) -> pd.Series[Any]:
        """The point with the largest error."""
        return self.curve.iloc[int(self.curve["mae"].to_numpy().argmax())]

    @property
    def enough(self) -> bool:
        """Whether every point averages enough rows."""
        return bool((self.curve["n"] >= MIN_POINT_ROWS).all())

    @property
    def untested(self) -> str:
        """Where the test rows end."""
        return untested(self.scores)

    def _draw(self, ax: Axes) -> None:
        curves = {title: scores.along_label() for title, scores in self.models.items()}
        plots.error_by_label(curves, ax, **self.label_axis)


class PredictionDisplay(ScoresDisplay):
    """Predicted against true labels, with intervals.

    At most `most` rows are drawn. Each region may use an equal part of them, plus what rarer regions do not
    use; the rows drawn of a larger region are spread evenly over its labels.
    """

    height = 4.0
    most: ClassVar = 300
    colors: ClassVar = {"many": "#56B4E9", "medium": "#0072B2", "few": "#D55E00"}

    @property
    def bias(self) -> dict[str, float]:
        """The mean error of each region, predicted minus true."""
        s = self.scores
        return {region: float((s.mean - s.y)[s.mask(region)].mean()) for region in self.regions}

    def _rows(self) -> dict[str, Any]:
        """Return the rows of each region that are drawn."""
        s, room, drawn = self.scores, self.most, {}
        for place, region in enumerate(reversed(self.regions)):
            rows = np.flatnonzero(s.mask(region))
            rows = rows[np.argsort(s.y[rows], kind="stable")]
            count = min(rows.size, room // (len(self.regions) - place))
            drawn[region] = rows[np.linspace(0, rows.size - 1, count).astype(np.int64)]
            room -= count
        return drawn

    def _draw(self, ax: Axes) -> None:
        s, drawn = self.scores, self._rows()
        for place, region in enumerate(REGIONS[1:]):
            if region in drawn:
                rows = drawn[region]
                ends = np.stack([s.mean[rows] - s.lower[rows], s.upper[rows] - s.mean[rows]])
                style: dict[str, Any] = {"fmt": MARKERS[place], "color": self.colors[region], "markersize": 4}
                style |= {"elinewidth": 0.7, "alpha": 0.75, "zorder": 2 + place, "label": f"{region}-shot"}
                ax.errorbar(s.y[rows], s.mean[rows], yerr=np.maximum(ends, 0), **style)
        diagonal = [float(s.y.min()), float(s.y.max())]
        ax.plot(diagonal, diagonal, color=INK, linewidth=1, linestyle="--", label="perfect", zorder=1)
        plots.plain_numbers(ax)
        name_axes(ax, f"true {self.label}", f"predicted {self.label}")


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
        plots.draw_lines(ax, {name: (LEVELS, shares) for name, shares in curves.items()})
        ax.set(xlim=(0, 1), ylim=(0, 1.02))
        name_axes(ax, "promised share", "share of intervals that contain the label")


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
        plots.from_zero(ax)
        plots.plain_numbers(ax)
        name_axes(ax, "share of rows removed, least certain first", "mean absolute error of the rest")


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
            style = plots.line_style(place) | {"linestyle": "none", "markersize": 8}
            ax.plot(point[:1], point[1:], label=plain_text(name), **style)
        for end, name in ((0, "0"), (-1, "1")):
            ax.annotate(name, (x[end], y[end]), xytext=(5, 4), textcoords="offset points", color=INK)
        ax.locator_params(axis="x", nbins=6)  # large errors are wide numbers
        ax.margins(0.12)
        plots.plain_numbers(ax)
        name_axes(ax, "mean absolute error, all rows", f"error, {RARE}")


class HistogramDisplay(ScoresDisplay):
    """The number of training rows of each label bin."""

    height = 2.7

    @property
    def rows(self) -> dict[str, int]:
        """Training rows of each region."""
        s = self.scores
        regions = s.bins.regions(s.many, s.few)
        return {region: int(s.bins.counts[regions == region].sum()) for region in sorted_regions(regions)}

    def _draw(self, ax: Axes) -> None:
        plots.label_histogram(ax=ax, **self.label_axis)


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
            style = {"xerr": bars["spread"], "label": f"{name} labels", **plots.bar_style(place)}
            ax.barh(where, bars["importance"], height, **style)
        ax.axvline(0, color=INK, linewidth=0.8)
        ax.set_yticks(np.arange(len(order)), [plain_text(name) for name in order])
        ax.invert_yaxis()
        change = self.changes.get(self.measure, f"mean absolute change of the {self.measure}")
        name_axes(ax, f"{change} if shuffled", "")


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
        ax.plot(along, table["prediction"], label="prediction", **plots.line_style(0))
        name_axes(ax, self.column, "prediction")


# -- charts of several methods -------------------------------------------------------------------


class RankingDisplay(Display):
    """Methods from best to worst, with error bars over seeds. `table` has the columns mean and half."""

    def __init__(self, table: pd.DataFrame, data: str, heading: str, figure: str) -> None:
        self.table, self.data, self.heading, self.figure = table, data, heading, figure
        self.height = 1.0 + 0.3 * len(table)

    @property
    def id(self) -> str:
        """The data set and the figure are part of the name."""
        return f"{slug(self.data)}-{self.figure}"

    def _draw(self, ax: Axes) -> None:
        table = self.table.sort_values("mean", ascending=False, kind="stable")
        where = np.arange(len(table))
        ax.errorbar(table["mean"], where, xerr=table["half"].fillna(0), fmt="o", color=COLORS[0], capsize=3)
        ax.set_yticks(where, [plain_text(str(name)) for name in table.index])
        ax.set(xlabel=self.heading.split(",")[0].lower(), ylim=(-0.6, len(table) - 0.4))
        plots.plain_numbers(ax)
        ax.grid(axis="y", color="0.5", alpha=0.25)


class MethodErrorDisplay(Display):
    """The mean absolute error of several methods along the label, mean over seeds."""

    def __init__(self, curves: Mapping[str, pd.DataFrame], data: str) -> None:
        self.curves, self.data = curves, data

    @property
    def id(self) -> str:
        """The data set is part of the name."""
        return f"{slug(self.data)}-along-label"

    def _draw(self, ax: Axes) -> None:
        plots.error_by_label(self.curves, ax)


def slug(text: str) -> str:
    """Return a text as part of an id."""
    return "".join(c if c.isalnum() else "-" for c in text) or "data"
