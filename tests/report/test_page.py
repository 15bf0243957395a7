"""The page about a fitted model."""

import base64
import hashlib
import json
import re
from collections.abc import Callable
from dataclasses import replace
from html import unescape
from html.parser import HTMLParser
from typing import Any

import numpy as np
import pytest
from markupsafe import escape

from tailwise import TailRegressor
from tailwise.methods import get_method
from tailwise.report import page as page_module
from tailwise.report import plots
from tailwise.report.baselines import Lineup
from tailwise.report.charts import ModelCharts
from tailwise.report.contrasts import contrast
from tailwise.report.dial import dial_of
from tailwise.report.formatting import number
from tailwise.report.page import (
    Facts,
    _opening,
    _smoothing_text,
    _weights_text,
    facts_of,
    model_page,
)
from tailwise.report.scoring import Scored
from tailwise.report.verdict import judge

MakeFacts = Callable[[str], Facts]


class Reader(HTMLParser):
    """Headings, ids, pictures and anything that would be loaded from elsewhere."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.headings: list[str] = []
        self.ids: list[str] = []
        self.pictures: list[str] = []
        self.loaded: list[str] = []
        self.open: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.open.append(tag)
        if given.get("id"):
            self.ids.append(str(given["id"]))
        if tag == "svg":
            self.pictures.append(str(given.get("aria-label")))
        if tag in ("script", "iframe", "img") or str(given.get("src") or given.get("href") or "").startswith(
            "http"
        ):
            self.loaded.append(f"{tag} {given}")

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] in ("h1", "h2", "h3") and data.strip():
            self.headings.append(data.strip())


CHARTS = [
    "How common each label is", "Error along the label", "Predicted against true",
    "Do the intervals contain the label?", "How wide are the intervals?",
    "The dial between common and rare labels", "Does it know when it is wrong?",
]  # fmt: skip
FIRST = ["Error for rare labels", "Error for common labels", "Do the intervals hold?", "Cost over all labels"]


def test_the_page_has_every_part_in_order(page: str) -> None:
    read = Reader(page)
    assert read.headings[1:] == [
        *FIRST, "The dial between common and rare labels", "Verdict", *CHARTS,
            "Which columns drive the tail", "Rows to look at",
        "Largest errors", "Widest intervals", "Figures by region", "How to reproduce this",
        "Reliability", "Noise or lack of data?", "Calibration, before and after", "Weights",
    ]  # fmt: skip
    assert len(read.ids) == len(set(read.ids))
    assert len(read.pictures) == 11 and all(len(text) > 40 for text in read.pictures)
    assert len(page.encode()) < 2_000_000
    assert "break-after: avoid" in page  # on paper no heading stays behind alone
    for name in re.findall(r'(?:url\(#|href="#)([^")]+)', page):
        assert name in read.ids
    assert "currentColor" in page and plots.INK not in page.split("</style>")[1]


def test_strings_of_the_data_are_escaped(page: str) -> None:
    assert "&lt;things&gt;" in page and "<things>" not in page
    assert "&lt;i&gt;a&lt;/i&gt;" in page and "<i>a</i>" not in page


def test_nothing_is_loaded_and_only_the_script_of_the_dial_may_run(page: str) -> None:
    assert Reader(page).loaded == ["script {}"] and "@import" not in page
    (code,) = re.findall(r"<script>(.*?)</script>", page, re.S)
    digest = base64.b64encode(hashlib.sha256(code.encode()).digest()).decode()
    (policy,) = re.findall(r'Content-Security-Policy" content="([^"]+)"', page)
    assert unescape(policy) == (
        f"default-src 'none'; style-src 'unsafe-inline'; img-src data:; script-src 'sha256-{digest}'"
    )


def test_the_verdict_is_the_one_given(lineup: Lineup, page: str) -> None:
    verdict = judge(lineup)
    assert f'<div class="verdict {verdict.status}"><p class="headline">{escape(verdict.headline)}' in page
    assert all(escape(sentence) in page for sentence in (*verdict.sentences, verdict.advice))
    assert not hasattr(page_module, "judge")  # computed once, by the caller


def test_the_slider_has_the_figures_of_every_setting(lineup: Lineup, page: str) -> None:
    dial = dial_of(lineup.ours)
    assert dial is not None
    (given,) = re.findall(r'data-figures="([^"]+)"', page)
    found = json.loads(unescape(given))
    assert [float(setting) for setting in found["settings"]] == pytest.approx(list(dial.settings))
    figures = found["regions"]
    assert list(figures) == ["all", "many", "medium", "few"]
    for region, found in dial.by_region().items():
        assert figures[region]["mae"] == [number(value) for value in found["mae"]]
        assert figures[region]["coverage"] == [f"{100 * value:.1f}%" for value in found["coverage"]]
        assert len(figures[region]["width"]) == len(dial.settings) >= 11
    used = dial.settings.index(lineup.ours.emphasis)
    assert f'data-region="few" data-figure="mae">{figures["few"]["mae"][used]}</td>' in page
    assert f'value="{used}" disabled' in page  # until the script runs
    assert "The label prior in use" not in page


def test_a_label_prior_is_not_on_the_slider(lineup: Lineup, facts: MakeFacts, no_charts: None) -> None:
    ours = lineup.ours
    assert ours.calibration is not None
    prior = replace(ours, calibration=ours.calibration.at(label_prior=[2.0, 3.0, 4.0]))
    page = model_page(replace(lineup, ours=prior), judge(lineup), facts("vir"))
    assert "The label prior in use is none of" in page and 'value="0" disabled' in page


def test_options_and_formulas_are_behind_a_fold(page: str) -> None:
    shown, folded = page.split("<details>")
    assert re.search(r"VIR:\w", folded) and not re.search(r"VIR:\w", shown)
    for text in ("kernel", "onformal", "batch size"):
        assert text not in shown and text in folded
    assert "lr" not in re.findall(r"<li>(\w+)", folded)  # not set
    assert "Trained for 3\nepochs; the weights of epoch 2 were kept" in shown


def test_the_epochs_of_every_network(lineup: Lineup, facts: MakeFacts, no_charts: None) -> None:
    networks = replace(facts("vir"), epochs=[25, 17], best_epochs=[15, 7])
    page = model_page(lineup, judge(lineup), networks)
    assert "2 networks were trained for 25, 17 epochs; the weights of epochs 15, 7 were kept" in page


@pytest.fixture
def no_charts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out the charts, which test_charts has."""
    for name in ("main", "details"):
        monkeypatch.setattr(ModelCharts, name, lambda self: [])


