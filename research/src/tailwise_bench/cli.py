"""The command `tailwise-bench`: run a suite, and write its page.

Exit codes: 0 when everything is done, 1 when a run failed or the input is wrong, 3 when the time is up first.
"""

from __future__ import annotations

import math
import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from tailwise.methods import load_plugin
from tailwise.report.results import read_results
from tailwise_bench.choose import choose_contenders, split_methods
from tailwise_bench.contenders import Contender
from tailwise_bench.estimators import choose_estimators
from tailwise_bench.pages import write_page
from tailwise_bench.runs import run_suite, take_times
from tailwise_bench.statistics import Results
from tailwise_bench.suites import BUNDLED, Suite, get_suite

app = typer.Typer(no_args_is_help=True, context_settings={"max_content_width": 100})
RESULTS = Path("research/results")
TIME_IS_UP = 3

SuiteName = Annotated[str, typer.Argument(metavar="SUITE", help=f"{', '.join(BUNDLED)}, or a TOML file.")]
Out = Annotated[Path, typer.Option(metavar="FOLDER", help="Folder of SUITE.jsonl and its page SUITE.md.")]


def say(line: str) -> None:
    """Print what a command does; standard output is for results."""
    typer.echo(line, err=True)


def _seeds(text: str | None) -> list[int] | None:
    """``5`` means 0 to 4; ``0,3`` means these two."""
    if text is None:
        return None
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() for part in parts) or parts == ["0"]:
        raise typer.BadParameter(f"{text!r} is neither a number nor a list such as 0,3", param_hint="--seeds")
    return [int(part) for part in parts] if len(parts) > 1 else list(range(int(text)))


def _write(suite: Suite, out: Path) -> None:
    times = out / f"{suite.name}-times.jsonl"
    lines, page = out / f"{suite.name}.jsonl", out / f"{suite.name}.md"
    say(f"wrote {write_page(suite, lines, page, times if times.is_file() else None)}")


@app.callback()
def _about() -> None:
    """Compare methods on many data sets and seeds."""


@app.command()
def run(
    suite: SuiteName,
    methods: Annotated[
        str | None,
        typer.Option(
            metavar="NAMES",
            help="Comma-separated names, groups (all, peers, published, since-vir, ablation-...) and methods "
            "with options such as 'vir[weights.power=0.25]'; by default the suite's.",
        ),
    ] = None,
    data: Annotated[str | None, typer.Option(metavar="NAMES", help="Comma-separated data sets.")] = None,
    seeds: Annotated[
        str | None, typer.Option(metavar="N", help="Number of seeds, or a list: 5 or 0,3.")
    ] = None,
    out: Out = RESULTS,
    workers: Annotated[
        int, typer.Option(metavar="N", min=1, help="Number of processes, one thread each.")
    ] = 1,
    ray: Annotated[
        str | None,
        typer.Option(metavar="ADDRESS", help="Run on a Ray cluster whose machines share the folders."),
    ] = None,
    epochs: Annotated[int | None, typer.Option(metavar="N", min=1, help="Maximum number of epochs.")] = None,
    trials: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Configurations to try per method.")
    ] = None,
    budget: Annotated[
        float | None,
        typer.Option(metavar="SECONDS", min=0.1, help="Processor seconds per method and data set."),
    ] = None,
    times: Annotated[
        bool, typer.Option("--times", help="Then fit each contender once more, to time it.")
    ] = False,
    time_limit: Annotated[
        float,
        typer.Option(metavar="SECONDS", min=0, help="Start no run after it; the same command continues."),
    ] = math.inf,
    plugin: Annotated[
        list[Path] | None,
        typer.Option(metavar="FILE", help="Python file that registers more methods."),
    ] = None,
) -> None:
    """Run what the results file lacks, and write its page. Run it again to continue."""
    for file in plugin or ():
        load_plugin(file)
    chosen = get_suite(suite)
    recipe = chosen.recipe.within(epochs=epochs, trials=trials, seconds=budget)
    chosen = replace(chosen, recipe=recipe)
    names = chosen.methods if methods is None else split_methods(methods)
    natural = chosen.split == "natural"
    contenders = choose_estimators(names) if natural else choose_contenders(names, chosen.options)
    lines = out / f"{chosen.name}.jsonl"
    summary = run_suite(
        chosen, contenders, lines, seeds=_seeds(seeds), data=None if data is None else split_methods(data),
        workers=workers, ray=ray, time_limit=time_limit, report=say,
    )  # fmt: skip
    if times and not natural and not summary.left:
        timed = [c for c in contenders if isinstance(c, Contender)]
        take_times(chosen, timed, lines, out / f"{chosen.name}-times.jsonl", say)
    for line in summary.failed:
        say(f"failed: {line}")
    say(f"{summary.done} runs, {summary.left} left, {len(summary.failed)} failed")
    if lines.is_file():
        _write(chosen, out)
    if summary.failed or summary.left:
        raise typer.Exit(1 if summary.failed else TIME_IS_UP)


@app.command()
def page(
    suite: SuiteName,
    out: Out = RESULTS,
    picture: Annotated[
        Path | None, typer.Option(metavar="FILE", help="SVG of errors for common and for rare labels.")
    ] = None,
) -> None:
    """Write the page of stored lines; trains nothing and needs no data."""
    chosen = get_suite(suite)
    _write(chosen, out)
    if picture is not None:
        from tailwise_bench.picture import write_picture  # matplotlib takes long to import

        say(f"wrote {write_picture(Results(read_results(out / f'{chosen.name}.jsonl')), picture)}")


def main() -> None:
    """Run the command; an error that the user can mend is one line."""
    try:
        app()
    except (ValueError, OSError, ImportError) as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
