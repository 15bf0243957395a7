"""The charts of the page about one model, each with what it shows in words and figures."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, cast

import numpy as np
import pandas as pd

from tailwise.methods import get_method
from tailwise.networks.weights import Weights
from tailwise.report import plots
from tailwise.report.baselines import Lineup
from tailwise.report.dial import RARE, Dial
from tailwise.report.formatting import level, number, percent
from tailwise.report.scoring import LEVELS, MIN_POINT_ROWS, Scored, sorted_regions
from tailwise.report.svg import Chart, make_chart, new_figure, page_style
from tailwise.report.verdict import untested_range

MIN_CURVE_ROWS = 10
"""A region with fewer test rows has no curve in the reliability diagram."""


@dataclass(frozen=True, eq=False)
class ModelCharts:
    """Charts of a model's predictions of test rows, beside those of its baselines."""

    lineup: Lineup
    target: str
    method: str
    dial: Dial | None = None

    def main(self) -> list[Chart]:
        """Return the charts that answer a user's questions, in the order of the page."""
        with page_style():
            charts = [
                self._error_by_label(),
                self._predicted_vs_true(),
                self._coverage(),
                self._width(),
                self._dial_curve(),
                self._sparsification(),
            ]
        return [chart for chart in charts if chart is not None]

    def details(self) -> list[Chart]:
        """Return the charts for those who want to know more."""
        with page_style():
            charts = [self._reliability(), self._variance_parts(), self._calibration()]
        return [chart for chart in charts if chart is not None]

    def histogram(self) -> Chart:
        """Return the number of training rows of each label bin."""
        s = self.scored
        counts, regions = s.bins.counts, s.bins.regions(s.many, s.few)
        rows = {r: int(counts[regions == r].sum()) for r in sorted_regions(regions)}
        words = ", ".join(f"{n:,} rows in {r}-shot bins" for r, n in rows.items())
        alt = f"Histogram of {self.target} in the training rows, {len(s.bins)} bins on a log scale: {words}."
        with page_style():
            ax = plots.label_histogram(s.bins, new_figure(2.7), label=self.target, many=s.many, few=s.few)
            return make_chart("label-histogram", ax, "How common each label is", f"{words}.", alt)

    def weights(self, weights: Weights | None) -> Chart | None:
        """Return the weights of the label bins, if the method uses any."""
        if weights is None:
            return None
        values = weights.per_bin
        text = (
            f"Rows with rarer labels weigh more. Weights go from {number(float(values.min()))} to "
            f"{number(float(values.max()))}; the average training row has weight 1."
        )
        with page_style():
            ax = plots.bin_weights(self.scored.bins, values, new_figure(2.3), label=self.target)
            return make_chart(
                "bin-weights", ax, "Weights", text, f"Weight of a row along {self.target}. {text}"
            )

    # -- what several charts share -----------------------------------------------------------

    @property
    def scored(self) -> Scored:
        """The model itself."""
        return self.lineup.ours

    @cached_property
    def _models(self) -> dict[str, Scored]:
        """The model, the plain network or other model, and the booster."""
        models = (self.scored, self.lineup.other, self.lineup.booster)
        return {model.title: model for model in models if model is not None}

    @cached_property
    def _names(self) -> str:
        return " and ".join(self._models)

    @cached_property
    def _tables(self) -> dict[str, pd.DataFrame]:
        constant = self.lineup.constant
        models = [*self._models.values(), *([] if constant is None else [constant])]
        return {model.title: model.by_region() for model in models}

    @cached_property
    def _curves(self) -> dict[str, pd.DataFrame]:
        return {name: model.along_label() for name, model in self._models.items()}

    @cached_property
    def _regions(self) -> list[str]:
        return sorted_regions(self.scored.region)

    @cached_property
    def _level(self) -> str:
        return level(self.scored.coverage)

    @cached_property
    def _label_axis(self) -> dict[str, Any]:
        s = self.scored
        return {"bins": s.bins, "label": self.target, "many": s.many, "few": s.few}

    def _figures_by_region(self, column: str, shown: Callable[[float], str]) -> str:
        """``VIR: many 9.81, few 21.1; Vanilla: ...``, the figures of a bar chart in words."""

        def cells(table: pd.DataFrame) -> str:
            return ", ".join(
                f"{r} {shown(float(cast('float', table.loc[r, column])))}" for r in self._regions
            )

        return "; ".join(f"{name}: {cells(table)}" for name, table in self._tables.items()) + "."

    # -- the charts --------------------------------------------------------------------------

    def _error_by_label(self) -> Chart:
        curve = self._curves[self.scored.title]
        worst = curve.iloc[int(curve["mae"].to_numpy().argmax())]
        enough = bool((curve["n"] >= MIN_POINT_ROWS).all())
        rows = f"at least {MIN_POINT_ROWS} test rows" if enough else "the few test rows"
        words = (
            f"The error of {self.scored.title} is largest near {self.scored.label(worst['center'])}: "
            f"{number(worst['mae'])}. {untested_range(self.scored)}"
        ).strip()
        return make_chart(
            "error-by-label",
            plots.error_by_label(self._curves, new_figure(), **self._label_axis),
            "Error along the label",
            f"Each point is the mean absolute error of {rows} with labels near it. {words}",
            f"Lines of mean absolute error against {self.target} for {self._names}; few-shot ranges are "
            f"shaded. {words}",
        )

    def _dial_curve(self) -> Chart | None:
        dial = self.dial
        if dial is None:
            return None
        points = {f"in use: {dial.setting}": dial.point(self.scored)}
        points |= {s.title: dial.point(s) for s in self.lineup.rivals}
        shown = "; ".join(f"{name}: {number(x)} and {number(y)}" for name, (x, y) in points.items())
        curve = dial.curve
        ends = "; ".join(
            f"emphasis {name}: {number(float(curve[0][k]))} and {number(float(curve[1][k]))}"
            for name, k in (("0", 0), ("1", -1))
        )
        words = f"{dial.text} Further to the left and further down is better."
        return make_chart(
            "dial",
            plots.dial_curve(
                *curve, points, new_figure(3.4), title=self.scored.title, ylabel=f"error, {RARE}"
            ),
            "The dial between common and rare labels",
            f"The line shows the mean absolute error at every emphasis from 0 to 1. {words}",
            f"Error over all test rows against the error for {RARE}, along the dial: {ends}; "
            f"{shown}. {words}",
        )

    def _predicted_vs_true(self) -> Chart:
        s = self.scored
        bias = {r: float((s.mean - s.y)[s.mask(r)].mean()) for r in self._regions}
        words = ", ".join(f"{r}-shot {number(b)}" for r, b in bias.items())
        words = f"Mean error, predicted minus true: {words}."
        ax = plots.predicted_vs_true(
            s.y, s.mean, s.lower, s.upper, s.region, new_figure(4.0), label=self.target
        )
        shown = ""
        if s.y.size > plots.MAX_POINTS:
            shown = f"{plots.MAX_POINTS} of {s.y.size:,} rows are shown, rare labels first. "
        return make_chart(
            "predicted-vs-true",
            ax,
            "Predicted against true",
            f"Each point is a test row and its bar is the {self._level} interval. {shown}Points below the "
            f"dashed line are predicted too low. {words}",
            f"Scatter of predicted against true {self.target} with {self._level} intervals by region. "
            f"{words}",
        )

    def _coverage(self) -> Chart:
        return make_chart(
            "coverage-by-region",
            plots.coverage_by_region(
                self._tables, new_figure(), level=self.scored.coverage, regions=self._regions
            ),
            "Do the intervals contain the label?",
            f"The share of {self._level} intervals that contain the true label, by how common the label is. "
            "Thin bars are 95% ranges of the share.",
            f"Bars of coverage by region. {self._figures_by_region('coverage', percent)}",
        )

    def _width(self) -> Chart:
        return make_chart(
            "width-by-region",
            plots.width_by_region(
                self._tables, new_figure(), level=self.scored.coverage, regions=self._regions
            ),
            "How wide are the intervals?",
            f"The mean width of {self._level} intervals. Of two models that cover as promised, the one with "
            "narrower intervals is better.",
            f"Bars of mean interval width by region. {self._figures_by_region('width', number)}",
        )

    def _sparsification(self) -> Chart:
        models = (self.scored, self.lineup.other)  # a spread that is the same for all rows removes nothing
        curves = {model.title: model.sparsification() for model in models if model is not None}
        curve = curves[self.scored.title]
        share = min(0.5, float(curve.removed[-1]))  # the curve of a small table ends before the half
        left = float(np.interp(share, curve.removed, curve.error))
        part = "half" if share == 0.5 else percent(share)
        words = (
            f"Without the least certain {part} of the rows, the error of {self.scored.title} goes from "
            f"{number(float(curve.error[0]))} to {number(left)}."
        )
        return make_chart(
            "sparsification",
            plots.sparsification_curves(curves, new_figure()),
            "Does it know when it is wrong?",
            f"{words} The closer a line is to its dotted line, the better the uncertainty ranks the errors. "
            "A flat line means that the uncertainty says nothing about the error.",
            f"Sparsification curves for {' and '.join(curves)}. {words}",
        )

    def _reliability(self) -> Chart:
        s = self.scored
        rarer = [r for r in self._regions if r != "many" and s.mask(r).sum() >= MIN_CURVE_ROWS]
        curves = {
            **{f"{name}, all": model.reliability() for name, model in self._models.items()},
            **{f"{s.title}, {r}-shot": s.reliability(r) for r in rarer},
        }
        return make_chart(
            "reliability",
            plots.reliability_diagram(curves, LEVELS, new_figure(3.8)),
            "Reliability",
            "The share of intervals that contain the label against the promised share, at every level. Below "
            "the diagonal intervals are too narrow, above it wider than necessary.",
            f"Reliability diagram for {self._names}: {percent(s.inside.mean())} of the {self._level} "
            f"intervals of {s.title} contain the label.",
        )

    def _variance_parts(self) -> Chart | None:
        """Return the two parts of the variance along the label, for a method that predicts both."""
        if get_method(self.method).uncertainty != "aleatoric and epistemic":
            return None
        curve = self._curves[self.scored.title]
        share = float((curve["epistemic_std"] ** 2).mean() / (curve["std"] ** 2).mean())
        shown = "less than 1%" if share < 0.01 else percent(share)
        words = f"Averaged along the label, {shown} of the predicted variance is epistemic."
        return make_chart(
            "variance-parts",
            plots.variance_parts(curve, new_figure(), **self._label_axis),
            "Noise or lack of data?",
            f"The epistemic part shrinks with more rows, the aleatoric part does not. {words}",
            f"Lines of aleatoric and epistemic standard deviation and of the error along {self.target}. "
            f"{words}",
        )

    def _calibration(self) -> Chart:
        s, at = self.scored, LEVELS.index(0.9)
        curves = {"network alone": s.distribution_reliability(calibrated=False)}
        if s.uncalibrated is not s.distribution:
            curves["scaled on held-out rows"] = s.distribution_reliability(calibrated=True)
        curves["final intervals"] = s.reliability()
        shares = ", ".join(f"{name} {percent(shares[at])}" for name, shares in curves.items())
        words = (
            f"Share of 90% intervals that contain the label: {shares}. The final intervals must hold for "
            "rare labels too, so over all rows they may contain more than 90%."
        )
        return make_chart(
            "calibration",
            plots.reliability_diagram(curves, LEVELS, new_figure(3.8)),
            "Calibration, before and after",
            words,
            f"Reliability diagram of {s.title} before and after calibration. {words}",
        )
