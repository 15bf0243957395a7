"""Charts of a fitted model in scikit-learn's style: ``XDisplay.from_estimator(model, X, y)``.

Each display keeps what it drew: `ax_`, `figure_`, and the numbers behind the picture.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure
from numpy.typing import ArrayLike, NDArray

from tailwise.core.distributions import Distribution
from tailwise.core.labels import LabelBins
from tailwise.core.metrics import REGIONS, Sparsification, sparsification
from tailwise.report import plots
from tailwise.report.scoring import LEVELS, Scored, along_label, region_names, score_model, shares_held

if TYPE_CHECKING:
    from tailwise.estimator.regressor import TailRegressor


Curve = TypeVar("Curve")


@dataclass
class _Display(ABC):
    ax_: Axes | None = field(default=None, init=False, repr=False)

    @property
    def figure_(self) -> Figure | SubFigure:
        """The figure that the chart is on."""
        if self.ax_ is None:
            raise AttributeError("nothing is drawn yet: call plot() first")
        return self.ax_.figure

    @abstractmethod
    def _draw(self, ax: Axes | None) -> Axes: ...

    def plot(self, ax: Axes | None = None) -> Self:
        """Draw on the given Axes, or on new ones."""
        self.ax_ = self._draw(ax)
        return self


@dataclass
class ErrorByLabelDisplay(_Display):
    """Mean absolute error along the label, few-shot ranges shaded."""

    curves: Mapping[str, pd.DataFrame]
    bins: LabelBins | None = None
    label: str = "label"
    many: int = 100
    few: int = 20

    @classmethod
    def from_estimator(
        cls, estimator: TailRegressor, X: Any, y: Any, *, ax: Axes | None = None, label: str = "label"
    ) -> Self:
        """Draw for a fitted model and rows it has not seen."""
        s = score_model(estimator, X, y)
        return cls({s.title: s.along_label()}, s.bins, label, s.many, s.few).plot(ax)

    @classmethod
    def from_predictions(
        cls,
        y_true: ArrayLike,
        y_pred: ArrayLike,
        bins: LabelBins,
        *,
        name: str = "prediction",
        ax: Axes | None = None,
        label: str = "label",
    ) -> Self:
        """Draw labels and predictions from anywhere; `bins` are those of the training labels."""
        y = np.asarray(y_true, np.float64)
        error = np.abs(y - np.asarray(y_pred, np.float64))
        return cls({name: along_label(y, bins, {"mae": error})}, bins, label).plot(ax)

    def _draw(self, ax: Axes | None) -> Axes:
        options = {"bins": self.bins, "label": self.label, "many": self.many, "few": self.few}
        return plots.error_by_label(self.curves, ax, **options)  # type: ignore[arg-type]


@dataclass
class PredictionIntervalDisplay(_Display):
    """Predicted against true labels, with intervals and regions."""

    y: NDArray[np.float64]
    prediction: NDArray[np.float64]
    lower: NDArray[np.float64] | None = None
    upper: NDArray[np.float64] | None = None
    region: NDArray[np.str_] | None = None
    label: str = "label"

    @classmethod
    def from_estimator(
        cls,
        estimator: TailRegressor,
        X: Any,
        y: Any,
        *,
        coverage: float = 0.9,
        ax: Axes | None = None,
        label: str = "label",
    ) -> Self:
        """Draw for a fitted model and rows it has not seen."""
        s = score_model(estimator, X, y, coverage)
        return cls(s.y, s.mean, s.lower, s.upper, s.region, label).plot(ax)

    @classmethod
    def from_predictions(
        cls,
        y_true: ArrayLike,
        y_pred: ArrayLike,
        *,
        interval: ArrayLike | None = None,
        ax: Axes | None = None,
        label: str = "label",
    ) -> Self:
        """Draw labels and predictions from anywhere; `interval` is (N, 2)."""
        ends = None if interval is None else np.asarray(interval, np.float64)
        lower, upper = (None, None) if ends is None else (ends[:, 0], ends[:, 1])
        y, prediction = np.asarray(y_true, np.float64), np.asarray(y_pred, np.float64)
        return cls(y, prediction, lower, upper, None, label).plot(ax)

    def _draw(self, ax: Axes | None) -> Axes:
        return plots.predicted_vs_true(
            self.y, self.prediction, self.lower, self.upper, self.region, ax, label=self.label
        )


@dataclass
class CoverageDisplay(_Display):
    """Share of intervals that hold, by region."""

    tables: Mapping[str, pd.DataFrame]
    level: float = 0.9

    @classmethod
    def from_estimator(
        cls, estimator: TailRegressor, X: Any, y: Any, *, coverage: float = 0.9, ax: Axes | None = None
    ) -> Self:
        """Draw for a fitted model and rows it has not seen."""
        s = score_model(estimator, X, y, coverage)
        return cls({s.title: s.by_region()}, coverage).plot(ax)

    @classmethod
    def from_predictions(
        cls,
        y_true: ArrayLike,
        interval: ArrayLike,
        bins: LabelBins,
        *,
        coverage: float = 0.9,
        name: str = "prediction",
        ax: Axes | None = None,
    ) -> Self:
        """Draw labels and intervals from anywhere, (N, 2); `bins` are those of the training labels."""
        y, ends = np.asarray(y_true, np.float64), np.asarray(interval, np.float64)
        inside = pd.Series((y >= ends[:, 0]) & (y <= ends[:, 1]))
        held = inside.groupby(bins.regions()[bins.index(y)])
        table = pd.DataFrame({"n": held.size(), "coverage": held.mean()}).reindex(list(REGIONS[1:]))
        return cls({name: table.fillna({"n": 0})}, coverage).plot(ax)

    def _draw(self, ax: Axes | None) -> Axes:
        there = {str(r) for table in self.tables.values() for r in table.index[table["n"] > 0]}
        return plots.coverage_by_region(
            self.tables, ax, level=self.level, regions=region_names(sorted(there))
        )


@dataclass
class _CurvesDisplay(_Display, Generic[Curve]):
    """One curve for each model, of a fitted one or of predictions from anywhere."""

    curves: Mapping[str, Curve]

    @staticmethod
    @abstractmethod
    def _of_model(scored: Scored) -> Curve: ...

    @staticmethod
    @abstractmethod
    def _of_distribution(distribution: Distribution, y: NDArray[np.float64]) -> Curve: ...

    @classmethod
    def from_estimator(cls, estimator: TailRegressor, X: Any, y: Any, *, ax: Axes | None = None) -> Self:
        """Draw for a fitted model and rows it has not seen."""
        s = score_model(estimator, X, y)
        return cls({s.title: cls._of_model(s)}).plot(ax)

    @classmethod
    def from_predictions(
        cls,
        y_true: ArrayLike,
        distribution: Distribution,
        *,
        name: str = "prediction",
        ax: Axes | None = None,
    ) -> Self:
        """Draw for predictive distributions from anywhere."""
        return cls({name: cls._of_distribution(distribution, np.asarray(y_true, np.float64))}).plot(ax)


@dataclass
class ReliabilityDisplay(_CurvesDisplay[NDArray[np.float64]]):
    """How many intervals hold against how many should, by level."""

    levels: tuple[float, ...] = LEVELS

    @staticmethod
    def _of_model(scored: Scored) -> NDArray[np.float64]:
        return scored.reliability()

    @staticmethod
    def _of_distribution(distribution: Distribution, y: NDArray[np.float64]) -> NDArray[np.float64]:
        return shares_held(distribution, y)

    def _draw(self, ax: Axes | None) -> Axes:
        return plots.reliability_diagram(self.curves, self.levels, ax)


@dataclass
class SparsificationDisplay(_CurvesDisplay[Sparsification]):
    """Error that remains as the least certain rows are removed."""

    @staticmethod
    def _of_model(scored: Scored) -> Sparsification:
        return scored.sparsification()

    @staticmethod
    def _of_distribution(distribution: Distribution, y: NDArray[np.float64]) -> Sparsification:
        return sparsification(distribution, y)

    def _draw(self, ax: Axes | None) -> Axes:
        return plots.sparsification_curves(self.curves, ax)
