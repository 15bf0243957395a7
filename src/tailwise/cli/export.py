"""The command `export`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tailwise.cli.options import Coverage, DialOptions, Force, Model, Quiet, Rare, Trust, parse_levels
from tailwise.cli.output import check_outputs, note
from tailwise.cli.read import load_model, read_dial


def export(
    model: Model,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", metavar="FILE", help="ONNX file; beside MODEL by default."),
    ] = None,
    coverage: Coverage = 0.9,
    rare: Rare = None,
    quantiles: Annotated[
        str,
        typer.Option(metavar="LEVELS", help="Quantiles to export, comma-separated; '' for none."),
    ] = "0.05,0.5,0.95",
    raw_columns: Annotated[
        bool, typer.Option("--raw-columns", help="Inputs are the columns of the table.")
    ] = False,
    force: Force = False,
    quiet: Quiet = False,
    *,
    dial: DialOptions,
    trust: Trust,
) -> None:
    """Write a model as ONNX, calibration included.

    The outputs are the prediction, its standard deviation, quantiles and an interval, at one emphasis or
    label prior.
    """
    path = out or model.with_suffix(".onnx")
    inputs: list[str | Path] = [model, *([dial.label_prior] if dial.label_prior else [])]
    check_outputs({"--out": path}, force=force, inputs=inputs)
    levels = parse_levels(quantiles)
    fitted = load_model(model, trust.verify)
    if fitted.model_.inputs.groups.names:
        raise ValueError(
            f"{model} has intervals by a column, which an ONNX file cannot contain: "
            "fit it without --conformal-by"
        )
    setting = read_dial(fitted, dial, "", quiet)
    intervals = {"coverage": coverage, "rare": rare}
    fitted.export_onnx(path, quantiles=levels, raw_columns=raw_columns, **intervals, **setting)
    note(f"wrote {path}", quiet)
