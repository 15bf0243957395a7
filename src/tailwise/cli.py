"""The `tailwise` command. Heavy imports wait until a command runs, so that --help is instant.

Exit codes: 0 fine, 1 something the user can mend, 2 wrong usage, 130 stopped by Ctrl-C. Every output is
written beside its place and moved there when it is whole, and nothing is overwritten without --force.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from tailwise._version import __version__
from tailwise.choices import nearest
from tailwise.workflow import (
    STOPPED,
    checkpoint_of,
    command_line,
    inputs_of,
    keep_aside,
    load_model,
    method_options_from,
    note,
    print_comparison,
    print_json,
    read,
    read_labelled,
    run_all,
    same_columns,
    save_picture,
    split_names,
    target_of,
    tell,
    train,
    write_comparison,
    write_model_page,
)

if TYPE_CHECKING:
    pass

DEBUG = "TAILWISE_DEBUG"
"""Environment variable that shows where an error came from, for those who look for its cause."""


class _Commands(TyperGroup):
    """The one place where errors become a line for the user and an exit code."""

    def invoke(self, ctx: Any) -> Any:
        try:
            with warnings.catch_warnings():
                _warn_in_words()
                return super().invoke(ctx)
        except KeyboardInterrupt:
            typer.echo("stopped", err=True)
            raise typer.Exit(STOPPED) from None
        except BrokenPipeError:  # the reader of a pipe, such as `head`, has seen enough
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(0) from None
        except Exception as error:
            if hasattr(error, "exit_code") or isinstance(error, typer.Abort) or os.environ.get(DEBUG):
                raise
            typer.echo(f"error: {_in_words(error)}", err=True)
            raise typer.Exit(1) from None


def _warn_in_words() -> None:
    """Show what tailwise warns of as notes; what others warn of is for developers."""
    if os.environ.get(DEBUG):
        return
    warnings.simplefilter("ignore")
    warnings.filterwarnings("always", category=UserWarning, module=r"tailwise\.")

    def show(message: Warning | str, *_: Any, **__: Any) -> None:
        typer.echo(f"note: {message}", err=True)

    warnings.showwarning = show


def _in_words(error: Exception) -> str:
    """What went wrong and what to do, from an exception."""
    text = " ".join(str(error).split()) or type(error).__name__
    if isinstance(error, OSError) and error.strerror:
        where = f" {error.filename}" if error.filename else ""
        return f"cannot use{where}: {error.strerror}"
    if isinstance(error, MemoryError):
        return "not enough memory: give fewer rows, or columns with fewer different texts"
    if "PytorchStreamWriter" in text or "inline_container" in text:
        return "a file could not be written: is the disk full?"
    if isinstance(error, (ValueError, OSError, RuntimeError, ImportError)):
        return text
    return f"unexpected {type(error).__name__}: {text} (set {DEBUG}=1 to see where, and please report it)"


app = typer.Typer(
    name="tailwise",
    cls=_Commands,
    help="Regression where the interesting labels are rare.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


# -- options that commands share ------------------------------------------------------------------


def _version(show: bool) -> None:
    if show:
        typer.echo(f"tailwise {__version__}")
        raise typer.Exit


def _configured(ctx: typer.Context, path: Path | None) -> Path | None:
    """Take defaults for the command's options from a TOML file; flags given on the line win."""
    if path is None or ctx.resilient_parsing:
        return path
    import tomllib

    try:
        with path.open("rb") as file:
            values = tomllib.load(file)
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"{path} is not valid TOML: {error}") from None
    except UnicodeDecodeError:
        raise ValueError(f"{path} is not text in UTF-8") from None
    known = {p.name for p in ctx.command.params if p.name not in (None, "config", "help")}
    defaults: dict[str, Any] = {}
    for key, value in values.items():
        name = key.replace("-", "_")
        if name not in known:
            raise ValueError(f"{path}: unknown key {key!r}{nearest(name, (k for k in known if k))}")
        if isinstance(value, Mapping):
            value = [f"{k}={v}" for k, v in value.items()]
        elif isinstance(value, list) and name != "option":
            value = ",".join(map(str, value))
        defaults[name] = value
    ctx.default_map = {**(ctx.default_map or {}), **defaults}
    return path


