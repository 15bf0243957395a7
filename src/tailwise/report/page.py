"""The page about a fitted model: can its tail be trusted, what does it gain there, and what does it cost.

This module gathers the facts; the words stand in the template ``model.html``.
"""

from __future__ import annotations

import base64
import io
import json
import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tailwise.explanations import importance, shapley
from tailwise.methods import get_method
from tailwise.metrics.regions import REGIONS
from tailwise.report.baselines import Lineup
from tailwise.report.contrasts import Outcome, contrast
from tailwise.report.displays import (
    DialDisplay,
    Display,
    HistogramDisplay,
    LabelErrorDisplay,
    PredictionDisplay,
    RegionDisplay,
    ReliabilityDisplay,
    SparsificationDisplay,
)
from tailwise.report.scores import DIALLED, FIGURES, SHOWN, Dial, Scores
from tailwise.report.verdict import MIN_TAIL_ROWS, Coverage, Soundness, Verdict, rarest_rows, tail_of
from tailwise.report.wording import REGION_WORDS, number, render

if TYPE_CHECKING:
    import pandas as pd

    from tailwise.estimator import TailRegressor
    from tailwise.explanations.columnwise import Figure


@dataclass(frozen=True)
class Facts:
    """How a model was trained and how to train it again: everything on its page that is not a score."""

    target: str
    source: str
    method: str
    train_rows: int
    features: int
    command: str
    intervals: str
    test_source: str = "held out at random, the same share of rare and common labels"
    repeated: int = 0
    """Test rows that are training rows too, if the training rows are at hand."""
    weight: str | None = None
    """Column with the weights of the training rows, if there is one."""
    trained_here: bool = True
    """Whether the model was trained on other rows of `source`."""
    epochs: Sequence[int] = ()
    """Epochs that each network was trained for."""
    best_epochs: Sequence[int] = ()
    """Epoch of each network whose weights were kept."""
    seconds: float = 0.0
    seed: int | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    pictures: bool = False
    """Whether the inputs are the paths of pictures."""


def facts_of(
    model: TailRegressor,
    scores: Scores,
    *,
    target: str,
    place: int = 0,
    dial: Mapping[str, Any] | None = None,
    **about: Any,
) -> Facts:
    """Return the facts about one target of a model, the `place`-th; `about` sets other fields of `Facts`.

    `dial` has the emphasis or the label prior of `scores`, unless it is the model's own.
    """
    settings = ("method_options", "base", "folds", "backbone", "epochs", "batch_size", "lr", "monitor")
    return Facts(
        target=target,
        method=model.method,
        train_rows=int(scores.bins.counts.sum()),
        features=int(model.n_features_in_),
        intervals=model.explain_intervals(scores.coverage, target=place, **(dial or {})),
        epochs=[len(history.history) for history in model.histories_],
        best_epochs=[history.best_epoch for history in model.histories_],
        seed=model.random_state if isinstance(model.random_state, int) else None,
        settings={name: getattr(model, name) for name in settings},
        pictures=model.takes_pictures,
        **about,
    )


def model_page(
    lineup: Lineup,
    verdict: Verdict,
    facts: Facts,
    inputs: pd.DataFrame | None = None,
    drivers: Drivers | None = None,
) -> str:
    """Return the HTML page about a fitted model and its baselines.

    `verdict` is what `judge` returns for the same models. `inputs` are the test rows, for the table of those
    with the largest errors. `drivers` is what `drivers_of` returns for them.
    """
    scores = lineup.ours
    return render(
        "model.html",
        script="dial.js",
        facts=facts,
        title=f"{facts.target}: {scores.title} on {facts.source}",
        method=get_method(facts.method),
        answers=answers_of(lineup),
        verdict=verdict,
        dial=None if scores.dial is None else _dial_panel(scores.dial),
        charts=main_charts(lineup, facts.target),
        figures={name: FIGURES[name] for name in SHOWN},
        dialled={name: FIGURES[name] for name in DIALLED},
        rows=_region_rows(lineup),
        drivers=drivers,
        row_tables=row_tables(scores, inputs, facts.pictures, drivers),
        scores=scores,
        lineup=lineup,
        booster=lineup.booster,
        reliability=ReliabilityDisplay(lineup, facts.target),
        bins=scores.bins.explain(),
        settings={k: v for k, v in facts.settings.items() if v is not None},
    )


