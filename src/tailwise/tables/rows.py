"""Rows of a table: split into training, validation and test parts, and merged where they are equal."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import _check_sample_weight
from torch import Tensor

from tailwise.labels.bins import LabelBins, checked_labels
from tailwise.tables.column_encoders import as_numbers, is_date, plain_column
from tailwise.tables.columns import is_number
from tailwise.tables.inputs import as_pandas

if TYPE_CHECKING:
    import pandas as pd

Floats = NDArray[np.float64]
Rows = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Split:
    """Sorted row numbers of three disjoint parts."""

    train: Rows
    valid: Rows
    test: Rows


def pooled_split(
    y: ArrayLike | Tensor,
    *,
    bins: LabelBins | None = None,
    per_bin: int = 20,
    seed: int = 0,
    pool_seed: int = 0,
) -> Split:
    """Return a split whose validation and test parts are balanced over the label bins.

    From a bin of c rows, ``min(per_bin, floor(c / 3))`` rows go to the validation part and as many to the
    test part, so at least a third of each bin is for training. Test rows are drawn from a pool that all seeds
    share, so a model tuned with one seed has seen no test row of any other seed. The pool is a third of every
    bin, at most ``2 * per_bin`` rows, and depends on `pool_seed` only; rows of it that are not drawn are in
    no part. `bins` defaults to `LabelBins.from_labels`.

    >>> y = [0] * 90 + [1] * 9 + [2]
    >>> first, second = (pooled_split(y, per_bin=5, seed=seed) for seed in (0, 1))
    >>> np.bincount(np.array(y)[first.test]), np.bincount(np.array(y)[first.train])
    (array([5, 3]), array([75,  3,  1]))
    >>> bool(np.isin(first.test, np.concatenate([second.train, second.valid])).any())
    False
    """
    if per_bin != int(per_bin) or per_bin < 0:
        raise ValueError(f"per_bin must be a whole number of at least 0, got {per_bin!r}")
    labels = checked_labels(y)
    index = (bins if bins is not None else LabelBins.from_labels(labels)).index(labels)
    take = np.minimum(per_bin, np.bincount(index) // 3)[index]
    thirds = (np.bincount(index) // 3)[index]
    pool = _random_ranks(index, np.random.default_rng(pool_seed)) < np.minimum(2 * per_bin, thirds)
    # Not the pool's random stream: with equal seeds the pool's first rows would always be drawn.
    rank = _random_ranks(2 * index + pool, np.random.default_rng([seed, 1]))
    drawn = rank < take
    return Split(*(np.flatnonzero(rows) for rows in (~pool & ~drawn, ~pool & drawn, pool & drawn)))


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

    Unlike a random part, it cannot miss the tail by chance. Unlike `pooled_split`, it keeps the
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


def halves(n: int, seed: int, least: int) -> tuple[Rows, Rows]:
    """Return two random halves of n held-out rows: one to select and scale by, one to fit intervals on.

    With fewer than `least` rows both parts are all rows, and the intervals' coverage is only approximate.
    """
    if n < least:
        return np.arange(n), np.arange(n)
    order = np.random.default_rng(seed).permutation(n)
    return np.sort(order[: n // 2]), np.sort(order[n // 2 :])


# -- equal rows ------------------------------------------------------------------------------------

MAX_MERGED_ROWS = 200_000
"""Equal rows are merged in tables of up to this many rows."""
MAX_WEIGHT = 2.0**53
"""Weights count rows. Beyond this sum, float64 cannot count one more."""
_MAX_DENSE_CELLS = 20_000_000


def merge_equal_rows(
    X: Any, labels: Floats, sample_weight: ArrayLike | None
) -> tuple[NDArray[np.int64], Floats]:
    """Return the rows to train on and their weights, without rows of weight 0 and without repeats.

    A row that occurs twice becomes one row of weight 2, so repeating a row and weighting it give the same
    model. Weights with a mean below 1, such as weights that sum to 1, are scaled up to a mean of 1, because
    they count rows.
    """
    weight = _check_sample_weight(sample_weight, labels, dtype=np.float64, ensure_non_negative=True)
    if not weight.max() * len(weight) < MAX_WEIGHT:
        raise ValueError(f"sample_weight has {weight.max():g}, too large to count rows: divide all weights")
    rows: NDArray[np.int64] = np.flatnonzero(weight > 0).astype(np.int64)
    weight = weight / min(float(weight[rows].mean()), 1.0)
    hashes = _row_hashes(X) if len(labels) <= MAX_MERGED_ROWS else None
    if hashes is None:
        return rows, weight[rows]
    # The order depends on what the rows hold, not on their place or on the unit of the labels.
    columns = np.atleast_2d(labels.T)
    rows = rows[np.lexsort((*columns[:, rows], hashes[rows]))]
    new = np.ones(len(rows), bool)
    same = hashes[rows[1:]] == hashes[rows[:-1]]
    new[1:] = ~(same & (columns[:, rows[1:]] == columns[:, rows[:-1]]).all(0))
    return rows[new], np.bincount(np.cumsum(new) - 1, weights=weight[rows]).astype(np.float64)


def rows_in_common(X: Any, labels: Floats, others: Any, their_labels: Floats) -> int:
    """Count the rows whose inputs and labels are those of one of the others; 0 for inputs that are no tables.

    X: (N, F), labels: (N, T), others: (M, F), their_labels: (M, T)
    """
    hashes = _row_hashes(X), _row_hashes(others)
    if hashes[0] is None or hashes[1] is None:
        return 0
    seen = set(zip(hashes[1].tolist(), map(tuple, their_labels.tolist()), strict=True))
    return sum(row in seen for row in zip(hashes[0].tolist(), map(tuple, labels.tolist()), strict=True))


def _row_hashes(X: Any) -> NDArray[np.uint64] | None:
    """One number per row, equal for equal rows; None for inputs that are not tables. (N,)"""
    import pandas as pd

    if hasattr(X, "toarray"):
        if X.shape[0] * X.shape[1] > _MAX_DENSE_CELLS:
            return None
        X = X.toarray()
    X = as_pandas(X)
    if not (hasattr(X, "columns") or (isinstance(X, np.ndarray) and X.ndim == 2)):
        return None
    table = pd.DataFrame(X)
    try:
        cells = {place: _values(table.iloc[:, place]) for place in range(table.shape[1])}
        return np.asarray(pd.util.hash_pandas_object(pd.DataFrame(cells), index=False), np.uint64)
    except (TypeError, ValueError):  # a column of lists, or of numbers longer than 64 bits
        return None


def _values(column: pd.Series[Any]) -> NDArray[Any]:
    """Return cells in a type that their values decide, so that pandas, polars and pyarrow are alike."""
    from pandas.api.types import infer_dtype, is_timedelta64_dtype

    column = column if column.dtype == object else plain_column(column)
    if is_date(column.dtype):
        dates = column.dt.tz_convert(None) if column.dt.tz is not None else column
        return np.asarray(dates.dt.as_unit("us"))
    if is_timedelta64_dtype(column.dtype):
        return np.asarray(column.dt.as_unit("us"))
    if not (is_number(column.dtype) or infer_dtype(column) in ("boolean", "integer", "floating")):
        return np.asarray(column.astype(object))
    if column.dtype.kind in "biu" and not column.isna().any():
        return column.to_numpy({"b": np.bool_, "i": np.int64, "u": np.uint64}[column.dtype.kind])
    return as_numbers(column)
