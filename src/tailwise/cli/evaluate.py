"""The command `evaluate`: a model measured on rows with labels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tailwise.cli.findings import (
    Finding,
    emphasis_of,
    findings_json,
    findings_of,
    page_of,
    print_findings,
)
from tailwise.cli.options import (
    Coverage,
    DialOptions,
    Model,
    PictureOptions,
    Report,
    Shared,
    Stream,
    Table,
    TrueLabels,
    Trust,
)
from tailwise.cli.output import check_outputs, print_json, print_table, write_outputs
from tailwise.cli.read import (
    Pictures,
    Reader,
    Roles,
    Rows,
    column_beside,
    file_name,
    load_model,
    read_dial,
    split_labelled,
    true_targets,
)
from tailwise.cli.stream import measured_rows, open_stream

if TYPE_CHECKING:
    import pandas as pd

    from tailwise.estimator import TailRegressor
    from tailwise.report.scores import Scores


def evaluate(
    model: Model,
    data: Table,
    target: TrueLabels = None,
    report: Report = None,
    against: Annotated[
        Path | None, typer.Option(metavar="MODEL", help="Second model to compare with on the same rows.")
    ] = None,
    coverage: Coverage = 0.9,
    by: Annotated[
        str | None,
        typer.Option(metavar="COLUMN", help="Also print coverage and width by the values of a column."),
    ] = None,
    stream: Stream = False,
    *,
    dial: DialOptions,
    trust: Trust,
    pictures: PictureOptions,
    shared: Shared,
) -> None:
    """Measure a model on a table with labels.

    Prints errors and coverage by region, and a verdict. The rows should not have been used in training.
    """
    from tailwise.model.inputs import match_inputs

    sources = [source for source in (model, data, against, dial.label_prior) if source is not None]
    check_outputs({"--report": report}, force=shared.force, inputs=sources)
    fitted = load_model(model, trust.verify)
    second = None if against is None else load_model(against, trust.verify)
    reader = Reader(shared, Pictures.of_model(fitted, pictures))
    setting = read_dial(fitted, dial, data, shared.quiet)
    parts = open_stream(data, stream, {"--images": pictures.images, "--encoding": shared.encoding})
    table = reader.table(data) if parts is None else measured_rows(parts, shared.quiet)
    sampled = parts is not None and len(table) < parts.rows
    columns = true_targets(fitted, table, target, data)
    if report is not None and len(columns) > 1:
        raise ValueError("a report is about one target: choose it with --target, and write a page for each")
    values = None if by is None else column_beside(table, by, list(columns), data, may_be_empty=True)
    rows = split_labelled(table, Roles(list(columns)), data, shared.quiet)
    others = {}
    if against is not None and second is not None:
        others = _scores_of(second, against, rows, fitted, coverage)
    inputs = match_inputs(fitted.model_, rows.X, data)
    findings = findings_of(fitted, inputs, rows.y, coverage, places=columns, others=others, **setting)
    if report is not None:
        of = f", a random sample of {len(rows):,} of them" if sampled else ""
        about = {"test_source": f"rows of {file_name(data)}{of}", "trained_here": False, "dial": setting}
        place = columns[findings[0].target]
        page = page_of(fitted, findings[0], rows.X, source=file_name(data), place=place, **about)
        write_outputs({report: page}, quiet=shared.quiet or shared.as_json)
    shares = None if values is None else _coverage_by(values, findings)
    if shared.as_json:
        shown: dict[str, Any] = {"model": None, "report": report, "emphasis": emphasis_of(fitted, setting)}
        if sampled:
            shown["sample"] = {"rows": len(rows)}
        print_json({**shown, **findings_json(findings), **({} if shares is None else {"by": shares})})
        return
    print_findings(findings)
    if shares is not None:
        _print_coverage_by(str(by), shares, coverage)


def _scores_of(
    model: TailRegressor, path: Path, rows: Rows, first: TailRegressor, coverage: float
) -> dict[str, Scores]:
    """Return the scores of the second model for each target, with its file in the title if methods agree."""
    from tailwise.model.inputs import match_inputs, match_targets
    from tailwise.report.scores import Seen

    seen, scored = Seen(model, match_inputs(model.model_, rows.X, rows.name)), {}
    for column, labels in rows.y.items():
        place = match_targets(model.model_, rows.X, [str(column)], str(path))[str(column)]
        scores = seen.scores(labels, coverage, place)
        title = f"{scores.title} ({path.name})" if model.method == first.method else scores.title
        scored[str(column)] = replace(scores, title=title)
    return scored


def _coverage_by(values: pd.Series[Any], findings: Sequence[Finding]) -> list[dict[str, Any]]:
    """Return coverage and width of each target's intervals by the values of a column, ready for JSON."""
    from tailwise.calibration.column_groups import ColumnGroups
    from tailwise.calibration.interval_scores import coverage_by_group

    groups = ColumnGroups.of(values)
    codes, shares = groups.codes(values), []
    for finding in findings:
        scores = finding.lineup.ours
        table = coverage_by_group(groups, codes, scores.lower, scores.upper, scores.y)
        for row in table.to_dict(orient="records"):
            shares.append({"target": finding.target, **{str(name): value for name, value in row.items()}})
    return shares


def _print_coverage_by(column: str, rows: Sequence[dict[str, Any]], coverage: float) -> None:
    """Print coverage with its 95% interval, and width, by the values of a column."""
    from tailwise.report.wording import level, number

    header = ["target", column, "rows", f"{level(coverage)} coverage", "its 95% interval", "width"]
    lines = []
    for row in rows:
        ends = f"{row['coverage_low']:.1%} to {row['coverage_high']:.1%}"
        line = [row["target"], row["value"], str(row["rows"]), f"{row['coverage']:.1%}", ends]
        lines.append([*line, number(row["width"])])
    print_table(header, lines, names=2)
