"""Commands about one model: `fit`, `predict`, `evaluate` and `export`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tailwise.cli.options import (
    Config,
    Coverage,
    Drop,
    Emphasis,
    Encoding,
    Force,
    Json,
    LabelPrior,
    Model,
    Quiet,
    Report,
    Seed,
    Sign,
    Table,
    Targets,
    Verify,
    parse_bins,
    parse_bounds,
    parse_emphasis,
    parse_levels,
    parse_method_options,
    split_names,
)
from tailwise.cli.output import (
    STANDARD,
    Finding,
    check_outputs,
    checkpoint_path,
    command_line,
    coverage_by,
    findings_json,
    note,
    print_coverage_by,
    print_findings,
    print_json,
    remove_checkpoint,
    resumable,
    show_progress,
    write_outputs,
)
from tailwise.cli.picturing import (
    Augment,
    Images,
    ImageSize,
    PathColumn,
    PictureReader,
    SkipBroken,
    SplitColumn,
    picture_settings,
    reader_for,
)
from tailwise.cli.reading import (
    Labelled,
    column_beside,
    file_name,
    hold_out,
    load_label_prior,
    load_labelled,
    load_model,
    load_table,
    split_labelled,
)

if TYPE_CHECKING:
    import pandas as pd

    from tailwise.estimator.regressor import TailRegressor


def fit(
    data: Table,
    target: Targets,
    out: Annotated[Path, typer.Option("--out", "-o", metavar="MODEL", help="Model file to write.")],
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
        typer.Option(metavar="MODEL", help="Model of the same method and columns to train further."),
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
        typer.Option(metavar="RATE", min=1e-12, help="Learning rate; 0.003 by default, 0.001 for pictures."),
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
            metavar="NAME=VALUE", help="Setting of the method, such as regularizer=0.01; can be repeated."
        ),
    ] = None,
    seed: Seed = 0,
    device: Annotated[str, typer.Option(metavar="NAME", help="auto, cpu, cuda or mps.")] = "auto",
    images: Images = None,
    paths: PathColumn = "path",
    image_size: ImageSize = 224,
    augment: Augment = "crop-flip",
    split: SplitColumn = None,
    skip_broken: SkipBroken = False,
    encoding: Encoding = None,
    sign: Sign = None,
    force: Force = False,
    quiet: Quiet = False,
    as_json: Json = False,
    config: Config = None,
) -> None:
    """Train a model on a table, test it and write it to a file.

    Part of the table, or the table given with --test, is not used for training: errors and coverage are
    measured on its rows. After Ctrl-C the same command resumes where it stopped.
    """
    import time

    from tailwise.methods import get_method

    began = time.perf_counter()
    sources = [data, *(s for s in (valid, test) if s is not None)]
    if sources.count(STANDARD) > 1:
        raise ValueError("only one of FILE, --valid and --test can be - (standard input)")
    if time_column is not None and valid is not None:
        raise ValueError("--time and --valid both say which rows are held out: leave one out")
    inputs: list[str | Path] = [*sources, *([start_from] if start_from else [])]
    check_outputs({"--out": out, "--report": report, "--export": onnx}, force=force, inputs=inputs)
    start = None if start_from is None else load_model(start_from)
    if images is not None and onnx is not None:
        raise ValueError("--export is for tables: leave it out, or leave out --images")
    if onnx is not None:
        from tailwise.estimator.onnx import require_onnx
        from tailwise.estimator.onnx_trees import check_exportable

        if conformal_by is not None:
            raise ValueError(
                "an ONNX file cannot contain intervals by a column: leave out --export or --conformal-by"
            )
        require_onnx()
        check_exportable(None if base == "none" else base)
    if images is not None and conformal_by is not None:
        raise ValueError("--conformal-by is for tables: leave it out, or leave out --images")
    if report is not None and len(target) > 1:
        raise ValueError(
            "a report is about one target: leave out --report, and then write a page for each target with "
            f"`tailwise evaluate {out} FILE --target {target[0]} --report PAGE`, on rows not used here"
        )
    settings = {
        "method": get_method(method).name,
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
        "verbose": int(not quiet),
    }
    if sign is not None:
        from tailwise.estimator.archive import key_bytes

        key_bytes(sign)  # a key that cannot be used is an error before anything is trained
    dropped = split_names(drop)
    pictures: PictureReader | None = None
    read: Any = partial(load_labelled, encoding=encoding)
    if images is not None:
        settings |= picture_settings(backbone, image_size, augment)
        pictures = PictureReader(images, paths, skip_broken, (image_size, image_size), split)
        read = pictures.load_labelled
    rows = read(data, target, dropped, quiet, weight, groups=groups, time=time_column)
    by_part = None if pictures is None or pictures.parts is None else pictures.divided(rows)
    held, measured = (
        None if source is None else read(source, target, dropped, quiet, like=rows.inputs)
        for source in (valid, test)
    )
    if by_part is not None:
        rows, held, measured = by_part[0], held or by_part[1], measured or by_part[2]
    elif measured is None:
        rows, measured = hold_out(rows, test_share, seed, quiet)
    if report is not None and measured is None:
        raise ValueError(
            "there are no test rows, so there is nothing to report: raise --test-share or give --test"
        )
    kept, kept_plain = checkpoint_path(out), checkpoint_path(out, ".vanilla")
    outputs: dict[Path, Any] = {}
    with resumable(kept):
        model = _train(settings, rows, held, kept, quiet, start)
        plain = None
        compared = report is not None and baseline
        if compared:
            from tailwise.report.baselines import PLAIN

            trees = "" if images is not None else " and boosted trees with label weights"
            note(f"training a plain network{trees}, to compare with", quiet)
            plain = _train({**settings, **PLAIN}, rows, held, kept_plain, quiet)
        findings = []
        if measured is not None:
            findings = [
                _score(model, name, place, measured, coverage, rows if compared else None, plain)
                for place, name in enumerate(target)
            ]
        outputs[out] = partial(model.save, key=sign)
        if onnx is not None:
            outputs[onnx] = partial(model.export_onnx, coverage=coverage)
        if report is not None:
            outputs[report] = _page(
                model,
                findings[0],
                None if measured is None else measured.inputs,
                source=file_name(data),
                test_source=f"rows of {file_name(test)}" if test else None,
                weight=weight,
                seconds=time.perf_counter() - began,
            )
    write_outputs(outputs, quiet=quiet or as_json, kept=kept)
    for path in (kept_plain, kept):
        remove_checkpoint(path)
    seconds = time.perf_counter() - began
    if as_json:
        shown = {"model": out, "report": report, "seconds": seconds, "emphasis": _emphasis_of(model)}
        print_json({**shown, **findings_json(findings)})
    else:
        print_findings(findings)
    if any(finding.verdict.status == "unknown" for finding in findings):
        note("note: a larger --test-share, or a table given with --test, has more rows to judge by", quiet)


def _train(
    settings: Mapping[str, Any],
    rows: Labelled,
    held: Labelled | None,
    checkpoint: Path,
    quiet: bool,
    start: TailRegressor | None = None,
) -> TailRegressor:
    """Fit a model; resume from `checkpoint` if a stopped command left it."""
    from tailwise.estimator.regressor import TailRegressor

    if checkpoint.exists():
        note(f"resuming from {checkpoint}", quiet)
    show_progress(quiet)
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
        other = replace(score_model(plain, inputs, labels, coverage, target=place), title=PLAIN_TITLE)
    lineup = line_up(model, inputs, labels, coverage, target=place, train=train, other=other)
    return Finding(target, lineup, judge(lineup))


def _page(model: TailRegressor, finding: Finding, inputs: pd.DataFrame | None, **about: Any) -> str:
    from tailwise.estimator.matching import match_inputs
    from tailwise.report.drivers import drivers_of
    from tailwise.report.page import facts_of, model_page

    about = {name: value for name, value in about.items() if value is not None}
    scored = finding.lineup.ours
    facts = facts_of(model, scored, target=finding.target, command=command_line(), **about)
    drivers = None
    if inputs is not None:
        rows = match_inputs(model, inputs, about["source"])
        drivers = drivers_of(model, scored, rows, place=about.get("place", 0), **about.get("dial", {}))
    return model_page(finding.lineup, finding.verdict, facts, inputs, drivers)


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


def _emphasis_of(model: TailRegressor, dial: Mapping[str, Any] | None = None) -> Any:
    """Return the emphasis in use for JSON, by target if there are several; None under a label prior."""
    if dial:
        return dial.get("emphasis")
    chosen = model.emphasis_
    if not isinstance(chosen, list):
        return chosen
    return dict(zip(model.target_names_ or range(len(chosen)), chosen, strict=True))


def predict(
    model: Model,
    data: Table,
    out: Annotated[
        str,
        typer.Option(
            "--out", "-o", metavar="FILE", help="CSV (.csv, .csv.gz), .tsv or .parquet; - is standard output."
        ),
    ],
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
    images: Images = None,
    paths: PathColumn = "path",
    skip_broken: SkipBroken = False,
    escape_formulas: Annotated[
        bool,
        typer.Option(
            "--escape-formulas", help="Put ' before texts that a spreadsheet would run as a formula."
        ),
    ] = False,
    encoding: Encoding = None,
    verify: Verify = None,
    force: Force = False,
    quiet: Quiet = False,
    as_json: Json = False,
    config: Config = None,
) -> None:
    """Predict each row of a table, with intervals.

    The output has the predicted label, its standard deviation, an interval, and how common such labels were
    in training. With several targets, the columns of each target end with its name.
    """
    import pandas as pd

    from tailwise.data.tables.columns import check_column
    from tailwise.data.tables.files import escape_formulas as escaped
    from tailwise.data.tables.files import write_table
    from tailwise.estimator.matching import match_inputs

    inputs: list[str | Path] = [model, data, *([label_prior] if label_prior else [])]
    check_outputs({"--out": out}, force=force, inputs=inputs, table=True)
    if as_json and out == STANDARD:
        raise ValueError("--json and --out - both use standard output: write the predictions to a file")
    fitted = load_model(model, verify)
    pictures = reader_for(fitted, images, paths, skip=skip_broken)
    dial = _dial(fitted, emphasis, label_prior, data, quiet)
    table = load_table(data, quiet, encoding)
    table = table if pictures is None else pictures.with_paths(table, data, quiet)
    for column in split_names(keep):
        check_column(table, column, data)
    frame = fitted.predict_frame(match_inputs(fitted, table, data), coverage, **dial)
    regions = {name: frame[name].value_counts().to_dict() for name in frame if str(name).startswith("region")}
    frame = pd.concat([table[split_names(keep)], frame.set_axis(table.index)], axis=1)
    if frame.columns.duplicated().any():
        clash = str(frame.columns[frame.columns.duplicated()][0])
        raise ValueError(f"the column {clash!r} of --keep has the name of a prediction: rename it")
    write_table(escaped(frame) if escape_formulas else frame, out)
    if as_json:
        counted = {"regions": regions.pop("region")} if "region" in regions else regions
        print_json({"rows": len(frame), "out": out, "emphasis": _emphasis_of(fitted, dial), **counted})
    elif out != STANDARD:
        note(f"wrote {len(frame)} predictions to {out}", quiet)


def evaluate(
    model: Model,
    data: Table,
    target: Annotated[
        list[str] | None,
        typer.Option(
            "--target", "-t", metavar="COLUMN", help="Column of true labels; the model's target by default."
        ),
    ] = None,
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
    images: Images = None,
    paths: PathColumn = "path",
    skip_broken: SkipBroken = False,
    encoding: Encoding = None,
    verify: Verify = None,
    force: Force = False,
    quiet: Quiet = False,
    as_json: Json = False,
    config: Config = None,
) -> None:
    """Measure a model on a table with labels.

    Prints errors and coverage by region, and a verdict. The rows should not have been used in training.
    """
    from tailwise.estimator.matching import match_inputs, match_targets
    from tailwise.report.baselines import line_up
    from tailwise.report.scoring import score_model
    from tailwise.report.verdict import judge

    sources = [source for source in (model, data, against, label_prior) if source is not None]
    check_outputs({"--report": report}, force=force, inputs=sources)
    fitted = load_model(model, verify)
    pictures = reader_for(fitted, images, paths, skip=skip_broken)
    second = None if against is None else load_model(against, verify)
    dial = _dial(fitted, emphasis, label_prior, data, quiet)
    table = load_table(data, quiet, encoding)
    table = table if pictures is None else pictures.with_paths(table, data, quiet)
    try:
        columns = match_targets(fitted, table, target or [], data)
    except ValueError as error:
        raise ValueError(f"{error}{'' if target else ' with --target'}") from None
    if report is not None and len(columns) > 1:
        raise ValueError("a report is about one target: choose it with --target, and write a page for each")
    values = None if by is None else column_beside(table, by, list(columns), data, may_be_empty=True)
    inputs, labels = split_labelled(table, list(columns), data, quiet)[:2]
    findings = []
    rows = match_inputs(fitted, inputs, data)
    for column, place in columns.items():
        truth = labels[column]
        other = None
        if second is not None and against is not None:
            own = match_targets(second, table, [column], str(against))[column]
            other = score_model(second, match_inputs(second, inputs, data), truth, coverage, target=own)
            if second.method == fitted.method:
                other = replace(other, title=f"{other.title} ({against.name})")
        lineup = line_up(fitted, rows, truth, coverage, target=place, other=other, **dial)
        findings.append(Finding(column, lineup, judge(lineup)))
    if report is not None:
        ((_, place),) = columns.items()
        name = file_name(data)
        page = _page(
            fitted,
            findings[0],
            inputs,
            place=place,
            source=name,
            test_source=f"rows of {name}",
            trained_here=False,
            dial=dial,
        )
        write_outputs({report: page}, quiet=quiet or as_json)
    shares = None if values is None else coverage_by(findings, values)
    if as_json:
        shown = {"model": None, "report": report, "emphasis": _emphasis_of(fitted, dial)}
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
        bool, typer.Option("--raw-columns", help="Inputs are columns of numbers and categories.")
    ] = False,
    verify: Verify = None,
    force: Force = False,
    quiet: Quiet = False,
) -> None:
    """Write a model as ONNX, calibration included.

    The outputs are the mean, the standard deviation, quantiles and an interval, at one emphasis or label
    prior.
    """
    path = out or model.with_suffix(".onnx")
    check_outputs({"--out": path}, force=force, inputs=[model, *([label_prior] if label_prior else [])])
    levels = parse_levels(quantiles)
    fitted = load_model(model, verify)
    dial = _dial(fitted, emphasis, label_prior, "", quiet)
    fitted.export_onnx(path, quantiles=levels, coverage=coverage, raw_columns=raw_columns, **dial)
    note(f"wrote {path}", quiet)
