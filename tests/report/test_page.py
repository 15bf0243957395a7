"""The page about a fitted model, and numbers as text."""

import base64
import hashlib
import io
import json
import re
from copy import copy
from dataclasses import replace
from html import unescape
from pathlib import Path
from typing import Any

import jinja2
import numpy as np
import pandas as pd
import pytest
from markupsafe import escape
from PIL import Image

import tailwise.report
from tailwise import TailRegressor
from tailwise.explanations import shapley
from tailwise.model.inputs import TensorInputs
from tailwise.report import page as page_module
from tailwise.report.displays import INK
from tailwise.report.page import (
    About,
    Drivers,
    answers_of,
    drivers_of,
    model_page,
    row_tables,
    shown_rows,
    thumbnail,
)
from tailwise.report.scores import Lineup, Scores
from tailwise.report.verdict import contrast, judge
from tailwise.report.wording import number, pair, render
from tests.picture_samples import pictures, write_pictures
from tests.report.conftest import Rows, Table, lined_up, scored

CHARTS = [
    "How common each label is", "Error along the label", "Predicted against true",
    "Do the intervals contain the label?", "How wide are the intervals?",
    "The dial between common and rare labels", "Does it know when it is wrong?",
]  # fmt: skip
FIRST = ["Error for rare labels", "Error for common labels", "Error for all labels", "Do the intervals hold?"]


def test_the_page_has_every_part_in_order(page: str, lineup: Lineup) -> None:
    headings = re.findall(r"<h[123][^>]*>(.*?)</h", page)
    ids, pictures = re.findall(r'\bid="([^"]+)"', page), re.findall(r'<svg[^>]* aria-label="([^"]+)"', page)
    assert headings[1:] == [
        *FIRST, "The dial between common and rare labels", "Verdict", *CHARTS,
            "Which columns drive the tail", "Rows to look at",
        "Largest errors", "Widest intervals", "Figures by region", "How to reproduce this",
        "Reliability",
    ]  # fmt: skip
    assert len(ids) == len(set(ids))
    assert len(pictures) == 8 and all(len(text) > 40 for text in pictures)
    assert len(page.encode()) < 2_000_000
    assert "break-after: avoid" in page  # on paper no heading stays behind alone
    for name in re.findall(r'(?:url\(#|href="#)([^")]+)', page):
        assert name in ids
    assert "currentColor" in page and INK not in page.split("</style>")[1]
    verdict = judge(lineup)
    assert f'<div class="verdict {verdict.status}"><p class="headline">{escape(verdict.headline)}' in page
    assert all(escape(sentence) in page for sentence in (*verdict.sentences, verdict.advice))


def test_strings_of_the_data_are_escaped(page: str) -> None:
    assert "&lt;things&gt;" in page and "<things>" not in page
    assert "&lt;i&gt;a&lt;/i&gt;" in page and "<i>a</i>" not in page


def test_nothing_is_loaded_and_only_the_script_of_the_dial_may_run(page: str) -> None:
    assert not re.findall(
        r'<(?:iframe|img|link)[^>]*(?:src|href)="(?!data:)|="https?:(?!//www.w3.org)|@import', page
    )
    (code,) = re.findall(r"<script>(.*?)</script>", page, re.S)
    digest = base64.b64encode(hashlib.sha256(code.encode()).digest()).decode()
    (policy,) = re.findall(r'Content-Security-Policy" content="([^"]+)"', page)
    assert unescape(policy) == (
        f"default-src 'none'; style-src 'unsafe-inline'; img-src data:; script-src 'sha256-{digest}'"
    )


def test_the_slider_has_the_figures_of_every_setting(lineup: Lineup, page: str) -> None:
    dial = lineup.ours.dial
    assert dial is not None
    (given,) = re.findall(r"data-figures='([^']+)'", page)
    found = json.loads(unescape(given))
    assert [float(setting) for setting in found["settings"]] == pytest.approx(list(dial.settings))
    figures = found["regions"]
    assert set(figures) == {"all", "many", "medium", "few"}
    assert figures == dial.figures and len(figures["few"]["width"]) == len(dial.settings) >= 11
    assert figures["few"]["coverage"][-1].endswith("%")
    used = dial.settings.index(lineup.ours.emphasis)
    assert f'data-region="few" data-figure="mae">{figures["few"]["mae"][used]}</td>' in page
    assert f'value="{used}" disabled' in page  # until the script runs
    assert "The label prior in use" not in page


