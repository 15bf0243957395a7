"""The first screen of a page: four large figures with their baselines, and the rows to look at."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tailwise.report.baselines import Lineup
from tailwise.report.contrasts import REGION_WORDS, Outcome, contrast, coverage_contrast
from tailwise.report.formatting import level, number, pair, percent
from tailwise.report.interval_verdict import (
    MIN_TAIL_ROWS,
    Soundness,
    interval_soundness,
    rarest_rows,
    tail_of,
)
from tailwise.report.scoring import Difference, Scored
from tailwise.report.thumbnails import thumbnail

if TYPE_CHECKING:
    import pandas as pd

SHOWN_ROWS = 5
SHOWN_COLUMNS = 6
SHOWN_CHARACTERS = 40
ERRORS, WIDTHS = "Largest errors", "Widest intervals"
"""Titles of the two tables of rows."""
REASONS_COLUMN = "reasons"
_WORDS: dict[Outcome, str] = {
    "better": "ours is lower",
    "worse": "ours is higher",
    "mixed": "RMSE disagrees",
    "undecided": "undecided",
}
"""What MAE and RMSE say together about the error of the model, as in the verdict."""
_COVERS: dict[Outcome, str] = {
    "better": "ours hold more",
    "worse": "ours hold fewer",
    "undecided": "undecided",
}
"""Whether the intervals of the model contain clearly more labels."""
_TONE: dict[Soundness, str] = {"kept": "good", "over": "mixed", "undecided": "mixed", "under": "bad"}


@dataclass(frozen=True)
class Answer:
    """One large figure: the question, the figure, what it is, and the same of the baselines."""

    question: str
    figure: str
    about: str
    baselines: tuple[tuple[str, str], ...]
    tone: str = ""


def answers_of(lineup: Lineup) -> list[Answer]:
    """Return how wrong the model is for rare and common labels, whether intervals hold, and the cost."""
    scored, tail = lineup.ours, tail_of(lineup.ours)
    rare = scored.region != "many" if tail is None else tail.rows
    if tail is None and rare.all():
        rare = rarest_rows(scored)
    name = "rare labels" if tail is None else tail.name
    common, other = scored.mask("many"), REGION_WORDS["many"]
    if common.sum() < MIN_TAIL_ROWS:
        common, other = ~rare, "other labels"
    return [
        _error(lineup, f"Error for {name}", rare),
        _error(lineup, f"Error for {other}", common),
        _intervals(lineup, rare if tail is not None else np.zeros_like(rare), name),
        _cost(lineup),
    ]


def _error(lineup: Lineup, question: str, rows: NDArray[np.bool_]) -> Answer:
    n = int(rows.sum())
    if n < MIN_TAIL_ROWS:
        about = "no test row has such a label" if n == 0 else f"{n} test row{'s' * (n > 1)}: too few to say"
        return Answer(question, "–", about, ())
    scored = lineup.ours
    others = []
    for rival in lineup.rivals:
        found = contrast(scored, rival, "", rows)
        others.append((rival.title, f"{number(found.mae.theirs)}, {_WORDS[found.outcome]}"))
    if lineup.constant is not None:
        others.append(("constant", number(float(lineup.constant.error[rows].mean()))))
    about = f"mean absolute error, {n:,} test rows"
    return Answer(question, number(float(scored.error[rows].mean())), about, tuple(others))


def _intervals(lineup: Lineup, rare: NDArray[np.bool_], name: str) -> Answer:
    scored = lineup.ours
    everything = scored.mask("all")
    judged = rare if rare.any() else everything
    both = [interval_soundness(scored, rows) for rows in (everything, judged)]
    tone = next(_TONE[kind] for kind in ("under", "undecided", "over", "kept") if kind in both)
    others = []
    if rare.any():
        others.append((name, _coverage_and_width(scored, rare)))
    for other in (lineup.other, lineup.booster, lineup.constant):
        if other is not None:
            text = _coverage_and_width(other, everything)
            if rare.any():
                word = _COVERS[coverage_contrast(scored, other, rare).outcome]
                text += f"\nrare {percent(other.inside[rare].mean())}, {word}"
            others.append((other.title, text))
    about = (
        f"of {level(scored.coverage)} intervals contain the label; mean width {number(scored.width.mean())}"
    )
    return Answer("Do the intervals hold?", percent(scored.inside.mean()), about, tuple(others), tone)


def _coverage_and_width(scored: Scored, rows: NDArray[np.bool_]) -> str:
    return f"{percent(scored.inside[rows].mean())}, {number(float(scored.width[rows].mean()))} wide"


def _cost(lineup: Lineup) -> Answer:
    """The error over all rows, as a change against the first baseline that there is."""
    scored = lineup.ours
    found = {
        rival.title: contrast(scored, rival, "all")
        for rival in (lineup.booster, lineup.other, lineup.weighted)
        if rival is not None
    }
    question = "Cost over all labels"
    if not found:
        return Answer(question, number(float(scored.error.mean())), "mean absolute error; no baseline", ())
    (first, cost), *others = found.items()
    changes = [(title, f"{_change(d.mae)}, {_WORDS[d.outcome]}") for title, d in others]
    if lineup.constant is not None:
        changes.append(("constant", _change(contrast(scored, lineup.constant, "all").mae)))
    figures = " and ".join(pair(cost.mae.ours, cost.mae.theirs))
    about = f"error of all {cost.mae.n:,} test rows against {first}: {figures}"
    return Answer(
        question,
        _change(cost.mae),
        f"{about}, {_WORDS[cost.outcome]}",
        tuple(changes),
    )


def _change(found: Difference) -> str:
    if found.theirs == 0:
        return number(found.value)
    share = 100 * found.value / found.theirs
    return "0%" if abs(share) < 0.05 else f"{share:+.1f}%".replace("-", "\u2212")


# -- rows to look at -------------------------------------------------------------------------------


@dataclass(frozen=True)
class RowTable:
    """Test rows with their inputs, predictions and intervals, as text."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    pictures: tuple[str, ...] = ()
    """The picture of each row as a data URI, for a model of pictures."""


