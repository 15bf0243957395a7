"""The page about a fitted model: can its tail be trusted, what does it gain there, and what does it cost.

This module gathers the facts; the words stand in the template ``model.html``.
"""

from __future__ import annotations

import base64
import io
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from tailwise.explanations import importance, shapley
from tailwise.methods import get_method
from tailwise.metrics.regions import REGIONS
from tailwise.report import displays
from tailwise.report.scores import DIALLED, FIGURES, SHOWN, Lineup, Scores
from tailwise.report.verdict import MIN_TAIL_ROWS, Verdict, contrast
from tailwise.report.wording import REGION_WORDS, number, render

if TYPE_CHECKING:
    from tailwise.estimator import TailRegressor
    from tailwise.explanations import Figure

SETTINGS = ("method_options", "base", "folds", "backbone", "epochs", "batch_size", "lr", "monitor")
"""Parameters of a model that its page lists."""


@dataclass(frozen=True)
class About:
    """What the page of a model says that neither the model nor its scores know."""

    target: str
    source: str
    command: str
    place: int = 0
    """Number of the target in the model."""
    dial: Mapping[str, Any] = field(default_factory=dict)
    """The emphasis or the label prior of the scores, unless it is the model's own."""
    test_source: str = "held out at random, the same share of rare and common labels"
    repeated: int = 0
    """Test rows that are training rows too, if the training rows are at hand."""
    weight: str | None = None
    """Column with the weights of the training rows, if there is one."""
    trained_here: bool = True
    """Whether the model was trained on other rows of `source`."""
    seconds: float = 0.0


def model_page(
    model: TailRegressor,
    verdict: Verdict,
    about: About,
    inputs: pd.DataFrame | None = None,
) -> str:
    """Return the HTML page about a fitted model and its baselines.

    `verdict` is what `judge` returns. `inputs` are the test rows: the page shows some of them, with reasons.
    """
    lineup, scores = verdict.lineup, verdict.ours
    settings = {name: getattr(model, name) for name in SETTINGS}
    drivers = None if inputs is None else drivers_of(model, scores, place=about.place, **about.dial)
    return render(
        "model.html",
        script="dial.js",
        about=about,
        model=model,
        title=f"{about.target}: {scores.title} on {about.source}",
        method=get_method(model.method),
        answers=answers_of(verdict),
        least=MIN_TAIL_ROWS,
        verdict=verdict,
        dial=scores.dial,
        charts=main_charts(lineup, about.target),
        figures={name: FIGURES[name] for name in SHOWN},
        dialled={name: FIGURES[name] for name in DIALLED},
        regions=[region for region in REGIONS if scores.mask(region).any()],
        contrast=contrast,
        drivers=drivers,
        inputs=inputs is not None,
        row_tables=row_tables(scores, inputs, model.takes_pictures, drivers),
        scores=scores,
        lineup=lineup,
        reliability=displays.ReliabilityDisplay(lineup, about.target),
        bins=scores.bins.explain(),
        intervals=model.explain_intervals(scores.coverage, target=about.place, **about.dial),
        settings={name: value for name, value in settings.items() if value is not None},
    )


def main_charts(lineup: Lineup, label: str) -> list[displays.Display]:
    """Return the charts that answer a user's questions, in the order of the page."""
    return [
        displays.HistogramDisplay(lineup, label),
        displays.LabelErrorDisplay(lineup, label),
        displays.PredictionDisplay(lineup, label),
        displays.RegionDisplay(lineup, "coverage", label),
        displays.RegionDisplay(lineup, "width", label),
        *([displays.DialDisplay(lineup, label)] if lineup.ours.dial is not None else []),
        displays.SparsificationDisplay(lineup, label),
    ]


# -- the first screen ------------------------------------------------------------------------------


def answers_of(verdict: Verdict) -> dict[str, NDArray[np.bool_]]:
    """Return by name the test rows whose errors come first: with rare, with common and with all labels."""
    scores, tail = verdict.ours, verdict.tail
    rare = scores.region != "many" if tail is None else tail.rows
    if tail is None and rare.all():
        rare = scores.rare
    common, other = scores.mask("many"), REGION_WORDS["many"]
    if common.sum() < MIN_TAIL_ROWS:
        common, other = ~rare, "other labels"
    name = "rare labels" if tail is None else tail.name
    return {name: rare, other: common, "all labels": scores.mask("all")}


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


@dataclass(frozen=True)
class Drivers:
    """The columns that matter most for rare labels, and reasons of the rows that a page shows."""

    columns: int
    """Columns of the table."""
    matter: tuple[str, ...]
    """Columns whose effect on rare labels is more than chance, the largest first."""
    table: Mapping[str, Mapping[str, Any]]
    """By column: lines of `importance` for the errors of ``rare`` and ``all`` labels and the ``width``."""
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
    shown = {"rare": ("error", "rare"), "all": ("error", "all"), "width": ("width", "rare")}
    rare = parts["error", "rare"]
    lines = {c: {k: parts[key].loc[c] for k, key in shown.items()} for c in rare.index[:SHOWN_DRIVERS]}
    matter = tuple(str(name) for name in rare.index[rare["importance"] > 2 * rare["spread"]])
    return Drivers(len(rare), matter, lines, reasons)


# -- rows to look at -------------------------------------------------------------------------------

SHOWN_ROWS = 5
SHOWN_COLUMNS = 6
SHOWN_CHARACTERS = 40
THUMBNAIL = 96
"""Height of the copy of a picture in pixels."""


def shown_rows(scores: Scores) -> dict[str, NDArray[np.int64]]:
    """Return the places of the rows of each table: the largest errors and the widest intervals."""
    kinds = {ERRORS: scores.error, WIDTHS: scores.width}
    return {title: np.argsort(-by, kind="stable")[:SHOWN_ROWS] for title, by in kinds.items()}


def row_tables(
    scores: Scores, inputs: pd.DataFrame | None, pictures: bool = False, drivers: Drivers | None = None
) -> dict[str, list[dict[str, Any]]]:
    """Return by title the rows with the largest errors and those with the widest intervals, as text.

    Each has ``figures`` by name, ``cells`` by the name of the column and the ``reasons`` of its figure. Where
    `pictures` says that the first column has paths, it has the ``picture`` as a data URI.
    """
    columns = pd.DataFrame(index=range(scores.y.size)) if inputs is None else inputs.iloc[:, :SHOWN_COLUMNS]
    tables = {}
    for title, rows in shown_rows(scores).items():
        cells = columns.iloc[rows].astype(object)  # a row of numbers keeps whole ones whole
        tables[title] = [
            {
                "figures": _figures(scores, row),
                "cells": {str(name): _cell(value) for name, value in cells.iloc[place].items()},
                "reasons": drivers and drivers.reasons[title][place],
                "picture": thumbnail(str(cells.iloc[place, 0])) if pictures and cells.size else "",
            }
            for place, row in enumerate(rows)
        ]
    return tables


def _figures(scores: Scores, row: int) -> dict[str, str]:
    low, high = float(scores.lower[row]), float(scores.upper[row])
    if scores.whole and np.ceil(low) <= np.floor(high):  # the first and the last label that it contains
        low, high = np.ceil(low), np.floor(high)
    return {
        "true": scores.label(scores.y[row]),
        "predicted": scores.label(scores.mean[row]),
        "error": number(float(scores.error[row])),
        "interval": f"{scores.label(low)} to {scores.label(high)}",
        "region": str(scores.region[row]),
    }


def _cell(value: Any) -> str:
    """Return a value of a table as short text, empty where it is missing."""
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
