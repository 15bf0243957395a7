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
from typing import TYPE_CHECKING, Any, ClassVar, Self
from xml.etree import ElementTree

import numpy as np
import pandas as pd
from matplotlib import rc_context
from matplotlib.figure import Figure

from tailwise.explanations import importance, partial_dependence
from tailwise.lookup import check_name
from tailwise.report import plots
from tailwise.report.baselines import BOOSTER, CONSTANT, OTHER, Lineup
from tailwise.report.formatting import level
from tailwise.report.plots import INK, PAPER
from tailwise.report.scores import (
    FIGURES,
    LEVELS,
    MIN_DIAL_ROWS,
    MIN_POINT_ROWS,
    Dial,
    Scores,
    score_model,
    sorted_regions,
)
from tailwise.report.verdict import untested
from tailwise.report.wording import RARE, say

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import SubFigure

    from tailwise.estimator import TailRegressor
    from tailwise.networks.weights import Weights

__all__ = [
    "CalibrationDisplay",
    "DependenceDisplay",
    "DialDisplay",
    "HistogramDisplay",
    "ImportanceDisplay",
    "LabelErrorDisplay",
    "PredictionDisplay",
    "RegionDisplay",
    "ReliabilityDisplay",
    "SparsificationDisplay",
    "VarianceDisplay",
    "WeightsDisplay",
]

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
    "path.simplify": True,
    **dict.fromkeys(("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color"), INK),
}
_SVG = "http://www.w3.org/2000/svg"
_LINK = "{http://www.w3.org/1999/xlink}href"


class Display(ABC):
    """Something that is drawn on Axes."""

    size: ClassVar[tuple[float, float]] = (7.0, 3.4)
    height: ClassVar[float] = 2.9
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
        """The name of the display on a page, and of its words in the template."""
        return type(self).__name__.removesuffix("Display").lower()

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
        with rc_context({**_STYLE, "svg.hashsalt": self.name}):
            ax = Figure(figsize=(_WIDTH, self.height), layout="constrained").subplots()
            self._draw(ax)
            return svg_element(ax, self.name, self.alt)


def svg_element(ax: Axes, name: str, alt: str) -> str:
    """Return the figure of Axes as an SVG element of a page; `name` must be unique there."""
    figure = ax.figure
    assert isinstance(figure, Figure)
    if ax.get_legend() is not None:
        _move_legend_above(ax, room=0.85 * figure.bbox.width)
    buffer = io.BytesIO()
    figure.savefig(
        buffer, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None}
    )
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
    for columns in range(len(labels), 0, -1):
        legend = ax.legend(
            handles, labels, frameon=False, loc="lower left", bbox_to_anchor=(0, 1), ncols=columns,
            borderaxespad=0.2,
        )  # fmt: skip
        if legend.get_window_extent().width <= room:
            return


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
        scores = score_model(
            estimator, X, y, coverage, target=target, emphasis=emphasis, label_prior=label_prior
        )
        return cls(scores, **options).plot(ax)

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
        return {
            title: {region: text(table[self.metric][region]) for region in self.regions}
            for title, table in self.tables.items()
        }

    def _draw(self, ax: Axes) -> None:
        options: dict[str, Any] = {"regions": self.regions}
        if self.metric == "coverage":
            plots.coverage_by_region(self.tables, ax, level=self.scores.coverage, **options)
        elif self.metric == "width":
            plots.width_by_region(self.tables, ax, level=self.scores.coverage, **options)
        else:
            plots.by_region_bars(self.tables, self.metric, ax, **options)


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
    """Predicted against true labels, with intervals."""

    height = 4.0
    most: ClassVar = plots.MAX_POINTS

    @property
    def bias(self) -> dict[str, float]:
        """The mean error of each region, predicted minus true."""
        s = self.scores
        return {region: float((s.mean - s.y)[s.mask(region)].mean()) for region in self.regions}

    def _draw(self, ax: Axes) -> None:
        s = self.scores
        plots.predicted_vs_true(s.y, s.mean, s.lower, s.upper, s.region, ax, label=self.label)


class ReliabilityDisplay(ScoresDisplay):
    """How many intervals contain the label, against how many should, for all labels and for rarer ones."""

    size, height = (5.0, 4.2), 3.8

    def _draw(self, ax: Axes) -> None:
        s = self.scores
        rarer = [r for r in self.regions if r != "many" and s.mask(r).sum() >= MIN_CURVE_ROWS]
        curves = {f"{title}, all": scores.reliability() for title, scores in self.models.items()}
        curves |= {f"{s.title}, {region}-shot": s.reliability(region) for region in rarer}
        plots.reliability_diagram(curves, LEVELS, ax)


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
        curves = {title: scores.sparsification() for title, scores in self.models.items()}
        plots.sparsification_curves(curves, ax)