def shown_rows(scored: Scored) -> dict[str, NDArray[np.int64]]:
    """Return the places of the rows of each table: the largest errors and the widest intervals."""
    kinds = {ERRORS: scored.error, WIDTHS: scored.width}
    return {title: np.argsort(-by, kind="stable")[:SHOWN_ROWS] for title, by in kinds.items()}


def row_tables(
    scored: Scored,
    inputs: pd.DataFrame | None,
    *,
    pictures: bool = False,
    reasons: Mapping[str, Sequence[str]] | None = None,
) -> list[RowTable]:
    """Return the test rows with the largest errors and those with the widest intervals.

    With `pictures`, the first column of the inputs has their paths. `reasons` has a text for each row of each
    table, by its title.
    """
    return [
        _row_table(title, scored, inputs, chosen, pictures, (reasons or {}).get(title))
        for title, chosen in shown_rows(scored).items()
    ]


def _row_table(
    title: str,
    scored: Scored,
    inputs: pd.DataFrame | None,
    chosen: NDArray[np.int64],
    pictures: bool,
    reasons: Sequence[str] | None,
) -> RowTable:
    names = [] if inputs is None else list(inputs.columns[:SHOWN_COLUMNS])
    rows = []
    for place, row in enumerate(chosen):
        cells = [
            scored.label(scored.y[row]),
            scored.label(scored.mean[row]),
            number(float(scored.error[row])),
            _interval_text(scored, float(scored.lower[row]), float(scored.upper[row])),
            str(scored.region[row]),
        ]
        given = [] if inputs is None else [_cell(inputs[name].iloc[row]) for name in names]
        why = [] if reasons is None else [reasons[place]]
        rows.append((*cells, *why, *given))
    why = [] if reasons is None else [REASONS_COLUMN]
    columns = ("true", "predicted", "error", "interval", "region", *why, *map(str, names))
    shown: tuple[str, ...] = ()
    if pictures and inputs is not None:
        shown = tuple(thumbnail(str(inputs.iloc[row, 0])) for row in chosen)
    return RowTable(title, columns, tuple(rows), shown)


def _interval_text(scored: Scored, low: float, high: float) -> str:
    """Return the ends of an interval; of whole labels the first and the last that it contains."""
    if scored.whole and np.ceil(low) <= np.floor(high):
        low, high = np.ceil(low), np.floor(high)
    return f"{scored.label(low)} to {scored.label(high)}"


def _cell(value: Any) -> str:
    """Return a value of a table as short text, empty where it is missing."""
    import pandas as pd

    if pd.api.types.is_scalar(value) and pd.isna(value):
        return ""
    if isinstance(value, (float, np.floating)):
        return number(float(value))
    text = str(value)
    return text if len(text) <= SHOWN_CHARACTERS else f"{text[: SHOWN_CHARACTERS - 1]}…"
