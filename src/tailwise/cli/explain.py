"""The command that gives reasons: `explain`."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tailwise.cli.options import (
    Coverage,
    Model,
    Shared,
    Table,
    TableOut,
    Trust,
)
from tailwise.cli.output import STANDARD, check_outputs, note, print_json
from tailwise.cli.read import Reader, load_model

if TYPE_CHECKING:
    import pandas as pd

    from tailwise.explanations import Attributions


def explain(
    model: Model,
    data: Table,
    out: TableOut,
    row: Annotated[
        list[int] | None,
        typer.Option(
            metavar="N", min=0, help="Row of FILE, the first is 0; can be repeated. All rows by default."
        ),
    ] = None,
    of: Annotated[
        str,
        typer.Option(metavar="NAME", help="What to explain: prediction, std, or width of the interval."),
    ] = "prediction",
    target: Annotated[
        str | None,
        typer.Option("--target", "-t", metavar="NAME", help="Target of the model, if it has several."),
    ] = None,
    background: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Rows to compare with; those of the table by default."),
    ] = None,
    background_rows: Annotated[
        int, typer.Option(metavar="N", min=1, help="Most rows to compare with, chosen at random.")
    ] = 100,
    top: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, help="Only the N largest reasons of each row; all by default."),
    ] = None,
    coverage: Coverage = 0.9,
    seed: Annotated[int, typer.Option(metavar="N", min=0, help="Random seed.")] = 0,
    *,
    trust: Trust,
    shared: Shared,
) -> None:
    """Say what each column adds to the prediction of each row.

    The output has a line for each row and column, the largest reason first: its Shapley value, in units of
    the label. The values of a row and the base value sum to its prediction.
    """
    from tailwise.explanations import shapley
    from tailwise.model.inputs import match_inputs
    from tailwise.tables.read import write_table
    from tailwise.training.loop import visible

    others = [background] if background is not None else []
    check_outputs({"--out": out}, force=shared.force, inputs=[model, data, *others], table=True)
    if shared.as_json and out == STANDARD:
        raise ValueError("--json and --out - both use standard output: write the reasons to a file")
    if background == STANDARD == data:
        raise ValueError("only one of FILE and --background can be - (standard input)")
    fitted = load_model(model, trust.verify)
    reader = Reader(shared)
    table = match_inputs(fitted.model_, reader.table(data), data)
    compared = table
    if background is not None:
        compared = match_inputs(fitted.model_, reader.table(background), background)
    elif len(table) < 2:
        raise ValueError(
            f"{data} has only one row, so there is nothing to compare it with: give --background"
        )
    wanted = row or list(range(len(table)))
    if max(wanted) >= len(table):
        raise ValueError(f"{data} has no row {max(wanted)}: its last is row {len(table) - 1}")
    chosen: Any = of  # the function checks it, and names the nearest
    with nullcontext() if shared.quiet else visible():
        attributions = shapley(
            fitted,
            table.iloc[wanted],
            compared,
            of=chosen,
            background_rows=background_rows,
            target=target,
            coverage=coverage,
            random_state=seed,
        )
    frame = _reasons_table(attributions, table, wanted, of, top)
    write_table(frame, out)
    if shared.as_json:
        print_json({"rows": len(wanted), "out": out, "of": of, "base": attributions.base})
    elif out != STANDARD:
        note(f"wrote the reasons of {len(wanted)} row{'s' * (len(wanted) != 1)} to {out}", shared.quiet)


def _reasons_table(
    attributions: Attributions, table: pd.DataFrame, rows: list[int], of: str, top: int | None
) -> pd.DataFrame:
    """Return a line for each row and column, the largest value of each row first."""
    import numpy as np
    import pandas as pd

    lines = []
    cells = {str(name): table.iloc[:, place] for place, name in enumerate(table.columns)}
    values, errors = attributions.values.to_numpy(), attributions.error.to_numpy()
    for place, (row, explained) in enumerate(zip(rows, attributions.explained, strict=True)):
        for k in np.argsort(-np.abs(values[place]), kind="stable")[:top]:
            name = str(attributions.values.columns[k])
            cell: Any = cells[name].iloc[row]
            shown = "" if pd.isna(cell) else str(cell)
            lines.append((row, explained, attributions.base, name, shown, values[place, k], errors[place, k]))
    columns = ["row", of, "base", "column", "cell", "attribution", "standard_error"]
    return pd.DataFrame(lines, columns=columns)
