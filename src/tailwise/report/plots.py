"""Charts on matplotlib Axes: each function draws on the given Axes, or on new ones, and returns them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter
from numpy.typing import ArrayLike

from tailwise.calibration.interval_scores import wilson_interval
from tailwise.labels.bins import LabelBins
from tailwise.metrics.regions import REGIONS
from tailwise.metrics.scores import Sparsification

# Okabe and Ito's palette: readers with any colour vision can tell these colours apart.
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
STYLES = ("-", "--", "-.", ":")
MARKERS = ("o", "s", "^", "D", "v", "P")
REGION_HATCH = {"many": "", "medium": "///", "few": "xx"}
REGION_COLOR = {"many": "#0072B2", "medium": "#56B4E9", "few": "#E69F00"}
POINT_COLOR = {"many": "#56B4E9", "medium": "#0072B2", "few": "#D55E00"}
# A page replaces these two by its own colours, so that a chart follows it from light to dark.
INK, PAPER = "#1c1c1e", "#fefefe"
_WIDE = 10_000
MAX_POINTS = 300
"""`predicted_vs_true` draws no more rows than this unless told otherwise."""


def new_axes(ax: Axes | None = None, size: tuple[float, float] = (7.0, 3.2)) -> Axes:
    """Return the given Axes, or new ones on a figure that needs no display."""
    return ax if ax is not None else Figure(figsize=size, layout="constrained").subplots()


def _line_style(place: int) -> dict[str, Any]:
    """Return colour, line style and marker of the n-th line: lines differ without colour too."""
    return {
        "color": COLORS[place % len(COLORS)],
        "linestyle": STYLES[place % len(STYLES)],
        "marker": MARKERS[place % len(MARKERS)],
        "markersize": 4,
    }


def _plain_text(text: str) -> str:
    """Escape dollar signs: matplotlib reads the text between two of them as a formula."""
    return text.replace("$", r"\$")


def _log_scale(ax: Axes, low: float, high: float) -> None:
    """Set a log scale with plain numbers instead of powers of ten."""
    ax.set(yscale="log", ylim=(low, high))
    steps = (1.0,) if high > 100 * low else (1.0, 2.0, 5.0)
    ax.yaxis.set_major_locator(LogLocator(subs=steps))
    ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))
    ax.yaxis.set_minor_formatter(NullFormatter())


def _from_zero(ax: Axes) -> None:
    """Start the scale at zero and end it above the highest marker."""
    top = float(ax.dataLim.ymax)
    ax.set_ylim(0, 1.08 * top if 0 < top < np.inf else 1)


def _wide_numbers(ax: Axes) -> None:
    """Keep the ticks of numbers with six digits and more apart."""
    if max(map(abs, ax.get_xlim())) >= _WIDE:
        ax.locator_params(axis="x", nbins=4)
        ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.7g}"))


def label_histogram(
    bins: LabelBins, ax: Axes | None = None, *, label: str = "label", many: int = 100, few: int = 20
) -> Axes:
    """Draw how many training labels each bin holds, by region, on a log scale."""
    ax = new_axes(ax)
    regions = bins.regions(many, few)
    for region, color in REGION_COLOR.items():
        chosen = (regions == region) & (bins.counts > 0)
        if not chosen.any():
            continue
        ax.bar(
            bins.centers[chosen],
            bins.counts[chosen],
            width=np.diff(bins.edges)[chosen],
            color=color,
            hatch=REGION_HATCH[region],
            edgecolor=PAPER,
            linewidth=0.5,
            label=f"{region}-shot",
        )
    ax.set(xlabel=_plain_text(label), ylabel="training rows")
    _log_scale(ax, 0.6, 1.3 * int(bins.counts.max()))  # from below 1, so that a bin with one row shows
    _wide_numbers(ax)
    ax.legend(frameon=False)
    return ax


def by_region_bars(
    tables: Mapping[str, pd.DataFrame],
    metric: str,
    ax: Axes | None = None,
    *,
    regions: Sequence[str] = REGIONS[1:],
    target: float | None = None,
    spread: Mapping[str, Any] | None = None,
) -> Axes:
    """Draw a metric by region as groups of bars, one bar per method, with an optional target line.

    Each table has a row for each region and columns ``n`` and the metric. `spread` holds the error bars of
    each method: half-widths, (R,), or the lengths below and above the bar, (2, R).
    """
    ax = new_axes(ax)
    width = 0.8 / len(tables)
    for place, (name, table) in enumerate(tables.items()):
        where = np.arange(len(regions)) + (place - (len(tables) - 1) / 2) * width
        ax.bar(
            where,
            table.loc[list(regions), metric],
            width,
            yerr=None if spread is None else spread[name],
            color=COLORS[place % len(COLORS)],
            hatch=("", "//", "xx", "..")[place % 4],
            edgecolor=PAPER,
            ecolor=INK,
            error_kw={"elinewidth": 1, "capsize": 2},
            label=_plain_text(name),
        )
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
    rows = next(iter(tables.values())).loc[list(regions), "n"]
    ax.set_xticks(
        np.arange(len(regions)), [f"{r}-shot\n{int(n):,} rows" for r, n in zip(regions, rows, strict=True)]
    )
    ax.set_ylabel(metric.replace("_", " "))
    ax.margins(y=0.2)
    ax.legend(frameon=False, loc="upper center", ncols=len(tables))
    return ax


def shade_regions(bins: LabelBins, ax: Axes, *, many: int = 100, few: int = 20) -> Axes:
    """Shade the label ranges that have few training rows, behind everything else."""
    regions, start = bins.regions(many, few), None
    name: str | None = "few-shot labels"
    for place in range(len(bins) + 1):
        rare = place < len(bins) and regions[place] == "few"
        if rare and start is None:
            start = bins.edges[place]
        if not rare and start is not None:
            ax.axvspan(
                start, bins.edges[place], color=REGION_COLOR["few"], alpha=0.16, lw=0, label=name, zorder=0
            )
            start, name = None, None
    return ax


def error_by_label(
    curves: Mapping[str, pd.DataFrame],
    ax: Axes | None = None,
    *,
    bins: LabelBins | None = None,
    label: str = "label",
    many: int = 100,
    few: int = 20,
) -> Axes:
    """Draw mean absolute error along the label, one line per method, few-shot ranges shaded.

    Each table has columns ``center`` and ``mae``, as that of `tailwise.metrics.by_bin` or of
    `tailwise.report.scores.Scores.along_label`, which pools bins with few test rows.
    """
    ax = new_axes(ax)
    for place, (name, table) in enumerate(curves.items()):
        ax.plot(table["center"], table["mae"], label=_plain_text(name), **_line_style(place))
    if bins is not None:
        shade_regions(bins, ax, many=many, few=few)
    ax.set(xlabel=_plain_text(label), ylabel="mean absolute error")
    _from_zero(ax)
    _wide_numbers(ax)
    ax.legend(frameon=False)
    return ax


def predicted_vs_true(
    y: ArrayLike,
    prediction: ArrayLike,
    lower: ArrayLike | None = None,
    upper: ArrayLike | None = None,
    region: ArrayLike | None = None,
    ax: Axes | None = None,
    *,
    label: str = "label",
    shown: int = MAX_POINTS,
) -> Axes:
    """Draw predicted against true labels with intervals, at most `shown` rows, rare labels first. (N,) each

    Each region may use an equal part of `shown`, plus what rarer regions do not use. The rows drawn of a
    larger region are spread evenly over its labels.
    """
    ax = new_axes(ax, (7.0, 4.6))
    truth, mean = np.asarray(y, np.float64), np.asarray(prediction, np.float64)
    names = np.full(truth.size, "many") if region is None else np.asarray(region)
    room, present = shown, [name for name in REGIONS[:0:-1] if (names == name).any()]
    drawn = {}
    for place, name in enumerate(present):
        rows = np.flatnonzero(names == name)
        rows = rows[np.argsort(truth[rows], kind="stable")]
        count = min(rows.size, room // (len(present) - place))
        drawn[name] = rows[np.linspace(0, rows.size - 1, count).astype(np.int64)]
        room -= count
    for place, name in enumerate(REGIONS[1:]):
        if name not in drawn:
            continue
        rows = drawn[name]
        ends = None
        if lower is not None and upper is not None:
            low, high = np.asarray(lower)[rows], np.asarray(upper)[rows]
            ends = np.maximum(np.stack([mean[rows] - low, high - mean[rows]]), 0)
        ax.errorbar(
            truth[rows],
            mean[rows],
            yerr=ends,
            fmt=MARKERS[place],
            color=POINT_COLOR[name],
            markersize=4,
            elinewidth=0.7,
            alpha=0.75,
            label=f"{name}-shot" if region is not None else None,
            zorder=2 + place,
        )
    diagonal = [float(truth.min()), float(truth.max())]
    ax.plot(diagonal, diagonal, color=INK, linewidth=1, linestyle="--", label="perfect", zorder=1)
    ax.set(xlabel=f"true {_plain_text(label)}", ylabel=f"predicted {_plain_text(label)}")
    ax.locator_params(axis="x", nbins=4)  # large labels are wide numbers
    for axis in (ax.xaxis, ax.yaxis):  # a power of ten beside the axis would lie below the legend
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.7g}"))
    ax.legend(frameon=False)
    return ax


def coverage_by_region(
    tables: Mapping[str, pd.DataFrame],
    ax: Axes | None = None,
    *,
    level: float = 0.9,
    regions: Sequence[str] = REGIONS[1:],
) -> Axes:
    """Draw the share of intervals that contain the label, by region, with 95% ranges of the share.

    Each table has a row for each region and columns ``n`` and ``coverage``.
    """
    spread = {}
    for name, table in tables.items():
        part = table.loc[list(regions)]
        n, share = part["n"].to_numpy(), part["coverage"].to_numpy(np.float64)
        hits = np.nan_to_num(share * n).round().astype(int)
        ends = np.array([wilson_interval(int(k), int(m)) for k, m in zip(hits, n, strict=True)])
        spread[name] = np.abs(ends.T - share)
    ax = by_region_bars(tables, "coverage", ax, regions=regions, target=level, spread=spread)
    ax.set(
        ylabel=f"share of {100 * level:.4g}% intervals\nthat contain the label",
        ylim=(0, 1.25),
        yticks=np.linspace(0, 1, 6),
    )
    return ax


def width_by_region(
    tables: Mapping[str, pd.DataFrame],
    ax: Axes | None = None,
    *,
    level: float = 0.9,
    regions: Sequence[str] = REGIONS[1:],
) -> Axes:
    """Draw the mean width of the intervals by region. Each table has columns ``n`` and ``width``."""
    ax = by_region_bars(tables, "width", ax, regions=regions)
    ax.set(ylabel=f"mean width of {100 * level:.4g}% intervals")
    return ax


def sparsification_curves(curves: Mapping[str, Sparsification], ax: Axes | None = None) -> Axes:
    """Draw the error of the remaining rows as the least certain are removed, and as the worst are."""
    ax = new_axes(ax)
    for place, (name, curve) in enumerate(curves.items()):
        color, style, title = COLORS[place % len(COLORS)], STYLES[place % len(STYLES)], _plain_text(name)
        ax.plot(curve.removed, curve.error, style, color=color, label=f"{title}, by its std")
        ax.plot(
            curve.removed, curve.oracle, ":", color=color, linewidth=1, label=f"{title}, by its true error"
        )
    ax.set(xlabel="share of rows removed, least certain first", ylabel="mean absolute error of the rest")
    _from_zero(ax)
    ax.legend(frameon=False)
    return ax


def reliability_diagram(curves: Mapping[str, ArrayLike], levels: ArrayLike, ax: Axes | None = None) -> Axes:
    """Draw the share of intervals that contain the label against the promised share.

    Below the diagonal intervals are too narrow. `levels` and each curve: (L,)
    """
    ax = new_axes(ax, (7.0, 4.2))
    ax.plot([0, 1], [0, 1], color=INK, linewidth=1, linestyle=(0, (1, 2)), label="perfect")
    for place, (name, shares) in enumerate(curves.items()):
        ax.plot(np.asarray(levels), np.asarray(shares), label=_plain_text(name), **_line_style(place))
    ax.set(
        xlabel="promised share",
        ylabel="share of intervals that contain the label",
        xlim=(0, 1),
        ylim=(0, 1.02),
    )
    ax.legend(frameon=False)
    return ax


def variance_parts(
    table: pd.DataFrame,
    ax: Axes | None = None,
    *,
    bins: LabelBins | None = None,
    label: str = "label",
    many: int = 100,
    few: int = 20,
) -> Axes:
    """Draw the two parts of the predicted standard deviation, and the error, along the label.

    The table has columns ``center``, ``aleatoric_std``, ``epistemic_std`` and ``mae``.
    """
    ax = new_axes(ax)
    shown = {
        "aleatoric_std": "aleatoric std (noise)",
        "epistemic_std": "epistemic std (not enough data)",
        "mae": "mean absolute error",
    }
    for place, (column, name) in enumerate(shown.items()):
        ax.plot(table["center"], table[column], label=name, **_line_style(place))
    if bins is not None:
        shade_regions(bins, ax, many=many, few=few)
    ax.set(xlabel=_plain_text(label), ylabel=f"in units of {_plain_text(label)}")
    _from_zero(ax)
    _wide_numbers(ax)
    ax.legend(frameon=False)
    return ax


def bin_weights(bins: LabelBins, weights: ArrayLike, ax: Axes | None = None, *, label: str = "label") -> Axes:
    """Draw the importance weight of each label bin; the average training row has weight 1. (B,)"""
    ax = new_axes(ax, (7.0, 2.6))
    values = np.asarray(weights, np.float64)
    ax.step(bins.centers, values, where="mid", color=COLORS[0])
    ax.axhline(1, color=INK, linestyle=":", linewidth=1)
    ax.set(xlabel=_plain_text(label), ylabel="weight of a row")
    _log_scale(ax, min(float(values.min()), 1.0) / 1.3, max(float(values.max()), 1.0) * 1.3)
    _wide_numbers(ax)
    return ax


def dial_curve(
    overall: ArrayLike,
    rare: ArrayLike,
    points: Mapping[str, tuple[float, float]],
    ax: Axes | None = None,
    *,
    title: str = "along the dial",
    ylabel: str = "error for rare labels",
) -> Axes:
    """Draw the error over all rows against the error for rare labels along the dial, and single points.

    The curve goes from emphasis 0 to emphasis 1; its ends are marked. overall, rare: (E,)
    """
    ax = new_axes(ax, (7.0, 4.2))
    x, y = np.asarray(overall, np.float64), np.asarray(rare, np.float64)
    ax.plot(x, y, label=_plain_text(title), color=COLORS[0], marker="o", markersize=3, linewidth=1.2)
    for place, (name, (across, up)) in enumerate(points.items(), start=1):
        style = {**_line_style(place), "linestyle": "none", "markersize": 8}
        ax.plot([across], [up], label=_plain_text(name), **style)
    for end, name in ((0, "0"), (-1, "1")):
        ax.annotate(name, (x[end], y[end]), xytext=(5, 4), textcoords="offset points", color=INK)
    ax.set(xlabel="mean absolute error, all rows", ylabel=ylabel)
    ax.locator_params(axis="x", nbins=6)  # large errors are wide numbers
    ax.margins(0.12)
    _wide_numbers(ax)
    ax.legend(frameon=False)
    return ax


def method_ranking(
    table: pd.DataFrame, ax: Axes | None = None, *, metric: str = "mean absolute error"
) -> Axes:
    """Draw methods from best to worst with error bars; lower is better.

    The index names the methods; column ``mean`` is the figure and ``half`` the half-width of its error bar.
    """
    ordered = table.sort_values("mean", ascending=False, kind="stable")
    ax = new_axes(ax, (4.8, 1.0 + 0.3 * len(ordered)))
    where = np.arange(len(ordered))
    ax.errorbar(ordered["mean"], where, xerr=ordered["half"].fillna(0.0), fmt="o", color=COLORS[0], capsize=3)
    ax.set_yticks(where, [str(name) for name in ordered.index])
    ax.set(xlabel=metric, ylim=(-0.6, len(ordered) - 0.4))
    _wide_numbers(ax)
    ax.grid(axis="y", color="0.5", alpha=0.25)
    return ax


def importance_bars(table: pd.DataFrame, ax: Axes | None = None, *, most: int = 10) -> Axes:
    """Draw how much columns matter, most important for rare labels at the top, with their spread.

    The table is one measure of `tailwise.explanations.importance`.
    """
    groups = [name for name in ("all", "rare") if (table["labels"] == name).any()]
    order = table[table["labels"] == groups[-1]]["column"].head(most)
    ax = new_axes(ax, (6.0, 1.2 + 0.34 * len(order)))
    height = 0.8 / len(groups)
    for place, name in enumerate(groups):
        shown = table[table["labels"] == name].set_index("column").loc[order]
        ax.barh(
            np.arange(len(order)) + (place - (len(groups) - 1) / 2) * height,
            shown["importance"],
            height,
            xerr=shown["spread"],
            color=COLORS[place],
            hatch=("", "//")[place],
            edgecolor=PAPER,
            ecolor=INK,
            error_kw={"elinewidth": 1, "capsize": 2},
            label=f"{name} labels",
        )
    ax.axvline(0, color=INK, linewidth=0.8)
    ax.set_yticks(np.arange(len(order)), [_plain_text(name) for name in order])
    ax.invert_yaxis()
    changes = {"error": "increase of the mean absolute error", "crps": "increase of the mean CRPS"}
    measure = str(table["measure"].iloc[0])
    ax.set_xlabel(changes.get(measure, f"mean absolute change of the {measure}") + " if shuffled")
    ax.legend(frameon=False)
    return ax


def dependence_curve(
    table: pd.DataFrame, ax: Axes | None = None, *, column: str = "value", label: str = "prediction"
) -> Axes:
    """Draw the mean prediction and the mean interval along a column, as of `partial_dependence`."""
    ax = new_axes(ax)
    along = table["value"]
    if not (pd.api.types.is_numeric_dtype(along) or pd.api.types.is_datetime64_any_dtype(along)):
        ax.set_xticks(np.arange(len(along)), [_plain_text(str(value)) for value in along], rotation=30)
        along = pd.Series(np.arange(len(along)))
    ax.fill_between(
        along, table["lower"], table["upper"], color=COLORS[0], alpha=0.18, lw=0, label="interval"
    )
    ax.plot(along, table["prediction"], label="prediction", **_line_style(0))
    ax.set(xlabel=_plain_text(column), ylabel=_plain_text(label))
    ax.legend(frameon=False)
    return ax
