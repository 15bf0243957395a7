"""Pages and sentences from templates."""

import re
from pathlib import Path

import jinja2
import pytest

import tailwise.report
from tailwise.report.wording import joined, render, say, sentences

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
    "tested": "balanced",
}


def test_values_are_escaped_on_pages_and_a_missing_one_is_an_error() -> None:
    page = render("comparison.html", **PAGE)
    assert "a &lt;b&gt; &amp; c" in page and "<b>" not in page
    with pytest.raises(jinja2.UndefinedError, match="command"):
        render("comparison.html", **{k: v for k, v in PAGE.items() if k != "command"})


def test_sentences_are_lines_of_a_macro(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "{% macro both(a) %}\n  One {{ a | number }}.\n\n{% if a %}\nTwo <b>.\n{% endif %}\n{% endmacro %}"
    monkeypatch.setattr("tailwise.report.wording.PackageLoader", lambda _: jinja2.DictLoader({"t.txt": text}))
    from tailwise.report import wording

    wording._environment.cache_clear()
    wording._macros.cache_clear()
    try:
        assert sentences("t", "both", 0.12345) == ("One 0.123.", "Two <b>.")
        assert say("t", "both", 0.0) == "One 0."
        assert say("t", "both", float("nan")) == "One –. Two <b>."
    finally:
        wording._environment.cache_clear()
        wording._macros.cache_clear()


def test_words_are_joined() -> None:
    assert (joined(["a"]), joined(["a", "b", "c"])) == ("a", "a, b and c")


@pytest.mark.parametrize("template", ["base.html", "comparison.html", "model.html"])
def test_templates_load_nothing_from_the_network(template: str) -> None:
    text = (Path(tailwise.report.__file__).parent / "templates" / template).read_text(encoding="utf-8")
    assert re.findall(r"https?://|<script[^>]+>|src=(?!\"{{)|@import", text) == []
