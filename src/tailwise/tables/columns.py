"""The columns of a table: targets and weights as numbers, and columns that may not be what they seem.

Errors name the file, the column and the line, and say what to do.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tailwise.lookup import nearest
from tailwise.tables.read import TableError

if TYPE_CHECKING:
    import pandas as pd

NEAR_COPY = 0.95
"""A column whose correlation with the target is at least this may be a copy of it."""
NUMBER_SHARE = 0.9
"""A column of text with this share of numbers was probably meant as numbers."""
MOST_COLUMNS = 1_000
"""More columns of text, categories or dates are an error: to encode and to save so many takes minutes."""
LARGEST_TARGET = 1e150
"""Larger labels are refused: their squares overflow float64."""
_FORMATTED_NUMBER = re.compile(
    r"\(?[+-]?\s?[€$£¥]?\s?[+-]?(\d{1,3}([,'.\s]\d{3})+|\d+)([.,]\d+)?\s?(%|[€$£¥]|[A-Z]{3})?\)?"
)
"""A number with separated thousands, a decimal comma, a unit or parentheses for minus."""


def check_column(table: pd.DataFrame, column: str, name: str) -> None:
    """Raise an error that suggests the nearest name if the table has no such column."""
    titles = [str(title) for title in table.columns]
    if column in titles:
        return
    folded = {title.casefold(): title for title in titles}
    hint = nearest(folded.get(column.casefold(), column), titles)
    if "did you mean" not in hint:
        shown = ", ".join(titles[:12]) + (f" and {len(titles) - 12} more" if len(titles) > 12 else "")
        hint = f"; its columns are {shown}"
    if sum(as_number(title) is not None for title in titles) >= 0.5 * len(titles):
        hint += ". Most of these are numbers: is the line of column names missing?"
    raise TableError(f"{name} has no column {column!r}{hint}")


def is_number(kind: Any) -> bool:
    """Whether a dtype is one of numbers or booleans."""
    from pandas.api.types import is_bool_dtype, is_numeric_dtype

    return bool(is_numeric_dtype(kind) or is_bool_dtype(kind))


def count_others(table: Any) -> int:
    """Return the number of columns that are not numbers; too many to encode are an error."""
    others = sum(not is_number(kind) for kind in table.dtypes)
    if others > MOST_COLUMNS:
        raise TableError(
            f"{others} columns are not numbers, and at most {MOST_COLUMNS} can be encoded: leave out those "
            "that do not matter, or replace their texts by numbers"
        )
    return others


def split_targets(
    table: pd.DataFrame, targets: Sequence[str], name: str, drop: Sequence[str] = ()
) -> tuple[pd.DataFrame, pd.DataFrame, int]:
    """Return the inputs, the targets as numbers, and the number of rows left out for lack of a target."""
    for column in (*targets, *drop):
        check_column(table, column, name)
    for place, target in enumerate(targets):
        if target in drop:
            raise TableError(f"column {target!r} is the target and cannot be dropped as well")
        if target in targets[:place]:
            raise TableError(f"column {target!r} is named as a target twice")
    labels = table[[]].copy()
    for target in targets:
        labels[target] = _numbers(table[target], f"target {target!r}", name)
    labelled = labels.notna().all(axis=1)
    words = " and ".join(map(repr, targets))
    if not labelled.any():
        raise TableError(f"{name}: the target {words} is missing in every row")
    inputs = table.drop(columns=[*targets, *drop])
    if inputs.shape[1] == 0:
        raise TableError(f"{name} has no column besides the target {words}: there is nothing to predict from")
    missing = int((~labelled).sum())
    if missing:
        inputs, labels = inputs[labelled].reset_index(drop=True), labels[labelled].reset_index(drop=True)
    return inputs, labels, missing


def row_weights(table: pd.DataFrame, column: str, targets: Sequence[str], name: str) -> pd.Series[float]:
    """Return the weights of the rows that have labels; an error shows the first cell that is no weight."""
    labelled = table[list(targets)].notna().all(axis=1)
    what = f"weight {column!r}"
    weights = _numbers(table[column].where(labelled, 0) if not labelled.all() else table[column], what, name)
    wrong = ~(weights >= 0).to_numpy()
    if wrong.any():
        row = int(np.argmax(wrong))
        cell, count = shown_cell(table[column].iloc[row]), int(wrong.sum())
        raise TableError(
            f"{name}: the {what} must be a number of at least 0 in every row with a label, but line "
            f"{row + 2} holds {cell} ({count} such of {int(labelled.sum())}): correct these cells, or write "
            "0 to leave a row out of training"
        )
    if not (weights[labelled] > 0).any():
        raise TableError(f"{name}: the {what} is 0 in every row: there is nothing to train on")
    return weights[labelled].reset_index(drop=True)


def check_infinity(table: Any, source: str | None = None) -> None:
    """Raise an error that names the column and the row of an infinite number in a DataFrame.

    The error counts rows from 0 or, if `source` names a file with a line of column names, in lines.
    """
    for title, cells in table.items():  # by `iloc`, each column would take three times as long
        if getattr(cells.dtype, "kind", "") != "f":
            continue
        infinite = np.isinf(cells.to_numpy(np.float64, na_value=np.nan))
        if infinite.any():
            column, row = repr(str(title)), int(infinite.argmax())
            if source is None:
                remedy = "make it missing (NaN) or drop the row"
                raise TableError(f"column {column} holds an infinity in row {row}: {remedy}")
            raise TableError(f"{source}: column {column} is infinite in line {row + 2}: leave the cell empty")


def near_copies(inputs: pd.DataFrame, labels: pd.Series[float]) -> list[str]:
    """Return the columns that correlate so strongly with the target that they may copy it, closest first."""
    correlations = {}
    for title in inputs.columns:
        column = inputs[title]
        if column.dtype.kind not in "ifu":
            continue
        both = np.isfinite(column.to_numpy(np.float64)) & np.isfinite(labels.to_numpy())
        x, y = column.to_numpy(np.float64)[both], labels.to_numpy()[both]
        if x.size >= 20 and np.ptp(x) > 0 and np.ptp(y) > 0:
            with np.errstate(all="ignore"):
                correlations[str(title)] = abs(float(np.corrcoef(x, y)[0, 1]))
    close = [title for title, value in correlations.items() if value >= NEAR_COPY]
    return sorted(close, key=lambda title: -correlations[title])


def numbers_as_text(inputs: pd.DataFrame) -> dict[str, str]:
    """Return the text columns that a reader would take for numbers, each with a cell that does not parse."""
    examples = {}
    for title in inputs.columns:
        cells = [cell.strip() for cell in inputs[title].dropna().head(1000) if isinstance(cell, str)]
        strange = [cell for cell in cells if as_number(cell) is None]
        numbers = len(cells) - sum(1 for cell in strange if not _FORMATTED_NUMBER.fullmatch(cell))
        if strange and numbers >= NUMBER_SHARE * len(cells):
            examples[str(title)] = strange[0]
    return examples


def as_number(text: str) -> float | None:
    """Return the number that a text holds, or None if it holds none."""
    try:
        return None if "_" in text else float(text)  # 1_000 is a number in Python, but not in data files
    except ValueError:
        return None


def shown_cell(cell: Any) -> str:
    """Return a cell in quotes for a message, at most 40 characters of it."""
    text = str(cell)
    return repr(text if len(text) <= 40 else f"{text[:40]}...")


def number_column(table: pd.DataFrame, column: str, name: str) -> pd.Series[float]:
    """Return a column as float64, NaN where it is empty; an error shows the first cell that is no number."""
    check_column(table, column, name)
    return _numbers(table[column], f"column {column!r}", name)


def not_numbers(kind: Any) -> str | None:
    """Return what a column of this dtype holds and what to do, if its numbers would have no stated unit."""
    remedies = {
        ("datetime", "date", "timestamp"): "dates: turn them into numbers first, such as days since a start",
        ("timedelta", "duration"): "durations: divide them by a unit first, such as pandas.Timedelta('1h')",
        ("period",): "periods: turn them into numbers first, such as years or days since a start",
        ("complex",): "complex numbers: choose one part",
    }
    words = str(kind).lower()
    return next((remedy for names, remedy in remedies.items() if words.startswith(names)), None)


def _numbers(column: pd.Series[Any], what: str, name: str) -> pd.Series[float]:
    import pandas as pd

    held = not_numbers(column.dtype)
    if column.dtype == object and column.map(lambda cell: isinstance(cell, (bytes, complex))).any():
        held = "bytes or complex numbers: turn them into numbers first"
    if held is not None:
        raise TableError(f"{name}: the {what} holds {held}")
    try:
        numbers = pd.to_numeric(column, errors="coerce").astype(float)
    except OverflowError:  # integers beyond float64 become infinite
        numbers = column.map(lambda cell: as_number(str(cell))).astype(float)
    wrong = (numbers.isna() & column.notna()).to_numpy()
    if wrong.any():
        row = int(np.argmax(wrong))
        cell = str(column.iloc[row])
        remedy = "choose a numeric column"
        if _FORMATTED_NUMBER.fullmatch(cell.strip()):
            remedy = "write plain numbers, such as 1234.5, without thousands separators or units"
        elif wrong.sum() < 0.5 * len(wrong):
            remedy = "correct these cells or leave them empty"
        raise TableError(
            f"{name}: the {what} must be numbers, but line {row + 2} holds {shown_cell(cell)} "
            f"({int(wrong.sum())} such of {len(wrong)}): {remedy}"
        )
    huge = np.abs(numbers.to_numpy()) > LARGEST_TARGET
    if huge.any():
        row = int(np.argmax(huge))
        problem = "is infinite" if np.isinf(numbers.iloc[row]) else f"exceeds {LARGEST_TARGET:g}"
        remedy = "rescale it or leave the cell empty"
        raise TableError(f"{name}: the {what} {problem} in line {row + 2}: {remedy}")
    return numbers
