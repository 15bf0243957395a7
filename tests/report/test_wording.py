"""Pages and sentences from templates."""

import re
from pathlib import Path

import jinja2
import pytest

import tailwise.report
from tailwise.report.wording import render

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
