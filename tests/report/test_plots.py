"""Charts on matplotlib Axes."""

from collections.abc import Callable
from html import unescape
from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
from matplotlib import rc_context
from matplotlib.axes import Axes

from tailwise import diagnose
from tailwise.labels.bins import LabelBins
from tailwise.report import plots
from tailwise.report.displays import RankingDisplay, svg_element

BINS = LabelBins.from_labels(np.repeat(np.arange(6.0), [300, 200, 120, 60, 10, 5]))


def regions(n: int = 20) -> pd.DataFrame:
    index = pd.Index(["all", "many", "medium", "few"], name="region")
    return pd.DataFrame({"n": n, "coverage": 0.9, "width": 2.0, "mae": 1.0}, index=index)


def curve() -> pd.DataFrame:
    return pd.DataFrame({"center": [0.0, 1, 5], "mae": [1.0, 2, 3]})


def axes() -> Axes:
    return plots.new_axes(size=(4.8, 4.0))


@pytest.mark.parametrize(
    "draw",
    [
        lambda name: plots.label_histogram(BINS, axes(), label=name),
        lambda name: plots.error_by_label({name: curve()}, axes(), bins=BINS, label=name),
        lambda name: plots.by_region_bars({name: regions()}, "coverage", axes()),
        lambda name: diagnose(np.arange(30.0)).plot(label=name),
    ],
)
def test_dollars_in_names_are_no_formulas(draw: Callable[[str], Axes]) -> None:
    name = r"price ($\fraq) in $"
    with rc_context({"svg.fonttype": "none"}):
        assert name in unescape(svg_element(draw(name), "a", ""))


def test_a_bin_with_one_row_can_be_seen_on_a_scale_of_plain_numbers() -> None:
    one = LabelBins.from_labels(np.repeat([0.0, 1.0, 2.0], [4, 1, 2]))
    ax = plots.label_histogram(one, axes())
    low, high = ax.get_ylim()
    assert low < 0.8 and high > 4
    shown = [text.get_text() for text in ax.get_yticklabels() if low <= text.get_position()[1] <= high]
    assert shown == ["1", "2", "5"]
    shown = [text.get_text() for text in plots.label_histogram(BINS, axes()).get_yticklabels()]
    assert {"1", "10", "100"} <= set(shown) and not any("$" in text for text in shown)


LARGE = LabelBins.from_labels(np.linspace(260_000, 1_100_000, 300))
POINTS = pd.DataFrame({"center": [260_000.0, 1_100_000], "mae": 1.0}).assign(
    mean=lambda table: table["center"], half=0.0
)


@pytest.mark.parametrize(
    "draw",
    [
        lambda ax: plots.label_histogram(LARGE, ax),
        lambda ax: plots.error_by_label({"a": POINTS}, ax, bins=LARGE),
        lambda ax: RankingDisplay(POINTS, "a", "error, all", "b").plot(ax).ax_,
    ],
)
def test_ticks_of_large_numbers_do_not_overlap(draw: Callable[[Axes], Axes]) -> None:
    ax = draw(axes())
    ax.figure.draw_without_rendering()
    low, high = ax.get_xlim()
    ticks = [t for t in ax.get_xticklabels() if t.get_text() and low <= t.get_position()[0] <= high]
    boxes = [tick.get_window_extent() for tick in ticks]
    assert len(ticks) > 1 and all(left.x1 + 3 < right.x0 for left, right in pairwise(boxes))
    assert not ax.xaxis.get_offset_text().get_text()


def test_only_few_shot_ranges_are_shaded_and_named_once() -> None:
    ends = LabelBins.from_labels(np.repeat(np.arange(5.0), [3, 200, 50, 200, 3]))
    ax = plots.error_by_label({"a": curve()}, axes(), bins=ends)
    shaded = [patch.get_x() for patch in ax.patches], [patch.get_width() for patch in ax.patches]
    assert shaded == ([-0.5, 3.5], [1.0, 1.0])
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["a", "few-shot labels"]
