"""Splits of a data set's rows into training, validation and test parts."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from tailwise.labels import LabelBins, checked_labels

Rows = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Split:
    """Row numbers of three parts: disjoint, sorted, and together every row once."""

    train: Rows
    valid: Rows
    test: Rows


def balanced_split(
    y: ArrayLike | Tensor,
    *,
    bins: LabelBins | None = None,
    per_bin: int = 20,
    seed: int = 0,
) -> Split:
    """Return a split whose validation and test parts are balanced over the label bins.

    From a bin of c rows, ``min(per_bin, floor(c / 3))`` rows go to the validation part, as many to
    the test part, and the rest to training. So every bin that holds data keeps at least a third
    of it for training, and a bin of one or two rows is only trained on. Without `bins` they are
    those of `LabelBins.from_labels`.

    >>> y = [0] * 90 + [1] * 9 + [2]
    >>> split = balanced_split(y, per_bin=5)
    >>> np.bincount(np.array(y)[split.test])
    array([5, 3])
    >>> np.bincount(np.array(y)[split.train])
    array([80,  3,  1])
    """
    _check_count("per_bin", per_bin, least=0)
    labels = checked_labels(y)
    index = (bins if bins is not None else LabelBins.from_labels(labels)).index(labels)
    counts = np.bincount(index)
    # Shuffle, then sort by bin: a row's place within its bin is then a random rank.
    shuffled = np.random.default_rng(seed).permutation(labels.size)
    rows = shuffled[np.argsort(index[shuffled], kind="stable")]
    in_bin = index[rows]
    rank = np.arange(labels.size) - (np.cumsum(counts) - counts)[in_bin]
    take = np.minimum(per_bin, counts // 3)[in_bin]
    return _split(rows, valid=rank < take, test=(rank >= take) & (rank < 2 * take))


def label_holdout(y: ArrayLike | Tensor, *, share: float, seed: int = 0) -> Rows:
    """Return row numbers to hold out: the given share of every label bin, rounded at random.

    Unlike a plain random part it cannot miss the tail by chance; unlike `balanced_split` it follows the
    labels as they are. A bin's last row is never taken.

    >>> y = [0] * 80 + [1] * 20 + [2]
    >>> np.bincount(np.array(y)[label_holdout(y, share=0.25)])
    array([20,  5])
    """
    labels = checked_labels(y)
    index = LabelBins.from_labels(labels).index(labels)
    rng = np.random.default_rng(seed)
    counts = np.bincount(index)
    wanted = share * counts
    take = np.floor(wanted + rng.random(counts.size)).astype(np.int64)
    take = np.minimum(take, np.maximum(counts - 1, 0))
    shuffled = rng.permutation(labels.size)
    rows = shuffled[np.argsort(index[shuffled], kind="stable")]
    rank = np.arange(labels.size) - (np.cumsum(counts) - counts)[index[rows]]
    return np.sort(rows[rank < take[index[rows]]])


def random_split(n: int, *, valid: float = 0.15, test: float = 0.15, seed: int = 0) -> Split:
    """Return a split of n rows at random; `valid` and `test` are shares of n, rounded down.

    >>> split = random_split(10, valid=0.2, test=0.3)
    >>> len(split.train), len(split.valid), len(split.test)
    (5, 2, 3)
    """
    _check_count("n", n, least=1)
    for name, share in (("valid", valid), ("test", test)):
        if not 0 <= share < 1:
            raise ValueError(f"{name} is a share of the rows: at least 0, below 1; got {share!r}")
    if valid + test >= 1:
        raise ValueError(f"valid={valid} and test={test} leave no rows for training")
    rank = np.arange(n)
    # 0.3 * 10 is a little under 3 in floating point; the share that was meant is not.
    first, second = (int(np.floor(share * n + 1e-9)) for share in (valid, test))
    rows = np.random.default_rng(seed).permutation(n)
    return _split(rows, valid=rank < first, test=(rank >= first) & (rank < first + second))


def _check_count(name: str, value: int, least: int) -> None:
    if value != int(value) or value < least:
        raise ValueError(f"{name} must be a whole number of at least {least}, got {value!r}")


def _split(rows: Rows, *, valid: NDArray[np.bool_], test: NDArray[np.bool_]) -> Split:
    train, valid_rows, test_rows = (
        np.sort(rows[chosen]).astype(np.int64) for chosen in (~(valid | test), valid, test)
    )
    return Split(train, valid_rows, test_rows)
