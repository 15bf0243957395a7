"""Displays: what each one draws and says, in a notebook and on a page."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from html import unescape
from itertools import pairwise
from xml.etree import ElementTree

import matplotlib
import numpy as np
import pandas as pd
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from tailwise import TailRegressor
from tailwise.calibration.interval_scores import wilson_interval
from tailwise.labels.bins import LabelBins
from tailwise.report.displays import (
    INK,
    PAPER,
    DependenceDisplay,
    DialDisplay,
    HistogramDisplay,
    ImportanceDisplay,
    LabelErrorDisplay,
    PredictionDisplay,
    RankingDisplay,
    RegionDisplay,
    ReliabilityDisplay,
    ScoresDisplay,
    SparsificationDisplay,
    draw_bars,
    draw_errors,
    draw_histogram,
    svg_element,
)
from tailwise.report.scores import LEVELS, Lineup, Scores, Seen
from tailwise.report.wording import number
from tests.report.conftest import Rows, scored, some


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    matplotlib.use("Agg")
    yield
    from matplotlib import pyplot

    pyplot.close("all")


# -- in a notebook -------------------------------------------------------------------------------


def test_a_display_draws_on_new_axes_or_on_given_ones(
    models: dict[str, TailRegressor], new_rows: Rows
) -> None:
    made = RegionDisplay.from_estimator(models["vir"], *new_rows, coverage=0.8, emphasis=0.1)
    assert made.figure_ is made.ax_.figure and made.scores.coverage == 0.8 and made.scores.emphasis == 0.1
    bars = [bar.get_height() for bar in made.ax_.patches]
    s = made.scores
    assert bars == pytest.approx([s.error[s.mask(r)].mean() for r in ("many", "medium", "few")])
    counts = [(int(s.inside[s.mask(r)].sum()), int(s.mask(r).sum())) for r in ("many", "medium", "few")]
    shares = RegionDisplay(s, "coverage").plot(Figure().subplots()).ax_
    (bars,) = (drawn for drawn in shares.containers if getattr(drawn, "has_yerr", False))
    drawn = [segment[:, 1].tolist() for segment in bars.lines[2][0].get_segments()]
    assert drawn == [pytest.approx(wilson_interval(*count)) for count in counts]
    ax = Figure().subplots()
    assert made.plot(ax).ax_ is ax


def test_rare_rows_are_drawn_first_and_leave_their_room_to_others(vir: Scores) -> None:
    kinds = [np.flatnonzero(vir.region == r) for r in ("many", "medium", "few")]
    rows = [np.resize(kind, n) for kind, n in zip(kinds, (500, 20, 130), strict=True)]
    ax = PredictionDisplay(some(vir, np.concatenate(rows))).plot(Figure().subplots()).ax_
    shown = {c.get_label(): len(c.lines[0].get_xdata()) for c in ax.containers}
    assert shown == {"many-shot": 180, "medium-shot": 20, "few-shot": 100}


@pytest.mark.parametrize("kind", [PredictionDisplay, HistogramDisplay, ReliabilityDisplay, DialDisplay])
def test_dollars_in_names_are_no_formulas(vir: Scores, kind: type[ScoresDisplay]) -> None:
    name = r"price ($\fraq) in $"
    assert name in unescape(kind(replace(vir, title=name), name).svg)


@pytest.mark.parametrize(
    ("kind", "lines"),
    [(LabelErrorDisplay, 1), (ReliabilityDisplay, 4), (SparsificationDisplay, 2), (DialDisplay, 2)],
)
def test_curves(vir: Scores, kind: type[ScoresDisplay], lines: int) -> None:
    drawn = kind(vir).plot(Figure().subplots())
    assert len(drawn.ax_.lines) == lines
    if kind is ReliabilityDisplay:
        np.testing.assert_allclose(drawn.ax_.lines[1].get_ydata(), vir.reliability())
        np.testing.assert_allclose(drawn.ax_.lines[1].get_xdata(), LEVELS)


def test_importance_and_dependence(models: dict[str, TailRegressor], new_rows: Rows) -> None:
    bars = ImportanceDisplay.from_estimator(
        models["vir"], *new_rows, repeats=2, max_rows=60, most=2, ax=Figure().subplots()
    )
    names = [text.get_text() for text in bars.ax_.get_yticklabels()]
    assert names[0] == "a" and len(names) == 2 and bars.ax_.yaxis_inverted()
    curve = DependenceDisplay.from_estimator(
        models["vir"], new_rows[0], "a", points=4, max_rows=20, ax=Figure().subplots()
    )
    np.testing.assert_allclose(curve.ax_.lines[0].get_ydata(), curve.table["prediction"])
    values = curve.table.assign(value=["$p", "q", "r", "s"])
    texts = DependenceDisplay(values, "kind").plot(Figure().subplots())
    assert [text.get_text() for text in texts.ax_.get_xticklabels()] == [r"\$p", "q", "r", "s"]


def test_mistakes_are_named(vir: Scores) -> None:
    with pytest.raises(ValueError, match="unknown metric 'coverge'; did you mean 'coverage'"):
        RegionDisplay(vir, "coverge")
    with pytest.raises(ValueError, match="at least 20 test rows"):
        DialDisplay(some(vir, np.arange(300)))


# -- on a page -----------------------------------------------------------------------------------


def test_what_few_rows_cannot_show_is_not_said(
    models: dict[str, TailRegressor], vir: Scores, new_rows: Rows
) -> None:
    X, y = new_rows
    near = LabelErrorDisplay(Seen(models["vir"], X[y <= 5]).scores(y[y <= 5]))
    assert f"No test row is above {int(y[y <= 5].max())}; training labels reach about" in near.words.text
    few = LabelErrorDisplay(some(vir, np.flatnonzero(vir.region == "many")[:3]))
    assert "mean absolute error of the few test rows" in few.words.text
    part = SparsificationDisplay(some(vir, np.arange(16)))
    assert part.words.text.startswith("Without the least certain 38% of the rows")
    assert "are shown" not in PredictionDisplay(vir).words.text  # all 300 of them
    twice = PredictionDisplay(some(vir, np.tile(np.arange(300), 2)))
    assert "300 of 600 rows are shown, rare labels first." in twice.words.text


def test_words_agree_with_the_figures(lineup: Lineup) -> None:
    vir = lineup.ours
    worst = vir.along_label().sort_values("mae").iloc[-1]
    assert f"{vir.label(worst['center'])}: {number(worst['mae'])}." in LabelErrorDisplay(lineup).words.text
    bars = RegionDisplay(lineup, "coverage").words.alt
    for scores in lineup.all:
        share = scores.inside[scores.mask("few")].mean()
        assert f"{scores.title}: many " in bars and f"few {share:.1%}" in bars
    chart = DialDisplay(lineup)
    for name, (x, y) in chart.points.items():
        assert f"{name}: {number(x)} and {number(y)}" in chart.words.alt
    few = int(vir.bins.counts[vir.bins.regions() == "few"].sum())
    assert f"{few:,} rows in few-shot bins." in HistogramDisplay(lineup).words.text


# -- as SVG --------------------------------------------------------------------------------------


LARGE = LabelBins.from_labels(np.linspace(260_000, 1_100_000, 300))
POINTS = pd.DataFrame({"center": [260_000.0, 1_100_000], "mae": 1.0}).assign(
    mean=lambda table: table["center"], std=0.0
)


def axes() -> Axes:
    return Figure(figsize=(4.8, 4.0), layout="constrained").subplots()


def test_ids_are_unique_on_a_page_and_references_follow() -> None:
    ids, references = [], []
    for name in ("first", "second"):
        ax = axes()
        draw_errors(ax, {"a": POINTS, "b": POINTS}, "label")
        for element in ElementTree.fromstring(svg_element(ax, name, "")).iter():
            values = element.attrib
            ids += [value for key, value in values.items() if key == "id"]
            references += [v.removeprefix("#") for k, v in values.items() if k.endswith("href")]
            references += [v[5:-1] for v in values.values() if v.startswith("url(#")]
    assert len(ids) == len(set(ids)) and {i.split("-")[0] for i in ids} == {"first", "second"}
    assert references and set(references) <= set(ids)


def test_a_chart_takes_the_colours_and_the_width_of_the_page_and_can_be_read_aloud() -> None:
    ax = axes()
    draw_bars(ax, {"a": pd.DataFrame({"value": [1.0], "n": [3]}, ["few"])}, "error", target=0.5)
    svg = svg_element(ax, "a", 'rings & "<things>"')
    assert "currentColor" in svg and INK not in svg and PAPER not in svg
    root = ElementTree.fromstring(svg)
    assert svg.startswith("<svg") and "viewBox" in root.attrib and "<metadata" not in svg
    assert not {"width", "height"} & set(root.attrib)
    assert (root.attrib["role"], root.attrib["aria-label"]) == ("img", 'rings & "<things>"')


def test_the_same_chart_gives_the_same_bytes_with_text_as_text(vir: Scores) -> None:
    first, second = (HistogramDisplay(vir, "rings").svg for _ in range(2))
    assert first == second and ">rings</text>" in first


# -- what several charts draw ---------------------------------------------------------------------


def test_a_bin_with_one_row_can_be_seen_on_a_scale_of_plain_numbers() -> None:
    ax = axes()
    draw_histogram(ax, LabelBins.from_labels(np.repeat([0.0, 1.0, 2.0], [4, 1, 2])), "label")
    low, high = ax.get_ylim()
    assert low < 0.8 and high > 4
    shown = [text.get_text() for text in ax.get_yticklabels() if low <= text.get_position()[1] <= high]
    assert shown == ["1", "2", "5"]


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
