"""The command `fit`."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
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
    Drop,
    Emphasis,
    ModelOut,
    Plugin,
    Report,
    Seed,
    Shared,
    Sign,
    Stream,
    Table,
    Targets,
    TrainingPictures,
    parse_bins,
    parse_bounds,
    parse_emphasis,
    parse_method_options,
    split_names,
)
from tailwise.cli.output import (
    STANDARD,
    check_outputs,
    checkpoint_path,
    note,
    print_json,
    progress_shown,
    remove_checkpoint,
    resumable,
    write_outputs,
)
from tailwise.cli.read import (
    Pictures,
    Reader,
    Roles,
    Rows,
    check_key,
    file_name,
    hold_out,
    load_model,
)
from tailwise.cli.stream import Ray, StreamedTable, Workers, open_stream, ray_workers

if TYPE_CHECKING:
    from tailwise.estimator import TailRegressor
    from tailwise.report.scores import Scores


@dataclass(frozen=True)
class Outputs:
    """What `fit` writes."""

    out: ModelOut
    report: Report = None
    baseline: Annotated[
        bool,
        typer.Option(
            help="With --report, also train boosted trees to compare with, on the label and on its logarithm."
        ),
    ] = True
    coverage: Coverage = 0.9
    sign: Sign = None


@dataclass(frozen=True)
class Columns:
    """Which rows and columns of the table are used for what."""

    valid: Annotated[
        str | None,
        typer.Option(
            metavar="FILE", help="Table for early stopping and calibration; part of FILE by default."
        ),
    ] = None
    test: Annotated[
        str | None, typer.Option(metavar="FILE", help="Table to measure on; part of FILE by default.")
    ] = None
    test_share: Annotated[
        float,
        typer.Option(
            metavar="SHARE", min=0.0, max=0.9, help="Share of FILE to measure on; 0 trains on all rows."
        ),
    ] = 0.2
    drop: Drop = ""
    weight: Annotated[
        str | None,
        typer.Option(metavar="COLUMN", help="Column of row weights for training; it is not an input."),
    ] = None
    groups: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN",
            help="Rows with the same value are never split between training and held-out rows; not an input.",
        ),
    ] = None
    time_column: Annotated[
        str | None,
        typer.Option(
            "--time",
            metavar="COLUMN",
            help="Hold out the latest rows by this column; it stays an input unless dropped.",
        ),
    ] = None


@dataclass(frozen=True)
class Settings:
    """How the model is trained."""

    method: Annotated[str, typer.Option(metavar="NAME", help="Method; see `tailwise methods`.")] = "vir-dial"
    option: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=VALUE", help="Setting of the method, such as evidence.weight=0.01; can be repeated."
        ),
    ] = None
    base: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="Model that the network starts from, such as lightgbm; none for no such model.",
        ),
    ] = "auto"
    folds: Annotated[
        int | None,
        typer.Option(
            metavar="N", min=1, help="Number of networks, each with its own held-out rows; 5 for most tables."
        ),
    ] = None
    emphasis: Emphasis = "auto"
    target_transform: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="Fit to transformed labels: log, yeo-johnson, none, or auto (log if held-out rows gain).",
        ),
    ] = "auto"
    backbone: Annotated[str, typer.Option(metavar="NAME", help="Network, such as mlp, residual or tabm.")] = (
        "auto"
    )
    bins: Annotated[
        str | None,
        typer.Option(
            metavar="BINS",
            help="Number of label bins, or edges such as 0,1,10,100; set from the labels by default.",
        ),
    ] = None
    bounds: Annotated[
        str | None,
        typer.Option(
            metavar="LOW,HIGH",
            help="Smallest and largest possible label; 0, has no upper bound, observed is the range in FILE.",
        ),
    ] = None
    conformal_by: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN", help="Fit intervals for each value of this column, or for bins of its numbers."
        ),
    ] = None
    epochs: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, help="Maximum number of epochs; set from the data by default."),
    ] = None
    batch_size: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Rows per batch; set from the data by default.")
    ] = None
    lr: Annotated[
        float | None,
        typer.Option(
            metavar="RATE", min=1e-12, help="Learning rate; 0.001 by default, 0.003 for tables read in parts."
        ),
    ] = None
    device: Annotated[str, typer.Option(metavar="NAME", help="auto, cpu, cuda or mps.")] = "auto"
    seed: Seed = 0
    start_from: Annotated[
        Path | None,
        typer.Option(
            "--start-from",
            "--init-model",
            metavar="MODEL",
            help="Model of the same method and columns to train further.",
        ),
    ] = None
    plugin: Plugin = None

    def parameters(self, quiet: bool) -> dict[str, Any]:
        """Return the parameters of `TailRegressor`."""
        return {
            "method": _known_method(self.method),
            "method_options": parse_method_options(self.option or []),
            "base": None if self.base == "none" else self.base,
            "folds": self.folds or "auto",
            "emphasis": parse_emphasis(self.emphasis),
            "target_transform": None if self.target_transform == "none" else self.target_transform,
            "backbone": self.backbone,
            "bins": parse_bins(self.bins),
            "bounds": parse_bounds(self.bounds),
            "conformal_by": self.conformal_by,
            "epochs": self.epochs or "auto",
            "batch_size": self.batch_size or "auto",
            "lr": self.lr or "auto",
            "device": self.device,
            "random_state": self.seed,
            "verbose": int(not quiet),
        }


@dataclass(frozen=True)
class Parts:
    """How a table larger than memory is read and trained on."""

    stream: Stream = False
    ray: Ray = None
    workers: Workers = None


def fit(
    data: Table,
    target: Targets,
    *,
    outputs: Outputs,
    columns: Columns,
    settings: Settings,
    parts: Parts,
    pictures: TrainingPictures,
    shared: Shared,
) -> None:
    """Train a model on a table, test it and write it to a file.

    Part of the table, or the table given with --test, is not used for training: errors and coverage are
    measured on its rows. After Ctrl-C the same command resumes where it stopped.
    """
    began = time.perf_counter()
    _check_options(data, target, outputs, columns, settings, parts, pictures, shared)
    start = None if settings.start_from is None else load_model(settings.start_from)
    parameters = settings.parameters(shared.quiet) | pictures.parameters(settings.backbone)
    reader = Reader(shared, Pictures.to_train(pictures))
    split = _read(data, target, reader, columns, settings, parts)
    test = split.test
    if outputs.report is not None and test is None:
        raise ValueError(
            "there are no test rows, so there is nothing to report: raise --test-share or give --test"
        )
    repeated = _note_repeated(split, columns.groups, shared.quiet)
    kept = checkpoint_path(outputs.out)
    with resumable(kept), progress_shown(shared.quiet):
        model = split.fit(parameters, kept, shared.quiet, start)
        if outputs.report is not None and outputs.baseline:
            _fit_rival(model, split.train, shared.quiet)
        _note_if_nothing_was_held_out(model, split, shared.quiet)
        findings = [] if test is None else findings_of(model, test.X, test.y, outputs.coverage)
        files: dict[Path, Any] = {outputs.out: partial(model.save, key=outputs.sign)}
        if outputs.report is not None and test is not None:
            source = None if columns.test is None else f"rows of {file_name(columns.test)}"
            about: dict[str, Any] = {"test_source": source, "weight": columns.weight, "repeated": repeated}
            about["seconds"] = time.perf_counter() - began
            files[outputs.report] = page_of(model, findings[0], test.X, source=file_name(data), **about)
        write_outputs(files, quiet=shared.quiet or shared.as_json)
    remove_checkpoint(kept)
    if shared.as_json:
        shown = {"model": outputs.out, "report": outputs.report, "seconds": time.perf_counter() - began}
        counted = {"emphasis": emphasis_of(model), "repeated_test_rows": repeated}
        print_json({**shown, **counted, **findings_json(findings)})
    else:
        print_findings(findings)
    _note_what_would_help(findings, settings.bounds, shared.quiet)


# -- checks before anything is read ----------------------------------------------------------------


def _check_options(
    data: str,
    target: list[str],
    outputs: Outputs,
    columns: Columns,
    settings: Settings,
    parts: Parts,
    pictures: TrainingPictures,
    shared: Shared,
) -> None:
    """Raise an error for options that do not go together, and for outputs that cannot be written."""
    sources = [source for source in (data, columns.valid, columns.test) if source is not None]
    if sources.count(STANDARD) > 1:
        raise ValueError("only one of FILE, --valid and --test can be - (standard input)")
    inputs: list[str | Path] = [*sources, *([settings.start_from] if settings.start_from else [])]
    check_key(outputs.sign, inputs)
    check_outputs(
        {"--out": outputs.out, "--report": outputs.report},
        force=shared.force,
        inputs=[*inputs, *([outputs.sign] if outputs.sign else [])],
    )
    if outputs.report is not None and len(target) > 1:
        raise ValueError(
            "a report is about one target: leave out --report, and then write a page for each target with "
            f"`tailwise evaluate {outputs.out} FILE --target {target[0]} --report PAGE`, on rows not used "
            "here"
        )
    if parts.ray is not None and settings.plugin:
        raise ValueError("the processes of a Ray cluster do not run a --plugin: leave out --ray")


def _known_method(name: str) -> str:
    """Return the name of a method, or raise an error that says how to add one."""
    from tailwise.methods import get_method

    try:
        return get_method(name).name
    except ValueError as error:
        raise ValueError(f"{error} (--plugin FILE adds a method of your own)") from None


# -- rows ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Split:
    """The rows to train on, to stop and calibrate by, and to measure on."""

    train: Rows | StreamedTable
    valid: Rows | None
    test: Rows | None

    def fit(
        self,
        parameters: Mapping[str, Any],
        checkpoint: Path,
        quiet: bool,
        start: TailRegressor | None = None,
    ) -> TailRegressor:
        """Fit a model; resume from `checkpoint` if a stopped command left it."""
        from tailwise.estimator import TailRegressor

        if checkpoint.exists():
            note(f"resuming from {checkpoint}", quiet)
        if isinstance(self.train, StreamedTable):
            return self.train.train(parameters, checkpoint)
        return TailRegressor(**parameters).fit(
            self.train.X,
            self.train.labels,
            sample_weight=self.train.weight,
            eval_set=None if self.valid is None else (self.valid.X, self.valid.labels),
            checkpoint=checkpoint,
            groups=self.train.groups,
            time=self.train.time,
            init_model=start,
        )


def _read(
    data: str, targets: list[str], reader: Reader, columns: Columns, settings: Settings, parts: Parts
) -> Split:
    """Read the tables; without --test, rows of FILE are held out."""
    dropped, quiet = split_names(columns.drop), reader.shared.quiet
    cluster = ray_workers(parts.ray, parts.workers, settings.device)
    not_streamed: dict[str, object] = {
        "--valid": columns.valid,
        "--groups": columns.groups,
        "--time": columns.time_column,
        "--start-from": settings.start_from,
        "--images": None if reader.pictures is None else reader.pictures.root,
        "--encoding": reader.shared.encoding,
        "--folds": settings.folds if settings.folds != 1 else None,
    }
    stream = open_stream(data, parts.stream or cluster is not None, not_streamed)
    bounds = parse_bounds(settings.bounds)
    roles = Roles(targets, dropped, columns.weight, columns.groups, columns.time_column, bounds)
    if stream is not None:
        share = 0.0 if columns.test else columns.test_share
        table = StreamedTable.of(stream, roles, share, settings.seed, cluster)
        return Split(table, None, table.like(columns.test, reader) if columns.test else table.test_rows())
    rows, others = reader.rows(data, roles), Roles(targets, dropped)
    valid, test = (
        None if source is None else reader.rows(source, others, like=rows.X)
        for source in (columns.valid, columns.test)
    )
    if test is None:
        rows, test = hold_out(rows, columns.test_share, settings.seed, quiet)
    _check_row_count(rows, data)
    if settings.batch_size is not None and settings.batch_size > len(rows):
        large = f"--batch-size {settings.batch_size} exceeds the {len(rows)} rows to train on"
        note(f"note: {large}: an epoch is one step", quiet)
    return Split(rows, valid, test)


def _check_row_count(rows: Rows, source: str) -> None:
    """Raise an error that names the file if it leaves too few rows to train on."""
    from tailwise.model.split import MIN_ROWS

    if len(rows) < MIN_ROWS:
        raise ValueError(
            f"{source} leaves {len(rows)} rows with a label to train on, and at least {MIN_ROWS} are "
            "needed: add rows, or lower --test-share"
        )


# -- baselines -------------------------------------------------------------------------------------


def _fit_rival(model: TailRegressor, train: Rows | StreamedTable, quiet: bool) -> None:
    """Put the boosted trees that a report compares with beside a model of one target."""
    from tailwise.report.lineup import fit_rival

    if isinstance(train, StreamedTable) or not model.model_.inputs.is_table:
        return
    note("training boosted trees to compare with", quiet)
    trees = fit_rival(model, train.X, train.labels, train.weight, train.groups)
    if trees is not None and trees not in model.model_.base.targets:
        model.model_ = replace(model.model_, rivals=(trees,))


# -- notes -----------------------------------------------------------------------------------------


def _note_repeated(split: Split, groups: str | None, quiet: bool) -> int:
    """Count the test rows that are also training rows, with equal inputs and labels, and note them."""
    from tailwise.tables.rows import rows_in_common

    train, test = split.train, split.test
    if test is None or isinstance(train, StreamedTable):
        return 0
    repeated = rows_in_common(test.X, test.y.to_numpy(), train.X, train.y.to_numpy())
    if repeated:
        group = "name a column of groups with --groups, or " if groups is None else ""
        also = f"{repeated} of {len(test)} test rows are also training rows"
        worse = "with equal inputs and labels, so figures on new rows may be worse"
        note(f"note: {also}, {worse}: {group}leave repeated rows out", quiet)
    return repeated


def _note_if_nothing_was_held_out(model: TailRegressor, split: Split, quiet: bool) -> None:
    if isinstance(split.train, Rows) and not model.model_.record.held_out:
        note(
            f"note: {len(split.train)} rows to train on are too few to hold some out: intervals rest on "
            "rows that trained the model, and may be too narrow",
            quiet,
        )


def _note_what_would_help(findings: list[Finding], bounds: str | None, quiet: bool) -> None:
    """Note options that the findings suggest."""
    for finding in findings if bounds is None else ():
        if below := _negative_ends(finding.lineup.ours):
            note(
                f"note: target {finding.target!r}: {below:,} of {finding.lineup.ours.y.size:,} test "
                "intervals reach below 0, which no training label does. If such labels are impossible, use "
                "--bounds 0, (no upper end).",
                quiet,
            )
    if any(finding.verdict.status == "unknown" for finding in findings):
        more = "a larger --test-share, or a table given with --test, has more rows to judge by"
        note(f"note: {more}", quiet)


def _negative_ends(scores: Scores) -> int:
    """Return how many intervals reach below 0, if no training label does."""
    from tailwise.calibration.interval_scores import label_range

    if min(label_range(scores.bins)[0], scores.y.min()) < 0:
        return 0
    return int((scores.lower < 0).sum())
