"""Problems: the arrays that every contender gets, and the data sets that they come from."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from tailwise.distributions.members import Distribution
from tailwise.labels.bins import LabelBins

Array = NDArray[Any]
Part = Literal["valid", "test"]
MAX_ROWS = 4000
"""Maximum number of training rows for every method; they are drawn at random, which keeps the imbalance."""
PER_BIN = 20
"""Maximum number of validation and of test rows per label bin."""
PARTS = ("x_train", "y_train", "x_valid", "y_valid", "x_test", "y_test")
HOLE = "test_hole"
"""Name in `Problem.extra` of a mask: the test rows whose labels lie where training has none. (N,)"""
LABELS_AT_ONCE = 2**24
MAPPED_ROWS = 256
"""Rows of an array in a mapped file that count for `Problem.digest`."""


@dataclass(frozen=True, eq=False)
class Problem:
    """One data set split with one seed: inputs ready for a network, labels in their own units."""

    name: str
    seed: int
    x_train: Array  # (N, ...): float32 features of a table, or whatever the recipe's network reads
    y_train: Array  # (N,) float64
    x_valid: Array
    y_valid: Array
    x_test: Array
    y_test: Array
    total: int
    """Number of rows of the whole table."""
    edges: Array | None = None
    """Edges of the label bins; None if they follow from the training labels."""
    shots: tuple[int, int] = (100, 20)
    """Many-shot bins have more training rows than the first, few-shot bins fewer than the second."""
    extra: Mapping[str, Array] = field(default_factory=dict)
    """Other arrays that the network needs, such as word vectors. ``valid_pixels`` and ``test_pixels`` are the
    flat positions of the labels that are scored, where a row has many labels."""
    metrics: tuple[str, ...] = ()
    """Metrics of the predicted mean that this kind of data has besides the usual ones."""

    @cached_property
    def bins(self) -> LabelBins:
        """Bins of the training labels, used for weights and scores."""
        if self.y_train.ndim == 1 or self.edges is None:
            return LabelBins.from_labels(self.y_train, edges=self.edges)
        # Maps have many labels: they are counted some rows at a time.
        parts = np.array_split(self.y_train, -(-self.y_train.size // LABELS_AT_ONCE))
        counted = [LabelBins.from_labels(part[np.isfinite(part)], edges=self.edges) for part in parts]
        return replace(counted[0], counts=np.sum([bins.counts for bins in counted], axis=0))

    def labels(self, part: Part) -> Array:
        """Return the labels that are scored. (N,)"""
        y: Array = getattr(self, f"y_{part}")
        pixels = self.extra.get(f"{part}_pixels")
        return y if pixels is None else y.reshape(-1)[pixels]

    def scored(self, part: Part, prediction: Distribution) -> Distribution:
        """Return the predictions of the labels that are scored. (N,)"""
        pixels = self.extra.get(f"{part}_pixels")
        if pixels is None:
            return prediction
        chosen = torch.from_numpy(pixels)
        return prediction.map(lambda p: p.reshape(-1)[chosen])

    @cached_property
    def digest(self) -> str:
        """Short hash of the arrays; runs on the same data have the same one."""
        whole = hashlib.sha256()
        edges = [] if self.edges is None else [self.edges]
        for array in (*(getattr(self, part) for part in PARTS), *edges, *self.extra.values()):
            if isinstance(array, np.memmap):  # of a large file, some rows are enough
                whole.update(str(array.shape).encode())
                array = array[:: -(-len(array) // MAPPED_ROWS)]
            whole.update(np.ascontiguousarray(array).tobytes())
        return whole.hexdigest()[:12]

    def describe(self) -> dict[str, Any]:
        """Return sizes for a results line."""
        rows = {part[2:]: len(getattr(self, part)) for part in PARTS[1::2]}
        return {
            "rows": {**rows, "table": self.total},
            "features": int(np.prod(self.x_train.shape[1:])),
            "bins": len(self.bins),
            "shots": list(self.shots),
            "digest": self.digest,
        }


class DataSet(Hashable, Protocol):
    """What a suite consists of: a name, and a problem for every seed."""

    @property
    def name(self) -> str:
        """Name in results."""

    def problem(self, seed: int, max_rows: int = MAX_ROWS) -> Problem:
        """Split with a seed and encode; data sets with a split of their own ignore the limit."""


def data_folder(name: str) -> Path:
    """Return a folder of TAILWISE_DATA; without that variable, the error says what to set."""
    named = os.environ.get("TAILWISE_DATA")
    if not named:
        raise ValueError(
            f"the data is read from TAILWISE_DATA/{name}: set the environment variable TAILWISE_DATA"
        )
    return Path(named) / name
