"""The `tailwise` command. Heavy imports wait until a command runs, so that --help is instant."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tailwise._version import __version__

app = typer.Typer(
    name="tailwise",
    help="Regression where the interesting labels are rare.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def _version(show: bool) -> None:
    if show:
        typer.echo(f"tailwise {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


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
        _fail(f"{out} is a file; name a folder with --out")
    console = Console()
    names = ", ".join(get_method(name).title for name in demonstration.METHODS)
    console.print(f"Training {names} on abalone, {seeds} seed(s) each ...")
    recipe = replace(demonstration.RECIPE, epochs=epochs)
    result = demonstration.run_demo(seeds=range(seeds), recipe=recipe, workers=workers)
    table = Table("method", "region", "MAE", "GM", "NLL", "AUSE", "90% coverage", box=None)
    for name in result.methods():
        mean, spread = result.mean(name), result.spread(name)
        for place, region in enumerate(mean.index):
            cells = [
                f"{mean.loc[region, m]:.3f} ± {spread.loc[region, m]:.3f}" for m in demonstration.METRICS
            ]
            table.add_row(get_method(name).title if place == 0 else "", str(region), *cells)
    console.print(table)
    console.print(demonstration.verdict(result), highlight=False)
    try:
        written = demonstration.write_outputs(result, out)
    except OSError as error:
        _fail(f"cannot write to {out}: {error.strerror or error}; name another folder with --out")
    for path in written:
        console.print(f"wrote {path}", highlight=False)


@app.command()
def methods() -> None:
    """List every method with what it does and where it comes from."""
    from rich.console import Console

    from tailwise.methods import available_methods, get_method

    console = Console()
    for name in available_methods():
        method = get_method(name)
        console.print(f"[bold]{name}[/bold]  ({method.title}; uncertainty: {method.uncertainty})")
        console.print(f"  {method.about}", highlight=False)


def _fail(message: str) -> None:
    typer.echo(f"error: {message}", err=True)
    raise typer.Exit(1)


def main() -> None:
    """Entry point of the `tailwise` command."""
    app()
