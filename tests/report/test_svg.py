"""Charts as SVG elements of a page."""

import re

import numpy as np
from matplotlib.axes import Axes

from tailwise.report import plots
from tailwise.report.svg import make_chart, new_figure, page_style


def lines(count: int) -> Axes:
    with page_style():
        ax = new_figure()
        for place in range(count):
            ax.plot([0, 1], [place, 1], color=plots.INK, label=f"method number {place}")
        ax.legend()
    return ax


def test_ids_are_unique_on_a_page_and_references_follow() -> None:
    both = "".join(make_chart(name, lines(2), "", "", "").svg for name in ("first", "second"))
    ids = re.findall(r'\bid="([^"]+)"', both)
    assert len(ids) == len(set(ids)) and {i.split("-")[0] for i in ids} == {"first", "second"}
    assert set(re.findall(r'(?:url\(#|href="#)([^")]+)', both)) <= set(ids)


def test_a_chart_takes_the_colours_and_the_width_of_the_page() -> None:
    svg = make_chart("a", lines(1), "", "", "").svg
    assert "currentColor" in svg and plots.INK not in svg and plots.PAPER not in svg
    opening = svg.split(">")[0]
    assert opening.startswith("<svg") and "viewBox" in opening
    assert "width=" not in opening and "height=" not in opening and "<metadata>" not in svg


def test_a_chart_can_be_read_aloud_and_searched() -> None:
    chart = make_chart("a", lines(1), "Title", "Text", 'rings & "<things>"')
    assert (chart.title, chart.text) == ("Title", "Text")
    assert 'role="img" aria-label="rings &amp; &quot;&lt;things&gt;&quot;"' in chart.svg
    assert "method number 0" in chart.svg  # text, not outlines


def test_the_same_chart_gives_the_same_bytes() -> None:
    assert make_chart("a", lines(2), "", "", "").svg == make_chart("a", lines(2), "", "", "").svg


def test_the_legend_is_above_the_chart_and_fits() -> None:
    for count in (1, 6):
        ax = lines(count)
        make_chart("a", ax, "", "", "")
        legend, figure = ax.get_legend(), ax.figure
        figure.canvas.draw()
        assert legend.get_window_extent().y0 >= ax.get_window_extent().y1 - 1
        assert legend.get_window_extent().width <= figure.bbox.width
        assert [text.get_text() for text in legend.get_texts()] == [
            f"method number {place}" for place in range(count)
        ]


def test_a_chart_without_legend_gets_none() -> None:
    ax = new_figure()
    ax.plot(np.arange(3), label="hidden")
    make_chart("a", ax, "", "", "")
    assert ax.get_legend() is None
