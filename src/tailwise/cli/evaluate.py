"""The command `evaluate`, and what commands find about a model: printed, as JSON and as a page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tailwise.cli import options, output, read

if TYPE_CHECKING:
    import pandas as pd

    from tailwise.estimator import TailRegressor
    from tailwise.report.scores import Lineup, Scores
    from tailwise.report.verdict import Verdict


def evaluate(
    model: options.Model,
    data: options.Table,
    target: options.TrueLabels = None,
    report: options.Report = None,
    against: Annotated[
        Path | None, typer.Option(metavar="MODEL", help="Second model to compare with on the same rows.")
    ] = None,
    coverage: options.Coverage = 0.9,
    by: Annotated[
        str | None,
        typer.Option(metavar="COLUMN", help="Also print coverage and width by the values of a column."),
    ] = None,
    stream: options.Stream = False,
    *,
    dial: options.DialOptions,
    trust: options.Trust,
    pictures: options.PictureOptions,
    shared: options.Shared,
) -> None:
    """Measure a model on a table with labels.

    Prints errors and coverage by region, and a verdict. The rows should not have been used in training.
    """
    from tailwise.model.inputs import match_inputs, match_targets

    sources: list[str | Path | None] = [model, data, against, dial.label_prior]
    output.check_outputs({"--report": report}, force=shared.force, inputs=sources)
    fitted = read.load_model(model, trust.verify)
    second = None if against is None else read.load_model(against, trust.verify)
    reader = read.Reader.of_model(fitted, shared, pictures)
    setting = read.read_dial(fitted, dial, data, shared.quiet)
    parts = reader.stream(data, stream)
    table = reader.table(data) if parts is None else read.measured_rows(parts, shared.quiet)
    sampled = parts is not None and len(table) < parts.rows
    columns = match_targets(fitted.model_, table, target or [], data)
    if report is not None and len(columns) > 1:
        raise ValueError("a report is about one target: choose it with --target, and write a page for each")
    values = None if by is None else read.column_beside(table, by, list(columns), data, may_be_empty=True)
    rows = read.split_labelled(table, read.Roles(list(columns)), data, shared.quiet)
    others = {}
    if against is not None and second is not None:
        others = _scores_of(second, against, rows, fitted, coverage)
    rows = replace(rows, X=match_inputs(fitted.model_, rows.X, data))
    findings = findings_of(fitted, rows, coverage, places=columns, others=others, **setting)
    if report is not None:
        from tailwise.report.page import About, model_page

        ((name, place),) = columns.items()
        of = f", a random sample of {len(rows):,} of them" if sampled else ""
        about = About(
            name,
            read.file_name(data),
            output.command_line(),
            place,
            dial=setting,
            test_source=f"rows of {read.file_name(data)}{of}",
            trained_here=False,
        )
        page = model_page(fitted, findings[name], about, rows.X)
        output.write_outputs({report: page}, quiet=shared.quiet or shared.as_json)
    shares = None if values is None else _coverage_by(values, findings)
    if shared.as_json:
        facts: dict[str, Any] = {"model": None, "report": report, "emphasis": emphasis_of(fitted, setting)}
        facts |= {"sample": {"rows": len(rows)}} if sampled else {}
        output.print_json(facts | findings_json(findings) | ({} if shares is None else {"by": shares}))
        return
    print_findings(findings)
    if shares is not None:
        _print_coverage_by(str(by), shares, coverage)


# -- findings: the verdict on each target ----------------------------------------------------------


def findings_of(
    model: TailRegressor,
    rows: read.Rows,
    coverage: float,
    *,
    places: Mapping[str, int] | None = None,
    others: Mapping[str, Scores] | None = None,
    **dial: Any,
) -> dict[str, Verdict]:
    """Judge each target of a model beside its baselines, on rows that it was not trained on.

    `places` has the number of each target in the model, and `others` the scores of a second model by target.
    """
    from tailwise.report.scores import Seen, line_up
    from tailwise.report.verdict import judge

    seen, findings = Seen(model, rows.X), {}
    for k, name in enumerate(map(str, rows.y)):
        place, other = (places or {}).get(name, k), (others or {}).get(name)
        findings[name] = judge(
            line_up(model, seen, rows.y[name], coverage, target=place, other=other, **dial)
        )
    return findings


def print_findings(findings: Mapping[str, Verdict]) -> None:
    """Print figures by region, a verdict and what the emphasis costs and gains, for each target."""
    for target, verdict in findings.items():
        if len(findings) > 1:
            typer.echo(output.printable(f"{target}:"))
        _print_regions(verdict.lineup)
        output.print_words(verdict.headline)
        if verdict.advice:
            output.print_words(f"What to do: {verdict.advice}")
        for sentence in verdict.sentences:
            output.print_words(f"- {sentence}")
        if verdict.ours.dial is not None:
            output.print_words(verdict.ours.dial.text)


def findings_json(findings: Mapping[str, Verdict]) -> dict[str, Any]:
    """Return the findings for JSON: those of one target at the top level, of several in a list."""
    listed = []
    for target, verdict in findings.items():
        named = {"regions": verdict.ours, **verdict.lineup.baselines}
        regions = {name: scores.by_region.to_dict(orient="index") for name, scores in named.items()}
        listed.append({"target": target, "verdict": verdict.to_dict(), **regions})
    if len(listed) > 1:
        return {"targets": listed}
    return listed[0] if listed else {"target": None, "verdict": None}


def _print_regions(lineup: Lineup) -> None:
    from tailwise.report.scores import FIGURES, PRINTED
    from tailwise.report.wording import level

    figures = {name: FIGURES[name] for name in PRINTED}
    rows = []
    for scores in lineup.all:
        for region, row in scores.by_region.iterrows():
            if row["n"] > 0:
                cells = [f"{row['n']:.0f}", *(figure.text(row[name]) for name, figure in figures.items())]
                rows.append([scores.title if region == "all" else "", str(region), *cells])
    titles = {name: figure.title for name, figure in figures.items()}
    titles["coverage"] = f"{level(lineup.ours.coverage)} coverage"
    output.print_table(["method", "region", "rows", *titles.values()], rows, names=2)


def emphasis_of(model: TailRegressor, dial: Mapping[str, Any] | None = None) -> Any:
    """Return the emphasis in use for JSON, by target if there are several; None under a label prior."""
    if dial:
        return dial.get("emphasis")
    chosen = model.emphasis_
    if not isinstance(chosen, list):
        return chosen
    return dict(zip(model.target_names_ or range(len(chosen)), chosen, strict=True))


# -- a second model, and coverage by a column ------------------------------------------------------


def _scores_of(
    model: TailRegressor, path: Path, rows: read.Rows, first: TailRegressor, coverage: float
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


def _coverage_by(values: pd.Series[Any], findings: Mapping[str, Verdict]) -> list[dict[str, Any]]:
    """Return coverage and width of each target's intervals by the values of a column, ready for JSON."""
    from tailwise.calibration.interval_scores import ColumnGroups, coverage_by_group

    groups = ColumnGroups.of(values)
    codes = groups.codes(values)
    shares: list[dict[str, Any]] = []
    for target, verdict in findings.items():
        ours = verdict.ours
        table = coverage_by_group(groups, codes, ours.lower, ours.upper, ours.y)
        records: list[Any] = table.to_dict(orient="records")
        shares += [{"target": target, **row} for row in records]
    return shares


def _print_coverage_by(column: str, rows: Sequence[dict[str, Any]], coverage: float) -> None:
    """Print coverage with its 95% interval, and width, by the values of a column."""
    from tailwise.report.wording import level, number

    header = ["target", column, "rows", f"{level(coverage)} coverage", "its 95% interval", "width"]
    lines = []
    for row in rows:
        ends = f"{row['coverage_low']:.1%} to {row['coverage_high']:.1%}"
        cells = [row["target"], row["value"], str(row["rows"]), f"{row['coverage']:.1%}", ends]
        lines.append([*cells, number(row["width"])])
    output.print_table(header, lines, names=2)
