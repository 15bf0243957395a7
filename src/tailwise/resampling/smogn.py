"""Resampling of a table by the relevance of its labels: SmoteR and SMOGN.

A relevance function says how much each label matters, from 0 to 1. Sorted labels fall into runs
("bumps") whose relevance is at or above a threshold (rare) or below it (normal). All get the same number of
rows: rare bumps gain synthetic rows, normal bumps lose rows at random.

Torgo and Ribeiro, Utility-based regression, PKDD 2007; Torgo, Ribeiro, Pfahringer and Branco, SMOTE
for regression, EPIA 2013; Branco, Torgo and Ribeiro, SMOGN: a pre-processing approach for imbalanced
regression, PMLR 74, 2017. Distances are those of HEOM (Wilson and Martinez, Improved heterogeneous distance
functions, JAIR 1997). Written from the papers.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np
import pandas as pd
import torch
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from torch import Tensor

from tailwise.labels.bins import checked_labels
from tailwise.lookup import nearest
from tailwise.tables.columns import check_infinity

Array = NDArray[np.float64]
Rows = NDArray[np.intp]

FENCE = 1.5
"""The fences of a box plot lie this many interquartile ranges beyond the quartiles."""


class Relevance(NamedTuple):
    """How much each label matters: 0 at `center`, 1 at `low` and `high` and beyond them.

    In between it is the cubic 3 t^2 - 2 t^3, which is flat at both ends, of the share t of the way. A side
    without an end has no label that matters.

    >>> Relevance(-math.inf, 0.0, 10.0)([-5, 0, 2.5, 5, 10, 99])
    array([0.     , 0.     , 0.15625, 0.5    , 1.     , 1.     ])
    """

    low: float
    center: float
    high: float

    @classmethod
    def from_labels(cls, y: ArrayLike) -> Relevance:
        """Return the relevance by the median and the whiskers of a box plot of the labels.

        The median has relevance 0. The adjacent values have 1: the lowest and highest label within
        ``Q1 - 1.5 IQR`` and ``Q3 + 1.5 IQR``. A side without labels beyond its adjacent value has no
        extremes, and its relevance is 0. A quartile between two labels is their midpoint.

        If more than half of the labels are equal, as in zero-inflated targets, there is no interquartile
        range. That label then has relevance 0, and the third quartile of the labels above it and the
        first quartile of the labels below it have 1. If all labels are equal, relevance is 0 everywhere.

        >>> tuple(map(float, Relevance.from_labels([0, 1, 2, 3, 4, 20])))
        (-inf, 2.5, 4.0)
        >>> tuple(map(float, Relevance.from_labels([0, 0, 0, 0, 0, 0, 1, 2, 3])))
        (-inf, 0.0, 2.0)
        """
        labels = checked_labels(y)
        first, median, third = np.percentile(labels, [25, 50, 75], method="midpoint")
        reach = FENCE * (third - first)
        low, high = first - reach, third + reach
        if low < median < high:
            has_low, has_high = bool((labels < low).any()), bool((labels > high).any())
            # A side without a label between the median and its fence keeps the fence.
            lowest, highest = labels[labels >= low].min(), labels[labels <= high].max()
            low, high = lowest if lowest < median else low, highest if highest > median else high
        else:
            below, above = labels[labels < median], labels[labels > median]
            has_low, has_high = below.size > 0, above.size > 0
            low = np.percentile(below, 25) if has_low else low
            high = np.percentile(above, 75) if has_high else high
        return cls(low if has_low else -math.inf, median, high if has_high else math.inf)

    def __call__(self, y: ArrayLike) -> Array:
        """Return the relevance of each label. (...) -> (...)"""
        away = np.asarray(y, np.float64) - self.center
        t = np.clip(np.maximum(away / (self.high - self.center), away / (self.low - self.center)), 0, 1)
        return np.asarray(t * t * (3 - 2 * t))


Table = TypeVar("Table", bound=NDArray[Any] | pd.DataFrame)
Labels = TypeVar("Labels", bound=NDArray[Any] | pd.Series)
THRESHOLD = 0.8
"""Labels of at least this relevance are rare."""
NEIGHBOURS = 5
"""A new row lies between a rare row and one of this many nearest rows of its bump."""
NOISE = 0.02
"""SMOGN's noise, in standard deviations of a column."""
SAFE_SAMPLE = 1000
"""Larger bumps estimate the median distance in SMOGN's safe radius from a sample of this many rows."""
_MISSING_STEP = np.sqrt(0.75)  # puts a missing value at distance 1 from both ends of the range


