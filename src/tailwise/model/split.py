"""Which rows train a network and which are held out to stop, scale and calibrate it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tailwise.labels.bins import LabelBins
from tailwise.model.base import FOLDS, deal_folds
from tailwise.tables.rows import label_holdout

if TYPE_CHECKING:
    import pandas as pd

Floats = NDArray[np.float64]
Rows = NDArray[np.int64]

MIN_ROWS = 5
"""A table with fewer rows is an error."""
MIN_HOLDOUT = 20
"""With fewer rows than this to hold out, the training rows themselves stop and calibrate."""
MIN_FOLD_ROWS = 8
"""With fewer rows per fold than this, ``folds="auto"`` trains one network."""
MAX_FOLDED_ROWS = 20_000
"""With more rows than this, ``folds="auto"`` trains one network: a fifth of them calibrates well enough."""
FOLDS_OF_MANY = 3
"""Folds of the base with more rows than that, at half of the time (research/results/base-cost.md)."""


def check_row_count(rows: int) -> None:
    """Raise an error if there are too few rows to learn from."""
    if rows < MIN_ROWS:
        raise ValueError(
            f"n_samples={rows}, but at least {MIN_ROWS} rows are needed to train and to hold out"
            + (" (1 sample is no regression)" if rows == 1 else "")
        )


def group_codes(groups: ArrayLike, rows: int) -> Rows:
    """Return the number of each row's group; a missing group is an error. (N,)"""
    import pandas as pd

    values = _one_per_row(groups, rows, "groups")
    codes = np.asarray(pd.factorize(values)[0], np.int64)
    if codes.max() == 0:
        raise ValueError("all rows are in one group, so none can be held out: leave groups out")
    return codes


def _one_per_row(given: Any, rows: int, name: str) -> pd.Series[Any]:
    """Return values for each row, all of which must be there. (N,)"""
    import pandas as pd

    values = pd.Series(np.asarray(given).reshape(-1))
    if len(values) != rows:
        raise ValueError(f"{name} has {len(values)} values for {rows} rows: pass one for each row")
    if values.isna().any():
        row = int(values.isna().to_numpy().argmax())
        raise ValueError(f"{name} is missing in row {row}: fill or drop it")
    return values


def deal_group_folds(labels: Floats, groups: Rows, seed: int, folds: int = FOLDS) -> Rows:
    """Return the fold of each row, the same for all rows of a group; label bins are spread as well as can be.

    Groups with the rarest labels are dealt first, each to the fold that has the fewest rows of its bins.
    labels, groups: (N,) -> (N,)
    """
    count = int(groups.max()) + 1
    if count < folds:
        raise ValueError(f"{folds} folds need at least {folds} groups, got {count}: set folds to {count}")
    index = LabelBins.from_labels(labels).index(labels)
    pairs, rows = np.unique(groups * (int(index.max()) + 1) + index, return_counts=True)
    of_group, of_bin = np.divmod(pairs, int(index.max()) + 1)
    share = rows / np.bincount(index)[of_bin]  # of its bin
    order = np.random.default_rng(seed).permutation(count)
    weight = np.bincount(of_group, weights=share, minlength=count)
    order = order[np.argsort(-weight[order], kind="stable")]
    starts = np.searchsorted(of_group, np.arange(count + 1))
    filled = np.zeros((folds, int(index.max()) + 1))
    size = np.bincount(groups, minlength=count) / len(groups)
    total, fold = np.zeros(folds), np.empty(count, np.int64)
    for group in order:
        of_this = slice(starts[group], starts[group + 1])
        crowd = (filled[:, of_bin[of_this]] * share[of_this]).sum(1) + total * size[group]
        chosen = int(np.argmin(crowd))
        fold[group] = chosen
        filled[chosen, of_bin[of_this]] += share[of_this]
        total[chosen] += size[group]
    return fold[groups]


@dataclass(frozen=True, eq=False)
class Split:
    """Which rows train each network, which are held out from it, and how a base is cross-fitted."""

    parts: tuple[tuple[Rows, Rows], ...]
    """Training rows and held-out rows of each network."""
    fold: Rows
    """The fold of each row, for the base. (N,)"""

    @property
    def trained(self) -> Rows:
        """Rows that train some network."""
        return np.unique(np.concatenate([train for train, _ in self.parts]))

    @property
    def held_out(self) -> bool:
        """Whether rows are held out, rather than training rows that calibrate too."""
        return self.parts[0][0] is not self.parts[0][1]

    @classmethod
    def deal(
        cls,
        labels: Floats,
        seed: int,
        *,
        folds: int | Literal["auto"],
        share: float,
        groups: Rows | None = None,
        alone: bool = False,
    ) -> Split:
        """Deal the rows once, for base and networks alike. labels: (N,) of the first target

        With `alone` there is one network and nothing is held out. Without enough rows the training rows
        themselves stop and calibrate. With `groups`, no group is on both sides.
        """
        rows, most = np.arange(len(labels)), FOLDS if len(labels) <= MAX_FOLDED_ROWS else FOLDS_OF_MANY
        if groups is not None:
            most = min(most, int(groups.max()) + 1)

        def dealt(count: int) -> Rows:
            if groups is None:
                return deal_folds(labels, seed, count)
            return deal_group_folds(labels, groups, seed, count)

        fold = dealt(most)
        if folds == "auto":
            folds = FOLDS if most == FOLDS and MIN_FOLD_ROWS * FOLDS <= len(rows) <= MAX_FOLDED_ROWS else 1
        if alone:
            return cls(((rows, rows[:0]),), fold)
        if folds > 1:
            if len(rows) < folds:
                raise ValueError(f"folds={folds} needs at least {folds} rows, got n_samples={len(rows)}")
            own = fold if folds == most else dealt(folds)
            return cls(
                tuple((np.flatnonzero(own != k), np.flatnonzero(own == k)) for k in range(folds)), fold
            )
        if len(rows) * share < MIN_HOLDOUT:
            return cls(((rows, rows),), fold)
        if groups is None:
            held = label_holdout(labels, share=share, seed=seed)
        else:
            parts = min(max(round(1 / share), 2), int(groups.max()) + 1)
            held = np.flatnonzero(deal_group_folds(labels, groups, seed, parts) == 0)
        train = np.setdiff1d(rows, held)
        return cls(((train, held) if len(train) and len(held) else (rows, rows),), fold)


def latest_rows(time: Any, rows: int, share: float) -> tuple[Rows, Rows]:
    """Return the earlier rows, to train on, and the latest share of them, to hold out.

    Rows of one time stay together. Times are numbers, dates or anything that pandas can sort.
    """
    import pandas as pd

    times = _one_per_row(time, rows, "time")
    if times.dtype.kind not in "biufmM":
        dates = pd.to_datetime(times, format="ISO8601", errors="coerce", utc=True)
        if dates.isna().any():
            row = int(dates.isna().to_numpy().argmax())
            raise ValueError(
                f"time must be numbers or dates such as 2024-01-31, and row {row} is {times.iloc[row]!r}"
            )
        times = dates
    rank = times.rank(method="min").to_numpy() - 1  # how many rows are earlier
    late = rank >= np.sort(rank)[min(int((1 - share) * rows), rows - 1)]
    if late.all():  # most rows have the first time
        late = rank > 0
    if not late.any():
        raise ValueError("all rows have the same time, so none is the latest: leave time out")
    return np.flatnonzero(~late), np.flatnonzero(late)