def test_a_page_about_one_model_alone(plain: Scored, facts: MakeFacts, no_charts: None) -> None:
    alone = Lineup(replace(plain, calibration=None))
    page = model_page(alone, judge(alone), facts("vanilla"))
    assert "gives every row the same weight" in page and "does not smooth features" in page
    assert "emphasis" not in page.split("</style>")[1].split("<script>")[0] and "with their first" not in page


def test_the_table_has_every_baseline(page: str, lineup: Lineup) -> None:
    cells = re.sub(r"<[^>]+>", " ", page.split("Figures by region")[-1])
    text = cells[cells.index(" all ") : cells.index(" many ")]
    assert [t.title for t in lineup.all] == [
        "VIR", "plain network", "CatBoost", "weighted CatBoost", "constant",
    ]  # fmt: skip
    for other in lineup.all[1:]:
        mae = contrast(lineup.ours, other, "all").mae
        assert f"{mae.value:+.3g} ± {mae.half:.2g}" in text and f"{100 * other.inside.mean():.1f}%" in text


def test_a_region_of_one_row_has_no_range(lineup: Lineup, facts: MakeFacts, no_charts: None) -> None:
    vir = lineup.ours
    first = int(np.flatnonzero(vir.region == "few")[0])
    rows = np.sort(np.append(np.flatnonzero(vir.region == "many"), first))
    assert lineup.other is not None
    pair = [
        replace(
            s, y=s.y[rows], distribution=s.distribution[rows], uncalibrated=s.uncalibrated[rows],
            lower=s.lower[rows], upper=s.upper[rows], calibration=None,
            covered={level: inside[rows] for level, inside in s.covered.items()},
        )
        for s in (vir, lineup.other)
    ]  # fmt: skip
    both = Lineup(*pair)
    cells = model_page(both, judge(both), facts("vir")).split("Figures by region")[-1]
    assert "inf" not in cells.split("</table>")[0]


def test_the_opening_says_what_was_trained_on_what(vir: Scored, facts: MakeFacts) -> None:
    text = _opening(vir, facts("vir"))
    assert text.startswith(
        "VIR was trained on 560 rows of shells.csv to predict rings & <things> from 3 columns."
    )
    assert text.endswith(
        "300 rows that no model has seen (held out at random, the same share of rare and common labels)."
    )
    weighted = _opening(vir, replace(facts("vir"), weight="w", features=1))
    assert "rows of shells.csv, weighted by w, to predict" in weighted and "from 1 column." in weighted
    elsewhere = replace(facts("vir"), trained_here=False, test_source="rows of new.csv")
    assert _opening(vir, elsewhere).endswith(
        "300 rows of new.csv. They hold only if no model was trained on these rows."
    )


def test_weights_and_smoothing_in_words(vir: Scored) -> None:
    def words(name: str = "vir", **options: Any) -> tuple[str, str]:
        parts = get_method(name).parts.with_options(**options)
        smoothing = parts.make("smoothing", 1, vir.bins)
        window = None if smoothing is None else smoothing.window
        return _weights_text(parts.make("weights", vir.bins)), _smoothing_text(window)

    assert words("vanilla") == ("", "")
    assert "smoothed by a gaussian kernel over" in words()[0]
    assert words(**{"weights.on": "loss"})[0].endswith("It acts on the loss of each row.")
    plain, unsmoothed = words(**{"weights.kernel": None, "weights.power": 1.0, "smoothing.kernel": None})
    assert plain.startswith("A row's weight is the label density, to the power -1.") and unsmoothed == ""
    assert "falls linearly" in words("dense")[0]
    assert "the form 'reference' with" in words(**{"weights.form": "reference"})[0]
    wide = words(**{"smoothing.radius": 3, "smoothing.bandwidth": 1.5})[1]
    assert "over 7 bins, with a bandwidth of 1.5 bins." in wide


def test_facts_are_read_from_the_model(models: dict[str, TailRegressor], vir: Scored) -> None:
    made = facts_of(models["vir"], vir, target="rings", source="shells.csv", command="tailwise fit")
    assert (made.method, made.epochs, made.features, made.seed) == ("vir", [3] * 5, 3, 0)
    assert made.train_rows == vir.bins.counts.sum() and made.settings["epochs"] == 3
    assert made.intervals == models["vir"].explain_intervals(0.9, target=0)
