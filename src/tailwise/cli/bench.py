"""The commands of `tailwise bench`: compare methods on many data sets, step by step or all at once.

Exit codes: 0 when everything is done, 1 when a run failed, 2 for wrong usage, 3 when the time is up first.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tailwise.cli.bench_options import (
    Epochs,
    Methods,
    Plugin,
    Prepared,
    Seeds,
    Storage,
    SuiteArgument,
    SuiteOption,
    TimeLimit,
    Trials,
    Weights,
    Work,
    Workers,
    parse_names,
    parse_seeds,
)

if TYPE_CHECKING:
    from tailwise.benchmark import Recipe, Suite, Summary

app = typer.Typer(no_args_is_help=True, context_settings={"max_content_width": 100})
RESULTS = Path("docs/results")
TIME_IS_UP = 3


# -- output --------------------------------------------------------------------------------------


def _print(line: str) -> None:
    typer.echo(line, err=True)


def _finish(summary: Summary) -> None:
    """Print what was done and end with its exit code."""
    failed = len(summary.failed)
    others = f" (and {summary.others} by other processes)" if summary.others else ""
    _print(f"{summary.done} runs{others} in {summary.seconds:.0f} s, {summary.left} left, {failed} failed")
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
    storage: Storage = None,
    plugin: Plugin = [],  # noqa: B006
) -> None:
    """Do all steps for one suite.

    Prepares its data, runs what is missing and writes the tables. Run it again to continue.
    Several processes with the same --out share the runs, also on several machines with a common folder.
    """
    from tailwise.benchmark import bench, get_suite

    summary = bench(
        suite, out=out, work=work, methods=methods, seeds=parse_seeds(seeds),
        recipe=_recipe(get_suite(suite), epochs, trials, weights), workers=workers, time_limit=time_limit,
        times=times, storage=storage, report=_print,
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
    plugin: Plugin = [],  # noqa: B006
) -> None:
    """Split and encode the tables of a suite."""
    from tailwise.benchmark import prepare

    prepare(suite, out, parse_seeds(seeds) or (), max_rows=max_rows, per_bin=per_bin, report=_print)


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
    storage: Storage = None,
    plugin: Plugin = [],  # noqa: B006
) -> None:
    """Run methods on prepared data.

    Several processes with the same --out share the runs, also on several machines with a common folder.
    """
    from tailwise.benchmark import choose_contenders, run_suite, suite_of

    suite = suite_of(prepared)
    summary = run_suite(
        prepared, choose_contenders(methods, suite.options), out=out, seeds=parse_seeds(seeds) or (),
        data=None if data is None else parse_names(data), recipe=_recipe(suite, epochs, trials, weights),
        workers=workers, time_limit=time_limit, storage=storage,
    )  # fmt: skip
    for line in summary.failed:
        _print(f"failed: {line}")
    _finish(summary)


@app.command("tables")
def tables_command(
    results: Annotated[list[Path], typer.Argument(metavar="RESULTS", help="Results files of one suite.")],
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="Folder for the tables.")] = RESULTS,
    name: Annotated[str | None, typer.Option(help="Name of the files; by default the suite's.")] = None,
    title: Annotated[str | None, typer.Option(help="Headline of the page.")] = None,
    times: Annotated[Path | None, typer.Option(help="File written by `tailwise bench time`.")] = None,
    reference: Annotated[
        str | None, typer.Option(help="Method that the others are tested against; by default VIR.")
    ] = None,
) -> None:
    """Write tables of results files.

    Writes a Markdown page, a CSV file and a LaTeX file.
    """
    from tailwise.benchmark.pages.suite_page import write_tables

    for path in write_tables(results, out, name=name, reference=reference, title=title, times=times):
        _print(f"wrote {path}")


@app.command("time")
def time_command(
    results: Annotated[list[Path], typer.Argument(metavar="RESULTS", help="Results files of one suite.")],
    prepared: Prepared,
    out: Annotated[Path, typer.Option(help="File of times; lines are appended.")] = RESULTS / "times.jsonl",
    time_limit: TimeLimit = None,
    plugin: Plugin = [],  # noqa: B006
) -> None:
    """Measure the time of every method's fit.

    Fits each chosen configuration once more on one thread.
    """
    from tailwise.benchmark import choose_contenders, read_results, suite_of
    from tailwise.benchmark.run.times import take_times

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
    plugin: Plugin = [],  # noqa: B006
) -> None:
    """Run all ablations of VIR, write their page."""
    from tailwise.benchmark import choose_contenders, get_suite
    from tailwise.benchmark.pages.ablation_page import write_ablations
    from tailwise.benchmark.run.ablations import ablations
    from tailwise.benchmark.run.runs import run_missing

    if page_only:
        _print(f"wrote {write_ablations(out, out.with_suffix('.md'))}")
        return
    summary = run_missing(
        suite, choose_contenders(ablations()), out=out, work=work, seeds=parse_seeds(seeds) or (),
        recipe=_recipe(get_suite(suite), epochs, trials), workers=workers, time_limit=time_limit,
        report=_print,
    )  # fmt: skip
    if not summary.left:
        _print(f"wrote {write_ablations(out, out.with_suffix('.md'))}")
    _finish(summary)


@app.command("stsb")
def stsb_command(
    results: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="RESULTS", help="Results files, one per suite; by default those of docs/results."
        ),
    ] = None,
    out: Annotated[Path, typer.Option(help="Markdown file.")] = RESULTS / "stsb.md",
) -> None:
    """Write the page on STS-B-DIR.

    It shows our results beside the paper's.
    """
    from tailwise.benchmark.pages.stsb_page import write_page

    given = results or [RESULTS / name / "results.jsonl" for name in ("stsb-paper", "stsb-modern")]
    _print(f"wrote {write_page(given, out)}")


@app.command("faces")
def faces_command(
    results: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="RESULTS",
            help="Results files, one per suite; by default that of UTKFace in docs/results.",
        ),
    ] = None,
    out: Annotated[Path, typer.Option(help="Markdown file.")] = RESULTS / "utkface.md",
) -> None:
    """Write the page on faces.

    It shows every metric by region, and what the dial gives.
    """
    from tailwise.benchmark.pages.faces_page import write_page

    _print(f"wrote {write_page(results or [RESULTS / 'utkface' / 'results.jsonl'], out)}")


@app.command("depth")
def depth_command(
    results: Annotated[
        Path, typer.Argument(metavar="RESULTS", help="Results file of a suite of depth maps.")
    ] = RESULTS / "nyuv2-small" / "results.jsonl",
    out: Annotated[Path, typer.Option(help="Markdown file.")] = RESULTS / "nyuv2-small.md",
    prepared: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="Folder written by `tailwise bench prepare`: also draw predicted maps of some pictures.",
        ),
    ] = None,
) -> None:
    """Write the page on depth maps.

    It shows every metric by region. With --prepared it also draws depth and uncertainty of some pictures.
    """
    from tailwise.benchmark.pages.depth_page import draw_maps, write_page

    _print(f"wrote {write_page(results, out)}")
    if prepared is not None:
        _print(f"wrote {draw_maps(results, prepared, out.with_suffix('.png'))}")


@app.command("choose-defaults")
def choose_defaults_command(
    prepared: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="Folder written by `tailwise bench prepare`. Without it nothing is run, and the page is "
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
    plugin: Plugin = [],  # noqa: B006
) -> None:
    """Choose the defaults of all methods.

    Uses the prepared data of the suite `development` and writes a page about the choice.
    """
    from tailwise.benchmark import suite_of
    from tailwise.benchmark.pages.defaults_page import write_defaults
    from tailwise.benchmark.run.defaults import choose_defaults

    page = out.with_suffix(".md")
    if prepared is None:
        _print(f"wrote {write_defaults(out, page)}")
        return
    suite = suite_of(prepared)
    summary = choose_defaults(
        prepared, out=out, seeds=range(suite.seeds), recipe=_recipe(suite, epochs, trials),
        methods=None if methods is None else parse_names(methods), workers=workers, time_limit=time_limit,
    )  # fmt: skip
    if not summary.left:
        _print(f"wrote {write_defaults(out, page)}")
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
    plugin: Plugin = [],  # noqa: B006
) -> None:
    """Search the prior of VIR's head.

    Tries a grid and then random priors around its best point, as the paper describes. The best one is
    compared with the present one on other seeds; the last lines say which should be the default.
    """
    from tailwise.benchmark import suite_of
    from tailwise.benchmark.pages.prior_page import describe_decision, write_priors
    from tailwise.benchmark.run.defaults import choose_defaults, decisions
    from tailwise.benchmark.run.prior import PriorStudy
    from tailwise.benchmark.run.results import ResultsFile

    page = out.with_suffix(".md")
    if prepared is None:
        _print(f"wrote {write_priors(out, page)}")
        return
    suite = suite_of(prepared)
    summary = choose_defaults(
        prepared, out=out, seeds=range(suite.seeds), recipe=_recipe(suite, epochs, trials),
        methods=parse_names(methods), study=PriorStudy, workers=workers, time_limit=time_limit,
    )  # fmt: skip
    if not summary.left:
        _print(f"wrote {write_priors(out, page)}")
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
    from tailwise.benchmark import Source, get_suite, suite_name
    from tailwise.benchmark.pages.estimator_page import write_estimator_page
    from tailwise.benchmark.run.estimator_runs import run_estimators
    from tailwise.benchmark.run.estimators import choose_estimators

    tables = {s.name: s for s in get_suite(suite).sources if isinstance(s, Source)}
    names = list(tables) if data is None else parse_names(data)
    for name in names:
        if name not in tables:
            raise typer.BadParameter(
                f"{suite} has no table {name!r}; it has {', '.join(tables) or 'none'}", param_hint="--data"
            )
    chosen = choose_estimators(None if estimators is None else parse_names(estimators), report=_print)
    summary = run_estimators(
        [tables[name] for name in names], chosen, out=out, suite=suite_name(suite),
        seeds=parse_seeds(seeds) or (), max_rows=max_rows, workers=workers, time_limit=time_limit,
    )  # fmt: skip
    for line in summary.failed:
        _print(f"failed: {line}")
    if not summary.left and not summary.failed:
        _print(f"wrote {write_estimator_page(out, out.with_suffix('.md'))}")
    _finish(summary)


@app.command("estimator-page")
def estimator_page_command(
    results: Annotated[
        Path, typer.Argument(metavar="RESULTS", help="Results file of `tailwise bench estimator`.")
    ] = RESULTS / "estimator.jsonl",
    out: Annotated[Path, typer.Option(help="Markdown file.")] = RESULTS / "estimator.md",
) -> None:
    """Write the page of `bench estimator`.

    Needs no data and also works while runs are missing.
    """
    from tailwise.benchmark.pages.estimator_page import write_estimator_page

    _print(f"wrote {write_estimator_page(results, out)}")
