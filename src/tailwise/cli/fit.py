"""The command `fit`: read, split, train, measure, write."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Option

from tailwise.cli import options, output, read
from tailwise.cli.evaluate import (
    Finding,
    emphasis_of,
    findings_json,
    findings_of,
    page_of,
    print_findings,
)
from tailwise.cli.stream import StreamedTable, open_stream

if TYPE_CHECKING:
    from tailwise.estimator import TailRegressor
    from tailwise.report.scores import Scores
    from tailwise.training.ray_workers import RayWorkers


@dataclass(frozen=True)
class Outputs:
    """What `fit` writes."""

    out: options.ModelOut
    report: options.Report = None
    no_baseline: Annotated[
        bool, Option("--no-baseline", help="With --report, train no boosted trees to compare with.")
    ] = False
    coverage: options.Coverage = 0.9
    sign: options.Sign = None


@dataclass(frozen=True)
class Columns:
    """Which rows and columns of the table are used for what."""

    test: Annotated[
        str | None, Option(metavar="FILE", help="Table to measure on; part of FILE by default.")
    ] = None
    test_share: Annotated[
        float, Option(metavar="SHARE", min=0.0, max=0.9, help="Share of FILE to measure on; 0 for none.")
    ] = 0.2
    drop: options.Drop = ""
    weight: Annotated[
        str | None, Option(metavar="COLUMN", help="Column of row weights for training; it is not an input.")
    ] = None
    groups: Annotated[
        str | None,
        Option(
            metavar="COLUMN",
            help="Rows with the same value are never split between training and held-out rows; not an input.",
        ),
    ] = None
    time_column: Annotated[
        str | None,
        Option(
            "--time",
            metavar="COLUMN",
            help="Hold out the latest rows by this column; it stays an input unless dropped.",
        ),
    ] = None


@dataclass(frozen=True)
class Settings:
    """How the model is trained."""

    method: Annotated[str, Option(metavar="NAME", help="Method; see `tailwise methods`.")] = "vir-dial"
    option: Annotated[
        list[str] | None,
        Option(metavar="NAME=VALUE", help="Setting of the method, such as evidence.weight=0.01; repeatable."),
    ] = None
    base: Annotated[
        str, Option(metavar="NAME", help="Model that the network starts from, such as lightgbm, or none.")
    ] = "auto"
    folds: Annotated[
        int | None,
        Option(
            metavar="N", min=1, help="Number of networks, each with its own held-out rows; 5 for most tables."
        ),
    ] = None
    emphasis: options.Emphasis = "auto"
    target_transform: Annotated[
        str,
        Option(
            metavar="NAME",
            help="Fit to transformed labels: log, yeo-johnson, none, or auto (log if held-out rows gain).",
        ),
    ] = "auto"
    backbone: Annotated[str, Option(metavar="NAME", help="Network, such as mlp, residual or tabm.")] = "auto"
    bins: Annotated[
        str | None,
        Option(
            metavar="BINS",
            help="Number of label bins, or edges such as 0,1,10,100; set from the labels by default.",
        ),
    ] = None
    bounds: Annotated[
        str | None,
        Option(
            metavar="LOW,HIGH",
            help="Smallest and largest possible label; 0, has no upper bound, observed is the range in FILE.",
        ),
    ] = None
    conformal_by: Annotated[
        str | None,
        Option(
            metavar="COLUMN", help="Fit intervals for each value of this column, or for bins of its numbers."
        ),
    ] = None
    epochs: options.Epochs = None
    device: Annotated[str, Option(metavar="NAME", help="auto, cpu, cuda or mps.")] = "auto"
    seed: options.Seed = 0
    start_from: Annotated[
        Path | None, Option(metavar="MODEL", help="Model of the same method and columns to train further.")
    ] = None
    plugin: options.Plugin = None

    def parameters(self, pictures: options.TrainingPictures, quiet: bool) -> dict[str, Any]:
        """Return the parameters of `TailRegressor`."""
        return {
            "method": self.method,
            "method_options": options.parse_method_options(self.option or []),
            "base": None if self.base == "none" else self.base,
            "folds": self.folds or "auto",
            "emphasis": options.parse_emphasis(self.emphasis),
            "target_transform": None if self.target_transform == "none" else self.target_transform,
            "backbone": self.backbone,
            "bins": options.parse_bins(self.bins),
            "bounds": options.parse_bounds(self.bounds),
            "conformal_by": self.conformal_by,
            "epochs": self.epochs or "auto",
            "device": self.device,
            "random_state": self.seed,
            "verbose": int(not quiet),
            **pictures.parameters(self.backbone),
        }


@dataclass(frozen=True)
class Parts:
    """How a table larger than memory is read and trained on."""

    stream: options.Stream = False
    ray: Annotated[
        str | None,
        Option(
            metavar="ADDRESS",
            help="Train on a Ray cluster: host:port, auto, or local to start one on this machine.",
        ),
    ] = None
    workers: Annotated[
        int | None,
        Option(metavar="N", min=1, help="With --ray, number of training processes; 2 by default."),
    ] = None

    def cluster(self, device: str) -> RayWorkers | None:
        """Return the workers that --ray and --workers ask for."""
        if self.ray is None:
            if self.workers is not None:
                raise ValueError("--workers is the number of processes on a Ray cluster: give --ray as well")
            return None
        from tailwise.training.ray_workers import RayWorkers

        cluster = RayWorkers(workers=self.workers or 2, address=self.ray, gpus=device in ("gpu", "cuda"))
        cluster.check()
        return cluster


def fit(
    data: options.Table,
    target: options.Targets,
    *,
    outputs: Outputs,
    columns: Columns,
    settings: Settings,
    parts: Parts,
    pictures: options.TrainingPictures,
    shared: options.Shared,
) -> None:
    """Train a model on a table, test it and write it to a file.

    Part of the table, or the table given with --test, is not used for training: errors and coverage are
    measured on its rows. After Ctrl-C the same command resumes where it stopped.
    """
    began = time.perf_counter()
    _check(data, target, outputs, columns, settings, parts, shared)
    start = None if settings.start_from is None else read.load_model(settings.start_from)
    parameters = settings.parameters(pictures, shared.quiet)
    reader = read.Reader(shared, read.Pictures.to_train(pictures))
    train, test = _read(data, target, reader, columns, settings, parts)
    if outputs.report is not None and test is None:
        raise ValueError(
            "there are no test rows, so there is nothing to report: raise --test-share or give --test"
        )
    repeated = _note_repeated(train, test, columns.groups, shared.quiet)
    kept = output.checkpoint_path(outputs.out)
    with output.resumable(kept):
        model = _train(train, parameters, kept, start, shared.quiet)
        if outputs.report is not None and not outputs.no_baseline:
            _fit_rival(model, train, shared.quiet)
        findings = [] if test is None else findings_of(model, test, outputs.coverage)
        files: dict[Path, output.Content] = {outputs.out: partial(model.save, key=outputs.sign)}
        if outputs.report is not None and test is not None:
            about: dict[str, Any] = {"weight": columns.weight, "repeated": repeated}
            about["test_source"] = None if columns.test is None else f"rows of {read.file_name(columns.test)}"
            about["seconds"] = time.perf_counter() - began
            files[outputs.report] = page_of(model, findings[0], test, source=read.file_name(data), **about)
        output.write_outputs(files, quiet=shared.quiet or shared.as_json)
    if shared.as_json:
        facts = {"model": outputs.out, "report": outputs.report, "seconds": time.perf_counter() - began}
        facts |= {"emphasis": emphasis_of(model), "repeated_test_rows": repeated}
        output.print_json(facts | findings_json(findings))
    else:
        print_findings(findings)
    _note_what_would_help(findings, settings.bounds, shared.quiet)


def _check(
    data: str,
    target: Sequence[str],
    outputs: Outputs,
    columns: Columns,
    settings: Settings,
    parts: Parts,
    shared: options.Shared,
) -> None:
    """Raise an error for options that do not go together, and for outputs that cannot be written."""
    inputs = [data, columns.test, settings.start_from]
    if data == output.STANDARD == columns.test:
        raise ValueError("only one of FILE and --test can be - (standard input)")
    read.check_key(outputs.sign, inputs)
    files = {"--out": outputs.out, "--report": outputs.report}
    output.check_outputs(files, force=shared.force, inputs=[*inputs, outputs.sign])
    if outputs.report is not None and len(target) > 1:
        raise ValueError(
            "a report is about one target: leave out --report, and then write a page for each target with "
            f"`tailwise evaluate {outputs.out} FILE --target {target[0]} --report PAGE`, on other rows"
        )
    if parts.ray is not None and settings.plugin:
        raise ValueError("the processes of a Ray cluster do not run a --plugin: leave out --ray")


def _read(
    data: str, targets: list[str], reader: read.Reader, columns: Columns, settings: Settings, parts: Parts
) -> tuple[read.Rows | StreamedTable, read.Rows | None]:
    """Read the rows to train on and to measure on; without --test, the latter are rows of FILE."""
    from tailwise.model.split import MIN_ROWS

    cluster = parts.cluster(settings.device)
    not_streamed: dict[str, object] = {
        "--groups": columns.groups,
        "--time": columns.time_column,
        "--start-from": settings.start_from,
        "--images": None if reader.pictures is None else reader.pictures.root,
        "--encoding": reader.shared.encoding,
        "--folds": settings.folds if settings.folds != 1 else None,
    }
    stream = open_stream(data, parts.stream or cluster is not None, not_streamed)
    roles = read.Roles(
        targets,
        options.split_names(columns.drop),
        columns.weight,
        columns.groups,
        columns.time_column,
        options.parse_bounds(settings.bounds),
    )
    if stream is not None:
        share = 0.0 if columns.test else columns.test_share
        table = StreamedTable.of(stream, roles, share, settings.seed, cluster)
        return table, table.like(columns.test, reader) if columns.test else table.test_rows()
    rows = reader.rows(data, roles)
    if columns.test is not None:
        test: read.Rows | None = reader.rows(columns.test, read.Roles(targets, roles.drop), like=rows.X)
    else:
        rows, test = read.hold_out(rows, columns.test_share, settings.seed, reader.shared.quiet)
    if len(rows) < MIN_ROWS:
        raise ValueError(
            f"{data} leaves {len(rows)} rows with a label to train on, and at least {MIN_ROWS} are needed: "
            "add rows, or lower --test-share"
        )
    return rows, test


def _train(
    train: read.Rows | StreamedTable,
    parameters: dict[str, Any],
    checkpoint: Path,
    start: TailRegressor | None,
    quiet: bool,
) -> TailRegressor:
    """Fit a model; resume from `checkpoint` if a stopped command left it."""
    from tailwise.estimator import TailRegressor

    if checkpoint.exists():
        output.note(f"resuming from {checkpoint}", quiet)
    if isinstance(train, StreamedTable):
        return train.train(parameters, checkpoint)
    beside: dict[str, Any] = {"sample_weight": train.weight, "groups": train.groups, "time": train.time}
    model = TailRegressor(**parameters)
    model.fit(train.X, train.labels, checkpoint=checkpoint, init_model=start, **beside)
    if not model.model_.record.held_out:
        output.note(
            f"note: {len(train)} rows to train on are too few to hold some out: intervals rest on rows that "
            "trained the model, and may be too narrow",
            quiet,
        )
    return model


def _fit_rival(model: TailRegressor, train: read.Rows | StreamedTable, quiet: bool) -> None:
    """Put the boosted trees that a report compares with beside a model of one target."""
    from tailwise.report.lineup import fit_rival

    if isinstance(train, StreamedTable) or not model.model_.inputs.is_table:
        return
    output.note("training boosted trees to compare with", quiet)
    trees = fit_rival(model, train.X, train.labels, train.weight, train.groups)
    if trees is not None and trees not in model.model_.base.targets:
        model.model_ = replace(model.model_, rivals=(trees,))


# -- notes -----------------------------------------------------------------------------------------


def _note_repeated(
    train: read.Rows | StreamedTable, test: read.Rows | None, groups: str | None, quiet: bool
) -> int:
    """Count the test rows that are also training rows, with equal inputs and labels, and note them."""
    from tailwise.tables.rows import rows_in_common

    if test is None or isinstance(train, StreamedTable):
        return 0
    repeated = rows_in_common(test.X, test.y.to_numpy(), train.X, train.y.to_numpy())
    if repeated:
        group = "name a column of groups with --groups, or " if groups is None else ""
        also = f"{repeated} of {len(test)} test rows are also training rows"
        worse = "with equal inputs and labels, so figures on new rows may be worse"
        output.note(f"note: {also}, {worse}: {group}leave repeated rows out", quiet)
    return repeated


def _note_what_would_help(findings: Sequence[Finding], bounds: str | None, quiet: bool) -> None:
    """Note options that the findings suggest."""
    for finding in findings if bounds is None else ():
        if below := negative_ends(finding.lineup.ours):
            output.note(
                f"note: target {finding.target!r}: {below:,} of {finding.lineup.ours.y.size:,} test "
                "intervals reach below 0, which no training label does. If such labels are impossible, use "
                "--bounds 0, (no upper end).",
                quiet,
            )
    if any(finding.verdict.status == "unknown" for finding in findings):
        more = "a larger --test-share, or a table given with --test, has more rows to judge by"
        output.note(f"note: {more}", quiet)


def negative_ends(scores: Scores) -> int:
    """Return how many intervals reach below 0, if no training label does."""
    from tailwise.calibration.interval_scores import label_range

    if min(label_range(scores.bins)[0], scores.y.min()) < 0:
        return 0
    return int((scores.lower < 0).sum())
