"""Commands about a model in use: `export`, `recalibrate`, `serve` and `card`."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from typer import Option

from tailwise.cli import options, output, read


def export(
    model: options.Model,
    out: Annotated[
        Path | None, Option("--out", "-o", metavar="FILE", help="ONNX file; beside MODEL by default.")
    ] = None,
    coverage: options.Coverage = 0.9,
    rare: options.Rare = None,
    raw_columns: Annotated[
        bool, Option("--raw-columns", help="Inputs are the columns of the table.")
    ] = False,
    force: options.Force = False,
    quiet: options.Quiet = False,
    *,
    dial: options.DialOptions,
    trust: options.Trust,
) -> None:
    """Write a model as ONNX, calibration included.

    The outputs are the prediction, its standard deviation, the quantiles 0.05, 0.5 and 0.95 and an interval,
    at one emphasis or label prior.
    """
    path = out or model.with_suffix(".onnx")
    output.check_outputs({"--out": path}, force=force, inputs=[model, dial.label_prior])
    fitted = read.load_model(model, trust.verify)
    if fitted.model_.inputs.groups.names:
        raise ValueError(
            f"{model} has intervals by a column, which ONNX cannot contain: fit it without --conformal-by"
        )
    setting: dict[str, Any] = {"coverage": coverage, "rare": rare, **read.read_dial(fitted, dial, "", quiet)}
    fitted.export_onnx(path, quantiles=[0.05, 0.5, 0.95], raw_columns=raw_columns, **setting)
    output.note(f"wrote {path}", quiet)


def recalibrate(
    model: options.Model,
    data: options.Table,
    out: options.ModelOut,
    target: options.TrueLabels = None,
    sign: options.Sign = None,
    *,
    trust: options.Trust,
    pictures: options.PictureOptions,
    shared: options.Shared,
) -> None:
    """Fit the uncertainty of a model anew on new rows, without training.

    Networks, base and emphasis stay; the intervals then hold for rows like these. The rows should not have
    been used in training.
    """
    from tailwise.model.inputs import match_inputs, match_targets

    read.check_key(sign, [model, data])  # before anything is fitted
    output.check_outputs({"--out": out}, force=shared.force, inputs=[model, data, sign])
    fitted = read.load_model(model, trust.verify)
    table = read.Reader(shared, read.Pictures.of_model(fitted, pictures)).table(data)
    columns = match_targets(fitted.model_, table, target or [], data)
    if len(columns) != fitted.n_targets_:
        raise ValueError(f"the model has {fitted.n_targets_} targets: give a column of labels for each")
    roles = read.Roles(sorted(columns, key=lambda column: columns[column]))
    rows = read.split_labelled(table, roles, data, shared.quiet)
    fitted.recalibrate(match_inputs(fitted.model_, rows.X, data), rows.labels)
    output.write_outputs({out: partial(fitted.save, key=sign)}, quiet=shared.quiet or shared.as_json)
    if shared.as_json:
        output.print_json({"model": out, "rows": len(rows)})


def serve(
    model: options.Model,
    host: Annotated[
        str, Option(metavar="ADDRESS", help="Address to listen on; 0.0.0.0 is all of them.")
    ] = "127.0.0.1",
    port: Annotated[int, Option(metavar="N", min=0, max=65535, help="Port; 0 takes a free one.")] = 8000,
    max_rows: Annotated[int, Option(metavar="N", min=1, help="Most rows of one request.")] = 1000,
    max_bytes: Annotated[int, Option(metavar="N", min=1, help="Most bytes of one request.")] = 4 << 20,
    max_waiting: Annotated[
        int, Option(metavar="N", min=1, help="Most requests that wait; others get status 503.")
    ] = 64,
    quiet: options.Quiet = False,
    *,
    trust: options.Trust,
) -> None:
    """Answer requests for predictions over HTTP.

    POST rows as JSON to /predict; /docs describes the columns. After Ctrl-C or SIGTERM, accepted requests are
    still answered.
    """
    try:
        from tailwise.serving.web import Limits, Service, listen, server
    except ModuleNotFoundError as error:
        raise ImportError(f"{error.name} is not installed: pip install 'tailwise[serve]'") from None

    fitted = read.load_model(model, trust.verify)
    limits = Limits(max_rows=max_rows, max_body=max_bytes, max_waiting=max_waiting)
    with listen(host, port) as sock:
        service = Service(fitted, title=model.name, limits=limits)
        shown = f"[{host}]" if ":" in host else host
        output.note(f"serving {model} on http://{shown}:{sock.getsockname()[1]} (Ctrl-C stops it)", quiet)
        try:
            server(service).run(sockets=[sock])
        except KeyboardInterrupt:  # the server repeats the signal when it has shut down
            output.note(f"stopped after {service.answers} answers", quiet)


def card(
    model: options.Model,
    out: Annotated[Path, Option("--out", "-o", metavar="FILE", help="Markdown file to write.")],
    report: Annotated[
        Path | None, Option(metavar="FILE", help="What `tailwise evaluate --json` printed.")
    ] = None,
    force: options.Force = False,
    quiet: options.Quiet = False,
    *,
    trust: options.Trust,
) -> None:
    """Write a model card: training, columns, errors and intervals in Markdown.

    The figures come from held-out rows in the model file and, with --report, from a test.
    """
    from tailwise.serving.model_card import model_card

    output.check_outputs({"--out": out}, force=force, inputs=[model, report])
    fitted = read.load_model(model, trust.verify)
    try:
        test = None if report is None else json.loads(report.read_text(encoding="utf-8"))
        text = model_card(fitted, name=model.name, test=test)
    except (AttributeError, KeyError, TypeError, ValueError):
        raise ValueError(f"{report} is not the output of `tailwise evaluate --json`") from None
    output.write_outputs({out: text}, quiet=quiet)
