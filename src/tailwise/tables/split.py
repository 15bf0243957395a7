"""Splits of a data set's rows into training, validation and test parts."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from tailwise.labels.bins import LabelBins, checked_labels

Rows = NDArray[np.int64]
PARTS = ("train", "val", "test")
_SAME = {"valid": "val", "validation": "val", "dev": "val", "training": "train", "testing": "test"}


@dataclass(frozen=True, eq=False)
class Split:
    """Sorted row numbers of three disjoint parts. Together they are all rows, unless stated otherwise."""

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

    From a bin of c rows, ``min(per_bin, floor(c / 3))`` rows go to the validation part, the same number to
    the test part, and the rest to training. So at least a third of each bin is for training, and
    all of a bin of one or two rows. `bins` defaults to `LabelBins.from_labels`.

    >>> y = [0] * 90 + [1] * 9 + [2]
    >>> split = balanced_split(y, per_bin=5)
    >>> np.bincount(np.array(y)[split.test])
    array([5, 3])
    >>> np.bincount(np.array(y)[split.train])
    array([80,  3,  1])
    """
    index, take = _binned(y, bins, per_bin)
    rank = _random_ranks(index, np.random.default_rng(seed))
    return _split(valid=rank < take, test=(rank >= take) & (rank < 2 * take))