Config = Annotated[
    Path | None,
    typer.Option(
        "--config", is_eager=True, callback=_configured, help="TOML file with values for these options."
    ),
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Say nothing but results and errors.")]
Json = Annotated[bool, typer.Option("--json", help="Print results as JSON.")]
Force = Annotated[bool, typer.Option("--force", help="Overwrite outputs that exist.")]
Table = Annotated[
    str,
    typer.Argument(metavar="FILE", help="CSV (any delimiter, gzip or not) or Parquet; - is standard input."),
]
Model = Annotated[Path, typer.Argument(metavar="MODEL", help="File that `tailwise fit` wrote.")]
Target = Annotated[str, typer.Option("--target", "-t", help="Column to predict.")]
Drop = Annotated[str, typer.Option("--drop", help="Columns to leave out, with commas between.")]
Report = Annotated[Path | None, typer.Option("--report", help="HTML page to write.")]
Coverage = Annotated[
    float, typer.Option(min=0.01, max=0.999, help="Share of labels that intervals should hold.")
]
Seed = Annotated[int, typer.Option(min=0, help="The same seed gives the same numbers.")]


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


# -- commands ------------------------------------------------------------------------------------


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder for the report, the picture and the figures.")] = Path(
        "tailwise-demo"
    ),
    seeds: Annotated[int, typer.Option(min=1, help="How many seeds to train with.")] = 3,
    epochs: Annotated[int, typer.Option(min=1, help="Epochs at most; training stops early.")] = 80,
    workers: Annotated[int, typer.Option(min=1, help="Processes at once.")] = 2,
) -> None:
    """Train VIR and two baselines on the bundled abalone table and write a report."""
    from dataclasses import replace

    from rich.console import Console
    from rich.table import Table

    from tailwise import demo as demonstration
    from tailwise.methods import get_method

    if out.exists() and not out.is_dir():
        raise ValueError(f"{out} is a file; name a folder with --out")
    console = Console()
    names = ", ".join(get_method(name).title for name in demonstration.METHODS)
    console.print(f"Training {names} on abalone, {seeds} seed(s) each ...")
    recipe = replace(demonstration.RECIPE, epochs=epochs)
    result = demonstration.run_demo(seeds=range(seeds), recipe=recipe, workers=workers)
    table = Table("method", "region", "MAE", "GM", "NLL", "AUSE", "90% coverage", box=None)
    for name in result.methods():
        mean, spread = result.mean(name), result.spread(name)
        for place, region in enumerate(mean.index):
            cells = [f"{mean.loc[region, m]:.2f} ±{spread.loc[region, m]:.2f}" for m in demonstration.METRICS]
            table.add_row(get_method(name).title if place == 0 else "", str(region), *cells)
    console.print(table)
    console.print(demonstration.verdict(result), highlight=False)
    try:
        written = demonstration.write_outputs(result, out)
    except OSError as error:
        raise ValueError(
            f"cannot write to {out}: {error.strerror or error}; name another folder with --out"
        ) from None
    for path in written:
        console.print(f"wrote {path}", highlight=False)


@app.command()
def diagnose(
    data: Table,
    target: Target,
    plot: Annotated[
        Path | None, typer.Option(help="Picture of the labels to write (.png, .svg, .pdf).")
    ] = None,
    many: Annotated[int, typer.Option(min=1, help="A bin with more labels is many-shot.")] = 100,
    few: Annotated[int, typer.Option(min=1, help="A bin with fewer labels is few-shot.")] = 20,
    force: Force = False,
    quiet: Quiet = False,
    as_json: Json = False,
    config: Config = None,
) -> None:
    """Say how imbalanced a column is and what to do about it, which may be nothing."""
    from tailwise.diagnosis import diagnose as examine
    from tailwise.table_files import check_output, split_target

    if plot is not None:
        check_output(plot, force=force, inputs=[data])
    table = read(data, quiet)
    if table.shape[1] == 1:  # a file of labels alone can be diagnosed too
        table = table.assign(**{" row": 0})
    _, labels, missing = split_target(table, target, data)
    if missing:
        note(f"note: {missing} rows without a value in {target!r} left out", quiet)
    found = examine(labels.to_numpy(), many=many, few=few)
    if plot is not None:
        save_picture(found.plot(label=target).figure, plot)
        note(f"wrote {plot}", quiet)
    if as_json:
        print_json(found.to_dict())
    else:
        typer.echo(found.summary())


