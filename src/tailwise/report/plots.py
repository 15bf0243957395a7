"""What charts share: colours, plain numbers on axes, drawings of several displays, SVG for a page."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter
from numpy.typing import ArrayLike

from tailwise.labels.bins import LabelBins
from tailwise.metrics.regions import REGIONS

# Okabe and Ito's palette: readers with any colour vision can tell these colours apart.
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
MARKERS = ("o", "s", "^", "D", "v", "P")
RARE_COLOR = "#E69F00"
_STYLES = ("-", "--", "-.", ":")
_REGION_BARS = {"many": ("#0072B2", ""), "medium": ("#56B4E9", "///"), "few": (RARE_COLOR, "xx")}
# A page replaces these two by its own colours, so that a chart follows it from light to dark.
INK, PAPER = "#1c1c1e", "#fefefe"
_WIDE = 10_000
_SVG = "http://www.w3.org/2000/svg"
_LINK = "{http://www.w3.org/1999/xlink}href"

Curves = Mapping[str, tuple[ArrayLike, ArrayLike]]
"""Where the points of each line lie, by the line's name."""


# -- axes ------------------------------------------------------------------------------------------


def new_axes(ax: Axes | None = None, size: tuple[float, float] = (7.0, 3.2)) -> Axes:
    """Return the given Axes, or new ones on a figure that needs no display."""
    return ax if ax is not None else Figure(figsize=size, layout="constrained").subplots()


def plain_text(text: str) -> str:
    """Escape dollar signs: matplotlib reads the text between two of them as a formula."""
    return text.replace("$", r"\$")


def line_style(place: int) -> dict[str, Any]:
    """Return colour, line style and marker of the n-th line: lines differ without colour too."""
    return {
        "color": COLORS[place % len(COLORS)],
        "linestyle": _STYLES[place % len(_STYLES)],
        "marker": MARKERS[place % len(MARKERS)],
        "markersize": 4,
    }


def bar_style(place: int) -> dict[str, Any]:
    """Return colour, hatching and error bars of the n-th group of bars."""
    return {
        "color": COLORS[place % len(COLORS)],
        "hatch": ("", "//", "xx", "..")[place % 4],
        "edgecolor": PAPER,
        "ecolor": INK,
        "error_kw": {"elinewidth": 1, "capsize": 2},
    }


def name_axes(ax: Axes, x: str, y: str) -> None:
    """Name the axes, and show a legend if something has a name."""
    ax.set(xlabel=plain_text(x), ylabel=plain_text(y))
    if ax.get_legend_handles_labels()[1]:
        ax.legend(frameon=False)


def plain_numbers(ax: Axes, bins: int = 4) -> None:
    """Write large numbers of the axes without powers of ten, and keep those of the x axis apart."""
    for axis, ends in ((ax.xaxis, ax.get_xlim()), (ax.yaxis, ax.get_ylim())):
        if max(map(abs, ends)) >= _WIDE and axis.get_scale() == "linear":
            axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.7g}"))
    if max(map(abs, ax.get_xlim())) >= _WIDE:
        ax.locator_params(axis="x", nbins=bins)


def from_zero(ax: Axes) -> None:
    """Start the scale at zero and end it above the highest marker."""
    top = float(ax.dataLim.ymax)
    ax.set_ylim(0, 1.08 * top if 0 < top < np.inf else 1)


def log_scale(ax: Axes, low: float, high: float) -> None:
    """Set a log scale with plain numbers instead of powers of ten."""
    ax.set(yscale="log", ylim=(low, high))
    ax.yaxis.set_major_locator(LogLocator(subs=(1.0,) if high > 100 * low else (1.0, 2.0, 5.0)))
    ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))
    ax.yaxis.set_minor_formatter(NullFormatter())


def draw_lines(ax: Axes, curves: Curves) -> None:
    """Draw lines with markers, each with a style of its own."""
    for place, (name, (x, y)) in enumerate(curves.items()):
        ax.plot(np.asarray(x), np.asarray(y), label=plain_text(name), **line_style(place))


# -- drawings that several charts use --------------------------------------------------------------


def label_histogram(
    bins: LabelBins, ax: Axes, *, label: str = "label", many: int = 100, few: int = 20
) -> Axes:
    """Draw how many training labels each bin holds, by region, on a log scale."""
    regions = bins.regions(many, few)
    for region, (color, hatch) in _REGION_BARS.items():
        rows = (regions == region) & (bins.counts > 0)
        if rows.any():
            ax.bar(
                bins.centers[rows],
                bins.counts[rows],
                width=np.diff(bins.edges)[rows],
                color=color,
                hatch=hatch,
                edgecolor=PAPER,
                linewidth=0.5,
                label=f"{region}-shot",
            )
    log_scale(ax, 0.6, 1.3 * int(bins.counts.max()))  # from below 1, so that a bin with one row shows
    plain_numbers(ax)
    name_axes(ax, label, "training rows")
    return ax


