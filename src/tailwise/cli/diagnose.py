"""The command about labels alone: `diagnose`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tailwise.cli.options import Shared, Table, Target, only_target
from tailwise.cli.output import check_outputs, note, print_json, save_picture
from tailwise.cli.read import Reader, Roles, split_labelled


def diagnose(
    data: Table,
    target: Target,
    plot: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Picture of the labels to write (.png, .svg or .pdf)."),
    ] = None,
    many: Annotated[int, typer.Option(metavar="N", min=1, help="Bins with more labels are many-shot.")] = 100,
    few: Annotated[int, typer.Option(metavar="N", min=1, help="Bins with fewer labels are few-shot.")] = 20,
    *,
    shared: Shared,
) -> None:
    """Measure how imbalanced a column is.

    Prints how many labels are rare and what to do about it, which may be nothing.
    """
    column = only_target(target)
    check_outputs({"--plot": plot}, force=shared.force, inputs=[data])
    table = Reader(shared).table(data)
    if table.shape[1] == 1:  # labels alone are enough here, but splitting asks for an input
        table = table.assign(**{" row": 0})
    labels = split_labelled(table, Roles([column]), data, shared.quiet).y
    from tailwise.report.diagnosis import diagnose as examine  # imports torch, so read the table first

    diagnosis = examine(labels[column].to_numpy(), many=many, few=few)
    if plot is not None:
        save_picture(diagnosis.plot(label=column).figure, plot)
        note(f"wrote {plot}", shared.quiet)
    if shared.as_json:
        print_json(diagnosis.to_dict())
    else:
        typer.echo(diagnosis.summary(flags=True))