@app.command()
def fit(
    data: Table,
    target: Target,
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
        int | None, typer.Option(min=1, help="Number of label bins; by the labels unless given.")
    ] = None,
    backbone: Annotated[str, typer.Option(help="Network for tables.")] = "auto",
    option: Annotated[
        list[str] | None, typer.Option(help="Part of the method to change, such as regularizer=0.01.")
    ] = None,
    seed: Seed = 0,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, ...")] = "auto",
    force: Force = False,
    quiet: Quiet = False,
    as_json: Json = False,
    config: Config = None,
) -> None:
    """Train a model on a table, measure it on rows kept aside, and write it to one file.

    Stopped with Ctrl-C, the same command goes on where it was.
    """
    import time

    from tailwise.methods import get_method
    from tailwise.report.evidence import score_model
    from tailwise.report.verdict import judge
    from tailwise.table_files import check_output

    began = time.perf_counter()
    sources = [data, *(s for s in (valid, test) if s is not None)]
    if sources.count("-") > 1:
        raise ValueError("only one of FILE, --valid and --test can be - (standard input)")
    for path in (out, report):
        if path is not None:
            check_output(path, force=force, inputs=sources)
    if report is not None and report == out:
        raise ValueError("--out and --report name the same file")
    get_method(method)
    inputs, labels = read_labelled(data, target, drop, quiet)
    held = None if valid is None else same_columns(read_labelled(valid, target, drop, quiet), inputs, valid)
    measured = None if test is None else same_columns(read_labelled(test, target, drop, quiet), inputs, test)
    if measured is None:
        (inputs, labels), measured = keep_aside(inputs, labels, test_share, seed, quiet)
    settings = {
        "method": method,
        "method_options": method_options_from(option or []),
        "backbone": backbone,
        "bins": bins,
        "epochs": epochs or "auto",
        "batch_size": batch_size or "auto",
        "lr": lr,
        "device": device,
        "random_state": seed,
        "verbose": int(not quiet),
    }
    model = train(settings, inputs, labels, held, out, "", quiet)
    plain = None
    if report is not None and baseline and method != "vanilla" and measured is not None:
        note("training vanilla by the same recipe, to compare with", quiet)
        plain = train({**settings, "method": "vanilla", "method_options": None}, inputs, labels, held, out,
                         ".vanilla", quiet)  # fmt: skip
    scored = None if measured is None else score_model(model, *measured, coverage)
    beside = None if measured is None or plain is None else score_model(plain, *measured, coverage)
    verdict = None if scored is None else judge(scored, beside)
    if report is not None and scored is None:
        raise ValueError(
            "no row is left to measure on, so there is nothing to report: raise --test-share or give --test"
        )
    model.save(out, overwrite=force)
    if report is not None and scored is not None:
        where = f"rows of {test}" if test else "kept aside at random, the same share of every label bin"
        seconds = time.perf_counter() - began
        write_model_page(report, model, scored, beside, target, data, where, command_line(), seconds)
    for suffix in ("", ".vanilla"):
        checkpoint_of(out, suffix).unlink(missing_ok=True)
    tell(scored, beside, verdict, {"model": out, "report": report, "seconds": time.perf_counter() - began},
          as_json, quiet)  # fmt: skip


@app.command()
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
    """Predict every row of a table: label, standard deviation, interval, and how common such labels are."""
    import pandas as pd

    from tailwise.table_files import check_column, check_output, write_table

    check_output(out, force=force, inputs=[model, data])
    fitted = load_model(model)
    table = read(data, quiet)
    for column in split_names(keep):
        check_column(table, column, data)
    frame = fitted.predict_frame(inputs_of(fitted, table, data), coverage)
    frame = pd.concat([table[split_names(keep)], frame.set_axis(table.index)], axis=1)
    if frame.columns.duplicated().any():
        clash = str(frame.columns[frame.columns.duplicated()][0])
        raise ValueError(f"a column kept is named {clash!r} like one of the predictions: rename it")
    write_table(frame, out)
    if as_json and out != "-":
        print_json({"rows": len(frame), "out": out, "regions": frame["region"].value_counts().to_dict()})
    elif out != "-":
        note(f"wrote {len(frame)} predictions to {out}", quiet)


