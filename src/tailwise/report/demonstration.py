"""The page of the demonstration."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

import pandas as pd

from tailwise.core.labels import LabelBins
from tailwise.methods import get_method
from tailwise.report.html import render

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class DemoFigures(Protocol):
    """What the page of the demonstration reads of its result."""

    @property
    def bins(self) -> LabelBins:
        """Label bins of the first seed."""

    @property
    def sizes(self) -> dict[str, int]:
        """Rows of each part."""

    @property
    def runs(self) -> Sequence[Any]:
        """Finished runs, each with its seed."""

    def methods(self) -> list[str]:
        """Names of the methods."""

    def mean(self, method: str) -> pd.DataFrame:
        """Figures by region, averaged over seeds."""

    def spread(self, method: str) -> pd.DataFrame:
        """Their standard deviation over seeds."""


def embedded(figure: Figure) -> str:
    """Return a figure as a PNG data address, to be put into an `img` element."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=110)
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode("ascii")


def demo_page(result: DemoFigures, figure: Figure, verdict: str) -> str:
    """Return the page of the demonstration."""
    return render(
        "demo.html",
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
            for n in result.methods()
        ],
    )