def main_charts(lineup: Lineup, label: str) -> list[Display]:
    """Return the charts that answer a user's questions, in the order of the page."""
    dial = [DialDisplay(lineup, label)] if lineup.ours.dial is not None else []
    return [
        HistogramDisplay(lineup, label),
        LabelErrorDisplay(lineup, label),
        PredictionDisplay(lineup, label),
        RegionDisplay(lineup, "coverage", label),
        RegionDisplay(lineup, "width", label),
        *dial,
        SparsificationDisplay(lineup, label),
    ]


def _dial_panel(dial: Dial) -> dict[str, Any]:
    """Return what the slider shows: text of every figure of every region at each emphasis."""
    shown = {
        region: {name: [FIGURES[name].text(value) for value in values] for name, values in figures.items()}
        for region, figures in dial.by_region().items()
    }
    used, settings = dial.scores.emphasis, [f"{setting:g}" for setting in dial.settings]
    return {
        "rows": {region: int(dial.scores.mask(region).sum()) for region in shown},
        "figures": shown,
        "settings": settings,
        "used": 0 if math.isnan(used) else dial.settings.index(used),
        "prior": math.isnan(used),
        "text": dial.text,
        "json": json.dumps({"settings": settings, "regions": shown}),
    }


def _region_rows(lineup: Lineup) -> list[dict[str, Any]]:
    """Return the rows of the table by region: figures of each model, and differences to the first."""
    ours = lineup.ours
    return [
        {
            "region": region,
            "n": int(ours.mask(region).sum()),
            "models": [
                {
                    "title": scores.title,
                    "figures": scores.by_region().loc[region].to_dict(),
                    "contrast": None if scores is ours else contrast(ours, scores, region),
                }
                for scores in lineup.all
            ],
        }
        for region in REGIONS
        if ours.mask(region).any()
    ]


# -- the first screen: four large figures ----------------------------------------------------------


class Beside(NamedTuple):
    """The figure of a baseline, and whether the model's is clearly better."""

    title: str
    value: float
    outcome: Outcome
    width: float = math.nan
    score: float = math.nan
    """Of intervals, as is the width."""


@dataclass(frozen=True)
class Answer:
    """One large figure with the same of the baselines: an error, or the share of intervals that hold."""

    kind: Literal["error", "intervals"]
    labels: str
    """What a sentence calls the labels that an error is about, or those that are rare."""
    n: int
    value: float = math.nan
    """NaN for too few rows."""
    baselines: tuple[Beside, ...] = ()
    rare: tuple[float, float] | None = None
    """Coverage and width for rare labels."""
    tone: str = ""


_TONE: Mapping[Soundness, str] = {"kept": "good", "over": "mixed", "undecided": "mixed", "under": "bad"}


def answers_of(lineup: Lineup) -> list[Answer]:
    """Return how wrong the model is for rare, common and all labels, and whether its intervals hold."""
    scores, tail = lineup.ours, tail_of(lineup.ours)
    everything = scores.mask("all")
    rare = scores.region != "many" if tail is None else tail.rows
    if tail is None and rare.all():
        rare = rarest_rows(scores)
    name = "rare labels" if tail is None else tail.name
    common, other = scores.mask("many"), REGION_WORDS["many"]
    if common.sum() < MIN_TAIL_ROWS:
        common, other = ~rare, "other labels"
    named = {name: rare, other: common, "all labels": everything}
    compared = {s.title: contrast(scores, s, "all") for s in lineup.baselines.values()}
    beside = tuple(
        Beside(
            s.title,
            float(s.inside.mean()),
            compared[s.title].intervals.outcome,
            float(s.width.mean()),
            float(s.interval_score.mean()),
        )
        for s in lineup.baselines.values()
    )
    held = None if tail is None else (float(scores.inside[rare].mean()), float(scores.width[rare].mean()))
    tone = _TONE[Coverage.of(scores, everything).soundness]
    share = float(scores.inside.mean())
    return [
        *(_error(lineup, labels, rows) for labels, rows in named.items()),
        Answer("intervals", name, scores.y.size, share, beside, held, tone),
    ]