class MixedTable:
    """A table as numbers (NaN if missing) and codes of categories (-1 if missing), and back.

    The distance of two rows is Euclidean: each number is divided by its range, and categories that differ
    are at distance 1. A missing number is at distance 0 to another one, and sqrt(3)/2 to 1 to a number.
    """

    def __init__(self, table: Any, categorical: Sequence[Any] | None = None) -> None:
        self.is_array = not isinstance(table, pd.DataFrame)
        self.frame: pd.DataFrame = _as_frame(table) if self.is_array else table
        names, listed = list(self.frame.columns), list(categorical or ())
        for name in listed:
            if name not in names:
                raise ValueError(
                    f"no column {name!r} to treat as categorical{nearest(str(name), map(str, names))}"
                )
        numeric = [name not in listed and kind.kind in "iuf" for name, kind in self.frame.dtypes.items()]
        self.continuous = [place for place, number in enumerate(numeric) if number]
        self.discrete = [place for place, number in enumerate(numeric) if not number]
        check_infinity(self.frame.iloc[:, self.continuous])
        self.numbers = np.empty((len(self.frame), len(self.continuous)))  # (N, P)
        for to, place in enumerate(self.continuous):
            self.numbers[:, to] = self.frame.iloc[:, place].to_numpy(np.float64, na_value=np.nan)
        self.codes = np.empty((len(self.frame), len(self.discrete)), np.intp)  # (N, C)
        for to, place in enumerate(self.discrete):
            try:
                self.codes[:, to] = pd.factorize(self.frame.iloc[:, place])[0]
            except TypeError:
                raise ValueError(
                    f"column {names[place]!r} holds values that cannot be compared, such as lists: split it "
                    "into columns or drop it"
                ) from None
        missing = np.isnan(self.numbers)
        filled = np.where(missing.all(0), 0.0, self.numbers)
        self.low, self.high, self.std = np.nanmin(filled, 0), np.nanmax(filled, 0), np.nanstd(filled, 0)
        self._gaps = missing.any(0)
        self.points = self.embed(self.numbers)

    def embed(self, numbers: Array) -> Array:
        """Return points whose Euclidean distance is the distance between the numbers. (M, P) -> (M, P')

        A missing value becomes the middle of the range, shifted along a dimension of its own.
        """
        reach = self.high - self.low
        unit = (numbers - self.low) / np.where(reach > 0, reach, 1.0) - 0.5
        missing = np.isnan(unit)
        return np.hstack([np.where(missing, 0.0, unit), _MISSING_STEP * missing[:, self._gaps]])

    def distance(self, rows: Rows, points: Array, codes: Rows) -> Array:
        """Return the distance of each row to a point with its codes. (M,), (M, P'), (M, C) -> (M,)"""
        gap = self.points[rows] - points
        return np.asarray(np.sqrt(np.einsum("ij,ij->i", gap, gap) + (self.codes[rows] != codes).sum(1)))

    def space(self, rows: Rows) -> Any:
        """Return rows as points with categories among the numbers. (M, P' + categories)"""
        if not self.discrete:
            return self.points[rows]
        from sklearn.preprocessing import OneHotEncoder

        flags = OneHotEncoder().fit_transform(self.codes[rows])
        return sparse.hstack([self.points[rows], flags * np.sqrt(0.5)]).tocsr()

    def build(self, kept: Rows, numbers: Array, sources: Rows) -> Any:
        """Return the kept rows, then new ones: numbers (M, P) and rows to copy categories from (M, C)."""
        columns: dict[int, Any] = {}
        for to, place in enumerate(self.discrete):
            rows = np.concatenate([kept, sources[:, to]])
            columns[place] = self.frame.iloc[:, place].iloc[rows].reset_index(drop=True)
        for to, place in enumerate(self.continuous):
            old, values = self.frame.iloc[:, place].iloc[kept], numbers[:, to]
            values = np.round(values) if pd.api.types.is_integer_dtype(old.dtype) else values
            parts = [old, pd.Series(values).astype(old.dtype)] if len(values) else [old]
            columns[place] = pd.concat(parts, ignore_index=True)
        ordered = {place: columns[place] for place in sorted(columns)}
        table = pd.DataFrame(ordered, index=pd.RangeIndex(len(kept) + len(numbers)))
        return table.to_numpy() if self.is_array else table.set_axis(self.frame.columns, axis=1)


