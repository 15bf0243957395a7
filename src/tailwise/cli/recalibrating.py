"""The command for new labelled rows: `recalibrate`."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from tailwise.cli.options import Config, Encoding, Force, Json, Model, Quiet, Sign, Table, Verify
from tailwise.cli.output import check_outputs, print_json, write_outputs
from tailwise.cli.picturing import Images, PathColumn, SkipBroken, reader_for
from tailwise.cli.reading import load_model, load_table, split_labelled


def recalibrate(
    model: Model,
    data: Table,
    out: Annotated[Path, typer.Option("--out", "-o", metavar="MODEL", help="Model file to write.")],
    target: Annotated[
        list[str] | None,
        typer.Option(
            "--target", "-t", metavar="COLUMN", help="Column of true labels; the model's target by default."
        ),
    ] = None,
    images: Images = None,
    paths: PathColumn = "path",
    skip_broken: SkipBroken = False,
    encoding: Encoding = None,
    verify: Verify = None,
    sign: Sign = None,
    force: Force = False,
    quiet: Quiet = False,
    as_json: Json = False,
    config: Config = None,
) -> None:
    """Fit the uncertainty of a model anew on new rows, without training.

    The predicted means stay, the intervals hold for rows like these. The rows should not have been used in
    training.
    """
    from tailwise.estimator.matching import match_inputs, match_targets

    check_outputs({"--out": out}, force=force, inputs=[model, data])
    if sign is not None:
        from tailwise.estimator.archive import key_bytes

        key_bytes(sign)  # a key that cannot be used is an error before anything is fitted
    fitted = load_model(model, verify)
    pictures = reader_for(fitted, images, paths, skip=skip_broken)
    table = load_table(data, quiet, encoding)
    table = table if pictures is None else pictures.with_paths(table, data, quiet)
    columns = match_targets(fitted, table, target or [], data)
    if len(columns) != fitted.n_targets_:
        raise ValueError(f"the model has {fitted.n_targets_} targets: give a column of labels for each")
    ordered = sorted(columns, key=lambda column: columns[column])
    split = split_labelled(table, ordered, data, quiet)
    labels = split.labels[ordered]
    fitted.recalibrate(
        match_inputs(fitted, split.inputs, data), labels if labels.shape[1] > 1 else labels.iloc[:, 0]
    )
    write_outputs({out: partial(fitted.save, key=sign)}, quiet=quiet or as_json)
    if as_json:
        print_json({"model": out, "rows": len(labels)})