def _error(lineup: Lineup, labels: str, rows: NDArray[np.bool_]) -> Answer:
    scores, n = lineup.ours, int(rows.sum())
    if n < MIN_TAIL_ROWS:
        return Answer("error", labels, n)
    compared = {s.title: contrast(scores, s, "", rows) for s in lineup.baselines.values()}
    beside = tuple(Beside(title, c.mae.theirs, c.outcome) for title, c in compared.items())
    return Answer("error", labels, n, float(scores.error[rows].mean()), beside)


# -- which columns drive the tail ------------------------------------------------------------------

BUDGET = 8000
"""Predictions that each of the two explanations may take: fewer rows are used with more columns."""
REPEATS = 3
MIN_ROWS = 60
"""With fewer rows for each shuffle nothing is said."""
MOST_BACKGROUND = 50
SHOWN_DRIVERS = 6
REASONS = 3
ERRORS, WIDTHS = "Largest errors", "Widest intervals"
"""Titles of the two tables of rows."""
_EXPLAINED: dict[str, Figure] = {ERRORS: "prediction", WIDTHS: "width"}
"""What is explained of the rows of each table."""


class Share(NamedTuple):
    """How much a column matters for one measure; `reference` is the measure on the real table."""

    importance: float
    spread: float
    reference: float


@dataclass(frozen=True)
class Driver:
    """How much one column matters: for the error and for the width of intervals."""

    column: str
    rare: Share
    all: Share
    width: Share


@dataclass(frozen=True)
class Drivers:
    """The columns that matter most for rare labels, and reasons of the rows that a page shows."""

    columns: int
    """Columns of the table."""
    matter: tuple[str, ...]
    """Columns whose effect on rare labels is more than chance, the largest first."""
    table: tuple[Driver, ...]
    reasons: Mapping[str, Sequence[Sequence[tuple[str, float]]]]
    """By title of the table: the columns with the largest Shapley values of each of its rows."""


