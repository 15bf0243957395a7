"""The commands that give answers for rows: `predict` and `explain`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
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
    reader = read.Reader(shared, read.Pictures.of_model(fitted, pictures))
    setting = read.read_dial(fitted, dial, data, shared.quiet)
    parts = read.open_stream(data, stream, {"--images": pictures.images, "--encoding": shared.encoding})
    predicted = _Predicted(fitted, options.split_names(keep), {"coverage": coverage, "rare": rare, **setting})
    frames = iter([predicted.whole(reader.table(data), data)]) if parts is None else predicted.parts(parts)
    if rare is not None:
        output.note(fitted.explain_intervals(coverage, rare=rare, **setting), shared.quiet)
    count = write_chunks(frames, out)
    if shared.as_json:
        regions = predicted.regions
        counted = {"regions": regions["region"]} if "region" in regions else regions
        output.print_json({"rows": count, "out": out, "emphasis": emphasis_of(fitted, setting), **counted})
    elif out != output.STANDARD:
        output.note(f"wrote {count} predictions to {out}", shared.quiet)


def _check_standard_output(out: str, shared: options.Shared) -> None:
    if shared.as_json and out == output.STANDARD:
        raise ValueError("--json and --out - both use standard output: name a file to write to")


@dataclass(frozen=True)
class _Predicted:
    """Predictions of tables, beside the columns to keep; `regions` counts the predicted regions."""

    model: TailRegressor
    keep: Sequence[str]
    options: Mapping[str, Any]
    regions: dict[str, Counter[str]] = field(default_factory=dict)

    def frame(self, table: pd.DataFrame, source: str) -> pd.DataFrame:
        """Return the predictions of a table."""
        import pandas as pd

        from tailwise.model.inputs import match_inputs
        from tailwise.tables.columns import check_column

        for column in self.keep:
            check_column(table, column, source)
        frame = self.model.predict_frame(match_inputs(self.model.model_, table, source), **self.options)
        if clash := next((name for name in self.keep if name in frame), None):
            raise ValueError(f"the column {clash!r} of --keep has the name of a prediction: rename it")
        for name in map(str, frame):
            if name.startswith("region"):
                self.regions.setdefault(name, Counter()).update(frame[name].astype(str))
        return pd.concat([table[list(self.keep)], frame.set_axis(table.index)], axis=1)

    def whole(self, table: pd.DataFrame, source: str) -> pd.DataFrame:
        """Return the predictions of a file that was read at once; notes name its lines."""
        import pandas as pd

        return self.frame(table.set_axis(pd.RangeIndex(2, len(table) + 2, name="line")), source)

    def parts(self, stream: ParquetRows) -> Iterator[pd.DataFrame]:
        """Yield the predictions of each chunk of a stream."""
        import pandas as pd

        from tailwise.model.inputs import match_inputs
        from tailwise.streams.sources import SOURCE
        from tailwise.tables.columns import check_column

        empty = pd.DataFrame(columns=list(stream.columns))
        for column in self.keep:
            check_column(empty, column, stream.name)
        needed = list(match_inputs(self.model.model_, empty, stream.name).columns)
        for chunk in stream.chunks(list(dict.fromkeys([*needed, *self.keep]))):
            yield self.frame(chunk, str(chunk.attrs[SOURCE]))


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