@app.command()
def evaluate(
    model: Model,
    data: Table,
    target: Annotated[
        str | None,
        typer.Option("--target", "-t", help="Column of true labels; found if it is the only other one."),
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

    from tailwise.report.evidence import score_model
    from tailwise.report.verdict import judge
    from tailwise.table_files import check_output, split_target

    if report is not None:
        check_output(report, force=force, inputs=[model, data, *([against] if against else [])])
    fitted = load_model(model)
    table = read(data, quiet)
    column = target_of(fitted, table, target, data)
    inputs, labels, missing = split_target(table, column, data)
    if missing:
        note(f"note: {missing} rows without a value in {column!r} left out", quiet)
    scored = score_model(fitted, inputs_of(fitted, inputs, data), labels, coverage)
    other = None
    if against is not None:
        second = load_model(against)
        other = score_model(second, inputs_of(second, inputs, data), labels, coverage)
        if other.title == scored.title:
            other = replace(other, title=f"{other.title} ({against.name})")
    verdict = judge(scored, other)
    if report is not None:
        where = f"rows of {data}"
        write_model_page(report, fitted, scored, other, column, data, where, command_line())
    tell(scored, other, verdict, {"model": None, "report": report, "target": column}, as_json, quiet)


@app.command()
def compare(
    data: Table,
    target: Target,
    methods: Annotated[
        str, typer.Option(help="Names with commas between; see `tailwise methods`.")
    ] = "vanilla,lds,vir",
    seeds: Annotated[int, typer.Option(min=1, help="How many seeds to train each method with.")] = 3,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Results file to write, one JSON line per run.")
    ] = None,
    report: Report = None,
    drop: Drop = "",
    epochs: Annotated[int | None, typer.Option(min=1, help="Epochs at most.")] = None,
    force: Force = False,
    quiet: Quiet = False,
    as_json: Json = False,
    config: Config = None,
) -> None:
    """Train several methods by one recipe with several seeds and rank them, with error bars."""
    from dataclasses import replace

    from tailwise.benchmark.comparison import Results
    from tailwise.benchmark.contenders import Recipe, choose_contenders
    from tailwise.files import write_atomically
    from tailwise.report.page import comparison_verdict
    from tailwise.table_files import check_output

    for path in (out, report):
        if path is not None:
            check_output(path, force=force, inputs=[data])
    if not split_names(methods):
        raise ValueError("--methods names no method; see `tailwise methods`")
    contenders = choose_contenders(",".join(split_names(methods)))
    inputs, labels = read_labelled(data, target, drop, quiet)
    recipe = Recipe(trials=1)
    if epochs is not None:
        recipe = replace(recipe, train=replace(recipe.train, epochs=epochs))
    name = "data" if data == "-" else Path(data).name.split(".")[0]
    kept = None if out is None else checkpoint_of(out, "")
    records = run_all(
        inputs.assign(**{target: labels}), name, target, contenders, range(seeds), recipe, kept, quiet
    )
    results = Results(records)
    if out is not None:
        import json

        lines = "".join(json.dumps(record) + "\n" for record in records)
        write_atomically(out, lambda part: part.write_text(lines, encoding="utf-8"))
    if report is not None:
        write_comparison(report, results, f"{target}: {len(contenders)} methods on {name}")
    if kept is not None:
        kept.unlink(missing_ok=True)
    if as_json:
        print_json({"verdict": comparison_verdict(results), "runs": records})
    else:
        print_comparison(results)
    for path in (out, report):
        if path is not None:
            note(f"wrote {path}", quiet)


@app.command()
def report(
    results: Annotated[Path, typer.Argument(metavar="RESULTS", help="Results file of `compare` or `bench`.")],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="HTML page; beside RESULTS unless given.")
    ] = None,
    force: Force = False,
    quiet: Quiet = False,
) -> None:
    """Write the page that ranks the methods of a results file, with error bars."""
    from tailwise.benchmark.comparison import Results
    from tailwise.benchmark.runs import read_results
    from tailwise.table_files import check_output

    page = out or results.with_suffix(".html")
    check_output(page, force=force, inputs=[results])
    if results.is_dir():
        raise ValueError(f"{results} is a folder: name the results file in it")
    try:
        read = Results(read_results(results))
        write_comparison(page, read, f"{len(read.methods)} methods on {', '.join(read.data)}")
    except (KeyError, TypeError, UnicodeDecodeError, AttributeError) as error:
        raise ValueError(
            f"{results} is not a results file of `tailwise compare` or `tailwise bench` ({error} is wrong "
            "or missing)"
        ) from None
    note(f"wrote {page}", quiet)


@app.command()
def export(
    model: Model,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="ONNX file; beside MODEL unless given.")
    ] = None,
    coverage: Coverage = 0.9,
    force: Force = False,
    quiet: Quiet = False,
) -> None:
    """Write a model as ONNX: mean, std, quantiles and interval, with the calibration inside."""
    from tailwise.table_files import check_output

    path = out or model.with_suffix(".onnx")
    check_output(path, force=force, inputs=[model])
    load_model(model).export_onnx(path, coverage=coverage)
    note(f"wrote {path}", quiet)


@app.command()
def methods(as_json: Json = False) -> None:
    """List every method with what it does and where it comes from."""
    from rich.console import Console

    from tailwise.methods import available_methods, get_method

    if as_json:
        shown = ("name", "title", "uncertainty", "about")
        print_json([{key: getattr(get_method(n), key) for key in shown} for n in available_methods()])
        return
    console = Console()
    for name in available_methods():
        method = get_method(name)
        console.print(f"[bold]{name}[/bold]  ({method.title}; uncertainty: {method.uncertainty})")
        console.print(f"  {method.about}", highlight=False)


@app.command(
    add_help_option=False, context_settings={"allow_extra_args": True, "ignore_unknown_options": True}
)
def bench(ctx: typer.Context) -> None:
    """Compare methods on many data sets; `tailwise bench --help` lists its own commands."""
    from tailwise.benchmark.__main__ import main as run_benchmark

    raise typer.Exit(run_benchmark(list(ctx.args)))


def main() -> None:
    """Entry point of the `tailwise` command."""
    app()
