"""Natural random splits of raw tables: rows as users have them, and the rarest of the test labels."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from tailwise.labels.bins import LabelBins
from tailwise.labels.kernels import smoothed_density
from tailwise.tables.split import random_split
from tailwise_bench.data.problems import Source

if TYPE_CHECKING:
    import pandas as pd

Array = NDArray[np.float64]
TEST_SHARE = 0.2
RARE_SHARE = 0.15
MAX_ROWS = 20_000
"""Maximum number of training rows; more are drawn at random, and all test rows are kept."""


@dataclass(frozen=True, eq=False)
class NaturalSplit:
    """Training and test rows of a table, drawn at random with a seed; inputs are raw columns."""

    name: str
    seed: int
    x_train: pd.DataFrame
    y_train: Array
    x_test: pd.DataFrame
    y_test: Array
    total: int
    """Number of labelled rows of the whole table."""

    @cached_property
    def rare(self) -> NDArray[np.bool_]:
        """The share `RARE_SHARE` of test rows whose labels have the lowest smoothed training density. (N,)

        The density is that of VIR:density, interpolated between bin centers. Equal densities are ordered at
        random by the seed, so that every contender has the same rows.
        """
        bins = LabelBins.from_labels(self.y_train)
        density = np.interp(self.y_test, bins.centers, smoothed_density(bins) / np.diff(bins.edges))
        order = np.lexsort((np.random.default_rng(self.seed).random(len(density)), density))
        rare = np.zeros(len(density), bool)
        rare[order[: max(1, round(RARE_SHARE * len(density)))]] = True
        return rare

    @cached_property
    def digest(self) -> str:
        """Short hash of the labels and of the rarest test rows; runs on the same rows have the same one."""
        whole = hashlib.sha256()
        for array in (self.y_train, self.y_test, self.rare):
            whole.update(np.ascontiguousarray(array).tobytes())
        return whole.hexdigest()[:12]


def natural_split(source: Source, seed: int, *, max_rows: int = MAX_ROWS) -> NaturalSplit:
    """Split a table at random, without stratification, and limit its training rows."""
    inputs, labels = source.inputs_and_labels()
    split = random_split(len(labels), valid=0.0, test=TEST_SHARE, seed=seed)
    train = split.train
    if len(train) > max_rows:
        train = np.sort(np.random.default_rng(seed).choice(train, max_rows, replace=False))
    x_train, x_test = (inputs.iloc[rows].reset_index(drop=True) for rows in (train, split.test))
    return NaturalSplit(
        source.name, seed, x_train, labels[train], x_test, labels[split.test], total=len(labels)
    )
