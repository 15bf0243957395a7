"""Relevance of a label, from 0 to 1. SmoteR and SMOGN resample by it.

Torgo and Ribeiro, Utility-based regression, PKDD 2007. Written from the paper.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tailwise.labels.bins import checked_labels

Array = NDArray[np.float64]
FENCE = 1.5
"""The fences of a box plot lie this many interquartile ranges beyond the quartiles."""


@dataclass(frozen=True, eq=False)
class RelevanceFunction:
    """How much each label matters, from 0 to 1: a monotone cubic between control points.

    A control point is (label, relevance). Between two of them relevance rises or falls by the cubic Hermite
    polynomial that is flat at both. Beyond the first and the last point it is constant.

    >>> relevance = RelevanceFunction([(0, 0), (10, 1)])
    >>> relevance([-5, 0, 2.5, 5, 10, 99])
    array([0.     , 0.     , 0.15625, 0.5    , 1.     , 1.     ])
    """

    points: Any  # (P, 2) after construction: label, relevance

    def __post_init__(self) -> None:
        try:
            points = np.asarray(self.points, np.float64)
        except (TypeError, ValueError):
            raise ValueError("control points must all be (label, relevance)") from None
        if points.ndim != 2 or points.shape[0] < 1 or points.shape[1] != 2:
            raise ValueError(
                f"control points must be a list of (label, relevance), got an array of shape {points.shape}"
            )
        if not np.isfinite(points).all():
            row = int(np.argmax(~np.isfinite(points).all(1)))
            raise ValueError(f"control points must be finite: point {row} is {points[row].tolist()}")
        labels, relevance = points.T
        if (np.diff(labels) <= 0).any():
            raise ValueError(f"labels of control points must increase, got {labels.tolist()}")
        if ((relevance < 0) | (relevance > 1)).any():
            raise ValueError(f"relevance must lie between 0 and 1, got {relevance.tolist()}")
        object.__setattr__(self, "points", points)

    @classmethod
    def from_labels(cls, y: ArrayLike) -> RelevanceFunction:
        """Place control points at the median and the whiskers of a box plot of the labels.

        The median has relevance 0. The adjacent values have 1: the lowest and highest label within
        ``Q1 - 1.5 IQR`` and ``Q3 + 1.5 IQR``. A side without labels beyond its adjacent value has no
        extremes, and its relevance is 0. A quartile between two labels is their midpoint.

        If more than half of the labels are equal, as in zero-inflated targets, there is no interquartile
        range. That label then has relevance 0, and the third quartile of the labels above it and the
        first quartile of the labels below it have 1. If all labels are equal, relevance is 0 everywhere.

        >>> RelevanceFunction.from_labels([0, 1, 2, 3, 4, 20]).points
        array([[2.5, 0. ],
               [4. , 1. ]])
        >>> RelevanceFunction.from_labels([0, 0, 0, 0, 0, 0, 1, 2, 3]).points
        array([[0., 0.],
               [2., 1.]])
        """
        labels = checked_labels(y)
        first, median, third = np.percentile(labels, [25, 50, 75], method="midpoint")
        reach = FENCE * (third - first)
        low, high = first - reach, third + reach
        if low < median < high:
            has_low, has_high = (labels < low).any(), (labels > high).any()
            # A side without a label between the median and its fence keeps the fence.
            lowest, highest = labels[labels >= low].min(), labels[labels <= high].max()
            low, high = lowest if lowest < median else low, highest if highest > median else high
        else:
            below, above = labels[labels < median], labels[labels > median]
            has_low, has_high = below.size > 0, above.size > 0
            low = np.percentile(below, 25) if has_low else low
            high = np.percentile(above, 75) if has_high else high
        return cls([*([(low, 1.0)] if has_low else []), (median, 0.0), *([(high, 1.0)] if has_high else [])])

    def __call__(self, y: ArrayLike) -> Array:
        """Return the relevance of each label. (...) -> (...)"""
        labels, relevance = self.points.T
        at = np.clip(np.asarray(y, np.float64), labels[0], labels[-1])
        if labels.size == 1:
            return np.where(np.isnan(at), np.nan, relevance[0])
        left = np.clip(np.searchsorted(labels, at, side="right") - 1, 0, labels.size - 2)
        t = (at - labels[left]) / np.diff(labels)[left]
        rise = t * t * (3 - 2 * t)
        return np.asarray(np.clip(relevance[left] * (1 - rise) + relevance[left + 1] * rise, 0, 1))


Relevance = RelevanceFunction | Callable[[Array], ArrayLike] | ArrayLike | None
"""A function of the labels, control points, or None for the control points of a box plot."""


def relevance_of(labels: Array, relevance: Relevance) -> Array:
    """Return the relevance of each label, checked to lie between 0 and 1. (N,) -> (N,)"""
    if relevance is None:
        relevance = RelevanceFunction.from_labels(labels)
    elif not callable(relevance):
        relevance = RelevanceFunction(relevance)
    values = np.asarray(relevance(labels), np.float64)
    if values.shape != labels.shape:
        raise ValueError(
            f"relevance returned shape {values.shape} for {labels.size} labels: one number each is needed"
        )
    bad = ~((values >= 0) & (values <= 1))
    if bad.any():
        row = int(np.argmax(bad))
        raise ValueError(
            f"relevance must lie between 0 and 1, but it is {values[row]:g} for the label {labels[row]:g}"
        )
    return values