@pytest.fixture
def no_charts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out the charts, which test_displays has."""
    monkeypatch.setattr(page_module, "main_charts", lambda *_: [])


def test_the_table_has_every_baseline(page: str, lineup: Lineup) -> None:
    cells = re.sub(r"<[^>]+>", " ", page.split("Figures by region")[-1])
    text = cells[cells.index(" all ") : cells.index(" many ")]
    for other in lineup.all[1:]:
        mae = contrast(lineup.ours, other, "all").mae
        assert f"{mae.value:+.3g} ± {mae.half:.2g}" in text and f"{100 * other.inside.mean():.1f}%" in text


def opening(page: str) -> str:
    return unescape(re.findall(r'<p class="opening">(.*?)</p>', page)[0])


def test_the_opening_says_what_was_trained_on_what(
    vir: Scores, models: dict[str, TailRegressor], about: About, no_charts: None
) -> None:
    lineup = Lineup(vir)

    def text(**changes: Any) -> str:
        return opening(model_page(models["vir"], judge(lineup), replace(about, **changes)))

    assert "700 rows of shells.csv to predict rings & <things> from 3 columns." in text()
    assert "300 rows that no model has seen" in text()
    assert "shells.csv, weighted by w, to" in text(weight="w")
    assert "25 of these 300 test rows are also training rows" in text(repeated=25)
    assert "if no model was trained on these rows" in text(trained_here=False)


# -- the first screen ------------------------------------------------------------------------------


def test_errors_with_those_of_baselines(
    models: dict[str, TailRegressor], about: About, no_charts: None
) -> None:
    table = Table.of()
    lineup = lined_up(table.model(), table.model(seed=1), table.model(rare=1.5, seed=3))
    verdict, ours, booster = judge(lineup), lineup.ours, lineup.booster
    assert {name: rows.sum() for name, rows in answers_of(verdict).items()} == {
        "rare labels": 100,
        "common labels": 2000,
        "all labels": 2300,
    }
    answer = model_page(models["vanilla"], verdict, about).split("Error for rare labels")[1].split("<h2>")[0]
    error, other = (number(scores.error[ours.y >= 4].mean()) for scores in (ours, booster))
    assert f'<p class="figure">{error}</p>' in answer
    assert f"<dt>CatBoost</dt><dd>{other}, ours is lower</dd>" in answer


def test_what_cannot_be_said_is_not_a_figure(
    models: dict[str, TailRegressor], about: About, no_charts: None
) -> None:
    lineup = Lineup(Table.of(200, 0, 3).model())
    assert "3 test rows: too few to say" in model_page(models["vanilla"], judge(lineup), about)
    none = answers_of(judge(Lineup(Table.of(0, 0, 30).model())))
    assert [rows.sum() for rows in none.values()] == [5, 25, 30]


# -- rows and columns ------------------------------------------------------------------------------


def test_rows_with_the_largest_errors_and_the_widest_intervals() -> None:
    y = np.arange(8.0)
    mean = y + np.array([0, 0, 3.2, 0, 0, -6, 0, 0.4])
    made = scored(y, mean, reach=np.array([1.0, 2, 3, 4, 5, 6, 0.2, 0.4]))
    inputs = pd.DataFrame({f"c{k}": y for k in range(9)} | {"c0": ["<b>"] * 7 + ["x" * 99], "c1": np.nan})
    tables = row_tables(made, inputs)
    assert list(tables) == ["Largest errors", "Widest intervals"]
    first, second, third, *_ = tables["Largest errors"]
    assert list(first["cells"].items())[:3] == [("c0", "<b>"), ("c1", ""), ("c2", "5")]
    assert len(first["cells"]) == 6 and third["cells"]["c0"] == "x" * 39 + "…"
    shown = [tuple(row["figures"].values()) for row in (first, second, third)]
    assert shown[0] == ("5", "-1", "6", "-7 to 5", "few")
    assert shown[1][:4] == ("2", "5", "3.2", "3 to 8")  # whole labels between 2.2 and 8.2
    assert shown[2][:4] == ("7", "7", "0.4", "7 to 7")
    assert [row["figures"]["true"] for row in tables["Widest intervals"]] == ["5", "4", "3", "2", "1"]
    fine = row_tables(replace(made, y=y + 0.25), None)["Largest errors"][0]
    assert tuple(fine["figures"].values())[:4] == ("5.25", "-1", "6.25", "-7 to 5") and not fine["cells"]


def test_a_picture_becomes_a_small_data_uri(tmp_path: Path) -> None:
    content = pictures(np.array([1.0, 2.0]), 200)
    write_pictures(tmp_path, ["a.png", "b.png"], content)
    kind, _, data = thumbnail(str(tmp_path / "b.png")).partition(",")
    assert kind == "data:image/jpeg;base64"
    with Image.open(io.BytesIO(base64.b64decode(data))) as picture:
        assert picture.size == (96, 96) and abs(np.asarray(picture).mean() - content[1].mean()) < 3
    assert thumbnail(str(tmp_path / "d.png")) == ""


def test_the_column_behind_the_labels_comes_first(
    drivers: Drivers, models: dict[str, TailRegressor], vir: Scores, new_rows: Rows, page: str
) -> None:
    assert next(iter(drivers.table)) == drivers.matter[0] == "a" and drivers.columns == 3
    widest = shown_rows(vir)["Widest intervals"]
    values = shapley(
        models["vir"], new_rows[0].iloc[widest], new_rows[0], of="width", background_rows=50
    ).reasons(3)
    assert drivers.reasons["Widest intervals"] == values
    section = page.split("Which columns drive the tail</h2>")[1].split("Figures by region")[0]
    assert "increases most if a is shuffled" in section
    assert section.count("&lt;i&gt;why +1") == 10 and "&lt;script&gt;a" in section
    assert "<script" not in section


def test_nothing_is_said_of_pictures_few_rows_or_very_many_columns(
    models: dict[str, TailRegressor], vir: Scores, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page_module, "BUDGET", 100)
    assert drivers_of(models["vir"], vir) is None
    others = copy(models["vir"])
    others.model_ = replace(others.model_, inputs=TensorInputs())
    assert drivers_of(others, vir) is None


# -- numbers and templates -------------------------------------------------------------------------


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
