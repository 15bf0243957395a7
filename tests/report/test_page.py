"""Plots, displays and pages of a fitted model."""

import io
import re
from collections.abc import Callable
from dataclasses import replace
from html import unescape
from html.parser import HTMLParser

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
import torch
from matplotlib.axes import Axes

from tailwise import TailRegressor, diagnose
from tailwise.core.labels import LabelBins
from tailwise.methods import get_method
from tailwise.report import plots
from tailwise.report.page import Facts, model_page
from tailwise.report.ranking import comparison_page
from tailwise.report.scoring import LEVELS, Scored, score_model
from tailwise.report.svg import page_style
from tailwise.report.verdict import judge

BINS = LabelBins.from_labels(np.repeat(np.arange(6.0), [300, 200, 120, 60, 10, 5]))


def table(rows: int, seed: int) -> tuple[pd.DataFrame, np.ndarray]:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, 3))
    y = np.round(2 * np.exp(x[:, 0]) + 0.3 * rng.normal(size=rows))
    return pd.DataFrame(x, columns=["a", "b", "c"]), y


@pytest.fixture(scope="module")
def models() -> dict[str, TailRegressor]:
    made = {}
    for method in ("vir", "vanilla"):
        made[method] = TailRegressor(method=method, epochs=3, random_state=0).fit(*table(700, 0))
    return made


@pytest.fixture(scope="module")
def both(models: dict[str, TailRegressor]) -> tuple[Scored, Scored]:
    return score_model(models["vir"], *table(300, 1)), score_model(models["vanilla"], *table(300, 1))


def facts(model: TailRegressor) -> Facts:
    return Facts(
        target="rings & <things>",
        source="shells.csv",
        method=model.method,
        train_rows=560,
        features=3,
        command="tailwise fit shells.csv --target 'rings & <things>'",
        parts=get_method(model.method).parts,
        intervals=model.explain_intervals(),
        seed=0,
    )


# -- evidence ------------------------------------------------------------------------------------


def test_scores_agree_with_the_estimators_own(
    models: dict[str, TailRegressor], both: tuple[Scored, Scored]
) -> None:
    X, y = table(300, 1)
    ours = both[0].by_region()
    own = models["vir"].score_by_region(X, y).set_index("region")
    for name in ("mae", "rmse", "nll", "coverage", "width"):
        np.testing.assert_allclose(ours[name], own[name], rtol=1e-5, equal_nan=True)
    interval = models["vir"].predict_interval(X, 0.9)
    np.testing.assert_allclose(np.stack([both[0].lower, both[0].upper], 1), interval)
    assert both[0].reliability()[LEVELS.index(0.9)] == pytest.approx(both[0].inside.mean())


def test_points_along_the_label_hold_enough_rows_and_all_of_them(both: tuple[Scored, Scored]) -> None:
    curve = both[0].along_label(min_rows=7)
    assert curve["n"].min() >= 7 and curve["n"].sum() == 300
    assert (np.average(curve["mae"], weights=curve["n"])) == pytest.approx(both[0].error.mean())
    assert curve["center"].is_monotonic_increasing


def test_calibration_can_be_undone(models: dict[str, TailRegressor], both: tuple[Scored, Scored]) -> None:
    scaling = models["vir"].calibrators_[0].scaling
    assert scaling is not None
    again = scaling.apply(both[0].uncalibrated)
    torch.testing.assert_close(again.variance, both[0].distribution.variance)


def test_several_targets_are_refused() -> None:
    X, y = table(60, 0)
    model = TailRegressor(epochs=1, random_state=0).fit(X, np.stack([y, y], 1))
    with pytest.raises(ValueError, match="one target"):
        score_model(model, X, y)


# -- plots ---------------------------------------------------------------------------------------


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
    "reliability": lambda ax: plots.reliability_diagram({"a": [0.1, 0.5]}, [0.1, 0.6], ax),
    "parts": lambda ax: plots.variance_parts(curve(), ax, bins=BINS),
    "weights": lambda ax: plots.bin_weights(BINS, np.ones(len(BINS)), ax),
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
    drawn = io.StringIO()
    with page_style():
        draw(name).figure.savefig(drawn, format="svg")
    assert name in unescape(drawn.getvalue())


def test_a_bin_with_one_row_can_be_seen_on_a_scale_of_plain_numbers() -> None:
    one = LabelBins.from_labels(np.repeat([0.0, 1.0, 2.0], [4, 1, 2]))
    ax = plots.label_histogram(one)
    low, high = ax.get_ylim()
    assert low < 0.8 and high > 4
    shown = [text.get_text() for text in ax.get_yticklabels() if low <= text.get_position()[1] <= high]
    assert shown == ["1", "2", "5"]
    shown = [text.get_text() for text in plots.label_histogram(BINS).get_yticklabels()]
    assert {"1", "10", "100"} <= set(shown) and not any("$" in text for text in shown)


