"""The command `evaluate`: a model measured on rows with labels, all at once or part by part."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tailwise.cli.findings import Finding, emphasis_of, findings_json, page_of, print_findings
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
from tailwise.cli.output import check_outputs, note, print_json, print_table, write_outputs
from tailwise.cli.read import (
    Pictures,
    Reader,
    Roles,
    column_beside,
    file_name,
    load_model,
    read_dial,
    split_labelled,
    true_targets,
)
from tailwise.cli.stream import ShownOnce, labelled_chunks, open_stream, some_rows

if TYPE_CHECKING:
    import pandas as pd

    from tailwise.calibration.column_groups import ColumnGroups
    from tailwise.calibration.interval_scores import RunningCoverage
    from tailwise.estimator import TailRegressor
    from tailwise.report.baselines import Lineup, RunningLineup
    from tailwise.streams.parquet_rows import ParquetRows


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
    from tailwise.calibration.column_groups import ColumnGroups

    sources = [source for source in (model, data, against, dial.label_prior) if source is not None]
    check_outputs({"--report": report}, force=shared.force, inputs=sources)
    fitted = load_model(model, trust.verify)
    second = None if against is None else (against, load_model(against, trust.verify))
    reader = Reader(shared, Pictures.of_model(fitted, pictures))
    setting = read_dial(fitted, dial, data, shared.quiet)
    parts = open_stream(data, stream, {"--images": pictures.images, "--encoding": shared.encoding})
    table = reader.table(data) if parts is None else some_rows(parts, 0)
    sampled = parts is not None and len(table) < parts.rows
    columns = true_targets(fitted, table, target, data)
    if report is not None and len(columns) > 1:
        raise ValueError("a report is about one target: choose it with --target, and write a page for each")
    values = None if by is None else column_beside(table, by, list(columns), data, may_be_empty=True)
    groups = None if by is None else ColumnGroups.of(values, by)
    rows = split_labelled(table, Roles(list(columns)), data, shared.quiet or sampled)
    measured = Measured(fitted, columns, coverage, setting, groups, second)
    lineups = measured.line_up(rows.X, rows.y, data)
    findings = [Finding(name, lineup) for name, lineup in lineups.items()]
    if parts is not None and sampled:
        measured.add_stream(parts, rows.X, shared.quiet)
        findings = [replace(f, measured=measured.figures[f.target].by_region(f.lineup)) for f in findings]
        note(
            f"note: figures by region are of all {measured.rows} rows; the verdict, AUSE and the report "
            f"rest on a random sample of {len(rows)} of them",
            shared.quiet,
        )
    elif values is not None:
        measured.add_coverage(lineups, values.to_frame())
    if report is not None:
        of = f", a random sample of its {measured.rows:,} rows with labels" if sampled else ""
        about = {"test_source": f"rows of {file_name(data)}{of}", "trained_here": False, "dial": setting}
        place = columns[findings[0].target]
        page = page_of(fitted, findings[0], rows.X, source=file_name(data), place=place, **about)
        write_outputs({report: page}, quiet=shared.quiet or shared.as_json)
    shares = None if by is None else measured.coverage_by_value()
    if shared.as_json:
        shown: dict[str, Any] = {"model": None, "report": report, "emphasis": emphasis_of(fitted, setting)}
        if sampled:
            shown["sample"] = {"rows": len(rows), "figures": ["ause", "verdict", "report"]}
        print_json({**shown, **findings_json(findings), **({} if shares is None else {"by": shares})})
        return
    print_findings(findings)
    if shares is not None:
        _print_coverage_by(str(by), shares, coverage)


@dataclass
class Measured:
    """What is measured: targets with their places in the model, and coverage by the groups of a column.

    `figures` and `coverages`, by target, are sums over the rows of all parts.
    """

    model: TailRegressor
    columns: Mapping[str, int]
    coverage: float
    dial: Mapping[str, Any]
    groups: ColumnGroups | None = None
    second: tuple[Path, TailRegressor] | None = None
    rows: int = 0
    figures: dict[str, RunningLineup] = field(default_factory=dict)
    coverages: dict[str, RunningCoverage] = field(default_factory=dict)

    def line_up(
        self, inputs: pd.DataFrame, labels: pd.DataFrame, name: str, **levels: Any
    ) -> dict[str, Lineup]:
        """Score the models and their baselines on rows of the table `name`, for each target."""
        from tailwise.model.matching import match_inputs, match_targets
        from tailwise.report.baselines import line_up
        from tailwise.report.scores import Seen

        rows, lineups = Seen(self.model, match_inputs(self.model.model_, inputs, name)), {}
        others = {}
        if self.second is not None:
            path, model = self.second
            seen = Seen(model, match_inputs(model.model_, inputs, name))
            for column in self.columns:
                place = match_targets(model.model_, inputs, [column], str(path))[column]
                scores = seen.scores(labels[column], self.coverage, place, **levels)
                title = f"{scores.title} ({path.name})" if model.method == self.model.method else scores.title
                others[column] = replace(scores, title=title)
        for column, place in self.columns.items():
            settings = {"target": place, "other": others.get(column), **self.dial, **levels}
            lineups[column] = line_up(self.model, rows, labels[column], self.coverage, **settings)
        return lineups

    def add_stream(self, stream: ParquetRows, inputs: pd.DataFrame, quiet: bool) -> None:
        """Take in every row of a stream that has labels, in parts; `inputs` are some of its rows."""
        from tailwise.model.matching import match_inputs
        from tailwise.report.baselines import RunningLineup
        from tailwise.tables.columns import split_targets

        models = [self.model, *([] if self.second is None else [self.second[1]])]
        needed = [str(c) for model in models for c in match_inputs(model.model_, inputs, stream.name).columns]
        needed += [] if self.groups is None else [str(self.groups.column)]
        shown_once = ShownOnce()
        for chunk, source in labelled_chunks(stream, needed, list(self.columns), quiet):
            part, labels, _ = split_targets(chunk, list(self.columns), source)
            with shown_once:
                lineups = self.line_up(part, labels, source, levels=())
            for column, lineup in lineups.items():
                self.figures.setdefault(column, RunningLineup()).add(lineup)
            self.add_coverage(lineups, chunk)
            self.rows += len(chunk)

    def add_coverage(self, lineups: Mapping[str, Lineup], table: pd.DataFrame) -> None:
        """Take in the intervals of rows of a table, if coverage goes by the groups of a column."""
        from tailwise.calibration.interval_scores import RunningCoverage

        if self.groups is None:
            return
        codes = self.groups.codes(table[str(self.groups.column)])
        for column, lineup in lineups.items():
            scores = lineup.ours
            running = self.coverages.setdefault(column, RunningCoverage(self.groups))
            running.add(codes, scores.lower, scores.upper, scores.y)

    def coverage_by_value(self) -> list[dict[str, Any]]:
        """Return coverage and width of each target's intervals by the values of a column, ready for JSON."""
        return [
            {"target": target, **{str(name): value for name, value in row.items()}}
            for target, coverage in self.coverages.items()
            for row in coverage.table().to_dict(orient="records")
        ]


def _print_coverage_by(column: str, rows: Sequence[dict[str, Any]], coverage: float) -> None:
    """Print coverage with its 95% interval, and width, by the values of a column."""
    from tailwise.report.formatting import level, number

    header = ["target", column, "rows", f"{level(coverage)} coverage", "its 95% interval", "width"]
    lines = []
    for row in rows:
        ends = f"{row['coverage_low']:.1%} to {row['coverage_high']:.1%}"
        line = [row["target"], row["value"], str(row["rows"]), f"{row['coverage']:.1%}", ends]
        lines.append([*line, number(row["width"])])
    print_table(header, lines, names=2)
