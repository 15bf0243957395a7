"""Which columns of a table are a model's inputs and targets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tailwise.tables.columns import check_column, check_infinity

if TYPE_CHECKING:
    import pandas as pd

    from tailwise.model.model import Model


def match_inputs(model: Model, table: pd.DataFrame, name: str) -> pd.DataFrame:
    """Return the columns that the model was trained on, in its order; `name` names the table in errors."""
    needed = [str(column) for column in getattr(model.inputs.columns, "feature_names_in_", [])]
    for column in needed:
        try:
            check_column(table, column, name)
        except ValueError as error:
            text = str(error) if str(error).endswith("?") else f"{error}."
            raise ValueError(f"{text} The model was trained with it.") from None
    inputs = table[needed] if needed else table
    check_infinity(inputs, name)
    return inputs


def match_targets(model: Model, table: pd.DataFrame, given: Sequence[str], name: str) -> dict[str, int]:
    """Return the columns of true labels, each with the number of the model's target that it belongs to.

    `given` names targets of the model, or a column for each of its targets in their order. If it is empty,
    the columns are those with the names of the model's targets. For a model without target names it is the
    only column that is not an input.
    """
    names = list(model.names or ())
    for place, column in enumerate(given):
        if column in given[:place]:
            raise ValueError(f"column {column!r} is given as a target twice")
    if given and set(given) <= set(names):
        return {column: names.index(column) for column in given}
    if given and len(given) == len(model.targets):
        return {column: place for place, column in enumerate(given)}
    if given:
        listed = ", ".join(names) if names else f"{len(model.targets)} without a name"
        raise ValueError(
            f"the model's targets are {listed}: name some of them, or a column for each in order"
        )
    titles = [str(column) for column in table.columns]
    for column in names:
        if column not in titles:
            which = "the model's target" if len(names) == 1 else "one of the model's targets"
            raise ValueError(f"{name} has no column {column!r}, {which}: name the column of true labels")
    if names:
        return {column: place for place, column in enumerate(names)}
    inputs = {str(column) for column in getattr(model.inputs.columns, "feature_names_in_", [])}
    others = [title for title in titles if title not in inputs]
    if len(others) == 1 == len(model.targets):
        return {others[0]: 0}
    what = f"it may be {', '.join(others[:6])}" if others else "it has only the model's inputs"
    raise ValueError(f"which column of {name} is the target? {what}: name the column of true labels")
