"""Commands about several methods: `demo`, `compare`, `report` and `methods`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tailwise.cli.options import (
    Drop,
    Force,
    Json,
    Plugin,
    Quiet,
    Report,
    Shared,
    Table,
    Target,
    TrainingPictures,
    only_target,
    split_names,
)
from tailwise.cli.output import (
    STANDARD,
    check_outputs,
    check_page_name,
    checkpoint_path,
    command_line,
    note,
    print_comparison,
    print_json,
    remove_checkpoint,
    resumable,
    write_outputs,
)
from tailwise.cli.read import Pictures, Reader, Roles, Rows

if TYPE_CHECKING:
    from tailwise.report.contest import Contest
    from tailwise.report.results import Results

Workers = Annotated[int, typer.Option(metavar="N", min=1, help="Number of processes.")]


@dataclass(frozen=True)
class Runs:
    """How often each method is trained, and by how many processes."""

    seeds: Annotated[int, typer.Option(metavar="N", min=1, help="Number of seeds per method.")] = 3
    epochs: Annotated[int | None, typer.Option(metavar="N", min=1, help="Maximum number of epochs.")] = None
    workers: Workers = 1


@dataclass(frozen=True)
class DemoRuns(Runs):
    """The same with a process more."""

    workers: Workers = 2


def run_contest(contest: Contest, options: Runs, quiet: bool, kept: Path | None = None) -> Results:
    """Train each method as `fit` does, and test it on the rows that `fit` holds out, or on balanced rows.

    Runs that `kept` has are not repeated.
    """
    import tempfile

    from tailwise.report import contest as methods
    from tailwise.report.results import Results

    with tempfile.TemporaryDirectory() as temporary:
        records = methods.run_contest(
            contest,
            range(options.seeds),
            out=Path(temporary, "results.jsonl") if kept is None else kept,
            workers=options.workers,
            report=lambda line: note(line, quiet),
        )
    return Results(records)


def _contest(rows: Rows, methods: Sequence[str], options: Runs, **settings: Any) -> Contest:
    import numpy as np

    from tailwise.report.contest import Contest

    labels = np.asarray(rows.labels, np.float64)
    return Contest(rows.name, rows.X, labels, tuple(methods), options.epochs, **settings)


def _files(results: Results, target: str, *, lines: Path | None, page: Path | None) -> dict[Path, Any]:
    """Return the content of a results file, one JSON object per line, and of the page that ranks methods."""
    from tailwise.report.results import comparison_page

    files: dict[Path, Any] = {}
    if lines is not None:
        files[lines] = "".join(json.dumps(record) + "\n" for record in results.records)
    if page is not None:
        title = f"{target}: {len(results.methods)} methods on {results.data[0]}"
        files[page] = comparison_page(results, title=title, command=command_line())
    return files


def demo(
    out: Annotated[
        Path, typer.Option(metavar="FOLDER", help="Folder for the report, the picture and the results.")
    ] = Path("tailwise-demo"),
    force: Force = False,
    quiet: Quiet = False,
    *,
    runs: DemoRuns,
) -> None:
    """Compare TailRegressor with three other models on a bundled table.

    They are a plain network, LDS + FDS + DER and CatBoost. TailRegressor is shown at the emphasis that it
    chose and at emphasis 1. The table has 4,177 abalones; the number of rings, which is their age, is to be
    predicted. Test rows are balanced over the labels, as with `compare --balanced`.
    """
    if out.exists() and not out.is_dir():
        raise ValueError(f"{out} is a file; name a folder with --out")
    page, picture, lines = (out / name for name in ("report.html", "demo.png", "results.jsonl"))
    check_outputs({path.name: path for path in (page, picture, lines)}, force=force)
    from tailwise.data import load_abalone
    from tailwise.report.results import comparison_picture

    methods = ("plain", "lds-fds-der", "catboost", "tail")
    seeds = f"{runs.seeds} seed{'s' * (runs.seeds > 1)}"
    note(f"Training {', '.join(methods)} on abalone with {seeds} ...", quiet)
    table = load_abalone()
    rows = Rows(table.drop(columns="Rings"), table[["Rings"]], name="abalone")
    contest = _contest(rows, methods, runs, balanced=True)
    results = run_contest(contest, runs, quiet)
    figure = comparison_picture(results, contest.training_bins(0), label="rings (age of an abalone)")
    print_comparison(results)
    drawn: dict[Path, Any] = {picture: lambda part: figure.savefig(part, dpi=110, format="png")}
    write_outputs(_files(results, "Rings", lines=lines, page=page) | drawn, quiet)


def compare(
    data: Table,
    target: Target,
    methods: Annotated[
        str | None,
        typer.Option(
            metavar="NAMES",
            help="Comma-separated: names of `tailwise methods`, plain, catboost, catboost-weighted and tail "
            "(TailRegressor). By default the models of the page of `fit`.",
        ),
    ] = None,
    balanced: Annotated[
        bool,
        typer.Option(
            "--balanced",
            help="Test on rows balanced over the labels, at most 20 of each label bin.",
        ),
    ] = False,
    plugin: Plugin = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", metavar="RESULTS", help="Results file to write, one JSON line per run."),
    ] = None,
    report: Report = None,
    drop: Drop = "",
    *,
    runs: Runs,
    pictures: TrainingPictures,
    shared: Shared,
) -> None:
    """Train several methods with several seeds and rank them.

    Each method is trained as `fit --method NAME --seed N` trains it, and tested on the rows that this command
    holds out, so both give the same figures. After Ctrl-C the same command resumes where it stopped, if --out
    is given.
    """
    check_outputs({"--out": out, "--report": report}, force=shared.force, inputs=[data])
    names = _checked_methods(methods, pictures=pictures.images is not None)
    column, settings = only_target(target), pictures.parameters("auto")
    rows = Reader(shared, Pictures.to_train(pictures)).rows(data, Roles([column], split_names(drop)))
    rows = replace(rows, name="data" if data == STANDARD else Path(data).name.split(".")[0])
    kept = None if out is None else checkpoint_path(out)
    with resumable(kept):
        contest = _contest(rows, names, runs, balanced=balanced, settings=settings)
        results = run_contest(contest, runs, shared.quiet, kept)
        write_outputs(_files(results, column, lines=out, page=report), shared.quiet)
    if kept is not None:
        remove_checkpoint(kept)
    if shared.as_json:
        from tailwise.report.results import comparison_verdict

        print_json({"verdict": comparison_verdict(results), "runs": results.records})
    else:
        print_comparison(results)


def _checked_methods(methods: str | None, *, pictures: bool) -> list[str]:
    """Return the names of methods; a misspelt one is an error before the table is read."""
    from tailwise.report.contest import BOOSTED, DEFAULT, check_name

    if methods is None:
        return [name for name in DEFAULT if not (pictures and name in BOOSTED)]
    names = list(dict.fromkeys(split_names(methods)))
    if pictures and not set(names).isdisjoint(BOOSTED):
        raise ValueError(f"boosted trees take tables, not pictures: leave {' and '.join(BOOSTED)} out")
    if not names:
        raise ValueError("--methods names no method; see `tailwise methods`")
    for name in names:
        check_name(name)
    return names


def report(
    results: Annotated[
        Path, typer.Argument(metavar="RESULTS", help="Results file written by `compare` or `tailwise-bench`.")
    ],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="PAGE", help="HTML page; beside RESULTS by default.")
    ] = None,
    force: Force = False,
    quiet: Quiet = False,
) -> None:
    """Write a page that ranks the methods of a results file."""
    from tailwise.report.results import Results, comparison_page, read_results

    if results.is_dir():
        raise ValueError(f"{results} is a folder: name the results file in it")
    path = out or results.with_suffix(".html")
    check_page_name(path)
    check_outputs({"--out": path}, force=force, inputs=[results])
    try:
        read = Results(read_results(results))
        title = f"{len(read.methods)} methods on {', '.join(read.data)}"
        page = comparison_page(read, title=title, command=command_line())
    except (KeyError, TypeError, UnicodeDecodeError, AttributeError) as error:
        lacking = f": a line lacks {error}" if isinstance(error, KeyError) else ""
        raise ValueError(f"{results} is not a results file of `tailwise compare`{lacking}") from None
    write_outputs({path: page}, quiet)


def methods(as_json: Json = False) -> None:
    """List all methods with their sources."""
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