def shade_regions(bins: LabelBins, ax: Axes, *, many: int = 100, few: int = 20) -> None:
    """Shade the label ranges that have few training rows, behind everything else."""
    rare = np.concatenate([[False], bins.regions(many, few) == "few", [False]])
    starts, ends = np.flatnonzero(rare[1:] & ~rare[:-1]), np.flatnonzero(rare[:-1] & ~rare[1:])
    for place, (start, end) in enumerate(zip(bins.edges[starts], bins.edges[ends], strict=True)):
        name = "few-shot labels" if place == 0 else None
        ax.axvspan(start, end, color=RARE_COLOR, alpha=0.16, lw=0, label=name, zorder=0)


def error_by_label(
    curves: Mapping[str, pd.DataFrame],
    ax: Axes,
    *,
    bins: LabelBins | None = None,
    label: str = "label",
    **limits: int,
) -> Axes:
    """Draw the mean absolute error along the label; few-shot ranges of `bins` are shaded.

    Each table has columns ``center`` and ``mae``.
    """
    draw_lines(ax, {name: (table["center"], table["mae"]) for name, table in curves.items()})
    if bins is not None:
        shade_regions(bins, ax, **limits)
    from_zero(ax)
    plain_numbers(ax)
    name_axes(ax, label, "mean absolute error")
    return ax


def by_region_bars(
    tables: Mapping[str, pd.DataFrame],
    metric: str,
    ax: Axes,
    *,
    regions: Sequence[str] = REGIONS[1:],
    target: float | None = None,
    spread: Mapping[str, Any] | None = None,
) -> Axes:
    """Draw a metric by region as groups of bars, one bar per method, with an optional target line.

    Each table has a row for each region and columns ``n`` and the metric. `spread` holds the error bars of
    each method: half-widths, (R,), or the lengths below and above the bar, (2, R).
    """
    width = 0.8 / len(tables)
    for place, (name, table) in enumerate(tables.items()):
        where = np.arange(len(regions)) + (place - (len(tables) - 1) / 2) * width
        error = None if spread is None else spread[name]
        heights = table.loc[list(regions), metric]
        ax.bar(where, heights, width, yerr=error, label=plain_text(name), **bar_style(place))
    if target is not None:
        ax.axhline(target, color=INK, linestyle=":", linewidth=1.2)
        ax.annotate(  # beside the bars, because above the line it would hide those that reach it
            f"{100 * target:.4g}%\npromised",
            (1.01, target),
            xycoords=("axes fraction", "data"),
            ha="left",
            va="center",
            annotation_clip=False,
        )
    plain_numbers(ax)
    rows = next(iter(tables.values())).loc[list(regions), "n"]
    names = [f"{r}-shot\n{int(n):,} rows" for r, n in zip(regions, rows, strict=True)]
    ax.set_xticks(np.arange(len(regions)), names)
    ax.set_ylabel(metric.replace("_", " "))
    ax.margins(y=0.2)
    ax.legend(frameon=False, loc="upper center", ncols=len(tables))
    return ax


# -- on a page -------------------------------------------------------------------------------------


def svg_element(ax: Axes, name: str, alt: str) -> str:
    """Return the figure of Axes as an SVG element of a page; `name` must be unique there."""
    figure = ax.figure
    assert isinstance(figure, Figure)
    if ax.get_legend() is not None:
        _move_legend_above(ax, room=0.85 * figure.bbox.width)
    buffer, unnamed = io.BytesIO(), dict.fromkeys(("Date", "Creator", "Format", "Type"))
    figure.savefig(buffer, format="svg", metadata=unnamed)
    ElementTree.register_namespace("", _SVG)
    ElementTree.register_namespace("xlink", "http://www.w3.org/1999/xlink")
    root = ElementTree.fromstring(buffer.getvalue())
    for metadata in root.findall(f"{{{_SVG}}}metadata"):
        root.remove(metadata)
    for element in root.iter():
        for key, value in element.attrib.items():
            # matplotlib gives the parts of every figure the same ids; on one page each needs its own.
            if key == "id":
                value = f"{name}-{value}"
            elif key == _LINK:
                value = value.replace("#", f"#{name}-", 1)
            value = value.replace("url(#", f"url(#{name}-")
            element.set(key, value.replace(INK, "currentColor").replace(PAPER, "var(--paper)"))
    for key in ("width", "height"):
        del root.attrib[key]
    root.attrib |= {"role": "img", "aria-label": alt, "class": "chart"}
    return ElementTree.tostring(root, encoding="unicode")


def _move_legend_above(ax: Axes, room: float) -> None:
    """Put the legend above the chart, where it hides nothing, in as few lines as fit into `room`."""
    handles, labels = ax.get_legend_handles_labels()
    for columns in range(len(labels), 0, -1):
        legend = ax.legend(
            handles, labels, frameon=False, loc="lower left", bbox_to_anchor=(0, 1), ncols=columns,
            borderaxespad=0.2,
        )  # fmt: skip
        if legend.get_window_extent().width <= room:
            return
