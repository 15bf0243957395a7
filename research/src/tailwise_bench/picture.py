"""A picture of a suite: each contender's error for common labels against its error for rare labels."""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure as Canvas

from tailwise.report.displays import COLORS
from tailwise.writing import write_atomically
from tailwise_bench.statistics import Figure, Results


def write_picture(results: Results, out: Path, base: str = "vanilla") -> Path:
    """Write an SVG of the MAE for many-shot and few-shot labels, divided by the base's; squares have VIR."""
    regions = [Figure("mae", region) for region in ("many", "few")]
    places = np.array([[results.relative(of, m, base) for of in regions] for m in results.methods])
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": out.stem, "font.size": 9}):
        canvas = Canvas(figsize=(7.4, 4.6), layout="constrained")
        axes = canvas.subplots()
        axes.axhline(1, color="0.8", linewidth=0.8)
        axes.axvline(1, color="0.8", linewidth=0.8)
        for method, place in zip(results.methods, places, strict=True):
            ours = method.partition("-")[0] == "vir"
            axes.plot(*place, "s" if ours else "o", color=COLORS[int(ours)], markersize=5)
            right, apart = ((places - place) / np.ptp(places, 0)).T
            # A name stands on the left of its point if another point is where it would begin.
            left = ((right > 0) & (right < 0.2) & (abs(apart) < 0.025)).any() or place[0] == places[
                :, 0
            ].max()
            axes.annotate(
                results.titles[method], place, (-6 if left else 6, 0), textcoords="offset points",
                ha="right" if left else "left", va="center", size=8,
            )  # fmt: skip
        axes.set_xlabel("MAE of common labels, divided by the plain network's")
        axes.set_ylabel("MAE of rare labels, divided by the plain network's")
        axes.spines[["top", "right"]].set_visible(False)
        unnamed = {"Date": None, "Creator": None}
        write_atomically(out, lambda part: canvas.savefig(part, format="svg", metadata=unnamed))
    return out
