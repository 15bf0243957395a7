"""Scores of test predictions by label region, rounded as results lines keep them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal, Protocol

import numpy as np

from tailwise.distributions.members import Distribution
from tailwise.labels.bins import LabelBins
from tailwise.metrics.regions import REGIONS, by_bin, evaluate
from tailwise_bench.data.problems import Array

OF_THE_MEAN = ("mae", "mse", "rmse", "gm", "pearson", "spearman", "balanced_mae")
"""Metrics that calibration does not change; calibrated results do not repeat them."""
OF_THE_SPREAD = (
    *("nll", "balanced_nll", "gaussian_nll", "gaussian_nll_reference", "ause", "ause_reference"),
    *("crps", "coverage", "width", "ence"),
)


class ScoredPart(Protocol):
    """Labels of test rows and the bins of the training labels; a `Problem` has them."""

    @property
    def bins(self) -> LabelBins: ...
    @property
    def shots(self) -> tuple[int, int]: ...
    def labels(self, part: Literal["test"]) -> Array:
        """Return the labels that are scored. (N,)"""


def scores_by_region(prediction: Distribution, problem: ScoredPart, metrics: Sequence[str]) -> dict[str, Any]:
    """Return rounded metrics of test predictions by region; None where a region has too few rows."""
    names = [f"{region}/{metric}" for region in REGIONS for metric in metrics]
    many, few = problem.shots
    values = evaluate(prediction, problem.labels("test"), problem.bins, names, many=many, few=few)
    table: dict[str, Any] = {region: {} for region in REGIONS}
    for name, value in values.items():
        region, metric = name.split("/")
        table[region][metric] = float(f"{value:.6g}") if math.isfinite(value) else None
    return table


def errors_along_label(prediction: Distribution, problem: ScoredPart) -> dict[str, list[float]]:
    """Return center, number of test rows and mean absolute error of each label bin, rounded."""
    table = by_bin(prediction, problem.labels("test"), problem.bins, ("mae",))
    return {name: [float(f"{value:.5g}") for value in table[name]] for name in ("center", "n", "mae")}


def region_rows(problem: ScoredPart) -> dict[str, int]:
    """Return the number of test rows of each region."""
    many, few = problem.shots
    regions = problem.bins.regions(many, few)[problem.bins.index(problem.labels("test"))]
    return {region: int((regions == region).sum()) for region in REGIONS[1:]}


def score_limits(table: dict[str, Any], limits: tuple[Array, Array], problem: ScoredPart) -> None:
    """Replace coverage and width by region by those of a contender's own intervals."""
    lower, upper = limits
    many, few = problem.shots
    region = problem.bins.regions(many, few)[problem.bins.index(problem.labels("test"))]
    inside, wide = (lower <= problem.labels("test")) & (problem.labels("test") <= upper), upper - lower
    for name in REGIONS:
        rows = np.ones(len(region), bool) if name == "all" else region == name
        for metric, values in (("coverage", inside), ("width", wide)):
            table[name][metric] = float(f"{values[rows].mean():.6g}") if rows.any() else None
