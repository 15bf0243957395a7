"""Three protocols with holes: labels that neither training nor validation has, but the balanced test part.

They are those of an independent re-evaluation on AgeDB (Puetz et al., Deconstructing deep imbalanced
regression, Artificial Intelligence Review 2026). Readings: a hole is taken from the validation part as well,
so that nothing is tuned on it; the test part is that of the data set. On other data a hole has the ends that
are the same quantiles of the labels as those ages are of the training ages of AgeDB-DIR.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from tailwise.labels.bins import LabelBins
from tailwise.lookup import check_name
from tailwise_bench.problem import HOLE, MAX_ROWS, Array, DataSet, Problem
from tailwise_bench.sources.faces import Faces


@dataclass(frozen=True)
class Hole:
    """A range of labels, first and last included, by age and by quantile; `outside` means all but these."""

    ages: tuple[float, float]
    levels: tuple[float, float]
    outside: bool = False

    def mask(self, labels: Array, ends: tuple[float, float]) -> NDArray[np.bool_]:
        """Return which labels are in the hole with these ends. (N,)"""
        inside = (labels >= ends[0]) & (labels <= ends[1])
        return ~inside if self.outside else inside

    def ends(self, labels: Array) -> tuple[float, float]:
        """Return the ends on other labels than ages, by their quantiles; each end is a label.

        A hole `outside` has at least the least and the largest label, however many rows these have.
        """
        low, high = np.quantile(labels, self.levels, method="higher")
        inner = labels[(labels > labels.min()) & (labels < labels.max())]
        if self.outside and inner.size:
            low, high = max(low, inner.min()), min(high, inner.max())
        return float(low), float(high)


HOLES = {
    "extrapolation": Hole((16, 85), (0.006, 0.994), outside=True),
    "bimodal": Hole((36, 64), (0.325, 0.865)),
    "blind-spot": Hole((47, 53), (0.575, 0.707)),
}
"""Holes by the names that a suite's file uses."""


@dataclass(frozen=True)
class Holed:
    """A data set whose training and validation parts lack the labels of a hole.

    Label bins are those of all training labels, so that those of a hole are empty. Columns of tables are
    encoded by the inputs of all training rows.
    """

    source: DataSet
    hole: str

    def __post_init__(self) -> None:
        check_name("hole", self.hole, HOLES)

    @property
    def name(self) -> str:
        """Name in results and of files."""
        return f"{self.source.name}-{self.hole}"

    def problem(self, seed: int, max_rows: int = MAX_ROWS) -> Problem:
        """Take the hole from a problem of the data set."""
        whole, hole = self.source.problem(seed, max_rows), HOLES[self.hole]
        ends = hole.ages if isinstance(self.source, Faces) else hole.ends(whole.y_train)
        train, valid = (~hole.mask(y, ends) for y in (whole.y_train, whole.y_valid))
        edges = LabelBins.from_labels(whole.y_train, edges=whole.edges).edges
        return replace(
            whole,
            name=self.name,
            edges=np.asarray(edges),
            x_train=whole.x_train[train],
            y_train=whole.y_train[train],
            x_valid=whole.x_valid[valid],
            y_valid=whole.y_valid[valid],
            extra={**whole.extra, HOLE: hole.mask(whole.y_test, ends)},
        )
