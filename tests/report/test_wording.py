"""Numbers as text, and pages from templates."""

import re
from pathlib import Path

import jinja2
import pytest

import tailwise.report
from tailwise.report.wording import number, pair, render

PAGE = {
    "title": "a <b> & c",
    "methods": ["VIR"],
    "seeds": [0],
    "sections": [],
    "columns": [],
    "firsts": ["fine"],
    "gains": [],
    "command": "tailwise compare",
    "recipe": {},
}


def test_values_are_escaped_on_pages_and_a_missing_one_is_an_error() -> None:
    page = render("comparison.html", **PAGE)
    assert "a &lt;b&gt; &amp; c" in page and "<b>" not in page
    with pytest.raises(jinja2.UndefinedError, match="command"):
        render("comparison.html", **{k: v for k, v in PAGE.items() if k != "command"})


@pytest.mark.parametrize("template", ["base.html", "comparison.html", "model.html"])
def test_templates_load_nothing_from_the_network(template: str) -> None:
    text = (Path(tailwise.report.__file__).parent / "templates" / template).read_text(encoding="utf-8")
    assert re.findall(r"https?://|<script[^>]+>|src=(?!\"{{)|@import", text) == []


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0, "0"), (0.12345, "0.123"), (99.96, "100"), (123456.7, "123,457"), (float("nan"), "–")],
)
def test_numbers_are_short(value: float, text: str) -> None:
    assert number(value) == text


@pytest.mark.parametrize(
    ("numbers", "texts"),
    [
        ((1.38, 1.43), ("1.38", "1.43")),
        ((423.35, 422.75), ("423.4", "422.8")),
        ((423.0, 422.997), ("423.000", "422.997")),
        ((0.12341, 0.12344), ("0.12341", "0.12344")),
        ((423.5, 422.9), ("423.5", "422.9")),  # 424 to 423 would be a difference of 1
        ((12345.0, 12399.0), ("12,345", "12,399")),
        ((5e9, 5e9 + 1), ("5000000000", "5000000001")),
        ((0.5, 0.5), ("0.5", "0.5")),
        ((float("nan"), float("nan")), ("–", "–")),
    ],
)
def test_numbers_that_differ_look_different(numbers: tuple[float, float], texts: tuple[str, str]) -> None:
    assert pair(*numbers) == texts
