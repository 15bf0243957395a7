"""Charts inside a page: SVG that takes the page's colours, scales with it and can be read aloud."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from contextlib import contextmanager
from html import escape
from typing import Any

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from tailwise.report.plots import INK, PAPER

_STYLE: Any = {
    "svg.fonttype": "none",  # text stays text: small, sharp, and found by a search
    "font.family": ["sans-serif"],
    "font.size": 9.5,
    "legend.fontsize": 8.5,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "savefig.facecolor": "none",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "hatch.linewidth": 0.6,
    "path.simplify": True,
    **dict.fromkeys(("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color"), INK),
}


@contextmanager
def page_style() -> Iterator[None]:
    """Draw charts for a page: no background, ink and paper in colours that `inline` exchanges."""
    with rc_context(_STYLE):
        yield


WIDTH = 4.8
"""Inches: a chart shrinks to a phone, and its words have to stay legible."""


def new_figure(height: float = 2.9) -> Axes:
    """Axes on a fresh figure that needs no display."""
    return Figure(figsize=(WIDTH, height), layout="constrained").subplots()


def legend_above(ax: Axes) -> None:
    """Put the legend above the chart, where it hides nothing, in as few lines as there is room for."""
    handles, labels = ax.get_legend_handles_labels()
    if ax.get_legend() is None or not isinstance(ax.figure, Figure):
        return
    room = 0.85 * ax.figure.bbox.width
    for columns in range(len(labels), 0, -1):
        legend = ax.legend(
            handles, labels, frameon=False, loc="lower left", bbox_to_anchor=(0, 1), ncols=columns,
            borderaxespad=0.2,
        )  # fmt: skip
        if legend.get_window_extent().width <= room:
            return


def inline(figure: Figure, name: str, alt: str) -> str:
    """Return a figure as an SVG element to be put into a page; `alt` says in words what it shows."""
    buffer = io.BytesIO()
    with rc_context({**_STYLE, "svg.hashsalt": name}):
        figure.savefig(
            buffer, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None}
        )
    text = buffer.getvalue().decode("utf-8")
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.S)
    # Names of parts are the same in every figure; on one page each needs its own.
    text = re.sub(r'\bid="([^"]+)"', rf'id="{name}-\1"', text)
    text = re.sub(r"url\(#([^)]+)\)", rf"url(#{name}-\1)", text)
    text = re.sub(r'href="#([^"]+)"', rf'href="#{name}-\1"', text)
    text = text.replace(INK, "currentColor").replace(PAPER, "var(--paper)")
    opening, rest = text.split(">", 1)
    opening = re.sub(r'\s(width|height)="[^"]*"', "", opening)
    spoken = escape(alt, quote=True)
    return f'{opening} role="img" aria-label="{spoken}" class="chart">{rest}'