def drivers_of(model: TailRegressor, scores: Scores, *, place: int = 0, **dial: Any) -> Drivers | None:
    """Return which columns matter on test rows; None for pictures, few rows or very many columns.

    `dial` has the emphasis or the label prior of `scores`, unless it is the model's own.
    """
    rows = scores.encoded
    if not model.model_.inputs.is_table or rows is None:
        return None
    columns = len(model.model_.table.places)
    used = min(BUDGET // (REPEATS * columns), len(rows))
    if used < MIN_ROWS:
        return None
    settings: dict[str, Any] = {"target": place, "coverage": scores.coverage, **dial}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # scoring has warned of these rows already
        table = importance(model, rows, scores.y, repeats=REPEATS, max_rows=used, **settings)
        chosen = shown_rows(scores)
        explained = sum(len(places) for places in chosen.values())
        background = min(MOST_BACKGROUND, max(1, BUDGET // (2 * columns * max(explained, 1))))
        settings["background_rows"] = background
        reasons = {
            title: shapley(model, rows.take(places), rows, of=_EXPLAINED[title], **settings).reasons(REASONS)
            for title, places in chosen.items()
        }
    parts = {key: part.set_index("column") for key, part in table.groupby(["measure", "labels"])}
    rare, every, width = parts["error", "rare"], parts["error", "all"], parts["width", "rare"]

    def share(part: pd.DataFrame, name: str) -> Share:
        return Share(*(float(part[column][name]) for column in Share._fields))

    drivers = tuple(
        Driver(str(name), share(rare, name), share(every, name), share(width, name))
        for name in rare.index[:SHOWN_DRIVERS]
    )
    matter = tuple(str(name) for name in rare.index[rare["importance"] > 2 * rare["spread"]])
    return Drivers(len(rare), matter, drivers, reasons)


# -- rows to look at -------------------------------------------------------------------------------

SHOWN_ROWS = 5
SHOWN_COLUMNS = 6
SHOWN_CHARACTERS = 40
THUMBNAIL = 96
"""Height of the copy of a picture in pixels."""


@dataclass(frozen=True)
class RowTable:
    """Test rows with their inputs, predictions and intervals, as text."""

    title: str
    figures: tuple[tuple[str, ...], ...]
    """True and predicted label, error, interval and region of each row."""
    columns: tuple[str, ...] = ()
    cells: tuple[tuple[str, ...], ...] = ()
    reasons: Sequence[Sequence[tuple[str, float]]] | None = None
    pictures: tuple[str, ...] = ()
    """The picture of each row as a data URI, for a model of pictures."""


def shown_rows(scores: Scores) -> dict[str, NDArray[np.int64]]:
    """Return the places of the rows of each table: the largest errors and the widest intervals."""
    kinds = {ERRORS: scores.error, WIDTHS: scores.width}
    return {title: np.argsort(-by, kind="stable")[:SHOWN_ROWS] for title, by in kinds.items()}


def row_tables(
    scores: Scores, inputs: pd.DataFrame | None, pictures: bool = False, drivers: Drivers | None = None
) -> list[RowTable]:
    """Return the test rows with the largest errors and those with the widest intervals.

    With `pictures`, the first column of the inputs has their paths.
    """
    tables = []
    for title, rows in shown_rows(scores).items():
        columns = [] if inputs is None else [inputs.iloc[rows, k] for k in range(inputs.shape[1])]
        cells = [[_cell(value) for value in column] for column in columns[:SHOWN_COLUMNS]]
        tables.append(
            RowTable(
                title,
                tuple(_figures(scores, row) for row in rows),
                tuple(str(column.name) for column in columns[:SHOWN_COLUMNS]),
                tuple(tuple(column[k] for column in cells) for k in range(len(rows))),
                None if drivers is None else drivers.reasons[title],
                tuple(thumbnail(str(path)) for path in columns[0]) if pictures and columns else (),
            )
        )
    return tables


def _figures(scores: Scores, row: int) -> tuple[str, ...]:
    low, high = float(scores.lower[row]), float(scores.upper[row])
    if scores.whole and np.ceil(low) <= np.floor(high):  # the first and the last label that it contains
        low, high = np.ceil(low), np.floor(high)
    return (
        scores.label(scores.y[row]),
        scores.label(scores.mean[row]),
        number(float(scores.error[row])),
        f"{scores.label(low)} to {scores.label(high)}",
        str(scores.region[row]),
    )


def _cell(value: Any) -> str:
    """Return a value of a table as short text, empty where it is missing."""
    import pandas as pd

    if pd.api.types.is_scalar(value) and pd.isna(value):
        return ""
    if isinstance(value, (float, np.floating)):
        return number(float(value))
    text = str(value)
    return text if len(text) <= SHOWN_CHARACTERS else f"{text[: SHOWN_CHARACTERS - 1]}…"


def thumbnail(path: str) -> str:
    """Return a small copy of a picture as a data URI, and an empty text if it cannot be read."""
    from tailwise.images.pictures import ImageError, PictureFiles, decode

    try:
        from PIL import Image

        pixels = decode(PictureFiles().read(path), (THUMBNAIL, THUMBNAIL))
    except (ImageError, OSError, ImportError):
        return ""
    out = io.BytesIO()
    Image.fromarray(pixels).save(out, format="JPEG", quality=80)
    return f"data:image/jpeg;base64,{base64.b64encode(out.getvalue()).decode()}"
