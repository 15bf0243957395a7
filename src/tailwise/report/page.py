"""The self-contained HTML page: one file, no network, light and dark."""

from __future__ import annotations

import base64
import io
from typing import TYPE_CHECKING

from jinja2 import Environment, PackageLoader, StrictUndefined

from tailwise._version import __version__
from tailwise.methods import get_method

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from tailwise.demo import DemoResult


def embedded(figure: Figure) -> str:
    """Return a figure as a PNG data address, to be put into an `img` element."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=110)
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode("ascii")


def demo_page(result: DemoResult, figure: Figure, verdict: str) -> str:
    """Return the page of the demonstration."""
    environment = Environment(
        loader=PackageLoader("tailwise.report"), autoescape=True, undefined=StrictUndefined
    )
    names = result.methods()
    return environment.get_template("demo.html").render(
        version=__version__,
        verdict=verdict,
        picture=embedded(figure),
        sizes=result.sizes,
        bins=result.bins.explain(),
        seeds=len({run.seed for run in result.runs}),
        regions=["all", "many", "medium", "few"],
        metrics=["mae", "gm", "nll", "ause", "coverage"],
        methods=[
            {
                "title": get_method(n).title,
                "about": get_method(n).about,
                "mean": result.mean(n),
                "spread": result.spread(n),
            }
            for n in names
        ],
    )