def dir_split(y: ArrayLike | Tensor, *, per_label: int = 30, seed: int = 666) -> Split:
    """Return the split of DIR's face data: validation and test parts balanced over the label values.

    From c rows of a label, ``min(floor(c / 3), per_label)`` go to the validation part, as many to the test
    part. With the defaults, the rows of AgeDB-DIR give its published parts; IMDB-WIKI-DIR has
    ``per_label=150``.

    >>> y = [30] * 90 + [70] * 9 + [100]
    >>> split = dir_split(y, per_label=5)
    >>> np.unique(np.array(y)[split.test], return_counts=True)
    (array([30, 70]), array([5, 3]))
    """
    labels = checked_labels(y)
    generator = random.Random(seed)  # Python's own shuffle, because the published parts were drawn by it
    valid, test = (np.zeros(len(labels), bool) for _ in range(2))
    for value in np.unique(labels):
        rows = np.flatnonzero(labels == value).tolist()
        generator.shuffle(rows)
        take = min(len(rows) // 3, per_label)
        valid[rows[:take]] = True
        test[rows[take : 2 * take]] = True
    return _split(valid=valid, test=test)


def pooled_split(
    y: ArrayLike | Tensor,
    *,
    bins: LabelBins | None = None,
    per_bin: int = 20,
    seed: int = 0,
    pool_seed: int = 0,
) -> Split:
    """Return a balanced split whose test rows come from a pool that all seeds share.

    The pool is a third of every bin, at most ``2 * per_bin`` rows, and depends on `pool_seed` only. Test
    rows are drawn from the pool, validation and training rows from the other rows. So a model tuned with
    one seed has seen no test row of any other seed. Validation and test parts have the sizes of
    `balanced_split`. Rows of the pool that are not drawn are in no part.

    >>> y = [0] * 90 + [1] * 9 + [2]
    >>> first, second = (pooled_split(y, per_bin=5, seed=seed) for seed in (0, 1))
    >>> np.bincount(np.array(y)[first.test]), np.bincount(np.array(y)[first.train])
    (array([5, 3]), array([75,  3,  1]))
    >>> bool(np.isin(first.test, np.concatenate([second.train, second.valid])).any())
    False
    """
    index, take = _binned(y, bins, per_bin)
    thirds = (np.bincount(index) // 3)[index]
    pool = _random_ranks(index, np.random.default_rng(pool_seed)) < np.minimum(2 * per_bin, thirds)
    # Not the pool's random stream: with equal seeds the pool's first rows would always be drawn.
    rank = _random_ranks(2 * index + pool, np.random.default_rng([seed, 1]))
    drawn = rank < take
    return Split(*(np.flatnonzero(rows) for rows in (~pool & ~drawn, ~pool & drawn, pool & drawn)))


def _binned(y: ArrayLike | Tensor, bins: LabelBins | None, per_bin: int) -> tuple[Rows, Rows]:
    """The bin of every row, and the number of that bin's rows that go to a held-out part. (N,) each"""
    _check_count("per_bin", per_bin, least=0)
    labels = checked_labels(y)
    index = (bins if bins is not None else LabelBins.from_labels(labels)).index(labels)
    return index, np.minimum(per_bin, np.bincount(index) // 3)[index]


def _random_ranks(group: Rows, rng: np.random.Generator) -> Rows:
    """Rank of every row within its group, in random order. (N,) -> (N,)"""
    # Shuffle, then sort by group: a row's place within its group is then a random rank.
    shuffled = rng.permutation(group.size)
    rows = shuffled[np.argsort(group[shuffled], kind="stable")]
    counts = np.bincount(group)
    rank = np.empty(group.size, np.int64)
    rank[rows] = np.arange(group.size) - (np.cumsum(counts) - counts)[group[rows]]
    return rank


def label_holdout(y: ArrayLike | Tensor, *, share: float, seed: int = 0, pool_small: bool = False) -> Rows:
    """Return row numbers to hold out: the given share of every label bin, rounded at random.

    Unlike a random part, it cannot miss the tail by chance. Unlike `balanced_split`, it keeps the
    distribution of the labels. At least one row of every bin stays for training.

    With `pool_small`, bins too small for a row in both parts are pooled with small neighbours, and at least
    one row of the whole table stays for training. Every row then has the same chance to be held out, even
    if it is alone in its bin, so measurements on these rows hold for new ones. Larger bins give the same
    rows with and without `pool_small`.

    >>> y = [0] * 80 + [1] * 20 + [2, 30, 50, 90]
    >>> np.unique(np.array(y)[label_holdout(y, share=0.25)], return_counts=True)
    (array([0, 1]), array([20,  5]))
    >>> np.unique(np.array(y)[label_holdout(y, share=0.25, pool_small=True)], return_counts=True)
    (array([ 0,  1, 50]), array([20,  5,  1]))
    """
    labels = checked_labels(y)
    index = LabelBins.from_labels(labels).index(labels)
    rng = np.random.default_rng(seed)
    counts = np.bincount(index)
    if pool_small:
        index = _pools(counts, share)[index]
        counts = np.bincount(index, minlength=counts.size)
    wanted = share * counts
    take = np.floor(wanted + rng.random(counts.size)).astype(np.int64)
    take = np.minimum(take, labels.size - 1 if pool_small else np.maximum(counts - 1, 0))
    return np.flatnonzero(_random_ranks(index, rng) < take[index])


def _pools(counts: Rows, share: float) -> Rows:
    """The first bin of each bin's pool: small bins are joined until they fill both parts. (B,)"""
    lesser = min(share, 1 - share)
    groups: list[list[int]] = [[]]
    for place in np.flatnonzero((counts > 0) & (lesser * counts < 1)):
        groups[-1].append(int(place))
        if lesser * counts[groups[-1]].sum() >= 1:
            groups.append([])
    if len(groups) > 1:  # the last bins are too few for their own pool
        rest = groups.pop()
        groups[-1] += rest
    pools = np.arange(counts.size)
    for group in filter(None, groups):
        pools[group] = group[0]
    return pools


def random_split(n: int, *, valid: float = 0.15, test: float = 0.15, seed: int = 0) -> Split:
    """Return a random split of n rows; `valid` and `test` are shares of n, rounded down.

    >>> split = random_split(10, valid=0.2, test=0.3)
    >>> len(split.train), len(split.valid), len(split.test)
    (5, 2, 3)
    """
    _check_count("n", n, least=1)
    for name, share in (("valid", valid), ("test", test)):
        if not 0 <= share < 1:
            raise ValueError(f"{name} is a share of the rows, at least 0 and below 1; got {share!r}")
    if valid + test >= 1:
        raise ValueError(f"valid={valid} and test={test} leave no rows for training")
    rank = np.empty(n, np.int64)
    # 0.3 * 10 may be slightly below 3 in floating point, but 3 is meant.
    first, second = (int(np.floor(share * n + 1e-9)) for share in (valid, test))
    rank[np.random.default_rng(seed).permutation(n)] = np.arange(n)
    return _split(valid=rank < first, test=(rank >= first) & (rank < first + second))


def halves(n: int, seed: int, least: int) -> tuple[Rows, Rows]:
    """Return two random halves of n held-out rows: one to select and scale by, one to fit intervals on.

    With fewer than `least` rows both parts are all rows, and the intervals' coverage is only approximate.
    """
    if n < least:
        return np.arange(n), np.arange(n)
    order = np.random.default_rng(seed).permutation(n)
    return np.sort(order[: n // 2]), np.sort(order[n // 2 :])


def _check_count(name: str, value: int, least: int) -> None:
    if value != int(value) or value < least:
        raise ValueError(f"{name} must be a whole number of at least {least}, got {value!r}")


def _split(*, valid: NDArray[np.bool_], test: NDArray[np.bool_]) -> Split:
    return Split(*(np.flatnonzero(chosen) for chosen in (~(valid | test), valid, test)))


def as_parts(names: Sequence[str], column: str, where: str) -> NDArray[np.str_]:
    """Return parts as train, val or test; valid, validation and dev count as val."""
    parts = [_SAME.get(part.strip().lower(), part.strip().lower()) for part in names]
    for row, part in enumerate(parts):
        if part not in PARTS:
            raise ValueError(f"{where}, row {row}: {column} is {names[row]!r}, not one of {', '.join(PARTS)}")
    return np.array(parts, dtype="<U5")
