"""Commands about one model: `fit`, `predict`, `evaluate` and `export`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tailwise.cli.options import (
    Config,
    Coverage,
    Drop,
    Force,
    Json,
    Model,
    Quiet,
    Report,
    Seed,
    Table,
    Targets,
    bins_from,
    split_names,
)
from tailwise.cli.output import finding_of, print_json, tell
from tailwise.workflow import (
    check_folder,
    checkpoint_of,
    inputs_of,
    keep_aside,
    load_model,
    method_options_from,
    model_page_of,
    name_of,
    note,
    read,
    read_labelled,
    resumable,
    split_labelled,
    targets_of,
    train,
    write_page,
)


def fit(
    data: Table,
    target: Targets,
    out: Annotated[Path, typer.Option("--out", "-o", help="Model file to write.")],
    method: Annotated[str, typer.Option(help="See `tailwise methods`.")] = "vir",
    report: Report = None,
    valid: Annotated[
        str | None, typer.Option(help="Table to stop and calibrate by, in place of a part of FILE.")
    ] = None,
    test: Annotated[str | None, typer.Option(help="Table to measure on, in place of a part of FILE.")] = None,
    test_share: Annotated[
        float, typer.Option(min=0.0, max=0.9, help="Share of FILE kept aside to measure on; 0 trains on all.")
    ] = 0.2,
    drop: Drop = "",
    weight: Annotated[
        str | None, typer.Option(help="Column that says how much each row counts in training; no input.")
    ] = None,
    baseline: Annotated[
        bool, typer.Option(help="Train plain regression too, for the report to compare with.")
    ] = True,
    coverage: Coverage = 0.9,
    epochs: Annotated[
        int | None, typer.Option(min=1, help="Epochs at most; by the data unless given.")
    ] = None,
    batch_size: Annotated[
        int | None, typer.Option(min=1, help="Rows at a time; by the data unless given.")
    ] = None,
    lr: Annotated[float, typer.Option(min=1e-12, help="Learning rate.")] = 1e-3,
    bins: Annotated[
        str | None,
        typer.Option(help="Number of label bins, or edges such as 0,1,10,100; by the labels unless given."),
    ] = None,
    backbone: Annotated[str, typer.Option(help="Network for tables.")] = "auto",
    option: Annotated[
        list[str] | None, typer.Option(help="Part of the method to change, such as regularizer=0.01.")
    ] = None,
    seed: Seed = 0,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or mps.")] = "auto",
    force: Force = False,
    quiet: Quiet = False,
    as_json: Json = False,
    config: Config = None,
) -> None:
    """Train a model on a table, measure it on rows kept aside, and write it to one file.

    Stopped with Ctrl-C, the same command goes on where it was.
    """
    import time

    from tailwise.data.tables.files import check_output
    from tailwise.data.writing import Write, write_together
    from tailwise.methods import get_method
    from tailwise.report.scoring import score_model

    began = time.perf_counter()
    sources = [data, *(s for s in (valid, test) if s is not None)]
    if sources.count("-") > 1:
        raise ValueError("only one of FILE, --valid and --test can be - (standard input)")
    for path in (out, report):
        if path is not None:
            check_output(path, force=force, inputs=sources)
            check_folder(path)
    if report is not None and report == out:
        raise ValueError("--out and --report name the same file")
    if report is not None and len(target) > 1:
        raise ValueError(
            "a report is about one target: leave out --report here, and write a page for each target with "
            f"`tailwise evaluate {out} FILE --target {target[0]} --report PAGE` on rows kept for that"
        )
    get_method(method)
    label_bins = bins_from(bins)
    columns = split_names(drop)
    labelled = read_labelled(data, target, columns, quiet, weight)
    held, measured = (
        None if name is None else read_labelled(name, target, columns, quiet, like=labelled.inputs)
        for name in (valid, test)
    )
    if measured is None:
        labelled, measured = keep_aside(labelled, test_share, seed, quiet)
    if report is not None and measured is None:
        raise ValueError(
            "no row is left to measure on, so there is nothing to report: raise --test-share or give --test"
        )
    settings = {
        "method": method,
        "method_options": method_options_from(option or []),
        "backbone": backbone,
        "bins": label_bins,
        "epochs": epochs or "auto",
        "batch_size": batch_size or "auto",
        "lr": lr,
        "device": device,
        "random_state": seed,
        "verbose": int(not quiet),
    }
    kept, kept_plain = checkpoint_of(out), checkpoint_of(out, ".vanilla")
    findings, page = [], ""
    with resumable(kept):
        model = train(settings, labelled, held, kept, quiet)
        plain = None
        if report is not None and baseline and method != "vanilla":
            note("training vanilla by the same recipe, to compare with", quiet)
            plain_settings = {**settings, "method": "vanilla", "method_options": None}
            plain = train(plain_settings, labelled, held, kept_plain, quiet)
        if measured is not None:
            for place, name in enumerate(target):
                rows = (measured.inputs, measured.labels[name], coverage)
                beside = None if plain is None else score_model(plain, *rows, target=place)
                findings.append(finding_of(name, score_model(model, *rows, target=place), beside))
        if report is not None:
            where = (
                f"rows of {name_of(test)}"
                if test
                else "kept aside at random, rare and common labels in the same share"
            )
            first = findings[0]
            page = model_page_of(
                model, first.scored, first.verdict, first.baseline, target=target[0], place=0,
                source=data, test_source=where, weight=weight, seconds=time.perf_counter() - began,
            )  # fmt: skip
    outputs: dict[Path, Write] = {out: model.save}
    if report is not None:
        outputs[report] = lambda part: part.write_text(page, encoding="utf-8")
    write_together(outputs)
    for path in (kept, kept_plain):
        path.unlink(missing_ok=True)
    facts = {"model": out, "report": report, "seconds": time.perf_counter() - began}
    tell(findings, facts, as_json=as_json, quiet=quiet)


def predict(
    model: Model,
    data: Table,
    out: Annotated[
        str, typer.Option("--out", "-o", help="CSV (.csv, .csv.gz), .tsv or .parquet; - is standard output.")
    ],
    coverage: Coverage = 0.9,
    keep: Annotated[
        str, typer.Option(help="Columns of FILE to copy beside the predictions, such as an id.")
    ] = "",
    force: Force = False,
    quiet: Quiet = False,
    as_json: Json = False,
    config: Config = None,
) -> None:
    """Predict every row of a table: label, standard deviation, interval, and how common such labels are.

    With several targets the columns of each end in its name.
    """
    import pandas as pd

    from tailwise.data.tables.columns import check_column
    from tailwise.data.tables.files import check_output, write_table

    check_output(out, force=force, inputs=[model, data], table=True)
    if as_json and out == "-":
        raise ValueError("--json and --out - both ask for standard output: write the predictions to a file")
    fitted = load_model(model)
    table = read(data, quiet)
    for column in split_names(keep):
        check_column(table, column, data)
    frame = fitted.predict_frame(inputs_of(fitted, table, data), coverage)
    regions = {name: frame[name].value_counts().to_dict() for name in frame if str(name).startswith("region")}
    frame = pd.concat([table[split_names(keep)], frame.set_axis(table.index)], axis=1)
    if frame.columns.duplicated().any():
        clash = str(frame.columns[frame.columns.duplicated()][0])
        raise ValueError(f"a column kept is named {clash!r} like one of the predictions: rename it")
    write_table(frame, out)
    if as_json:
        told = {"regions": regions.pop("region")} if "region" in regions else regions
        print_json({"rows": len(frame), "out": out, **told})
    elif out != "-":
        note(f"wrote {len(frame)} predictions to {out}", quiet)


def evaluate(
    model: Model,
    data: Table,
    target: Annotated[
        list[str] | None,
        typer.Option("--target", "-t", help="Column of true labels; found if the model knows its name."),
    ] = None,
    report: Report = None,
    against: Annotated[Path | None, typer.Option(help="Another model to compare with, row by row.")] = None,
    coverage: Coverage = 0.9,
    force: Force = False,
    quiet: Quiet = False,
    as_json: Json = False,
    config: Config = None,
) -> None:
    """Measure a model on a table with labels that it has not seen: by region, with a verdict in words."""
    from dataclasses import replace

    from tailwise.data.tables.files import check_output
    from tailwise.report.scoring import score_model

    if report is not None:
        check_output(report, force=force, inputs=[model, data, *([against] if against else [])])
    fitted = load_model(model)
    second = None if against is None else load_model(against)
    table = read(data, quiet)
    columns = targets_of(fitted, table, target or [], data)
    if report is not None and len(columns) > 1:
        raise ValueError("a report is about one target: name it with --target, and write a page for each")
    inputs, labels, _ = split_labelled(table, list(columns), data, quiet)
    findings = []
    for column, place in columns.items():
        truth = labels[column]
        scored = score_model(fitted, inputs_of(fitted, inputs, data), truth, coverage, target=place)
        other = None
        if second is not None and against is not None:
            own = targets_of(second, table, [column], str(against))[column]
            other = score_model(second, inputs_of(second, inputs, data), truth, coverage, target=own)
            # Both are told by the same regions: those of the labels that the first was trained on.
            other = replace(other, bins=scored.bins, many=scored.many, few=scored.few)
            if other.title == scored.title:
                other = replace(other, title=f"{other.title} ({against.name})")
        findings.append(finding_of(column, scored, other))
    if report is not None:
        (column, place), (found,) = next(iter(columns.items())), findings
        page = model_page_of(
            fitted, found.scored, found.verdict, found.baseline, target=column, place=place, source=data,
            test_source=f"rows of {name_of(data)}", trained_here=False,
        )  # fmt: skip
        write_page(report, page)
    tell(findings, {"model": None, "report": report}, as_json=as_json, quiet=quiet)


def export(
    model: Model,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="ONNX file; beside MODEL unless given.")
    ] = None,
    coverage: Coverage = 0.9,
    quantiles: Annotated[
        str, typer.Option(help="Levels with commas between; '' for none, as models of several networks need.")
    ] = "0.05,0.5,0.95",
    force: Force = False,
    quiet: Quiet = False,
) -> None:
    """Write a model as ONNX: mean, std, quantiles and interval, with the calibration inside."""
    from tailwise.data.tables.files import check_output

    path = out or model.with_suffix(".onnx")
    check_output(path, force=force, inputs=[model])
    try:
        levels = [float(level) for level in split_names(quantiles)]
    except ValueError:
        raise ValueError(f"--quantiles takes levels between 0 and 1, not {quantiles!r}") from None
    load_model(model).export_onnx(path, quantiles=levels, coverage=coverage)
    note(f"wrote {path}", quiet)
