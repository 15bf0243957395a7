"""The page about a fitted model."""

import re
from collections.abc import Callable
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest

from tailwise import TailRegressor
from tailwise.methods import get_method
from tailwise.report import page as page_module
from tailwise.report import plots
from tailwise.report.charts import ModelCharts
from tailwise.report.page import (
    Facts,
    _cost_text,
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
        if self.open and self.open[-1] in ("h1", "h2") and data.strip():
            self.headings.append(data.strip())


ORDER = [
    "How common each label is", "Verdict", "Error along the label",
    "The dial between common and rare labels", "Predicted against true",
    "Do the intervals contain the label?", "How wide are the intervals?", "Does it know when it is wrong?",
    "Reliability", "Noise or lack of data?", "Calibration, before and after", "Figures by region",
    "Bins, weights and smoothing", "How to reproduce this",
]  # fmt: skip


def test_the_page_has_every_part_in_order(page: str) -> None:
    read = Reader(page)
    assert read.headings[1:] == ORDER
    assert read.loaded == [] and "<script" not in page and "@import" not in page
    assert len(read.ids) == len(set(read.ids))
    assert len(read.pictures) == 11 and all(len(text) > 40 for text in read.pictures)
    assert "&lt;things&gt;" in page and "<things>" not in page
    assert len(page.encode()) < 2_000_000
    assert "In the many-shot region" in page
    assert "break-after: avoid" in page  # on paper no heading stays behind alone
    for name in re.findall(r'(?:url\(#|href="#)([^")]+)', page):
        assert name in read.ids
    assert "currentColor" in page and plots.INK not in page.split("</style>")[1]


def test_the_verdict_is_the_one_given(vir: Scored, vanilla: Scored, page: str) -> None:
    verdict = judge(vir, vanilla)
    assert f'<div class="verdict {verdict.status}">' in page and verdict.headline in page
    assert not hasattr(page_module, "judge")  # computed once, by the caller


def test_options_and_formulas_are_behind_a_fold(page: str) -> None:
    shown, folded = page.split("<details>")
    for text in ("VIR:A", "kernel", "Split-conformal", "batch size"):
        assert text not in shown and text in folded
    assert "lr" not in re.findall(r"<li>(\w+)", folded)  # not set
    assert "Trained for 3\nepochs; the weights of epoch 2 were kept" in shown


def test_a_page_about_one_model_alone(
    vanilla: Scored, facts: MakeFacts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ModelCharts, "all", lambda self: [])  # test_charts has those of one model
    page = model_page(vanilla, judge(vanilla), facts("vanilla"))
    assert "gives every row the same weight" in page and "does not smooth features" in page
    assert "difference" not in page.split("Figures by region")[1]


def test_the_table_has_the_plain_network_and_the_base(page: str, vir: Scored, catboost: Scored) -> None:
    cells = re.sub(r"<[^>]+>", " ", page.split("Figures by region")[-1])
    assert "CatBoost alone is the\nmodel that VIR starts from" in page
    gain = float((vir.error - catboost.error).mean())
    text = cells[cells.index("all") : cells.index("many ")]
    assert re.findall(r"VIR|Vanilla|CatBoost alone", text) == ["VIR", "Vanilla", "CatBoost alone"]
    assert f"{gain:+.3g} ±" in text and f"{100 * catboost.inside.mean():.1f}%" in text


def test_two_models_that_tie(vir: Scored) -> None:
    text = _cost_text(vir, replace(vir, title="Twin"))
    assert text.startswith("In the many-shot region VIR and Twin have the same mean absolute error, ")


def test_the_cost_for_common_labels_is_undecided_within_its_error(vir: Scored) -> None:
    noisy = vir.error + np.random.default_rng(0).normal(0, 1, vir.error.size)
    text = _cost_text(vir, _with_error(vir, noisy))
    assert "which is within its error of ±" in text and text.endswith(": undecided.")
    mostly = replace(vir, many=20)  # most test rows are now many-shot
    text = _cost_text(mostly, _with_error(mostly, mostly.error + 1))
    assert text.endswith("so the average over all rows mostly reflects it.")
    text = _cost_text(vir, _with_error(vir, vir.error + 1))
    assert "VIR is 1 lower than that of Twin (" in text and "undecided" not in text
    text = _cost_text(_with_error(vir, vir.error + 1), vir)
    assert "Twin is 1 higher than that of VIR (" in text


def test_without_common_test_rows_the_cost_is_unknown(vir: Scored) -> None:
    none = replace(vir, many=10**6, few=10**6)
    assert _cost_text(none, none).startswith("No test row has a many-shot label")


def _with_error(s: Scored, error: np.ndarray) -> Scored:
    made = replace(s, title="Twin")
    made.__dict__["error"] = error  # a cached property
    return made


def test_a_region_of_one_row_has_no_range(
    vir: Scored, vanilla: Scored, facts: MakeFacts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ModelCharts, "all", lambda self: [])  # only the table matters
    first = int(np.flatnonzero(vir.region == "few")[0])
    rows = np.sort(np.append(np.flatnonzero(vir.region == "many"), first))
    pair = [
        replace(
            s, y=s.y[rows], distribution=s.distribution[rows], uncalibrated=s.uncalibrated[rows],
            lower=s.lower[rows], upper=s.upper[rows],
            covered={level: inside[rows] for level, inside in s.covered.items()},
        )
        for s in (vir, vanilla)
    ]  # fmt: skip
    cells = model_page(pair[0], judge(*pair), facts("vir"), pair[1]).split("Figures by region")[-1]
    assert "inf" not in cells.split("</table>")[0]


def test_the_opening_says_what_was_trained_on_what(vir: Scored, vanilla: Scored, facts: MakeFacts) -> None:
    text = _opening(vir, facts("vir"), vanilla)
    assert text.startswith(
        "VIR was trained on 560 rows of shells.csv to predict rings & <things> from 3 columns."
    )
    assert text.endswith(
        ", beside Vanilla: one plain network trained on the same rows, without base and dial."
    )
    weighted = _opening(vir, replace(facts("vir"), weight="w", features=1), None)
    assert "rows of shells.csv, weighted by w, to predict" in weighted and "from 1 column." in weighted
    assert weighted.endswith("the same share of rare and common labels).")
    elsewhere = replace(facts("vir"), trained_here=False, test_source="rows of new.csv")
    assert "300 rows of new.csv. They hold only if the model was not trained" in _opening(
        vir, elsewhere, None
    )
    assert _opening(vir, elsewhere, vanilla).endswith(
        "They hold only if neither model was trained on these rows."
    )


def test_weights_and_smoothing_in_words() -> None:
    vir = get_method("vir").parts
    assert _weights_text(get_method("vanilla").parts) == _smoothing_text(get_method("vanilla").parts) == ""
    assert "smoothed by a gaussian kernel over" in _weights_text(vir)
    assert _weights_text(vir.with_options(reweight="likelihood")).endswith("It acts on the loss of each row.")
    plain = vir.with_options(**{"weights.kernel": None, "weights.power": 1.0})
    assert _weights_text(plain).startswith("A row's weight is the label density, to the power -1.")
    assert "falls linearly" in _weights_text(vir.with_options(**{"weights.form": "dense"}))
    assert "the form 'reference' with" in _weights_text(vir.with_options(**{"weights.form": "reference"}))
    wide = vir.with_options(**{"smoothing.radius": 3, "smoothing.bandwidth": 1.5})
    assert "over 7 bins, with a bandwidth of 1.5 bins." in _smoothing_text(wide)
    assert _smoothing_text(vir.with_options(**{"smoothing.kernel": None})) == ""


def test_a_kernel_chosen_from_the_labels_is_drawn(vir: Scored, facts: MakeFacts) -> None:
    auto = facts("vir").parts.with_options(**{"weights.kernel": "auto"}).for_bins(vir.bins)
    assert "smoothed by a gaussian kernel" in _weights_text(auto)


def test_facts_are_read_from_the_model(models: dict[str, TailRegressor], vir: Scored) -> None:
    made = facts_of(models["vir"], vir, target="rings", source="shells.csv", command="tailwise fit")
    assert (made.method, made.epochs, made.features, made.seed) == ("vir", 3, 3, 0)
    assert made.train_rows == vir.bins.counts.sum() and made.settings["epochs"] == 3
    assert made.intervals == models["vir"].explain_intervals(0.9, target=0)
