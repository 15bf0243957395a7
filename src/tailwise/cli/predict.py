"""The command `predict`."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Annotated

import typer

from tailwise.cli.findings import emphasis_of
from tailwise.cli.options import (
    Coverage,
    DialOptions,
    Model,
    PictureOptions,
    Rare,
    Shared,
    Stream,
    Table,
    TableOut,
    Trust,
    split_names,
)
from tailwise.cli.output import STANDARD, check_outputs, note, print_json
from tailwise.cli.read import Pictures, Reader, load_model, read_dial
from tailwise.cli.stream import beside_kept, open_stream, predicted_chunks


def predict(
    model: Model,
    data: Table,
    out: TableOut,
    coverage: Coverage = 0.9,
    rare: Rare = None,
    keep: Annotated[
        str,
        typer.Option(
            metavar="COLUMNS",
            help="Columns of FILE to copy to the output. Comma-separated; quote names that contain a comma.",
        ),
    ] = "",
    stream: Stream = False,
    *,
    dial: DialOptions,
    trust: Trust,
    pictures: PictureOptions,
    shared: Shared,
) -> None:
    """Predict each row of a table, with intervals.

    The output has the predicted label, its standard deviation, an interval, and how common such labels were
    in training. With several targets, the columns of each target end with its name.
    """
    import pandas as pd

    from tailwise.model.inputs import match_inputs
    from tailwise.tables.columns import check_column
    from tailwise.tables.read import write_chunks

    inputs: list[str | Path] = [model, data, *([dial.label_prior] if dial.label_prior else [])]
    check_outputs({"--out": out}, force=shared.force, inputs=inputs, table=True)
    if shared.as_json and out == STANDARD:
        raise ValueError("--json and --out - both use standard output: write the predictions to a file")
    fitted = load_model(model, trust.verify)
    reader = Reader(shared, Pictures.of_model(fitted, pictures))
    setting = read_dial(fitted, dial, data, shared.quiet)
    parts = open_stream(data, stream, {"--images": pictures.images, "--encoding": shared.encoding})
    regions: dict[str, Counter[str]] = {}
    kept = split_names(keep)
    if parts is not None:
        frames = predicted_chunks(fitted, parts, kept, regions, coverage, setting | {"rare": rare})
    else:
        table = reader.table(data)
        for column in kept:
            check_column(table, column, data)
        rows = match_inputs(fitted.model_, table, data)
        rows.index = pd.RangeIndex(2, len(rows) + 2, name="line")  # what notes call a row
        frame = fitted.predict_frame(rows, coverage, rare=rare, **setting)
        frames = iter([beside_kept(frame, table, kept, regions)])
    if rare is not None:
        note(fitted.explain_intervals(coverage, rare=rare, **setting), shared.quiet)
    count = write_chunks(frames, out)
    if shared.as_json:
        counted = {"regions": regions.pop("region")} if "region" in regions else regions
        print_json({"rows": count, "out": out, "emphasis": emphasis_of(fitted, setting), **counted})
    elif out != STANDARD:
        note(f"wrote {count} predictions to {out}", shared.quiet)
