"""Self-contained HTML: one file, no network, light and dark, for screen and paper."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from tailwise._version import __version__
from tailwise.report.formatting import number
from tailwise.report.svg import inline, legend_above


@dataclass(frozen=True)
class Chart:
    """A picture on a page: its heading, what to look for, and the SVG."""

    title: str
    text: str
    svg: str


def chart(name: str, ax: Axes, title: str, text: str, alt: str) -> Chart:
    """Put Axes on a page; `alt` says in words what they show."""
    assert isinstance(ax.figure, Figure)
    legend_above(ax)
    return Chart(title, text, inline(ax.figure, name, alt))


def render(template: str, **values: Any) -> str:
    """Fill a template; a name that it uses and nobody gave is an error."""
    environment = Environment(
        loader=PackageLoader("tailwise.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["number"] = lambda value: "–" if value is None or math.isnan(value) else number(value)
    environment.filters["percent"] = lambda value: "–" if math.isnan(value) else f"{100 * value:.1f}%"
    return environment.get_template(template).render(version=__version__, **values)