def _as_frame(table: Any) -> pd.DataFrame:
    array = np.asarray(table)
    if array.ndim != 2:
        raise ValueError(
            f"resampling needs a table of rows x columns, got an array of shape {array.shape}: "
            "flatten images and sequences, or resample their feature vectors"
        )
    if array.dtype.kind not in "biuf":
        raise ValueError(f"an array must hold numbers, got {array.dtype}: pass a DataFrame instead")
    return pd.DataFrame(array if array.dtype.kind == "f" else array.astype(np.float64))


def neighbours(table: MixedTable, rows: Rows, count: int) -> tuple[Rows, Array]:
    """Return the nearest others of each row among `rows`, nearest first, with distances. (M, count) twice"""
    from sklearn.neighbors import NearestNeighbors

    places = NearestNeighbors(n_neighbors=count).fit(table.space(rows)).kneighbors(return_distance=False)
    # Distances are computed again: matrix products lose digits between close rows.
    columns = [rows[column] for column in places.T]
    exact = np.stack([table.distance(rows, table.points[c], table.codes[c]) for c in columns], axis=1)
    order = np.lexsort((places, exact.round(12)))  # equal distances in the order of the rows
    return np.take_along_axis(rows[places], order, 1), np.take_along_axis(exact, order, 1)


def safe_radius(table: MixedTable, rows: Rows, rng: np.random.Generator) -> Array:
    """Return half the median distance from each row to the others of `rows`. (M,)"""
    from sklearn.metrics import pairwise_distances_chunked

    others = np.arange(rows.size)
    if rows.size > SAFE_SAMPLE:
        others = np.sort(rng.choice(rows.size, SAFE_SAMPLE, replace=False))

    def median(distances: Array, start: int) -> Array:
        itself = np.arange(start, start + len(distances))[:, None] == others
        return np.asarray(np.nanmedian(np.where(itself, np.nan, distances), axis=1))

    space = table.space(rows)
    return np.concatenate(list(pairwise_distances_chunked(space, space[others], reduce_func=median))) / 2


# -- new rows --------------------------------------------------------------------------------------


def _bumps(labels: Array, rare: NDArray[np.bool_]) -> list[Rows]:
    """Split the sorted labels where rare meets normal."""
    order = np.argsort(labels, kind="stable")
    return np.split(order, np.flatnonzero(np.diff(rare[order])) + 1)


class _Synthetic(NamedTuple):
    numbers: Array  # (M, P)
    sources: Rows  # (M, C): the row that each category is copied from
    labels: Array  # (M,)


def _between(low: Array, high: Array, t: Array) -> Array:
    """Return (1 - t) low + t high, clipped to lie between low and high."""
    return np.asarray(np.clip((1 - t) * low + t * high, np.minimum(low, high), np.maximum(low, high)))


def _interpolated(
    table: MixedTable, labels: Array, seeds: Rows, mates: Rows, rng: np.random.Generator
) -> _Synthetic:
    """SmoteR's rows: random points between pairs of rows, with labels averaged by nearness."""
    t = rng.random((seeds.size, 1))
    one, two = table.numbers[seeds], table.numbers[mates]
    gaps = np.isnan(one) | np.isnan(two)
    numbers = np.where(gaps, np.where(rng.random(one.shape) < 0.5, one, two), _between(one, two, t))
    from_mate = rng.random((seeds.size, table.codes.shape[1])) < 0.5
    sources = np.where(from_mate, mates[:, None], seeds[:, None])
    points, codes = table.embed(numbers), table.codes[sources, np.arange(sources.shape[1])]
    to_seed, to_mate = (table.distance(rows, points, codes) for rows in (seeds, mates))
    total = to_seed + to_mate
    share = np.divide(to_seed, total, out=np.full(seeds.size, 0.5), where=total > 0)
    return _Synthetic(numbers, sources, _between(labels[seeds], labels[mates], share))


