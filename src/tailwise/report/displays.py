"""Plots of a fitted model in one call: ``RegionDisplay.from_estimator(model, X, y)``, as in scikit-learn.

A display keeps what it draws. `plot` draws it on the given Axes, or on new ones of pyplot, and leaves them in
``ax_`` and ``figure_``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar, Self

import pandas as pd

from tailwise.explanations import importance, partial_dependence
from tailwise.lookup import check_name
from tailwise.report import plots
from tailwise.report.dial import MIN_DIAL_ROWS, RARE, Dial, dial_of
from tailwise.report.scoring import LEVELS, Scored, score_model, sorted_regions

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, SubFigure

    from tailwise.estimator import TailRegressor


__all__ = [
    "DependenceDisplay",
    "DialDisplay",
    "ImportanceDisplay",
    "LabelErrorDisplay",
    "RegionDisplay",
    "ReliabilityDisplay",
    "SparsificationDisplay",
]


class Display(ABC):
    """Something that is drawn on Axes."""

    size: ClassVar[tuple[float, float]] = (7.0, 3.4)
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


class ScoredDisplay(Display):
    """A display of a model's predictions of test rows."""

    def __init__(self, scored: Scored) -> None:
        self.scored = scored

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
        scored = score_model(
            estimator, X, y, coverage, target=target, emphasis=emphasis, label_prior=label_prior
        )
        return cls(scored, **options).plot(ax)


class RegionDisplay(ScoredDisplay):
    """Bars for many-, medium- and few-shot labels.

    `metric` is ``"mae"``, ``"rmse"``, ``"nll"``, ``"bias"``, or of the intervals ``"coverage"``, with its 95%
    range, or ``"width"``.
    """

    metrics: ClassVar = ("mae", "rmse", "nll", "bias", "coverage", "width")

    def __init__(self, scored: Scored, metric: str = "mae") -> None:
        check_name("metric", metric, self.metrics)
        super().__init__(scored)
        self.metric = metric

    def _draw(self, ax: Axes) -> None:
        s = self.scored
        tables, regions = {s.title: s.by_region()}, sorted_regions(s.region)
        if self.metric == "coverage":
            plots.coverage_by_region(tables, ax, level=s.coverage, regions=regions)
        elif self.metric == "width":
            plots.width_by_region(tables, ax, level=s.coverage, regions=regions)
        else:
            plots.by_region_bars(tables, self.metric, ax, regions=regions)


class LabelErrorDisplay(ScoredDisplay):
    """The mean absolute error along the label; ranges of few-shot labels are shaded."""

    def _draw(self, ax: Axes) -> None:
        s = self.scored
        plots.error_by_label({s.title: s.along_label()}, ax, bins=s.bins, many=s.many, few=s.few)


class ReliabilityDisplay(ScoredDisplay):
    """How many intervals contain the label, against how many should, for all labels and by region."""

    size = (5.0, 4.2)

    def _draw(self, ax: Axes) -> None:
        regions = ["all", *sorted_regions(self.scored.region)]
        plots.reliability_diagram({name: self.scored.reliability(name) for name in regions}, LEVELS, ax)


class SparsificationDisplay(ScoredDisplay):
    """The error of the remaining rows as those with the largest predicted uncertainty are removed."""

    def _draw(self, ax: Axes) -> None:
        plots.sparsification_curves({self.scored.title: self.scored.sparsification()}, ax)


class DialDisplay(ScoredDisplay):
    """The error over all rows against that for rare labels, at every emphasis from 0 to 1 (VIR:dial)."""

    size = (5.0, 4.2)
    dial: Dial

    def __init__(self, scored: Scored) -> None:
        super().__init__(scored)
        found = dial_of(scored)
        if found is None:
            raise ValueError(
                f"a dial needs at least {MIN_DIAL_ROWS} test rows, and a model of a version that has one"
            )
        self.dial = found

    def _draw(self, ax: Axes) -> None:
        points = {f"in use: {self.dial.setting}": self.dial.point(self.scored)}
        plots.dial_curve(*self.dial.curve, points, ax, title=self.scored.title, ylabel=f"for {RARE}")


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
