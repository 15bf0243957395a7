"""The command `fit`."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tailwise.cli.addresses import check_addresses
from tailwise.cli.findings import (
    Finding,
    emphasis_of,
    findings_json,
    negative_ends,
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
    Table,
    Targets,
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
from tailwise.cli.picturing import PictureReader, SplitColumn, TrainingPictures
from tailwise.cli.reading import (
    Labelled,
    Roles,
    check_key,
    file_name,
    hold_out,
    load_labelled,
    load_model,
)
from tailwise.cli.streamed import Ray, Stream, StreamedTable, Workers, open_stream, ray_workers

if TYPE_CHECKING:
    import pandas as pd

    from tailwise.estimator import TailRegressor


def fit(
    data: Table,
    target: Targets,
    out: ModelOut,
    method: Annotated[str, typer.Option(metavar="NAME", help="Method; see `tailwise methods`.")] = "vir-dial",
    report: Report = None,
    onnx: Annotated[
        Path | None,
        typer.Option("--export", metavar="FILE", help="ONNX file to write as well; see `tailwise export`."),
    ] = None,
    valid: Annotated[
        str | None,
        typer.Option(
            metavar="FILE", help="Table for early stopping and calibration; part of FILE by default."
        ),
    ] = None,
    test: Annotated[
        str | None, typer.Option(metavar="FILE", help="Table to measure on; part of FILE by default.")
    ] = None,
    test_share: Annotated[
        float,
        typer.Option(
            metavar="SHARE", min=0.0, max=0.9, help="Share of FILE to measure on; 0 trains on all rows."
        ),
    ] = 0.2,
    drop: Drop = "",
    weight: Annotated[
        str | None,
        typer.Option(metavar="COLUMN", help="Column of row weights for training; it is not an input."),
    ] = None,
    groups: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN",
            help="Rows with the same value are never split between training and held-out rows; not an input.",
        ),
    ] = None,
    time_column: Annotated[
        str | None,
        typer.Option(
            "--time",
            metavar="COLUMN",
            help="Hold out the latest rows by this column; it stays an input unless dropped.",
        ),
    ] = None,
    conformal_by: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN", help="Fit intervals for each value of this column, or for bins of its numbers."
        ),
    ] = None,
    start_from: Annotated[
        Path | None,
        typer.Option(
            "--start-from",
            "--init-model",
            metavar="MODEL",
            help="Model of the same method and columns to train further.",
        ),
    ] = None,
    baseline: Annotated[
        bool,
        typer.Option(
            help="With --report, also train a plain network and boosted trees with label weights, to compare."
        ),
    ] = True,
    coverage: Coverage = 0.9,
    epochs: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, help="Maximum number of epochs; set from the data by default."),
    ] = None,
    batch_size: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Rows per batch; set from the data by default.")
    ] = None,
    lr: Annotated[
        float | None,
        typer.Option(
            metavar="RATE", min=1e-12, help="Learning rate; 0.001 by default, 0.003 for tables read in parts."
        ),
    ] = None,
    bins: Annotated[
        str | None,
        typer.Option(
            metavar="BINS",
            help="Number of label bins, or edges such as 0,1,10,100; set from the labels by default.",
        ),
    ] = None,
    bounds: Annotated[
        str | None,
        typer.Option(
            metavar="LOW,HIGH",
            help="Smallest and largest possible label; 0, has no upper bound, observed is the range in FILE.",
        ),
    ] = None,
    backbone: Annotated[
        str, typer.Option(metavar="NAME", help="Network, such as mlp, residual or tabm.")
    ] = "auto",
    base: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="Model that the network starts from, such as lightgbm; none for no such model.",
        ),
    ] = "auto",
    folds: Annotated[
        int | None,
        typer.Option(
            metavar="N", min=1, help="Number of networks, each with its own held-out rows; 5 for most tables."
        ),
    ] = None,
    emphasis: Emphasis = "auto",
    option: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=VALUE", help="Setting of the method, such as evidence.weight=0.01; can be repeated."
        ),
    ] = None,
    seed: Seed = 0,
    device: Annotated[str, typer.Option(metavar="NAME", help="auto, cpu, cuda or mps.")] = "auto",
    stream: Stream = False,
    ray: Ray = None,
    workers: Workers = None,
    sign: Sign = None,
    plugin: Plugin = None,
    *,
    pictures: TrainingPictures,
    split: SplitColumn = None,
    shared: Shared,
) -> None:
    """Train a model on a table, test it and write it to a file.

    Part of the table, or the table given with --test, is not used for training: errors and coverage are
    measured on its rows. After Ctrl-C the same command resumes where it stopped.
    """
    import time

    check_addresses(
        catboost=base in ("auto", "catboost") and pictures.images is None,
        otherwise="or train without CatBoost (--base none)",
    )
    began = time.perf_counter()
    sources = [data, *(s for s in (valid, test) if s is not None)]
    if sources.count(STANDARD) > 1:
        raise ValueError("only one of FILE, --valid and --test can be - (standard input)")
    if time_column is not None and valid is not None:
        raise ValueError("--time and --valid both say which rows are held out: leave one out")
    inputs: list[str | Path] = [*sources, *([start_from] if start_from else [])]
    check_key(sign, inputs)  # before anything is trained
    secrets = [sign] if sign else []
    check_outputs(
        {"--out": out, "--report": report, "--export": onnx}, force=shared.force, inputs=[*inputs, *secrets]
    )
    start = None if start_from is None else load_model(start_from)
    if onnx is not None:
        _check_export(base, conformal_by, pictures.images is not None)
    if pictures.images is not None and conformal_by is not None:
        raise ValueError("--conformal-by is for tables: leave it out, or leave out --images")
    if report is not None and len(target) > 1:
        raise ValueError(
            "a report is about one target: leave out --report, and then write a page for each target with "
            f"`tailwise evaluate {out} FILE --target {target[0]} --report PAGE`, on rows not used here"
        )
    settings = {
        "method": _known_method(method),
        "method_options": parse_method_options(option or []),
        "base": None if base == "none" else base,
        "folds": folds or "auto",
        "emphasis": parse_emphasis(emphasis),
        "backbone": backbone,
        "bins": parse_bins(bins),
        "bounds": parse_bounds(bounds),
        "conformal_by": conformal_by,
        "epochs": epochs or "auto",
        "batch_size": batch_size or "auto",
        "lr": lr or "auto",
        "device": device,
        "random_state": seed,
        "verbose": int(not shared.quiet),
    }
    dropped = split_names(drop)
    reader = pictures.reader(split)
    if reader is not None:
        settings |= pictures.settings(backbone)
    load: Any = load_labelled if reader is None else reader.load_labelled
    read = partial(load, encoding=shared.encoding)
    no_stream: dict[str, object] = {
        "--valid": valid,
        "--groups": groups,
        "--time": time_column,
        "--start-from": start_from,
        "--images": pictures.images,
        "--encoding": shared.encoding,
        "--folds": folds if folds != 1 else None,
    }
    if ray is not None and plugin:
        raise ValueError("the processes of a Ray cluster do not run a --plugin: leave out --ray")
    cluster = ray_workers(ray, workers, device)
    parts = open_stream(data, stream or cluster is not None, no_stream)
    rows: Labelled | StreamedTable
    held = measured = None
    if parts is not None:
        share = 0.0 if test else test_share
        rows = StreamedTable.of(parts, target, dropped, weight, share, seed, cluster)
        measured = None if test is None else rows.like(test, read, shared.quiet)
    else:
        roles = Roles(target, dropped, weight, groups, time_column, settings["bounds"])
        rows, held, measured = _whole_tables(
            partial(read, quiet=shared.quiet), (data, valid, test), roles, reader
        )
        if measured is None and split is None:
            rows, measured = hold_out(rows, test_share, seed, shared.quiet)
        _check_row_count(rows, data)
        if batch_size is not None and batch_size > len(rows.labels):
            large = f"--batch-size {batch_size} exceeds the {len(rows.labels)} rows to train on"
            note(f"note: {large}: an epoch is one step", shared.quiet)
    to_come = isinstance(rows, StreamedTable) and rows.held_out is not None
    if report is not None and measured is None and not to_come:
        raise ValueError(
            "there are no test rows, so there is nothing to report: raise --test-share or give --test"
        )
    kept, kept_plain = checkpoint_path(out), checkpoint_path(out, ".vanilla")
    outputs: dict[Path, Any] = {}
    with resumable(kept), progress_shown(shared.quiet):
        model = _train(settings, rows, held, kept, shared.quiet, start)
        plain = None
        compared = report is not None and baseline
        if compared:
            from tailwise.report.baselines import PLAIN

            trees = "" if reader is not None else " and boosted trees with label weights"
            note(f"training a plain network{trees}, to compare with", shared.quiet)
            plain = _train({**settings, **PLAIN}, rows, held, kept_plain, shared.quiet)
        if isinstance(rows, Labelled) and not model.model_.record.held_out:
            note(
                f"note: {len(rows.labels)} rows to train on are too few to hold some out: intervals rest on "
                "rows that trained the model, and may be too narrow",
                shared.quiet,
            )
        findings = []
        if isinstance(rows, StreamedTable):
            measured = measured or rows.test_rows()
        trained = rows if compared and isinstance(rows, Labelled) else None
        if measured is not None:
            findings = [
                _score(model, name, place, measured, coverage, trained, plain)
                for place, name in enumerate(target)
            ]
        outputs[out] = partial(model.save, key=sign)
        if onnx is not None:
            outputs[onnx] = partial(model.export_onnx, coverage=coverage)
        if report is not None:
            outputs[report] = page_of(
                model,
                findings[0],
                None if measured is None else measured.inputs,
                source=file_name(data),
                test_source=f"rows of {file_name(test)}" if test else None,
                weight=weight,
                seconds=time.perf_counter() - began,
            )
        write_outputs(outputs, quiet=shared.quiet or shared.as_json, kept=kept)
    for path in (kept_plain, kept):
        remove_checkpoint(path)
    seconds = time.perf_counter() - began
    if shared.as_json:
        shown = {"model": out, "report": report, "seconds": seconds, "emphasis": emphasis_of(model)}
        print_json({**shown, **findings_json(findings)})
    else:
        print_findings(findings)
    for finding in findings if bounds is None else ():
        if text := negative_ends(finding.lineup.ours):
            note(f"note: target {finding.target!r}: {text}", shared.quiet)
    if any(finding.verdict.status == "unknown" for finding in findings):
        larger = "a larger --test-share" if split is None else f"a larger part test of {split!r}"
        note(f"note: {larger}, or a table given with --test, has more rows to judge by", shared.quiet)


def _check_row_count(rows: Labelled, source: str) -> None:
    """Raise an error that names the file if it leaves too few rows to train on."""
    from tailwise.model.split import MIN_ROWS

    if len(rows.labels) < MIN_ROWS:
        raise ValueError(
            f"{source} leaves {len(rows.labels)} rows with a label to train on, and at least {MIN_ROWS} are "
            "needed: add rows, or lower --test-share"
        )


def _known_method(name: str) -> str:
    """Return the name of a method, or raise an error that says how to add one."""
    from tailwise.methods import get_method

    try:
        return get_method(name).name
    except ValueError as error:
        raise ValueError(f"{error} (--plugin FILE adds a method of your own)") from None


def _check_export(base: str, conformal_by: str | None, pictures: bool) -> None:
    """Raise an error for a model that no ONNX file can contain, before anything is trained."""
    from tailwise.onnx.export import require_onnx
    from tailwise.onnx.trees import check_exportable

    if pictures:
        raise ValueError("--export is for tables: leave it out, or leave out --images")
    if conformal_by is not None:
        raise ValueError(
            "an ONNX file cannot contain intervals by a column: leave out --export or --conformal-by"
        )
    require_onnx()
    check_exportable(None if base == "none" else base)


def _whole_tables(
    read: Callable[..., Labelled],
    sources: tuple[str, str | None, str | None],
    roles: Roles,
    reader: PictureReader | None,
) -> tuple[Labelled, Labelled | None, Labelled | None]:
    """Return the rows to train on, to stop and calibrate by, and to measure on.

    They are those of FILE, --valid and --test. Without these tables, a column of parts may say which rows.
    """
    rows = read(sources[0], roles)
    parts = (rows, None, None) if reader is None or reader.parts is None else reader.divided(rows)
    others = Roles(roles.targets, roles.drop)
    held, measured = (
        None if source is None else read(source, others, like=rows.inputs) for source in sources[1:]
    )
    return parts[0], held or parts[1], measured or parts[2]


def _train(
    settings: Mapping[str, Any],
    rows: Labelled | StreamedTable,
    held: Labelled | None,
    checkpoint: Path,
    quiet: bool,
    start: TailRegressor | None = None,
) -> TailRegressor:
    """Fit a model; resume from `checkpoint` if a stopped command left it."""
    from tailwise.estimator import TailRegressor

    if checkpoint.exists():
        note(f"resuming from {checkpoint}", quiet)
    if isinstance(rows, StreamedTable):
        return rows.train(settings, checkpoint)
    return TailRegressor(**settings).fit(
        rows.inputs,
        _one_or_all(rows.labels),
        sample_weight=rows.weights,
        eval_set=None if held is None else (held.inputs, _one_or_all(held.labels)),
        checkpoint=checkpoint,
        groups=rows.groups,
        time=rows.times,
        init_model=start,
    )


def _one_or_all(labels: pd.DataFrame) -> pd.DataFrame | pd.Series[float]:
    """Return a single target as 1-d labels, as scikit-learn expects them."""
    return labels.iloc[:, 0] if labels.shape[1] == 1 else labels


def _score(
    model: TailRegressor,
    target: str,
    place: int,
    measured: Labelled,
    coverage: float,
    trained: Labelled | None,
    plain: TailRegressor | None,
) -> Finding:
    """Score a model and its baselines; `trained` has rows to fit boosted trees on, if they are wanted."""
    from tailwise.report.baselines import PLAIN_TITLE, Training, line_up
    from tailwise.report.scoring import score_model
    from tailwise.report.verdict import judge

    inputs, labels = measured.inputs, measured.labels[target]
    train, other = None, None
    if trained is not None:
        train = Training(trained.inputs, trained.labels[target], trained.weights)
    if plain is not None:
        with warnings.catch_warnings():
            # What is wrong with the rows is said of the model; the plain network holds out fewer of them.
            warnings.simplefilter("ignore", UserWarning)
            other = replace(score_model(plain, inputs, labels, coverage, target=place), title=PLAIN_TITLE)
    lineup = line_up(model, inputs, labels, coverage, target=place, train=train, other=other)
    return Finding(target, lineup, judge(lineup))
