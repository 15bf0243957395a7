"""Plots on matplotlib Axes: each function takes Axes (or makes them) and returns them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from tailwise.labels import LabelBins

# Okabe and Ito's palette: told apart by readers with any colour vision, and by line style.
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
STYLES = ("-", "--", "-.", ":")
MARKERS = ("o", "s", "^", "D", "v", "P")
REGION_HATCH = {"many": "", "medium": "///", "few": "xx"}
REGION_COLOR = {"many": "#0072B2", "medium": "#56B4E9", "few": "#E69F00"}


def new_axes(ax: Axes | None = None, size: tuple[float, float] = (7.0, 3.2)) -> Axes:
    """Return the given Axes, or fresh ones on a figure that needs no display."""
    return ax if ax is not None else Figure(figsize=size, layout="constrained").subplots()


def label_histogram(bins: LabelBins, ax: Axes | None = None, *, label: str = "label") -> Axes:
    """Draw how many training labels each bin holds, by region, on a log scale."""
    ax = new_axes(ax)
    regions = bins.regions()
    for region, color in REGION_COLOR.items():
        chosen = (regions == region) & (bins.counts > 0)
        ax.bar(
            bins.centers[chosen],
            bins.counts[chosen],
            width=np.diff(bins.edges)[chosen],
            color=color,
            hatch=REGION_HATCH[region],
            edgecolor="white",
            linewidth=0.5,
            label=f"{region}-shot",
        )
    ax.set(yscale="log", xlabel=label, ylabel="training rows")
    ax.legend(frameon=False)
    return ax


def by_label(
    curves: Mapping[str, pd.DataFrame], metric: str = "mae", ax: Axes | None = None, *, label: str = "label"
) -> Axes:
    """Draw a metric along the label range, one line per method.

    Each table is what `tailwise.metrics.by_bin` returns: columns ``center`` and the metric.
    """
    ax = new_axes(ax)
    for place, (name, table) in enumerate(curves.items()):
        ax.plot(
            table["center"],
            table[metric],
            STYLES[place % len(STYLES)],
            color=COLORS[place % len(COLORS)],
            marker=MARKERS[place % len(MARKERS)],
            markersize=4,
            label=name,
        )
    ax.set(xlabel=label, ylabel=metric.replace("_", " "))
    ax.legend(frameon=False)
    return ax


def by_region_bars(
    tables: Mapping[str, pd.DataFrame],
    metric: str,
    ax: Axes | None = None,
    *,
    regions: Sequence[str] = ("many", "medium", "few"),
    target: float | None = None,
    spread: Mapping[str, pd.DataFrame] | None = None,
) -> Axes:
    """Draw a metric per region as groups of bars, one bar per method, with an optional target line."""
    ax = new_axes(ax)
    width = 0.8 / len(tables)
    for place, (name, table) in enumerate(tables.items()):
        where = np.arange(len(regions)) + (place - (len(tables) - 1) / 2) * width
        errors: Any = None if spread is None else spread[name].loc[list(regions), metric]
        ax.bar(
            where,
            table.loc[list(regions), metric],
            width,
            yerr=errors,
            color=COLORS[place % len(COLORS)],
            hatch=("", "//", "xx", "..")[place % 4],
            edgecolor="white",
            error_kw={"elinewidth": 1, "capsize": 2},
            label=name,
        )
    if target is not None:
        ax.axhline(target, color="0.3", linestyle=":", linewidth=1.2)
        ax.annotate(
            f"{target:g}", (0.995, target), xycoords=("axes fraction", "data"), ha="right", va="bottom"
        )
    ax.set_xticks(np.arange(len(regions)), [f"{r}-shot" for r in regions])
    ax.set_ylabel(metric.replace("_", " "))
    ax.margins(y=0.2)
    ax.legend(frameon=False, loc="upper center", ncols=len(tables))
    return ax
