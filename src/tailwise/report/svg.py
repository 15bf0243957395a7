"""Charts for an HTML page: SVG that takes the page's colours, scales with it and can be read aloud."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
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
_WIDTH = 4.8  # inches: text stays legible when the chart shrinks to the width of a phone


@dataclass(frozen=True)
class Chart:
    """A picture on a page: its heading, what to look for, and the SVG."""

    title: str
    text: str
    svg: str


@contextmanager
def page_style() -> Iterator[None]:
    """Draw in the style of a page: no background, and colours that `make_chart` replaces by the page's."""
    with rc_context(_STYLE):
        yield


def new_figure(height: float = 2.9) -> Axes:
    """Return Axes on a new figure that needs no display."""
    return Figure(figsize=(_WIDTH, height), layout="constrained").subplots()


def make_chart(name: str, ax: Axes, title: str, text: str, alt: str) -> Chart:
    """Return Axes as a chart of a page; `alt` says in words what they show. `name` must be unique there."""
    assert isinstance(ax.figure, Figure)
    if ax.get_legend() is not None:
        _move_legend_above(ax, room=0.85 * ax.figure.bbox.width)
    return Chart(title, text, _svg_element(ax.figure, name, alt))


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


def _svg_element(figure: Figure, name: str, alt: str) -> str:
    buffer = io.BytesIO()
    with rc_context({**_STYLE, "svg.hashsalt": name}):
        figure.savefig(
            buffer, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None}
        )
    text = buffer.getvalue().decode("utf-8")
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.S)
    # matplotlib gives the parts of every figure the same ids; on one page each needs its own.
    text = re.sub(r'\bid="([^"]+)"', rf'id="{name}-\1"', text)
    text = re.sub(r"url\(#([^)]+)\)", rf"url(#{name}-\1)", text)
    text = re.sub(r'href="#([^"]+)"', rf'href="#{name}-\1"', text)
    text = text.replace(INK, "currentColor").replace(PAPER, "var(--paper)")
    opening, rest = text.split(">", 1)
    opening = re.sub(r'\s(width|height)="[^"]*"', "", opening)
    return f'{opening} role="img" aria-label="{escape(alt, quote=True)}" class="chart">{rest}'
