"""Commands about many methods: `compare`, `report`, `bench` and `methods`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tailwise.cli.options import (
    Config,
    Drop,
    Force,
    Json,
    Quiet,
    Report,
    Table,
    Target,
    only_target,
    split_names,
)
from tailwise.cli.output import print_comparison, print_json
from tailwise.workflow import (
    checkpoint_of,
    command_line,
    note,
    read_labelled,
    resumable,
    run_all,
    write_page,
)


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
    """Train several methods by one recipe with several seeds and rank them, with error bars.

    Stopped with Ctrl-C, the same command goes on where it was, if --out is given.
    """
    import json
    from dataclasses import replace

    from tailwise.benchmark.pages.statistics import Results
    from tailwise.benchmark.run.contenders import Recipe, choose_contenders
    from tailwise.data.tables.files import check_output
    from tailwise.data.writing import Write, write_together
    from tailwise.report.ranking import comparison_page, comparison_verdict

    for path in (out, report):
        if path is not None:
            check_output(path, force=force, inputs=[data])
    if out is not None and out == report:
        raise ValueError("--out and --report name the same file")
    if not split_names(methods):
        raise ValueError("--methods names no method; see `tailwise methods`")
    contenders = choose_contenders(",".join(split_names(methods)))
    column = only_target(target)
    inputs, labels, _ = read_labelled(data, [column], split_names(drop), quiet)
    recipe = Recipe(trials=1)
    if epochs is not None:
        recipe = replace(recipe, train=replace(recipe.train, epochs=epochs))
    name = "data" if data == "-" else Path(data).name.split(".")[0]
    kept = None if out is None else checkpoint_of(out)
    outputs: dict[Path, Write] = {}
    with resumable(kept):
        table = inputs.assign(**{column: labels[column]})
        records = run_all(table, name, column, contenders, range(seeds), recipe, kept, quiet)
        results = Results(records)
        if out is not None:
            lines = "".join(json.dumps(record) + "\n" for record in records)
            outputs[out] = lambda part: part.write_text(lines, encoding="utf-8")
        if report is not None:
            title = f"{column}: {len(contenders)} methods on {name}"
            page = comparison_page(results, title=title, command=command_line())
            outputs[report] = lambda part: part.write_text(page, encoding="utf-8")
    write_together(outputs)
    if kept is not None:
        kept.unlink(missing_ok=True)
    if as_json:
        print_json({"verdict": comparison_verdict(results), "runs": records})
    else:
        print_comparison(results)
    for path in outputs:
        note(f"wrote {path}", quiet)


def report(
    results: Annotated[Path, typer.Argument(metavar="RESULTS", help="Results file of `compare` or `bench`.")],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="HTML page; beside RESULTS unless given.")
    ] = None,
    force: Force = False,
    quiet: Quiet = False,
) -> None:
    """Write the page that ranks the methods of a results file, with error bars."""
    from tailwise.benchmark.pages.statistics import Results
    from tailwise.benchmark.run.results import read_results
    from tailwise.data.tables.files import check_output
    from tailwise.report.ranking import comparison_page

    if results.is_dir():
        raise ValueError(f"{results} is a folder: name the results file in it")
    path = out or results.with_suffix(".html")
    check_output(path, force=force, inputs=[results])
    try:
        read = Results(read_results(results))
        title = f"{len(read.methods)} methods on {', '.join(read.data)}"
        page = comparison_page(read, title=title, command=command_line())
    except (KeyError, TypeError, UnicodeDecodeError, AttributeError) as error:
        lacking = f": a line lacks {error}" if isinstance(error, KeyError) else ""
        raise ValueError(
            f"{results} is not a results file of `tailwise compare` or `tailwise bench`{lacking}"
        ) from None
    write_page(path, page)
    note(f"wrote {path}", quiet)


def bench(ctx: typer.Context) -> None:
    """Compare methods on many data sets; `tailwise bench --help` lists its own commands."""
    from tailwise.benchmark.__main__ import main as run_benchmark

    raise typer.Exit(run_benchmark(list(ctx.args)))


def methods(as_json: Json = False) -> None:
    """List every method with what it does and where it comes from."""
    from rich.console import Console
    from rich.padding import Padding
    from rich.text import Text

    from tailwise.methods import available_methods, get_method

    if as_json:
        shown = ("name", "title", "uncertainty", "about")
        print_json([{key: getattr(get_method(n), key) for key in shown} for n in available_methods()])
        return
    console = Console()
    for name in available_methods():
        method = get_method(name)
        console.print(f"[bold]{name}[/bold]  ({method.title}; uncertainty: {method.uncertainty})")
        console.print(Padding(Text(method.about), (0, 0, 0, 2)))
