"""The charts of a page about one model: each with what it shows in words, figures included."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, cast

import numpy as np
import pandas as pd

from tailwise.core.kernels import label_weights
from tailwise.methods import get_method
from tailwise.networks.parts import Method
from tailwise.report import plots
from tailwise.report.formatting import level, number
from tailwise.report.html import Chart, chart
from tailwise.report.scoring import LEVELS, MIN_POINT_ROWS, Scored, region_names
from tailwise.report.svg import new_figure, page_style
from tailwise.report.verdict import untested

MIN_CURVE_ROWS = 10
"""With fewer test rows than this a region has no curve of its own in a reliability diagram."""


@dataclass(frozen=True, eq=False)
class ModelCharts:
    """What a model's predictions of test rows show, perhaps beside those of another one."""

    scored: Scored
    baseline: Scored | None
    target: str
    method: str

    def all(self) -> list[Chart]:
        """Every chart that the method has figures for, in the order of the page."""
        with page_style():
            made = [
                self._error_by_label(),
                self._predicted_vs_true(),
                self._coverage(),
                self._width(),
                self._sparsification(),
                self._reliability(),
                self._variance_parts(),
                self._calibration(),
            ]
        return [one for one in made if one is not None]

    def histogram(self) -> Chart:
        """How many training rows each label bin has."""
        s = self.scored
        counts, regions = s.bins.counts, s.bins.regions(s.many, s.few)
        shares = {r: int(counts[regions == r].sum()) for r in region_names(list(regions))}
        words = ", ".join(f"{n:,} rows in {r}-shot bins" for r, n in shares.items())
        alt = f"Histogram of {self.target} in the training rows, {len(s.bins)} bins on a log scale: {words}."
        with page_style():
            ax = plots.label_histogram(s.bins, new_figure(2.7), label=self.target, many=s.many, few=s.few)
            return chart("label-histogram", ax, "How common each label is", f"{words}.", alt)

    def weights(self, parts: Method) -> Chart | None:
        """The weights of label bins, if the method uses any."""
        if parts.reweight == "none":
            return None
        bins, w = self.scored.bins, parts.weights
        values = label_weights(
            bins,
            kernel=w.kernel,
            bandwidth=w.bandwidth,
            radius=w.radius,
            power=w.power,
            form=w.form,
            clip=w.clip,
        )
        acts = {
            "likelihood": "each row's loss",
            "pseudo-count": "the pseudo-counts of the head",
            "both": "each row's loss and the pseudo-counts of the head",
        }[parts.reweight]
        smooth = "no smoothing" if w.kernel is None else f"a {w.kernel} kernel over {2 * w.radius + 1} bins"
        text = (
            f"Weights of p^(-{w.power:g}) of the label density ({smooth}), acting on {acts}. They run from "
            f"{number(float(values.min()))} to {number(float(values.max()))}; the average training row has 1."
        )
        with page_style():
            ax = plots.bin_weights(bins, values, new_figure(2.3), label=self.target)
            return chart("bin-weights", ax, "Weights", text, f"Weight of a row along {self.target}. {text}")

    # -- what several charts share -----------------------------------------------------------

    @cached_property
    def _both(self) -> dict[str, Scored]:
        both = [self.scored] if self.baseline is None else [self.scored, self.baseline]
        return {one.title: one for one in both}

    @cached_property
    def _names(self) -> str:
        return " and ".join(self._both)

    @cached_property
    def _tables(self) -> dict[str, pd.DataFrame]:
        return {name: one.by_region() for name, one in self._both.items()}

    @cached_property
    def _regions(self) -> list[str]:
        return region_names(list(self.scored.region))

    @cached_property
    def _level(self) -> str:
        return level(self.scored.coverage)

    @cached_property
    def _along(self) -> dict[str, Any]:
        s = self.scored
        return {"bins": s.bins, "label": self.target, "many": s.many, "few": s.few}

    def _by_region(self, column: str, shown: Callable[[float], str]) -> str:
        """``VIR: many 9.81, few 21.1; Vanilla: ...`` in words for a chart of bars."""

        def cells(table: pd.DataFrame) -> str:
            return ", ".join(
                f"{r} {shown(float(cast('float', table.loc[r, column])))}" for r in self._regions
            )

        return "; ".join(f"{name}: {cells(table)}" for name, table in self._tables.items()) + "."

    # -- the charts --------------------------------------------------------------------------

    def _error_by_label(self) -> Chart:
        curves = {name: one.along_label() for name, one in self._both.items()}
        mine = curves[self.scored.title]
        worst = mine.iloc[int(mine["mae"].to_numpy().argmax())]
        enough = bool((mine["n"] >= MIN_POINT_ROWS).all())
        rows = f"at least {MIN_POINT_ROWS} test rows" if enough else "the few test rows"
        words = f"{self.scored.title} is worst near {number(worst['center'])}, with {number(worst['mae'])}."
        words = f"{words} {untested(self.scored)}".strip()
        return chart(
            "error-by-label",
            plots.error_by_label(curves, new_figure(), **self._along),
            "Error along the label",
            f"Each point is the mean absolute error of {rows} with labels near it. {words}",
            f"Lines of mean absolute error against {self.target} for {self._names}; few-shot ranges are "
            f"shaded. {words}",
        )

    def _predicted_vs_true(self) -> Chart:
        s, figure = self.scored, new_figure(4.0)
        bias = {r: float((s.mean - s.y)[s.rows(r)].mean()) for r in self._regions}
        words = "Mean signed error: " + ", ".join(f"{r}-shot {number(b)}" for r, b in bias.items()) + "."
        return chart(
            "predicted-vs-true",
            plots.predicted_vs_true(s.y, s.mean, s.lower, s.upper, s.region, figure, label=self.target),
            "Predicted against true",
            f"Each point is a test row, its bar the {self._level} interval; rows of rare labels are all "
            "shown if there is room, common ones are a sample. Points below the dashed line are predicted "
            f"too low. {words}",
            f"Scatter of predicted against true {self.target} with {self._level} intervals by region. "
            f"{words}",
        )

    def _coverage(self) -> Chart:
        promised, regions = self.scored.coverage, self._regions
        return chart(
            "coverage-by-region",
            plots.coverage_by_region(self._tables, new_figure(), level=promised, regions=regions),
            "Do the intervals hold?",
            f"The share of {self._level} intervals that hold the true label, by how common the label is; "
            "thin bars are what chance in the test rows leaves open.",
            f"Bars of coverage by region. {self._by_region('coverage', '{:.0%}'.format)}",
        )

    def _width(self) -> Chart:
        promised, regions = self.scored.coverage, self._regions
        return chart(
            "width-by-region",
            plots.width_by_region(self._tables, new_figure(), level=promised, regions=regions),
            "How wide are they?",
            f"The mean width of {self._level} intervals. Wide intervals that hold are honest; narrow ones "
            "that hold are better.",
            f"Bars of mean interval width by region. {self._by_region('width', number)}",
        )

    def _sparsification(self) -> Chart:
        thinned = {name: one.sparsification() for name, one in self._both.items()}
        mine = thinned[self.scored.title]
        half = float(np.interp(0.5, mine.removed, mine.error))
        kept = (
            f"Without the least certain half of the rows, the error of {self.scored.title} goes from "
            f"{number(float(mine.error[0]))} to {number(half)}."
        )
        return chart(
            "sparsification",
            plots.sparsification_curves(thinned, new_figure()),
            "Does it know when it is wrong?",
            f"{kept} The closer a line is to its dotted one, the better its uncertainty ranks its errors; a "
            "flat line knows nothing.",
            f"Sparsification curves for {self._names}. {kept}",
        )

    def _reliability(self) -> Chart:
        s = self.scored
        rarer = [r for r in self._regions if r != "many" and s.rows(r).sum() >= MIN_CURVE_ROWS]
        curves = {
            **{f"{name}, all": one.reliability() for name, one in self._both.items()},
            **{f"{s.title}, {r}-shot": s.reliability(r) for r in rarer},
        }
        return chart(
            "reliability",
            plots.reliability_diagram(curves, LEVELS, new_figure(3.8)),
            "Reliability",
            "How many intervals hold against how many should, at every level. Below the diagonal is "
            "overconfident, above it is wider than need be.",
            f"Reliability diagram for {self._names}: at {self._level}, {s.inside.mean():.0%} of the "
            f"intervals of {s.title} hold.",
        )

    def _variance_parts(self) -> Chart | None:
        """The two parts of the variance along the label, for a method that tells them apart."""
        if get_method(self.method).uncertainty != "aleatoric and epistemic":
            return None
        parts = self.scored.along_label()
        share = float((parts["epistemic_std"] ** 2).mean() / (parts["std"] ** 2).mean())
        shown = "less than 1%" if share < 0.01 else f"{share:.0%}"
        words = f"Averaged along the label, {shown} of the predicted variance is epistemic."
        return chart(
            "variance-parts",
            plots.variance_parts(parts, new_figure(), **self._along),
            "Noise or lack of data?",
            f"The epistemic part shrinks with more rows, the aleatoric part does not. {words}",
            f"Lines of aleatoric and epistemic standard deviation and of the error along {self.target}. "
            f"{words}",
        )

    def _calibration(self) -> Chart:
        s, at = self.scored, LEVELS.index(0.9)
        before, after = s.own_reliability(calibrated=False), s.own_reliability(calibrated=True)
        force = s.reliability()
        words = (
            f"At 90%, {before[at]:.0%} of the network's own intervals hold, {after[at]:.0%} after scaling, "
            f"and {force[at]:.0%} of the intervals in force. Scaling and intervals weigh rare labels as much "
            "as common ones, so that over all rows more or fewer than 90% may hold."
        )
        curves = {
            "as the network gave it": before,
            "scaled on held-out rows": after,
            "intervals in force": force,
        }
        return chart(
            "calibration",
            plots.reliability_diagram(curves, LEVELS, new_figure(3.8)),
            "Calibration, before and after",
            words,
            f"Reliability diagram of {s.title} before scaling, after it, and of its intervals. {words}",
        )