def _perturbed(
    table: MixedTable, labels: Array, seeds: Rows, noise: Array, rng: np.random.Generator
) -> _Synthetic:
    """SMOGN's other rows: a row plus Gaussian noise of `noise` standard deviations, within the range."""
    shift = rng.standard_normal((seeds.size, table.numbers.shape[1])) * (noise[:, None] * table.std)
    numbers = np.clip(table.numbers[seeds] + shift, table.low, table.high)
    moved = labels[seeds] + rng.standard_normal(seeds.size) * noise * labels.std()
    sources = np.repeat(seeds[:, None], len(table.discrete), axis=1)
    return _Synthetic(numbers, sources, np.clip(moved, labels.min(), labels.max()))


def _synthesize(
    table: MixedTable, labels: Array, rows: Rows, more: int, noise: float | None, rng: np.random.Generator
) -> list[_Synthetic]:
    """Make `more` rows of a rare bump. Its rows serve as seeds equally often, to within one."""
    size = rows.size
    rounds, rest = divmod(more, size)
    seeds = np.concatenate([np.repeat(np.arange(size), rounds), rng.permutation(size)[:rest]])
    if seeds.size == 0:
        return []
    if size == 1:
        # A row without neighbours: SmoteR repeats it, SMOGN adds noise to it.
        return [_perturbed(table, labels, rows[seeds], np.full(seeds.size, noise or 0.0), rng)]
    near, distance = neighbours(table, rows, min(NEIGHBOURS, size - 1))
    pick = rng.integers(near.shape[1], size=seeds.size)
    mates = near[seeds, pick]
    if noise is None:
        return [_interpolated(table, labels, rows[seeds], mates, rng)]
    radius = safe_radius(table, rows, rng)[seeds]
    safe = distance[seeds, pick] <= radius
    return [
        _interpolated(table, labels, rows[seeds[safe]], mates[safe], rng),
        _perturbed(table, labels, rows[seeds[~safe]], np.minimum(noise, radius[~safe]), rng),
    ]


def _resampled(
    X: Any, y: Any, noise: float | None, seed: int, categorical: Sequence[Any] | None
) -> tuple[Any, Any]:
    if getattr(y, "ndim", 1) > 1 and max(y.shape[1:]) > 1:
        raise ValueError(f"resampling takes one label per row, got labels of shape {tuple(y.shape)}")
    labels = checked_labels(y.to_numpy(np.float64, na_value=np.nan) if isinstance(y, pd.Series) else y)
    table = MixedTable(X, categorical)
    if len(table.frame) != labels.size:
        raise ValueError(f"X has {len(table.frame)} rows but y has {labels.size} labels")
    rare = Relevance.from_labels(labels)(labels) >= THRESHOLD
    if not rare.any():
        warnings.warn(
            "no label lies beyond the whiskers of a box plot, so none is rare and the rows do not change",
            stacklevel=3,
        )
    rng = np.random.default_rng(seed)
    bumps = _bumps(labels, rare)
    equal = round(labels.size / len(bumps))
    kept: list[Rows] = []
    made = [_Synthetic(table.numbers[:0], table.codes[:0], labels[:0])]
    for bump in bumps:  # no rare row is dropped, and no normal one repeated
        if rare[bump[0]]:
            kept.append(bump)
            made += _synthesize(table, labels, bump, max(equal - bump.size, 0), noise, rng)
        else:
            kept.append(rng.permutation(bump)[: max(equal, 1)])
    rows = np.sort(np.concatenate(kept))
    numbers, sources, made_labels = (np.concatenate(parts) for parts in zip(*made, strict=True))
    new_labels = np.append(labels[rows], made_labels)
    new_y = pd.Series(new_labels, name=y.name) if isinstance(y, pd.Series) else new_labels
    return table.build(rows, numbers, sources), new_y


