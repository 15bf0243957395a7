"""The commands of `tailwise bench`: compare methods on many data sets, step by step or all at once.

Exit codes: 0 when everything is done, 1 when a run failed, 2 for wrong usage, 3 when the time is up first.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tailwise.cli.options import Plugin, split_names
from tailwise_bench.cli_options import (
    RESULTS,
    Epochs,
    Methods,
    Prepared,
    Seeds,
    SuiteArgument,
    SuiteOption,
    TimeLimit,
    Trials,
    Weights,
    Work,
    Workers,
    parse_seeds,
    print_line,
)
from tailwise_bench.cli_pages import (
    depth_command,
    estimator_page_command,
    faces_command,
    stsb_command,
    tables_command,
)

if TYPE_CHECKING:
    from tailwise_bench import Recipe, Suite, Summary

app = typer.Typer(no_args_is_help=True, context_settings={"max_content_width": 100})
TIME_IS_UP = 3


# -- output --------------------------------------------------------------------------------------


def _finish(summary: Summary) -> None:
    """Print what was done and end with its exit code."""
    failed = len(summary.failed)
    print_line(f"{summary.done} runs in {summary.seconds:.0f} s, {summary.left} left, {failed} failed")
    if failed or summary.left:
        raise typer.Exit(1 if failed else TIME_IS_UP)


def _recipe(suite: Suite, epochs: int | None, trials: int | None, weights: str | None = None) -> Recipe:
    return suite.recipe.within(epochs=epochs, trials=trials, weights=weights)


# -- commands ------------------------------------------------------------------------------------


@app.callback()
def _about() -> None:
    """Compare methods on many data sets."""


@app.command("suite")
def suite_command(
    suite: SuiteArgument = "tabular",
    methods: Annotated[
        str | None,
        typer.Option(
            help="Comma-separated names or groups (all, peers, ablation-...); by default the suite's."
        ),
    ] = None,
    seeds: Annotated[
        str | None,
        typer.Option(metavar="N", help="Number of seeds, or a list: 5 or 0,3; by default the suite's."),
    ] = None,
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="Folder for results and tables.")] = RESULTS,
    work: Work = Path(".tailwise-bench"),
    times: Annotated[bool, typer.Option("--times", help="Also measure times, as `bench time` does.")] = False,
    workers: Workers = 1,
    epochs: Epochs = None,
    trials: Trials = None,
    weights: Weights = None,
    time_limit: TimeLimit = None,
    plugin: Plugin = None,
) -> None:
    """Do all steps for one suite.

    Prepares its data, runs what is missing and writes the tables. Run it again to continue.
    """
    from tailwise_bench import bench, get_suite

    summary = bench(
        suite, out=out, work=work, methods=methods, seeds=parse_seeds(seeds),
        recipe=_recipe(get_suite(suite), epochs, trials, weights), workers=workers, time_limit=time_limit,
        times=times, report=print_line,
    )  # fmt: skip
    _finish(summary)


@app.command("prepare")
def prepare_command(
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="Folder for the arrays.")],
    suite: SuiteOption = "tabular",
    seeds: Seeds = "5",
    max_rows: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, help="Maximum number of training rows; by default the suite's."),
    ] = None,
    per_bin: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, help="Maximum number of validation and of test rows per label bin."),
    ] = None,
    plugin: Plugin = None,
) -> None:
    """Split and encode the tables of a suite."""
    from tailwise_bench import prepare

    prepare(suite, out, parse_seeds(seeds) or (), max_rows=max_rows, per_bin=per_bin, report=print_line)


@app.command("run")
def run_command(
    prepared: Prepared,
    out: Annotated[Path, typer.Option(help="Results file; lines are appended.")],
    methods: Methods = "all",
    data: Annotated[
        str | None, typer.Option(metavar="NAMES", help="Comma-separated data sets; all by default.")
    ] = None,
    seeds: Seeds = "5",
    workers: Workers = 1,
    epochs: Epochs = None,
    trials: Trials = None,
    weights: Weights = None,
    time_limit: TimeLimit = None,
    plugin: Plugin = None,
) -> None:
    """Run methods on prepared data."""
    from tailwise_bench import choose_contenders, run_suite, suite_of

    suite = suite_of(prepared)
    summary = run_suite(
        prepared, choose_contenders(methods, suite.options), out=out, seeds=parse_seeds(seeds) or (),
        data=None if data is None else split_names(data), recipe=_recipe(suite, epochs, trials, weights),
        workers=workers, time_limit=time_limit,
    )  # fmt: skip
    for line in summary.failed:
        print_line(f"failed: {line}")
    _finish(summary)


app.command("tables")(tables_command)


@app.command("time")
def time_command(
    results: Annotated[list[Path], typer.Argument(metavar="RESULTS", help="Results files of one suite.")],
    prepared: Prepared,
    out: Annotated[Path, typer.Option(help="File of times; lines are appended.")] = RESULTS / "times.jsonl",
    time_limit: TimeLimit = None,
    plugin: Plugin = None,
) -> None:
    """Measure the time of every method's fit.

    Fits each chosen configuration once more on one thread.
    """
    from tailwise_bench import choose_contenders, read_results, suite_of
    from tailwise_bench.run.times import take_times

    suite, runs = suite_of(prepared), read_results(*results)
    # The runs may have had other settings than the suite.
    first = runs[0]["recipe"]
    recipe = _recipe(suite, first["epochs"], first["trials"], first.get("weights", "own"))
    contenders = choose_contenders(dict.fromkeys(run["method"] for run in runs), suite.options)
    _finish(take_times(prepared, runs, contenders, out=out, recipe=recipe, time_limit=time_limit))


@app.command("ablations")
def ablations_command(
    suite: SuiteArgument = "tabular",
    seeds: Seeds = "5",
    out: Annotated[
        Path, typer.Option(help="Results file; lines are appended, and the page is written beside it.")
    ] = RESULTS / "ablations.jsonl",
    work: Work = Path(".tailwise-bench"),
    workers: Workers = 1,
    epochs: Epochs = None,
    trials: Trials = None,
    time_limit: TimeLimit = None,
    page_only: Annotated[
        bool, typer.Option("--page-only", help="Run nothing: write the page of the lines that --out has.")
    ] = False,
    plugin: Plugin = None,
) -> None:
    """Run all ablations of VIR, write their page."""
    from tailwise_bench import choose_contenders, get_suite
    from tailwise_bench.pages.ablation_page import write_ablations
    from tailwise_bench.run.ablations import ablations
    from tailwise_bench.run.runs import run_missing

    if page_only:
        print_line(f"wrote {write_ablations(out, out.with_suffix('.md'))}")
        return
    summary = run_missing(
        suite, choose_contenders(ablations()), out=out, work=work, seeds=parse_seeds(seeds) or (),
        recipe=_recipe(get_suite(suite), epochs, trials), workers=workers, time_limit=time_limit,
        report=print_line,
    )  # fmt: skip
    if not summary.left:
        print_line(f"wrote {write_ablations(out, out.with_suffix('.md'))}")
    _finish(summary)


app.command("stsb")(stsb_command)


app.command("faces")(faces_command)


app.command("depth")(depth_command)


@app.command("choose-defaults")
def choose_defaults_command(
    prepared: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="Folder written by `tailwise-bench prepare`. Without it nothing is run, and the page is "
            "written from the lines of --out.",
        ),
    ] = None,
    methods: Annotated[
        str | None, typer.Option(metavar="NAMES", help="Comma-separated names; all by default.")
    ] = None,
    out: Annotated[
        Path, typer.Option(help="Results file; lines are appended, and the page is written beside it.")
    ] = RESULTS / "defaults.jsonl",
    workers: Workers = 1,
    epochs: Epochs = None,
    trials: Trials = None,
    time_limit: TimeLimit = None,
    plugin: Plugin = None,
) -> None:
    """Choose the defaults of all methods.

    Uses the prepared data of the suite `development` and writes a page about the choice.
    """
    from tailwise_bench import suite_of
    from tailwise_bench.pages.defaults_page import write_defaults
    from tailwise_bench.run.defaults import choose_defaults

    page = out.with_suffix(".md")
    if prepared is None:
        print_line(f"wrote {write_defaults(out, page)}")
        return
    suite = suite_of(prepared)
    summary = choose_defaults(
        prepared, out=out, seeds=range(suite.seeds), recipe=_recipe(suite, epochs, trials),
        methods=None if methods is None else split_names(methods), workers=workers, time_limit=time_limit,
    )  # fmt: skip
    if not summary.left:
        print_line(f"wrote {write_defaults(out, page)}")
    _finish(summary)


@app.command("search-prior")
def search_prior_command(
    prepared: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="Folder of the suite `development`. Without it nothing is run, and the page is written from "
            "the lines of --out.",
        ),
    ] = None,
    methods: Annotated[str, typer.Option(metavar="NAMES", help="Comma-separated names.")] = "vir-paper",
    out: Annotated[
        Path, typer.Option(help="Results file; lines are appended, and the page is written beside it.")
    ] = RESULTS / "priors.jsonl",
    workers: Workers = 1,
    epochs: Epochs = None,
    trials: Annotated[int, typer.Option(metavar="N", min=1, help="Priors to try per method.")] = 30,
    time_limit: TimeLimit = None,
    plugin: Plugin = None,
) -> None:
    """Search the prior of VIR's head.

    Tries a grid and then random priors around its best point, as the paper describes. The best one is
    compared with the present one on other seeds; the last lines say which should be the default.
    """
    from tailwise_bench import suite_of
    from tailwise_bench.pages.prior_page import describe_decision, write_priors
    from tailwise_bench.run.defaults import choose_defaults, decisions
    from tailwise_bench.run.prior import PriorStudy
    from tailwise_bench.run.results import ResultsFile

    page = out.with_suffix(".md")
    if prepared is None:
        print_line(f"wrote {write_priors(out, page)}")
        return
    suite = suite_of(prepared)
    summary = choose_defaults(
        prepared, out=out, seeds=range(suite.seeds), recipe=_recipe(suite, epochs, trials),
        methods=split_names(methods), study=PriorStudy, workers=workers, time_limit=time_limit,
    )  # fmt: skip
    if not summary.left:
        print_line(f"wrote {write_priors(out, page)}")
        for found in decisions(ResultsFile(out).records):
            typer.echo(describe_decision(found))
    _finish(summary)


@app.command("estimator")
def estimator_command(
    suite: SuiteOption = "tabular",
    out: Annotated[
        Path, typer.Option(help="Results file; lines are appended, and the page is written beside it.")
    ] = RESULTS / "estimator.jsonl",
    estimators: Annotated[
        str | None, typer.Option(metavar="NAMES", help="Comma-separated names; all by default.")
    ] = None,
    data: Annotated[
        str | None, typer.Option(metavar="NAMES", help="Comma-separated tables; all of the suite by default.")
    ] = None,
    seeds: Seeds = "5",
    max_rows: Annotated[
        int, typer.Option(metavar="N", min=1, help="Maximum number of training rows.")
    ] = 20_000,
    workers: Workers = 1,
    time_limit: TimeLimit = None,
) -> None:
    """Compare TailRegressor with boosted trees.

    Fits each estimator on random splits of raw tables without tuning, and scores all and the rarest test
    labels. Run it again to continue.
    """
    from tailwise_bench import Source, get_suite, suite_name
    from tailwise_bench.pages.estimator_page import write_estimator_page
    from tailwise_bench.run.estimator_runs import run_estimators
    from tailwise_bench.run.estimators import choose_estimators

    tables = {s.name: s for s in get_suite(suite).sources if isinstance(s, Source)}
    names = list(tables) if data is None else split_names(data)
    for name in names:
        if name not in tables:
            raise typer.BadParameter(
                f"{suite} has no table {name!r}; it has {', '.join(tables) or 'none'}", param_hint="--data"
            )
    chosen = choose_estimators(None if estimators is None else split_names(estimators), report=print_line)
    summary = run_estimators(
        [tables[name] for name in names], chosen, out=out, suite=suite_name(suite),
        seeds=parse_seeds(seeds) or (), max_rows=max_rows, workers=workers, time_limit=time_limit,
    )  # fmt: skip
    for line in summary.failed:
        print_line(f"failed: {line}")
    if not summary.left and not summary.failed:
        print_line(f"wrote {write_estimator_page(out, out.with_suffix('.md'))}")
    _finish(summary)


app.command("estimator-page")(estimator_page_command)
