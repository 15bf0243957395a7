"""Commands about a fitted model: `predict`, `evaluate` and `export`."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tailwise.cli.findings import (
    Finding,
    coverage_by,
    emphasis_of,
    findings_json,
    page_of,
    print_coverage_by,
    print_findings,
)
from tailwise.cli.measuring import Measuring
from tailwise.cli.options import (
    Coverage,
    Emphasis,
    EscapeFormulas,
    Force,
    LabelPrior,
    Model,
    Plugin,
    Quiet,
    Report,
    Shared,
    Table,
    TableOut,
    TrueLabels,
    Verify,
    parse_emphasis,
    parse_levels,
    split_names,
)
from tailwise.cli.output import (
    STANDARD,
    check_outputs,
    note,
    print_json,
    write_outputs,
)
from tailwise.cli.picturing import (
    PictureOptions,
    load_rows,
    reader_for,
)
from tailwise.cli.reading import (
    Roles,
    column_beside,
    file_name,
    load_label_prior,
    load_model,
    split_labelled,
)
from tailwise.cli.streamed import Stream, beside_kept, open_stream, predicted_chunks, some_rows

if TYPE_CHECKING:
    from tailwise.estimator import TailRegressor


def _dial(
    model: TailRegressor, emphasis: str, label_prior: str | None, data: str, quiet: bool
) -> dict[str, Any]:
    """Return the arguments of a prediction that set the dial; none for the model's own emphasis."""
    chosen = parse_emphasis(emphasis)
    if label_prior is None:
        return {} if chosen == "auto" else {"emphasis": chosen}
    if chosen != "auto":
        raise ValueError("give --emphasis or --label-prior, not both")
    if label_prior == STANDARD == data:
        raise ValueError("only one of FILE and --label-prior can be - (standard input)")
    return {"label_prior": load_label_prior(label_prior, model, quiet)}


def predict(
    model: Model,
    data: Table,
    out: TableOut,
    coverage: Coverage = 0.9,
    keep: Annotated[
        str,
        typer.Option(
            metavar="COLUMNS",
            help="Columns of FILE to copy to the output. Comma-separated; quote names that contain a comma.",
        ),
    ] = "",
    emphasis: Emphasis = "auto",
    label_prior: LabelPrior = None,
    escape_formulas: EscapeFormulas = False,
    stream: Stream = False,
    verify: Verify = None,
    plugin: Plugin = None,
    *,
    pictures: PictureOptions,
    shared: Shared,
) -> None:
    """Predict each row of a table, with intervals.

    The output has the predicted label, its standard deviation, an interval, and how common such labels were
    in training. With several targets, the columns of each target end with its name.
    """
    import pandas as pd

    from tailwise.model.matching import match_inputs
    from tailwise.tables.columns import check_column
    from tailwise.tables.write import escape_formulas as escaped
    from tailwise.tables.write import write_chunks

    inputs: list[str | Path] = [model, data, *([label_prior] if label_prior else [])]
    check_outputs({"--out": out}, force=shared.force, inputs=inputs, table=True)
    if shared.as_json and out == STANDARD:
        raise ValueError("--json and --out - both use standard output: write the predictions to a file")
    fitted = load_model(model, verify)
    reader = reader_for(fitted, pictures)
    dial = _dial(fitted, emphasis, label_prior, data, shared.quiet)
    parts = open_stream(data, stream, {"--images": pictures.images, "--encoding": shared.encoding})
    regions: dict[str, Counter[str]] = {}
    kept = split_names(keep)
    if parts is not None:
        frames = predicted_chunks(fitted, parts, kept, regions, coverage, dial)
    else:
        table = load_rows(data, reader, shared)
        for column in kept:
            check_column(table, column, data)
        rows = match_inputs(fitted.model_, table, data)
        rows.index = pd.RangeIndex(2, len(rows) + 2, name="line")  # what notes call a row
        frame = fitted.predict_frame(rows, coverage, **dial)
        frames = iter([beside_kept(frame, table, kept, regions)])
    count = write_chunks(map(escaped, frames) if escape_formulas else frames, out)
    if shared.as_json:
        counted = {"regions": regions.pop("region")} if "region" in regions else regions
        print_json({"rows": count, "out": out, "emphasis": emphasis_of(fitted, dial), **counted})
    elif out != STANDARD:
        note(f"wrote {count} predictions to {out}", shared.quiet)


