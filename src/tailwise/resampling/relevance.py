"""Relevance of a label, from 0 to 1. SmoteR and SMOGN resample by it.

Torgo and Ribeiro, Utility-based regression, PKDD 2007. Written from the paper.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tailwise.labels.bins import checked_labels

Array = NDArray[np.float64]
FENCE = 1.5
"""The fences of a box plot lie this many interquartile ranges beyond the quartiles."""


@dataclass(frozen=True, eq=False)
class RelevanceFunction:
    """How much each label matters, from 0 to 1: a monotone cubic between control points.

    A control point is (label, relevance), and labels increase. Between two of them relevance rises or falls
    by the cubic Hermite polynomial that is flat at both. Beyond the first and the last point it is constant.

    >>> relevance = RelevanceFunction(np.array([[0.0, 0.0], [10.0, 1.0]]))
    >>> relevance([-5, 0, 2.5, 5, 10, 99])
    array([0.     , 0.     , 0.15625, 0.5    , 1.     , 1.     ])
    """

    points: Array  # (P, 2): label, relevance

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
        ends = ([(low, 1.0)] if has_low else []), ([(high, 1.0)] if has_high else [])
        return cls(np.array([*ends[0], (median, 0.0), *ends[1]]))

    def __call__(self, y: ArrayLike) -> Array:
        """Return the relevance of each label. (...) -> (...)"""
        labels, relevance = self.points.T
        at = np.clip(np.asarray(y, np.float64), labels[0], labels[-1])
        if labels.size == 1:
            return np.full_like(at, relevance[0])
        left = np.clip(np.searchsorted(labels, at, side="right") - 1, 0, labels.size - 2)
        t = (at - labels[left]) / np.diff(labels)[left]
        rise = t * t * (3 - 2 * t)
        return np.asarray(np.clip(relevance[left] * (1 - rise) + relevance[left + 1] * rise, 0, 1))