def smoter(
    X: Table, y: Labels, *, seed: int = 0, categorical: Sequence[Any] | None = None
) -> tuple[Table, Labels]:
    """Return a table with more rows of rare labels, by interpolation, and fewer of usual ones (SmoteR).

    Rows whose label has a relevance (`Relevance.from_labels`) of at least `THRESHOLD` are rare. A
    new row lies between a rare row and one of its `NEIGHBOURS` nearest neighbours in the same run of
    labels, at a random place t: ``x = (1 - t) x_1 + t x_2``. Its label is ``(d_2 y_1 + d_1 y_2) / (d_1 +
    d_2)``, where d_1 and d_2 are its distances to the two rows (Torgo et al. 2013). A category is copied
    from either row at random, and so is a number that is missing in one of them. The distance is
    Euclidean, with each number divided by its range, plus one for each category that differs. A missing
    value counts as one more category.

    Each run of labels gets the same number of rows, which keeps the size of the table, except that no rare
    row is dropped and no normal one repeated.

    X is an array of numbers or a DataFrame. Columns of a DataFrame that are not numbers are categories;
    `categorical` names further ones (positions, for an array). The result is of the same kind: first
    the kept rows in order, then the new ones, numbered from 0. Whole-number columns of a DataFrame are
    rounded; labels are float64. If no label is rare, the rows do not change, and a warning says so.

    >>> X, y = np.arange(12.0).reshape(12, 1), np.array([0, 1, 1, 2, 2, 2, 2, 3, 3, 4, 20, 21])
    >>> new_X, new_y = smoter(X, y)
    >>> (y > 9).sum(), (new_y > 9).sum(), (new_y <= 9).sum()
    (np.int64(2), np.int64(5), np.int64(7))
    """
    return _resampled(X, y, None, seed, categorical)


def smogn(
    X: Table, y: Labels, *, seed: int = 0, categorical: Sequence[Any] | None = None
) -> tuple[Table, Labels]:
    """Return a table with more rows of rare labels and fewer of usual ones (SMOGN).

    SMOGN interpolates like SmoteR, but only between close rows: within half the median distance from
    the row to the others in its run of labels. Otherwise the new row is the rare row plus Gaussian
    noise on each number and on the label. The noise is `NOISE` times that column's standard deviation,
    or the safe distance times it if that is less, and stays within the column's range. Categories and
    missing values are copied (Branco et al. 2017). All else is as in `smoter`.

    >>> X, y = np.arange(12.0).reshape(12, 1), np.array([0, 1, 1, 2, 2, 2, 2, 3, 3, 4, 20, 21])
    >>> new_X, new_y = smogn(X, y)
    >>> new_X.shape, new_y.max() <= 21
    ((12, 1), np.True_)
    """
    return _resampled(X, y, NOISE, seed, categorical)


RESAMPLERS: dict[str, Callable[..., tuple[Any, Any]]] = {"smoter": smoter, "smogn": smogn}


def resampled(name: str, x: Tensor, y: Array, weight: Array, seed: int) -> tuple[Tensor, Array]:
    """Return features and labels resampled by name. A row of weight n counts as n equal rows.

    Columns of at most two values, such as encoded categories, are not averaged: a synthetic row copies
    them from a real row. x: (N, F), y, weight: (N,)
    """
    counts = np.rint(weight).astype(np.int64)
    if not np.allclose(weight, counts):
        raise ValueError(
            f"{name} needs whole-number weights, since rows cannot be resampled by fractions: leave them out"
        )
    table = np.repeat(x.numpy().astype(np.float64), counts, axis=0)
    flags = [j for j in range(table.shape[1]) if np.unique(table[:, j]).size <= 2]
    table, labels = RESAMPLERS[name](table, np.repeat(y, counts), seed=seed, categorical=flags)
    return torch.tensor(table, dtype=torch.float32), np.asarray(labels)