def evaluate(
    model: Model,
    data: Table,
    target: TrueLabels = None,
    report: Report = None,
    against: Annotated[
        Path | None, typer.Option(metavar="MODEL", help="Second model to compare with on the same rows.")
    ] = None,
    emphasis: Emphasis = "auto",
    label_prior: LabelPrior = None,
    coverage: Coverage = 0.9,
    by: Annotated[
        str | None,
        typer.Option(metavar="COLUMN", help="Also print coverage and width by the values of a column."),
    ] = None,
    stream: Stream = False,
    verify: Verify = None,
    plugin: Plugin = None,
    *,
    pictures: PictureOptions,
    shared: Shared,
) -> None:
    """Measure a model on a table with labels.

    Prints errors and coverage by region, and a verdict. The rows should not have been used in training.
    """
    from tailwise.calibration.column_groups import ColumnGroups
    from tailwise.model.matching import match_targets
    from tailwise.report.verdict import judge

    sources = [source for source in (model, data, against, label_prior) if source is not None]
    check_outputs({"--report": report}, force=shared.force, inputs=sources)
    fitted = load_model(model, verify)
    second = None if against is None else (against, load_model(against, verify))
    reader = reader_for(fitted, pictures)
    dial = _dial(fitted, emphasis, label_prior, data, shared.quiet)
    parts = open_stream(data, stream, {"--images": pictures.images, "--encoding": shared.encoding})
    table = load_rows(data, reader, shared) if parts is None else some_rows(parts, 0)
    sampled = parts is not None and len(table) < parts.rows
    try:
        columns = match_targets(fitted.model_, table, target or [], data)
    except ValueError as error:
        raise ValueError(f"{error}{'' if target else ' with --target'}") from None
    if report is not None and len(columns) > 1:
        raise ValueError("a report is about one target: choose it with --target, and write a page for each")
    values = None if by is None else column_beside(table, by, list(columns), data, may_be_empty=True)
    groups = None if by is None else ColumnGroups.of(values, by)
    inputs, labels = split_labelled(table, Roles(list(columns)), data, shared.quiet or sampled)[:2]
    measuring = Measuring(fitted, columns, coverage, dial, groups, second)
    lineups, tables = measuring.line_up(inputs, labels, data), {}
    if parts is not None and sampled:
        measuring.add_stream(parts, inputs, shared.quiet)
        tables = {column: measuring.figures[column].by_region(lineup) for column, lineup in lineups.items()}
        note(
            f"note: figures by region are of all {measuring.rows} rows; the verdict, AUSE and the report "
            f"rest on a random sample of {len(labels)} of them",
            shared.quiet,
        )
    elif values is not None:
        measuring.add_coverage(lineups, values.to_frame())
    findings = [Finding(name, lineup, judge(lineup), tables.get(name)) for name, lineup in lineups.items()]
    if report is not None:
        ((_, place),) = columns.items()
        name = file_name(data)
        page = page_of(
            fitted,
            findings[0],
            inputs,
            place=place,
            source=name,
            test_source=f"rows of {name}"
            + (f", a random sample of its {measuring.rows:,} rows with labels" if sampled else ""),
            trained_here=False,
            dial=dial,
        )
        write_outputs({report: page}, quiet=shared.quiet or shared.as_json)
    shares = None if by is None else coverage_by(measuring.coverages)
    if shared.as_json:
        shown: dict[str, Any] = {"model": None, "report": report, "emphasis": emphasis_of(fitted, dial)}
        if sampled:
            shown["sample"] = {"rows": len(labels), "figures": ["ause", "verdict", "report"]}
        print_json({**shown, **findings_json(findings), **({} if shares is None else {"by": shares})})
    else:
        print_findings(findings)
        if shares is not None:
            print_coverage_by(str(by), shares, coverage)


def export(
    model: Model,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", metavar="FILE", help="ONNX file; beside MODEL by default."),
    ] = None,
    coverage: Coverage = 0.9,
    quantiles: Annotated[
        str,
        typer.Option(metavar="LEVELS", help="Quantiles to export, comma-separated; '' for none."),
    ] = "0.05,0.5,0.95",
    emphasis: Emphasis = "auto",
    label_prior: LabelPrior = None,
    raw_columns: Annotated[
        bool, typer.Option("--raw-columns", help="Inputs are the columns of the table.")
    ] = False,
    verify: Verify = None,
    plugin: Plugin = None,
    force: Force = False,
    quiet: Quiet = False,
) -> None:
    """Write a model as ONNX, calibration included.

    The outputs are the prediction, its standard deviation, quantiles and an interval, at one emphasis or
    label prior.
    """
    path = out or model.with_suffix(".onnx")
    check_outputs({"--out": path}, force=force, inputs=[model, *([label_prior] if label_prior else [])])
    levels = parse_levels(quantiles)
    fitted = load_model(model, verify)
    if fitted.model_.inputs.groups.names:
        raise ValueError(
            f"{model} has intervals by a column, which an ONNX file cannot contain: "
            "fit it without --conformal-by"
        )
    dial = _dial(fitted, emphasis, label_prior, "", quiet)
    fitted.export_onnx(path, quantiles=levels, coverage=coverage, raw_columns=raw_columns, **dial)
    note(f"wrote {path}", quiet)