def test_markers_are_not_cut_off() -> None:
    dot = pd.DataFrame({"center": [5.0], "mae": [2.0]})
    assert plots.error_by_label({"a": dot}).get_ylim()[1] > 2.1


def test_lines_differ_by_more_than_colour() -> None:
    ax = plots.error_by_label({name: curve() for name in "abc"})
    lines = [line for line in ax.get_lines() if line.get_label() in "abc"]
    assert len({line.get_linestyle() for line in lines}) == 3
    assert len({line.get_marker() for line in lines}) == 3


# -- pages ---------------------------------------------------------------------------------------


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
    "How common each label is", "Verdict", "Error along the label", "Predicted against true",
    "Do the intervals hold?", "How wide are they?", "Does it know when it is wrong?", "Reliability",
    "Noise or lack of data?", "Calibration, before and after", "Figures by region",
    "Bins, weights and smoothing", "How to reproduce this",
]  # fmt: skip


def test_the_page_has_every_part_in_order(
    models: dict[str, TailRegressor], both: tuple[Scored, Scored]
) -> None:
    page = model_page(both[0], judge(both[0], both[1]), facts(models["vir"]), both[1])
    read = Reader(page)
    assert read.headings[1:] == ORDER
    assert read.loaded == [] and "<script" not in page and "@import" not in page
    assert len(read.ids) == len(set(read.ids))
    assert len(read.pictures) == 10 and all(len(text) > 40 for text in read.pictures)
    assert "&lt;things&gt;" in page and "<things>" not in page
    assert len(page.encode()) < 2_000_000
    assert "In the many-shot region" in page
    assert "break-after: avoid" in page  # on paper no heading stays behind alone
    for name in re.findall(r'(?:url\(#|href="#)([^")]+)', page):
        assert name in read.ids


def test_a_page_about_one_model_alone(models: dict[str, TailRegressor], both: tuple[Scored, Scored]) -> None:
    page = model_page(both[1], judge(both[1]), facts(models["vanilla"]))
    headings = Reader(page).headings
    assert "Noise or lack of data?" not in headings  # plain regression cannot tell the parts apart
    assert "weighs every row alike" in page and "against" not in page.split("Figures by region")[1][:400]


def test_two_models_that_tie_and_a_region_of_one_row(
    models: dict[str, TailRegressor], both: tuple[Scored, Scored]
) -> None:
    page = model_page(
        both[0],
        judge(both[0], replace(both[0], title="Twin")),
        facts(models["vir"]),
        replace(both[0], title="Twin"),
    )
    assert "In the many-shot region VIR and Twin have the same mean absolute error" in page
    X, y = table(300, 1)
    first = int(np.flatnonzero(both[0].region == "few")[0])
    rows = np.sort(np.append(np.flatnonzero(both[0].region == "many"), first))
    pair = [score_model(models[m], X.iloc[rows], y[rows]) for m in ("vir", "vanilla")]
    cells = model_page(pair[0], judge(pair[0], pair[1]), facts(models["vir"]), pair[1]).split(
        "Figures by region"
    )[2]
    assert "inf" not in cells.split("</table>")[0]


def test_the_chart_along_the_label_says_where_it_ends(
    models: dict[str, TailRegressor], both: tuple[Scored, Scored]
) -> None:
    X, y = table(300, 1)
    told = f"No test row is above {int(y[y <= 5].max())}; training labels reach about"
    near = score_model(models["vir"], X[y <= 5], y[y <= 5])
    chart = model_page(near, judge(near), facts(models["vir"])).split("<h2>Error along the label</h2>")[1]
    assert told in chart.split("<figcaption>")[1].split("</figcaption>")[0]
    assert "No test row is above 5" not in model_page(both[0], judge(both[0]), facts(models["vir"]))


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


def test_charts_take_the_pages_colours(models: dict[str, TailRegressor], both: tuple[Scored, Scored]) -> None:
    page = model_page(both[0], judge(both[0]), facts(models["vir"]))
    assert "currentColor" in page and plots.INK not in page.split("</style>")[1]


def test_the_page_of_a_comparison() -> None:
    from tailwise.benchmark.pages.statistics import Results

    page = comparison_page(Results(records()), title="two methods", command="tailwise compare")
    read = Reader(page)
    assert "A has the lowest error for few-shot labels (1)" in page
    assert len(read.pictures) == 3 and len(read.ids) == len(set(read.ids))


def records() -> list[dict[str, object]]:
    made = []
    for method, error in (("a", 1.0), ("b", 2.0)):
        for seed in (0, 1):
            numbers = {"mae": error + 0.01 * seed - 0.005, "nll": error, "coverage": 0.9}
            scores = dict.fromkeys(("all", "many", "medium", "few"), numbers)
            made.append(
                {
                    "data": "shells", "method": method, "title": method.upper(), "seed": seed, "digest": "x",
                    "recipe": {"epochs": 3}, "rows": {"train": 1},
                    "metrics": {"raw": scores, "calibrated": scores},
                }
            )  # fmt: skip
    return made
