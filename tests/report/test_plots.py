"""Charts on matplotlib Axes."""

from collections.abc import Callable
from html import unescape
from itertools import pairwise

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from matplotlib import rc_context
from matplotlib.axes import Axes

from tailwise import diagnose
from tailwise.calibration.interval_scores import wilson_interval
from tailwise.labels.bins import LabelBins
from tailwise.metrics.scores import Sparsification
from tailwise.report import plots
from tailwise.report.displays import svg_element

BINS = LabelBins.from_labels(np.repeat(np.arange(6.0), [300, 200, 120, 60, 10, 5]))


def regions(n: int = 20) -> pd.DataFrame:
    index = pd.Index(["all", "many", "medium", "few"], name="region")
    return pd.DataFrame({"n": n, "coverage": 0.9, "width": 2.0, "mae": 1.0}, index=index)


def curve() -> pd.DataFrame:
    return pd.DataFrame(
        {"center": [0.0, 1, 5], "mae": [1.0, 2, 3], "aleatoric_std": 1.0, "epistemic_std": 0.5, "std": 1.2}
    )


DRAWN = {
    "histogram": lambda ax: plots.label_histogram(BINS, ax),
    "error": lambda ax: plots.error_by_label({"a": curve(), "b": curve()}, ax, bins=BINS),
    "scatter": lambda ax: plots.predicted_vs_true([1.0, 2, 3], [1.0, 2, 2], [0, 1, 1], [2, 3, 4], ax=ax),
    "coverage": lambda ax: plots.coverage_by_region({"a": regions(), "b": regions()}, ax),
    "width": lambda ax: plots.width_by_region({"a": regions()}, ax),
    "sparsification": lambda ax: plots.sparsification_curves(
        {"a": Sparsification(*np.array([[0, 0.5], [2, 1], [2, 0.5]]))}, ax
    ),
    "reliability": lambda ax: plots.reliability_diagram({"a": [0.1, 0.5]}, [0.1, 0.6], ax),
    "parts": lambda ax: plots.variance_parts(curve(), ax, bins=BINS),
    "weights": lambda ax: plots.bin_weights(BINS, np.ones(len(BINS)), ax),
    "dial": lambda ax: plots.dial_curve([1.0, 2.0], [4.0, 3.0], {"a": (1.5, 3.5)}, ax),
    "ranking": lambda ax: plots.method_ranking(
        pd.DataFrame({"mean": [2.0, 1.0], "half": [0.1, np.nan]}, index=["a", "b"]), ax
    ),
}


@pytest.mark.parametrize("name", list(DRAWN))
def test_every_plot_takes_axes_returns_them_and_makes_its_own(name: str) -> None:
    figure, ax = plt.subplots()
    assert DRAWN[name](ax) is ax
    assert ax.get_xlabel() or name in ("coverage", "width")
    assert ax.has_data()
    plt.close(figure)
    assert isinstance(DRAWN[name](None), Axes)
    assert plt.get_fignums() == []  # charts of their own need no display and leave nothing open


@pytest.mark.parametrize(
    "draw",
    [
        lambda name: plots.label_histogram(BINS, label=name),
        lambda name: plots.error_by_label({name: curve()}, bins=BINS, label=name),
        lambda name: plots.predicted_vs_true([1.0, 2], [1.0, 2], label=name),
        lambda name: plots.coverage_by_region({name: regions()}),
        lambda name: plots.reliability_diagram({name: [0.1, 0.5]}, [0.1, 0.6]),
        lambda name: plots.variance_parts(curve(), label=name),
        lambda name: plots.bin_weights(BINS, np.ones(len(BINS)), label=name),
        lambda name: diagnose(np.arange(30.0)).plot(label=name),
    ],
)
def test_dollars_in_names_are_no_formulas(draw: Callable[[str], Axes]) -> None:
    name = r"price ($\fraq) in $"
    with rc_context({"svg.fonttype": "none"}):
        assert name in unescape(svg_element(draw(name), "a", ""))


