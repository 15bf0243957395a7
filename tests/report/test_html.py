"""Templates filled with values."""

import re
from pathlib import Path

import jinja2
import pytest

import tailwise.report
from tailwise.report.html import render

RECIPE = {
    "title": "a <b> & c",
    "methods": ["VIR"],
    "seeds": [0],
    "sections": [],
    "columns": [],
    "firsts": ["fine"],
    "gains": [],
    "command": "tailwise compare",
    "recipe": {},
    "natural": False,
}


def test_values_are_escaped() -> None:
    page = render("comparison.html", **RECIPE)
    assert "a &lt;b&gt; &amp; c" in page and "<b>" not in page


def test_a_missing_value_is_an_error() -> None:
    with pytest.raises(jinja2.UndefinedError, match="command"):
        render("comparison.html", **{k: v for k, v in RECIPE.items() if k != "command"})


def test_unknown_numbers_are_dashes() -> None:
    source = "{{ a | number }} {{ b | number }} {{ a | percent }} {{ b | percent }}"
    folder = Path(tailwise.report.__file__).parent / "templates"
    assert not (folder / "filters.html").exists()
    loaded = jinja2.DictLoader({"filters.html": source})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tailwise.report.html.PackageLoader", lambda name: loaded)
        assert render("filters.html", a=0.12345, b=float("nan")) == "0.123 – 12.3% –"


@pytest.mark.parametrize("template", ["base.html", "comparison.html", "model.html"])
def test_templates_load_nothing_from_the_network(template: str) -> None:
    text = (Path(tailwise.report.__file__).parent / "templates" / template).read_text(encoding="utf-8")
    assert re.findall(r"https?://|<script[^>]+>|src=(?!\"{{)|@import", text) == []
