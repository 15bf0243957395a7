"""Which columns drive the tail, and why the riskiest rows are predicted as they are."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tailwise.explanations import importance, shapley
from tailwise.labels.prior import RARE_SHARE
from tailwise.report.answers import ERRORS, WIDTHS, shown_rows
from tailwise.report.formatting import level, number
from tailwise.report.scoring import Scored

if TYPE_CHECKING:
    import pandas as pd

    from tailwise.estimator import TailRegressor
    from tailwise.explanations.columnwise import Figure

BUDGET = 8000
"""Predictions that each of the two explanations may take: fewer rows are used with more columns."""
REPEATS = 3
MIN_ROWS = 60
"""With fewer rows for each shuffle nothing is said."""
MOST_BACKGROUND = 50
SHOWN_DRIVERS = 6
SHOWN_CHARACTERS = 30
REASONS = 3
_EXPLAINED: dict[str, Figure] = {ERRORS: "prediction", WIDTHS: "width"}
"""What is explained of the rows of each table."""


@dataclass(frozen=True)
class Driver:
    """How much one column matters: shares of the error and of the width, as text."""

    column: str
    rare: str
    all: str
    width: str


@dataclass(frozen=True)
class Drivers:
    """The columns that matter most for rare labels, and reasons of the rows that a page shows."""

    text: str
    table: tuple[Driver, ...]
    reasons: Mapping[str, tuple[str, ...]]
    """By title of the table: the reasons of each of its rows."""


def drivers_of(
    model: TailRegressor, scored: Scored, inputs: pd.DataFrame, *, place: int = 0, **dial: Any
) -> Drivers | None:
    """Return which columns matter on test rows; None for pictures, few rows or very many columns.

    `dial` has the emphasis or the label prior of `scored`, unless it is the model's own. `inputs` are the
    test rows of `scored` with the columns of the model.
    """
    if not model.model_.inputs.is_table:
        return None
    columns = len(model.model_.table.places)
    rows = min(BUDGET // (REPEATS * columns), len(inputs))
    if rows < MIN_ROWS:
        return None
    settings: dict[str, Any] = {"target": place, "coverage": scored.coverage, **dial}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # scoring has warned of these rows already
        table = importance(model, inputs, scored.y, repeats=REPEATS, max_rows=rows, **settings)
        chosen = shown_rows(scored)
        explained = sum(len(each) for each in chosen.values())
        background = min(MOST_BACKGROUND, max(1, BUDGET // (2 * columns * max(explained, 1))))
        reasons = {}
        for title, places in chosen.items():
            found = shapley(
                model,
                inputs.iloc[places],
                inputs,
                of=_EXPLAINED[title],
                background_rows=background,
                **settings,
            )
            reasons[title] = tuple(_reasons_text(each) for each in found.reasons(REASONS))
    return Drivers(*_drivers(table), reasons)


def _reasons_text(reasons: list[tuple[str, float]]) -> str:
    """``size +3.2, kind −1``; a value stays on the line of its name."""
    return ", ".join(f"{_short(name)}\u00a0{_signed(value)}" for name, value in reasons)


def _signed(value: float) -> str:
    return ("+" if value > 0 else "\u2212") + number(abs(value), 2)


def _short(name: str) -> str:
    return name if len(name) <= SHOWN_CHARACTERS else f"{name[: SHOWN_CHARACTERS - 1]}…"


def _drivers(table: pd.DataFrame) -> tuple[str, tuple[Driver, ...]]:
    """Return the sentence above the table, and its rows."""
    parts = {key: part.set_index("column") for key, part in table.groupby(["measure", "labels"])}
    rare, every, width = parts["error", "rare"], parts["error", "all"], parts["width", "rare"]
    found = tuple(
        Driver(
            _short(name),
            _share(rare.loc[name]),
            _share(every.loc[name]),
            _share(width.loc[name]).removeprefix("+"),
        )
        for name in rare.index[:SHOWN_DRIVERS]
    )
    kind = f"the rarest {level(RARE_SHARE)} of the labels"
    matter = [
        _short(name) for name in rare.index if rare.loc[name, "importance"] > 2 * rare.loc[name, "spread"]
    ]
    text = f"Shuffling a single column changes the error for {kind} by no more than chance."
    if matter:
        then = f", then {matter[1]}" if len(matter) > 1 else ""
        text = f"The error for {kind} increases most if {matter[0]} is shuffled{then}."
    if len(rare) > len(found):
        text += f" The table shows the {len(found)} of {len(rare):,} columns that matter most."
    return text, found


def _share(row: Any) -> str:
    """``+35% ± 4%`` of the figure on the real table."""
    scale = float(row["reference"])
    if not np.isfinite(scale) or scale <= 0:
        return number(float(row["importance"]))
    share, spread = (100 * float(row[name]) / scale for name in ("importance", "spread"))
    shown = round(share)
    sign = "\u2212" if shown < 0 else "+" if shown > 0 else ""
    return f"{sign}{abs(shown)}% ± {spread:.0f}%"