def test_a_bin_with_one_row_can_be_seen_on_a_scale_of_plain_numbers() -> None:
    one = LabelBins.from_labels(np.repeat([0.0, 1.0, 2.0], [4, 1, 2]))
    ax = plots.label_histogram(one)
    low, high = ax.get_ylim()
    assert low < 0.8 and high > 4
    shown = [text.get_text() for text in ax.get_yticklabels() if low <= text.get_position()[1] <= high]
    assert shown == ["1", "2", "5"]
    shown = [text.get_text() for text in plots.label_histogram(BINS).get_yticklabels()]
    assert {"1", "10", "100"} <= set(shown) and not any("$" in text for text in shown)


def test_the_promise_is_written_beside_the_bars_not_on_them() -> None:
    ax = plots.coverage_by_region({"a": regions()}, level=0.995)
    (promise,) = ax.texts
    assert promise.get_text() == "99.5%\npromised" and promise.xy[0] > 1
    ax.figure.canvas.draw()
    assert promise.get_window_extent().x0 >= ax.get_window_extent().x1


def test_rare_rows_are_drawn_first_and_leave_their_room_to_others() -> None:
    region = np.repeat(["many", "medium", "few"], [500, 20, 130])
    y = np.arange(650.0)
    ax = plots.predicted_vs_true(y, y, region=region, shown=300)
    shown = {c.get_label(): len(c.lines[0].get_xdata()) for c in ax.containers}
    assert shown == {"many-shot": 180, "medium-shot": 20, "few-shot": 100}


LARGE = LabelBins.from_labels(np.linspace(260_000, 1_100_000, 300))
POINTS = pd.DataFrame(
    {"center": [260_000.0, 1_100_000], "mae": 1.0, "aleatoric_std": 1.0, "epistemic_std": 0.5}
)


@pytest.mark.parametrize(
    "draw",
    [
        lambda ax: plots.predicted_vs_true(LARGE.centers, LARGE.centers, ax=ax),
        lambda ax: plots.label_histogram(LARGE, ax),
        lambda ax: plots.error_by_label({"a": POINTS}, ax, bins=LARGE),
        lambda ax: plots.variance_parts(POINTS, ax),
        lambda ax: plots.bin_weights(LARGE, np.ones(len(LARGE)), ax),
        lambda ax: plots.dial_curve([260_000.0, 1_100_000], [1.0, 2.0], {}, ax),
        lambda ax: plots.method_ranking(POINTS.assign(mean=POINTS["center"], half=0.0), ax),
    ],
)
def test_ticks_of_large_numbers_do_not_overlap(draw: Callable[[Axes], Axes]) -> None:
    ax = draw(plots.new_axes(size=(4.8, 4.0)))
    ax.figure.draw_without_rendering()
    low, high = ax.get_xlim()
    ticks = [t for t in ax.get_xticklabels() if t.get_text() and low <= t.get_position()[0] <= high]
    boxes = [tick.get_window_extent() for tick in ticks]
    assert len(ticks) > 1 and all(left.x1 + 3 < right.x0 for left, right in pairwise(boxes))
    assert not ax.xaxis.get_offset_text().get_text()


def test_error_bars_of_coverage_are_wilsons_interval() -> None:
    table = regions().assign(coverage=[0.9, 0.95, 0.5, np.nan], n=[40, 20, 10, 0])
    ax = plots.coverage_by_region({"a": table}, regions=("many", "medium"))
    (bars,) = (c for c in ax.containers if hasattr(c, "has_yerr") and c.has_yerr)
    lines = [segment[:, 1].tolist() for segment in bars.lines[2][0].get_segments()]
    assert lines == [pytest.approx(wilson_interval(19, 20)), pytest.approx(wilson_interval(5, 10))]


def test_only_few_shot_ranges_are_shaded_and_named_once() -> None:
    ends = LabelBins.from_labels(np.repeat(np.arange(5.0), [3, 200, 50, 200, 3]))
    ax = plots.error_by_label({"a": curve()}, bins=ends)
    shaded = [patch.get_x() for patch in ax.patches], [patch.get_width() for patch in ax.patches]
    assert shaded == ([-0.5, 3.5], [1.0, 1.0])
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["a", "few-shot labels"]
