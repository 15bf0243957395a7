"""Commands that need no model: `demo` and `diagnose`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tailwise.cli.options import Config, Force, Json, Quiet, Table, Target, only_target
from tailwise.cli.output import print_json, print_table, print_words
from tailwise.workflow import note, read, save_picture, split_labelled


def demo(
    out: Annotated[Path, typer.Option(help="Folder for the report, the picture and the figures.")] = Path(
        "tailwise-demo"
    ),
    seeds: Annotated[int, typer.Option(min=1, help="How many seeds to train with.")] = 3,
    epochs: Annotated[int, typer.Option(min=1, help="Epochs at most; training stops early.")] = 80,
    workers: Annotated[int, typer.Option(min=1, help="Processes at once.")] = 2,
    force: Force = False,
    quiet: Quiet = False,
) -> None:
    """Train VIR and two baselines on the bundled abalone table and write a report."""
    from dataclasses import replace

    if out.exists() and not out.is_dir():
        raise ValueError(f"{out} is a file; name a folder with --out")
    from tailwise import demo as demonstration
    from tailwise.data.tables.files import check_output
    from tailwise.methods import get_method

    for name in demonstration.OUTPUTS:
        check_output(out / name, force=force)
    names = ", ".join(get_method(name).title for name in demonstration.METHODS)
    note(f"Training {names} on abalone, {seeds} seed{'s' if seeds > 1 else ''} each ...", quiet)
    recipe = replace(demonstration.RECIPE, epochs=epochs)
    result = demonstration.run_demo(seeds=range(seeds), recipe=recipe, workers=workers)
    rows = []
    for name in result.methods():
        mean, spread = result.mean(name), result.spread(name)
        for place, region in enumerate(mean.index):
            cells = []
            for metric in demonstration.METRICS:
                over_seeds = f" ±{spread.loc[region, metric]:.2f}" if seeds > 1 else ""
                cells.append(f"{mean.loc[region, metric]:.2f}{over_seeds}")
            rows.append([get_method(name).title if place == 0 else "", str(region), *cells])
    print_table(["method", "region", "MAE", "GM", "NLL", "AUSE", "90% coverage"], rows, names=2)
    print_words(demonstration.verdict(result))
    try:
        written = demonstration.write_outputs(result, out)
    except OSError as error:
        raise ValueError(
            f"cannot write to {out}: {error.strerror or error}; name another folder with --out"
        ) from None
    for path in written:
        note(f"wrote {path}", quiet)


def diagnose(
    data: Table,
    target: Target,
    plot: Annotated[
        Path | None, typer.Option(help="Picture of the labels to write (.png, .svg, .pdf).")
    ] = None,
    many: Annotated[int, typer.Option(min=1, help="A bin with more labels is many-shot.")] = 100,
    few: Annotated[int, typer.Option(min=1, help="A bin with fewer labels is few-shot.")] = 20,
    force: Force = False,
    quiet: Quiet = False,
    as_json: Json = False,
    config: Config = None,
) -> None:
    """Say how imbalanced a column is and what to do about it, which may be nothing."""
    from tailwise.data.tables.files import check_output

    column = only_target(target)
    if plot is not None:
        check_output(plot, force=force, inputs=[data])
    table = read(data, quiet)
    if table.shape[1] == 1:  # a file of labels alone can be diagnosed too
        table = table.assign(**{" row": 0})
    labels = split_labelled(table, [column], data, quiet).labels
    from tailwise.report.diagnosis import diagnose as examine  # imports torch: not before the table is sound

    found = examine(labels[column].to_numpy(), many=many, few=few)
    if plot is not None:
        save_picture(found.plot(label=column).figure, plot)
        note(f"wrote {plot}", quiet)
    if as_json:
        print_json(found.to_dict())
    else:
        typer.echo(found.summary())
