"""Commands about a fitted model: `predict`, `explain`, `export`, `recalibrate`, `serve` and `card`."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Option

from tailwise.cli import options, output, read
from tailwise.cli.evaluate import emphasis_of

if TYPE_CHECKING:
    import pandas as pd

    from tailwise.estimator import TailRegressor
    from tailwise.explanations import Attributions
    from tailwise.streams.sources import ParquetRows


def predict(
    model: options.Model,
    data: options.Table,
    out: options.TableOut,
    coverage: options.Coverage = 0.9,
    rare: options.Rare = None,
    keep: Annotated[
        str,
        Option(
            metavar="COLUMNS",
            help="Columns of FILE to copy to the output. Comma-separated; quote names that contain a comma.",
        ),
    ] = "",
    stream: options.Stream = False,
    *,
    dial: options.DialOptions,
    trust: options.Trust,
    pictures: options.PictureOptions,
    shared: options.Shared,
) -> None:
    """Predict each row of a table, with intervals.

    The output has the predicted label, its standard deviation, an interval, and how common such labels were
    in training. With several targets, the columns of each target end with its name.
    """
    from tailwise.tables.read import write_chunks

    output.check_outputs(
        {"--out": out}, force=shared.force, inputs=[model, data, dial.label_prior], table=True
    )
    _check_standard_output(out, shared)
    fitted = read.load_model(model, trust.verify)
    reader = read.Reader.of_model(fitted, shared, pictures)
    setting = read.read_dial(fitted, dial, data, shared.quiet)
    parts, kept = reader.stream(data, stream), options.split_names(keep)
    tables = [_whole(reader, data)] if parts is None else _chunks(parts, fitted, kept)
    regions: dict[str, Counter[str]] = {}

    def frames() -> Iterator[pd.DataFrame]:
        for table, source in tables:
            frame = _predicted(fitted, table, source, kept, coverage=coverage, rare=rare, **setting)
            for name in frame.columns[len(kept) :]:
                if str(name).startswith("region"):
                    regions.setdefault(str(name), Counter()).update(frame[name].astype(str))
            yield frame

    if rare is not None:
        output.note(fitted.explain_intervals(coverage, rare=rare, **setting), shared.quiet)
    count = write_chunks(frames(), out)
    if shared.as_json:
        counted = {"regions": regions["region"]} if "region" in regions else regions
        output.print_json({"rows": count, "out": out, "emphasis": emphasis_of(fitted, setting), **counted})
    elif out != output.STANDARD:
        output.note(f"wrote {count} predictions to {out}", shared.quiet)


def _check_standard_output(out: str, shared: options.Shared) -> None:
    if shared.as_json and out == output.STANDARD:
        raise ValueError("--json and --out - both use standard output: name a file to write to")


def _whole(reader: read.Reader, source: str) -> tuple[pd.DataFrame, str]:
    """Return a table that is read at once, with its lines as the index, which notes name."""
    import pandas as pd

    table = reader.table(source)
    return table.set_axis(pd.RangeIndex(2, len(table) + 2, name="line")), source


def _chunks(
    stream: ParquetRows, model: TailRegressor, keep: Sequence[str]
) -> Iterator[tuple[pd.DataFrame, str]]:
    """Yield the chunks of a stream, each with the name of its file."""
    import pandas as pd

    from tailwise.model.inputs import match_inputs
    from tailwise.streams.sources import SOURCE
    from tailwise.tables.columns import check_column

    empty = pd.DataFrame(columns=list(stream.columns))
    for column in keep:
        check_column(empty, column, stream.name)
    needed = match_inputs(model.model_, empty, stream.name).columns
    for chunk in stream.chunks(list(dict.fromkeys([*needed, *keep]))):
        yield chunk, str(chunk.attrs[SOURCE])


def _predicted(
    model: TailRegressor, table: pd.DataFrame, source: str, keep: Sequence[str], **settings: Any
) -> pd.DataFrame:
    """Return the columns to keep and the predictions of a table."""
    import pandas as pd

    from tailwise.model.inputs import match_inputs
    from tailwise.tables.columns import check_column

    for column in keep:
        check_column(table, column, source)
    frame = model.predict_frame(match_inputs(model.model_, table, source), **settings)
    if clash := next((name for name in keep if name in frame), None):
        raise ValueError(f"the column {clash!r} of --keep has the name of a prediction: rename it")
    return pd.concat([table[list(keep)], frame.set_axis(table.index)], axis=1)


def explain(
    model: options.Model,
    data: options.Table,
    out: options.TableOut,
    row: Annotated[
        list[int] | None,
        Option(metavar="N", min=0, help="Row of FILE, the first is 0; can be repeated. All rows by default."),
    ] = None,
    of: Annotated[
        str, Option(metavar="NAME", help="What to explain: prediction, std, or width of the interval.")
    ] = "prediction",
    target: Annotated[
        str | None, Option("--target", "-t", metavar="NAME", help="Target of the model, if it has several.")
    ] = None,
    background: Annotated[
        str | None, Option(metavar="FILE", help="Rows to compare with; those of the table by default.")
    ] = None,
    background_rows: Annotated[
        int, Option(metavar="N", min=1, help="Most rows to compare with, chosen at random.")
    ] = 100,
    *,
    trust: options.Trust,
    shared: options.Shared,
) -> None:
    """Say what each column adds to the prediction of each row.

    The output has a line for each row and column, the largest reason first: its Shapley value, in units of
    the label. The values of a row and the base value sum to its prediction.
    """
    from tailwise.explanations import shapley
    from tailwise.model.inputs import match_inputs
    from tailwise.tables.read import write_table
    from tailwise.training.loop import visible

    output.check_outputs({"--out": out}, force=shared.force, inputs=[model, data, background], table=True)
    _check_standard_output(out, shared)
    if background == output.STANDARD == data:
        raise ValueError("only one of FILE and --background can be - (standard input)")
    fitted, reader = read.load_model(model, trust.verify), read.Reader(shared)
    table = compared = match_inputs(fitted.model_, reader.table(data), data)
    if background is not None:
        compared = match_inputs(fitted.model_, reader.table(background), background)
    elif len(table) < 2:
        raise ValueError(
            f"{data} has only one row, so there is nothing to compare it with: give --background"
        )
    wanted = row or list(range(len(table)))
    if max(wanted) >= len(table):
        raise ValueError(f"{data} has no row {max(wanted)}: its last is row {len(table) - 1}")
    chosen: Any = of  # the function checks it, and names the nearest
    with nullcontext() if shared.quiet else visible():
        attributions = shapley(
            fitted, table.iloc[wanted], compared, of=chosen, background_rows=background_rows, target=target
        )
    write_table(_reasons_table(attributions, table, wanted, of), out)
    if shared.as_json:
        output.print_json({"rows": len(wanted), "out": out, "of": of, "base": attributions.base})
    elif out != output.STANDARD:
        output.note(
            f"wrote the reasons of {len(wanted)} row{'s' * (len(wanted) != 1)} to {out}", shared.quiet
        )


def _reasons_table(
    attributions: Attributions, table: pd.DataFrame, rows: Sequence[int], of: str
) -> pd.DataFrame:
    """Return a line for each row and column, the largest value of each row first."""
    import numpy as np
    import pandas as pd

    values, names = (attributions.values.to_numpy(), attributions.values.columns.to_numpy(object))
    order = np.argsort(-np.abs(values), axis=1, kind="stable")
    cells = table.iloc[list(rows)][list(names)].astype(object)
    shown = cells.where(cells.notna(), "").astype(str).to_numpy()

    def ordered(figures: Any) -> Any:
        return np.take_along_axis(figures, order, axis=1).ravel()

    columns = {
        "row": np.repeat(rows, len(names)),
        of: np.repeat(attributions.explained, len(names)),
        "base": attributions.base,
        "column": names[order].ravel(),
        "cell": ordered(shown),
        "attribution": ordered(values),
        "standard_error": ordered(attributions.error.to_numpy()),
    }
    return pd.DataFrame(columns)


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

    output.check_outputs({"--out": out}, force=shared.force, inputs=[model, data, sign])
    read.check_key(sign)
    fitted = read.load_model(model, trust.verify)
    table = read.Reader.of_model(fitted, shared, pictures).table(data)
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
