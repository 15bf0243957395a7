"""The command `fit`: read, split, train, measure, write."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tailwise.cli import options, output, read
from tailwise.cli.evaluate import emphasis_of, findings_json, findings_of, print_findings

if TYPE_CHECKING:
    import pandas as pd

    from tailwise.estimator import TailRegressor
    from tailwise.streams.sources import ParquetRows
    from tailwise.streams.survey import HeldOut
    from tailwise.training.ray_workers import RayWorkers


def fit(
    data: options.Table,
    target: options.Targets,
    *,
    settings: options.FitOptions,
    pictures: options.TrainingPictures,
    shared: options.Shared,
) -> None:
    """Train a model on a table, test it and write it to a file.

    Part of the table, or the table given with --test, is not used for training: errors and coverage are
    measured on its rows. After Ctrl-C the same command resumes where it stopped.
    """
    began = time.perf_counter()
    _check(data, target, settings, shared)
    start = None if settings.start_from is None else read.load_model(settings.start_from)
    parameters = settings.parameters(pictures, shared.quiet)
    train, test = _read(data, target, read.Reader(shared, pictures, pictures.image_size), settings)
    if settings.report is not None and test is None:
        raise ValueError(
            "there are no test rows, so there is nothing to report: raise --test-share or give --test"
        )
    repeated = _note_repeated(train, test, settings.groups, shared.quiet)
    kept = output.checkpoint_path(settings.out)
    with output.resumable(kept):
        model = _train(train, parameters, kept, start, shared.quiet)
        if test is not None and not settings.no_baseline:
            _fit_rival(model, train, shared.quiet)
        findings = {} if test is None else findings_of(model, test, settings.coverage)
        files: dict[Path, output.Content] = {settings.out: partial(model.save, key=settings.sign)}
        if settings.report is not None and test is not None:
            from tailwise.report.page import About, model_page

            about = About(
                target[0],
                read.file_name(data),
                output.command_line(),
                weight=settings.weight,
                repeated=repeated,
                seconds=time.perf_counter() - began,
            )
            if settings.test is not None:
                about = replace(about, test_source=f"rows of {read.file_name(settings.test)}")
            files[settings.report] = model_page(model, findings[target[0]], about, test.X)
        output.write_outputs(files, quiet=shared.quiet or shared.as_json)
    if shared.as_json:
        facts = {"model": settings.out, "report": settings.report, "seconds": time.perf_counter() - began}
        facts |= {"emphasis": emphasis_of(model), "repeated_test_rows": repeated}
        output.print_json(facts | findings_json(findings))
    else:
        print_findings(findings)
    if any(verdict.status == "unknown" for verdict in findings.values()):
        more = "a larger --test-share, or a table given with --test, has more rows to judge by"
        output.note(f"note: {more}", shared.quiet)


def _check(data: str, target: Sequence[str], settings: options.FitOptions, shared: options.Shared) -> None:
    """Raise an error for options that do not go together, and for outputs that cannot be written."""
    inputs = [data, settings.test, settings.start_from]
    if data == output.STANDARD == settings.test:
        raise ValueError("only one of FILE and --test can be - (standard input)")
    files = {"--out": settings.out, "--report": settings.report}
    output.check_outputs(files, force=shared.force, inputs=[*inputs, settings.sign])
    read.check_key(settings.sign)
    if settings.report is not None and len(target) > 1:
        raise ValueError(
            "a report is about one target: leave out --report, and then write a page for each target with "
            f"`tailwise evaluate {settings.out} FILE --target {target[0]} --report PAGE`, on other rows"
        )
    if settings.ray is not None and settings.plugin:
        raise ValueError("the processes of a Ray cluster do not run a --plugin: leave out --ray")


def _read(
    data: str, targets: list[str], reader: read.Reader, settings: options.FitOptions
) -> tuple[read.Rows | StreamedTable, read.Rows | None]:
    """Read the rows to train on and to measure on; without --test, the latter are rows of FILE."""
    from tailwise.model.split import MIN_ROWS

    cluster = _cluster(settings)
    not_streamed: dict[str, object] = {
        "--groups": settings.groups,
        "--time": settings.time_column,
        "--start-from": settings.start_from,
        "--folds": settings.folds if settings.folds != 1 else None,
    }
    stream = reader.stream(data, settings.stream or cluster is not None, **not_streamed)
    roles = read.Roles(
        targets,
        options.split_names(settings.drop),
        settings.weight,
        settings.groups,
        settings.time_column,
        options.parse_bounds(settings.bounds),
    )
    if stream is not None:
        share = 0.0 if settings.test else min(settings.test_share, read.MEASURED_ROWS / stream.rows)
        table = StreamedTable(stream, roles, share, read.SAMPLE_SEED + settings.seed, cluster)
        _ = table.inputs  # raises an error for columns that are not there
        return table, table.like(settings.test, reader) if settings.test else table.test_rows()
    rows = reader.rows(data, roles)
    if settings.test is not None:
        test: read.Rows | None = reader.rows(settings.test, read.Roles(targets, roles.drop), like=rows.X)
    else:
        rows, test = _hold_out(rows, settings.test_share, settings.seed, reader.shared.quiet)
    if len(rows) < MIN_ROWS:
        raise ValueError(
            f"{data} leaves {len(rows)} rows with a label to train on, and at least {MIN_ROWS} are needed: "
            "add rows, or lower --test-share"
        )
    return rows, test


def _hold_out(table: read.Rows, share: float, seed: int, quiet: bool) -> tuple[read.Rows, read.Rows | None]:
    """Split rows into training and test rows; rare and common labels have the same share of test rows.

    With times the latest rows are the test rows. With groups no group is on both sides.
    """
    import numpy as np

    from tailwise.model.split import deal_group_folds, group_codes, latest_rows
    from tailwise.tables.rows import label_holdout

    labels = table.y.iloc[:, 0].to_numpy()
    if share == 0:
        return table, None
    if table.time is not None:
        rows = latest_rows(table.time, len(table), share)[1]
    elif table.groups is not None:
        codes = group_codes(table.groups, len(table))
        parts = min(max(round(1 / share), 2), int(codes.max()) + 1)
        rows = np.flatnonzero(deal_group_folds(labels, codes, seed, parts) == 0)
    else:
        rows = label_holdout(labels, share=share, seed=seed, pool_small=True)
    if len(rows) == 0:
        output.note("note: there are too few rows for test rows; nothing is measured", quiet)
        return table, None
    return table.take(np.setdiff1d(np.arange(len(table)), rows)), table.take(rows)


def _cluster(settings: options.FitOptions) -> RayWorkers | None:
    """Return the workers that --ray and --workers ask for."""
    if settings.ray is None:
        if settings.workers is not None:
            raise ValueError("--workers is the number of processes on a Ray cluster: give --ray as well")
        return None
    from tailwise.training.ray_workers import RayWorkers

    gpus = settings.device in ("gpu", "cuda")
    cluster = RayWorkers(workers=settings.workers or 2, address=settings.ray, gpus=gpus)
    cluster.check()
    return cluster


@dataclass(frozen=True)
class StreamedTable:
    """A table that a model is trained on part by part; a random share of its rows is held out to test on."""

    stream: ParquetRows
    roles: read.Roles
    share: float
    seed: int
    workers: RayWorkers | None

    @property
    def held_out(self) -> HeldOut | None:
        """Which rows are test rows, if there are any."""
        from tailwise.streams.survey import held_share

        return held_share(self.share, self.seed) if self.share > 0 else None

    @property
    def inputs(self) -> list[str]:
        """The names of the inputs."""
        from tailwise.model.stream import StreamColumns

        roles = self.roles
        return StreamColumns.of(self.stream, roles.targets, roles.weight, roles.drop).inputs

    def train(self, parameters: Mapping[str, Any], checkpoint: Path) -> TailRegressor:
        """Fit a model on the rows that are not test rows."""
        from tailwise.estimator import TailRegressor
        from tailwise.streams.survey import OtherRows

        rows: Any = self.stream if self.held_out is None else OtherRows(self.stream, self.held_out)
        return TailRegressor(**parameters).fit_batches(
            rows,
            self.roles.targets,
            weight=self.roles.weight,
            drop=self.roles.drop,
            checkpoint=checkpoint,
            workers=self.workers,
        )

    def test_rows(self) -> read.Rows | None:
        """Return the test rows, if there are any."""
        from tailwise.streams.survey import sampled_rows

        if self.held_out is None:
            return None
        columns = [*self.inputs, *self.roles.targets]
        return self._rows(sampled_rows(self.stream, self.held_out, columns).reset_index(drop=True))

    def like(self, source: str, reader: read.Reader) -> read.Rows:
        """Return the rows of another table to measure on, with the columns of this one."""
        import pandas as pd

        from tailwise.tables.columns import check_column

        other = reader.stream(source, False)
        if other is None:
            like = pd.DataFrame(columns=self.inputs)
            return reader.rows(source, read.Roles(self.roles.targets), like=like)
        table = read.measured_rows(other, reader.shared.quiet)
        for column in (*self.inputs, *self.roles.targets):
            check_column(table, column, source)
        return self._rows(table)

    def _rows(self, table: pd.DataFrame) -> read.Rows:
        labels = table[list(self.roles.targets)].astype(float)
        return read.Rows(table[self.inputs], labels, name=self.stream.name)


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
    """Put the boosted trees that a verdict compares with beside a model of one target.

    They are its base where it has one that may choose between the label and its logarithm.
    """
    from tailwise.report.scores import fit_rival

    fitted = model.model_
    is_base = bool(fitted.base.targets) and model.target_transform == "auto"
    if isinstance(train, StreamedTable) or not fitted.inputs.is_table or len(fitted.targets) > 1 or is_base:
        return
    output.note("training boosted trees to compare with", quiet)
    trees = fit_rival(model, train.X, train.labels, train.weight, train.groups)
    if trees is not None and trees not in fitted.base.targets:
        model.model_ = replace(fitted, rivals=(trees,))


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
