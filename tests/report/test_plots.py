"""Charts on matplotlib Axes."""

from collections.abc import Callable
from html import unescape
from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from tailwise import diagnose
from tailwise.labels.bins import LabelBins
from tailwise.report.displays import (
    LabelErrorDisplay,
    RankingDisplay,
    draw_bars,
    draw_errors,
    draw_histogram,
    svg_element,
)
from tests.report.made import scored

BINS = LabelBins.from_labels(np.repeat(np.arange(6.0), [300, 200, 120, 60, 10, 5]))


def curve() -> pd.DataFrame:
    return pd.DataFrame({"center": [0.0, 1, 5], "mae": [1.0, 2, 3]})


def axes() -> Axes:
    return Figure(figsize=(4.8, 4.0), layout="constrained").subplots()


@pytest.mark.parametrize(
    "draw",
    [
        lambda ax, name: draw_histogram(ax, BINS, name),
        lambda ax, name: draw_errors(ax, {name: curve()}, name),
        lambda ax, name: draw_bars(ax, {name: pd.DataFrame({"value": [1.0], "n": [3]}, ["few"])}, "error"),
        lambda ax, name: diagnose(np.arange(30.0)).plot(ax, label=name),
    ],
)
def test_dollars_in_names_are_no_formulas(draw: Callable[[Axes, str], object]) -> None:
    name, ax = r"price ($\fraq) in $", axes()
    with rc_context({"svg.fonttype": "none"}):
        draw(ax, name)
        assert name in unescape(svg_element(ax, "a", ""))


def test_a_bin_with_one_row_can_be_seen_on_a_scale_of_plain_numbers() -> None:
    one, ax, many = LabelBins.from_labels(np.repeat([0.0, 1.0, 2.0], [4, 1, 2])), axes(), axes()
    draw_histogram(ax, one, "label")
    low, high = ax.get_ylim()
    assert low < 0.8 and high > 4
    shown = [text.get_text() for text in ax.get_yticklabels() if low <= text.get_position()[1] <= high]
    assert shown == ["1", "2", "5"]
    draw_histogram(many, BINS, "label")
    shown = [text.get_text() for text in many.get_yticklabels()]
    assert {"1", "10", "100"} <= set(shown) and not any("$" in text for text in shown)


LARGE = LabelBins.from_labels(np.linspace(260_000, 1_100_000, 300))
POINTS = pd.DataFrame({"center": [260_000.0, 1_100_000], "mae": 1.0}).assign(
    mean=lambda table: table["center"], std=0.0
)


@pytest.mark.parametrize(
    "draw",
    [
        lambda ax: draw_histogram(ax, LARGE, "label"),
        lambda ax: draw_errors(ax, {"a": POINTS}, "label"),
        lambda ax: RankingDisplay(POINTS, "a", "error, all", "b").plot(ax),
    ],
)
def test_ticks_of_large_numbers_do_not_overlap(draw: Callable[[Axes], object]) -> None:
    ax = axes()
    draw(ax)
    ax.figure.draw_without_rendering()
    low, high = ax.get_xlim()
    ticks = [t for t in ax.get_xticklabels() if t.get_text() and low <= t.get_position()[0] <= high]
    boxes = [tick.get_window_extent() for tick in ticks]
    assert len(ticks) > 1 and all(left.x1 + 3 < right.x0 for left, right in pairwise(boxes))
    assert not ax.xaxis.get_offset_text().get_text()


def test_only_few_shot_ranges_are_shaded_and_named_once() -> None:
    y = np.arange(5.0)
    made = scored(y, y, train=np.repeat(y, [3, 200, 50, 200, 3]))
    ax = LabelErrorDisplay(made).plot(axes()).ax_
    shaded = [patch.get_x() for patch in ax.patches], [patch.get_width() for patch in ax.patches]
    assert shaded == ([-0.5, 3.5], [1.0, 1.0])
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["VIR", "few-shot labels"]