class DialDisplay(ScoresDisplay):
    """The error over all rows against that for rare labels, at every emphasis from 0 to 1 (VIR:dial)."""

    size, height = (5.0, 4.2), 3.4

    def __init__(self, scores: Scores | Lineup, label: str = "label") -> None:
        super().__init__(scores, label)
        if self.scores.dial is None:
            raise ValueError(
                f"a dial needs at least {MIN_DIAL_ROWS} test rows, and a model of a version that has one"
            )
        self.dial: Dial = self.scores.dial

    @property
    def points(self) -> dict[str, tuple[float, float]]:
        """Error over all and over rare rows of the setting in use and of each baseline."""
        rivals = {s.title: self.dial.point(s) for s in self.lineup.rivals}
        return {f"in use: {self.dial.setting}": self.dial.point(self.scores), **rivals}

    def _draw(self, ax: Axes) -> None:
        plots.dial_curve(*self.dial.curve, self.points, ax, title=self.scores.title, ylabel=f"error, {RARE}")


class VarianceDisplay(ScoresDisplay):
    """The two parts of the predicted standard deviation along the label, for a method that predicts both."""

    @property
    def epistemic(self) -> float:
        """The epistemic share of the variance."""
        curve = self.curve
        return float((curve["epistemic_std"] ** 2).mean() / (curve["std"] ** 2).mean())

    def _draw(self, ax: Axes) -> None:
        plots.variance_parts(self.curve, ax, **self.label_axis)


class CalibrationDisplay(ScoresDisplay):
    """How many intervals contain the label before and after each step of calibration."""

    height = 3.8

    @property
    def curves(self) -> dict[str, Any]:
        """The share of intervals that contain the label at each level, by step."""
        s = self.scores
        curves = {"network alone": s.distribution_reliability(calibrated=False)}
        if s.uncalibrated is not s.distribution:
            curves["scaled on held-out rows"] = s.distribution_reliability(calibrated=True)
        return {**curves, "final intervals": s.reliability()}

    @property
    def shares(self) -> dict[str, float]:
        """The share of 90% intervals that contain the label, by step."""
        return {name: float(shares[LEVELS.index(0.9)]) for name, shares in self.curves.items()}

    def _draw(self, ax: Axes) -> None:
        plots.reliability_diagram(self.curves, LEVELS, ax)


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
        s = self.scores
        plots.label_histogram(s.bins, ax, label=self.label, many=s.many, few=s.few)


class WeightsDisplay(ScoresDisplay):
    """The weights of the label bins, for a method that uses any."""

    height = 2.3

    def __init__(self, scores: Scores | Lineup, weights: Weights, label: str = "label") -> None:
        super().__init__(scores, label)
        self.values = weights.per_bin

    def _draw(self, ax: Axes) -> None:
        plots.bin_weights(self.scores.bins, self.values, ax, label=self.label)


# -- charts of columns ---------------------------------------------------------------------------


class ImportanceDisplay(Display):
    """How much each column matters for one measure, over all labels and for rare ones.

    `table` is what `tailwise.explanations.importance` returns.
    """

    def __init__(self, table: pd.DataFrame, measure: str = "error", most: int = 10) -> None:
        check_name("measure", measure, list(table["measure"].unique()))
        self.table, self.measure, self.most = table, measure, most
        self.size = (6.0, 1.4 + 0.34 * min(most, table["column"].nunique()))  # type: ignore[misc]

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
        plots.importance_bars(self.table[self.table["measure"] == self.measure], ax, most=self.most)


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
        plots.dependence_curve(self.table, ax, column=self.column)


# -- charts of several methods -------------------------------------------------------------------


class RankingDisplay(Display):
    """Methods from best to worst, with error bars over seeds. `table` has the columns mean and half."""

    def __init__(self, table: pd.DataFrame, data: str, heading: str, figure: str) -> None:
        self.table, self.data, self.heading, self.figure = table, data, heading, figure

    @property
    def name(self) -> str:
        """The data set and the figure are part of the name."""
        return f"{slug(self.data)}-{self.figure}"

    @property
    def title(self) -> str:
        """The heading on a page."""
        return self.heading

    @property
    def text(self) -> str:
        """Which method is first."""
        return say("displays", "ranking_text", self)

    @property
    def alt(self) -> str:
        """Which method is first, with the name of the chart."""
        return say("displays", "ranking_alt", self)

    @property
    def height(self) -> float:  # type: ignore[override]
        """A line for each method."""
        return 1.0 + 0.3 * len(self.table)

    def _draw(self, ax: Axes) -> None:
        plots.method_ranking(self.table, ax, metric=self.heading.split(",")[0].lower())


class MethodErrorDisplay(Display):
    """The mean absolute error of several methods along the label, mean over seeds."""

    def __init__(self, curves: Mapping[str, pd.DataFrame], data: str) -> None:
        self.curves, self.data = curves, data

    @property
    def name(self) -> str:
        """The data set is part of the name."""
        return f"{slug(self.data)}-along-label"

    @property
    def title(self) -> str:
        """The heading on a page."""
        return "Mean absolute error along the label"

    @property
    def text(self) -> str:
        """What the points are."""
        return "Mean over seeds of the test rows in each label bin."

    @property
    def alt(self) -> str:
        """What the points are, with the name of the chart."""
        return f"Mean absolute error of each method along the label on {self.data}. {self.text}"

    def _draw(self, ax: Axes) -> None:
        plots.error_by_label(self.curves, ax)


def slug(text: str) -> str:
    """Return a text as part of an id."""
    return "".join(c if c.isalnum() else "-" for c in text) or "data"
