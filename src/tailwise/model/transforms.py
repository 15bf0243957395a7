"""Which transform of the labels a model is fitted on (`tailwise.distributions.transform`)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from tailwise.calibration.calibration import latent_bins
from tailwise.distributions.transform import AnyTransform, Identity, Log, Tabulated, Transform, YeoJohnson
from tailwise.labels.bins import LabelBins, LabelSummary
from tailwise.lookup import nearest
from tailwise.model.base import Base

Floats = NDArray[np.float64]

NAMES = ("auto", "log", "yeo-johnson")
SKEWED = 1.0
"""Labels of this skewness or more are candidates for a logarithm."""


def check_transform(asked: Any) -> None:
    """Raise an error for a `target_transform` that is none."""
    if isinstance(asked, str):
        if asked not in NAMES:
            raise ValueError(f"unknown target_transform {asked!r}{nearest(asked, NAMES)}, or None")
    elif asked is not None and (isinstance(asked, type) or not hasattr(asked, "inverse_transform")):
        raise TypeError(
            "target_transform must be 'auto', 'log', 'yeo-johnson', a scikit-learn transformer with "
            f"inverse_transform, or None, not {asked!r:.80}"
        )


def candidates(asked: Any, labels: Floats) -> list[AnyTransform]:
    """Return the transforms to choose from for the labels of a target; several only for ``"auto"``. (N,)"""
    if asked is None or labels.min() == labels.max():
        return [Identity()]
    if not isinstance(asked, str):
        return [Tabulated.of(asked, labels)]
    if asked == "auto":
        skewed = labels.min() >= 0 and stats.skew(labels / labels.max()) >= SKEWED
        return [Identity(), Log.of(labels)] if skewed else [Identity()]
    return [Log.of(labels) if asked == "log" else YeoJohnson.of(labels)]


def chosen_transforms(base: Base, choices: list[list[AnyTransform]]) -> list[AnyTransform]:
    """Return the transform of each target: that of its base, or the first to choose from without one."""
    return [fitted.transform for fitted in base.targets] or [choice[0] for choice in choices]


def bins_of(transform: Transform, labels: Floats, weight: ArrayLike | None, **bins: Any) -> LabelBins:
    """Return bins of labels that were chosen for latent labels; `bins` are options of `LabelBins`. (N,)"""
    if transform.is_identity or "edges" in bins:
        chosen = LabelBins.from_labels(labels, weight=weight, **bins)
        if (np.diff(latent_bins(chosen, transform).edges) <= 0).any():
            raise ValueError("several edges of bins lie beyond the labels that target_transform allows")
        return chosen
    return in_label_units(transform, LabelBins.from_labels(transform.latents(labels), weight=weight, **bins))


def in_label_units(transform: Transform, bins: LabelBins) -> LabelBins:
    """Return bins of latent labels as bins of labels."""
    if transform.is_identity:
        return bins
    edges = transform.labels(bins.edges)
    return LabelBins(edges, bins.counts, f"{len(bins)} bins of equal width after the target transform")


def bins_from_summary(transform: Transform, summary: LabelSummary, **bins: Any) -> LabelBins:
    """Return bins, without counts, as `bins_of` chooses them, of labels that do not fit in memory."""
    if transform.is_identity or "edges" in bins:
        return LabelBins.from_summary(summary, **bins)
    low, high = transform.latents(np.array([summary.low, summary.high]))
    values = None if summary.values is None else transform.latents(summary.values)
    latent = LabelSummary(summary.count, float(low), float(high), values, transform.latents(summary.sample))
    return in_label_units(transform, LabelBins.from_summary(latent, **bins))
